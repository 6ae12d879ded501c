/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet as the balancer reads it: by its outermost IP header, which follows the Ethernet header at once. A frame
 * with a VLAN tag passes.
 */
#ifndef DWELL_LB_PARSE_H
#define DWELL_LB_PARSE_H

#include "lb/network.h"
#include "lb/balance_types.h"
#include "parse/transport.h"

#define DWELL_IP_OFFSET sizeof(struct dwell_ethernet)
/* Most IPv6 extension headers that are skipped. */
#define DWELL_EXTENSIONS_MAX 4

enum dwell_reading {
	DWELL_READ_PLAIN,   /* TCP or UDP, with its key */
	DWELL_READ_UNUSUAL, /* the fast path cannot read it */
	DWELL_READ_OTHER,   /* a protocol that is not balanced */
	DWELL_READ_NOT_IP,
	DWELL_READ_PING,
	DWELL_READ_QUOTE, /* an ICMP error; the key is that of the quoted packet */
	/* for these the key has only addresses */
	DWELL_READ_FRAGMENT,
	DWELL_READ_MALFORMED,
};

/* What the balancer read, and the offset of the transport, which few need. */
#define DWELL_READING(reading, l4_offset) ((__u32)(reading) | (__u32)(l4_offset) << 8)
#define dwell_reading_of(r) ((r)&0xff)
#define dwell_reading_l4(r) ((r) >> 8)

static __always_inline struct dwell_address dwell_address_v4(__u32 address)
{
	struct dwell_address wide = {0, (__u64)address << 32 | 0xffff0000};

	return wide;
}

/* Returns an address's bit in struct dwell_vip_filter. */
static __always_inline __u32 dwell_vip_filter_bit(const struct dwell_address *address)
{
	__u64 word = address->high ^ address->low;

	return ((__u32)(word ^ word >> 32) * 0x9e3779b1) >> 16;
}

/* Returns the VIP that a packet is sent to: only clients send packets here. */
static __always_inline const struct dwell_address *dwell_packet_vip(const struct dwell_packet *packet)
{
	return packet->direction & 1 ? &packet->key.a : &packet->key.b;
}

static __always_inline __u16 dwell_packet_vip_port(const struct dwell_packet *packet)
{
	return packet->direction & 1 ? packet->key.a_port : packet->key.b_port;
}

static __always_inline void dwell_lb_parse_start(struct dwell_packet *packet, __u8 proto, __u32 ip_bytes,
						 __u32 payload_bytes)
{
	packet->proto = proto;
	packet->ip_bytes = ip_bytes;
	packet->payload_bytes = payload_bytes;
	packet->kind = DWELL_KIND_OTHER;
	packet->key_kind = DWELL_KEY_5TUPLE;
	packet->may_open = 1;
	packet->tcp_flags = 0;
}

/* Reads the transport of a packet whose payload_bytes is what IP carries. Sets the key. */
static __always_inline __u32 dwell_lb_parse_transport(const void *data, const void *end, __u32 l4_offset,
						      struct dwell_address src, struct dwell_address dst,
						      struct dwell_packet *packet)
{
	struct dwell_transport transport;
	__u32 result;

	if (packet->proto == DWELL_PROTO_TCP) {
		result = dwell_read_tcp(data, end, l4_offset, packet->payload_bytes, packet, &transport);
	} else {
		result = dwell_read_udp(data, end, l4_offset, packet->payload_bytes, !dwell_is_v4(&src), packet,
					&transport);
		packet->seq = 0;
		packet->ack = 0;
	}
	if (result != DWELL_FRAME_OK)
		return DWELL_READ_MALFORMED;
	dwell_set_key(packet, &src, &dst, transport.src_port, transport.dst_port);
	return DWELL_READ_PLAIN;
}

/* Reads the common case: TCP or UDP directly behind an IP header without options. Sets the key unless it returns
 * DWELL_READ_UNUSUAL or DWELL_READ_NOT_IP.
 */
