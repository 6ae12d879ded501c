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
#ifndef DWELL_RESPONSE_QUEUE_H
#define DWELL_RESPONSE_QUEUE_H

#include "base/headers.h"
#include "response/response_types.h"

#define DWELL_TICK_SHIFT 8

/* Returns a duration in ticks. */
static __always_inline __u32 dwell_tick(__u64 duration_ns)
{
	return duration_ns >> DWELL_TICK_SHIFT;
}

/* Returns a time in ticks since the flow's first packet, so that nothing depends on where the clock begins. */
static __always_inline __u32 dwell_tick_at(const struct dwell_auto_state *state, __u64 time_ns)
{
	return (time_ns - state->turn.origin_ns) >> DWELL_TICK_SHIFT;
}

static __always_inline void dwell_count_u16(__u16 *count)
{
	*count += *count != 0xffff;
}

static __always_inline __u16 dwell_add_u16(__u32 count, __u32 more)
{
	return count + more < 0xffff ? count + more : 0xffff;
}

static __always_inline void dwell_count_u8(__u8 *count)
{
	*count += *count != 0xff;
}

/* Returns a mean after it has moved towards a value by 1/2^shift of the difference. */
static __always_inline __u32 dwell_toward(__u32 mean, __u32 value, __u32 shift)
{
	if (value >= mean)
		return mean + ((value - mean) >> shift);
	return mean - ((mean - value) >> shift);
}

static __always_inline __u32 dwell_queued(const struct dwell_auto_state *state)
{
	return (__u8)(state->tail - state->head);
}

/* Score from which ends come at once with others, and one in eight is missed: responses follow each other closely, and
 * progress by anything but full segments is an end within the run. Below it, a server writes a response in parts.
 */
#define DWELL_MERGED 16

/* Consecutive requests that came alone, each after an end, by which a client is taken to keep its window full. */
#define DWELL_ALONE 32

/* Functions that BPF verifies apart: it defines these as calls, with its own configuration, before it includes this;
 * see response/embed.h.
 */
#ifndef DWELL_RESPONSE_OUTLINED
#define dwell_request(state, config, now_ns, progress) dwell_request_in(state, config, now_ns, progress, 0)
#define dwell_complete dwell_complete_in
#define dwell_missed dwell_missed_in
#endif

/* Handles an end that was seen, or concluded, at `tick`. */
static __always_inline void dwell_complete_in(struct dwell_auto_state *state,
					      const struct dwell_response_config *config, __u32 tick)
{
	__u64 latency_ns;
	__u32 latency;

	dwell_count_u8(&state->ends);
	if (!dwell_queued(state)) {
		dwell_count_u16(&state->surplus);
		state->merged -= state->merged < 8 ? state->merged : 8;
		return;
	}
	latency = tick - state->sent[state->head++ & (DWELL_QUEUE_LENGTH - 1)];
	if ((__s32)latency < 0) {
		dwell_count_u16(&state->early);
		return;
	}
	latency_ns = (__u64)latency << DWELL_TICK_SHIFT;
	if (latency_ns > config->idle_ns) { /* from before the clock was set, or given up */
		dwell_count_u16(&state->clock.idle);
		return;
	}
	dwell_tally_add(&state->all, latency_ns);
	state->held = latency ? latency : 1;
}

/* Closes the run of progress. If segments have a known size, a run of full ones is only a part of a response: the
 * server waits for its window.
 */
static __always_inline void dwell_close_run(struct dwell_auto_state *state, const struct dwell_response_config *config)
{
	if (!(state->flags & DWELL_FLOW_RUN))
		return;
	if (state->flags & DWELL_FLOW_ALIGNED && !(state->flags & DWELL_FLOW_EDGE))
		return;
	dwell_complete_in(state, config, state->progress);
	state->flags &= ~(DWELL_FLOW_RUN | DWELL_FLOW_EDGE);
}

/* Closes a run that has paused for long enough. */
static __always_inline void dwell_age_run(struct dwell_auto_state *state, const struct dwell_response_config *config,
					  __u64 now_ns)
{
	__u32 pause = dwell_tick_at(state, now_ns) - state->progress;

	if ((__s32)pause > 0 && pause > dwell_tick(config->run_gap_ns))
		dwell_close_run(state, config);
}

/* Handles progress of the ACK number. If the server's clock has shown that the ACK came late, as one does that a timer
 * sent, the progress was earlier.
 */
