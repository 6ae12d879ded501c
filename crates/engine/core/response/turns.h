/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: the turns of a client with one request under way at a time. All data packets up to the first progress of the
 * ACK number are one request, and its answer ends with the last progress before the next data. How many packets a
 * request takes does not matter, nor in how many pieces an answer comes.
 *
 * An ACK may come long after what it acknowledges: a lone segment is acknowledged by a timer, or by the next request.
 * Where both ends use TCP timestamps, such an ACK echoes the server's clock at the first segment that it acknowledges
 * (RFC 7323 section 4.3), and the end of the answer is computed from that clock.
 */
#ifndef DWELL_RESPONSE_TURNS_H
#define DWELL_RESPONSE_TURNS_H

#include "response/turns/answers.h"
#include "response/turns/unasked.h"

/* Largest payload that may be a word of the protocol below a request: frames that keep an HTTP/2 connection alive, the
 * end of a TLS handshake.
 */
#define DWELL_MINOR 96

/* Ticks (250 ms) between two small packets without an answer that are hardly one request: longer than a segment that
 * Nagle's algorithm holds back until a delayed ACK.
 */
#define DWELL_LOOSE (250000000 >> DWELL_TICK_SHIFT)
/* Most bytes of an interim answer of HTTP. */
#define DWELL_INTERIM_BYTES 256
/* Ticks (20 ms) of silence after which an answer is taken as complete when the epoch ends. */
#define DWELL_AGED (20000000 >> DWELL_TICK_SHIFT)

#ifndef DWELL_RESPONSE_OUTLINED
#define dwell_turn_opened dwell_turn_opened_in
#define dwell_turn_acked dwell_turn_acked_in
#define dwell_turn_asked dwell_turn_asked_in
#define dwell_turn_next dwell_turn_next_in
#define dwell_turn_age dwell_turn_age_in
#endif

/* Forgets the connection, but not the epoch's figures. */
static __always_inline void dwell_turn_reset(struct dwell_turn_state *turn)
{
	turn->start = turn->end = turn->round_trip = 0;
	turn->path = turn->queue = 0;
	turn->usual = turn->usual_bytes = turn->window_bytes = 0;
	turn->clock_samples = turn->clock_age = turn->refuted = 0;
	turn->flags = 0;
}

