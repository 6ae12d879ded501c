/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walks to the innermost IP header and its payload, through any nesting of link headers, tags and tunnels. A step
 * covers one header, and BPF verifies each step on its own.
 */
#ifndef DWELL_PARSE_WALK_H
#define DWELL_PARSE_WALK_H

#include "base/base.h"
#include "base/events.h"
#include "base/headers.h"

/* Registry numbers of capture link types; live devices use two of them. */
#define DWELL_LINK_NULL 0
#define DWELL_LINK_ETHERNET 1
#define DWELL_LINK_RAW_BSD 12
#define DWELL_LINK_RAW_OPENBSD 14
#define DWELL_LINK_RAW 101
#define DWELL_LINK_LOOP 108
#define DWELL_LINK_SLL 113
#define DWELL_LINK_IPV4 228
#define DWELL_LINK_IPV6 229
#define DWELL_LINK_SLL2 276

/* Most headers that are walked through. */
#define DWELL_MAX_HOPS 16
#define DWELL_MAX_OFFSET 1024

/* Where the headers are, or the counter that says why they are not: packed so that a BPF function that is verified
 * apart can return it.
 */
typedef __u64 dwell_where;
#define DWELL_WHERE(ip, l4, proto, version)                                                                            \
	((__u64)(ip) | (__u64)(l4) << 16 | (__u64)(proto) << 32 | (__u64)(version) << 40)
#define DWELL_WHERE_ERROR(counter) ((__u64)(counter) << 48)
#define dwell_where_ip(w) ((__u32)(w)&0xffff)
#define dwell_where_l4(w) ((__u32)((w) >> 16) & 0xffff)
#define dwell_where_proto(w) ((__u8)((w) >> 32))
#define dwell_where_version(w) ((__u8)((w) >> 40))
#define dwell_where_error(w) ((__u32)((w) >> 48))

/* True for frames that never carry IP, mostly ARP: two bytes show it. */
#define DWELL_NEVER_IP(type) ((type) == DWELL_ETH_ARP || (type) == DWELL_ETH_LLDP)

/* Returns the interface on which a capture has a packet. One of all interfaces (SLL2) has a packet that is forwarded once for
 * each interface that it crosses, and names that in the header: kept apart, they are not taken for retransmissions.
 */
static __always_inline __u32 dwell_captured_interface(const void *data, __u32 bytes, __u32 link, __u32 interface)
{
	const __u32 *sll2 = data;

	return link == DWELL_LINK_SLL2 && bytes >= 8 ? dwell_ntohl(sll2[1]) : interface;
}

#define DWELL_PEEK(type, name, offset, failure)                                                                        \
	const type *name = (const void *)((const char *)data + (offset));                                              \
	if ((const char *)(name + 1) > (const char *)end)                                                              \
	return failure

/* Returns true if a UDP header at `offset` may carry VXLAN or Geneve. */
static __always_inline int dwell_may_be_overlay(const void *data, const void *end, __u32 offset)
{
	DWELL_PEEK(struct dwell_udp, udp, offset, 0);
	return udp->dst_port == DWELL_PORT_VXLAN || udp->dst_port == DWELL_PORT_VXLAN_LINUX ||
	       udp->dst_port == DWELL_PORT_GENEVE;
}

/* Locates the headers in the common case: no tag, option, extension header or tunnel. Returns 0 otherwise. */
static __always_inline dwell_where dwell_locate_plain(const void *data, const void *end, __u32 link)
{
	__u32 offset = 0;
	__u16 type;

	if (link == DWELL_LINK_ETHERNET) {
		DWELL_PEEK(struct dwell_ethernet, eth, 0, 0);
		type = eth->type;
		offset = sizeof(*eth);
		if (DWELL_NEVER_IP(type))
			return DWELL_WHERE_ERROR(DWELL_SKIP_NOT_IP);
	} else if (link == DWELL_LINK_RAW) {
		DWELL_PEEK(__u8, first, 0, 0);
		type = (*first >> 4) == 4 ? DWELL_ETH_IPV4 : DWELL_ETH_IPV6;
	} else {
		return 0;
	}
	if (type == DWELL_ETH_IPV4) {
		DWELL_PEEK(struct dwell_ipv4, ip, offset, 0);
		if (ip->version_length != 0x45 || ip->fragment & 0xff3f)
			return 0;
		if (ip->proto != DWELL_PROTO_TCP && ip->proto != DWELL_PROTO_UDP && ip->proto != DWELL_PROTO_ICMP)
			return 0;
		if (ip->proto == DWELL_PROTO_UDP && dwell_may_be_overlay(data, end, offset + sizeof(*ip)))
			return 0;
		return DWELL_WHERE(offset, offset + sizeof(*ip), ip->proto, 4);
	}
	if (type == DWELL_ETH_IPV6) {
		DWELL_PEEK(struct dwell_ipv6, ip6, offset, 0);
		if ((ip6->version_class_flow & 0xf0) != 0x60)
			return 0;
		if (ip6->next != DWELL_PROTO_TCP && ip6->next != DWELL_PROTO_UDP && ip6->next != DWELL_PROTO_ICMPV6)
			return 0;
		if (ip6->next == DWELL_PROTO_UDP && dwell_may_be_overlay(data, end, offset + sizeof(*ip6)))
			return 0;
		return DWELL_WHERE(offset, offset + sizeof(*ip6), ip6->next, 6);
	}
	return 0;
}

