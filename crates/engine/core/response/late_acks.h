/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: which ACKs a client sent at once, whether its timer or the path delayed the others, and when the answers ended that
 * these acknowledge: by the server's clock, as TCP timestamps echo it, and by what the client was seen to do.
 */
#ifndef DWELL_RESPONSE_LATE_ACKS_H
#define DWELL_RESPONSE_LATE_ACKS_H

#include "response/response_queue.h"

/* Least payload of a full segment on any path. */
#define DWELL_SEGMENT_MIN_BYTES 1000

/* Ticks (30 ms) within which a timer hardly delays an ACK, where nothing else shows it: Linux waits for 40 ms, unless
 * the timer was set for an earlier segment.
 */
#define DWELL_DELAYED_ACK (30000000 >> DWELL_TICK_SHIFT)
/* Ticks (24 ms) within which no timer delays an ACK, unless it strikes whatever comes. */
#define DWELL_LEAST_TIMER (24000000 >> DWELL_TICK_SHIFT)
/* The least round trip, in ticks (2 ms), by which a packet that comes sooner is known not to answer. */
#define DWELL_LEAST_ROUND_TRIP (2000000 >> DWELL_TICK_SHIFT)

/* The server's tick until it has been measured: that of Linux and the BSDs. */
#define DWELL_USUAL_TICK_NS 1000000
/* The server's tick is measured when the flow is 2^18 ticks (67 ms) old, and again at each doubling up to 2^26. */
#define DWELL_CLOCK_AGE_MIN 18
#define DWELL_CLOCK_AGE_SURE 22 /* 1.07 s: delays of ACKs no longer matter */
#define DWELL_CLOCK_AGE_MAX 26

/* Returns the tick length that a measured one stands for; 0 if none is known. Delays make the measured one too long
 * while the flow is young, never too short by more than one tick in `count`.
 */
static __always_inline __u32 dwell_known_tick(__u64 measured_ns, __u32 count, int sure)
{
	__u64 least = measured_ns - measured_ns / 8, most = measured_ns + measured_ns / 8 + measured_ns / count;

	if (most < 1000 || (least <= 1000 && most >= 1000))
		return most < 900 ? 0 : 1000;
	if (!sure)
		return most < 900000 || least > 3 * DWELL_USUAL_TICK_NS ? 0 : DWELL_USUAL_TICK_NS;
	if (least <= 1000000 && most >= 1000000)
		return 1000000;
	if (measured_ns < 3750000 && most >= 3333333 && least <= 3333333)
		return 3333333;
	if (least <= 4000000 && most >= 4000000)
		return 4000000;
	if (least <= 10000000 && most >= 10000000)
		return 10000000;
	return 0;
}

/* Measures the server's tick from the first echo to this one. */
static __always_inline void dwell_clock_learn(struct dwell_turn_state *turn, __u32 tick, __u32 echo)
{
	__u32 elapsed = tick - turn->first_tick, count = echo - turn->first_echo, unit_ns;

	if (!turn->clock_age) {
		turn->first_tick = turn->base_tick = tick;
		turn->first_echo = turn->base_echo = echo;
		turn->unit_ns = DWELL_USUAL_TICK_NS;
		turn->clock_age = DWELL_CLOCK_AGE_MIN;
		return;
	}
	if (turn->clock_age > DWELL_CLOCK_AGE_MAX || !(elapsed >> (turn->clock_age & 31)))
		return;
	turn->clock_age = elapsed >> 31 ? 31 : dwell_log2(elapsed) + 1;
	unit_ns = 0;
	if (count && !(count >> 31))
		unit_ns = dwell_known_tick(((__u64)elapsed << DWELL_TICK_SHIFT) / count, count,
					   turn->clock_age > DWELL_CLOCK_AGE_SURE);
	if (unit_ns == turn->unit_ns)
		return;
	turn->unit_ns = unit_ns;
	if (turn->round_trip)
		turn->flags |= DWELL_TURN_TIED; /* the handshake's ACK was not late */
	else
		turn->flags &= ~DWELL_TURN_TIED;
	turn->base_tick = turn->first_tick;
	turn->base_echo = turn->first_echo;
	turn->clock_samples = 0;
	turn->path = turn->queue = 0;
}

/* An ACK within a tick of the soonest one is a sample of when in its tick a segment is sent. One that a request carries may
 * be late by less than a tick, and counts as an eighth of a sample.
 */
#define DWELL_SAMPLE 8
#define DWELL_LATE_UNKNOWN 0x7fffffff