static __always_inline void dwell_progress(struct dwell_auto_state *state, __u64 now_ns, __u32 edge)
{
	__u32 tick = dwell_tick_at(state, now_ns), moved = -(__u32) !!(state->turn.flags & DWELL_TURN_MOVED);

	DWELL_OPAQUE(moved); /* no branch, each of which the verifier would follow to the end */
	state->progress = tick - ((tick - state->turn.end) & moved);
	state->burst = 0;
	if (state->flags & DWELL_FLOW_GUESS)
		state->flags &= ~(DWELL_FLOW_PART | DWELL_FLOW_GUESS);
	if (state->flags & DWELL_FLOW_RUN)
		state->flags &= ~DWELL_FLOW_ALONE;
	else
		state->flags |= DWELL_FLOW_RUN | DWELL_FLOW_ALONE;
	if (edge)
		state->flags |= DWELL_FLOW_EDGE;
}

/* Returns true unless the ACK number advances by full segments. The remainder is a 32-bit division, for progress only.
 */
static __always_inline int dwell_is_edge(struct dwell_auto_state *state, __u32 delta)
{
	__u32 segment = state->segment;

	if (!segment || delta % segment)
		return 1;
	state->flags |= DWELL_FLOW_ALIGNED;
	return 0;
}

/* Returns whether progress of `bytes` is that of a FIN, which takes a number of its own, and not of an answer of one byte.
 */
static __always_inline int dwell_is_fin(const struct dwell_turn_state *turn, __u32 bytes)
{
	return bytes == 1 && turn->usual_bytes != 1;
}

/* Handles the ACK number of a packet with or without data. */
static __always_inline void dwell_ack_number(struct dwell_auto_state *state, const struct dwell_response_config *config,
					     const struct dwell_arrival *arrival)
{
	__u32 delta = arrival->ack - state->ack, edge;

	if (!(arrival->tcp_flags & DWELL_TCP_ACK)) /* the field means nothing */
		return;
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
	if (dwell_is_fin(&state->turn, delta))
		return;
	edge = dwell_is_edge(state, delta);
	dwell_progress(state, arrival->time_ns, edge);
	if (edge && state->merged >= DWELL_MERGED && !arrival->payload_bytes)
		dwell_close_run(state, config);
}

/* Ticks (1.07 s) within which a hole is filled, or never: it was lost between the client and here. */
#define DWELL_HOLE_AGE (1 << 22)

enum dwell_data {
	DWELL_DATA_SEEN, /* seen before */
	DWELL_DATA_NEXT,
	DWELL_DATA_FILLS, /* fills a hole: it was overtaken, or its first copy was lost on the way here */
};

static __always_inline enum dwell_data dwell_is_new(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	__u32 end = arrival->seq + arrival->payload_bytes, skipped, now = dwell_tick_at(state, arrival->time_ns);

	if (dwell_after(end, state->next_seq)) {
		skipped = arrival->seq - state->next_seq;
		if ((__s32)skipped > 0) {
			if (!state->holes || now - state->pace > DWELL_HOLE_AGE)
				state->pace = now;
			skipped += state->holes;
			state->holes = skipped > 0xffff ? 0xffff : skipped;
		}
		state->next_seq = end;
		return DWELL_DATA_NEXT;
	}
	dwell_count_u8(&state->late);
	if (arrival->payload_bytes > state->holes)
		return DWELL_DATA_SEEN;
	state->holes -= arrival->payload_bytes;
	return DWELL_DATA_FILLS;
}

/* Returns the bucket of a gap: half octaves; the first and last bucket hold what is shorter or longer. */
static __always_inline __u32 dwell_gap_log(__u64 gap_ns)
{
	__u32 power = dwell_log2(gap_ns), index;

	if (power < DWELL_GAP_LOG_MIN)
		return 0;
	index = (power - DWELL_GAP_LOG_MIN) * 2 + (gap_ns >> ((power - 1) & 63) & 1);
	return index < DWELL_GAP_LOGS ? index : DWELL_GAP_LOGS - 1;
}

