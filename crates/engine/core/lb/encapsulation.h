/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Prepares a packet for the path to its real: decrements its hop limit, and writes outer headers around it or another
 * Ethernet destination.
 */
#ifndef DWELL_LB_ENCAPSULATION_H
#define DWELL_LB_ENCAPSULATION_H

#include "lb/frame_embed.h"
#include "lb/parse.h"

#define DWELL_DF 0x0040

struct dwell_link {
	__u8 destination[6];
	__u8 source[6];
	__u16 type;
} DWELL_WORDS(2);

static __always_inline __u16 dwell_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Adds an address to a ones' complement sum of 32-bit words in memory order (RFC 1071). */
static __always_inline __u64 dwell_sum_address(const struct dwell_address *address)
{
	return (address->high & 0xffffffff) + (address->high >> 32) + (address->low & 0xffffffff) +
	       (address->low >> 32);
}

/* Returns the size of a real's outer headers in bytes. */
static __always_inline __u32 dwell_encapsulation_bytes(const struct dwell_real *real)
{
	__u32 bytes = dwell_is_v4(&real->address) ? sizeof(struct dwell_ipv4) : sizeof(struct dwell_ipv6);

	if (real->forward == DWELL_FORWARD_GUE)
		return bytes + sizeof(struct dwell_udp);
	return real->forward == DWELL_FORWARD_IPIP ? bytes : 0;
}

/* What the outer headers take from the inner packet. */
struct dwell_inner {
	__u32 version;  /* 4 or 6 */
	__u32 bytes;    /* IP length */
	__u32 tos;      /* DSCP and ECN */
	__u32 ttl;      /* what is left of it: the outer header gets no more, so that a loop ends */
	__u32 spread;   /* varies by flow: the source of source address and port */
	__u64 checksum; /* sum of the whole packet; 0: unknown */
};

/* Decrements the hop limit, and fills version and TOS of `inner`. Returns false if the limit is reached (RFC 2003
 * section 3.1: a tunnel's entry is a hop).
 */
static __always_inline int dwell_decrement_ttl(void *data, const void *end, struct dwell_inner *inner)
{
	struct dwell_ipv4 *ip = data + DWELL_IP_OFFSET;
	struct dwell_ipv6 *ip6 = data + DWELL_IP_OFFSET;
	__u32 sum;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version_length >> 4 == 4) {
		if (ip->ttl <= 1)
			return 0;
		inner->version = 4;
		inner->tos = ip->tos;
		inner->ttl = --ip->ttl;
		sum = (__u32)ip->checksum + 1; /* RFC 1624, in memory order */
		ip->checksum = sum + (sum >> 16);
		return 1;
	}
	if ((void *)(ip6 + 1) > end || ip6->hop_limit <= 1)
		return 0;
	inner->version = 6;
	inner->tos = dwell_ntohl(ip6->version_class_flow) >> 20 & 0xff;
	inner->ttl = --ip6->hop_limit;
	return 1;
}

static __always_inline void dwell_link_write(struct dwell_link *link, const struct dwell_real *real)
{
	__u32 *to = (void *)link;
	const __u32 *from = (const void *)real->destination_mac;

	/* both addresses, which are adjacent here and there */
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
}

static __always_inline void dwell_encapsulate_v4(struct dwell_ipv4 *ip, const struct dwell_real *real,
						 const struct dwell_inner *inner, __u32 bytes, __u8 proto,
						 const struct dwell_balance_config *config)
{
	__u32 prefix = config->outer_v4.low >> 32, dst = real->address.low >> 32;
	__u32 src = (prefix & 0xffff) | (inner->spread & 0xffff) << 16;
	__u64 sum;

	ip->version_length = 0x45;
	ip->tos = inner->tos;
	ip->total_length = dwell_ntohs(bytes);
	ip->id = 0; /* never fragmented: RFC 6864 */
	ip->fragment = DWELL_DF;
	ip->ttl = inner->ttl;
	ip->proto = proto;
	ip->src = src;
	ip->dst = dst;
	sum = 0x45 + (inner->tos << 8) + dwell_ntohs(bytes) + DWELL_DF + inner->ttl + ((__u32)proto << 8);
	ip->checksum = ~dwell_fold(sum + src + dst);
}