/* Takes an ACK that is `late` for the soonest one, as clocks part: it counts as the soonest of so many fewer samples that it is
 * that much later in its tick.
 */
static __always_inline void dwell_base_later(struct dwell_turn_state *turn, __u32 unit, __u32 late)
{
	__u32 first = unit * DWELL_SAMPLE / (turn->clock_samples + DWELL_SAMPLE) + late;

	turn->clock_samples = first < unit ? unit * DWELL_SAMPLE / first - DWELL_SAMPLE : 0;
}

/* Returns by how many ticks an ACK is later than the soonest one seen, relative to the server's clock;
 * DWELL_LATE_UNKNOWN without such a clock. The clocks may part by 122 ppm, but no
 * pause of the client is taken for that.
 */
static __always_inline __s32 dwell_ack_lateness(struct dwell_turn_state *turn, __u32 tick, __u32 echo, __u32 carried)
{
	__u32 unit, drift, sooner;
	__s64 passed;
	__s32 late;

	if (!echo)
		return DWELL_LATE_UNKNOWN;
	dwell_clock_learn(turn, tick, echo);
	if (!turn->unit_ns)
		return DWELL_LATE_UNKNOWN;
	unit = turn->unit_ns >> DWELL_TICK_SHIFT;
	passed = (__s64)(__s32)(echo - turn->base_echo) * turn->unit_ns >> DWELL_TICK_SHIFT;
	late = tick - turn->base_tick - (__u32)passed;
	drift = (tick - turn->base_tick) >> 13;
	if (late <= (__s32)(drift < unit / 2 ? drift : unit / 2)) {
		/* No handshake is late by more than it took: what it echoed is no time, as in a SYN cookie. A request that
		 * carries a sooner ACK may have waited too.
		 */
		sooner = unit + (carried ? DWELL_LEAST_ROUND_TRIP : turn->round_trip);
		if (turn->round_trip && late + (__s32)sooner < 0)
			turn->flags &= ~DWELL_TURN_TIED;
		turn->base_tick = tick;
		turn->base_echo = echo;
		if (late > 0)
			dwell_base_later(turn, unit, late);
		late = 0;
	}
	if (late <= (__s32)unit) {
		unit = turn->clock_samples + (carried ? 1 : DWELL_SAMPLE);
		turn->clock_samples = unit < 0xff ? unit : 0xff;
	}
	return late;
}

/* Returns how far into the server's tick a segment was sent, on average, given that `base` is the soonest of the ACKs
 * seen: half a tick if they are many, and no more than is known if there was one. Of n segments, the first was sent 1/(n+1)
 * of a tick into its own, on average.
 */
static __always_inline __u32 dwell_within_tick(const struct dwell_turn_state *turn)
{
	__u32 unit = turn->unit_ns >> DWELL_TICK_SHIFT;
	__u32 first = unit * DWELL_SAMPLE / (turn->clock_samples + DWELL_SAMPLE);

	return first < unit / 2 ? unit / 2 - first : 0;
}

/* Ticks (38 to 50 ms) after which Linux's timer of delayed ACKs expires: 40 ms, and up to a tick of 10 ms. */
#define DWELL_TIMER_LEAST (38000000 >> DWELL_TICK_SHIFT)
#define DWELL_TIMER_MOST (50000000 >> DWELL_TICK_SHIFT)
/* Ticks (36 ms) within which a request that follows an answer surely makes Linux delay ACKs: within 40 ms, counted in jiffies
 * of 4 ms. It does so for up to 200 ms (ticks) where segments came that far apart before.
 */
#define DWELL_SOON (36000000 >> DWELL_TICK_SHIFT)
#define DWELL_SOON_MOST (200000000 >> DWELL_TICK_SHIFT)
/* Ticks (1.5 ms) between two ACKs that show that the path does not spread the segments of an answer. Where a full segment
 * takes as long as the timer, the headers of the smallest one take longer than this: 66 bytes at 320 kbit/s.
 */
#define DWELL_TOGETHER (1500000 >> DWELL_TICK_SHIFT)
/* Ticks (3 ms) within which segments of an answer leave the server together, and an ACK is not late. */
#define DWELL_BURST (3000000 >> DWELL_TICK_SHIFT)
/* Ticks (8 ms) that are more than a client takes to read an answer. */
#define DWELL_SPREAD (8000000 >> DWELL_TICK_SHIFT)
/* How many ACKs in a row the timer is believed to have sent. */
#define DWELL_TOGETHER_MOST 3

