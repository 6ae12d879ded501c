/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency from the client's packets alone: steps of one packet, and the end of an epoch. User space makes
 * estimates from the records of epochs, once per epoch.
 *
 * Epochs are aligned to the clock. A gap belongs to the epoch of the packet that ends it. A packet that is older than
 * the newest makes no gap and ends no epoch, unless it is older by an epoch or more: then the clock was set back.
 */
#ifndef DWELL_RESPONSE_H
#define DWELL_RESPONSE_H

#include "response/response_auto.h"

static __always_inline struct dwell_tolerance dwell_tolerance_of(const struct dwell_response_config *config)
{
	struct dwell_tolerance near = {config->epsilon_ns, config->epsilon_q8};

	return near;
}

/* Returns true for a packet that carries no data, as far as can be seen. The end of a connection counts as bare too, as
 * no response triggers it.
 */
static __always_inline int dwell_is_bare(const struct dwell_arrival *arrival,
					 const struct dwell_response_config *config)
{
	if (!config->coalesce_acks)
		return 0;
	if (arrival->visible == DWELL_VISIBLE_NONE || arrival->visible == DWELL_VISIBLE_QUIC)
		return arrival->bytes <= config->ack_bytes;
	return !arrival->payload_bytes;
}

/* Returns true if more of the same write follows, as far as one packet shows: in TCP, a large packet without the mark
 * of a write's end; otherwise one of about the path's largest size.
 */
static __always_inline int dwell_looks_full(const struct dwell_arrival *arrival,
					    const struct dwell_response_config *config)
{
	if (arrival->visible == DWELL_VISIBLE_TCP)
		return arrival->payload_bytes >= DWELL_SEGMENT_MIN_BYTES && !(arrival->tcp_flags & DWELL_TCP_PSH);
	return arrival->bytes >= config->mtu - config->mtu / 16;
}

/* Returns true for the SYN of another connection with the same addresses and ports: there is no gap to it. */
static __always_inline int dwell_is_syn(const struct dwell_arrival *arrival)
{
	return arrival->visible == DWELL_VISIBLE_TCP && arrival->tcp_flags & DWELL_TCP_SYN;
}

/* Returns the time from the last request to its newest ACK. */
static __always_inline __u16 dwell_answer(const struct dwell_epoch_clock *clock, const struct dwell_arrival *arrival)
{
	if (!clock->last_ns || arrival->time_ns <= clock->last_ns)
		return 0;
	return dwell_float16_floor(arrival->time_ns - clock->last_ns);
}

/* Returns the score, from 0 to 63, of a client that mostly waits after the ACK of an answer, long compared with the
 * answer, before it sends again.
 */
static __always_inline __u32 dwell_waits(const struct dwell_response_config *config, __u32 waits, __u64 gap_ns,
					 __u16 answer)
{
	__u64 answer_ns = dwell_float16_ns(answer);

	if (!answer || gap_ns < answer_ns)
		return waits;
	if (gap_ns - answer_ns > 4 * answer_ns && gap_ns - answer_ns > config->run_gap_ns)
		return waits > 59 ? 63 : waits + 4;
	return waits < 4 ? 0 : waits - 4;
}

/* pirate: counts the gap that this packet ends. */
static __always_inline void dwell_pirate_packet(struct dwell_pirate_state *state,
						const struct dwell_response_config *config,
						const struct dwell_arrival *arrival)
{
	struct dwell_tolerance near = dwell_tolerance_of(config);
	__u64 now_ns = arrival->time_ns, gap_ns;
	__u32 small = state->small, known;

	if (dwell_is_syn(arrival))
		state->clock.last_ns = 0;
	if (dwell_is_bare(arrival, config)) {
		state->answer = dwell_answer(&state->clock, arrival);
		return;
	}
	known = !!state->clock.last_ns;
	if (known && now_ns < state->clock.last_ns)
		return;
	gap_ns = now_ns - state->clock.last_ns;
	state->clock.last_ns = now_ns;
	state->small = arrival->bytes < config->mtu;
	if (dwell_looks_full(arrival, config))
		dwell_count_u16(&state->clock.full);
	if (!known) {
		state->first = 1;
		return;
	}
	state->waits = dwell_waits(config, state->waits, gap_ns, state->answer);
	state->answer = 0;
	if (gap_ns > config->idle_ns)
		dwell_count_u16(&state->clock.idle);
	else if (dwell_modes_add(&state->modes, &state->used, &state->marks, config->modes, &near, gap_ns,
				 small && config->mark_small) == DWELL_MODE_DISCARDED)
		dwell_count_u16(&state->discarded);
}