static __always_inline void dwell_encapsulate_v6(struct dwell_ipv6 *ip6, const struct dwell_real *real,
						 const struct dwell_inner *inner, __u32 bytes, __u8 next,
						 const struct dwell_balance_config *config)
{
	/* routers on the path spread flows by the flow label (RFC 6438) */
	__u32 first = 6U << 28 | inner->tos << 20 | (inner->spread >> 12 & 0xfffff);

	ip6->version_class_flow = dwell_ntohl(first);
	ip6->payload_length = dwell_ntohs(bytes);
	ip6->next = next;
	ip6->hop_limit = inner->ttl;
	ip6->src_high = config->outer_v6.high;
	ip6->src_low = (config->outer_v6.low & 0xffffffff) | (__u64)inner->spread << 32;
	ip6->dst_high = real->address.high;
	ip6->dst_low = real->address.low;
}

/* Returns the checksum of UDP over IPv6, from the sum of its payload. */
static __always_inline __u16 dwell_encapsulation_checksum(const struct dwell_ipv6 *ip6, const struct dwell_udp *udp,
							  const struct dwell_inner *inner)
{
	__u64 sum = inner->checksum;
	__u16 folded;

	sum += (ip6->src_high & 0xffffffff) + (ip6->src_high >> 32) + (ip6->src_low & 0xffffffff) +
	       (ip6->src_low >> 32);
	sum += (ip6->dst_high & 0xffffffff) + (ip6->dst_high >> 32) + (ip6->dst_low & 0xffffffff) +
	       (ip6->dst_low >> 32);
	sum += (__u32)udp->length * 2 + (DWELL_PROTO_UDP << 8) + udp->src_port + udp->dst_port;
	folded = ~dwell_fold(sum);
	return folded ? folded : 0xffff;
}

static __always_inline void dwell_encapsulate_udp(struct dwell_udp *udp, const struct dwell_real *real,
						  const struct dwell_inner *inner)
{
	udp->src_port = dwell_ntohs(0xc000 | (inner->spread >> 16 & 0x3fff));
	udp->dst_port = dwell_ntohs(real->gue_port);
	udp->length = dwell_ntohs(sizeof(*udp) + inner->bytes);
	udp->checksum = 0; /* optional over IPv4 (RFC 768) */
}

/* Writes everything in front of the inner packet; the frame has grown before. Returns false if it has not, which the
 * BPF verifier cannot know.
 */
static __always_inline int dwell_encapsulate(void *data, const void *end, const struct dwell_real *real,
					     const struct dwell_inner *inner, const struct dwell_balance_config *config)
{
	__u8 inside = inner->version == 4 ? DWELL_PROTO_IPV4 : DWELL_PROTO_IPV6;
	struct dwell_link *link = data;
	struct dwell_ipv4 *ip = data + sizeof(*link);
	struct dwell_ipv6 *ip6 = data + sizeof(*link);
	struct dwell_udp *udp;

	if ((void *)(ip + 1) > end)
		return 0;
	dwell_link_write(link, real);
	if (real->forward == DWELL_FORWARD_L2)
		return 1;
	if (dwell_is_v4(&real->address)) {
		link->type = DWELL_ETH_IPV4;
		if (real->forward == DWELL_FORWARD_IPIP) {
			dwell_encapsulate_v4(ip, real, inner, sizeof(*ip) + inner->bytes, inside, config);
			return 1;
		}
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end)
			return 0;
		dwell_encapsulate_v4(ip, real, inner, sizeof(*ip) + sizeof(*udp) + inner->bytes, DWELL_PROTO_UDP,
				     config);
		dwell_encapsulate_udp(udp, real, inner);
		return 1;
	}
	link->type = DWELL_ETH_IPV6;
	if ((void *)(ip6 + 1) > end)
		return 0;
	if (real->forward == DWELL_FORWARD_IPIP) {
		dwell_encapsulate_v6(ip6, real, inner, inner->bytes, inside, config);
		return 1;
	}
	udp = (void *)(ip6 + 1);
	if ((void *)(udp + 1) > end)
		return 0;
	dwell_encapsulate_v6(ip6, real, inner, sizeof(*udp) + inner->bytes, DWELL_PROTO_UDP, config);
	dwell_encapsulate_udp(udp, real, inner);
	if (inner->checksum)
		udp->checksum = dwell_encapsulation_checksum(ip6, udp, inner);
	return 1;
}

#endif
