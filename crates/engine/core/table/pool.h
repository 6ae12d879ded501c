/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Pools: of slots that no flow occupies, and of what else slots take when they need it. A pool hands out the entry that was
 * freed last, then unused ones in their order, so that those in use lie close together: on few pages, and in cache.
 */
#ifndef DWELL_TABLE_POOL_H
#define DWELL_TABLE_POOL_H

#include "table/table.h"

/* A bucket whose ways may lead to any slot. */
struct dwell_slot_bucket {
	struct dwell_bucket bucket;
	__u32 slot_index[DWELL_WAYS];
};

struct dwell_pool {
	__u64 top;   /* index of the entry that was freed last, plus 1; the upper half counts changes */
	__u32 fresh; /* entries from this index on were never used */
	__u32 reserved;
};

#define DWELL_POOL_TRIES 64

static __always_inline int dwell_pool_spare(const struct dwell_pool *pool, __u32 places)
{
	return pool && ((__u32)pool->top || pool->fresh < places);
}

/* Returns where the entry of a pool with this index, which nobody has, keeps the index of the next free one, plus 1; 0: none.
 * Null if the index is beyond the array.
 */
typedef __u32 *(*dwell_next_at)(void *embedder, __u32 index);

/* Returns an entry that was never used, or DWELL_NO_SLOT. */
static __always_inline __u32 dwell_pool_fresh(struct dwell_pool *pool, __u32 places)
{
	for (int i = 0; i < DWELL_POOL_TRIES; i++) {
		__u32 fresh = *(volatile __u32 *)&pool->fresh;

		if (fresh >= places)
			break;
		if (__sync_val_compare_and_swap(&pool->fresh, fresh, fresh + 1) == fresh)
			return fresh;
	}
	return DWELL_NO_SLOT;
}

/* Replaces the top of the pool. Returns false if another CPU was quicker; the count in the upper half reveals a top
 * that left and came back.
 */
static __always_inline int dwell_pool_swap(struct dwell_pool *pool, __u64 top, __u32 next)
{
	__u64 changed = ((top >> 32) + 1) << 32 | next;

	return __sync_val_compare_and_swap(&pool->top, top, changed) == top;
}

static __always_inline __u32 dwell_slot_of(const struct dwell_bucket *bucket, __u32 way)
{
	return ((const struct dwell_slot_bucket *)bucket)->slot_index[way & (DWELL_WAYS - 1)];
}

static __always_inline int dwell_slot_is_available(void *embedder)
{
	return dwell_pool_spare(dwell_pool_of(embedder), dwell_slot_total(embedder));
}

/* Takes an entry out of a pool of `places`. Returns its index, or DWELL_NO_SLOT. */
static __always_inline __u32 dwell_pool_take(void *embedder, struct dwell_pool *pool, __u32 places,
					     dwell_next_at next_at)
{
	for (int i = 0; pool && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;
		__u32 *next;

		if (!(__u32)top)
			return dwell_pool_fresh(pool, places);
		next = next_at(embedder, (__u32)top - 1);
		if (!next)
			break;
		if (dwell_pool_swap(pool, top, *(volatile __u32 *)next))
			return (__u32)top - 1;
	}
	return DWELL_NO_SLOT;
}

/* Returns an entry to its pool. If every try fails, it is lost until the pool is created again: each fails only if another
 * CPU's exchange falls into the nanoseconds between read and exchange.
 */
static __always_inline void dwell_pool_give(void *embedder, struct dwell_pool *pool, __u32 index, dwell_next_at next_at)
{
	__u32 *next = next_at(embedder, index);

	for (int i = 0; pool && next && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;

		*(volatile __u32 *)next = (__u32)top;
		DWELL_BARRIER();
		if (dwell_pool_swap(pool, top, index + 1))
			return;
	}
}

static __always_inline __u32 dwell_slot_allocate(struct dwell_table *table, struct dwell_bucket *bucket, __u32 way)
{
	__u32 slot_index = dwell_pool_take(table->embedder, dwell_pool_of(table->embedder),
					   dwell_slot_total(table->embedder), dwell_slot_next);

	((struct dwell_slot_bucket *)bucket)->slot_index[way & (DWELL_WAYS - 1)] = slot_index;
	return slot_index;
}

/* Returns a slot to the pool; no look-up leads to it any more. */
static __always_inline void dwell_slot_free(struct dwell_table *table, __u32 slot_index)
{
	dwell_pool_give(table->embedder, dwell_pool_of(table->embedder), slot_index, dwell_slot_next);
}

#endif
