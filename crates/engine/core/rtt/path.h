/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What samples say of the path beside the round trip: its base, without which
 * it is queueing, and the share of packets that were lost or marked.
 */
#ifndef DWELL_RTT_PATH_H
#define DWELL_RTT_PATH_H

#include "rtt/step.h"

/* A window of the base lasts 2^33 ns (8.6 s): the base is the least of the
 * last 8.6 to 17.2 s. */
#define DWELL_BASE_WINDOW_BITS 33

/* A gap that ends more than this many bytes behind the start of a hole is a
 * hole of its own, and the older one is given up. */
#define DWELL_HOLE_MAX (1 << 26)

/* Returns the base of a side with this round trip, of which 32 bits of
 * nanoseconds (4.3 s) are kept: longer ones are their own base. */
static __always_inline __u64 dwell_path_base(struct dwell_cold_side *side, __u64 rtt_ns, __u64 now_ns)
{
	__u32 window = now_ns >> DWELL_BASE_WINDOW_BITS, rtt = rtt_ns >> 32 ? 0xffffffff : rtt_ns;

	/* packets of two CPUs can come out of order: one of the last window counts in this one */
	if (window != side->base_window && window != side->base_window - 1) {
		side->base_ns[1] = window - side->base_window == 1 ? side->base_ns[0] : 0;
		side->base_ns[0] = 0;
		side->base_window = window;
	}
	if (!rtt)
		rtt = 1; /* 0: none */
	if (!side->base_ns[0] || rtt < side->base_ns[0])
		side->base_ns[0] = rtt;
	rtt = side->base_ns[0];
	if (side->base_ns[1] && side->base_ns[1] < rtt)
		rtt = side->base_ns[1];
	return rtt < rtt_ns && rtt != 0xffffffff ? rtt : rtt_ns;
}

/* Forgets what belonged to an earlier connection of the same addresses and
 * ports. */
static __always_inline void dwell_path_reset(struct dwell_cold_side *side)
{
	side->samples = 0;
	side->min_rtt_ns = 0;
	side->srtt_q7 = 0;
	side->base_ns[0] = 0;
	side->base_ns[1] = 0;
	side->retransmitted = 0;
	side->late = 0;
	side->ce = 0;
	side->hole_start = 0;
	side->hole_end = 0;
	__builtin_memset(&side->reported, 0, sizeof(side->reported));
}

static __always_inline void dwell_path_ce(struct dwell_step *step)
{
	struct dwell_cold *cold = dwell_cold_of(step);

	if (cold)
		cold->side[step->packet->direction & 1].ce += step->packet->segments;
}

/* Handles data that follows a hole, or that begins before the highest byte so
 * far. */
static __always_inline void dwell_path_disorder(struct dwell_step *step, __u32 end)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_cold *cold = dwell_cold_of(step);
	struct dwell_cold_side *side;

	/* a probe of an idle connection or of a closed window repeats a byte */
	if (!cold || (packet->payload_bytes == 1 && packet->seq == step->next_seq - 1))
		return;
	side = &cold->side[packet->direction & 1];
	if (dwell_after(packet->seq, step->next_seq)) {
		if (side->hole_start == side->hole_end || packet->seq - side->hole_start > DWELL_HOLE_MAX)
			side->hole_start = step->next_seq;
		side->hole_end = packet->seq;
	} else if (side->hole_start != side->hole_end && !dwell_after(side->hole_start, packet->seq) &&
		   dwell_after(side->hole_end, packet->seq)) {
		side->late += packet->segments;
		if (packet->seq == side->hole_start)
			side->hole_start = dwell_after(side->hole_end, end) ? end : side->hole_end;
	} else {
		side->retransmitted += packet->segments;
	}
}

/* Handles the sequence numbers of a TCP packet: counts data, and keeps the
 * highest byte. */
static __always_inline void dwell_path_data(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, flags = packet->tcp_flags;
	__u32 end = packet->seq + packet->payload_bytes + !!(flags & DWELL_TCP_SYN) + !!(flags & DWELL_TCP_FIN);

	step->next_seq = flow->next_seq[direction];
	if (end == packet->seq)
		return;
	if (packet->payload_bytes) {
		flow->data[direction] += packet->segments;
		if (dwell_unlikely(packet->seq != step->next_seq) && flow->own[direction] & DWELL_OWN_NEXT)
			dwell_path_disorder(step, end);
	}
	if (!(flow->own[direction] & DWELL_OWN_NEXT)) {
		flow->own[direction] |= DWELL_OWN_NEXT;
		flow->next_seq[direction] = end;
	} else if (dwell_after(end, step->next_seq)) {
		flow->next_seq[direction] = end;
	}
}

/* Takes the counts since the last sample of the side whose packet this is. */
static __always_inline void dwell_path_report(struct dwell_step *step, struct dwell_cold *cold)
{
	const struct dwell_flow *flow = step->flow;
	__u32 direction = step->packet->direction & 1;
	struct dwell_cold_side *mine = &cold->side[direction], *theirs = &cold->side[!direction];
	struct dwell_path_counts *reported = &mine->reported, *path = &step->path;

#define DWELL_REPORT(field, total)                                                                                     \
	path->field = (__u32)(total)-reported->field;                                                                  \
	reported->field += path->field
	DWELL_REPORT(sent, flow->data[!direction]);
	DWELL_REPORT(retransmitted, theirs->retransmitted);
	DWELL_REPORT(received, flow->side[direction].packets);
	DWELL_REPORT(late, mine->late);
	DWELL_REPORT(ce, mine->ce);
#undef DWELL_REPORT
}

#endif