/* Counts the time since the last request, and since the one `depth` before. */
static __always_inline void dwell_request_gaps(struct dwell_auto_state *state,
					       const struct dwell_response_config *config, __u32 tick)
{
	__u32 last = state->sent[(state->tail - 1) & (DWELL_QUEUE_LENGTH - 1)];
	__u32 far = state->sent[(state->tail - state->depth) & (DWELL_QUEUE_LENGTH - 1)];
	__u64 gap_ns = (__u64)(tick - last) << DWELL_TICK_SHIFT;
	__u64 lag_ns = (__u64)(tick - far) << DWELL_TICK_SHIFT;

	if (far && lag_ns <= config->idle_ns)
		dwell_tally_add(&state->lag, lag_ns);
	if (!last)
		return;
	if (gap_ns > config->idle_ns) {
		dwell_count_u16(&state->clock.idle);
		return;
	}
	if (dwell_tally_add(&state->gaps, gap_ns) && !(state->flags & DWELL_FLOW_NUMBERS))
		dwell_count_u16(&state->gap_log[dwell_gap_log(gap_ns) & (DWELL_GAP_LOGS - 1)]);
}

/* Returns true if a client that sends a request now waits for nothing else any more. If it let ends pass without a
 * request, it had none to send; that it has one now means that the page or the batch is complete, and the next begins.
 * The longer the pause before the request, the fewer ends must have been seen. With packets out of order this cannot be
 * told.
 */
static __always_inline int dwell_starts_again(const struct dwell_auto_state *state,
					      const struct dwell_response_config *config, __u32 pause)
{
	__u32 waiting = dwell_queued(state), ends = state->ends;
	__u32 run_gap = dwell_tick(config->run_gap_ns);

	if (state->late >= 4)
		return 0;
	if (pause > 16 * run_gap)
		return ends > 0;
	if (pause > 4 * run_gap)
		return 2 * ends >= waiting;
	return ends > 1 && ends > waiting;
}

/* Returns true if a client that keeps its window full is merely late. If that happens again and again, it has no
 * window: it waits for one response, then sends one request. After a silence of many times what an answer usually takes,
 * nothing was under way.
 */
static __always_inline int dwell_is_hiccup(struct dwell_auto_state *state, const struct dwell_response_config *config,
					   __u32 pause)
{
	if (pause <= 4 * dwell_tick(config->run_gap_ns))
		return 0;
	if (pause > 16 * dwell_tick(config->run_gap_ns) && pause > 4ULL * state->turn.usual)
		return 0;
	dwell_count_u8(&state->pauses);
	if (state->streak < DWELL_ALONE)
		return 0;
	if (state->pauses < 4)
		return 1;
	state->depth = 1;
	state->flags &= ~DWELL_FLOW_DEEP;
	return 0;
}

/* Corrects the queue of a client that keeps its window full and sends one request per end: of several ends the others
 * were none, and all but one of the window are still pending.
 */
static __always_inline void dwell_refill(struct dwell_auto_state *state)
{
	if (state->streak < DWELL_ALONE || state->ends < 2 || dwell_queued(state) + 1 >= state->depth)
		return;
	state->head = state->tail - state->depth + 1;
	dwell_count_u16(&state->surplus);
}

/* Handles ends of which nothing was seen. */
static __always_inline void dwell_missed_in(struct dwell_auto_state *state, const struct dwell_response_config *config,
					    __u32 missed)
{
	for (__u32 i = 0; i < DWELL_QUEUE_LENGTH; i++) {
		if (i >= missed)
			break;
		state->merged += state->merged < 64 ? 8 : 0;
		dwell_count_u16(&state->missed);
		dwell_complete(state, config, state->progress);
	}
}

static __always_inline void dwell_request_ends(struct dwell_auto_state *state,
					       const struct dwell_response_config *config, __u32 first, __u32 pause,
					       int apart)
{
	__u32 waiting = dwell_queued(state), missed, again;

	pause = (__s32)pause > 0 ? pause : 0;
	again = first && dwell_starts_again(state, config, pause) && !dwell_is_hiccup(state, config, pause);
	/* Ends that were not seen came at once with others: a client cannot wait for more than it sends at once. */
	missed = again ? waiting : waiting >= state->depth ? waiting - state->depth + 1 : 0;
	if (first && missed == 1 && !state->ends)
		dwell_count_u16(&state->plain);
	state->merged -= state->merged != 0;
	if (missed && apart)
		dwell_missed(state, config, missed);
	else if (missed)
		dwell_missed_in(state, config, missed);
	if (first && !again)
		dwell_refill(state);
	state->held = 0;
	state->ends = 0;
}

/* Closes the run that a request ends. If the run consists of the ACK number of that very request, the response may have
 * come long before: it is hidden.
 */
static __always_inline void dwell_close_by_request(struct dwell_auto_state *state,
						   const struct dwell_response_config *config, __u32 tick)
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

