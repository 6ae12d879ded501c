/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the matchers of `dwell rtt` need of a packet: TCP options, DNS questions, QUIC headers, echo requests. */
#ifndef DWELL_RTT_PARSE_H
#define DWELL_RTT_PARSE_H

#include "parse/transport.h"
#include "rtt/embed.h"

/* One TCP option: its kind and the offset of the next one (0 after the last, and if a length contradicts itself), or
 * DWELL_OPTION_CUT if it is cut off.
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

/* Returns a hash of transaction and question, with letters folded (RFC 4343), whose lower bits are never 0; 0 if the
 * message is not a query or response with exactly one question; DWELL_DNS_CUT if it is cut off. Bit 31 marks a
 * response. The caller has checked the ports.
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
		/* A zero byte ends the name; labels do not contain one in practice. A length is below 64, so that
		 * folding does not change it.
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

static __always_inline int dwell_method_enabled(const struct dwell_rtt_config *config, __u32 method)
{
	return config->methods >> method & 1;
}

#ifdef DWELL_FRAME_IS_NATIVE
static inline __u32 dwell_tcp_option(const struct dwell_frame *frame, __u32 at, __u32 stop)
{
	return dwell_tcp_option_in(frame->data, frame->end, at, stop);
}

static inline __u32 dwell_dns_question(const struct dwell_frame *frame, __u32 offset)
{
	return dwell_dns_question_in(frame->data, frame->end, offset);
}
#endif

/* Finds the timestamp and SACK options, in any order. */
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
			packet->rtt.has_sack = 1;
		if (dwell_option_kind(option) == DWELL_OPTION_TS)
			ts_end = at;
	}
	if (ts_end < 8 || ts_end > 4 * DWELL_MAX_OFFSET)
		return DWELL_FRAME_OK;
	DWELL_PEEK(__u64, values, ts_end - 8, DWELL_SKIP_TRUNCATED);
	packet->rtt.has_ts = 1;
	packet->rtt.tsval = dwell_ntohl((__u32)*values);
	packet->rtt.tsecr = dwell_ntohl(*values >> 32);
	return DWELL_FRAME_OK;
}

/* Returns true if the ECN field of the IP header is CE: the lowest bits of the traffic class in either version. */
static __always_inline int dwell_has_ce(const void *data, const void *end, dwell_where where)
{
	__u32 ip_offset = dwell_where_ip(where);

	if (ip_offset > DWELL_MAX_OFFSET)
		return 0;
	DWELL_PEEK(__u16, head, ip_offset, 0);
	return (*head >> (dwell_where_version(where) == 4 ? 8 : 12) & 3) == 3;
}

/* Parses the packet that a dwell_locate_*() function found. Returns DWELL_FRAME_OK, or the counter that says why the
 * packet is of no use. The caller has set `segments`, `wire_bytes` and `key.interface`.
 */
