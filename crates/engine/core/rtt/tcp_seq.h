/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tcp-seq: data, and the ACK that first covers its last byte.
 *
 * An ACK gives at most one sample: of the segment that ends exactly where it acknowledges to, or else of the probe, if
 * it covers that: the oldest segment that was stamped since an ACK covered the last probe. Karn's rule is widened: once
 * anything makes it unclear which transmission an ACK answers (a byte seen twice, a SACK block, a duplicate ACK), no
 * ACK up to the highest byte sent so far gives a sample.
 */
#ifndef DWELL_RTT_TCP_SEQ_H
#define DWELL_RTT_TCP_SEQ_H

#include "rtt/tcp_auto.h"

/* Returns true if it is unclear which transmission of the byte before `seq` an ACK answers. */
static __always_inline int dwell_tcp_seq_doubts(const struct dwell_tcp_seq_state *state, __u32 seq)
{
	return (state->sent & DWELL_SEQ_DOUBT && !dwell_after(seq, state->doubt_sent)) ||
	       (state->answered & DWELL_SEQ_DOUBT && !dwell_after(seq, state->doubt_acked));
}

static __always_inline void dwell_tcp_seq_doubt_sent(struct dwell_step *step, struct dwell_tcp_seq_state *mine)
{
	__u32 next = step->flow->next_seq[step->packet->direction & 1];

	if (!dwell_tcp_seq_doubts(mine, next))
		dwell_count(step, DWELL_REJECT_AMBIGUOUS);
	mine->doubt_sent = next;
	mine->sent |= DWELL_SEQ_DOUBT;
}