static __always_inline __u32 dwell_lb_parse(const void *data, const void *end, struct dwell_packet *packet)
{
	DWELL_PEEK(struct dwell_ethernet, eth, 0, DWELL_READ_NOT_IP);
	__u32 room = packet->wire_bytes - DWELL_IP_OFFSET, bytes;
	struct dwell_address src, dst;

	if (eth->type == DWELL_ETH_IPV4) {
		DWELL_PEEK(struct dwell_ipv4, ip, DWELL_IP_OFFSET, DWELL_READ_UNUSUAL);
		bytes = dwell_ntohs(ip->total_length);
		if (ip->version_length != 0x45 || ip->fragment & 0xff3f || bytes > room || bytes < sizeof(*ip) ||
		    (ip->proto != DWELL_PROTO_TCP && ip->proto != DWELL_PROTO_UDP))
			return DWELL_READ_UNUSUAL;
		src = dwell_address_v4(ip->src);
		dst = dwell_address_v4(ip->dst);
		dwell_lb_parse_start(packet, ip->proto, bytes, bytes - sizeof(*ip));
		if (dwell_lb_parse_transport(data, end, DWELL_IP_OFFSET + sizeof(*ip), src, dst, packet) !=
		    DWELL_READ_PLAIN)
			return DWELL_READ_UNUSUAL;
		return DWELL_READ_PLAIN;
	}
	if (eth->type == DWELL_ETH_IPV6) {
		DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, DWELL_READ_UNUSUAL);
		bytes = dwell_ntohs(ip6->payload_length) + sizeof(*ip6);
		if ((ip6->version_class_flow & 0xf0) != 0x60 || bytes > room ||
		    (ip6->next != DWELL_PROTO_TCP && ip6->next != DWELL_PROTO_UDP))
			return DWELL_READ_UNUSUAL;
		src.high = ip6->src_high;
		src.low = ip6->src_low;
		dst.high = ip6->dst_high;
		dst.low = ip6->dst_low;
		dwell_lb_parse_start(packet, ip6->next, bytes, bytes - sizeof(*ip6));
		if (dwell_lb_parse_transport(data, end, DWELL_IP_OFFSET + sizeof(*ip6), src, dst, packet) !=
		    DWELL_READ_PLAIN)
			return DWELL_READ_UNUSUAL;
		return DWELL_READ_PLAIN;
	}
	return DWELL_READ_NOT_IP;
}

/* Skips extension headers. Returns offset and protocol of the transport, packed; DWELL_PROTO_FRAGMENT for a fragment, 0
 * if the transport cannot be found.
 */
static __always_inline __u32 dwell_lb_parse_extensions(const void *data, const void *end)
{
	__u32 at = DWELL_IP_OFFSET + sizeof(struct dwell_ipv6), next;

	DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, 0);
	next = ip6->next;
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (int i = 0; i <= DWELL_EXTENSIONS_MAX; i++) {
		DWELL_OPAQUE(at);
		if (at > 3 * DWELL_MAX_OFFSET)
			return 0;
		if (next != DWELL_PROTO_HOP_BY_HOP && next != DWELL_PROTO_ROUTING && next != DWELL_PROTO_DEST_OPTIONS &&
		    next != DWELL_PROTO_FRAGMENT && next != DWELL_PROTO_MOBILITY && next != DWELL_PROTO_AH)
			return at << 8 | next;
		DWELL_PEEK(struct dwell_ipv6_fragment, option, at, 0);
		if (next == DWELL_PROTO_FRAGMENT) {
			if (option->offset_more & 0xf9ff)
				return at << 8 | DWELL_PROTO_FRAGMENT;
			at += sizeof(*option);
		} else if (next == DWELL_PROTO_AH) {
			at += ((option->reserved & 0xff) + 2) * 4;
		} else {
			at += ((option->reserved & 0xff) + 1) * 8;
		}
		next = option->next;
	}
	return 0;
}

/* Reads the addresses and ports that an ICMP error quotes. The VIP has sent the quoted packet, so that the connection
 * is the same, seen from the other end. A quote of another sender belongs to no connection here.
 */
static __always_inline __u32 dwell_lb_parse_quote(const void *data, const void *end, __u32 at,
						  const struct dwell_address *vip, struct dwell_packet *packet)
{
	struct dwell_address src, dst;
	__u32 proto, l4;

	DWELL_OPAQUE(at);
	if (at > 3 * DWELL_MAX_OFFSET)
		return DWELL_READ_MALFORMED;
	DWELL_PEEK(struct dwell_ipv4, ip, at, DWELL_READ_MALFORMED);
	if (dwell_is_v4(vip)) {
		__u32 header = (ip->version_length & 0xf) * 4;

		if (ip->version_length >> 4 != 4 || header < sizeof(*ip))
			return DWELL_READ_MALFORMED;
		if (ip->fragment & 0xff1f) /* not the first fragment: it has no ports */
			return DWELL_READ_FRAGMENT;
		src = dwell_address_v4(ip->src);
		dst = dwell_address_v4(ip->dst);
		proto = ip->proto;
		l4 = at + header;
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, at, DWELL_READ_MALFORMED);
		if ((ip6->version_class_flow & 0xf0) != 0x60)
			return DWELL_READ_MALFORMED;
		src.high = ip6->src_high;
		src.low = ip6->src_low;
		dst.high = ip6->dst_high;
		dst.low = ip6->dst_low;
		proto = ip6->next;
		l4 = at + sizeof(*ip6);
	}
	if (src.high != vip->high || src.low != vip->low)
		return DWELL_READ_MALFORMED;
	if (proto != DWELL_PROTO_TCP && proto != DWELL_PROTO_UDP)
		return DWELL_READ_OTHER;
	DWELL_OPAQUE(l4);
	if (l4 > 4 * DWELL_MAX_OFFSET)
		return DWELL_READ_MALFORMED;
	DWELL_PEEK(__u32, ports, l4, DWELL_READ_MALFORMED);
	packet->proto = proto;
	packet->may_open = 0;
	/* as in the client's packets: towards the VIP */
	dwell_set_key(packet, &dst, &src, dwell_ntohs(*ports >> 16), dwell_ntohs((__u16)*ports));
	return DWELL_READ_QUOTE;
}

