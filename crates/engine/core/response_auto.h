/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: follows requests and the ends of their responses, as far as the
 * client's packets show them, and keeps what other estimates need: gaps between
 * requests, and from a request to the one `depth` later. Which of them is right,
 * the epoch's record tells.
 *
 * A request is a data packet, with the full-size ones before it. A response ends
 * with a run of ACK progress: one that a request follows, or a pause. An end
 * completes the oldest request that waits. The mean over all responses is right
 * even if the server answers in another order, as it depends only on how many
 * wait at each time.
 */
#ifndef DWELL_RESPONSE_AUTO_H
#define DWELL_RESPONSE_AUTO_H

#include "response_types.h"

#define DWELL_TICK_SHIFT 8

static __always_inline __u32 dwell_tick(__u64 time_ns)
{
	return time_ns >> DWELL_TICK_SHIFT;
}

static __always_inline void dwell_count_u16(__u16 *count)
{
	*count += *count != 0xffff;
}

static __always_inline __u32 dwell_waiting(const struct dwell_auto_state *state)
{
	return (__u8)(state->tail - state->head);
}

/* Ends come at once with others, and one in eight is missed: then responses
 * follow each other closely, and progress by other than full segments is an end
 * within the run. Else it is a server that writes a response in parts.
 */
#define DWELL_MERGED 16

/* What BPF verifies apart, once each: it defines these as calls, with its own
 * configuration, before it includes this.
 */
#ifndef DWELL_RESPONSE_OUTLINED
#define dwell_complete dwell_complete_in
#define dwell_request dwell_request_in
#endif

/* An end was seen, or concluded, at `tick`. */
static __always_inline void dwell_complete_in(struct dwell_auto_state *state,
					      const struct dwell_response_config *config,
					      __u32 tick)
{
	__u64 latency_ns;
	__u32 latency;

	state->ends += state->ends != 0xff;
	if (!dwell_waiting(state)) {
		dwell_count_u16(&state->surplus);
		state->merged -= state->merged < 8 ? state->merged : 8;
		return;
	}
	latency = tick - state->sent[state->head++ & (DWELL_WAITING - 1)];
	if ((__s32)latency < 0) /* the end came before the request was sent: it is another's */
		latency = 0;
	latency_ns = (__u64)latency << DWELL_TICK_SHIFT;
	if (latency_ns > config->idle_ns) { /* of a time before the clock was set, or given up */
		state->idle += state->idle != 0xff;
		return;
	}
	dwell_tally_add(&state->all, latency_ns);
	state->held = latency ? latency : 1;
}

/* The run of progress is over. With segments of known size, a run of full ones
 * only is a part of a response: the server waits for its window.
 */
static __always_inline void dwell_close_run(struct dwell_auto_state *state,
					    const struct dwell_response_config *config)
{
	if (!(state->flags & DWELL_FLOW_RUN))
		return;
	if (state->flags & DWELL_FLOW_ALIGNED && !(state->flags & DWELL_FLOW_EDGE))
		return;
	dwell_complete(state, config, state->progress);
	state->flags &= ~(DWELL_FLOW_RUN | DWELL_FLOW_EDGE);
}

/* Closes a run that has paused for long enough. */
static __always_inline void dwell_age_run(struct dwell_auto_state *state,
					  const struct dwell_response_config *config, __u64 now_ns)
{
	__u32 pause = dwell_tick(now_ns) - state->progress;

	if ((__s32)pause > 0 && pause > dwell_tick(config->run_gap_ns))
		dwell_close_run(state, config);
}

static __always_inline void dwell_progress(struct dwell_auto_state *state, __u64 now_ns, __u32 edge)
{
	state->progress = dwell_tick(now_ns);
	state->burst = 0;
	if (state->flags & DWELL_FLOW_RUN)
		state->flags &= ~DWELL_FLOW_ALONE;
	else
		state->flags |= DWELL_FLOW_RUN | DWELL_FLOW_ALONE;
	if (edge)
		state->flags |= DWELL_FLOW_EDGE;
}

