/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tcp-timestamp: the first packet that carries a new TSval, and the first packet in return that echoes it (RFC 7323
 * section 3).
 *
 * The echo must also acknowledge part of the stamped packet. Without that rule, data that shares its TSval with an
 * earlier packet (a pure ACK, or data before the capture began) could be answered by that packet's echo, and the round
 * trip would come out too short.
 */
#ifndef DWELL_RTT_TCP_TIMESTAMP_H
#define DWELL_RTT_TCP_TIMESTAMP_H

#include "rtt/step.h"

/* Handles the packet's echo of a TSval of the other direction. */
static __always_inline void dwell_tcp_timestamp_ack(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, other = !direction;
	struct dwell_tcp_ts_state *mine = &flow->ts[direction];
	struct dwell_pending_stamp waiting = {};

	/* 0 is also the initial value of mine->tsecr */
	if ((packet->tcp_flags & (DWELL_TCP_ACK | DWELL_TCP_RST)) != DWELL_TCP_ACK ||
	    (packet->rtt.tsecr == mine->tsecr && packet->rtt.tsecr))
		return;
	/* TSvals newer than the newest stamped one: most of them under a rate limit */
	if (flow->own[other] & DWELL_OWN_STAMPED && !dwell_after(packet->rtt.tsecr, flow->stamped[other]))
		waiting = dwell_stamp_find(step, DWELL_TCP_TIMESTAMP, other, packet->rtt.tsecr);
	if (!waiting.stamp) {
		/* The echo of a packet without a stamp (a SYN, a pure ACK) says nothing about data that shares its
		 * TSval and may follow.
		 */
		if (flow->own[other] & DWELL_OWN_TSVAL && !dwell_after(packet->rtt.tsecr, flow->ts[other].tsval))
			mine->tsecr = packet->rtt.tsecr;
	} else if (dwell_is_late_view(step, waiting.time_ns)) {
		mine->tsecr = packet->rtt.tsecr;
	} else if (!dwell_after(waiting.ack, packet->ack)) {
		mine->tsecr = packet->rtt.tsecr;
		dwell_stamp_take(step, &waiting, DWELL_TCP_TIMESTAMP,
				 flow->own[other] & DWELL_OWN_TS_SYN ? DWELL_SAMPLE_HANDSHAKE : 0);
	}
}

/* Handles the packet's own TSval. */
static __always_inline void dwell_tcp_timestamp_data(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, syn = packet->tcp_flags & DWELL_TCP_SYN;
	struct dwell_tcp_ts_state *mine = &flow->ts[direction];
	__u8 own = flow->own[direction];

	if (syn ? !step->config->include_handshake : !packet->payload_bytes && !step->config->stamp_acks)
		return;
	if (own & DWELL_OWN_TSVAL && !dwell_after(packet->rtt.tsval, mine->tsval))
		return;
	own = (own & ~DWELL_OWN_TS_SYN) | DWELL_OWN_TSVAL | (syn ? DWELL_OWN_TS_SYN : 0);
	mine->tsval = packet->rtt.tsval;
	if (dwell_may_stamp(step)) {
		flow->stamped[direction] = packet->rtt.tsval;
		own |= DWELL_OWN_STAMPED;
		dwell_stamp_put(step, DWELL_TCP_TIMESTAMP, packet->rtt.tsval,
				packet->seq + (syn || packet->payload_bytes));
	}
	if (own != flow->own[direction])
		flow->own[direction] = own;
}

#endif
