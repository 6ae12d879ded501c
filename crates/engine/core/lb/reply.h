/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The answers that a VIP gives itself: to pings, and to packets that are too big for the path to their real. Each goes
 * back where the packet came from.
 */
#ifndef DWELL_LB_REPLY_H
#define DWELL_LB_REPLY_H

#include "lb/encapsulation.h"

#define DWELL_REPLY_TTL 64

/* How much of a packet an error about it quotes, in bytes: header, options, and eight bytes (RFC 792); for IPv6 more,
 * as RFC 4443 section 2.4 allows.
 */
#define DWELL_QUOTE_4 68
#define DWELL_QUOTE_6 208

struct dwell_icmp_error {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 unused; /* for IPv4; for IPv6 the upper half of the MTU, always 0 */
	__u16 mtu;
} DWELL_WORDS(4);

/* IP lengths of the answers. */
#define DWELL_TOO_BIG_4 (sizeof(struct dwell_ipv4) + sizeof(struct dwell_icmp_error) + DWELL_QUOTE_4)
#define DWELL_TOO_BIG_6 (sizeof(struct dwell_ipv6) + sizeof(struct dwell_icmp_error) + DWELL_QUOTE_6)

/* Returns a checksum after one of its words changed (RFC 1624). */
static __always_inline __u16 dwell_checksum_change(__u16 checksum, __u16 before, __u16 after)
{
	return ~dwell_fold((__u64)(__u16)~checksum + (__u16)~before + after);
}

static __always_inline void dwell_link_swap(struct dwell_link *link)
{
	struct dwell_link old = *link;

	__builtin_memcpy(link->destination, old.source, sizeof(link->destination));
	__builtin_memcpy(link->source, old.destination, sizeof(link->source));
}

/* Turns an echo request into its reply. A wrong checksum stays wrong. */
static __always_inline int dwell_reply_ping(void *data, const void *end, __u32 l4_offset)
{
	struct dwell_ipv4 *ip = data + DWELL_IP_OFFSET;
	struct dwell_icmp_echo *icmp;
	struct dwell_link *link = data;
	__u16 before, after;

	DWELL_OPAQUE(l4_offset);
	if ((void *)(ip + 1) > end || l4_offset > 4 * DWELL_MAX_OFFSET)
		return 0;
	icmp = data + l4_offset;
	if ((void *)(icmp + 1) > end)
		return 0;
	if (link->type == DWELL_ETH_IPV4) {
		__u32 src = ip->src;

		before = ip->ttl | (__u16)ip->proto << 8;
		after = DWELL_REPLY_TTL | (__u16)ip->proto << 8;
		ip->checksum = dwell_checksum_change(ip->checksum, before, after);
		ip->ttl = DWELL_REPLY_TTL;
		ip->src = ip->dst;
		ip->dst = src;
	} else {
		struct dwell_ipv6 *ip6 = data + DWELL_IP_OFFSET;
		__u64 high, low;

		if ((void *)(ip6 + 1) > end)
			return 0;
		high = ip6->src_high;
		low = ip6->src_low;
		ip6->src_high = ip6->dst_high;
		ip6->src_low = ip6->dst_low;
		ip6->dst_high = high;
		ip6->dst_low = low;
		ip6->hop_limit = DWELL_REPLY_TTL;
	}
	before = icmp->type | (__u16)icmp->code << 8;
	icmp->type = link->type == DWELL_ETH_IPV4 ? 0 : 129;
	after = icmp->type | (__u16)icmp->code << 8;
	icmp->checksum = dwell_checksum_change(icmp->checksum, before, after);
	dwell_link_swap(link);
	return 1;
}

/* A word of a header, whose fields have any size. */
typedef __u32 __attribute__((may_alias)) dwell_word;

/* Adds the words of a struct to a sum. */
#define DWELL_SUM(sum, words, bytes)                                                                                   \
	do {                                                                                                           \
		const dwell_word *word_ = (const void *)(words);                                                       \
		_Pragma("clang loop unroll(full)") for (__u32 i_ = 0; i_ < (bytes) / 4; i_++)(sum) += word_[i_];       \
	} while (0)

/* Writes an error in front of the packet that it quotes. The frame begins where the answer does; the quoted packet's
 * Ethernet header is before its IP header.
 */
static __always_inline int dwell_too_big_4_write(void *data, const void *end, __u32 mtu)
{
	struct dwell_link *link = data;
	struct dwell_ipv4 *ip = data + DWELL_IP_OFFSET;
	struct dwell_icmp_error *icmp = (void *)(ip + 1);
	const struct dwell_ipv4 *old = (void *)(icmp + 1);
	__u64 sum = 0;

	if (data + DWELL_IP_OFFSET + DWELL_TOO_BIG_4 > end)
		return 0;
	*link = *(const struct dwell_link *)((const void *)old - sizeof(*link));
	dwell_link_swap(link);
	ip->version_length = 0x45;
	ip->tos = 0;
	ip->total_length = dwell_ntohs(DWELL_TOO_BIG_4);
	ip->id = 0;
	ip->fragment = DWELL_DF;
	ip->ttl = DWELL_REPLY_TTL;
	ip->proto = DWELL_PROTO_ICMP;
	ip->checksum = 0;
	ip->src = old->dst;
	ip->dst = old->src;
	DWELL_SUM(sum, ip, sizeof(*ip));
	ip->checksum = ~dwell_fold(sum);
	icmp->type = 3;
	icmp->code = 4;
	icmp->checksum = 0;
	icmp->unused = 0;
	icmp->mtu = dwell_ntohs(mtu);
	sum = 0;
	DWELL_SUM(sum, icmp, sizeof(*icmp) + DWELL_QUOTE_4);
	icmp->checksum = ~dwell_fold(sum);
	return 1;
}

static __always_inline int dwell_too_big_6_write(void *data, const void *end, __u32 mtu)
{
	struct dwell_link *link = data;
	struct dwell_ipv6 *ip6 = data + DWELL_IP_OFFSET;
	struct dwell_icmp_error *icmp = (void *)(ip6 + 1);
	const struct dwell_ipv6 *old = (void *)(icmp + 1);
	const __u32 bytes = sizeof(*icmp) + DWELL_QUOTE_6;
	__u64 sum;

	if (data + DWELL_IP_OFFSET + DWELL_TOO_BIG_6 > end)
		return 0;
	*link = *(const struct dwell_link *)((const void *)old - sizeof(*link));
	dwell_link_swap(link);
	ip6->version_class_flow = 0x60;
	ip6->payload_length = dwell_ntohs(bytes);
	ip6->next = DWELL_PROTO_ICMPV6;
	ip6->hop_limit = DWELL_REPLY_TTL;
	ip6->src_high = old->dst_high;
	ip6->src_low = old->dst_low;
	ip6->dst_high = old->src_high;
	ip6->dst_low = old->src_low;
	icmp->type = 2;
	icmp->code = 0;
	icmp->checksum = 0;
	icmp->unused = 0;
	icmp->mtu = dwell_ntohs(mtu);
	sum = (__u32)dwell_ntohs(bytes) + (DWELL_PROTO_ICMPV6 << 8);
	/* the addresses end the IP header, and the ICMP header follows */
	DWELL_SUM(sum, (const void *)icmp - 4 * sizeof(__u64), 4 * sizeof(__u64) + bytes);
	icmp->checksum = ~dwell_fold(sum);
	return 1;
}

#endif
