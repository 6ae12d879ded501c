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

/* Turns in a row in which a side says no more than a request or an answer, after which it is taken to speak unasked no more. */
#define DWELL_WHOLE_MOST 15
/* So many more turns a turn counts for after which the client goes on at once: it has waited for the answer. */
#define DWELL_WHOLE_AWAITED 4

/* Returns for how many turns in a row a side said no more, of which it was so many before, without a branch, each of which the
 * verifier would follow to the end. `more` is 0 or 1.
 */
static __always_inline __u32 dwell_whole(__u32 whole, __u32 more, __u32 counts)
{
	whole += counts;
	whole |= -(whole >> 4);
	return whole & DWELL_WHOLE_MOST & (more - 1);
}

/* Follows for how many turns in a row the sides have said no more than a request and an answer, given which of them said more in
 * this one, and for how many turns it counts. A late ACK may hide that the server said more: where a side has spoken unasked, it
 * shows nothing of the server.
 */
static __always_inline void dwell_turn_trust(struct dwell_auto_state *state, __u32 asked_more, __u32 answered_more,
					     __u32 counts)
{
	__u32 speaks = state->speaks, flags = state->turn.flags, asked, answered;
	__u32 is_late = (flags / DWELL_TURN_UNSURE | flags / DWELL_TURN_MOVED) & 1;
	__u32 hides = (speaks | speaks >> 1) & is_late;

	DWELL_OPAQUE(hides);
	asked = dwell_whole(state->asked_whole, asked_more, counts);
	answered =
		dwell_whole(state->answered_whole, answered_more & speaks / DWELL_SPEAKS_SERVER, counts & (hides - 1));
	state->asked_whole = asked;
	state->answered_whole = answered;
	state->speaks = speaks & ~((asked + 1) >> 4 | ((answered + 1) >> 4) * DWELL_SPEAKS_SERVER);
}

/* Counts an answer after which the client ends the connection at once. */
static __always_inline void dwell_turn_closes(struct dwell_auto_state *state, __u32 reaction, __u32 run_gap)
{
	if (reaction <= 4 * run_gap && !state->speaks && !(state->turn.flags & DWELL_TURN_UNSURE))
		dwell_turn_trust(state, 0, 0, DWELL_WHOLE_AWAITED);
}

/* Leaves in `again` by how much less the turn may have taken, as one of the sides may speak unasked: what the client said first
 * may not be the request, and what the server said last may not be the answer. Requests and answers that come in pieces
 * rarely come in more than usual, and a client that sends at once after the last piece waited for it. A pause after the last
 * piece that is shorter than those between them does not show that it was the last that the client waited for. Later pieces
 * that make less than an eighth of the latency do not matter, nor where requests can be read: nothing comes unasked there.
 *
 * A side that says more in one turn than it mostly does, where it mostly says one thing, has spoken unasked: the server if that
 * comes half as long after the answer as the answer took. From then on any of the pieces may be the answer, or the request, however
 * many there usually are.
 */
static __always_inline void dwell_turn_unasked(struct dwell_auto_state *state, __u32 reaction, __u32 run_gap)
{
	struct dwell_turn_state *turn = &state->turn;
	__u32 pushes = state->speaks / DWELL_SPEAKS_SERVER, at_once = reaction <= 4 * run_gap, waits;
	__u32 answered_more = 0, asked_more = 0, before, rest = 0, counts;
	__u32 parts = turn->parts < DWELL_MANY ? turn->parts + 1 : DWELL_MANY, usual = state->usual_parts;
	__u32 spoken = turn->spoken < DWELL_MANY ? turn->spoken + 1 : DWELL_MANY;

	at_once &= ~(pushes & turn->flags / DWELL_TURN_UNSURE);
	waits = at_once & turn->at_once;
	turn->at_once = at_once;
	if (waits & pushes) /* the last piece is what it waited for */
		turn->end = turn->progress;
	if (!waits && (parts > 1 || pushes)) {
		rest = turn->progress - (pushes ? turn->end : turn->start + ((__u32)state->done << DWELL_WITHIN_SHIFT));
		if (rest > (turn->progress - turn->start) / 8)
			answered_more = (usual && parts > usual) || parts == DWELL_MANY || pushes;
		if (answered_more && usual == 1 && rest > (turn->progress - turn->start) / 2) {
			state->speaks |= DWELL_SPEAKS_SERVER;
			state->answered_whole = 0;
		}
	}
	/* one after which the client went on at once counts for more */
	counts = answered_more ^ 1;
	counts += DWELL_WHOLE_AWAITED * (at_once & ~(state->speaks | state->speaks >> 1));
	state->usual_parts = dwell_usual_pieces(usual, parts, state->more_parts);
	state->more_parts = parts > usual;
	DWELL_BARRIER();
	/* small packets that are far apart are taken for a request once several had as many */
	usual = turn->usual_spoken ? turn->usual_spoken : turn->size < DWELL_SEGMENT_MIN_BYTES ? 1 : spoken;
	if (spoken > 1) {
		rest += (__u32)state->again << DWELL_WITHIN_SHIFT;
		asked_more = spoken > usual || spoken == DWELL_MANY || state->speaks & DWELL_SPEAKS_CLIENT;
		if (asked_more && state->asked_whole && turn->usual_spoken == 1) {
			if (!state->speaks)
				state->answered_whole = 0;
			state->speaks |= DWELL_SPEAKS_CLIENT;
		}
	}
	dwell_turn_trust(state, asked_more, answered_more, counts);
	turn->usual_spoken = dwell_usual_pieces(usual, spoken, turn->more_spoken);
	turn->more_spoken = spoken > usual;
	state->again = rest ? dwell_within(rest) : 0;
	before = state->unasked;
	if (answered_more | asked_more)
		state->unasked = before ? DWELL_UNASKED_MOST : DWELL_UNASKED_TURNS;
	else
		state->unasked = before ? before - 1 : 0;
	if (turn->flags & DWELL_TURN_TEXT)
		state->again = state->speaks = 0;
	else if (!rest)
		state->again = before == DWELL_UNASKED_MOST; /* whole ones count if others hardly are */
	else if (!(answered_more | asked_more) && !before && reaction > turn->pause)
		state->again = 0;
	DWELL_BARRIER(); /* what is read again below need not be kept meanwhile */
}

#endif
