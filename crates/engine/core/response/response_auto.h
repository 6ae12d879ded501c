/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: classifies packets as requests, parts of one, or progress, where TCP's header is visible and where only size
 * and time are.
 */
#ifndef DWELL_RESPONSE_AUTO_H
#define DWELL_RESPONSE_AUTO_H

#include "response/turns.h"

/* Whether a write continues after a data packet, as far as it shows. */
enum dwell_part {
	DWELL_PART_LAST,
	DWELL_PART_GUESS, /* as large as any of the flow, and large enough for a full segment */
	DWELL_PART_MORE,
};

/* Returns true if a data packet begins a request. One that follows a full packet continues that request. */
static __always_inline int dwell_begins_request(struct dwell_auto_state *state, enum dwell_part part)
{
	int begins = !(state->flags & DWELL_FLOW_PART);

	state->flags &= ~(DWELL_FLOW_PART | DWELL_FLOW_GUESS);
	if (part != DWELL_PART_LAST) {
		dwell_count_u16(&state->clock.full);
		state->flags |= DWELL_FLOW_PART;
	}
	if (part == DWELL_PART_GUESS)
		state->flags |= DWELL_FLOW_GUESS;
	return begins;
}

/* Returns whether a write continues. A multiple of the path's segments does; otherwise the mark at the end of a write
 * decides, in connections that set it, and the size alone in others.
 */
static __always_inline enum dwell_part dwell_tcp_part(struct dwell_auto_state *state,
						      const struct dwell_arrival *arrival)
{
	__u32 payload = arrival->payload_bytes, segment = state->segment;
	__u32 is_largest = payload >= state->largest;

	if (is_largest)
		state->largest = payload > 0xffff ? 0xffff : payload;
	if (arrival->tcp_flags & DWELL_TCP_PSH)
		state->flags |= DWELL_FLOW_PUSHES;
	if (segment && payload >= segment && !(payload % segment))
		return DWELL_PART_MORE;
	if (payload < DWELL_SEGMENT_MIN_BYTES)
		return DWELL_PART_LAST;
	if (state->flags & DWELL_FLOW_PUSHES)
		return arrival->tcp_flags & DWELL_TCP_PSH ? DWELL_PART_LAST : DWELL_PART_MORE;
	return is_largest ? DWELL_PART_GUESS : DWELL_PART_LAST;
}

/* Follows the usual size of a request, without those that are far smaller unless there is little else. Returns 1 for a
 * far smaller one.
 */
static __always_inline int dwell_is_minor(struct dwell_auto_state *state, __u32 payload)
{
	__u32 size = payload < 0xffff ? payload : 0xffff, usual = state->usual;
	int minor = size <= DWELL_MINOR && size * 4 < usual;

	state->usual = usual ? dwell_toward(usual, size, minor ? 8 : 3) : size;
	return minor;
}

/* Forgets the small message that ends a client's TLS handshake, which has no answer, if a request follows it at once.
 */
static __always_inline void dwell_forget_greeting(struct dwell_auto_state *state, int minor)
{
	if (state->flags & DWELL_FLOW_GREET && !minor && state->burst == 1) {
		state->burst = 0;
		state->tail--;
		state->requests -= state->requests != 0;
	}
	state->flags &= ~DWELL_FLOW_GREET;
}

static __always_inline void dwell_tcp_request(struct dwell_auto_state *state,
					      const struct dwell_response_config *config,
					      const struct dwell_arrival *arrival, int minor, __u32 progress)
{
	__u32 count = dwell_requests_in(arrival);

	dwell_forget_greeting(state, minor);
	if (minor)
		dwell_count_u16(&state->minor);
	/* most requests are one packet */
	dwell_request_in(state, config, arrival->time_ns, progress, 1);
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 1; i < DWELL_QUEUE_LENGTH; i++) {
		if (dwell_likely(i >= count))
			break;
		dwell_request(state, config, arrival->time_ns, progress);
	}
	if (minor && state->tail == 2 && state->burst == 1)
		state->flags |= DWELL_FLOW_GREET;
}

/* Learns the server's full segment from the headers of the client's packets: what the path carries less headers, but no
 * more than the client accepts. Its SYN says so without the options that every packet has (RFC 6691).
 */
static __always_inline void dwell_learn_segment(struct dwell_auto_state *state,
						const struct dwell_response_config *config, __u32 headers)
{
	__u32 options = dwell_tcp_options(headers);

	state->least = headers;
	state->segment = headers < config->mtu ? config->mtu - headers : 0;
	if (state->turn.mss > options && state->turn.mss - options < state->segment)
		state->segment = state->turn.mss - options;
}

