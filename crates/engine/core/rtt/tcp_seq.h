/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tcp-seq: data, and the ACK that first covers its last byte.
 *
 * An ACK gives at most one sample: of the segment that ends exactly where it acknowledges to, or else of the oldest
 * stamped segment that it is the first to cover (the probe). Karn's rule is widened: once anything makes it unclear
 * which transmission an ACK answers (a byte seen twice, a SACK block, a duplicate ACK), no ACK up to the highest byte
 * sent so far gives a sample.
 */
#ifndef DWELL_RTT_TCP_SEQ_H
#define DWELL_RTT_TCP_SEQ_H

#include "rtt/step.h"

/* Returns true if it is unclear which transmission of the byte before `seq` an ACK answers. */
static __always_inline int dwell_tcp_seq_doubts(const struct dwell_tcp_seq_state *state, __u32 seq)
{
	return (state->sent & DWELL_SEQ_DOUBT && !dwell_after(seq, state->doubt_sent)) ||
	       (state->answered & DWELL_SEQ_DOUBT && !dwell_after(seq, state->doubt_acked));
}

static __always_inline void dwell_tcp_seq_doubt_sent(struct dwell_step *step, struct dwell_tcp_seq_state *mine)
{
	if (!dwell_tcp_seq_doubts(mine, mine->next_seq))
		dwell_count(step, DWELL_REJECT_AMBIGUOUS);
	mine->doubt_sent = mine->next_seq;
	mine->sent |= DWELL_SEQ_DOUBT;
}

static __always_inline void dwell_tcp_seq_doubt_acked(struct dwell_step *step, struct dwell_tcp_seq_state *theirs)
{
	if (!dwell_tcp_seq_doubts(theirs, theirs->next_seq))
		dwell_count(step, DWELL_REJECT_AMBIGUOUS);
	theirs->doubt_acked = theirs->next_seq;
	theirs->answered |= DWELL_SEQ_DOUBT;
}

/* Returns true while a probe waits for an ACK that covers it. Each side has a bit: the data turns its own, and the ACK
 * then turns the other. Sequence numbers alone would not do, as the comparison inverts after 2 GiB.
 */
static __always_inline int dwell_tcp_seq_waits(const struct dwell_tcp_seq_state *state)
{
	return (state->sent ^ state->answered) & DWELL_SEQ_PROBE;
}

/* The age of a stamp at which its sequence number may have come round: 2 GiB, in units of 2^28 bytes sent. */
#define DWELL_SEQ_AGE_MAX 8

/* Returns the bytes that a direction has sent, in units of 2^28. If the rate limit leaves segments without a stamp, it
 * reveals a stamp of the same sequence number 4 GiB earlier.
 */
static __always_inline __u32 dwell_tcp_seq_age(const struct dwell_side *side)
{
	return side->bytes >> 28;
}