/* A walk through nested headers, packed as dwell_where is: offset and type of the next header, and the innermost IP
 * header so far.
 */
typedef __u64 dwell_walk;
enum dwell_layer {
	DWELL_LAYER_TYPE,  /* next is an EtherType */
	DWELL_LAYER_PROTO, /* next is an IP protocol */
	DWELL_LAYER_FOUND, /* next is a transport that matchers know */
	DWELL_LAYER_ERROR, /* next is the counter that says why the walk ends */
};
#define DWELL_WALK(layer, next, offset, ip, version)                                                                   \
	((__u64)(offset) | (__u64)(ip) << 16 | (__u64)(next) << 32 | (__u64)(layer) << 48 | (__u64)(version) << 56)
#define DWELL_WALK_ERROR(counter) DWELL_WALK(DWELL_LAYER_ERROR, counter, 0, 0, 0)
#define dwell_walk_offset(w) ((__u32)(w)&0xffff)
#define dwell_walk_ip(w) ((__u32)((w) >> 16) & 0xffff)
#define dwell_walk_next(w) ((__u16)((w) >> 32))
#define dwell_walk_layer(w) ((__u32)((w) >> 48) & 0xff)
#define dwell_walk_version(w) ((__u32)((w) >> 56))

/* Returns the bytes from an IP header to the end of its payload, as the header says; 0 if it leaves that open, as
 * segmentation offload and jumbograms do, or if it is cut off.
 */
static __always_inline __u32 dwell_ip_bytes(const void *data, const void *end, __u32 offset, __u32 version)
{
	if (version == 4) {
		DWELL_PEEK(struct dwell_ipv4, ip4, offset, 0);
		return dwell_ntohs(ip4->total_length);
	}
	DWELL_PEEK(struct dwell_ipv6, ip6, offset, 0);
	return ip6->payload_length ? dwell_ntohs(ip6->payload_length) + sizeof(*ip6) : 0;
}

/* Returns true if the IP packet at `offset` is longer than the one around it, whose header the walk has passed. */
static __always_inline int dwell_walk_overflows(const void *data, const void *end, dwell_walk walk, __u32 version)
{
	__u32 ip = dwell_walk_ip(walk), offset = dwell_walk_offset(walk), outer;

	if (!dwell_walk_version(walk) || ip > DWELL_MAX_OFFSET)
		return 0;
	outer = dwell_ip_bytes(data, end, ip, dwell_walk_version(walk));
	return outer && offset + dwell_ip_bytes(data, end, offset, version) > ip + outer;
}

/* Starts a walk: steps over the link header. */
static __always_inline dwell_walk dwell_walk_link(const void *data, const void *end, __u32 link)
{
	const dwell_walk truncated = DWELL_WALK_ERROR(DWELL_SKIP_TRUNCATED);
	__u32 offset;

	switch (link) {
	case DWELL_LINK_ETHERNET: {
		DWELL_PEEK(struct dwell_ethernet, eth, 0, truncated);
		return DWELL_WALK(DWELL_LAYER_TYPE, eth->type, sizeof(*eth), 0, 0);
	}
	case DWELL_LINK_SLL: {
		DWELL_PEEK(__u16, type, 14, truncated);
		return DWELL_WALK(DWELL_LAYER_TYPE, *type, 16, 0, 0);
	}
	case DWELL_LINK_SLL2: {
		DWELL_PEEK(__u16, type, 0, truncated);
		return DWELL_WALK(DWELL_LAYER_TYPE, *type, 20, 0, 0);
	}
	case DWELL_LINK_NULL:
	case DWELL_LINK_LOOP:
	case DWELL_LINK_RAW_BSD:
	case DWELL_LINK_RAW_OPENBSD:
	case DWELL_LINK_RAW:
	case DWELL_LINK_IPV4:
	case DWELL_LINK_IPV6: {
		/* NULL and LOOP begin with an address family whose number for IPv6 depends on the system: the IP
		 * version shows it as well.
		 */
		offset = link == DWELL_LINK_NULL || link == DWELL_LINK_LOOP ? 4 : 0;
		DWELL_PEEK(__u8, first, offset, truncated);
		if (*first >> 4 == 4)
			return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV4, offset, 0, 0);
		if (*first >> 4 == 6)
			return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV6, offset, 0, 0);
		return DWELL_WALK_ERROR(DWELL_SKIP_NOT_IP);
	}
	}
	return DWELL_WALK_ERROR(DWELL_SKIP_LINK);
}