/* Handles progress of `bytes` by a packet: finds when the answer ended, if this was its end. */
static __always_inline void dwell_turn_progress(struct dwell_auto_state *state,
						const struct dwell_response_config *config,
						const struct dwell_arrival *arrival, __u32 tick, __u32 bytes,
						__u32 waited)
{
	struct dwell_turn_state *turn = &state->turn;
	struct dwell_segments segments = dwell_segments_of(state);
	/* an ACK waits for the end of the connection as it does for a request */
	__u32 carried = arrival->payload_bytes || arrival->tcp_flags & (DWELL_TCP_FIN | DWELL_TCP_RST);
	__s32 late = dwell_ack_lateness(turn, tick, arrival->tsecr, carried);
	__u32 unit = turn->unit_ns >> DWELL_TICK_SHIFT, end = tick, latest = tick;
	__u32 several = !carried && bytes >= 2 * segments.usual, soon = !carried && waited < DWELL_DELAYED_ACK;
	__u32 prompt = several && dwell_is_prompt(turn, segments, bytes), certain, unclear;

	if (several && (turn->end ? waited < DWELL_LEAST_TIMER && bytes == 2 * segments.usual
				  : late <= (__s32)unit && turn->flags & DWELL_TURN_TIED && bytes < 8 * segments.usual))
		state->second = 1;
	certain = several && dwell_is_at_once(state, late, prompt);
	if (certain || (!carried && waited < DWELL_LEAST_TIMER))
		turn->flags |= DWELL_TURN_TIED;
	if (late != DWELL_LATE_UNKNOWN && !dwell_after_ticket(state) &&
	    (certain || dwell_is_lone_ack(state, arrival, segments, bytes, late, waited))) {
		/* the client may have waited for more, or have read late */
		__u32 may_wait = !turn->end && !(certain && state->second) && dwell_is_late(turn, tick, late);

		dwell_path_seen(turn, late,
				!may_wait                                ? ~0U
				: !certain && waited < DWELL_LEAST_TIMER ? turn->queue
									 : turn->path);
		if (late <= (__s32)unit)
			turn->stale = 0;
		else if (certain && !turn->end && !may_wait &&
			 ++turn->stale >= 8) { /* the path has become longer, and no answer waits behind itself */
			turn->base_tick = tick;
			turn->base_echo = arrival->tsecr;
			turn->stale = 0;
		}
	}
	if (!certain && late < (__s32)dwell_path(turn))
		turn->stale = 0; /* it has not become longer for all */
	if (!certain && !(turn->flags & DWELL_TURN_TIED))
		late = DWELL_LATE_UNKNOWN; /* a timer, or a pause, may have delayed all ACKs so far alike */
	if (!turn->start) {
		turn->flags |= turn->flags & DWELL_TURN_AGED ? DWELL_TURN_REOPENED : 0;
		return;
	}
	if (bytes == 1 && (turn->end || state->closing)) { /* a FIN, or what came before was none */
		state->lone = !turn->end;
		state->closing &= state->lone;
		return;
	}
	state->lone = bytes == 1;
	state->closing = 0;
	unclear = turn->end ? turn->flags & DWELL_TURN_UNSURE : 0;
	turn->flags &= ~(DWELL_TURN_UNSURE | DWELL_TURN_MOVED | DWELL_TURN_CARRIED);
	DWELL_BARRIER(); /* BPF's stack has no room to keep what is computed from memory */
	state->came = !several && waited <= DWELL_TOGETHER && dwell_follows_prompt(turn, tick - waited);
	if (late == DWELL_LATE_UNKNOWN
		    ? carried || (!certain && !soon && bytes <= segments.most)
		    : several && (certain ? dwell_may_wait(state, tick, late) : prompt || !turn->mss)) {
		/* a queue on the path, a client that waits for more, or one jumbo segment */
		turn->flags |= DWELL_TURN_UNSURE;
		end = dwell_turn_earliest(turn, tick, waited);
		if (late != DWELL_LATE_UNKNOWN && (__s32)(end - (tick - late)) < 0)
			end = tick - late;
	} else if (late != DWELL_LATE_UNKNOWN) {
		if (!certain && late > (__s32)(dwell_path(turn) + unit)) {
			end = dwell_turn_moved(state, tick, late, waited, carried);
			turn->flags |= unclear; /* what delayed the ACK before may have delayed the segment */
			if (!(turn->flags & DWELL_TURN_UNSURE))
				latest = end;
		} else if (carried) {
			turn->flags |= DWELL_TURN_CARRIED;
		}
		if (turn->flags & (DWELL_TURN_MOVED | DWELL_TURN_CARRIED))
			end = dwell_turn_queued(turn, tick, late, waited, end, &latest);
	}
	DWELL_BARRIER(); /* sizes are computed again, as BPF's stack has no room to keep them */
	if (!carried && bytes <= dwell_segments_of(state).usual)
		dwell_acked_alone(state, !(turn->flags & (DWELL_TURN_MOVED | DWELL_TURN_UNSURE)));
	if (turn->end && (__s32)(end - turn->end) < 0)
		end = turn->end;
	if ((__s32)(end - turn->start) <= 0)
		end = turn->start + 1;
	if ((__s32)(latest - end) < 0)
		latest = end;
	if (!turn->end) {
		turn->runs = 1;
		turn->pause = 0;
		state->done = dwell_within(end - turn->progress);
	} else if ((__s32)(end - turn->progress) > (__s32)dwell_tick(config->run_gap_ns)) {
		dwell_count_u8(&turn->runs);
		if (end - turn->progress > turn->pause)
			turn->pause = end - turn->progress;
		if (!turn->is_full) {
			if (!turn->parts) {
				/* as long after the part before as that was after the answer before: the server has a clock */
				if (!turn->at_once && dwell_is_near(dwell_within(end - turn->progress), state->done))
					state->unasked += !state->unasked;
				state->done = dwell_within(turn->progress - turn->start);
			}
			turn->parts += turn->parts < DWELL_MANY;
		}
	}
	turn->is_full = state->segment && bytes % state->segment == 0;
	turn->bytes += bytes;
	if (!turn->end || !(state->speaks & DWELL_SPEAKS_SERVER))
		turn->end = end; /* otherwise the first may have been all of the answer */
	turn->progress = latest;
}

