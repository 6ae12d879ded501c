/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A backend's end of the balancer's tunnel: unwraps packets that are addressed to this host, if a listed sender sends
 * them and the inner packet is for a listed VIP. The outer UDP checksum is ignored, as the inner packet has its own.
 *
 * A packet with further outer headers inside is one with a second chance (lb/second.h): it is kept if its connection is
 * here, and otherwise sent on to the next backend that it names, if that is listed.
 */
#ifndef DWELL_LB_DECAP_H
#define DWELL_LB_DECAP_H

#include "lb/decap_embed.h"
#include "lb/encapsulation.h"
#include "lb/reply.h"

#define DWELL_ECN_MASK 3
#define DWELL_ECN_ECT0 2
#define DWELL_ECN_ECT1 1
#define DWELL_ECN_CE 3

/* Returns the inner packet's ECN from both headers (RFC 6040 section 4.2); ~0: it must be dropped. */
static __always_inline __u32 dwell_ecn_out(__u32 outer, __u32 inner)
{
	if (outer == DWELL_ECN_CE)
		return inner ? DWELL_ECN_CE : ~0U;
	if (outer == DWELL_ECN_ECT1 && inner == DWELL_ECN_ECT0)
		return DWELL_ECN_ECT1;
	return inner;
}

struct dwell_tunnel {
	__u32 bytes;  /* bytes of outer headers; 0: not for this host */
	__u32 inside; /* IP version of the inner packet; 0: as its first byte says */
	__u32 room;   /* bytes of IP that the tunnel carries */
	__u32 ecn;    /* of the outer header */
	__u32 kind;   /* enum dwell_decap */
	struct dwell_address src, dst;
};

/* Returns true if a list has the address, whose longest prefix there is given as lb/decap_embed.h says. An IPv6 prefix
 * that contains ::ffff:0:0/96, such as ::/0, is not one of IPv4.
 */
static __always_inline int dwell_is_listed(const struct dwell_address *address, __u32 bits)
{
	return dwell_is_v4(address) ? bits > 96 : !!bits;
}

/* Returns true if a packet with this enum dwell_decap goes no further. */
static __always_inline int dwell_decap_drops(__u32 decap)
{
	return decap >= DWELL_DECAP_CONGESTED;
}

/* Recognizes IP in IP, and UDP to the port of GUE. */
static __always_inline void dwell_tunnel_of(const void *data, const void *end, __u32 at, __u32 proto, __u32 room,
					    __u16 gue_port, struct dwell_tunnel *tunnel)
{
	const struct dwell_udp *udp = data + at;

	tunnel->kind = DWELL_DECAP_IPIP;
	tunnel->room = room;
	tunnel->bytes = at - DWELL_IP_OFFSET;
	if (proto == DWELL_PROTO_IPV4) {
		tunnel->inside = 4;
	} else if (proto == DWELL_PROTO_IPV6) {
		tunnel->inside = 6;
	} else if (proto == DWELL_PROTO_UDP && gue_port && (void *)(udp + 1) <= end &&
		   udp->dst_port == dwell_ntohs(gue_port) && room >= sizeof(*udp)) {
		tunnel->kind = DWELL_DECAP_GUE;
		tunnel->room = room - sizeof(*udp);
		tunnel->bytes += sizeof(*udp);
	} else {
		tunnel->bytes = 0;
	}
}

/* Reads outer headers without options, as balancers write them. */
static __always_inline void dwell_tunnel_read(const void *data, const void *end, void *embedder, __u16 gue_port,
					      struct dwell_tunnel *tunnel)
{
	const struct dwell_ethernet *eth = data;
	const struct dwell_ipv4 *ip = data + DWELL_IP_OFFSET;
	const struct dwell_ipv6 *ip6 = data + DWELL_IP_OFFSET;