/* Returns the bytes of options in TCP's header, without which a SYN's largest segment is told (RFC 6691). */
static __always_inline __u32 dwell_tcp_options(__u32 headers)
{
	const __u32 ipv4 = 40, ipv6 = 60; /* with TCP's */

	return headers >= ipv6 ? headers - ipv6 : headers >= ipv4 ? headers - ipv4 : 0;
}

/* Payload of a full segment of Ethernet, with timestamps. */
#define DWELL_USUAL_SEGMENT 1448

/* How large segments of the server are. */
struct dwell_segments {
	__u32 usual; /* on the path, as it is taken for */
	__u32 most;  /* what the client's SYN accepts or, where none was seen, the client's own largest */
};

static __always_inline struct dwell_segments dwell_segments_of(const struct dwell_auto_state *state)
{
	__u32 usual = state->segment ? state->segment : DWELL_USUAL_SEGMENT, options = dwell_tcp_options(state->least);
	__u32 most = state->turn.mss > options ? state->turn.mss - options : state->largest;
	struct dwell_segments segments = {usual, most > usual ? most : usual};

	return segments;
}

/* Returns true for an ACK that did not wait for a second segment: it acknowledges two of the largest that there may be,
 * or its size shows that they are not larger than usual.
 */
static __always_inline int dwell_is_prompt(const struct dwell_turn_state *turn, struct dwell_segments segments,
					   __u32 bytes)
{
	return bytes >= 2 * segments.usual && ((turn->mss && bytes >= 2 * segments.most) || !(bytes % segments.usual));
}

/* What the path adds is kept in units of 16 ticks (4 us), up to 268 ms. */
#define DWELL_PATH_SHIFT 4

static __always_inline __u32 dwell_path(const struct dwell_turn_state *turn)
{
	return (__u32)turn->path << DWELL_PATH_SHIFT;
}

/* Returns true if an ACK is later than the soonest one by more than an eighth of the latency and two ticks of the server. */
static __always_inline int dwell_is_late(const struct dwell_turn_state *turn, __u32 tick, __s32 late)
{
	return late > (__s32)(2 * (turn->unit_ns >> DWELL_TICK_SHIFT)) && late > (__s32)((tick - turn->start) / 8);
}

/* Notes how late an ACK is that was sent at once. If another reason of the client may have delayed it, the path is taken for no
 * longer than `most`, and yet may be. A tick of the server is no queue.
 */
static __always_inline void dwell_path_seen(struct dwell_turn_state *turn, __s32 late, __u32 most)
{
	__u32 path = late > (__s32)(turn->unit_ns >> DWELL_TICK_SHIFT) ? late >> DWELL_PATH_SHIFT : 0;

	if (path > 0xffff)
		path = 0xffff;
	turn->path = path < most ? path : most;
	if (turn->end) /* behind segments of its own answer */
		return;
	if (path >= turn->queue)
		turn->queue = path;
	else
		turn->queue -= (turn->queue - path) >> 4;
}

/* Returns whether an ACK of several segments was sent at once; `prompt` says that their number alone shows it, of a client that
 * acknowledges each second segment. One that waits for more of them, or for its timer, sends such ACKs too: until it has
 * been seen not to, an ACK was sent at once if it is later than the path makes it by less than a timer, and within an answer by
 * no more than segments that come together are apart.
 */
static __always_inline int dwell_is_at_once(const struct dwell_auto_state *state, __s32 late, int prompt)
{
	const struct dwell_turn_state *turn = &state->turn;
	__u32 allowed = turn->end ? DWELL_TOGETHER + (turn->unit_ns >> DWELL_TICK_SHIFT) : DWELL_LEAST_TIMER;

	if (state->second)
		allowed = DWELL_DELAYED_ACK;
	return late < (__s32)(dwell_path(turn) + allowed) || (prompt && (state->second || late == DWELL_LATE_UNKNOWN));
}

/* Returns true if the answer was acknowledged up to its last segment by the packet before this one, at `before`: neither
 * late itself nor in a queue that other answers did not meet.
 */
static __always_inline int dwell_follows_prompt(const struct dwell_turn_state *turn, __u32 before)
{
	return turn->end && turn->end == before && dwell_path(turn) <= DWELL_BURST;
}

/* Returns true if the client's timer sent a late ACK of a last segment, and no queue on the path delayed that segment. By
 * the server's clock the segment left with those whose ACK was the packet before, and so came with them, at `end`, if the
 * path does not spread an answer. Linux delays such ACKs once a request has followed an answer within 40 ms: by the timer,
 * or until a request carries the ACK, as only a client that delays lets one. Once the timer has expired, it sends them at
 * once until the next such request, and they show what the path does: so late ones come one at a time, and after 40 ms.
 */