/* True unless the ACK number advances by full segments. The remainder is taken
 * by 32-bit division, for progress only.
 */
static __always_inline int dwell_is_edge(struct dwell_auto_state *state, __u32 delta)
{
	__u32 segment = state->segment;

	if (!segment || delta % segment)
		return 1;
	state->flags |= DWELL_FLOW_ALIGNED;
	return 0;
}

/* The ACK number of a packet, data or not. */
static __always_inline void dwell_ack_number(struct dwell_auto_state *state,
					     const struct dwell_response_config *config,
					     const struct dwell_arrival *arrival)
{
	__u32 delta = arrival->ack - state->ack, edge;

	if (!(state->flags & DWELL_FLOW_NUMBERS)) {
		state->flags |= DWELL_FLOW_NUMBERS;
		state->ack = arrival->ack;
		state->next_seq = arrival->seq;
		return;
	}
	if ((__s32)delta <= 0) {
		if (!arrival->payload_bytes)
			dwell_count_u16(&state->repeats);
		return;
	}
	dwell_age_run(state, config, arrival->time_ns);
	state->ack = arrival->ack;
	edge = dwell_is_edge(state, delta);
	dwell_progress(state, arrival->time_ns, edge);
	if (edge && state->merged >= DWELL_MERGED && !arrival->payload_bytes)
		dwell_close_run(state, config);
}

/* False if the data was seen before. Data that fills a hole is new: it was
 * overtaken, or the first copy was lost before it came here.
 */
static __always_inline int dwell_is_new(struct dwell_auto_state *state,
					const struct dwell_arrival *arrival)
{
	__u32 end = arrival->seq + arrival->payload_bytes, skipped;

	if (dwell_after(end, state->next_seq)) {
		skipped = arrival->seq - state->next_seq;
		if ((__s32)skipped > 0) {
			skipped += state->holes;
			state->holes = skipped > 0xffff ? 0xffff : skipped;
		}
		state->next_seq = end;
		return 1;
	}
	state->late += state->late != 0xff;
	if (arrival->payload_bytes > state->holes)
		return 0;
	state->holes -= arrival->payload_bytes;
	return 1;
}

/* Half octaves; what is shorter or longer is in the first or last bucket. */
static __always_inline __u32 dwell_gap_log(__u64 gap_ns)
{
	__u32 power = dwell_log2(gap_ns), index;

	if (power < DWELL_GAP_LOG_MIN)
		return 0;
	index = (power - DWELL_GAP_LOG_MIN) * 2 + (gap_ns >> ((power - 1) & 63) & 1);
	return index < DWELL_GAP_LOGS ? index : DWELL_GAP_LOGS - 1;
}

/* The time since the last request, and since the one `depth` before. */
static __always_inline void dwell_request_gaps(struct dwell_auto_state *state,
					       const struct dwell_response_config *config,
					       __u32 tick)
{
	__u32 last = state->sent[(state->tail - 1) & (DWELL_WAITING - 1)];
	__u32 far = state->sent[(state->tail - state->depth) & (DWELL_WAITING - 1)];
	__u64 gap_ns = (__u64)(tick - last) << DWELL_TICK_SHIFT;
	__u64 lag_ns = (__u64)(tick - far) << DWELL_TICK_SHIFT;

	if (far && lag_ns <= config->idle_ns)
		dwell_tally_add(&state->lag, lag_ns);
	if (!last)
		return;
	if (gap_ns > config->idle_ns) {
		state->idle += state->idle != 0xff;
		return;
	}
	if (dwell_tally_add(&state->gaps, gap_ns))
		dwell_count_u16(&state->gap_log[dwell_gap_log(gap_ns) & (DWELL_GAP_LOGS - 1)]);
}

