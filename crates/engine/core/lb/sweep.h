/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sweep of `dwell lb`: ends what is over in the connection table, and counts by real what is left. */
#ifndef DWELL_LB_SWEEP_H
#define DWELL_LB_SWEEP_H

#include "lb/balance.h"

/* Returns for how long the request of a connection has waited; 0: none waits, or the client has ended the connection. No
 * lock is held: a packet that passes meanwhile may count as waiting, or not.
 */
static __always_inline __u64 dwell_waiting_ns(struct dwell_table *table, const struct dwell_slot *slot)
{
	if (!slot->measured || slot->head.flags & (DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED))
		return 0;
	return dwell_turn_pending_ns(&slot->state.adaptive, &dwell_response_program_of(table)->response,
				     dwell_now(table->clock));
}

static __always_inline void dwell_pending_add(struct dwell_pending *pending, const struct dwell_slot *slot,
					      __u64 age_ns)
{
	__u32 log = dwell_log2(age_ns);

	log = log > DWELL_PENDING_LOG_MIN ? log - DWELL_PENDING_LOG_MIN : 0;
	log = log < DWELL_PENDING_LOGS ? log : DWELL_PENDING_LOGS - 1;
	pending->count[log]++;
	pending->networks[log] |= 1ULL << (dwell_network(slot->client ? &slot->head.key.b : &slot->head.key.a) >> 58);
}

static __always_inline void dwell_balance_sweep_bucket(struct dwell_table *table, __u32 index, __u32 reason)
{
	struct dwell_bucket *bucket;

	dwell_slot_sweep(table, index, reason);
	bucket = dwell_bucket_at(table->embedder, index);
	if (!bucket || !bucket->tags)
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		struct dwell_pending *pending;
		struct dwell_slot *slot;
		__u64 *active, age_ns;

		if (!(bucket->tags >> 16 * way & 0xffff))
			continue;
		slot = dwell_slot_at(table->embedder, dwell_slot_of(bucket, index, way));
		if (!slot)
			continue;
		age_ns = dwell_waiting_ns(table, slot);
		active = dwell_active_at(table->embedder, slot->lb.real);
		/* all connections in the upper half, active ones in the lower; a client that waits for its answer is silent */
		if (active)
			*active += 1ULL << 32 | (age_ns || dwell_is_active(table, slot));
		pending = age_ns ? dwell_pending_at(table->embedder, slot->lb.real) : 0;
		if (pending)
			dwell_pending_add(pending, slot, age_ns);
	}
}

#endif
