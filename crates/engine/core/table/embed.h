/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the flow table (table/table.h) needs: from the program, where its memory is; from the algorithm on top of it
 * (rtt/rtt.h, response/slot.h), what a slot is.
 *
 * `embedder` is dwell_table.embedder: whatever the program put there. A slot index names a slot in the program's array.
 */
#ifndef DWELL_TABLE_EMBED_H
#define DWELL_TABLE_EMBED_H

#include "base/embed.h"

struct dwell_bucket;
struct dwell_head;
struct dwell_packet;
struct dwell_pool;
struct dwell_table;

/* From the program. */

/* Returns bucket `index`, which is at most table config->bucket_mask. Null only where BPF cannot know that. */
static __always_inline struct dwell_bucket *dwell_bucket_at(void *embedder, __u32 index);

/* Returns how many slots there are. */
static __always_inline __u32 dwell_slot_total(void *embedder);

/* Returns the pool of free slots, one for all CPUs. Null only where BPF cannot know that it exists. */
static __always_inline struct dwell_pool *dwell_pool_of(void *embedder);

/* Returns a place for a new flow in one of its two buckets, as dwell_vacancy_of() packs it: that function with the
 * table's clock and idle timeout, or a call of it that is verified apart.
 */
static __always_inline __u32 dwell_vacancy_for(struct dwell_table *table, __u32 first, __u32 second, __u64 tag);

/* Returns dwell_rank() of the head of the flow in a slot, or a call of it that is verified apart: the search for a place
 * would otherwise go on from each of its outcomes, for each of eight slots.
 */
static __always_inline __u32 dwell_rank_at(void *embedder, __u32 slot_index, __u32 now_coarse, __u32 timeout_coarse);

/* From table/pool.h. */

/* Returns the index of the slot that a way of a bucket leads to. */
static __always_inline __u32 dwell_slot_of(const struct dwell_bucket *bucket, __u32 way);

/* Gives a free way of a bucket a slot and returns its index; DWELL_NO_SLOT if there is none, or if other CPUs were
 * quicker at every try. The bucket is locked.
 */
static __always_inline __u32 dwell_slot_allocate(struct dwell_table *table, struct dwell_bucket *bucket, __u32 way);

/* Returns true if dwell_slot_allocate() may succeed. */
static __always_inline int dwell_slot_is_available(void *embedder);

/* Returns a slot to the pool. No look-up can lead to it any more. */
static __always_inline void dwell_slot_free(struct dwell_table *table, __u32 slot_index);

/* From the algorithm. */

/* Returns the head of the flow in a slot; null if the index is beyond the array. */
static __always_inline struct dwell_head *dwell_head_at(void *embedder, __u32 slot_index);

/* Returns where a slot that no flow occupies keeps the index of the next free one: memory that no step writes. Null if
 * the index is beyond the array.
 */
static __always_inline __u32 *dwell_slot_next(void *embedder, __u32 slot_index);

/* Locks a slot against packets on other CPUs. Returns false, without waiting long, if one has it. */
static __always_inline int dwell_slot_acquire(struct dwell_table *table, __u32 slot_index);

/* Undoes dwell_slot_acquire(). */
static __always_inline void dwell_slot_release(struct dwell_table *table, __u32 slot_index);

/* Reports that the flow in an acquired slot has ended; `reason` is an enum dwell_close_reason. */
static __always_inline void dwell_slot_close(struct dwell_table *table, __u32 slot_index, __u32 reason);

/* Prepares an acquired slot for the flow that a packet opens, before a look-up can find it; the table fills in the
 * head afterwards. Returns false if the index is beyond the array.
 */
static __always_inline int dwell_slot_init(struct dwell_table *table, __u32 slot_index,
					   const struct dwell_packet *packet);

#endif