	if ((void *)(ip + 1) > end)
		return;
	if (eth->type == DWELL_ETH_IPV4) {
		__u32 bytes = dwell_ntohs(ip->total_length);

		tunnel->src = dwell_address_v4(ip->src);
		tunnel->dst = dwell_address_v4(ip->dst);
		if (ip->version_length != 0x45 || ip->fragment & 0xff3f || bytes < sizeof(*ip) ||
		    !dwell_is_local_address(embedder, &tunnel->dst))
			return;
		tunnel->ecn = ip->tos & DWELL_ECN_MASK;
		dwell_tunnel_of(data, end, DWELL_IP_OFFSET + sizeof(*ip), ip->proto, bytes - sizeof(*ip), gue_port,
				tunnel);
	} else if (eth->type == DWELL_ETH_IPV6 && (void *)(ip6 + 1) <= end) {
		tunnel->src.high = ip6->src_high;
		tunnel->src.low = ip6->src_low;
		tunnel->dst.high = ip6->dst_high;
		tunnel->dst.low = ip6->dst_low;
		if ((ip6->version_class_flow & 0xf0) != 0x60 || !dwell_is_local_address(embedder, &tunnel->dst))
			return;
		tunnel->ecn = ip6->version_class_flow >> 12 & DWELL_ECN_MASK;
		dwell_tunnel_of(data, end, DWELL_IP_OFFSET + sizeof(*ip6), ip6->next, dwell_ntohs(ip6->payload_length),
				gue_port, tunnel);
	}
}

/* Marks the inner packet as the outer one was. Returns false if it must be dropped. */
static __always_inline int dwell_ecn_hand_on(void *data, const void *end, __u32 ecn, __u32 *changed)
{
	struct dwell_ipv4 *ip = data + DWELL_IP_OFFSET;
	__u32 inner, next;
	__u16 before;

	if ((void *)(ip + 1) > end)
		return 0;
	inner = ip->version_length >> 4 == 4 ? ip->tos & DWELL_ECN_MASK : ip->tos >> 4 & DWELL_ECN_MASK;
	next = dwell_ecn_out(ecn, inner);
	if (next == ~0U)
		return 0;
	*changed = next != inner;
	if (!*changed)
		return 1;
	if (ip->version_length >> 4 == 4) {
		before = ip->version_length | (__u16)ip->tos << 8;
		ip->tos = (ip->tos & ~DWELL_ECN_MASK) | next;
		ip->checksum = dwell_checksum_change(ip->checksum, before, ip->version_length | (__u16)ip->tos << 8);
	} else { /* the traffic class begins in the lower half of the first byte */
		ip->tos = (ip->tos & ~(DWELL_ECN_MASK << 4)) | next << 4;
	}
	return 1;
}

/* Returns the EtherType of the inner packet; 0 if it does not fit the tunnel or has another version than it should. */
static __always_inline __u16 dwell_inner_type(const void *data, const void *end, const struct dwell_tunnel *tunnel)
{
	DWELL_PEEK(struct dwell_ipv4, ip, DWELL_IP_OFFSET, 0);
	__u32 version = ip->version_length >> 4;

	if (tunnel->inside && tunnel->inside != version)
		return 0;
	if (version == 4)
		return (ip->version_length & 0xf) >= 5 && dwell_ntohs(ip->total_length) <= tunnel->room ? DWELL_ETH_IPV4
													: 0;
	DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, 0);
	return version == 6 && dwell_ntohs(ip6->payload_length) + sizeof(*ip6) <= tunnel->room ? DWELL_ETH_IPV6 : 0;
}

/* Returns true for an address towards which nothing is unwrapped, whatever is listed. */
static __always_inline int dwell_is_special(const struct dwell_address *address)
{
	return dwell_is_no_host(address) || dwell_is_link_local(address);
}

/* Decides whether the packet of IP at an offset may reach the host, and reads where it is sent to. Returns the enum
 * dwell_decap of a refusal; 0 if it may. IPv4 addresses in IPv6 (::ffff:a.b.c.d) are refused, so that the list means what
 * it says.
 */
static __always_inline __u32 dwell_inner_refused(const void *data, const void *end, void *embedder, __u32 at,
						 struct dwell_address *dst)
{
	DWELL_PEEK(struct dwell_ipv4, ip, at, DWELL_DECAP_MALFORMED);