static __always_inline __u32 dwell_rtt_parse(DWELL_FRAME *frame, const void *data, const void *end, dwell_where where,
					     const struct dwell_rtt_config *config, struct dwell_packet *packet)
{
	__u32 l4_offset = dwell_where_l4(where), l4_bytes, failed;
	struct dwell_address src = {}, dst = {};
	struct dwell_transport transport;
	__u8 proto = dwell_where_proto(where);

	failed = dwell_parse_ip(data, end, where, packet->wire_bytes, &src, &dst, &l4_bytes);
	if (failed)
		return failed;
	if (l4_offset > 2 * DWELL_MAX_OFFSET)
		return DWELL_SKIP_DEPTH;
	packet->proto = proto;
	packet->rtt.ce = dwell_has_ce(data, end, where);

	if (proto == DWELL_PROTO_TCP) {
		if (!dwell_method_enabled(config, DWELL_TCP_TIMESTAMP) && !dwell_method_enabled(config, DWELL_TCP_SEQ))
			return DWELL_SKIP_PROTOCOL;
		failed = dwell_read_tcp(data, end, l4_offset, l4_bytes, packet, &transport);
		if (failed != DWELL_FRAME_OK)
			return failed;
		DWELL_PEEK(struct dwell_tcp, tcp, l4_offset, DWELL_SKIP_TRUNCATED);
		__u32 header = transport.header_bytes;

		if (header == sizeof(*tcp) && !dwell_method_enabled(config, DWELL_TCP_SEQ) &&
		    !(tcp->flags & DWELL_TCP_RST))
			return DWELL_SKIP_PROTOCOL;
		packet->rtt.window = tcp->window;
		dwell_set_key(packet, &src, &dst, transport.src_port, transport.dst_port);
		packet->rtt.has_ts = 0;
		packet->rtt.has_sack = 0;
		if (header == sizeof(*tcp))
			return DWELL_FRAME_OK;
		if (header == sizeof(*tcp) + sizeof(struct dwell_tcp_ts_option)) {
			DWELL_PEEK(struct dwell_tcp_ts_option, ts, l4_offset + sizeof(*tcp), DWELL_SKIP_TRUNCATED);
			if (dwell_likely(ts->head == DWELL_TCP_TS_HEAD)) {
				packet->rtt.has_ts = 1;
				packet->rtt.tsval = dwell_ntohl(ts->value);
				packet->rtt.tsecr = dwell_ntohl(ts->echo);
				return DWELL_FRAME_OK;
			}
		}
		return dwell_parse_options(frame, data, end, l4_offset + sizeof(*tcp), l4_offset + header, packet);
	}
	if (proto == DWELL_PROTO_UDP) {
		failed = dwell_read_udp(data, end, l4_offset, l4_bytes, dwell_where_version(where) == 6, packet,
					&transport);
		if (failed != DWELL_FRAME_OK)
			return failed;
		__u16 src_port = transport.src_port, dst_port = transport.dst_port;
		__u32 payload_offset = l4_offset + transport.header_bytes;

		if (src_port == 53 || dst_port == 53) {
			if (!dwell_method_enabled(config, DWELL_DNS))
				return DWELL_SKIP_PROTOCOL;
			__u32 question = dwell_dns_question(frame, payload_offset);

			if (!question)
				return DWELL_SKIP_PROTOCOL;
			if (question == DWELL_DNS_CUT)
				return DWELL_SKIP_TRUNCATED;
			packet->kind = DWELL_KIND_DNS;
			packet->rtt.dns_hash = question & 0x7fffffff;
			packet->rtt.is_answer = question >> 31;
			packet->may_open = !packet->rtt.is_answer;
		} else {
			if (!dwell_method_enabled(config, DWELL_QUIC_SPIN) &&
			    !dwell_method_enabled(config, DWELL_QUIC_SPIN_LOOP) &&
			    !dwell_method_enabled(config, DWELL_QUIC_HANDSHAKE))
				return DWELL_SKIP_PROTOCOL;
			if (packet->payload_bytes < sizeof(struct dwell_quic_long))
				return DWELL_SKIP_PROTOCOL;
			DWELL_PEEK(struct dwell_quic_long, quic, payload_offset, DWELL_SKIP_TRUNCATED);
			packet->rtt.quic_first = quic->first;
			packet->rtt.quic_version = 0;
			if (quic->first & 0x80) {
				__u32 version = dwell_ntohl(quic->version);

				/* v1, v2 (RFC 9369), and drafts that had the spin bit; 0 is version negotiation */
				if (version != 1 && version != 0x6b3343cf && version != 0 &&
				    (version < 0xff000011 || version > 0xff000022))
					return DWELL_SKIP_PROTOCOL;
				packet->rtt.quic_version = version;
				packet->may_open = version != 0;
			} else {
				/* Without the fixed bit, a packet only belongs to a known flow: its ends may have
				 * agreed to grease it (RFC 9287).
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
	packet->rtt.is_answer = echo->type == reply;
	packet->may_open = !packet->rtt.is_answer;
	packet->seq = dwell_ntohs(echo->seq);
	packet->payload_bytes = l4_bytes - sizeof(*echo);
	dwell_set_key(packet, &src, &dst, dwell_ntohs(echo->id), dwell_ntohs(echo->id));
	if (src.low == dst.low && src.high == dst.high) /* a host pings itself */
		packet->direction = packet->rtt.is_answer;
	return DWELL_FRAME_OK;
}

#endif
