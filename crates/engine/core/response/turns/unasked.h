/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: whether a side speaks unasked, so that what the client said first may not be the request, and what came last not the
 * answer.
 */
#ifndef DWELL_RESPONSE_UNASKED_H
#define DWELL_RESPONSE_UNASKED_H

#include "response/late_acks.h"

/* Ticks (2 ms) after which a client is taken to speak again, rather than to write one request in several pieces. */
#define DWELL_SPOKEN_AGAIN (2000000 >> DWELL_TICK_SHIFT)
/* Most pieces that are counted of a request or answer, plus 1. */
#define DWELL_MANY 7
/* Later turns for which a side is taken to speak unasked once it did. */
#define DWELL_UNASKED_TURNS 2
#define DWELL_UNASKED_MOST 3

/* Returns a time within a turn in units of 64 ticks (16 us), from 1 to 1.07 s. */
#define DWELL_WITHIN_SHIFT 6
static __always_inline __u16 dwell_within(__u32 ticks)
{
	__u32 units = ticks >> DWELL_WITHIN_SHIFT;

	return !units ? 1 : units < 0xffff ? units : 0xffff;
}

/* Returns true for times of dwell_within() that differ by at most 1/32, as long as they are known. */
static __always_inline int dwell_is_near(__u32 one, __u32 other)
{
	__u32 apart = one > other ? one - other : other - one;

	return one < 0xffff && 32 * apart <= one;
}

/* Returns how many pieces turns have at least, given those of the newest: two turns in a row show that there are more than
 * before, if the one before `had_more` too. 0: not known.
 */
static __always_inline __u32 dwell_usual_pieces(__u32 usual, __u32 pieces, __u32 had_more)
{
	return !usual || pieces < usual || had_more ? pieces : usual;
}

/* Leaves in `again` by how much less the turn may have taken, as one of the sides may speak unasked: what the client said first
 * may not be the request, and what the server said last may not be the answer. Requests and answers that come in pieces
 * rarely come in more than usual, and a client that sends at once after the last piece waited for it. A pause after the last
 * piece that is shorter than those between them does not show that it was the last that the client waited for. Later pieces
 * that make less than an eighth of the latency do not matter, nor where requests can be read: nothing comes unasked there.
 */
static __always_inline void dwell_turn_unasked(struct dwell_auto_state *state, __u32 reaction, __u32 run_gap)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 at_once = reaction <= 4 * run_gap, waits = at_once & turn->at_once, more = 0, before, rest = 0;
	__u32 parts = turn->parts < DWELL_MANY ? turn->parts + 1 : DWELL_MANY, usual = state->usual_parts;
	__u32 spoken = turn->spoken < DWELL_MANY ? turn->spoken + 1 : DWELL_MANY;

	turn->at_once = at_once;
	if (!waits && parts > 1) {
		rest = turn->progress - turn->start - ((__u32)state->done << DWELL_WITHIN_SHIFT);
		if (rest > (turn->progress - turn->start) / 8)
			more = (usual && parts > usual) || parts == DWELL_MANY;
	}
	state->usual_parts = dwell_usual_pieces(usual, parts, state->more_parts);
	state->more_parts = parts > usual;
	DWELL_BARRIER();
	/* small packets that are far apart are taken for a request once several had as many */
	usual = turn->usual_spoken ? turn->usual_spoken : turn->size < DWELL_SEGMENT_MIN_BYTES ? 1 : spoken;
	if (spoken > 1) {
		rest += (__u32)state->again << DWELL_WITHIN_SHIFT;
		more |= spoken > usual || spoken == DWELL_MANY;
	}
	turn->usual_spoken = dwell_usual_pieces(usual, spoken, turn->more_spoken);
	turn->more_spoken = spoken > usual;
	state->again = rest ? dwell_within(rest) : 0;
	before = state->unasked;
	if (more)
		state->unasked = before ? DWELL_UNASKED_MOST : DWELL_UNASKED_TURNS;
	else
		state->unasked = before ? before - 1 : 0;
	if (turn->flags & DWELL_TURN_TEXT)
		state->again = 0;
	else if (!rest)
		state->again = before == DWELL_UNASKED_MOST; /* whole ones count if others hardly are */
	else if (!more && !before && reaction > turn->pause)
		state->again = 0;
	DWELL_BARRIER(); /* what is read again below need not be kept meanwhile */
}

#endif