	if (ip->version_length >> 4 == 4) {
		*dst = dwell_address_v4(ip->dst);
	} else if (ip->version_length >> 4 != 6) {
		return DWELL_DECAP_MALFORMED;
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, at, DWELL_DECAP_MALFORMED);
		dst->high = ip6->dst_high;
		dst->low = ip6->dst_low;
		if (dwell_is_v4(dst))
			return DWELL_DECAP_SPECIAL;
	}
	if (dwell_is_special(dst))
		return DWELL_DECAP_SPECIAL;
	return dwell_is_listed(dst, dwell_decap_vip_bits(embedder, dst)) ? 0 : DWELL_DECAP_NOT_VIP;
}

/* Returns the size of the outer headers at an offset, without options, as balancers write them; 0 if there are none. */
static __always_inline __u32 dwell_outer_bytes(const void *data, const void *end, __u32 at, __u16 gue_port)
{
	DWELL_PEEK(struct dwell_ipv4, ip, at, 0);
	__u32 proto = ip->proto, bytes = sizeof(*ip);

	if (ip->version_length >> 4 == 6) {
		DWELL_PEEK(struct dwell_ipv6, ip6, at, 0);
		proto = ip6->next;
		bytes = sizeof(*ip6);
	} else if (ip->version_length != 0x45 || ip->fragment & 0xff3f) {
		return 0;
	}
	if (proto == DWELL_PROTO_IPV4 || proto == DWELL_PROTO_IPV6)
		return bytes;
	if (proto != DWELL_PROTO_UDP || !gue_port)
		return 0;
	DWELL_PEEK(struct dwell_udp, udp, at + bytes, 0);
	return udp->dst_port == dwell_ntohs(gue_port) ? bytes + sizeof(*udp) : 0;
}

/* The most bytes in front of an inner packet that has DWELL_CHANCES outer headers. */
#define DWELL_MAX_NESTED (DWELL_IP_OFFSET + DWELL_CHANCES * (sizeof(struct dwell_ipv6) + sizeof(struct dwell_udp)))

/* Takes outer headers off a frame, and gives the rest its link header. Returns that, or null if the frame is malformed. */
static __always_inline struct dwell_link *dwell_outer_take_off(DWELL_FRAME *frame, __u32 bytes,
							       const struct dwell_tunnel *tunnel)
{
	struct dwell_link old, *link = dwell_frame_data(frame);

	if ((void *)(link + 1) > dwell_frame_end(frame))
		return 0;
	old = *link;
	if (!dwell_frame_grow(frame, -(int)bytes))
		return 0;
	link = dwell_frame_data(frame);
	if ((void *)(link + 1) > dwell_frame_end(frame))
		return 0;
	*link = old;
	link->type = dwell_inner_type(link, dwell_frame_end(frame), tunnel);
	return link->type ? link : 0;
}

/* Takes off all outer headers of a packet that lies at an offset. Returns an enum dwell_decap. */
static __always_inline __u32 dwell_decap_keep(DWELL_FRAME *frame, __u32 at, struct dwell_tunnel *tunnel)
{
	__u32 bytes = at - DWELL_IP_OFFSET, changed;
	struct dwell_link *link;

	if (tunnel->room < bytes)
		return DWELL_DECAP_MALFORMED;
	tunnel->room -= bytes;
	tunnel->inside = 0;
	link = dwell_outer_take_off(frame, bytes, tunnel);
	if (!link)
		return DWELL_DECAP_MALFORMED;
	return dwell_ecn_hand_on(link, dwell_frame_end(frame), tunnel->ecn, &changed) ? DWELL_DECAP_KEPT
										      : DWELL_DECAP_CONGESTED;
}

/* Returns true if the next outer headers come from a sender that is listed: the host that they are sent on to cannot tell who
 * wrote them.
 */
static __always_inline int dwell_next_is_sent_by_sender(const void *data, const void *end, void *embedder)
{
	struct dwell_address src;
	DWELL_PEEK(struct dwell_ipv4, ip, DWELL_IP_OFFSET, 0);

	if (ip->version_length >> 4 == 4) {
		src = dwell_address_v4(ip->src);
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, DWELL_IP_OFFSET, 0);
		src.high = ip6->src_high;
		src.low = ip6->src_low;
	}
	return dwell_is_listed(&src, dwell_decap_sender_bits(embedder, &src));
}