/* Steps over a header that an EtherType names. */
static __always_inline dwell_walk dwell_walk_type(const void *data, const void *end, dwell_walk walk)
{
	const dwell_walk truncated = DWELL_WALK_ERROR(DWELL_SKIP_TRUNCATED);
	const dwell_walk malformed = DWELL_WALK_ERROR(DWELL_SKIP_MALFORMED);
	__u32 offset = dwell_walk_offset(walk), ip = dwell_walk_ip(walk);
	__u32 version = dwell_walk_version(walk);
	__u16 next = dwell_walk_next(walk);

	if (offset > DWELL_MAX_OFFSET)
		return DWELL_WALK_ERROR(DWELL_SKIP_DEPTH);
	switch (next) {
	case DWELL_ETH_IPV4: {
		DWELL_PEEK(struct dwell_ipv4, ip4, offset, truncated);
		__u32 bytes = (ip4->version_length & 0xf) * 4;

		if (ip4->version_length >> 4 != 4 || bytes < sizeof(*ip4) || dwell_walk_overflows(data, end, walk, 4))
			return malformed;
		if (ip4->fragment & 0xff3f)
			return DWELL_WALK_ERROR(DWELL_SKIP_FRAGMENT);
		return DWELL_WALK(DWELL_LAYER_PROTO, ip4->proto, offset + bytes, offset, 4);
	}
	case DWELL_ETH_IPV6: {
		DWELL_PEEK(struct dwell_ipv6, ip6, offset, truncated);
		if ((ip6->version_class_flow & 0xf0) != 0x60 || dwell_walk_overflows(data, end, walk, 6))
			return malformed;
		return DWELL_WALK(DWELL_LAYER_PROTO, ip6->next, offset + sizeof(*ip6), offset, 6);
	}
	case DWELL_ETH_VLAN:
	case DWELL_ETH_QINQ:
	case DWELL_ETH_QINQ_OLD: {
		DWELL_PEEK(struct dwell_vlan, vlan, offset, truncated);
		return DWELL_WALK(DWELL_LAYER_TYPE, vlan->type, offset + sizeof(*vlan), ip, version);
	}
	case DWELL_ETH_MPLS:
	case DWELL_ETH_MPLS_MULTI: {
		DWELL_PEEK(__u32, label, offset, truncated);
		if (!(dwell_ntohl(*label) & 0x100))
			return DWELL_WALK(DWELL_LAYER_TYPE, next, offset + 4, ip, version);
		/* bottom of the stack: only the payload shows its type */
		DWELL_PEEK(__u8, first, offset + 4, truncated);
		if (*first >> 4 == 4)
			return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV4, offset + 4, ip, version);
		if (*first >> 4 == 6)
			return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV6, offset + 4, ip, version);
		break;
	}
	case DWELL_ETH_PPPOE: {
		DWELL_PEEK(struct dwell_pppoe, pppoe, offset, truncated);
		version = pppoe->ppp_protocol == DWELL_PPP_IPV4 ? 4 : 6;
		if (version == 6 && pppoe->ppp_protocol != DWELL_PPP_IPV6)
			break;
		offset += sizeof(*pppoe);
		/* its length counts the two bytes of the PPP protocol */
		if (dwell_ip_bytes(data, end, offset, version) + 2 > dwell_ntohs(pppoe->length))
			return malformed;
		return DWELL_WALK(DWELL_LAYER_TYPE, version == 4 ? DWELL_ETH_IPV4 : DWELL_ETH_IPV6, offset, ip,
				  dwell_walk_version(walk));
	}
	case DWELL_ETH_BRIDGED: {
		DWELL_PEEK(struct dwell_ethernet, eth, offset, truncated);
		return DWELL_WALK(DWELL_LAYER_TYPE, eth->type, offset + sizeof(*eth), ip, version);
	}
	}
	return DWELL_WALK_ERROR(DWELL_SKIP_NOT_IP);
}