static __always_inline void dwell_auto_tcp(struct dwell_auto_state *state, const struct dwell_response_config *config,
					   const struct dwell_arrival *arrival)
{
	__u32 headers = arrival->bytes - arrival->payload_bytes, progress = state->progress;
	enum dwell_data data;
	__u32 age;
	enum dwell_part part;
	int minor;

	if (!state->least || headers < state->least)
		dwell_learn_segment(state, config, headers);
	dwell_ack_number(state, config, arrival);
	if (arrival->tcp_flags & (DWELL_TCP_FIN | DWELL_TCP_RST) && state->turn.start &&
	    (!state->turn.end || state->lone))
		state->closing = 1;
	if (!arrival->payload_bytes)
		return;
	data = dwell_is_new(state, arrival);
	if (data == DWELL_DATA_SEEN)
		return;
	part = dwell_tcp_part(state, arrival);
	if (!dwell_begins_request(state, part))
		return;
	/* a handshake says nothing of how large requests are: its last message is the one that may look like one */
	minor = dwell_content_kind(arrival) == DWELL_CONTENT_TLS_HANDSHAKE
			? state->tail
			: dwell_is_minor(state, arrival->payload_bytes);
	/* amid full segments of an answer: a window update, not a request */
	if (minor && dwell_queued(state) &&
	    (state->flags & (DWELL_FLOW_ALIGNED | DWELL_FLOW_RUN | DWELL_FLOW_EDGE)) ==
		    (DWELL_FLOW_ALIGNED | DWELL_FLOW_RUN))
		return;
	age = data == DWELL_DATA_FILLS ? dwell_tick_at(state, arrival->time_ns) - state->pace : 0;
	if (age > 32 * dwell_tick(config->run_gap_ns)) {
		dwell_push_again(state, age < DWELL_HOLE_AGE ? state->pace : 0);
		return;
	}
	dwell_tcp_request(state, config, arrival, minor, progress);
	if (age)
		state->sent[(state->tail - 1) & (DWELL_QUEUE_LENGTH - 1)] = state->pace;
}

/* Learns the largest packet of the flow, and the smallest, unless it was the only such one in its epoch (a keepalive).
 */
static __always_inline void dwell_learn_sizes(struct dwell_auto_state *state, __u32 bytes)
{
	if (!state->least || (bytes < state->least && state->flags & DWELL_FLOW_LOWER)) {
		state->least = bytes;
		state->flags &= ~DWELL_FLOW_LOWER;
	} else if (bytes < state->least) {
		state->flags |= DWELL_FLOW_LOWER;
	}
	if (!state->usual || bytes < state->usual)
		state->usual = bytes;
	if (bytes > state->segment)
		state->segment = bytes;
	if (bytes > state->largest)
		state->largest = bytes;
}

/* Replaces the sizes of the flow by those of the epoch. If ACKs were taken for requests until now, none of these is
 * pending.
 */
static __always_inline void dwell_renew_sizes(struct dwell_auto_state *state)
{
	state->flags &= ~DWELL_FLOW_LOWER;
	if (state->requests < 4)
		return;
	if (state->usual > state->least) {
		state->least = state->usual;
		state->head = state->tail;
		state->depth = 1;
	}
	state->segment = state->largest;
	state->usual = 0;
	state->largest = 0;
}

/* Returns true for a transport ACK without visible headers: a small packet, if there are others too. The first few are
 * ACKs in any case: those of a handshake. What is known to be UDP has none.
 */
static __always_inline int dwell_is_ack_sized(const struct dwell_auto_state *state,
					      const struct dwell_response_config *config,
					      const struct dwell_arrival *arrival)
{
	/* by which ACKs may differ: options of TCP; in QUIC, lengths of numbers, and some ranges more than one (RFC 9000 section 19.3) */
	const __u32 options = arrival->visible == DWELL_VISIBLE_QUIC ? 16 : 40;
	__u32 bytes = arrival->bytes;
	__u32 least = bytes < state->least ? bytes : state->least;

	if (arrival->visible == DWELL_VISIBLE_UDP)
		return !arrival->payload_bytes;
	return bytes <= config->ack_bytes && bytes <= least + options &&
	       (state->segment > least + options || (!state->tail && state->clock.packets <= 8));
}

/* Distinguishes a timer, which sends ACKs and requests alike at one pace, from a client that waits for responses and
 * sends soon after what ends them. Gaps within a quarter of the mean are of one pace.
 */