/* Counts a request whose connection ends without an answer. A client may end it and wait on. */
static __always_inline void dwell_turn_unanswered(struct dwell_auto_state *state)
{
	state->unanswered += state->unanswered != 3;
	state->closing = 0;
	if (state->lone)
		state->turn.start = state->turn.end = 0;
}

/* Counts by how much sooner the answer may have ended, or its request begun. */
static __always_inline void dwell_turn_open(struct dwell_auto_state *state, __u32 latency)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 unknown = turn->progress - turn->end, unasked = (__u32)state->again << DWELL_WITHIN_SHIFT;

	if (unasked > latency)
		unasked = latency;
	turn->unknown += unasked > unknown ? unasked : unknown;
}

/* Counts the answer of the turn. `reaction` is the time until the next request; ~0 if none came. */
static __always_inline void dwell_turn_complete(struct dwell_auto_state *state,
						const struct dwell_response_config *config, __u32 reaction)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 latency = turn->progress - turn->start, run_gap = dwell_tick(config->run_gap_ns);
	__u64 latency_ns = (__u64)latency << DWELL_TICK_SHIFT;

	dwell_turn_unasked(state, reaction, run_gap);
	if (latency_ns > config->idle_ns) {
		dwell_count_u16(&turn->overlong);
	} else if (dwell_tally_add(&turn->answered, latency_ns)) {
		dwell_answer_log(state, latency_ns, dwell_mix(latency_ns, turn->end));
		dwell_turn_open(state, latency);
		turn->pieces = dwell_add_u16(turn->pieces, turn->runs - 1);
		if (turn->flags & DWELL_TURN_UNSURE || state->again)
			dwell_count_u16(&turn->unsure);
		if (state->again)
			dwell_count_u16(&turn->unasked);
		if (turn->flags & DWELL_TURN_MOVED)
			dwell_count_u16(&turn->moved);
		else if (turn->flags & DWELL_TURN_CARRIED)
			dwell_count_u16(&turn->carried);
		if (turn->flags & DWELL_TURN_LOOSE)
			dwell_count_u16(&turn->loose);
		if (turn->burst > 1) {
			dwell_count_u16(&turn->bursts);
			if (turn->flags & DWELL_TURN_ALIKE)
				dwell_count_u16(&turn->alike);
			turn->extra = dwell_add_u16(turn->extra, turn->burst - 1);
		}
		dwell_turn_sooner(state, latency);
		dwell_turn_pieces(state, latency);
		dwell_turn_window(turn, reaction, run_gap);
		turn->usual = turn->usual ? dwell_toward(turn->usual, latency, 3) : latency;
		if (turn->burst == 1)
			turn->usual_bytes =
				turn->usual_bytes ? dwell_toward(turn->usual_bytes, turn->bytes, 5) : turn->bytes;
	}
	dwell_came_together(state);
	state->alone = reaction / 4 > turn->round_trip ? DWELL_ALONE_PAUSED : 0;
	turn->start = 0;
	turn->progress = turn->end;
	turn->end = 0;
	turn->flags &= ~(DWELL_TURN_MOVED | DWELL_TURN_PART);
}

static __always_inline __u8 dwell_content_kind(const struct dwell_arrival *arrival)
{
	return arrival->content & ((1 << DWELL_CONTENT_BITS) - 1);
}