static __always_inline int dwell_timer_sent(struct dwell_auto_state *state, __u32 tick, __u32 before, __u32 end,
					    __u32 carried)
{
	const struct dwell_turn_state *turn = &state->turn;
	__u32 apart = tick - before;
	int same = dwell_follows_prompt(turn, before) && end - before <= DWELL_BURST &&
		   turn->clock_age > DWELL_CLOCK_AGE_MIN && turn->unit_ns <= DWELL_USUAL_TICK_NS;

	if (!same)
		return 0;
	if (carried) {
		state->timers |= DWELL_TIMERS_HELD;
		return 0;
	}
	if (apart < DWELL_TIMER_LEAST || apart > DWELL_TIMER_MOST) {
		state->timers |= apart > DWELL_SPREAD ? DWELL_TIMERS_DOUBT : 0;
		return 0;
	}
	if (!(state->timers & DWELL_TIMERS_SOON)) {
		state->timers |= state->maybe ? 0 : DWELL_TIMERS_DOUBT;
		return 0;
	}
	if (!state->together || !(state->timers & DWELL_TIMERS_HELD) || state->timers & DWELL_TIMERS_DOUBT ||
	    end - before > (end - turn->start) / 4) /* between which the answer ended */
		return 0;
	state->together--;
	state->timers--;
	return 1;
}

/* Notes how soon a request follows an answer that ended `since` ticks ago. */
static __always_inline void dwell_asked_after(struct dwell_auto_state *state, __u32 since)
{
	if (since < DWELL_SOON)
		state->timers |= DWELL_TIMERS_SOON;
	else if (since < DWELL_SOON_MOST)
		state->maybe = 1;
}

/* Handles an ACK of a lone segment, without data. If it was sent at once although a request had followed an answer soon, the
 * client does not delay such ACKs. A timer that has expired, or such an ACK at once, means that later ones are sent at once
 * until the next such request.
 */
static __always_inline void dwell_acked_alone(struct dwell_auto_state *state, int at_once)
{
	if (at_once && state->timers & DWELL_TIMERS_SOON)
		state->timers &= ~DWELL_TIMERS_HELD;
	state->timers &= ~DWELL_TIMERS_SOON;
	state->maybe = 0;
}

/* Handles an ACK without progress that does not ask whether the server is there, which the byte before the next one does.
 * Something was lost or overtaken: then Linux acknowledges at once until the next request that follows an answer soon. Or a
 * window was opened, and nothing has changed.
 */
static __always_inline void dwell_acked_again(struct dwell_auto_state *state)
{
	state->maybe |= !!(state->timers & DWELL_TIMERS_SOON);
	state->timers &= ~DWELL_TIMERS_SOON;
}

/* Counts an answer whose last segment came together with those before it. */
static __always_inline void dwell_came_together(struct dwell_auto_state *state)
{
	if (!state->came)
		return;
	state->came = 0;
	if (state->timers & DWELL_TIMERS_DOUBT)
		state->timers -= DWELL_TIMERS_DOUBT & -DWELL_TIMERS_DOUBT;
	else
		state->together += state->together < DWELL_TOGETHER_MOST;
}

/* Returns the earliest end of an answer that a packet acknowledges, where no clock of the server shows it: after the packet
 * before, which did not acknowledge it, and no sooner than seven eighths of the handshake's round trip after its request.
 */
static __always_inline __u32 dwell_turn_earliest(const struct dwell_turn_state *turn, __u32 tick, __u32 waited)
{
	__u32 end = turn->start + (turn->round_trip - turn->round_trip / 8), before = tick - waited;

	if ((__s32)(end - before) < 0)
		end = before;
	return (__s32)(end - tick) < 0 ? end : tick;
}

/* Returns `end`, or when the answer may have ended if that is sooner by more than a fifth of the latency than the `latest` end: a
 * queue on the path may have delayed it as it delayed what was acknowledged at once before, or not. Two ticks of the server
 * are no queue.
 */
static __always_inline __u32 dwell_turn_queued(struct dwell_turn_state *turn, __u32 tick, __u32 late, __u32 waited,
					       __u32 end, __u32 *latest)
{
	__u32 unit = turn->unit_ns >> DWELL_TICK_SHIFT, later = end;
	__s32 open;

	if (turn->end && waited < late)
		late = waited; /* the packet before did not acknowledge it */
	if (turn->flags & DWELL_TURN_MOVED && turn->queue > turn->path)
		later += (__u32)(turn->queue - turn->path) << DWELL_PATH_SHIFT;
	if ((__s32)(later - tick) > 0)
		later = tick;
	open = later - (tick - late);
	if (open <= (__s32)(2 * unit) || open <= (__s32)((end - turn->start) / 5))
		return end;
	if (!(turn->flags & DWELL_TURN_UNSURE))
		*latest = later;
	turn->flags |= DWELL_TURN_UNSURE;
	return tick - late;
}