/* gap: counts a sample. */
static __always_inline void dwell_gap_batch(struct dwell_gap_state *state, __u64 batch_ns)
{
	__u16 low = dwell_float16_floor(batch_ns), high = dwell_float16_ceil(batch_ns);

	if (!dwell_tally_count(state->batches) || low < state->shortest)
		state->shortest = low;
	if (!dwell_tally_count(state->batches) || high > state->longest)
		state->longest = high;
	dwell_tally_add(&state->batches, batch_ns);
}

/* gap: Algorithm 1. A packet after a gap of more than the threshold starts a
 * batch; a sample goes from start to start.
 */
static __always_inline void dwell_gap_packet(struct dwell_gap_state *state, const struct dwell_response_config *config,
					     const struct dwell_arrival *arrival)
{
	__u64 now_ns = arrival->time_ns, gap_ns;
	__u32 known;

	if (dwell_is_syn(arrival)) {
		state->clock.last_ns = 0;
		state->start_ns = 0;
	}
	if (dwell_is_bare(arrival, config)) {
		state->answer = dwell_answer(&state->clock, arrival);
		return;
	}
	known = !!state->clock.last_ns;
	if (known && now_ns < state->clock.last_ns)
		return;
	gap_ns = now_ns - state->clock.last_ns;
	state->requests++;
	state->clock.last_ns = now_ns;
	if (dwell_looks_full(arrival, config))
		dwell_count_u16(&state->clock.full);
	if (known)
		state->waits = dwell_waits(config, state->waits, gap_ns, state->answer);
	state->answer = 0;
	if (known && gap_ns <= config->threshold_ns)
		return;
	if (known && gap_ns > config->idle_ns)
		dwell_count_u16(&state->clock.idle);
	else if (known && state->start_ns)
		dwell_gap_batch(state, now_ns - state->start_ns);
	state->start_ns = now_ns;
}

static __always_inline void dwell_syn_ack_packet(struct dwell_gap_state *state, const struct dwell_arrival *arrival)
{
	__u64 handshake_ns = dwell_handshake(&state->flags, state->clock.last_ns, arrival);

	if (handshake_ns)
		state->handshake_ns = handshake_ns;
	if (arrival->time_ns > state->clock.last_ns)
		state->clock.last_ns = arrival->time_ns;
}

static __always_inline void dwell_pirate_take(struct dwell_pirate_state *state, struct dwell_epoch *epoch)
{
	epoch->discarded = state->discarded;
	epoch->waits = state->waits;
	epoch->modes = state->used;
	for (__u32 i = 0; i < DWELL_MODES; i++) {
		const struct dwell_mode *mode = &state->modes.mode[i];
		dwell_tally tally = dwell_mode_tally(mode);

		if (i >= state->used)
			break;
		epoch->mode[i].min_ns = dwell_float16_ns(mode->min);
		epoch->mode[i].max_ns = dwell_float16_ns(mode->max);
		epoch->mode[i].sum_ns = dwell_tally_sum(tally);
		epoch->mode[i].count = dwell_tally_count(tally);
		epoch->mode[i].marked = state->marks >> i & 1;
		epoch->gaps += epoch->mode[i].count;
		epoch->gaps_ns += epoch->mode[i].sum_ns;
	}
	epoch->requests = epoch->gaps + epoch->discarded + epoch->idle + state->first;
	state->first = 0;
	state->used = 0;
	state->marks = 0;
	state->discarded = 0;
}

static __always_inline void dwell_gap_take(struct dwell_gap_state *state, struct dwell_epoch *epoch)
{
	epoch->requests = state->requests;
	epoch->gaps = dwell_tally_count(state->batches);
	epoch->gaps_ns = dwell_tally_sum(state->batches);
	epoch->waits = state->waits;
	epoch->handshake_ns = state->handshake_ns;
	epoch->narrow = dwell_float16_ns(state->longest) <= 2 * dwell_float16_ns(state->shortest);
	state->requests = 0;
	state->batches = 0;
	state->shortest = 0;
	state->longest = 0;
	state->handshake_ns = 0;
}

/* Takes over and resets an epoch; all states begin with the clock. */
static __always_inline void dwell_epoch_take(union dwell_response_state *state,
					     const struct dwell_response_config *config, struct dwell_epoch *ended)
{
	struct dwell_epoch_clock *clock = &state->clock;

	__builtin_memset(ended, 0, sizeof(*ended));
	ended->start_ns = clock->end_ns - config->epoch_ns;
	ended->epoch_ns = config->epoch_ns;
	ended->idle_ns = config->idle_ns;
	ended->packets = clock->packets;
	ended->estimator = config->estimator;
	ended->idle = clock->idle;
	ended->full = clock->full;
	if (config->estimator == DWELL_ESTIMATE_AUTO)
		dwell_auto_take(&state->adaptive, ended);
	else if (config->estimator == DWELL_ESTIMATE_PIRATE)
		dwell_pirate_take(&state->pirate, ended);
	else
		dwell_gap_take(&state->gap, ended);
	clock->packets = 0;
	clock->idle = 0;
	clock->full = 0;
}

