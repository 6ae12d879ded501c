/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A parsed packet, the key of its flow, and the way to its innermost IP header (parse/walk.h). The transport is read by
 * parse/transport.h.
 */
#ifndef DWELL_PARSE_PACKET_H
#define DWELL_PARSE_PACKET_H

#include "parse/embed.h"
#include "parse/walk.h"

enum dwell_kind {
	DWELL_KIND_TCP,
	DWELL_KIND_ICMP, /* echo request or reply, either family */
	DWELL_KIND_DNS,
	DWELL_KIND_QUIC,
	DWELL_KIND_UDP, /* this and the next: only in programs without matchers */
	DWELL_KIND_OTHER,
};

/* What only `dwell rtt` reads of a packet (rtt/parse.h). */
struct dwell_packet_rtt {
	__u32 tsval; /* of the TCP timestamp option, if has_ts */
	__u32 tsecr;
	__u32 dns_hash;     /* hash of transaction and question */
	__u32 quic_version; /* 0 with a short header or version negotiation */
	__u16 window;       /* TCP, as it lies on the wire */
	__u8 has_ts;
	__u8 has_sack;
	__u8 is_answer;  /* echo reply, DNS response */
	__u8 quic_first; /* first byte of the first QUIC header */
	__u8 ce;         /* a router has marked the packet (RFC 3168) */
};

/* What only `dwell response` reads of a packet (parse/arrival.h). */
struct dwell_packet_response {
	union {
		__u64 cid; /* QUIC: the first 8 bytes of the destination connection ID, if they are known; 0: none */
		struct {
			__u32 tsecr;   /* TCP: the echo of the timestamp option; of a SYN, its MSS; 0: none */
			__u32 content; /* as in struct dwell_arrival */
		};
	};
};

/* What the balancer decides about a packet (lb/select.h); all 0 in other programs. */
struct dwell_packet_lb {
	__u32 real; /* where a connection that it opens goes; 0: nowhere */
	union {
		__u32 first; /* where it goes if it cannot be remembered */
		__u32 token; /* before that is selected: where its token leads (lb/token.h); 0: nowhere */
	};
	__u32 vip;     /* number of the VIP that it is sent to; 0: none */
	__u16 attempt; /* dwell_vip.zero_slot if it belongs to a new QUIC connection; else 0 */
	__u8 measured; /* the latency of the connection that it opens is estimated */
};

struct dwell_packet {
	struct dwell_flow_key key;
	__u64 hash;
	__u32 wire_bytes;
	__u32 segments; /* packets on the wire: a GSO packet is several */
	__u32 payload_bytes;
	__u32 ip_bytes;
	__u32 seq; /* TCP; ICMP: echo sequence */
	__u32 ack;
	__u16 a_port; /* if has_id; see dwell_a_port() */
	__u16 b_port;
	__u8 proto;     /* IPPROTO_* */
	__u8 direction; /* 0: key.a sent it */
	__u8 kind;      /* enum dwell_kind */
	__u8 tcp_flags;
	__u8 may_open; /* a flow may begin with this packet */
	__u8 key_kind; /* enum dwell_key_kind */
	__u8 has_id;   /* the key holds an identifier in place of the ports */
	__u32 tunnel;  /* what encloses it (parse/walk.h), if the program tells flows apart by that */
	union {
		struct dwell_packet_rtt rtt;
		struct {
			struct dwell_packet_response response;
			struct dwell_packet_lb lb;
		};
	};
};

static __always_inline int dwell_address_after(const struct dwell_address *x, const struct dwell_address *y)
{
	if (x->high != y->high)
		return x->high > y->high;
	return x->low > y->low;
}

static __always_inline void dwell_set_key(struct dwell_packet *packet, const struct dwell_address *src,
					  const struct dwell_address *dst, __u16 src_port, __u16 dst_port)
{
	struct dwell_flow_key *key = &packet->key;
	int swap = src->low == dst->low && src->high == dst->high ? src_port > dst_port : dwell_address_after(src, dst);

	packet->direction = swap;
	key->a = swap ? *dst : *src;
	key->b = swap ? *src : *dst;
	key->a_port = swap ? dst_port : src_port;
	key->b_port = swap ? src_port : dst_port;
}

/* Stores an identifier of 32 bits in place of the ports. */
static __always_inline void dwell_set_key_id(struct dwell_packet *packet, __u32 id)
{
	packet->has_id = 1;
	packet->a_port = packet->key.a_port;
	packet->b_port = packet->key.b_port;
	packet->key.a_port = id >> 16;
	packet->key.b_port = id;
}

/* Tells flows in different tunnels apart: an interface and what encloses a packet on it share a field of the key, in
 * which two of them are rarely equal. Without a tunnel it is the interface's number.
 */
static __always_inline __u32 dwell_interface_in(__u32 interface, __u32 tunnel)
{
	return interface ^ tunnel * 0x9e3779b1U;
}

