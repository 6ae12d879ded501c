/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* icmp, icmpv6: echo request and reply, matched by identifier (part of the flow's key) and sequence number (RFC 792,
 * RFC 4443 section 4). A copy of a request changes nothing. A request that repeats the number of the last one before
 * that was answered makes it unclear which of the two the next reply answers, so that reply gives no sample. Otherwise
 * a number that recurs is a new request.
 */
#ifndef DWELL_RTT_ICMP_H
#define DWELL_RTT_ICMP_H

#include "rtt/step.h"

/* Requests of the same number that are closer than this are copies of one packet: a bridge or loopback shows it twice.
 */
#define DWELL_ICMP_COPY_NS 1000000ULL

static __always_inline void dwell_icmp(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_matcher *matcher = dwell_matcher_of(step);
	__u32 direction = packet->direction & 1;
	__u32 method = packet->proto == DWELL_PROTO_ICMP ? DWELL_ICMP : DWELL_ICMPV6;
	struct dwell_pending_stamp waiting;
	struct dwell_icmp_state *mine;
	int unclear;

	if (!matcher)
		return;
	mine = &matcher->side[direction].icmp;
	if (packet->rtt.is_answer) {
		waiting = dwell_stamp_find(step, method, !direction, packet->seq);
		if (waiting.stamp && waiting.ack) {
			waiting.stamp->check = 0;
			dwell_count(step, DWELL_REJECT_AMBIGUOUS);
		} else if (waiting.stamp) {
			dwell_stamp_take(step, &waiting, method, 0);
		}
		return;
	}
	waiting = dwell_stamp_find(step, method, direction, packet->seq);
	unclear = waiting.stamp && mine->known && mine->seq == packet->seq;
	if (unclear && dwell_stamp_age(waiting.time_ns, dwell_now(step->table->clock)) < DWELL_ICMP_COPY_NS)
		return;
	mine->seq = packet->seq;
	mine->known = 1;
	if (dwell_may_stamp(step))
		dwell_stamp_put(step, method, packet->seq, unclear);
	else if (waiting.stamp) /* the reply must not match a request of an earlier round */
		waiting.stamp->check = 0;
}

#endif