/* Decides about a packet that is sent to `next`, which is not a VIP. Returns an enum dwell_decap; the interface by which
 * it leaves becomes `*interface` if it is sent on.
 */
static __always_inline __u32 dwell_decap_second(DWELL_FRAME *frame, void *embedder, __u16 gue_port,
						struct dwell_tunnel *tunnel, const struct dwell_address *next,
						__u32 *interface)
{
	const void *data = dwell_frame_data(frame), *end = dwell_frame_end(frame);
	__u32 at = DWELL_IP_OFFSET, refused, changed;
	struct dwell_inner inner = {};
	const struct dwell_real *hop;
	struct dwell_address dst;

	if (!dwell_is_listed(next, dwell_decap_backend_bits(embedder, next)) ||
	    !dwell_next_is_sent_by_sender(data, end, embedder))
		return DWELL_DECAP_NOT_VIP;
	for (int i = 0; i < DWELL_CHANCES; i++) {
		__u32 bytes = dwell_outer_bytes(data, end, at, gue_port);

		if (!bytes)
			break;
		at += bytes;
		DWELL_OPAQUE(at);
		if (at > DWELL_MAX_NESTED)
			return DWELL_DECAP_MALFORMED;
	}
	if (at == DWELL_IP_OFFSET)
		return DWELL_DECAP_NOT_VIP;
	refused = dwell_inner_refused(data, end, embedder, at, &dst);
	if (refused)
		return refused;
	if (dwell_decap_owns(frame, embedder, at))
		return dwell_decap_keep(frame, at, tunnel);
	hop = dwell_decap_hop_to(embedder, next);
	if (!hop || !hop->interface)
		return DWELL_DECAP_NO_ROUTE;
	data = dwell_frame_data(frame);
	end = dwell_frame_end(frame);
	if (data + sizeof(struct dwell_link) > end || !dwell_decrement_ttl((void *)data, end, &inner))
		return DWELL_DECAP_NO_ROUTE;
	if (!dwell_ecn_hand_on((void *)data, end, tunnel->ecn, &changed))
		return DWELL_DECAP_CONGESTED;
	dwell_link_write((void *)data, hop);
	*interface = hop->interface;
	return DWELL_DECAP_SENT_ON;
}

/* Unwraps one packet. Returns an enum dwell_decap; `*interface` becomes the one by which a packet that is sent on
 * leaves.
 */
static __always_inline __u32 dwell_decapsulate(DWELL_FRAME *frame, void *embedder, __u16 gue_port, __u32 *interface)
{
	const void *data = dwell_frame_data(frame), *end = dwell_frame_end(frame);
	struct dwell_tunnel tunnel = {};
	struct dwell_address dst = {};
	__u32 changed = 0, refused;
	struct dwell_link *link;

	dwell_tunnel_read(data, end, embedder, gue_port, &tunnel);
	if (!tunnel.bytes)
		return DWELL_DECAP_OTHER;
	if (!dwell_is_listed(&tunnel.src, dwell_decap_sender_bits(embedder, &tunnel.src)))
		return DWELL_DECAP_SENDER;
	if (tunnel.room > (__u32)(end - data) - DWELL_IP_OFFSET - tunnel.bytes)
		return DWELL_DECAP_MALFORMED;
	link = dwell_outer_take_off(frame, tunnel.bytes, &tunnel);
	if (!link)
		return DWELL_DECAP_MALFORMED;
	refused = dwell_inner_refused(link, dwell_frame_end(frame), embedder, DWELL_IP_OFFSET, &dst);
	if (refused == DWELL_DECAP_NOT_VIP)
		return dwell_decap_second(frame, embedder, gue_port, &tunnel, &dst, interface);
	if (refused)
		return refused;
	if (!dwell_ecn_hand_on(link, dwell_frame_end(frame), tunnel.ecn, &changed))
		return DWELL_DECAP_CONGESTED;
	return changed ? DWELL_DECAP_MARKED : tunnel.kind;
}

#endif