/* Returns how many requests begin with a packet: those that can be read in it, or several of one packet each, if merged
 * packets joined them.
 */
static __always_inline __u32 dwell_requests_in(const struct dwell_arrival *arrival)
{
	__u32 segments = arrival->segments, read = arrival->content >> DWELL_CONTENT_BITS;

	if (read > 1)
		return read < DWELL_QUEUE_LENGTH ? read : DWELL_QUEUE_LENGTH;
	if (segments < 2 || 2 * arrival->payload_bytes > segments * DWELL_SEGMENT_MIN_BYTES)
		return 1;
	return segments < DWELL_QUEUE_LENGTH ? segments : DWELL_QUEUE_LENGTH;
}

/* Returns DWELL_TURN_PART if a write continues after a packet. */
static __always_inline __u32 dwell_turn_part(const struct dwell_arrival *arrival)
{
	return arrival->payload_bytes >= DWELL_SEGMENT_MIN_BYTES && !(arrival->tcp_flags & DWELL_TCP_PSH)
		       ? DWELL_TURN_PART
		       : 0;
}

/* Handles a packet with data that is new. */
static __always_inline void dwell_turn_data(struct dwell_auto_state *state, const struct dwell_arrival *arrival,
					    __u32 tick)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 payload = arrival->payload_bytes < 0xffff ? arrival->payload_bytes : 0xffff;
	__u32 continues = turn->flags & DWELL_TURN_PART;

	turn->flags &= ~(DWELL_TURN_PART | DWELL_TURN_AGED);
	turn->flags |= dwell_turn_part(arrival);
	if (dwell_content_kind(arrival) == DWELL_CONTENT_TEXT)
		turn->flags |= DWELL_TURN_TEXT;
	else if (!turn->start) /* another protocol in its place, as after an upgrade, or a request that was cut */
		turn->flags &= ~DWELL_TURN_TEXT;
	if (turn->start) {
		__u32 since = tick - turn->sent;

		if (since > DWELL_LOOSE && payload < DWELL_SEGMENT_MIN_BYTES)
			turn->flags |= DWELL_TURN_LOOSE;
		turn->sent = tick;
		/* the rest of a request, of which only the beginning is like that of others */
		if (continues || (turn->flags & DWELL_TURN_TEXT && dwell_content_kind(arrival) != DWELL_CONTENT_TEXT))
			return;
		if (since > DWELL_SPOKEN_AGAIN) {
			/* as long after what it said before as that was after what came before it: it has a clock of its own */
			if (!turn->spoken && dwell_is_near(dwell_within(since), state->again))
				state->unasked += !state->unasked;
			turn->spoken += turn->spoken < DWELL_MANY;
			state->again = dwell_within(tick - turn->start);
		}
		turn->burst += turn->burst < 0xf0 ? dwell_requests_in(arrival) : 0;
		if (4 * payload > 5 * turn->size || 5 * payload < 4 * turn->size)
			turn->flags &= ~DWELL_TURN_ALIKE;
		return;
	}
	dwell_asked_after(state, tick - turn->progress);
	state->lone = 0;
	state->again = dwell_within(tick - turn->sent);
	turn->start = tick ? tick : 1;
	turn->sent = tick;
	turn->size = payload;
	turn->burst = dwell_requests_in(arrival);
	turn->bytes = 0;
	turn->spoken = 0;
	turn->parts = 0;
	turn->flags &= ~(DWELL_TURN_UNSURE | DWELL_TURN_MOVED | DWELL_TURN_CARRIED | DWELL_TURN_LOOSE);
	turn->flags |= DWELL_TURN_ALIKE;
}

/* Follows frames and messages of protocols that share a connection. One packet may look like one by chance. */
static __always_inline void dwell_turn_share(struct dwell_turn_state *turn, __u8 content)
{
	if (content != DWELL_CONTENT_FRAMES && content != DWELL_CONTENT_MESSAGE)
		turn->flags &= ~DWELL_TURN_FRAME;
	else
		turn->flags |= turn->flags & DWELL_TURN_FRAME ? DWELL_TURN_SHARED : DWELL_TURN_FRAME;
}

