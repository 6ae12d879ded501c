/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* dns: query and response over UDP port 53 by transaction, question and
 * 5-tuple (RFC 1035 section 4.1, RFC 5452 section 9.1). A query that is sent
 * again within a minute is answered from its first transmission.
 */
#ifndef DWELL_DNS_H
#define DWELL_DNS_H

#include "step.h"

static __always_inline void dwell_dns(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;

	if (!packet->is_answer) {
		flow->spent = 0;
		if (dwell_may_stamp(step))
			dwell_stamp_put(
				step,
				dwell_stamp_hash(packet, DWELL_DNS, direction, packet->dns_hash), 0,
				1);
		return;
	}
	__u64 hash = dwell_stamp_hash(packet, DWELL_DNS, !direction, packet->dns_hash);
	struct dwell_stamp *stamp = dwell_stamp_at(step, hash);

	if (stamp && dwell_stamp_holds(stamp, hash)) {
		dwell_stamp_take(step, stamp, DWELL_DNS, 0);
		flow->spent = 1;
	}
}

#endif