static __always_inline void dwell_learn_pace(struct dwell_auto_state *state, const struct dwell_response_config *config,
					     __u64 now_ns, int is_ack)
{
	__u32 gap = dwell_tick(now_ns - state->clock.last_ns);
	__u32 off;

	if (!state->clock.last_ns || now_ns < state->clock.last_ns || now_ns - state->clock.last_ns > config->idle_ns)
		return;
	if (gap <= dwell_tick(config->run_gap_ns)) {
		if (!is_ack && state->flags & DWELL_FLOW_RUN)
			state->steady -= state->steady < 8 ? state->steady : 8;
		return;
	}
	state->pace = state->pace ? dwell_toward(state->pace, gap, 3) : gap;
	off = gap > state->pace ? gap - state->pace : state->pace - gap;
	if (off <= state->pace / 4)
		state->steady += state->steady < 64;
	else
		state->steady -= state->steady < 4 ? state->steady : 4;
}

/* Closes a run that has paused for long enough, and counts those of QUIC that one ACK shows: it may have been delayed. */
static __always_inline void dwell_age_sized(struct dwell_auto_state *state, const struct dwell_response_config *config,
					    const struct dwell_arrival *arrival)
{
	__u32 ends = dwell_tally_count(state->all), is_alone = state->flags & DWELL_FLOW_ALONE;

	dwell_age_run(state, config, arrival->time_ns);
	if (arrival->visible == DWELL_VISIBLE_QUIC && is_alone && dwell_tally_count(state->all) != ends)
		dwell_count_u16(&state->turn.carried);
}

/* Handles a packet without visible headers. A request after a pause shows an end, if no ACK did. */
static __always_inline void dwell_auto_sized(struct dwell_auto_state *state, const struct dwell_response_config *config,
					     const struct dwell_arrival *arrival)
{
	__u32 last = state->sent[(state->tail - 1) & (DWELL_QUEUE_LENGTH - 1)];
	__u32 progress = state->progress, pause = dwell_tick_at(state, arrival->time_ns) - last;
	__u32 bytes = arrival->bytes < 0xffff ? arrival->bytes : 0xffff;
	enum dwell_part part = DWELL_PART_LAST;
	int is_ack;

	dwell_learn_sizes(state, bytes);
	is_ack = dwell_is_ack_sized(state, config, arrival);
	dwell_learn_pace(state, config, arrival->time_ns, is_ack);
	dwell_age_sized(state, config, arrival);
	if (is_ack) {
		if (state->burst && last &&
		    dwell_tick_at(state, arrival->time_ns) - last < dwell_tick(config->run_gap_ns))
			dwell_count_u8(&state->soon);
		dwell_progress(state, arrival->time_ns, 0);
		return;
	}
	if (bytes >= config->mtu)
		part = DWELL_PART_MORE;
	else if (bytes >= DWELL_SEGMENT_MIN_BYTES && bytes >= state->segment && arrival->visible != DWELL_VISIBLE_UDP)
		part = DWELL_PART_GUESS;
	if (!(state->flags & DWELL_FLOW_PART) && last && (__s32)(progress - last) <= 0 &&
	    pause > dwell_tick(config->run_gap_ns))
		dwell_progress(state, arrival->time_ns, 0);
	if (!dwell_begins_request(state, part))
		return;
	if (!state->smallest || bytes < state->smallest)
		state->smallest = bytes;
	dwell_request(state, config, arrival->time_ns, progress);
}

/* Returns the round trip of the handshake, from the SYN to the packet after it; 0 if there is none, or if there were
 * several SYNs.
 */
static __always_inline __u64 dwell_handshake(__u16 *flags, __u64 last_ns, const struct dwell_arrival *arrival)
{
	__u16 before = *flags;

	if (arrival->visible != DWELL_VISIBLE_TCP)
		return 0;
	if (arrival->tcp_flags & DWELL_TCP_SYN) {
		*flags |= before & DWELL_FLOW_SYN ? DWELL_FLOW_RESYN : DWELL_FLOW_SYN;
		return 0;
	}
	*flags &= ~(DWELL_FLOW_SYN | DWELL_FLOW_RESYN);
	if ((before & (DWELL_FLOW_SYN | DWELL_FLOW_RESYN)) != DWELL_FLOW_SYN || arrival->tcp_flags & DWELL_TCP_RST ||
	    arrival->time_ns < last_ns)
		return 0;
	return arrival->time_ns - last_ns;
}

