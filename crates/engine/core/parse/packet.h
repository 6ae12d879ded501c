/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From bytes to a parsed packet: once the innermost IP header is found
 * (walk.h), its addresses and ports, and what the matchers need to know.
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
	DWELL_KIND_UDP, /* the next two only where matchers do not matter */
	DWELL_KIND_OTHER,
};

struct dwell_packet {
	struct dwell_flow_key key;
	__u64 hash;
	__u64 cid; /* QUIC: the begin of the destination connection ID, as far as is known; 0: none */
	__u32 wire_bytes;
	__u32 segments; /* packets on the wire: a GSO packet is several */
	__u32 payload_bytes;
	__u32 ip_bytes;
	__u8 proto;     /* IPPROTO_* */
	__u8 direction; /* 0: key.a sent it */
	__u8 kind;      /* enum dwell_kind */
	__u8 tcp_flags;
	__u8 has_ts;
	__u8 has_sack;
	__u8 is_answer;  /* echo reply, DNS response */
	__u8 quic_first; /* first byte of the first QUIC header */
	__u8 may_open;   /* a flow may begin with this packet */
	__u8 key_kind;   /* enum dwell_key_kind */
	__u8 has_id;     /* where the key has its ports there is an identifier */
	__u8 measured;   /* at a balancer: the latency of what it opens is estimated */
	__u16 window;
	__u16 attempt; /* QUIC: of a new connection; struct dwell_vip.zero_slot, or 0 */
	__u32 seq;     /* TCP; ICMP: echo sequence */
	__u32 ack;
	__u32 tsval;
	__u32 tsecr;
	__u32 dns_hash; /* of transaction and question */
	__u16 a_port;   /* with an identifier; see dwell_a_port() */
	__u16 b_port;
	__u32 quic_version; /* 0 with a short header or version negotiation */
	__u32 real;         /* at a balancer: where what it opens goes */
	__u32 vip;
};

/* One TCP option: its kind, and the offset of the next one (0 after the last,
 * and where a length contradicts itself); ~0 if it is cut off.
 */
#define DWELL_OPTION(kind, next) ((__u32)(kind) << 16 | (next))
#define dwell_option_kind(o) ((o) >> 16 & 0xff)
#define dwell_option_next(o) ((o)&0xffff)
#define DWELL_OPTION_NONE 1
#define DWELL_OPTION_SACK 5
#define DWELL_OPTION_TS 8
#define DWELL_OPTION_CUT ~0U

static __always_inline __u32 dwell_tcp_option_in(const void *data, const void *end, __u32 at, __u32 stop)
{
	if (at > 3 * DWELL_MAX_OFFSET || stop > 3 * DWELL_MAX_OFFSET)
		return 0;
	DWELL_PEEK(__u8, kind, at, DWELL_OPTION_CUT);
	if (*kind == 0)
		return 0;
	if (*kind == 1)
		return DWELL_OPTION(DWELL_OPTION_NONE, at + 1);
	if (at + 2 > stop)
		return 0;
	DWELL_PEEK(__u16, option, at, DWELL_OPTION_CUT);
	__u32 length = *option >> 8;

	if (length < 2 || at + length > stop)
		return 0;
	if (*kind == DWELL_OPTION_TS && length == 10)
		return DWELL_OPTION(DWELL_OPTION_TS, at + length);
	if (*kind == DWELL_OPTION_SACK && length > 2)
		return DWELL_OPTION(DWELL_OPTION_SACK, at + length);
	return DWELL_OPTION(DWELL_OPTION_NONE, at + length);
}

/* Hash of transaction and question, letters folded (RFC 4343), never 0 in its
 * lower bits; 0 if this is no query or response with exactly one question,
 * DWELL_DNS_CUT if it is cut off. The caller has checked the ports. Bit 31
 * tells a response.
 */
#define DWELL_DNS_CUT 0x80000000U

