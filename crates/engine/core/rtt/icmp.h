/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* icmp, icmpv6: echo request and reply, matched by identifier (part of the flow's key) and sequence number (RFC 792,
 * RFC 4443 section 4). A duplicated request keeps the time of the first; a sequence number that comes round again takes
 * the new time.
 */
#ifndef DWELL_RTT_ICMP_H
#define DWELL_RTT_ICMP_H

#include "rtt/step.h"

static __always_inline void dwell_icmp(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_cold *cold = dwell_cold_of(step);
	__u32 direction = packet->direction & 1;
	__u32 method = packet->proto == DWELL_PROTO_ICMP ? DWELL_ICMP : DWELL_ICMPV6;
	struct dwell_pending_stamp waiting;
	struct dwell_icmp_state *mine;
	int repeated;

	if (!cold)
		return;
	mine = &cold->side[direction].icmp;
	if (packet->rtt.is_answer) {
		waiting = dwell_stamp_find(step, method, !direction, packet->seq);
		if (waiting.stamp)
			dwell_stamp_take(step, &waiting, method, 0);
		return;
	}
	repeated = mine->known && mine->seq == packet->seq;
	mine->seq = packet->seq;
	mine->known = 1;
	if (repeated)
		return;
	if (dwell_may_stamp(step)) {
		dwell_stamp_put(step, method, packet->seq, 0);
	} else {
		/* the reply must not match a request of an earlier round */
		waiting = dwell_stamp_find(step, method, direction, packet->seq);
		if (waiting.stamp)
			waiting.stamp->check = 0;
	}
}

#endif
