/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tcp-timestamp: the first packet that carries a new TSval, and the first
 * packet back that echoes it (RFC 7323 section 3).
 *
 * The echo must also acknowledge something of the stamped packet. Without
 * that rule, data that shares its TSval with an earlier packet (a pure ACK, or
 * data before the capture began) could be answered by that packet's echo, and
 * the round trip would come out too short.
 */
#ifndef DWELL_TCP_TIMESTAMP_H
#define DWELL_TCP_TIMESTAMP_H

#include "step.h"

static __always_inline void dwell_tcp_timestamp(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, syn = packet->tcp_flags & DWELL_TCP_SYN;
	struct dwell_tcp_ts_state *mine = &flow->ts[direction];

	/* 0 is also what mine->tsecr starts with */
	if (packet->tcp_flags & DWELL_TCP_ACK && (packet->tsecr != mine->tsecr || !packet->tsecr)) {
		__u64 hash =
			dwell_stamp_hash(packet, DWELL_TCP_TIMESTAMP, !direction, packet->tsecr);
		struct dwell_stamp *stamp = dwell_stamp_at(step, hash);

		if (!stamp || !dwell_stamp_holds(stamp, hash)) {
			mine->tsecr = packet->tsecr;
		} else if (!dwell_after(stamp->ack, packet->ack)) {
			mine->tsecr = packet->tsecr;
			dwell_stamp_take(step, stamp, DWELL_TCP_TIMESTAMP,
					 flow->ts_known & DWELL_TS_SYN << !direction
						 ? DWELL_SAMPLE_HANDSHAKE
						 : 0);
		}
	}

	if (syn ? !step->config->include_handshake
		: !packet->payload_bytes && !step->config->stamp_acks)
		return;
	if (flow->ts_known & DWELL_TS_KNOWN << direction &&
	    !dwell_after(packet->tsval, mine->tsval))
		return;
	flow->ts_known &= ~(DWELL_TS_SYN << direction);
	flow->ts_known |= (syn ? DWELL_TS_KNOWN | DWELL_TS_SYN : DWELL_TS_KNOWN) << direction;
	mine->tsval = packet->tsval;
	if (dwell_may_stamp(step)) {
		__u64 hash =
			dwell_stamp_hash(packet, DWELL_TCP_TIMESTAMP, direction, packet->tsval);

		dwell_stamp_put(step, hash, packet->seq + (syn || packet->payload_bytes), 0);
	}
}

#endif