static __always_inline void dwell_tcp_seq_doubt_acked(struct dwell_step *step, struct dwell_tcp_seq_state *theirs)
{
	__u32 next = step->flow->next_seq[!(step->packet->direction & 1)];

	if (!dwell_tcp_seq_doubts(theirs, next))
		dwell_count(step, DWELL_REJECT_AMBIGUOUS);
	theirs->doubt_acked = next;
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

/* Payload from which no more segments end within the bytes of a set of stamps than it has entries. */
#define DWELL_SEQ_LONG 64

/* Returns the position of the stamp of a segment that ends at `end`: its unit of 64 bytes, so that bulk data fills
 * entries in ascending order. Shorter segments behind others in flight would take these from each other: their stamps
 * have positions (`fine`) that differ for any two within 64 KiB.
 */
static __always_inline __u32 dwell_tcp_seq_position(__u32 end, __u32 fine)
{
	return (end >> 6) + (fine ? (1 + (end & 63)) * 1024 : 0);
}

/* Finds the stamp of the other direction's segment that ends at `end`. */
static __always_inline struct dwell_pending_stamp dwell_tcp_seq_find(struct dwell_step *step,
								     const struct dwell_tcp_seq_state *theirs,
								     __u32 end)
{
	__u32 other = !(step->packet->direction & 1);
	struct dwell_pending_stamp waiting = {};

	if (dwell_unlikely(theirs->sent & DWELL_SEQ_FINE))
		waiting = dwell_stamp_find_at(step, DWELL_TCP_SEQ, other, end, dwell_tcp_seq_position(end, 1));
	if (!waiting.stamp)
		waiting = dwell_stamp_find_at(step, DWELL_TCP_SEQ, other, end, dwell_tcp_seq_position(end, 0));
	return waiting;
}

/* Stamps the segment that ends at `end`. */
static __always_inline void dwell_tcp_seq_stamp(struct dwell_step *step, struct dwell_tcp_seq_state *mine, __u32 end)
{
	const struct dwell_packet *packet = step->packet;
	__u32 in_flight = mine->acked != packet->seq;
	__u32 fine = in_flight && packet->payload_bytes < DWELL_SEQ_LONG && !(packet->tcp_flags & DWELL_TCP_SYN);

	if (fine)
		mine->sent |= DWELL_SEQ_FINE;
	else if (!in_flight)
		mine->sent &= ~DWELL_SEQ_FINE;
	dwell_stamp_put_at(step, DWELL_TCP_SEQ, end, dwell_tcp_seq_position(end, fine),
			   dwell_tcp_seq_age(&step->flow->side[packet->direction & 1]));
}

/* Handles the packet's ACK for data of the other direction. */
static __always_inline void dwell_tcp_seq_answer(struct dwell_step *step, struct dwell_matcher *matcher)
{
	const struct dwell_packet *packet = step->packet;
	__u32 other = !(packet->direction & 1), flags = packet->tcp_flags, ack = packet->ack, end = ack;
	struct dwell_tcp_seq_state *theirs = &matcher->side[other].seq;
	int known = theirs->answered & DWELL_SEQ_ACKED, probed = 0, clear;
	__u32 handshake = theirs->sent & DWELL_SEQ_SYN && !known ? DWELL_SAMPLE_HANDSHAKE : 0;
	struct dwell_pending_stamp waiting;
	__u64 probe_ns = 0;

	if (known && ack == theirs->acked) {
		int duplicate = !packet->payload_bytes && packet->rtt.window == theirs->window &&
				!(flags & (DWELL_TCP_SYN | DWELL_TCP_FIN));

		if ((duplicate || packet->rtt.has_sack) && theirs->sent & DWELL_SEQ_NEXT &&
		    dwell_after(step->flow->next_seq[other], ack))
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
	/* the FIN has a number of its own, after the data */
	if (step->flow->own[other] & DWELL_OWN_FIN && ack == step->flow->next_seq[other] &&
	    (!known || dwell_after(ack - 1, theirs->acked)))
		end--;
	theirs->acked = ack;
	theirs->window = packet->rtt.window;
	theirs->answered |= DWELL_SEQ_ACKED;
	if (!(theirs->sent & DWELL_SEQ_NEXT))
		return;
	if (packet->rtt.has_sack)
		dwell_tcp_seq_doubt_acked(step, theirs);
	else if (dwell_after(ack, theirs->doubt_acked))
		theirs->answered &= ~DWELL_SEQ_DOUBT;
	if (!clear) {
		dwell_tcp_auto_acked(step, theirs);
		return;
	}
	waiting = dwell_tcp_seq_find(step, theirs, end);
	if (waiting.stamp && dwell_tcp_seq_age(&step->flow->side[other]) - waiting.ack <= DWELL_SEQ_AGE_MAX &&
	    !dwell_is_late_view(step, waiting.time_ns))
		dwell_stamp_take(step, &waiting, DWELL_TCP_SEQ, handshake);
	else if (probed)
		dwell_match_set(step, &step->match, DWELL_TCP_SEQ, dwell_now(step->table->clock) - probe_ns, handshake);
	dwell_tcp_auto_acked(step, theirs);
}

static __always_inline void dwell_tcp_seq_ack(struct dwell_step *step)
{
	struct dwell_matcher *matcher = dwell_matcher_of(step);

	if (matcher && (step->packet->tcp_flags & (DWELL_TCP_ACK | DWELL_TCP_RST)) == DWELL_TCP_ACK)
		dwell_tcp_seq_answer(step, matcher);
}

/* Handles the packet's own data. */
static __always_inline void dwell_tcp_seq_data(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_matcher *matcher = dwell_matcher_of(step);
	__u32 direction = packet->direction & 1, flags = packet->tcp_flags;
	__u32 syn = !!(flags & DWELL_TCP_SYN), fin = !!(flags & DWELL_TCP_FIN);
	__u32 end = packet->seq + packet->payload_bytes + syn + fin;
	struct dwell_tcp_seq_state *mine;

	if (!matcher || end == packet->seq)
		return;
	mine = &matcher->side[direction].seq;
	if (!(mine->sent & DWELL_SEQ_NEXT)) {
		mine->sent |= DWELL_SEQ_NEXT;
		/* bytes before a flow's first packet are unknown: it may be a retransmission */
		if (!syn) {
			mine->doubt_sent = end;
			mine->sent |= DWELL_SEQ_DOUBT;
			return;
		}
	} else if (dwell_after(step->next_seq, packet->seq)) {
		dwell_tcp_seq_doubt_sent(step, mine);
		return;
	}
	if (mine->answered & DWELL_SEQ_ACKED) {
		if (dwell_after(mine->acked, mine->doubt_sent))
			mine->sent &= ~DWELL_SEQ_DOUBT;
		if (!dwell_after(end, mine->acked)) /* it was acknowledged before it passed */
			return;
	}
	if (syn ? !step->config->include_handshake : !packet->payload_bytes)
		return;
	if (!dwell_may_stamp(step))
		return;
	dwell_tcp_seq_stamp(step, mine, end - fin);
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

#endif
