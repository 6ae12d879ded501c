/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pool of slots that no flow occupies. It hands out the slot that was freed last, then unused ones in their order,
 * so that slots in use lie close together: on few pages, and in cache.
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
	__u64 top;   /* index of the slot that was freed last, plus 1; the upper half counts changes */
	__u32 fresh; /* slots from this index on were never used */
	__u32 reserved;
};

#define DWELL_POOL_TRIES 64

static __always_inline int dwell_pool_spare(const struct dwell_pool *pool, __u32 places)
{
	return pool && ((__u32)pool->top || pool->fresh < places);
}

/* Returns a slot that was never used, or DWELL_NO_SLOT. */
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

static __always_inline __u32 dwell_slot_allocate(struct dwell_table *table, struct dwell_bucket *bucket, __u32 way)
{
	struct dwell_pool *pool = dwell_pool_of(table->embedder);
	__u32 slot_index = DWELL_NO_SLOT;

	for (int i = 0; pool && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;
		__u32 *next;

		if (!(__u32)top) {
			slot_index = dwell_pool_fresh(pool, dwell_slot_total(table->embedder));
			break;
		}
		next = dwell_slot_next(table->embedder, (__u32)top - 1);
		if (!next)
			break;
		if (dwell_pool_swap(pool, top, *(volatile __u32 *)next)) {
			slot_index = (__u32)top - 1;
			break;
		}
	}
	((struct dwell_slot_bucket *)bucket)->slot_index[way & (DWELL_WAYS - 1)] = slot_index;
	return slot_index;
}

/* Returns a slot to the pool; no look-up leads to it any more. If every try fails, the slot is lost until the table is
 * created again: each fails only if another CPU's exchange falls into the nanoseconds between read and exchange.
 */
static __always_inline void dwell_slot_free(struct dwell_table *table, __u32 slot_index)
{
	__u32 *next = dwell_slot_next(table->embedder, slot_index);
	struct dwell_pool *pool = dwell_pool_of(table->embedder);

	for (int i = 0; pool && next && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;

		*(volatile __u32 *)next = (__u32)top;
		DWELL_BARRIER();
		if (dwell_pool_swap(pool, top, slot_index + 1))
			return;
	}
}

#endif