static __always_inline __u16 dwell_a_port(const struct dwell_packet *packet)
{
	return packet->has_id ? packet->a_port : packet->key.a_port;
}

static __always_inline __u16 dwell_b_port(const struct dwell_packet *packet)
{
	return packet->has_id ? packet->b_port : packet->key.b_port;
}

static __always_inline __u64 dwell_key_hash(const struct dwell_flow_key *key, __u8 proto, __u64 seed)
{
	__u64 ports = (__u64)key->a_port << 48 | (__u64)key->b_port << 32 | (key->interface << 8 ^ proto);

	seed = dwell_mix(seed, ports);
	if (key->a.high | key->b.high | (__u32)(key->a.low ^ key->b.low) | (__u32)(key->a.low ^ 0xffff0000)) {
		seed = dwell_mix(seed, key->a.high);
		seed = dwell_mix(seed, key->a.low);
		seed = dwell_mix(seed, key->b.high);
		return dwell_mix(dwell_mix(seed, key->b.low), seed);
	}
	/* IPv4: the upper halves hold the addresses, the lower ones ::ffff: */
	seed = dwell_mix(seed, key->a.low ^ key->b.low >> 32);
	seed = (seed ^ seed >> 29) * 0xd6e8feb86659fd93ULL;
	return seed ^ seed >> 32;
}

#ifdef DWELL_FRAME_IS_NATIVE
static inline dwell_walk dwell_walk_step(const struct dwell_frame *frame, dwell_walk walk)
{
	return dwell_walk_on(frame->data, frame->end, walk);
}

static inline __u32 dwell_walk_tunnel(const struct dwell_frame *frame, dwell_walk walk, __u32 tunnel)
{
	return dwell_walk_tunnel_in(frame->data, frame->end, walk, tunnel);
}
#endif

#define DWELL_FRAME_OK DWELL_COUNTERS

/* Locates the headers of a packet with any nesting of VLAN, MPLS, PPPoE, IP in IP, GRE and extension headers, and adds
 * these to `tunnel`.
 */
static __always_inline dwell_where dwell_locate_nested(DWELL_FRAME *frame, const void *data, const void *end,
						       __u32 link, __u32 *tunnel)
{
	dwell_walk walk = dwell_walk_link(data, end, link);

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (int hop = 0; hop < DWELL_MAX_HOPS; hop++) {
		__u32 layer = dwell_walk_layer(walk);

		if (layer == DWELL_LAYER_FOUND)
			return DWELL_WHERE(dwell_walk_ip(walk), dwell_walk_offset(walk), dwell_walk_next(walk),
					   dwell_walk_version(walk));
		if (layer == DWELL_LAYER_ERROR)
			return DWELL_WHERE_ERROR(dwell_walk_next(walk));
		*tunnel = dwell_walk_tunnel(frame, walk, *tunnel);
		walk = dwell_walk_step(frame, walk);
	}
	return DWELL_WHERE_ERROR(DWELL_SKIP_DEPTH);
}

/* Reads the addresses, and how much IP carries. Returns 0, or the counter that says why not. */
static __always_inline __u32 dwell_parse_ip(const void *data, const void *end, dwell_where where, __u32 wire_bytes,
					    struct dwell_address *src, struct dwell_address *dst, __u32 *l4_bytes)
{
	__u32 ip_offset = dwell_where_ip(where), l4_offset = dwell_where_l4(where), bytes;

	if (ip_offset > DWELL_MAX_OFFSET || l4_offset > 2 * DWELL_MAX_OFFSET)
		return DWELL_SKIP_DEPTH;
	if (dwell_where_version(where) == 4) {
		DWELL_PEEK(struct dwell_ipv4, ip, ip_offset, DWELL_SKIP_TRUNCATED);
		bytes = dwell_ntohs(ip->total_length);
		if (!bytes) /* segmentation offload: longer than the field can express */
			bytes = wire_bytes - ip_offset;
		src->low = (__u64)ip->src << 32 | 0xffff0000;
		dst->low = (__u64)ip->dst << 32 | 0xffff0000;
	} else {
		DWELL_PEEK(struct dwell_ipv6, ip6, ip_offset, DWELL_SKIP_TRUNCATED);
		bytes = dwell_ntohs(ip6->payload_length) + sizeof(*ip6);
		if (bytes == sizeof(*ip6)) /* jumbogram */
			bytes = wire_bytes - ip_offset;
		src->high = ip6->src_high;
		src->low = ip6->src_low;
		dst->high = ip6->dst_high;
		dst->low = ip6->dst_low;
	}
	if (bytes > wire_bytes - ip_offset || bytes < l4_offset - ip_offset)
		return DWELL_SKIP_MALFORMED;
	*l4_bytes = bytes - (l4_offset - ip_offset);
	return 0;
}

#endif
