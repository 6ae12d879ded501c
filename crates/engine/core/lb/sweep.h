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
	const union dwell_response_state *state;

	if (!slot->measured || slot->head.flags & (DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED))
		return 0;
	state = dwell_state_at(table->embedder, slot);
	if (!state)
		return 0;
	return dwell_turn_pending_ns(&state->adaptive, &dwell_response_program_of(table)->response,
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

/* Returns how many active connections one stands for: itself, or, if it is silent as its request waits, as many of the
 * same backend as are not measured, of which that is not known.
 */
static __always_inline __u64 dwell_active_count(struct dwell_table *table, const struct dwell_slot *slot, __u64 age_ns)
{
	const struct dwell_real *real;

	if (dwell_is_active(table, slot))
		return 1;
	if (!age_ns)
		return 0;
	real = dwell_real_at(table->embedder, slot->lb.real);
	return 1ULL << (real ? real->flags >> DWELL_REAL_SAMPLING_SHIFT & DWELL_REAL_SAMPLING : 0);
}

/* Silence after which a connection is forgotten although the table has room, 2 h 15 min in coarse units: with keepalives of
 * TCP there is a packet every two hours (RFC 1122 section 4.2.3.6). One that may be part of a flood: 10 min.
 */
#define DWELL_KEPT_COARSE (8100000000000ULL >> 20)
#define DWELL_KEPT_UNSETTLED_COARSE (600000000000ULL >> 20)

/* Returns true if a connection may go on, so that its client would break it by its next packet if it were forgotten: the
 * packet goes where a new connection would. Its place is the first to be taken where it is needed.
 */
static __always_inline int dwell_may_go_on(struct dwell_table *table, const struct dwell_slot *slot)
{
	const struct dwell_real *real = dwell_real_at(table->embedder, slot->lb.real);
	__u32 idle = dwell_now_coarse(table->clock) - slot->head.seen, flags = slot->head.flags;

	if (slot->head.proto != DWELL_PROTO_TCP || slot->head.close_reason || !(flags & DWELL_HEAD_ESTABLISHED) ||
	    flags & (DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED))
		return 0;
	if (!real || real->forward == DWELL_FORWARD_NONE || real->flags & DWELL_REAL_LEAVING)
		return 0;
	if (flags & DWELL_HEAD_SETTLED)
		return idle <= DWELL_KEPT_COARSE;
	return !(flags & DWELL_HEAD_ORPHAN) && idle <= DWELL_KEPT_UNSETTLED_COARSE;
}

/* Returns the ways of a bucket with connections that may go on, as bits. */
static __always_inline __u32 dwell_kept_ways(struct dwell_table *table, __u32 index)
{
	const struct dwell_bucket *bucket = dwell_bucket_at(table->embedder, index);
	__u32 kept = 0;

	for (__u32 way = 0; bucket && way < DWELL_WAYS; way++) {
		const struct dwell_slot *slot;

		if (!(bucket->tags >> 16 * way & 0xffff))
			continue;
		slot = dwell_slot_at(table->embedder, dwell_slot_of(bucket, way));
		if (slot && dwell_may_go_on(table, slot))
			kept |= 1U << way;
	}
	return kept;
}

/* Sweeps a bucket. With DWELL_SWEEP_HAS_ROOM in the reason, connections that may go on are kept beyond the idle timeout. */
static __always_inline void dwell_balance_sweep_bucket(struct dwell_table *table, __u32 index, __u32 reason)
{
	__u32 kept = reason & DWELL_SWEEP_HAS_ROOM ? dwell_balance_kept_ways(table, index) : 0;
	struct dwell_bucket *bucket;

	dwell_slot_sweep(table, index, reason & ~DWELL_SWEEP_HAS_ROOM, kept);
	bucket = dwell_bucket_at(table->embedder, index);
	if (!bucket || !bucket->tags)
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		struct dwell_pending *pending;
		struct dwell_slot *slot;
		__u64 *active, age_ns;
		__u32 real;

		if (!(bucket->tags >> 16 * way & 0xffff))
			continue;
		slot = dwell_slot_at(table->embedder, dwell_slot_of(bucket, way));
		if (!slot)
			continue;
		age_ns = dwell_waiting_ns(table, slot);
		/* once: a backend with a request that waits has a connection, though this one may move meanwhile */
		real = *(const volatile __typeof__(slot->lb.real) *)&slot->lb.real;
		active = dwell_active_at(table->embedder, real);
		/* all connections in the upper half, active ones in the lower; a client that waits for its answer is silent */
		if (active)
			*active += (1ULL << 32) + dwell_active_count(table, slot, age_ns);
		pending = age_ns ? dwell_pending_at(table->embedder, real) : 0;
		if (pending)
			dwell_pending_add(pending, slot, age_ns);
	}
}

#endif
