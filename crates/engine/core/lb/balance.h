/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell lb`, one packet: what it is (lb/parse.h), where it goes (lb/connection.h, lb/select.h, lb/zero_rtt.h), and what
 * it becomes on its way there (lb/encapsulation.h).
 */
#ifndef DWELL_LB_BALANCE_H
#define DWELL_LB_BALANCE_H

#include "lb/embed.h"
#include "lb/budget.h"
#include "lb/connection.h"
#include "lb/encapsulation.h"
#include "lb/reply.h"
#include "lb/second.h"

/* Returns false for most packets that are not sent to a VIP. */
static __always_inline int dwell_may_be_vip(void *embedder, const struct dwell_packet *packet)
{
	const struct dwell_vip_filter *maybe = dwell_vip_filter_of(embedder);
	__u32 bit = dwell_vip_filter_bit(dwell_packet_vip(packet));

	return maybe && maybe->word[bit / 64 & (DWELL_VIP_FILTER_BITS / 64 - 1)] >> bit % 64 & 1;
}

/* Returns false for most packets that are not sent to a VIP that routes by connection ID. */
static __always_inline int dwell_may_be_zero(void *embedder, const struct dwell_packet *packet)
{
	const struct dwell_zero_state *state = dwell_zero_state_of(embedder);
	__u32 bit = dwell_zero_bit(dwell_packet_vip(packet), dwell_packet_vip_port(packet));

	return state && state->vip_filter[bit / 64 & (DWELL_ZERO_BITS / 64 - 1)] >> bit % 64 & 1;
}

static __always_inline dwell_zero_vip_id dwell_zero_vip_at_port(void *embedder, const struct dwell_packet *packet)
{
	struct dwell_vip_key key = {*dwell_packet_vip(packet), dwell_packet_vip_port(packet), DWELL_PROTO_UDP, {}};
	const struct dwell_vip *vip = dwell_vip_at(embedder, &key);

	return vip && vip->zero_slot ? (__u64)vip->number << 32 | vip->zero_slot : 0;
}

/* Returns true if the packet is sent to an address of a VIP, whatever it carries. */
static __always_inline int dwell_is_vip(void *embedder, const struct dwell_packet *packet)
{
	const struct dwell_address *vip = dwell_packet_vip(packet);

	return !!dwell_vip_of(embedder, vip, dwell_is_v4(vip) ? DWELL_PROTO_ICMP : DWELL_PROTO_ICMPV6, 0);
}

/* Returns the sum of the pseudo-header of a transport that has `l4_bytes`. */
static __always_inline __u64 dwell_pseudo_sum(const struct dwell_packet *packet, __u32 l4_bytes)
{
	__u32 proto = packet->proto;

	/* ::ffff: is 0xffff, which is 0 too */
	return dwell_sum_address(&packet->key.a) + dwell_sum_address(&packet->key.b) + (proto << 8) +
	       dwell_ntohs(l4_bytes);
}

/* Returns true if a packet is a SYN that holds the sum of its pseudo-header in place of a checksum: the sender left the
 * rest to a device that it has not passed. One in 65,536 others looks the same.
 */
static __always_inline int dwell_is_unfinished(const void *data, const void *end, const struct dwell_packet *packet)
{
	__u32 head = sizeof(struct dwell_ipv4);
	__u16 checksum;

	if (packet->kind != DWELL_KIND_TCP || !(packet->tcp_flags & DWELL_TCP_SYN))
		return 0;
	DWELL_PEEK(struct dwell_ipv4, ip, DWELL_IP_OFFSET, 0);
	if (ip->version_length == 0x45) {
		DWELL_PEEK(struct dwell_tcp, tcp, DWELL_IP_OFFSET + head, 0);
		checksum = tcp->checksum;
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, 0);
		head = sizeof(*ip6);
		DWELL_PEEK(struct dwell_tcp, tcp, DWELL_IP_OFFSET + head, 0);
		if (ip->version_length >> 4 != 6 || ip6->next != DWELL_PROTO_TCP)
			return 0;
		checksum = tcp->checksum;
	}
	return checksum == dwell_fold(dwell_pseudo_sum(packet, packet->ip_bytes - head));
}

/* Returns the sum of the inner packet without reading its payload, which the transport's checksum makes up for; 0 if it
 * cannot be known: UDP without a checksum, and behind options.
 */
static __always_inline __u64 dwell_inner_sum(const void *data, const void *end, const struct dwell_packet *packet)
{
	__u32 proto = packet->proto, l4_bytes;
	__u64 sum = 0;

	if (packet->kind != DWELL_KIND_TCP && packet->kind != DWELL_KIND_UDP)
		return 0;
	DWELL_PEEK(struct dwell_ipv4, ip, DWELL_IP_OFFSET, 0);
	if (ip->version_length == 0x45) {
		DWELL_PEEK(struct dwell_udp, udp, DWELL_IP_OFFSET + sizeof(*ip), 0);
		l4_bytes = packet->ip_bytes - sizeof(*ip);
		if (proto == DWELL_PROTO_UDP && (!udp->checksum || dwell_ntohs(udp->length) != l4_bytes))
			return 0;
		/* the header's own sum is 0 */
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, 0);
		DWELL_PEEK(struct dwell_udp, udp, DWELL_IP_OFFSET + sizeof(*ip6), 0);
		if (ip->version_length >> 4 != 6 || ip6->next != proto)
			return 0;
		l4_bytes = packet->ip_bytes - sizeof(*ip6);
		if (proto == DWELL_PROTO_UDP && dwell_ntohs(udp->length) != l4_bytes)
			return 0;
		DWELL_SUM(sum, ip6, sizeof(*ip6));
	}
	sum += (__u16)~dwell_fold(dwell_pseudo_sum(packet, l4_bytes));
	return sum ? sum : 0xffff;
}

static __always_inline __u32 dwell_balance_drop(struct dwell_decision *decision, __u32 reason)
{
	decision->reason = reason;
	decision->size = 0;
	decision->interface = 0;
	return decision->verdict = DWELL_VERDICT_DROP;
}

/* Returns true if a packet may be answered by ICMP: its sender is a single host (RFC 1122 section 3.2.2), and the budget
 * of this enum dwell_budget_kind has an answer left.
 */
static __always_inline int dwell_may_answer(void *embedder, const struct dwell_packet *packet, __u32 kind, int dry_run)
{
	struct dwell_budget *budget = dwell_budget_at(embedder, kind);

	return budget && !dwell_is_no_host(packet->direction & 1 ? &packet->key.b : &packet->key.a) &&
	       dwell_budget_spend(budget, dwell_zero_clock_s(embedder), DWELL_ANSWERS_PER_S, dry_run);
}

/* Sends the packet to decision->real, from which it may go on to the others, if there are any. Returns an enum
 * dwell_verdict.
 */
static __always_inline __u32 dwell_balance_send_with(DWELL_FRAME *frame, void *embedder,
						     const struct dwell_packet *packet, __u32 ingress, int dry_run,
						     const struct dwell_chances *others,
						     struct dwell_decision *decision)
{
	const struct dwell_balance_config *config = dwell_balance_config_of(embedder);
	const struct dwell_real *real = dwell_real_at(embedder, decision->real);
	struct dwell_inner inner = {.bytes = packet->ip_bytes, .spread = packet->hash >> 16};
	__u32 own_bytes, outer_bytes, version;
	struct dwell_ipv4 *ip;
	void *data;

	if (!real || !real->interface || real->forward == DWELL_FORWARD_NONE)
		return dwell_balance_drop(decision, DWELL_REASON_NO_ROUTE);
	own_bytes = dwell_encapsulation_bytes(real);
	outer_bytes = own_bytes + (others ? others->bytes : 0);
	data = dwell_frame_data(frame);
	/* what came in by a device goes out by it as it is: the network stack cuts segments apart again that it has joined */
	if (dwell_unlikely(real->mtu && packet->ip_bytes + outer_bytes > real->mtu) &&
	    (outer_bytes || real->interface != ingress)) {
		ip = data + DWELL_IP_OFFSET;
		if ((const void *)(ip + 1) > dwell_frame_end(frame))
			return dwell_balance_drop(decision, DWELL_REASON_MALFORMED);
		version = ip->version_length >> 4;
		/* an error is not answered by an error (RFC 1122 section 3.2.2) */
		if (decision->reason == DWELL_REASON_QUOTED)
			return dwell_balance_drop(decision, DWELL_REASON_TOO_BIG);
		if (!dwell_may_answer(embedder, packet, DWELL_BUDGET_TOO_BIG, dry_run))
			return dwell_balance_drop(decision, DWELL_REASON_UNANSWERED);
		if (real->mtu <= outer_bytes || !dwell_balance_too_big(frame, version, real->mtu - outer_bytes))
			return dwell_balance_drop(decision, DWELL_REASON_NO_ROOM);
		decision->reason = DWELL_REASON_TOO_BIG;
		decision->size = version == 4 ? DWELL_TOO_BIG_4 : DWELL_TOO_BIG_6;
		decision->interface = ingress;
		return decision->verdict = DWELL_VERDICT_SEND;
	}
	if (!dry_run && dwell_is_unfinished(data, dwell_frame_end(frame), packet))
		dwell_unfinished_count(embedder);
	if (!dwell_decrement_ttl(data, dwell_frame_end(frame), &inner))
		return dwell_balance_drop(decision, DWELL_REASON_TTL);
	if (others) {
		if (!dwell_wrap_all(frame, embedder, others, &inner))
			return dwell_balance_drop(decision, DWELL_REASON_NO_ROOM);
	} else if (real->forward == DWELL_FORWARD_GUE && !dwell_is_v4(&real->address)) {
		inner.checksum = dwell_inner_sum(data, dwell_frame_end(frame), packet);
	}
	if (own_bytes && !dwell_frame_grow(frame, own_bytes))
		return dwell_balance_drop(decision, DWELL_REASON_NO_ROOM);
	if (!dwell_encapsulate(dwell_frame_data(frame), dwell_frame_end(frame), real, &inner, config))
		return dwell_balance_drop(decision, DWELL_REASON_NO_ROOM);
	decision->size = packet->ip_bytes + outer_bytes;
	decision->interface = real->interface;
	return decision->verdict = real->interface == ingress ? DWELL_VERDICT_SEND : DWELL_VERDICT_REDIRECT;
}

static __always_inline __u32 dwell_balance_send(DWELL_FRAME *frame, void *embedder, const struct dwell_packet *packet,
						__u32 ingress, int dry_run, struct dwell_decision *decision)
{
	return dwell_balance_send_with(frame, embedder, packet, ingress, dry_run, 0, decision);
}

static __always_inline __u32 dwell_balance_send_second(DWELL_FRAME *frame, void *embedder,
						       const struct dwell_packet *packet, __u32 ingress, int dry_run,
						       struct dwell_decision *decision)
{
	struct dwell_chances others = {};

	return dwell_balance_send_with(frame, embedder, packet, ingress, dry_run,
				       dwell_balance_chances(embedder, packet, &others) ? &others : 0, decision);
}

static __always_inline void dwell_balance_load(void *embedder, const struct dwell_packet *packet)
{
	struct dwell_load *vip = dwell_vip_load_at(embedder, packet->lb.vip);
	struct dwell_load *real = dwell_real_load_at(embedder, packet->lb.real);

	if (vip) {
		vip->packets++;
		vip->bytes += packet->ip_bytes;
	}
	if (real) {
		real->packets++;
		real->bytes += packet->ip_bytes;
	}
}

/* Handles a packet that neither belongs to a flow nor quotes a packet of one. */
static __always_inline __u32 dwell_balance_unbalanced(DWELL_FRAME *frame, struct dwell_table *table,
						      const struct dwell_packet *packet, __u32 reading, __u32 ingress,
						      int dry_run, struct dwell_decision *decision)
{
	__u32 kind = dwell_reading_of(reading);

	decision->reason = DWELL_REASON_NOT_VIP;
	if (kind == DWELL_READ_NOT_IP)
		decision->reason = DWELL_REASON_NOT_IP;
	else if (kind == DWELL_READ_FRAGMENT && dwell_is_vip(table->embedder, packet))
		return dwell_balance_drop(decision, DWELL_REASON_FRAGMENT);
	else if (kind == DWELL_READ_MALFORMED && dwell_is_vip(table->embedder, packet))
		return dwell_balance_drop(decision, DWELL_REASON_MALFORMED);
	else if (kind == DWELL_READ_PING && dwell_is_vip(table->embedder, packet)) {
		if (!dwell_may_answer(table->embedder, packet, DWELL_BUDGET_PING, dry_run))
			return dwell_balance_drop(decision, DWELL_REASON_UNANSWERED);
		if (!dwell_balance_ping(frame, dwell_reading_l4(reading)))
			return dwell_balance_drop(decision, DWELL_REASON_MALFORMED);
		decision->reason = DWELL_REASON_PING;
		decision->size = packet->ip_bytes;
		decision->interface = ingress;
		return decision->verdict = DWELL_VERDICT_SEND;
	}
	return decision->verdict = DWELL_VERDICT_PASS;
}

/* Returns the offset of the transport, which the fast path leaves out. */
static __always_inline __u32 dwell_balance_l4(const struct dwell_packet *packet, __u32 reading)
{
	__u32 l4 = dwell_reading_l4(reading);

	return l4 ? l4
		  : DWELL_IP_OFFSET + (dwell_is_v4(dwell_packet_vip(packet)) ? sizeof(struct dwell_ipv4)
									     : sizeof(struct dwell_ipv6));
}

/* Routes a packet that may be QUIC by its connection ID. Returns the reason, DWELL_REASON_FLOW if it is routed as any
 * UDP.
 */
static __always_inline __u32 dwell_balance_quic(DWELL_FRAME *frame, struct dwell_table *table,
						struct dwell_packet *packet, __u32 reading, int dry_run)
{
	if (packet->kind != DWELL_KIND_UDP || !dwell_may_be_zero(table->embedder, packet))
		return DWELL_REASON_FLOW;
	return dwell_balance_zero_route(frame, table->embedder, packet, dwell_balance_l4(packet, reading), dry_run);
}

/* Balances one packet. Returns an enum dwell_verdict and fills the decision, which the caller has zeroed; the frame is
 * what goes out. With `dry_run` no table and no counter changes. The caller has set `wire_bytes` and `segments`.
 */
static __always_inline __u32 dwell_balance(DWELL_FRAME *frame, struct dwell_table *table, struct dwell_packet *packet,
					   __u32 ingress, int dry_run, struct dwell_decision *decision)
{
	__u32 reading = dwell_lb_parse(dwell_frame_data(frame), dwell_frame_end(frame), packet);

	if (dwell_unlikely(reading == DWELL_READ_UNUSUAL))
		reading = dwell_balance_parse_unusual(frame, packet);
	if (dwell_unlikely(dwell_reading_of(reading) != DWELL_READ_PLAIN &&
			   dwell_reading_of(reading) != DWELL_READ_QUOTE))
		return dwell_balance_unbalanced(frame, table, packet, reading, ingress, dry_run, decision);
	if (!dwell_may_be_vip(table->embedder, packet)) {
		decision->reason = DWELL_REASON_NOT_VIP;
		return decision->verdict = DWELL_VERDICT_PASS;
	}
	packet->hash = dwell_key_hash(&packet->key, packet->proto, table->config->seed);
	if (dwell_unlikely(dwell_reading_of(reading) != DWELL_READ_PLAIN))
		decision->reason = dwell_balance_quoted(table, packet);
	else
		decision->reason = dwell_balance_quic(frame, table, packet, reading, dry_run);
	if (decision->reason == DWELL_REASON_FLOW)
		decision->reason = dwell_balance_flow(frame, table, packet, dwell_balance_l4(packet, reading), dry_run);
	decision->real = packet->lb.real;
	decision->vip = packet->lb.vip;
	if (dwell_unlikely(decision->reason >= DWELL_REASON_SECOND)) {
		if (decision->reason != DWELL_REASON_SECOND)
			return dwell_balance_drop(decision, decision->reason);
		dwell_balance_forward_second(frame, table, packet, ingress, dry_run, decision);
		if (!dry_run && decision->verdict != DWELL_VERDICT_DROP)
			dwell_balance_load(table->embedder, packet);
		return decision->verdict;
	}
	if (!packet->lb.vip)
		return decision->verdict = DWELL_VERDICT_PASS;
	if (!packet->lb.real)
		return dwell_balance_drop(decision, DWELL_REASON_NO_BACKEND);
	dwell_balance_forward(frame, table, packet, ingress, dry_run, decision);
	if (!dry_run && decision->verdict != DWELL_VERDICT_DROP)
		dwell_balance_load(table->embedder, packet);
	return decision->verdict;
}

/* Turns a packet that is too big into an ICMP error that names the largest size. */
static __always_inline int dwell_too_big(DWELL_FRAME *frame, __u32 version, __u32 mtu)
{
	const int head_4 = sizeof(struct dwell_ipv4) + sizeof(struct dwell_icmp_error);
	const int head_6 = sizeof(struct dwell_ipv6) + sizeof(struct dwell_icmp_error);

	if (version == 4)
		return dwell_frame_cut(frame, DWELL_IP_OFFSET + DWELL_QUOTE_4) && dwell_frame_grow(frame, head_4) &&
		       dwell_too_big_4_write(dwell_frame_data(frame), dwell_frame_end(frame), mtu);
	return dwell_frame_cut(frame, DWELL_IP_OFFSET + DWELL_QUOTE_6) && dwell_frame_grow(frame, head_6) &&
	       dwell_too_big_6_write(dwell_frame_data(frame), dwell_frame_end(frame), mtu);
}

/* Returns true if the connection had a packet recently, and its client has not ended it. */
static __always_inline int dwell_is_active(struct dwell_table *table, const struct dwell_slot *slot)
{
	return !slot->head.close_reason && !(slot->head.flags & DWELL_HEAD_ENDED) &&
	       dwell_is_recent(table, dwell_now_coarse(table->clock) - slot->head.seen);
}

#endif