/* Returns true for data that is not a request: a handshake of TLS, in one segment or several, a frame that only manages the
 * connection, or a window update amid full segments of an answer.
 */
static __always_inline int dwell_turn_skips(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 continues = turn->flags & DWELL_TURN_PART && !turn->start;

	dwell_turn_share(turn, dwell_content_kind(arrival));
	if (dwell_content_kind(arrival) == DWELL_CONTENT_TLS_HANDSHAKE || continues) {
		if (state->alone == DWELL_ALONE_FIRST)
			state->pieced = 1; /* tickets of TLS come before the first answer */
		turn->flags &= ~(DWELL_TURN_PART | DWELL_TURN_TEXT);
		turn->flags |= dwell_turn_part(arrival);
		return 1;
	}
	if (dwell_content_kind(arrival) == DWELL_CONTENT_TLS_CONTROL) {
		dwell_count_u16(&turn->frames);
		return 1;
	}
	return arrival->payload_bytes <= DWELL_MINOR && 4 * arrival->payload_bytes < state->usual && turn->start &&
	       dwell_content_kind(arrival) != DWELL_CONTENT_TEXT && arrival->ack == state->ack &&
	       (state->flags & (DWELL_FLOW_ALIGNED | DWELL_FLOW_RUN | DWELL_FLOW_EDGE)) ==
		       (DWELL_FLOW_ALIGNED | DWELL_FLOW_RUN);
}

/* Returns true for the body of a request of which only the head was sent at first: what came in between was `100 Continue`
 * and not the answer.
 */
static __always_inline int dwell_turn_goes_on(const struct dwell_turn_state *turn, const struct dwell_arrival *arrival)
{
	return turn->flags & DWELL_TURN_TEXT && dwell_content_kind(arrival) == DWELL_CONTENT_OTHER &&
	       turn->bytes <= DWELL_INTERIM_BYTES;
}

static __always_inline void dwell_turn_syn(struct dwell_auto_state *state, const struct dwell_arrival *arrival,
					   __u32 tick, int again)
{
	struct dwell_turn_state *turn = &state->turn;

	turn->mss = arrival->tsecr;
	turn->flags = again ? 0 : DWELL_TURN_SYN | DWELL_TURN_BEGUN; /* which of several the ACK answers is unknown */
	turn->sent = tick;
}

/* Returns the end of the current epoch, or what is after the packet if that belongs to it. */
static __always_inline __u32 dwell_turn_limit(const struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	if (state->clock.packets && arrival->time_ns >= state->clock.end_ns)
		return dwell_tick_at(state, state->clock.end_ns);
	return dwell_tick_at(state, arrival->time_ns) + 1;
}

/* Steps the packet after the only SYN, which acknowledges what the server has answered to it. */
static __always_inline void dwell_turn_opened_in(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 tick = dwell_tick_at(state, arrival->time_ns);

	turn->flags &= ~DWELL_TURN_SYN;
	turn->flags |= DWELL_TURN_TIED;
	turn->round_trip = tick - turn->sent;
	state->alone = DWELL_ALONE_FIRST;
	dwell_ack_lateness(turn, tick, arrival->tsecr, 0);
}

/* Steps what a packet of TCP acknowledges. */
static __always_inline void dwell_turn_acked_in(struct dwell_auto_state *state,
						const struct dwell_response_config *config,
						const struct dwell_arrival *arrival)
{
	__u32 bytes = arrival->ack - state->ack, tick = dwell_tick_at(state, arrival->time_ns);

	if (!(state->flags & DWELL_FLOW_NUMBERS))
		return;
	if ((__s32)bytes > 0)
		state->turn.rest = 0;
	if (arrival->tcp_flags & DWELL_TCP_ACK && (__s32)bytes > 0)
		dwell_turn_progress(state, config, arrival, tick, bytes,
				    tick - dwell_tick_at(state, state->clock.last_ns));
	else if (!arrival->payload_bytes && !bytes && arrival->seq == state->next_seq)
		dwell_acked_again(state);
}

