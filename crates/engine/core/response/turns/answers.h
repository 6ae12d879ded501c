/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: what an answer that has ended shows: how long answers take, whether it was to an earlier request, whether it opened a
 * window that is kept full, and whether answers come in pieces.
 */
#ifndef DWELL_RESPONSE_ANSWERS_H
#define DWELL_RESPONSE_ANSWERS_H

#include "response/late_acks.h"

/* Counts an answer in the histogram of the epoch (DWELL_ANSWER_LOGS). A count that would
 * overflow halves all of them, and later ones count with the odds of the halvings, so that shares stay true.
 */
static __always_inline void dwell_answer_log(struct dwell_auto_state *state, __u64 latency_ns, __u64 dice)
{
	__u32 power = dwell_log2(latency_ns), index = 0;
	__u64 *words = (__u64 *)state->log;

	if (dice & ((1ULL << (state->log_shift & 15)) - 1))
		return;
	if (power >= DWELL_ANSWER_LOG_MIN)
		index = (power - DWELL_ANSWER_LOG_MIN) * 4 + (latency_ns >> ((power - 2) & 63) & 3);
	if (index >= DWELL_ANSWER_LOGS)
		index = DWELL_ANSWER_LOGS - 1;
	if (++state->log[index & (DWELL_ANSWER_LOGS - 1)] != 0xff)
		return;
	for (int i = 0; i < DWELL_ANSWER_LOGS / 8; i++)
		words[i] = (words[i] >> 1 & 0x7f7f7f7f7f7f7f7fULL) +
			   (words[i] & 0x0101010101010101ULL & dice >> i); /* half of the odd ones round up */
	state->log_shift += state->log_shift < 15;
}

/* Judges a burst of requests that can be read, or a first one of like size, which may have opened a window that each
 * answer keeps full. A client that pauses for much longer than answers take, while nothing comes, has nothing under way.
 */
static __always_inline void dwell_turn_window(struct dwell_turn_state *turn, __u32 reaction, __u32 run_gap)
{
	__u32 is_first = turn->flags & DWELL_TURN_BEGUN, is_text = turn->flags & DWELL_TURN_TEXT;
	__u32 opens = turn->flags & DWELL_TURN_ALIKE && turn->runs == 1, bytes;

	turn->flags &= ~DWELL_TURN_BEGUN;
	if (turn->burst > 1 && (is_text ? turn->runs < turn->burst : is_first && opens)) {
		bytes = turn->bytes / turn->burst;
		/* Of several bursts, the one that least was answered of shows it. */
		if (!(turn->flags & DWELL_TURN_WINDOW) || bytes < turn->window_bytes)
			turn->window_bytes = bytes;
		turn->flags |= DWELL_TURN_WINDOW;
		turn->refuted = 0;
		return;
	}
	if (is_first)
		return;
	if (!(turn->flags & DWELL_TURN_WINDOW))
		return;
	if (reaction > 4 * run_gap && reaction > 2 * turn->usual && ++turn->refuted >= 2)
		turn->flags = (turn->flags & ~DWELL_TURN_WINDOW) | DWELL_TURN_WINDOWED;
}

/* Judges an answer that came sooner than a round trip. The handshake may have been slower than what follows: that shows
 * where nothing else was under way. Elsewhere the answer was to an earlier request.
 */
static __always_inline void dwell_turn_sooner(struct dwell_auto_state *state, __u32 latency)
{
	struct dwell_turn_state *turn = &state->turn;

	if (turn->round_trip <= DWELL_LEAST_ROUND_TRIP || latency >= turn->round_trip - turn->round_trip / 4)
		return;
	if (state->alone)
		turn->round_trip = dwell_toward(turn->round_trip, latency, DWELL_ALONE_FIRST - state->alone);
	else
		dwell_count_u16(&turn->early);
}

/* Follows whether answers come in pieces that are far apart, compared with how long they take. Only one whose ACKs came at
 * once shows that it did not.
 */
static __always_inline void dwell_turn_pieces(struct dwell_auto_state *state, __u32 latency)
{
	struct dwell_turn_state *turn = &state->turn;

	if (turn->runs > 1 && turn->pause > latency / 16)
		state->pieced = 7;
	else if (!(turn->flags & (DWELL_TURN_UNSURE | DWELL_TURN_MOVED | DWELL_TURN_CARRIED)))
		state->pieced -= !!state->pieced;
	else if (state->alone == DWELL_ALONE_FIRST)
		state->pieced = 0; /* later answers come after no ticket */
}

#endif