/* Forgets the flow's past, which belongs to another clock: gaps and pending requests start anew. */
static __always_inline void dwell_clock_was_set(union dwell_response_state *state,
						const struct dwell_response_config *config)
{
	state->clock.last_ns = 0;
	state->clock.end_ns = 0;
	if (config->estimator == DWELL_ESTIMATE_GAP)
		state->gap.start_ns = 0;
	if (config->estimator != DWELL_ESTIMATE_AUTO)
		return;
	__builtin_memset(state->adaptive.sent, 0, sizeof(state->adaptive.sent));
	state->adaptive.head = state->adaptive.tail;
	state->adaptive.flags &= ~(DWELL_FLOW_RUN | DWELL_FLOW_EDGE);
	dwell_turn_reset(&state->adaptive.turn);
}

/* A pause that ends everything, within the range of ticks. */
#define DWELL_FOREVER_NS (1ULL << (30 + DWELL_TICK_SHIFT))

/* Returns when an epoch is ended without a packet: a quarter of it later. What it has does not depend on when that is noticed.
 */
static __always_inline __u64 dwell_epoch_due(const struct dwell_epoch_clock *clock,
					     const struct dwell_response_config *config)
{
	return clock->end_ns + (config->epoch_ns >> 2);
}

/* Ends the epoch if it is over at `now_ns`; ~0 ends it in any case. Returns 0 if
 * it is not over, or was empty.
 */
static __always_inline int dwell_response_end(union dwell_response_state *state,
					      const struct dwell_response_config *config, __u64 now_ns,
					      struct dwell_epoch *ended)
{
	struct dwell_epoch_clock *clock = &state->clock;

	if (!clock->packets || now_ns < clock->end_ns)
		return 0;
	if (now_ns == ~0ULL)
		now_ns = clock->last_ns + DWELL_FOREVER_NS;
	else if (now_ns > dwell_epoch_due(clock, config))
		now_ns = dwell_epoch_due(clock, config);
	if (config->estimator == DWELL_ESTIMATE_AUTO) {
		dwell_age_run(&state->adaptive, config, now_ns);
		dwell_turn_age(&state->adaptive, config, now_ns);
	}
	dwell_epoch_take(state, config, ended);
	return 1;
}

/* Starts an epoch; the only division, once per epoch. A packet that is late for an epoch that was already reported
 * counts in the one after the last reported.
 */
static __always_inline void dwell_epoch_begin(struct dwell_epoch_clock *clock,
					      const struct dwell_response_config *config, __u64 now_ns)
{
	__u64 end_ns = now_ns - (now_ns + config->phase_ns) % config->epoch_ns + config->epoch_ns;

	clock->end_ns = end_ns <= clock->end_ns ? clock->end_ns + config->epoch_ns : end_ns;
}

/* Steps one packet. Returns 1 and fills `ended` if it starts another epoch. */
static __always_inline int dwell_response_step(union dwell_response_state *state,
					       const struct dwell_response_config *config,
					       const struct dwell_arrival *arrival, struct dwell_epoch *ended)
{
	struct dwell_epoch_clock *clock = &state->clock;
	__u64 now_ns = arrival->time_ns;
	int is_auto = config->estimator == DWELL_ESTIMATE_AUTO, ends, next = 0;
	int was_due = clock->packets && now_ns >= dwell_epoch_due(clock, config);

	if (is_auto && !was_due)
		next = dwell_turn_before(&state->adaptive, config, arrival);
	ends = dwell_response_end(state, config, now_ns, ended);
	if (is_auto && was_due)
		next = dwell_turn_before(&state->adaptive, config, arrival);
	if (next)
		dwell_turn_next(&state->adaptive, config, arrival);
	if (clock->last_ns > now_ns && clock->last_ns - now_ns >= config->epoch_ns) {
		if (clock->packets) {
			dwell_epoch_take(state, config, ended);
			ends = 1;
		}
		dwell_clock_was_set(state, config);
	}
	if (!clock->packets)
		dwell_epoch_begin(clock, config, now_ns);
	clock->packets += arrival->segments > 1 ? arrival->segments : 1;
	if (is_auto) {
		dwell_auto_packet(&state->adaptive, config, arrival);
		if (now_ns > clock->last_ns)
			clock->last_ns = now_ns;
	} else if (config->estimator == DWELL_ESTIMATE_PIRATE) {
		dwell_pirate_packet(&state->pirate, config, arrival);
	} else if (config->estimator == DWELL_ESTIMATE_GAP) {
		dwell_gap_packet(&state->gap, config, arrival);
	} else {
		dwell_syn_ack_packet(&state->gap, arrival);
	}
	return ends;
}

#endif