/* Steps what a packet of TCP asks for. Returns true if it begins a request after an answer that ended later than the
 * current epoch: the caller then calls dwell_turn_next() once that has ended.
 */
static __always_inline int dwell_turn_asked_in(struct dwell_auto_state *state,
					       const struct dwell_response_config *config,
					       const struct dwell_arrival *arrival)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 known = state->flags & DWELL_FLOW_NUMBERS, tick = dwell_tick_at(state, arrival->time_ns);

	if (arrival->tcp_flags & DWELL_TCP_FIN && turn->end)
		dwell_turn_closes(state, tick - turn->progress, dwell_tick(config->run_gap_ns));
	if (!arrival->payload_bytes || (known && !dwell_after(arrival->seq + arrival->payload_bytes, state->next_seq)))
		return 0;
	if (!known && !turn->sent) /* no SYN came before */
		turn->rest = 1;
	if (dwell_turn_skips(state, arrival) || (turn->rest && dwell_content_kind(arrival) != DWELL_CONTENT_TEXT))
		return 0;
	turn->rest = 0;
	if (turn->end && !dwell_turn_goes_on(turn, arrival)) {
		if ((__s32)(turn->end - dwell_turn_limit(state, arrival)) >= 0)
			return 1;
		dwell_turn_complete(state, config, tick - turn->progress);
	}
	dwell_turn_data(state, arrival, tick);
	return 0;
}

/* Steps the turns of `auto` by a packet, before the rest of `auto` and before the epoch ends, so that an answer counts in
 * the epoch in which it ended. Returns true if dwell_turn_next() is due after that. Its steps are functions of their own, as
 * the verifier would walk each from all the ends of the one before.
 */
static __always_inline int dwell_turn_before(struct dwell_auto_state *state, const struct dwell_response_config *config,
					     const struct dwell_arrival *arrival)
{
	if (!state->turn.origin_ns)
		state->turn.origin_ns = arrival->time_ns - (1 << DWELL_TICK_SHIFT);
	if (arrival->visible != DWELL_VISIBLE_TCP || arrival->tcp_flags & DWELL_TCP_SYN)
		return 0;
	if (state->turn.flags & DWELL_TURN_SYN)
		dwell_turn_opened(state, arrival);
	dwell_turn_acked(state, config, arrival);
	return dwell_turn_asked(state, config, arrival);
}

/* Completes a turn whose answer ended in the epoch that has just begun, and begins the next. */
static __always_inline void dwell_turn_next_in(struct dwell_auto_state *state,
					       const struct dwell_response_config *config,
					       const struct dwell_arrival *arrival)
{
	__u32 tick = dwell_tick_at(state, arrival->time_ns);

	if (state->turn.end)
		dwell_turn_complete(state, config, tick - state->turn.progress);
	dwell_turn_data(state, arrival, tick);
}

/* Completes a turn whose answer has been silent for long when the epoch ends, also compared with the pauses between its
 * pieces. After nothing but full segments more is to come, and after one byte only what follows shows that it was no FIN.
 */
static __always_inline void dwell_turn_age_in(struct dwell_auto_state *state,
					      const struct dwell_response_config *config, __u64 now_ns)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 tick = dwell_tick_at(state, now_ns);

	if (state->closing)
		dwell_turn_unanswered(state);
	if (!turn->end || state->lone || (__s32)(turn->end - dwell_tick_at(state, state->clock.end_ns)) >= 0 ||
	    tick - turn->progress < DWELL_AGED || tick - turn->progress < turn->usual ||
	    (turn->runs > 1 && (tick - turn->progress) / 4 < turn->pause) ||
	    (state->segment && turn->bytes % state->segment == 0))
		return;
	dwell_turn_complete(state, config, ~0U);
	turn->flags |= DWELL_TURN_AGED;
}

