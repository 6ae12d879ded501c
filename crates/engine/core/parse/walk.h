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

#define DWELL_PEEK(type, name, offset, failure)                                                                        \
	const type *name = (const void *)((const char *)data + (offset));                                              \
	if ((const char *)(name + 1) > (const char *)end)                                                              \
	return failure

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
		return DWELL_WHERE(offset, offset + sizeof(*ip), ip->proto, 4);
	}
	if (type == DWELL_ETH_IPV6) {
		DWELL_PEEK(struct dwell_ipv6, ip6, offset, 0);
		if ((ip6->version_class_flow & 0xf0) != 0x60)
			return 0;
		if (ip6->next != DWELL_PROTO_TCP && ip6->next != DWELL_PROTO_UDP && ip6->next != DWELL_PROTO_ICMPV6)
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

		if (ip4->version_length >> 4 != 4 || bytes < sizeof(*ip4))
			return malformed;
		if (ip4->fragment & 0xff3f)
			return DWELL_WALK_ERROR(DWELL_SKIP_FRAGMENT);
		return DWELL_WALK(DWELL_LAYER_PROTO, ip4->proto, offset + bytes, offset, 4);
	}
	case DWELL_ETH_IPV6: {
		DWELL_PEEK(struct dwell_ipv6, ip6, offset, truncated);
		if ((ip6->version_class_flow & 0xf0) != 0x60)
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
		offset += sizeof(*pppoe);
		if (pppoe->ppp_protocol == DWELL_PPP_IPV4)
			return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV4, offset, ip, version);
		if (pppoe->ppp_protocol == DWELL_PPP_IPV6)
			return DWELL_WALK(DWELL_LAYER_TYPE, DWELL_ETH_IPV6, offset, ip, version);
		break;
	}
	case DWELL_ETH_BRIDGED: {
		DWELL_PEEK(struct dwell_ethernet, eth, offset, truncated);
		return DWELL_WALK(DWELL_LAYER_TYPE, eth->type, offset + sizeof(*eth), ip, version);
	}
	}
	return DWELL_WALK_ERROR(DWELL_SKIP_NOT_IP);
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
	case DWELL_PROTO_TCP:
	case DWELL_PROTO_UDP:
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

static __always_inline dwell_walk dwell_walk_on(const void *data, const void *end, dwell_walk walk)
{
	if (dwell_walk_layer(walk) == DWELL_LAYER_TYPE)
		return dwell_walk_type(data, end, walk);
	return dwell_walk_proto(data, end, walk);
}

#endif