/* True if a client that sends a request now waits for nothing else any more. If
 * it let ends pass without a request, it had none to send; that it has one now
 * means that the page or the batch is complete, and the next begins. The longer
 * the pause before the request, the fewer ends must have been seen. With packets
 * out of order there is no telling.
 */
static __always_inline int dwell_begins_anew(const struct dwell_auto_state *state,
					     const struct dwell_response_config *config,
					     __u32 pause)
{
	__u32 waiting = dwell_waiting(state), ends = state->ends;
	__u32 run_gap = dwell_tick(config->run_gap_ns);

	if (state->late >= 4)
		return 0;
	if (pause > 16 * run_gap)
		return ends > 0;
	if (pause > 4 * run_gap)
		return 2 * ends >= waiting;
	return ends > 1 && ends > waiting;
}

/* How many ends were not seen, now that the client sends a request: they came at
 * once with others. It cannot wait for more than it ever sent at once.
 */
static __always_inline __u32 dwell_ends_missed(const struct dwell_auto_state *state,
					       const struct dwell_response_config *config,
					       __u32 first, __u32 pause)
{
	__u32 waiting = dwell_waiting(state);

	if (first && dwell_begins_anew(state, config, pause))
		return waiting;
	return waiting >= state->depth ? waiting - state->depth + 1 : 0;
}

static __always_inline void dwell_request_ends(struct dwell_auto_state *state,
					       const struct dwell_response_config *config,
					       __u32 first, __u32 pause)
{
	__u32 missed = dwell_ends_missed(state, config, first, pause);

	state->merged -= state->merged != 0;
	for (__u32 i = 0; i < DWELL_WAITING; i++) {
		if (i >= missed)
			break;
		state->merged += state->merged < 64 ? 8 : 0;
		dwell_count_u16(&state->missed);
		dwell_complete(state, config, state->progress);
	}
	if (first && state->held)
		dwell_tally_add(&state->causal, (__u64)state->held << DWELL_TICK_SHIFT);
	state->held = 0;
	state->ends = 0;
}

/* Closes the run that a request ends. If all of the run is the ACK number of
 * that very request, the response may have come long before: hidden.
 */
static __always_inline void dwell_close_by_request(struct dwell_auto_state *state,
						   const struct dwell_response_config *config,
						   __u32 tick)
{
	__u32 held = state->held;
	__u32 hidden = state->flags & DWELL_FLOW_ALONE && state->progress == tick;

	state->held = 0;
	dwell_close_run(state, config);
	if (!state->held)
		state->held = held;
	else if (hidden)
		dwell_tally_add(&state->hidden, (__u64)state->held << DWELL_TICK_SHIFT);
}

/* The longest burst is what the client sends at once. A packet that overtakes
 * others makes one too, and without headers one that is sent again: then a burst
 * counts if it comes early, or again and again.
 */
static __always_inline void dwell_learn_depth(struct dwell_auto_state *state)
{
	if (state->tail > DWELL_WAITING)
		state->flags |= DWELL_FLOW_GROWN;
	if (state->burst <= state->depth || state->depth == DWELL_WAITING)
		return;
	state->deeper += state->deeper != 0xff;
	if (state->flags & DWELL_FLOW_GROWN &&
	    (state->late >= 4 || (!(state->flags & DWELL_FLOW_NUMBERS) && state->deeper < 3)))
		return;
	state->depth = state->burst < DWELL_WAITING ? state->burst : DWELL_WAITING;
}

/* The client sent a request so long after the end that it answers to. */
static __always_inline void dwell_react(struct dwell_auto_state *state,
					const struct dwell_response_config *config, __u32 ticks)
{
	state->think += ticks;
	if (ticks > dwell_tick(config->run_gap_ns))
		dwell_count_u16(&state->slow);
}