/* Gives up a request that has waited for nine minutes, before its age could wrap and look young again. */
static __always_inline void dwell_turn_give_up(struct dwell_auto_state *state,
					       const struct dwell_response_config *config, __u64 now_ns)
{
	struct dwell_turn_state *turn = &state->turn;

	if (config->estimator == DWELL_ESTIMATE_AUTO && turn->start && !turn->end &&
	    (__s32)(dwell_tick_at(state, now_ns) - turn->sent) < 0)
		turn->start = 0;
}

/* The longest that a request may have waited: its client may be gone. */
#define DWELL_PENDING_MOST_NS (1ULL << 36)

/* Returns for how long the request under way has waited since its newest data, with nothing of its answer; 0: there is
 * none, or streams share the connection, or it has waited for longer than DWELL_PENDING_MOST_NS. While a long request is
 * still being sent nothing is late.
 */
static __always_inline __u64 dwell_turn_pending_ns(const struct dwell_auto_state *state,
						   const struct dwell_response_config *config, __u64 now_ns)
{
	const struct dwell_turn_state *turn = &state->turn;
	__u64 age_ns;

	if (config->estimator != DWELL_ESTIMATE_AUTO || !turn->start || turn->end || state->lone ||
	    turn->flags & DWELL_TURN_SHARED)
		return 0;
	age_ns = (__u64)(dwell_tick_at(state, now_ns) - turn->sent) << DWELL_TICK_SHIFT;
	return age_ns <= DWELL_PENDING_MOST_NS ? age_ns : 0;
}

/* Fills the record, and resets what is counted per epoch. */
static __always_inline void dwell_turn_take(struct dwell_auto_state *state, struct dwell_epoch *epoch)
{
	struct dwell_turn_state *turn = &state->turn;

	epoch->answered_ns = dwell_tally_sum(turn->answered);
	epoch->answered = dwell_tally_count(turn->answered);
	epoch->unknown_ns = (__u64)turn->unknown << DWELL_TICK_SHIFT;
	epoch->runs = epoch->answered + turn->pieces;
	epoch->bursts = turn->bursts;
	epoch->extra = turn->extra;
	epoch->alike = turn->alike;
	epoch->unsure = turn->unsure;
	epoch->moved = turn->moved;
	epoch->carried = turn->carried;
	epoch->loose = turn->loose;
	epoch->early_turns = turn->early;
	epoch->unasked = turn->unasked;
	epoch->frames = turn->frames;
	epoch->overlong = turn->overlong;
	epoch->unanswered = state->unanswered;
	epoch->whole = state->asked_whole | state->answered_whole << 4;
	epoch->speaks = state->speaks;
	epoch->reopened = !!(turn->flags & DWELL_TURN_REOPENED);
	epoch->shared = !!(turn->flags & DWELL_TURN_SHARED);
	epoch->text = !!(turn->flags & DWELL_TURN_TEXT);
	epoch->window = !!(turn->flags & (DWELL_TURN_WINDOW | DWELL_TURN_WINDOWED));
	epoch->window_bytes = turn->window_bytes;
	epoch->usual_bytes = turn->usual_bytes;
	epoch->server_tick_ns = turn->unit_ns;
	if (turn->clock_age)
		epoch->anchor_age_ms =
			(dwell_tick_at(state, state->clock.last_ns) - turn->base_tick) >> 12; /* 1.05 ms */
	turn->answered = 0;
	turn->unknown = 0;
	turn->pieces = turn->extra = 0;
	turn->bursts = turn->alike = turn->unsure = turn->moved = turn->carried = turn->loose = turn->early = 0;
	turn->unasked = turn->frames = turn->overlong = 0;
	state->unanswered = 0;
	turn->flags &= ~(DWELL_TURN_REOPENED | DWELL_TURN_WINDOWED);
}

#endif
