/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: which ACKs a client sent at once, and whether its timer or the path delayed the others. */
#ifndef DWELL_RESPONSE_LATE_ACKS_H
#define DWELL_RESPONSE_LATE_ACKS_H

#include "response/server_clock.h"

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

/* How large segments of the server are. */
struct dwell_segments {
	__u32 usual; /* on the path, as it is taken for */
	__u32 most;  /* what the client's SYN accepts or, where none was seen, the client's own largest */
};

static __always_inline struct dwell_segments dwell_segments_of(const struct dwell_auto_state *state)
{
	__u32 usual = state->segment ? state->segment : 1448, options = dwell_tcp_options(state->least);
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

/* Returns true if the answer was acknowledged up to its last segment by the packet before this one, at `before`: neither
 * late itself nor in a queue that other answers did not meet.
 */
static __always_inline int dwell_follows_prompt(const struct dwell_turn_state *turn, __u32 before)
{
	return turn->end && turn->end == before && turn->path <= DWELL_BURST;
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
	state->maybe = state->again = 0;
}

/* Handles an ACK without progress. Something was lost or overtaken: then Linux acknowledges at once until the next request
 * that follows an answer soon. Or a window was opened, or a silent connection kept alive, and nothing has changed.
 */
static __always_inline void dwell_acked_again(struct dwell_auto_state *state)
{
	state->maybe |= !!(state->timers & DWELL_TIMERS_SOON);
	state->again = 1;
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

#endif