/* `progress` is the tick of the newest progress before this packet's own. */
static __always_inline void dwell_request_in(struct dwell_auto_state *state,
					     const struct dwell_response_config *config,
					     __u64 now_ns, __u32 progress)
{
	__u32 tick = dwell_tick(now_ns), first = !state->burst;
	__u32 last = state->sent[(state->tail - 1) & (DWELL_WAITING - 1)];

	dwell_close_by_request(state, config, tick);
	if (first) {
		dwell_count_u16(&state->turns);
		if ((__s32)(progress - last) > 0 && (__s32)(tick - progress) > 0)
			dwell_react(state, config, tick - progress);
		state->streak += state->streak != 0xff;
	} else {
		state->streak >>= 1;
	}
	state->burst += state->burst != 0xff;
	dwell_learn_depth(state);
	dwell_request_ends(state, config, first, tick - state->progress);
	dwell_request_gaps(state, config, tick);
	state->sent[state->tail++ & (DWELL_WAITING - 1)] = tick ? tick : 1;
	state->clock.requests++;
}

/* A data packet: true if a request begins with it. One that follows a full one
 * continues that request.
 */
static __always_inline int dwell_begins_request(struct dwell_auto_state *state, __u32 is_full)
{
	int begins = !(state->flags & DWELL_FLOW_PART);

	if (is_full) {
		dwell_count_u16(&state->full);
		state->flags |= DWELL_FLOW_PART;
	} else {
		state->flags &= ~DWELL_FLOW_PART;
	}
	return begins;
}

static __always_inline void dwell_auto_tcp(struct dwell_auto_state *state,
					   const struct dwell_response_config *config,
					   const struct dwell_arrival *arrival)
{
	__u32 headers = arrival->bytes - arrival->payload_bytes, progress = state->progress;
	__u32 full;

	if (!state->least || headers < state->least) {
		state->least = headers;
		state->segment = headers < config->mtu ? config->mtu - headers : 0;
	}
	dwell_ack_number(state, config, arrival);
	if (!arrival->payload_bytes || !dwell_is_new(state, arrival))
		return;
	full = arrival->payload_bytes >= state->segment && state->segment &&
	       !(arrival->payload_bytes % state->segment);
	if (dwell_begins_request(state, full))
		dwell_request(state, config, arrival->time_ns, progress);
}

/* Without headers, small packets are transport ACKs if there are others too. The
 * first few are in any case: those of a handshake.
 */
static __always_inline int dwell_is_ack_sized(struct dwell_auto_state *state,
					      const struct dwell_response_config *config,
					      __u32 bytes)
{
	const __u32 options = 40; /* that ACKs may differ by */

	if (bytes > 0xffff)
		bytes = 0xffff;
	if (!state->least || bytes < state->least)
		state->least = bytes;
	if (bytes > state->segment)
		state->segment = bytes;
	return bytes <= config->ack_bytes && bytes <= state->least + options &&
	       (state->segment > state->least + options ||
		(!state->tail && state->clock.packets <= 8));
}

/* A request after a pause tells of an end, if no ACK did. */
static __always_inline void dwell_auto_sized(struct dwell_auto_state *state,
					     const struct dwell_response_config *config,
					     const struct dwell_arrival *arrival)
{
	__u32 last = state->sent[(state->tail - 1) & (DWELL_WAITING - 1)];
	__u32 progress = state->progress, pause = dwell_tick(arrival->time_ns) - last;

	dwell_age_run(state, config, arrival->time_ns);
	if (dwell_is_ack_sized(state, config, arrival->bytes)) {
		dwell_progress(state, arrival->time_ns, 0);
		return;
	}
	if (last && (__s32)(progress - last) < 0 && pause > dwell_tick(config->run_gap_ns))
		dwell_progress(state, arrival->time_ns, 0);
	if (dwell_begins_request(state, arrival->bytes >= config->mtu))
		dwell_request(state, config, arrival->time_ns, progress);
}

#define DWELL_TCP_FIN 1
#define DWELL_TCP_SYN 2
#define DWELL_TCP_RST 4

/* The round trip of the handshake: from the SYN to the packet after it, unless
 * there were several SYNs. Returns 0 if there is none.
 */
