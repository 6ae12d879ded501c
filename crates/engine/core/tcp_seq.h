/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tcp-seq: data, and the ACK that first covers its last byte.
 *
 * An ACK gives at most one sample: of the segment that ends just where it
 * acknowledges to, or else of the oldest stamped segment that it is the first
 * to cover (the probe). Karn's rule, widened: once anything makes it unclear
 * which transmission an ACK answers (a byte seen twice, a SACK block, a
 * duplicate ACK), no ACK up to the highest byte sent so far gives a sample.
 */
#ifndef DWELL_TCP_SEQ_H
#define DWELL_TCP_SEQ_H

#include "step.h"

static __always_inline void dwell_tcp_seq_doubt(struct dwell_step *step,
						struct dwell_tcp_seq_state *sent)
{
	if (!(sent->known & DWELL_SEQ_AMBIGUOUS) || sent->ambiguous_until != sent->next_seq)
		dwell_count(step, DWELL_REJECT_AMBIGUOUS);
	sent->ambiguous_until = sent->next_seq;
	sent->known |= DWELL_SEQ_AMBIGUOUS;
	sent->probe_ns = 0;
}

/* The packet's ACK, for the data of the other direction. */
static __always_inline void dwell_tcp_seq_ack(struct dwell_step *step,
					      struct dwell_memories *memories)
{
	const struct dwell_packet *packet = step->packet;
	__u32 direction = packet->direction & 1, flags = packet->tcp_flags;
	struct dwell_tcp_seq_state *sent = &memories->of[!direction].seq;
	__u32 ack = packet->ack;

	if (sent->known & DWELL_SEQ_ACKED && ack == sent->acked) {
		int duplicate = !packet->payload_bytes && packet->window == sent->window &&
				!(flags & (DWELL_TCP_SYN | DWELL_TCP_FIN));

		if ((duplicate || packet->has_sack) && sent->known & DWELL_SEQ_NEXT &&
		    dwell_after(sent->next_seq, ack))
			dwell_tcp_seq_doubt(step, sent);
		sent->window = packet->window;
		return;
	}
	if (sent->known & DWELL_SEQ_ACKED && !dwell_after(ack, sent->acked))
		return;
	sent->acked = ack;
	sent->window = packet->window;
	sent->known |= DWELL_SEQ_ACKED;
	if (!(sent->known & DWELL_SEQ_NEXT))
		return;

	int clear = !(sent->known & DWELL_SEQ_AMBIGUOUS) || dwell_after(ack, sent->ambiguous_until);
	__u64 hash = dwell_stamp_hash(packet, DWELL_TCP_SEQ, !direction, ack);
	__u32 syn = sent->known & DWELL_SEQ_SYN ? DWELL_SAMPLE_HANDSHAKE : 0;

	sent->known &= ~DWELL_SEQ_SYN;
	if (clear) {
		struct dwell_stamp *stamp = dwell_stamp_at(step, hash);

		sent->known &= ~DWELL_SEQ_AMBIGUOUS;
		if (stamp && dwell_stamp_holds(stamp, hash)) {
			dwell_stamp_take(step, stamp, DWELL_TCP_SEQ, syn);
			clear = 0; /* answered, even if the clock stepped back */
		}
	}
	if (sent->probe_ns && !dwell_after(sent->probe_seq, ack)) {
		if (clear)
			dwell_match_set(step, &step->match, DWELL_TCP_SEQ,
					dwell_now(step->clock) - sent->probe_ns, syn);
		sent->probe_ns = 0;
	}
	if (packet->has_sack)
		dwell_tcp_seq_doubt(step, sent);
}

/* The packet's own bytes. */
static __always_inline void dwell_tcp_seq_data(struct dwell_step *step,
					       struct dwell_memories *memories)
{
	const struct dwell_packet *packet = step->packet;
	__u32 direction = packet->direction & 1, flags = packet->tcp_flags;
	struct dwell_tcp_seq_state *mine = &memories->of[direction].seq;
	__u32 syn = !!(flags & DWELL_TCP_SYN), fin = !!(flags & DWELL_TCP_FIN);
	__u32 end = packet->seq + packet->payload_bytes + syn + fin;

	if (end == packet->seq)
		return;
	if (!(mine->known & DWELL_SEQ_NEXT)) {
		mine->next_seq = end;
		mine->known |= DWELL_SEQ_NEXT;
		/* what came before a flow's first packet seen is not known: it may
		 * be a retransmission
		 */
		if (!syn) {
			mine->ambiguous_until = end;
			mine->known |= DWELL_SEQ_AMBIGUOUS;
			return;
		}
	} else if (!dwell_after(end, mine->next_seq)) {
		dwell_tcp_seq_doubt(step, mine);
		return;
	} else if (dwell_after(mine->next_seq, packet->seq)) {
		mine->next_seq = end;
		dwell_tcp_seq_doubt(step, mine);
		return;
	} else {
		mine->next_seq = end;
	}
	if (syn ? !step->config->include_handshake : !packet->payload_bytes)
		return;
	if (!dwell_may_stamp(step))
		return;
	dwell_stamp_put(step, dwell_stamp_hash(packet, DWELL_TCP_SEQ, direction, end), 0, 0);
	if (syn)
		mine->known |= DWELL_SEQ_SYN;
	if (!mine->probe_ns) {
		mine->probe_seq = end;
		mine->probe_ns = dwell_now(step->clock);
	}
}

static __always_inline void dwell_tcp_seq(struct dwell_step *step)
{
	struct dwell_memories *memories = dwell_memories_of(step);

	if (!memories)
		return;
	if (step->packet->tcp_flags & DWELL_TCP_ACK)
		dwell_tcp_seq_ack(step, memories);
	dwell_tcp_seq_data(step, memories);
}

#endif
