/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Places that no flow has. The one that was freed last is taken first, and fresh
 * ones in their order, so that what is in use lies close together: few pages, and
 * in cache.
 */
#ifndef DWELL_TABLE_POOL_H
#define DWELL_TABLE_POOL_H

#include "table/table.h"

/* A bucket whose ways may have any slot. */
struct dwell_slot_bucket {
	struct dwell_bucket bucket;
	__u32 slot_index[DWELL_WAYS];
};

struct dwell_pool {
	__u64 top;   /* the slot that was freed last, plus 1; above it how often that changed */
	__u32 fresh; /* slots from this one on were never taken */
	__u32 reserved;
};

#define DWELL_POOL_TRIES 64

static __always_inline int dwell_pool_spare(const struct dwell_pool *pool, __u32 places)
{
	return pool && ((__u32)pool->top || pool->fresh < places);
}

/* A slot that was never taken. */
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

/* Has another be on top. The count above it tells that it left and came back. */
static __always_inline int dwell_pool_swap(struct dwell_pool *pool, __u64 top, __u32 next)
{
	__u64 changed = ((top >> 32) + 1) << 32 | next;

	return __sync_val_compare_and_swap(&pool->top, top, changed) == top;
}

#endif