static __always_inline __u32 dwell_dns_question_in(const void *data, const void *end, __u32 offset)
{
	__u32 at = offset;

	if (at > 2 * DWELL_MAX_OFFSET)
		return 0;
	DWELL_PEEK(struct dwell_dns_header, dns, at, DWELL_DNS_CUT);
	__u64 hash = dns->id;
	__u32 response = dns->flags & 0x80, letter;

	if (dns->flags & 0x78 || dns->questions != 0x0100)
		return 0;
	at += sizeof(*dns);
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (int i = 0; i < 255; i++) {
		DWELL_OPAQUE(at);
		if (at > 3 * DWELL_MAX_OFFSET)
			return 0;
		DWELL_PEEK(__u8, byte, at, DWELL_DNS_CUT);
		at++;
		/* A zero byte ends the name; within a label nobody asks for one. A
		 * length is below 64, so that folding leaves it alone.
		 */
		if (!*byte)
			break;
		letter = *byte - 'A';
		letter = *byte | ((letter - 26) & ~letter) >> 31 << 5;
		hash = (hash ^ letter) * 0x9e3779b97f4a7c15ULL;
	}
	DWELL_OPAQUE(at);
	if (at > 3 * DWELL_MAX_OFFSET)
		return 0;
	DWELL_PEEK(__u32, type_class, at, DWELL_DNS_CUT);
	hash = dwell_mix(hash, *type_class) & 0x7fffffff;
	return (hash ? hash : 1) | (response ? 0x80000000 : 0);
}

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

/* An identifier of 32 bits in place of the ports. */
static __always_inline void dwell_set_key_id(struct dwell_packet *packet, __u32 id)
{
	packet->has_id = 1;
	packet->a_port = packet->key.a_port;
	packet->b_port = packet->key.b_port;
	packet->key.a_port = id >> 16;
	packet->key.b_port = id;
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

static __always_inline int dwell_method_enabled(const struct dwell_rtt_config *config, __u32 method)
{
	return config->methods >> method & 1;
}

#ifdef DWELL_FRAME_IS_NATIVE
static inline dwell_walk dwell_walk_step(const struct dwell_frame *frame, dwell_walk walk)
{
	return dwell_walk_on(frame->data, frame->end, walk);
}

static inline __u32 dwell_tcp_option(const struct dwell_frame *frame, __u32 at, __u32 stop)
{
	return dwell_tcp_option_in(frame->data, frame->end, at, stop);
}

static inline __u32 dwell_dns_question(const struct dwell_frame *frame, __u32 offset)
{
	return dwell_dns_question_in(frame->data, frame->end, offset);
}
#endif

#define DWELL_FRAME_OK DWELL_COUNTERS

/* Timestamp and SACK among TCP options in any order. */
static __always_inline __u32 dwell_parse_options(DWELL_FRAME *frame, const void *data, const void *end, __u32 at,
						 __u32 stop, struct dwell_packet *packet)
{
	__u32 ts_end = 0;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (int i = 0; i < 40 && at && at < stop; i++) {
		__u32 option = dwell_tcp_option(frame, at, stop);

		if (option == DWELL_OPTION_CUT)
			return DWELL_SKIP_TRUNCATED;
		at = dwell_option_next(option);
		if (dwell_option_kind(option) == DWELL_OPTION_SACK)
			packet->has_sack = 1;
		if (dwell_option_kind(option) == DWELL_OPTION_TS)
			ts_end = at;
	}
	if (ts_end < 8 || ts_end > 4 * DWELL_MAX_OFFSET)
		return DWELL_FRAME_OK;
	DWELL_PEEK(__u64, values, ts_end - 8, DWELL_SKIP_TRUNCATED);
	packet->has_ts = 1;
	packet->tsval = dwell_ntohl((__u32)*values);
	packet->tsecr = dwell_ntohl(*values >> 32);
	return DWELL_FRAME_OK;
}

/* Any nesting of VLAN, MPLS, PPPoE, IP in IP, GRE and extension headers. */
static __always_inline dwell_where dwell_locate_nested(DWELL_FRAME *frame, const void *data, const void *end,
						       __u32 link)
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
		walk = dwell_walk_step(frame, walk);
	}
	return DWELL_WHERE_ERROR(DWELL_SKIP_DEPTH);
}

