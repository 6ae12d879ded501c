/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* dns: query and response over UDP port 53, matched by transaction, question and 5-tuple (RFC 1035 section 4.1, RFC
 * 5452 section 9.1). A query that is repeated within DWELL_DNS_TIMEOUT_NS counts from its first transmission.
 */
#ifndef DWELL_RTT_DNS_H
#define DWELL_RTT_DNS_H

#include "rtt/step.h"

#define DWELL_DNS_TIMEOUT_NS 60000000000ULL

static __always_inline void dwell_dns(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;
	struct dwell_pending_stamp waiting;

	if (!packet->rtt.is_answer) {
		flow->head.flags &= ~DWELL_HEAD_SPENT;
		waiting = dwell_stamp_find(step, DWELL_DNS, direction, packet->rtt.dns_hash);
		if (waiting.stamp &&
		    dwell_stamp_age(waiting.time_ns, dwell_now(step->table->clock)) < DWELL_DNS_TIMEOUT_NS)
			return;
		if (dwell_may_stamp(step))
			dwell_stamp_put(step, DWELL_DNS, packet->rtt.dns_hash, 0);
		return;
	}
	waiting = dwell_stamp_find(step, DWELL_DNS, !direction, packet->rtt.dns_hash);
	if (waiting.stamp) {
		dwell_stamp_take(step, &waiting, DWELL_DNS, 0);
		flow->head.flags |= DWELL_HEAD_SPENT;
	}
}

#endif