static __always_inline __u64 dwell_handshake(__u16 *flags, __u64 last_ns,
					     const struct dwell_arrival *arrival)
{
	__u16 before = *flags;

	if (arrival->visible != DWELL_VISIBLE_TCP)
		return 0;
	if (arrival->tcp_flags & DWELL_TCP_SYN) {
		*flags |= before & DWELL_FLOW_SYN ? DWELL_FLOW_RESYN : DWELL_FLOW_SYN;
		return 0;
	}
	*flags &= ~(DWELL_FLOW_SYN | DWELL_FLOW_RESYN);
	if ((before & (DWELL_FLOW_SYN | DWELL_FLOW_RESYN)) != DWELL_FLOW_SYN ||
	    arrival->tcp_flags & DWELL_TCP_RST || arrival->time_ns < last_ns)
		return 0;
	return arrival->time_ns - last_ns;
}

static __always_inline void dwell_auto_packet(struct dwell_auto_state *state,
					      const struct dwell_response_config *config,
					      const struct dwell_arrival *arrival)
{
	__u64 handshake_ns = dwell_handshake(&state->flags, state->clock.last_ns, arrival);

	if (handshake_ns)
		state->handshake = dwell_brief_floor(handshake_ns);
	if (state->flags & DWELL_FLOW_SYN) {
		state->flags |= DWELL_FLOW_BEGUN;
		state->flags &= ~DWELL_FLOW_NUMBERS;
		return;
	}
	if (arrival->visible == DWELL_VISIBLE_TCP)
		dwell_auto_tcp(state, config, arrival);
	else
		dwell_auto_sized(state, config, arrival);
}

/* Fills the record, and begins anew what counts an epoch. */
static __always_inline void dwell_auto_take(struct dwell_auto_state *state,
					    struct dwell_epoch *epoch)
{
	epoch->requests = state->clock.requests;
	epoch->sizes_only = !(state->flags & DWELL_FLOW_NUMBERS);
	epoch->begun = !!(state->flags & DWELL_FLOW_BEGUN);
	epoch->aligned = !!(state->flags & DWELL_FLOW_ALIGNED);
	epoch->idle = state->idle;
	epoch->handshake_ns = dwell_brief_ns(state->handshake);
	epoch->gaps_ns = dwell_tally_sum(state->gaps);
	epoch->gaps = dwell_tally_count(state->gaps);
	epoch->lag_ns = dwell_tally_sum(state->lag);
	epoch->lags = dwell_tally_count(state->lag);
	epoch->depth = state->depth;
	epoch->think_ns = (__u64)state->think << DWELL_TICK_SHIFT;
	epoch->turns = state->turns;
	epoch->full = state->full;
	epoch->late = state->late;
	epoch->all_ns = dwell_tally_sum(state->all);
	epoch->all = dwell_tally_count(state->all);
	epoch->causal_ns = dwell_tally_sum(state->causal);
	epoch->causal = dwell_tally_count(state->causal);
	epoch->hidden_ns = dwell_tally_sum(state->hidden);
	epoch->hidden = dwell_tally_count(state->hidden);
	epoch->surplus = state->surplus;
	epoch->missed = state->missed;
	epoch->repeats = state->repeats;
	epoch->slow = state->slow;
	epoch->streak = state->streak;
	__builtin_memcpy(epoch->gap_log, state->gap_log, sizeof(epoch->gap_log));
	__builtin_memset(state->gap_log, 0, sizeof(state->gap_log));
	state->all = 0;
	state->causal = 0;
	state->hidden = 0;
	state->surplus = 0;
	state->missed = 0;
	state->gaps = 0;
	state->lag = 0;
	state->think = 0;
	state->turns = 0;
	state->deeper = 0;
	state->repeats = 0;
	state->slow = 0;
	state->full = 0;
	state->late >>= 1;
	state->handshake = 0;
	state->idle = 0;
}

#endif