/* Returns true if a late ACK may acknowledge several pieces of an answer, of which the server's clock shows the first: other
 * answers of the epoch come in pieces, or the server speaks unasked too. What is more than one ACK's worth is acknowledged on the way.
 */
static __always_inline int dwell_turn_hides(const struct dwell_auto_state *state)
{
	const struct dwell_turn_state *turn = &state->turn;

	return turn->usual_bytes <= 2 * DWELL_USUAL_SEGMENT && (state->pieced || state->speaks & DWELL_SPEAKS_SERVER ||
								8 * turn->pieces > dwell_tally_count(turn->answered));
}

/* Returns the end of an answer whose ACK came `late`, later than the path makes it: when the server's clock says that the
 * first segment came which it acknowledges. Where that may not be so, the answer ended then or later, up to the ACK.
 */
static __always_inline __u32 dwell_turn_moved(struct dwell_auto_state *state, __u32 tick, __u32 late, __u32 waited,
					      __u32 carried)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 unit = turn->unit_ns >> DWELL_TICK_SHIFT, end = tick - late + dwell_path(turn) + dwell_within_tick(turn);

	/* Sooner than a round trip after its request: the server's tick is not what it was taken for. */
	if ((__s32)(end - turn->start) < (__s32)(turn->round_trip - turn->round_trip / 4 - unit)) {
		turn->unit_ns = 0;
		turn->flags |= DWELL_TURN_UNSURE;
		return dwell_turn_earliest(turn, tick, waited);
	}
	turn->flags |= DWELL_TURN_MOVED;
	if ((__s32)(end - (tick - waited)) < 0)
		end = tick - waited; /* the packet before did not acknowledge it */
	/* Segments that queue behind each other on the path look alike. If a request carries the ACK, it is the path that is
	 * known to spread answers.
	 */
	if (turn->end && !dwell_timer_sent(state, tick, tick - waited, end, carried) &&
	    (!carried || state->timers & DWELL_TIMERS_DOUBT) && tick - end > (end - turn->start) / 4)
		turn->flags |= DWELL_TURN_UNSURE;
	if (dwell_turn_hides(state))
		turn->flags |= DWELL_TURN_UNSURE;
	/* Too soon for a timer: a queue on the path, or the client had another reason. */
	if (!carried && waited < DWELL_LEAST_TIMER && tick - end > (tick - turn->start) / 8)
		turn->flags |= DWELL_TURN_UNSURE;
	return end;
}

/* Returns true for the first answer after a handshake of TLS: the first segment that its ACK acknowledges may be a ticket that
 * came long before, and an ACK of several is then sent for the last one.
 */
static __always_inline int dwell_after_ticket(const struct dwell_auto_state *state)
{
	return state->alone == DWELL_ALONE_FIRST && state->pieced;
}

/* Returns true for the ACK of an answer's lone segment that comes too soon for a timer, after the client's packet before or after
 * the segment left, and is no keepalive.
 */
static __always_inline int dwell_is_lone_ack(const struct dwell_auto_state *state, const struct dwell_arrival *arrival,
					     struct dwell_segments segments, __u32 bytes, __u32 late, __u32 waited)
{
	__u32 unit = state->turn.unit_ns >> DWELL_TICK_SHIFT;

	return !arrival->payload_bytes && !(arrival->tcp_flags & (DWELL_TCP_FIN | DWELL_TCP_RST)) &&
	       (waited < DWELL_LEAST_TIMER || late + unit < DWELL_LEAST_TIMER) && !state->turn.end &&
	       bytes <= segments.usual && arrival->seq == state->next_seq;
}

/* Returns true if an answer's first ACK, of several segments, may have waited for more of them: it is later than the soonest one
 * by more than an eighth of the latency and two ticks of the server, and the client was not seen to acknowledge each second
 * segment.
 */
static __always_inline int dwell_may_wait(const struct dwell_auto_state *state, __u32 tick, __s32 late)
{
	const struct dwell_turn_state *turn = &state->turn;

	return !turn->end && !state->second && !dwell_after_ticket(state) && dwell_is_late(turn, tick, late);
}

#endif