/* Steps over UDP and the header of VXLAN or Geneve behind it; stays at UDP if it carries anything else. */
static __always_inline dwell_walk dwell_walk_udp(const void *data, const void *end, dwell_walk walk)
{
	__u32 offset = dwell_walk_offset(walk), ip = dwell_walk_ip(walk), version = dwell_walk_version(walk);
	const dwell_walk found = DWELL_WALK(DWELL_LAYER_FOUND, DWELL_PROTO_UDP, offset, ip, version);

	DWELL_OPAQUE(offset);
	if (offset > DWELL_MAX_OFFSET)
		return DWELL_WALK_ERROR(DWELL_SKIP_DEPTH);
	DWELL_PEEK(struct dwell_overlay, overlay, offset, found);
	offset += sizeof(*overlay);
	switch (overlay->udp.dst_port) {
	case DWELL_PORT_VXLAN:
	case DWELL_PORT_VXLAN_LINUX:
		if ((overlay->first & ~DWELL_VXLAN_GROUP) != DWELL_VXLAN_NETWORK || overlay->reserved)
			return found;
		return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_BRIDGED, offset, ip, version);
	case DWELL_PORT_GENEVE:
		if (overlay->first >> 6 || overlay->reserved ||
		    (overlay->type != DWELL_ETH_BRIDGED && overlay->type != DWELL_ETH_IPV4 &&
		     overlay->type != DWELL_ETH_IPV6))
			return found;
		return DWELL_WALK(DWELL_LAYER_TYPE, overlay->type, offset + overlay->first * 4, ip, version);
	}
	return found;
}

/* Steps over a header that an IP protocol number names. */
static __always_inline dwell_walk dwell_walk_proto(const void *data, const void *end, dwell_walk walk)
{
	const dwell_walk truncated = DWELL_WALK_ERROR(DWELL_SKIP_TRUNCATED);
	__u32 offset = dwell_walk_offset(walk), ip = dwell_walk_ip(walk);
	__u32 version = dwell_walk_version(walk);
	__u16 next = dwell_walk_next(walk);

	if (offset > DWELL_MAX_OFFSET)
		return DWELL_WALK_ERROR(DWELL_SKIP_DEPTH);
	switch (next) {
	case DWELL_PROTO_UDP:
		return dwell_walk_udp(data, end, walk);
	case DWELL_PROTO_TCP:
	case DWELL_PROTO_ICMP:
	case DWELL_PROTO_ICMPV6:
		return DWELL_WALK(DWELL_LAYER_FOUND, next, offset, ip, version);
	case DWELL_PROTO_IPV4:
		return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV4, offset, ip, version);
	case DWELL_PROTO_IPV6:
		return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV6, offset, ip, version);
	case DWELL_PROTO_GRE: {
		DWELL_PEEK(struct dwell_gre, gre, offset, truncated);
		__u16 flags = gre->flags;

		if (flags & (DWELL_GRE_ROUTING | DWELL_GRE_VERSION))
			break;
		offset += sizeof(*gre);
		offset += flags & DWELL_GRE_CHECKSUM ? 4 : 0;
		offset += flags & DWELL_GRE_KEY ? 4 : 0;
		offset += flags & DWELL_GRE_SEQUENCE ? 4 : 0;
		return DWELL_WALK(DWELL_LAYER_TYPE, gre->type, offset, ip, version);
	}
	case DWELL_PROTO_HOP_BY_HOP:
	case DWELL_PROTO_ROUTING:
	case DWELL_PROTO_DEST_OPTIONS:
	case DWELL_PROTO_MOBILITY:
	case DWELL_PROTO_AH: {
		DWELL_PEEK(__u16, option, offset, truncated);
		offset += next == DWELL_PROTO_AH ? ((*option >> 8) + 2) * 4 : ((*option >> 8) + 1) * 8;
		return DWELL_WALK(DWELL_LAYER_PROTO, *option & 0xff, offset, ip, version);
	}
	case DWELL_PROTO_FRAGMENT: {
		DWELL_PEEK(struct dwell_ipv6_fragment, fragment, offset, truncated);
		if (fragment->offset_more & 0xf9ff)
			return DWELL_WALK_ERROR(DWELL_SKIP_FRAGMENT);
		return DWELL_WALK(DWELL_LAYER_PROTO, fragment->next, offset + sizeof(*fragment), ip, version);
	}
	}
	return DWELL_WALK_ERROR(DWELL_SKIP_PROTOCOL);
}