/* Learns how many requests the client sends at once: the longest burst. A packet that overtakes others makes a burst
 * too, and without headers one that is sent again: a burst then counts if it comes early, or repeatedly.
 */
static __always_inline void dwell_learn_depth(struct dwell_auto_state *state)
{
	if (state->tail > DWELL_QUEUE_LENGTH)
		state->flags |= DWELL_FLOW_GROWN;
	if (state->burst > 1 && (state->flags & DWELL_FLOW_GROWN || state->tail > 4))
		state->flags |= DWELL_FLOW_TWICE;
	if (state->burst > DWELL_QUEUE_LENGTH && state->late < 4)
		state->flags |= DWELL_FLOW_DEEP;
	if (state->burst <= state->depth || state->depth == DWELL_QUEUE_LENGTH)
		return;
	state->deeper += state->deeper < 3;
	if (state->flags & DWELL_FLOW_GROWN &&
	    (state->late >= 4 || (!(state->flags & DWELL_FLOW_NUMBERS) && state->deeper < 3)))
		return;
	state->depth = state->burst < DWELL_QUEUE_LENGTH ? state->burst : DWELL_QUEUE_LENGTH;
}

/* Reduces `depth` for a client that never had as many requests under way in two epochs, although it sometimes waited
 * for all of them.
 */
static __always_inline void dwell_forget_depth(struct dwell_auto_state *state)
{
	__u32 waiting = dwell_queued(state);

	if (state->requests < 2 * DWELL_QUEUE_LENGTH)
		return;
	if (state->peak < state->depth && state->pauses > 3 && !state->surplus && !state->early)
		state->quiet++;
	else
		state->quiet = 0;
	if (state->quiet >= 2) {
		state->depth = state->peak ? state->peak : 1;
		state->flags &= ~DWELL_FLOW_DEEP;
		state->quiet = 0;
	}
	state->peak = waiting < DWELL_QUEUE_LENGTH ? waiting : DWELL_QUEUE_LENGTH;
}

/* Counts the time from an end to the request that answers to it. */
static __always_inline void dwell_react(struct dwell_auto_state *state, const struct dwell_response_config *config,
					__u32 ticks)
{
	state->think += ticks;
	if (ticks > dwell_tick(config->run_gap_ns))
		dwell_count_u16(&state->slow);
}

static __always_inline void dwell_push(struct dwell_auto_state *state, __u32 tick)
{
	__u32 waiting;

	state->sent[state->tail++ & (DWELL_QUEUE_LENGTH - 1)] = tick ? tick : 1;
	state->requests++;
	waiting = dwell_queued(state);
	if (waiting > state->peak)
		state->peak = waiting;
}

/* Handles a request that was lost on the way here and sent again: the first copy was sent about when the hole was seen,
 * and its arrival now shows no end. 0: that time is unknown.
 */
static __always_inline void dwell_push_again(struct dwell_auto_state *state, __u32 tick)
{
	dwell_count_u8(&state->burst);
	dwell_learn_depth(state);
	if (tick && dwell_queued(state) < DWELL_QUEUE_LENGTH)
		dwell_push(state, tick);
}

/* Handles a request. `progress` is the tick of the newest progress before this packet's own. With `apart`, rare cases
 * are left to a function that is verified apart.
 */
static __always_inline void dwell_request_in(struct dwell_auto_state *state, const struct dwell_response_config *config,
					     __u64 now_ns, __u32 progress, int apart)
{
	__u32 tick = dwell_tick_at(state, now_ns), first = !state->burst;
	__u32 last = state->sent[(state->tail - 1) & (DWELL_QUEUE_LENGTH - 1)];
	__u64 gap_ns = (__u64)(tick - last) << DWELL_TICK_SHIFT;

	dwell_close_by_request(state, config, tick);
	if (first) {
		dwell_count_u16(&state->turns);
		/* as a part of the gap, if that counts */
		if (last && gap_ns <= config->idle_ns && (__s32)(progress - last) > 0 && (__s32)(tick - progress) > 0)
			dwell_react(state, config, tick - progress);
		state->streak += state->streak != 0xff;
	} else {
		state->streak >>= 1;
	}
	dwell_count_u8(&state->burst);
	dwell_learn_depth(state);
	dwell_request_ends(state, config, first, tick - state->progress, apart);
	dwell_request_gaps(state, config, tick);
	dwell_push(state, tick);
}

#endif
