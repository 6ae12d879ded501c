/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The choice between tcp-seq and tcp-timestamp, for each direction of a flow whose packets carry timestamps.
 *
 * A direction begins with tcp-seq. tcp-timestamp measures the first packet of each tick of the sender's clock. Where a
 * round trip is shorter than a tick, it misses packets that are sent after the answer to that one, and what it
 * measures are the packets after a pause. So it takes over once ticks have passed without such a miss, or where
 * more than four of five ACKs give tcp-seq no sample, because of loss or because they end at no segment's end.
 */
#ifndef DWELL_RTT_TCP_AUTO_H
#define DWELL_RTT_TCP_AUTO_H

#include "rtt/step.h"

/* The score of a direction: one more for each new TSval, and DWELL_AUTO_MISS less for each packet that tcp-timestamp
 * misses. With tcp-timestamp, more than one miss in DWELL_AUTO_MISS + 1 lets the score sink.
 */
#define DWELL_AUTO_MISS 16
#define DWELL_AUTO_MAX 64
#define DWELL_AUTO_TO_TS 32  /* tcp-timestamp takes over at this score */
#define DWELL_AUTO_TO_SEQ 16 /* tcp-seq takes over below this score */

/* Doubt about tcp-seq: one more for each ACK without a sample, DWELL_AUTO_SAMPLE less for each sample. */
#define DWELL_AUTO_SAMPLE 4
#define DWELL_AUTO_BLIND 64
#define DWELL_AUTO_BLIND_SCORE 255 /* the score where tcp-timestamp takes over for this; only misses change it, by 1 */

static __always_inline int dwell_tcp_by_ts(const struct dwell_flow *flow, __u32 direction)
{
	return flow->own[direction & 1] & DWELL_OWN_BY_TS;
}

/* Counts the ACK of other data with or without a sample by tcp-seq. Under a rate limit most have none. */
static __always_inline void dwell_tcp_auto_acked(struct dwell_step *step, struct dwell_tcp_seq_state *theirs)
{
	__u8 *blind = &theirs->blind;

	if (!step->config->tcp_auto || step->config->rate_limit_ns || step->config->rtt_rate_q8)
		return;
	if (!step->match.found)
		*blind += *blind < DWELL_AUTO_BLIND;
	else if (*blind)
		*blind = *blind > DWELL_AUTO_SAMPLE ? *blind - DWELL_AUTO_SAMPLE : 0;
}

/* Makes tcp-seq begin in the middle of the connection. What it knew of this direction is out of date. */
static __always_inline void dwell_tcp_auto_restart(struct dwell_step *step, struct dwell_tcp_seq_state *seq)
{
	seq->acked = step->packet->seq;
	seq->answered &= DWELL_SEQ_ACKED | DWELL_SEQ_PROBE;
	seq->sent = seq->answered & DWELL_SEQ_PROBE; /* no probe waits */
	seq->blind = DWELL_AUTO_BLIND / 2;
}

/* Scores a packet with data and timestamp, and chooses the method for it and what follows in its direction. */
static __always_inline void dwell_tcp_auto(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, value = packet->rtt.tsval, score = flow->score[direction];
	struct dwell_tcp_ts_state *mine = &flow->ts[direction];
	__u8 own = flow->own[direction];
	struct dwell_matcher *matcher;

	if (!packet->payload_bytes && !step->config->stamp_acks)
		return;
	if (!(own & DWELL_OWN_TSVAL) || dwell_after(value, mine->tsval)) {
		if (!(own & DWELL_OWN_BLIND))
			score += score < DWELL_AUTO_MAX;
	} else if (value == mine->tsval && flow->ts[!direction].tsecr == value) {
		__u32 cost = own & DWELL_OWN_BLIND ? 1 : DWELL_AUTO_MISS;

		score = score > cost ? score - cost : 0;
	} else {
		return;
	}
	if (own & DWELL_OWN_BY_TS) {
		if (dwell_unlikely(score < DWELL_AUTO_TO_SEQ)) {
			matcher = dwell_matcher_of(step);
			if (matcher)
				dwell_tcp_auto_restart(step, &matcher->side[direction].seq);
			own &= ~(DWELL_OWN_BY_TS | DWELL_OWN_BLIND | DWELL_OWN_STAMPED);
		}
	} else {
		matcher = dwell_matcher_of(step);
		if (matcher && matcher->side[direction].seq.blind >= DWELL_AUTO_BLIND) {
			own |= DWELL_OWN_BY_TS | DWELL_OWN_BLIND;
			score = DWELL_AUTO_BLIND_SCORE;
		} else if (score >= DWELL_AUTO_TO_TS) {
			own |= DWELL_OWN_BY_TS;
		}
	}
	flow->score[direction] = score;
	/* tcp-timestamp sets these itself */
	if (!(own & DWELL_OWN_BY_TS)) {
		mine->tsval = value;
		own |= DWELL_OWN_TSVAL;
	}
	if (own != flow->own[direction])
		flow->own[direction] = own;
}

#endif