/* What encloses a packet, by which equal addresses and ports of different networks are told apart: 0 for nothing, up
 * to two VLAN IDs (outer << 12 | inner), or a hash with the upper bit set. It is the same in both directions. MPLS labels
 * and network numbers of VXLAN and Geneve, which need not be, and priority tags (VLAN ID 0) have no part in it.
 */
#define DWELL_TUNNEL_HASHED 0x80000000U

static __always_inline __u32 dwell_tunnel_hash(__u32 tunnel, __u64 word)
{
	return dwell_mix(dwell_mix(tunnel, word), word >> 32) >> 32 | DWELL_TUNNEL_HASHED;
}

/* Returns the tunnel with one more VLAN tag, of which `tag` is the control information in host byte order. */
static __always_inline __u32 dwell_tunnel_vlan(__u32 tunnel, __u32 tag)
{
	__u32 id = tag & 0xfff;

	if (!id)
		return tunnel;
	return tunnel >> 12 ? dwell_tunnel_hash(tunnel, id) : tunnel << 12 | id;
}

/* Returns the tunnel with the addresses of the IP header at `offset`, in either order. */
static __always_inline __u32 dwell_tunnel_ip(const void *data, const void *end, __u32 tunnel, __u32 offset,
					     __u32 version)
{
	if (offset > DWELL_MAX_OFFSET)
		return tunnel;
	if (version == 4) {
		DWELL_PEEK(struct dwell_ipv4, ip4, offset, tunnel);
		return dwell_tunnel_hash(tunnel, dwell_mix(4, ip4->src) + dwell_mix(4, ip4->dst));
	}
	DWELL_PEEK(struct dwell_ipv6, ip6, offset, tunnel);
	return dwell_tunnel_hash(tunnel, dwell_mix(dwell_mix(6, ip6->src_high), ip6->src_low) +
						 dwell_mix(dwell_mix(6, ip6->dst_high), ip6->dst_low));
}

/* Returns the tunnel with the header that the walk is about to step over. */
static __always_inline __u32 dwell_walk_tunnel_in(const void *data, const void *end, dwell_walk walk, __u32 tunnel)
{
	__u32 offset = dwell_walk_offset(walk), layer = dwell_walk_layer(walk);
	__u16 next = dwell_walk_next(walk);

	if (offset > DWELL_MAX_OFFSET)
		return tunnel;
	if (layer == DWELL_LAYER_PROTO && next == DWELL_PROTO_GRE) {
		DWELL_PEEK(struct dwell_gre, gre, offset, tunnel);
		if (!(gre->flags & DWELL_GRE_KEY))
			return tunnel;
		offset += sizeof(*gre) + (gre->flags & DWELL_GRE_CHECKSUM ? 4 : 0);
		DWELL_PEEK(__u32, key, offset, tunnel);
		return dwell_tunnel_hash(tunnel, (__u64)DWELL_PROTO_GRE << 32 | *key);
	}
	if (layer != DWELL_LAYER_TYPE)
		return tunnel;
	switch (next) {
	case DWELL_ETH_VLAN:
	case DWELL_ETH_QINQ:
	case DWELL_ETH_QINQ_OLD: {
		DWELL_PEEK(struct dwell_vlan, vlan, offset, tunnel);
		return dwell_tunnel_vlan(tunnel, dwell_ntohs(vlan->tag));
	}
	case DWELL_ETH_PPPOE: {
		DWELL_PEEK(struct dwell_pppoe, pppoe, offset, tunnel);
		return dwell_tunnel_hash(tunnel, (__u64)DWELL_ETH_PPPOE << 32 | pppoe->session);
	}
	case DWELL_ETH_IPV4:
	case DWELL_ETH_IPV6:
		if (dwell_walk_version(walk))
			return dwell_tunnel_ip(data, end, tunnel, dwell_walk_ip(walk), dwell_walk_version(walk));
	}
	return tunnel;
}

static __always_inline dwell_walk dwell_walk_on(const void *data, const void *end, dwell_walk walk)
{
	if (dwell_walk_layer(walk) == DWELL_LAYER_TYPE)
		return dwell_walk_type(data, end, walk);
	return dwell_walk_proto(data, end, walk);
}

#endif