/* Handles the packet's ACK for data of the other direction. */
static __always_inline void dwell_tcp_seq_ack(struct dwell_step *step, struct dwell_cold *cold)
{
	const struct dwell_packet *packet = step->packet;
	__u32 other = !(packet->direction & 1), flags = packet->tcp_flags, ack = packet->ack;
	struct dwell_tcp_seq_state *theirs = &cold->side[other].seq;
	int known = theirs->answered & DWELL_SEQ_ACKED, probed = 0, clear;
	__u32 handshake = theirs->sent & DWELL_SEQ_SYN && !known ? DWELL_SAMPLE_HANDSHAKE : 0;
	struct dwell_pending_stamp waiting;
	__u64 probe_ns = 0;

	if (known && ack == theirs->acked) {
		int duplicate = !packet->payload_bytes && packet->rtt.window == theirs->window &&
				!(flags & (DWELL_TCP_SYN | DWELL_TCP_FIN));

		if ((duplicate || packet->rtt.has_sack) && theirs->sent & DWELL_SEQ_NEXT &&
		    dwell_after(theirs->next_seq, ack))
			dwell_tcp_seq_doubt_acked(step, theirs);
		theirs->window = packet->rtt.window;
		return;
	}
	if (known && !dwell_after(ack, theirs->acked))
		return;
	clear = !dwell_tcp_seq_doubts(theirs, ack);
	if (dwell_tcp_seq_waits(theirs) && !dwell_after(theirs->probe_seq, ack)) {
		/* read before the bit is turned, as the data may then start another probe */
		probe_ns = *(volatile __u64 *)&theirs->probe_ns;
		probed = !dwell_tcp_seq_doubts(theirs, theirs->probe_seq) && !dwell_is_late_view(step, probe_ns);
		DWELL_BARRIER();
		theirs->answered ^= DWELL_SEQ_PROBE;
	}
	theirs->acked = ack;
	theirs->window = packet->rtt.window;
	theirs->answered |= DWELL_SEQ_ACKED;
	if (!(theirs->sent & DWELL_SEQ_NEXT))
		return;
	if (packet->rtt.has_sack)
		dwell_tcp_seq_doubt_acked(step, theirs);
	else if (dwell_after(ack, theirs->doubt_acked))
		theirs->answered &= ~DWELL_SEQ_DOUBT;
	if (!clear)
		return;
	waiting = dwell_stamp_find(step, DWELL_TCP_SEQ, other, ack);
	if (waiting.stamp && dwell_tcp_seq_age(&step->flow->side[other]) - waiting.ack <= DWELL_SEQ_AGE_MAX &&
	    !dwell_is_late_view(step, waiting.time_ns))
		dwell_stamp_take(step, &waiting, DWELL_TCP_SEQ, handshake);
	else if (probed)
		dwell_match_set(step, &step->match, DWELL_TCP_SEQ, dwell_now(step->table->clock) - probe_ns, handshake);
}

/* Handles the packet's own data. */
static __always_inline void dwell_tcp_seq_data(struct dwell_step *step, struct dwell_cold *cold)
{
	const struct dwell_packet *packet = step->packet;
	__u32 direction = packet->direction & 1, flags = packet->tcp_flags;
	struct dwell_tcp_seq_state *mine = &cold->side[direction].seq;
	__u32 syn = !!(flags & DWELL_TCP_SYN), fin = !!(flags & DWELL_TCP_FIN);
	__u32 end = packet->seq + packet->payload_bytes + syn + fin, next = mine->next_seq;

	if (end == packet->seq)
		return;
	if (!(mine->sent & DWELL_SEQ_NEXT)) {
		mine->next_seq = end;
		mine->sent |= DWELL_SEQ_NEXT;
		/* bytes before a flow's first packet are unknown: it may be a retransmission */
		if (!syn) {
			mine->doubt_sent = end;
			mine->sent |= DWELL_SEQ_DOUBT;
			return;
		}
	} else {
		if (dwell_after(end, next))
			mine->next_seq = end;
		if (dwell_after(next, packet->seq)) {
			dwell_tcp_seq_doubt_sent(step, mine);
			return;
		}
	}
	if (mine->answered & DWELL_SEQ_ACKED && dwell_after(mine->acked, mine->doubt_sent))
		mine->sent &= ~DWELL_SEQ_DOUBT;
	if (syn ? !step->config->include_handshake : !packet->payload_bytes)
		return;
	if (!dwell_may_stamp(step))
		return;
	dwell_stamp_put(step, DWELL_TCP_SEQ, end, dwell_tcp_seq_age(&step->flow->side[direction]));
	if (syn)
		mine->sent |= DWELL_SEQ_SYN;
	if (!dwell_tcp_seq_waits(mine) || dwell_tcp_seq_doubts(mine, mine->probe_seq)) {
		mine->probe_seq = end;
		mine->probe_ns = dwell_now(step->table->clock);
		DWELL_BARRIER();
		if (!dwell_tcp_seq_waits(mine))
			mine->sent ^= DWELL_SEQ_PROBE;
	}
}

static __always_inline void dwell_tcp_seq(struct dwell_step *step)
{
	struct dwell_cold *cold = dwell_cold_of(step);

	if (!cold)
		return;
	if ((step->packet->tcp_flags & (DWELL_TCP_ACK | DWELL_TCP_RST)) == DWELL_TCP_ACK)
		dwell_tcp_seq_ack(step, cold);
	dwell_tcp_seq_data(step, cold);
}

#endif