/* The addresses, and the length of what IP carries. Returns 0, or the counter
 * that says why not.
 */
static __always_inline __u32 dwell_parse_ip(const void *data, const void *end, dwell_where where, __u32 wire_bytes,
					    struct dwell_address *src, struct dwell_address *dst, __u32 *l4_bytes)
{
	__u32 ip_offset = dwell_where_ip(where), l4_offset = dwell_where_l4(where), bytes;

	if (ip_offset > DWELL_MAX_OFFSET || l4_offset > 2 * DWELL_MAX_OFFSET)
		return DWELL_SKIP_DEPTH;
	if (dwell_where_version(where) == 4) {
		DWELL_PEEK(struct dwell_ipv4, ip, ip_offset, DWELL_SKIP_TRUNCATED);
		bytes = dwell_ntohs(ip->total_length);
		if (!bytes) /* segmentation offload: longer than the field can say */
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

/* Reads the packet that dwell_locate_* found. Returns DWELL_FRAME_OK, or the
 * counter that names why it is of no use. `segments`, `wire_bytes` and
 * `key.interface` are the caller's to set before.
 */
static __always_inline __u32 dwell_parse(DWELL_FRAME *frame, const void *data, const void *end, dwell_where where,
					 const struct dwell_rtt_config *config, struct dwell_packet *packet)
{
	__u32 l4_offset = dwell_where_l4(where), l4_bytes, failed;
	struct dwell_address src = {}, dst = {};
	__u8 proto = dwell_where_proto(where);

	failed = dwell_parse_ip(data, end, where, packet->wire_bytes, &src, &dst, &l4_bytes);
	if (failed)
		return failed;
	if (l4_offset > 2 * DWELL_MAX_OFFSET)
		return DWELL_SKIP_DEPTH;
	packet->proto = proto;

	if (proto == DWELL_PROTO_TCP) {
		if (!dwell_method_enabled(config, DWELL_TCP_TIMESTAMP) && !dwell_method_enabled(config, DWELL_TCP_SEQ))
			return DWELL_SKIP_PROTOCOL;
		DWELL_PEEK(struct dwell_tcp, tcp, l4_offset, DWELL_SKIP_TRUNCATED);
		__u32 header = (tcp->data_offset >> 4) * 4;

		if (header < sizeof(*tcp) || header > l4_bytes)
			return DWELL_SKIP_MALFORMED;
		if (header == sizeof(*tcp) && !dwell_method_enabled(config, DWELL_TCP_SEQ) &&
		    !(tcp->flags & DWELL_TCP_RST))
			return DWELL_SKIP_PROTOCOL;
		packet->kind = DWELL_KIND_TCP;
		packet->tcp_flags = tcp->flags;
		packet->seq = dwell_ntohl(tcp->seq);
		packet->ack = dwell_ntohl(tcp->ack);
		packet->window = tcp->window;
		packet->payload_bytes = l4_bytes - header;
		packet->may_open = !(tcp->flags & DWELL_TCP_RST);
		dwell_set_key(packet, &src, &dst, dwell_ntohs(tcp->src_port), dwell_ntohs(tcp->dst_port));
		packet->has_ts = 0;
		packet->has_sack = 0;
		if (header == sizeof(*tcp))
			return DWELL_FRAME_OK;
		if (header == sizeof(*tcp) + sizeof(struct dwell_tcp_ts_option)) {
			DWELL_PEEK(struct dwell_tcp_ts_option, ts, l4_offset + sizeof(*tcp), DWELL_SKIP_TRUNCATED);
			if (dwell_likely(ts->head == DWELL_TCP_TS_HEAD)) {
				packet->has_ts = 1;
				packet->tsval = dwell_ntohl(ts->value);
				packet->tsecr = dwell_ntohl(ts->echo);
				return DWELL_FRAME_OK;
			}
		}
		return dwell_parse_options(frame, data, end, l4_offset + sizeof(*tcp), l4_offset + header, packet);
	}
	if (proto == DWELL_PROTO_UDP) {
		DWELL_PEEK(struct dwell_udp, udp, l4_offset, DWELL_SKIP_TRUNCATED);
		__u16 src_port = dwell_ntohs(udp->src_port), dst_port = dwell_ntohs(udp->dst_port);

		if (l4_bytes < sizeof(*udp))
			return DWELL_SKIP_MALFORMED;
		if (udp->length && (dwell_ntohs(udp->length) < sizeof(*udp) || dwell_ntohs(udp->length) > l4_bytes))
			return DWELL_SKIP_MALFORMED;
		packet->payload_bytes = l4_bytes - sizeof(*udp);
		if (src_port == 53 || dst_port == 53) {
			if (!dwell_method_enabled(config, DWELL_DNS))
				return DWELL_SKIP_PROTOCOL;
			__u32 question = dwell_dns_question(frame, l4_offset + sizeof(*udp));

			if (!question)
				return DWELL_SKIP_PROTOCOL;
			if (question == DWELL_DNS_CUT)
				return DWELL_SKIP_TRUNCATED;
			packet->kind = DWELL_KIND_DNS;
			packet->dns_hash = question & 0x7fffffff;
			packet->is_answer = question >> 31;
			packet->may_open = !packet->is_answer;
		} else {
			if (!dwell_method_enabled(config, DWELL_QUIC_SPIN) &&
			    !dwell_method_enabled(config, DWELL_QUIC_SPIN_LOOP) &&
			    !dwell_method_enabled(config, DWELL_QUIC_HANDSHAKE))
				return DWELL_SKIP_PROTOCOL;
			if (packet->payload_bytes < sizeof(struct dwell_quic_long))
				return DWELL_SKIP_PROTOCOL;
			DWELL_PEEK(struct dwell_quic_long, quic, l4_offset + sizeof(*udp), DWELL_SKIP_TRUNCATED);
			packet->quic_first = quic->first;
			packet->quic_version = 0;
			if (quic->first & 0x80) {
				__u32 version = dwell_ntohl(quic->version);

				/* v1, v2 (RFC 9369), drafts that had the spin bit;
				 * 0 is version negotiation
				 */
				if (version != 1 && version != 0x6b3343cf && version != 0 &&
				    (version < 0xff000011 || version > 0xff000022))
					return DWELL_SKIP_PROTOCOL;
				packet->quic_version = version;
				packet->may_open = version != 0;
			} else {
				/* without the fixed bit only of a flow that is known:
				 * its ends may have agreed to grease it (RFC 9287)
				 */
				packet->may_open = quic->first & 0x40 && (src_port == 443 || dst_port == 443);
			}
			packet->kind = DWELL_KIND_QUIC;
		}
		dwell_set_key(packet, &src, &dst, src_port, dst_port);
		return DWELL_FRAME_OK;
	}

	__u32 method = dwell_where_version(where) == 4 ? DWELL_ICMP : DWELL_ICMPV6;

	if (proto != (method == DWELL_ICMP ? DWELL_PROTO_ICMP : DWELL_PROTO_ICMPV6) ||
	    !dwell_method_enabled(config, method))
		return DWELL_SKIP_PROTOCOL;
	DWELL_PEEK(struct dwell_icmp_echo, echo, l4_offset, DWELL_SKIP_TRUNCATED);
	if (l4_bytes < sizeof(*echo))
		return DWELL_SKIP_MALFORMED;
	__u8 request = method == DWELL_ICMP ? 8 : 128, reply = method == DWELL_ICMP ? 0 : 129;

	if (echo->type != request && echo->type != reply)
		return DWELL_SKIP_PROTOCOL;
	packet->kind = DWELL_KIND_ICMP;
	packet->is_answer = echo->type == reply;
	packet->may_open = !packet->is_answer;
	packet->seq = dwell_ntohs(echo->seq);
	packet->payload_bytes = l4_bytes - sizeof(*echo);
	dwell_set_key(packet, &src, &dst, dwell_ntohs(echo->id), dwell_ntohs(echo->id));
	if (src.low == dst.low && src.high == dst.high) /* ping to itself */
		packet->direction = packet->is_answer;
	return DWELL_FRAME_OK;
}

#endif