/* Returns true if this SYN opens another connection with the same addresses and ports: the state of the last one is
 * then forgotten.
 */
static __always_inline int dwell_begins_connection(const struct dwell_auto_state *state,
						   const struct dwell_arrival *arrival)
{
	return state->next_seq != arrival->seq + 1;
}

static __always_inline void dwell_auto_packet(struct dwell_auto_state *state,
					      const struct dwell_response_config *config,
					      const struct dwell_arrival *arrival)
{
	const __u32 clock = sizeof(state->clock);
	int again;

	if (arrival->visible != DWELL_VISIBLE_TCP) {
		dwell_auto_sized(state, config, arrival);
		return;
	}
	if (!(arrival->tcp_flags & DWELL_TCP_SYN)) {
		dwell_auto_tcp(state, config, arrival);
		return;
	}
	again = !dwell_begins_connection(state, arrival);
	if (!again) {
		if (state->closing)
			dwell_turn_unanswered(state);
		if (state->turn.end && !state->lone)
			dwell_turn_complete(state, config, ~0U);
		__builtin_memset((char *)state + clock, 0, __builtin_offsetof(struct dwell_auto_state, log) - clock);
		if (!dwell_tally_count(state->turn.answered)) /* it holds gaps */
			__builtin_memset(state->log, 0, sizeof(state->log));
		dwell_turn_reset(&state->turn);
		state->together = state->came = state->maybe = state->timers = 0;
		state->pieced = state->lone = state->closing = state->second = 0;
		state->answered_whole = 0;
	}
	state->next_seq = arrival->seq + 1;
	state->flags &= ~DWELL_FLOW_NUMBERS;
	dwell_turn_syn(state, arrival, dwell_tick_at(state, arrival->time_ns), again);
}

/* Fills the record, and resets what is counted per epoch. */
static __always_inline void dwell_auto_take(struct dwell_auto_state *state, struct dwell_epoch *epoch)
{
	epoch->depth = state->depth;
	epoch->largest = state->largest;
	if (!(state->flags & DWELL_FLOW_NUMBERS)) {
		epoch->smallest = state->smallest;
		epoch->steady = state->steady;
		epoch->soon = state->soon;
		state->smallest = 0;
		state->soon = 0;
		dwell_renew_sizes(state);
	}
	epoch->requests = state->requests;
	epoch->sizes_only = !(state->flags & DWELL_FLOW_NUMBERS) && !dwell_tally_count(state->turn.answered) &&
			    !state->turn.overlong;
	epoch->deep = !!(state->flags & DWELL_FLOW_DEEP);
	epoch->once = !(state->flags & DWELL_FLOW_TWICE);
	epoch->gaps_ns = dwell_tally_sum(state->gaps);
	epoch->gaps = dwell_tally_count(state->gaps);
	epoch->lag_ns = dwell_tally_sum(state->lag);
	epoch->lags = dwell_tally_count(state->lag);
	epoch->think_ns = (__u64)state->think << DWELL_TICK_SHIFT;
	epoch->turns = state->turns;
	epoch->late = state->late;
	epoch->all_ns = dwell_tally_sum(state->all);
	epoch->all = dwell_tally_count(state->all);
	epoch->hidden_ns = dwell_tally_sum(state->hidden);
	epoch->hidden = dwell_tally_count(state->hidden);
	epoch->surplus = state->surplus;
	epoch->missed = state->missed;
	epoch->early = state->early;
	epoch->minor = state->minor;
	epoch->plain = state->plain;
	epoch->repeats = state->repeats;
	epoch->slow = state->slow;
	epoch->streak = state->streak;
	if (!epoch->sizes_only)
		__builtin_memcpy(epoch->log, state->log, sizeof(epoch->log));
	else
		__builtin_memcpy(epoch->gap_log, state->gap_log, sizeof(epoch->gap_log));
	__builtin_memset(state->log, 0, sizeof(state->log));
	epoch->log_shift = state->log_shift;
	state->log_shift = 0;
	dwell_turn_take(state, epoch);
	dwell_forget_depth(state);
	state->all = 0;
	state->requests = 0;
	state->hidden = 0;
	state->surplus = 0;
	state->missed = 0;
	state->early = 0;
	state->minor = 0;
	state->plain = 0;
	state->gaps = 0;
	state->lag = 0;
	state->think = 0;
	state->turns = 0;
	state->deeper = 0;
	state->repeats = 0;
	state->slow = 0;
	state->late >>= 1;
	state->pauses = 0;
}

#endif