static __always_inline __u32 dwell_lb_parse_icmp(const void *data, const void *end, __u32 l4_offset,
						 const struct dwell_address *vip, struct dwell_packet *packet)
{
	int is_v4 = dwell_is_v4(vip);

	DWELL_PEEK(struct dwell_icmp_echo, icmp, l4_offset, DWELL_READ_MALFORMED);
	if (packet->payload_bytes < sizeof(*icmp))
		return DWELL_READ_MALFORMED;
	if (icmp->type == (is_v4 ? 8 : 128))
		return DWELL_READ_PING;
	/* unreachable, time exceeded, parameter problem; for IPv6 unreachable to parameter problem */
	if (is_v4 ? icmp->type == 3 || icmp->type == 11 || icmp->type == 12 : icmp->type >= 1 && icmp->type <= 4)
		return dwell_lb_parse_quote(data, end, l4_offset + sizeof(*icmp), vip, packet);
	return DWELL_READ_OTHER;
}

/* Reads any IP packet that the fast path cannot. Returns a DWELL_READING(). */
static __always_inline __u32 dwell_lb_parse_unusual(const void *data, const void *end, struct dwell_packet *packet)
{
	DWELL_PEEK(struct dwell_ethernet, eth, 0, DWELL_READ_NOT_IP);
	__u32 room = packet->wire_bytes - DWELL_IP_OFFSET, bytes, proto, l4, reading;
	struct dwell_address src, dst;

	if (eth->type == DWELL_ETH_IPV4) {
		DWELL_PEEK(struct dwell_ipv4, ip, DWELL_IP_OFFSET, DWELL_READ_NOT_IP);
		__u32 header = (ip->version_length & 0xf) * 4;

		bytes = dwell_ntohs(ip->total_length);
		src = dwell_address_v4(ip->src);
		dst = dwell_address_v4(ip->dst);
		proto = ip->proto;
		l4 = DWELL_IP_OFFSET + header;
		if (ip->version_length >> 4 != 4 || header < sizeof(*ip) || bytes < header)
			proto = 0;
		else if (ip->fragment & 0xff3f)
			proto = DWELL_PROTO_FRAGMENT;
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, DWELL_READ_NOT_IP);
		bytes = dwell_ntohs(ip6->payload_length) + sizeof(*ip6);
		src.high = ip6->src_high;
		src.low = ip6->src_low;
		dst.high = ip6->dst_high;
		dst.low = ip6->dst_low;
		l4 = dwell_lb_parse_extensions(data, end);
		proto = l4 & 0xff;
		l4 >>= 8;
		if ((ip6->version_class_flow & 0xf0) != 0x60 || !l4)
			proto = 0;
	}
	dwell_lb_parse_start(packet, proto, bytes, 0);
	dwell_set_key(packet, &src, &dst, 0, 0);
	/* hop-by-hop options were skipped as an extension, so that 0 means no protocol */
	if (!proto || bytes > room || l4 > DWELL_IP_OFFSET + bytes)
		return DWELL_READ_MALFORMED;
	if (proto == DWELL_PROTO_FRAGMENT)
		return DWELL_READ_FRAGMENT;
	packet->payload_bytes = DWELL_IP_OFFSET + bytes - l4;
	DWELL_OPAQUE(l4);
	if (l4 > 4 * DWELL_MAX_OFFSET)
		return DWELL_READ_MALFORMED;
	if (proto == DWELL_PROTO_TCP || proto == DWELL_PROTO_UDP)
		reading = dwell_lb_parse_transport(data, end, l4, src, dst, packet);
	else if (proto == (dwell_is_v4(&dst) ? DWELL_PROTO_ICMP : DWELL_PROTO_ICMPV6))
		reading = dwell_lb_parse_icmp(data, end, l4, &dst, packet);
	else
		reading = DWELL_READ_OTHER;
	return DWELL_READING(reading, l4);
}

#endif
