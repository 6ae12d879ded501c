/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow and direction of any packet, for programs that need nothing else: encrypted packets, fragments and unknown
 * protocols count too.
 */
#ifndef DWELL_PARSE_ARRIVAL_H
#define DWELL_PARSE_ARRIVAL_H

#include "parse/cid.h"
#include "parse/content.h"
#include "parse/filter.h"
#include "parse/transport.h"

#define DWELL_PROTO_ESP 50

#define DWELL_WIREGUARD_DATA 4 /* message type, as the first 32 bits in memory */
#define DWELL_WIREGUARD_BYTES 32

struct dwell_wireguard_data {
	__u32 type;
	__u32 receiver;
} DWELL_PACKED;

struct dwell_esp {
	__u32 spi;
} DWELL_PACKED;

/* Locates the IP header that identifies the flow: the innermost that can be reached, even if no parser knows what it
 * carries; with `outer` the first. Adds what encloses it to `tunnel`.
 */
static __always_inline dwell_where dwell_locate_any(DWELL_FRAME *frame, const void *data, const void *end, __u32 link,
						    int outer, __u32 *tunnel)
{
	dwell_walk walk = dwell_walk_link(data, end, link), last = 0;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (int hop = 0; hop < DWELL_MAX_HOPS; hop++) {
		__u32 layer = dwell_walk_layer(walk), error = dwell_walk_next(walk);

		if (layer == DWELL_LAYER_FOUND || (outer && layer == DWELL_LAYER_PROTO))
			return DWELL_WHERE(dwell_walk_ip(walk), dwell_walk_offset(walk), dwell_walk_next(walk),
					   dwell_walk_version(walk));
		if (layer == DWELL_LAYER_ERROR) {
			if (error == DWELL_SKIP_PROTOCOL && last)
				return DWELL_WHERE(dwell_walk_ip(last), dwell_walk_offset(last), dwell_walk_next(last),
						   dwell_walk_version(last));
			if (error == DWELL_SKIP_FRAGMENT && dwell_walk_layer(last) == DWELL_LAYER_TYPE)
				return DWELL_WHERE(dwell_walk_offset(last),
						   dwell_walk_offset(last) + sizeof(struct dwell_ipv4),
						   DWELL_PROTO_FRAGMENT, 4);
			if (error == DWELL_SKIP_FRAGMENT && last)
				return DWELL_WHERE(dwell_walk_ip(last), dwell_walk_offset(last), DWELL_PROTO_FRAGMENT,
						   dwell_walk_version(last));
			return DWELL_WHERE_ERROR(error);
		}
		last = walk;
		*tunnel = dwell_walk_tunnel(frame, walk, *tunnel);
		walk = dwell_walk_step(frame, walk);
	}
	return DWELL_WHERE_ERROR(DWELL_SKIP_DEPTH);
}

/* Parses a packet as far as its flow, and TCP's numbers if they are visible. Returns DWELL_FRAME_OK, or the counter
 * that says why not. The caller has set `wire_bytes`, `segments` and `key.interface`.
 */
static __always_inline __u32 dwell_arrival_parse_any(const void *data, const void *end, dwell_where where, __u32 wanted,
						     struct dwell_packet *packet)
{
	__u32 l4_offset = dwell_where_l4(where), failed;
	struct dwell_address src = {}, dst = {};
	struct dwell_transport transport;
	__u8 proto = dwell_where_proto(where);

	failed = dwell_parse_ip(data, end, where, packet->wire_bytes, &src, &dst, &packet->payload_bytes);
	if (failed)
		return failed;
	if (l4_offset > 2 * DWELL_MAX_OFFSET)
		return DWELL_SKIP_DEPTH;
	packet->ip_bytes = packet->payload_bytes + l4_offset - dwell_where_ip(where);
	packet->proto = proto;
	packet->kind = DWELL_KIND_OTHER;
	packet->may_open = 1;
	packet->key_kind = wanted == DWELL_KEY_OUTER ? DWELL_KEY_OUTER : DWELL_KEY_IP_PAIR;
	if (wanted == DWELL_KEY_IP_PAIR || wanted == DWELL_KEY_OUTER) {
		dwell_set_key(packet, &src, &dst, 0, 0);
		return DWELL_FRAME_OK;
	}
	if (proto == DWELL_PROTO_TCP) {
		failed = dwell_read_tcp(data, end, l4_offset, packet->payload_bytes, packet, &transport);
		if (failed != DWELL_FRAME_OK)
			return failed;
		packet->key_kind = DWELL_KEY_5TUPLE;
		dwell_set_key(packet, &src, &dst, transport.src_port, transport.dst_port);
		dwell_read_turn(data, end, l4_offset, packet);
		return DWELL_FRAME_OK;
	}
	if (proto == DWELL_PROTO_UDP) {
		failed = dwell_read_udp(data, end, l4_offset, packet->payload_bytes, dwell_where_version(where) == 6,
					packet, &transport);
		if (failed != DWELL_FRAME_OK)
			return failed;
		l4_offset += transport.header_bytes;
		if (wanted != DWELL_KEY_5TUPLE && packet->payload_bytes >= DWELL_WIREGUARD_BYTES &&
		    !(packet->payload_bytes & 15)) {
			DWELL_PEEK(struct dwell_wireguard_data, message, l4_offset, DWELL_SKIP_TRUNCATED);
			if (message->type == DWELL_WIREGUARD_DATA) {
				packet->key_kind = DWELL_KEY_WIREGUARD;
				dwell_set_key(packet, &src, &dst, transport.src_port, transport.dst_port);
				dwell_set_key_id(packet, message->receiver);
				return DWELL_FRAME_OK;
			}
		}
		packet->key_kind = DWELL_KEY_5TUPLE;
		if (wanted == DWELL_KEY_AUTO || wanted == DWELL_KEY_QUIC_CID)
			dwell_quic_peek(data, end, l4_offset, wanted == DWELL_KEY_QUIC_CID, packet);
		dwell_set_key(packet, &src, &dst, transport.src_port, transport.dst_port);
		return DWELL_FRAME_OK;
	}
	if (proto == DWELL_PROTO_ESP && wanted != DWELL_KEY_5TUPLE) {
		DWELL_PEEK(struct dwell_esp, esp, l4_offset, DWELL_SKIP_TRUNCATED);
		packet->key_kind = DWELL_KEY_ESP;
		dwell_set_key(packet, &src, &dst, 0, 0);
		dwell_set_key_id(packet, dwell_ntohl(esp->spi));
		return DWELL_FRAME_OK;
	}
	dwell_set_key(packet, &src, &dst, 0, 0);
	return DWELL_FRAME_OK;
}

/* Parses a packet as dwell_arrival_parse_any() does, and rejects it if it does not have the wanted key. */
static __always_inline __u32 dwell_arrival_parse(const void *data, const void *end, dwell_where where, __u32 wanted,
						 struct dwell_packet *packet)
{
	__u32 result = dwell_arrival_parse_any(data, end, where, wanted, packet);

	if (result == DWELL_FRAME_OK && wanted != DWELL_KEY_AUTO && packet->key_kind != wanted)
		return DWELL_SKIP_PROTOCOL;
	return result;
}

/* Returns the direction of the client's packets, from a flow's first packet: as the user's list of servers says, else
 * from the sender of the SYN, else from a port that hardly any client has, else from the sender of the packet. Clients may
 * be given ports from 1024 on: of two ports below those that are usual for them, the lower one is the server's.
 */
static __always_inline __u32 dwell_client_direction(const struct dwell_filter *servers,
						    const struct dwell_packet *packet)
{
	const struct dwell_flow_key *key = &packet->key;
	__u16 a_port = dwell_a_port(packet), b_port = dwell_b_port(packet);
	__u32 direction = packet->direction & 1;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_FILTER_RULES; i++) {
		if (i >= servers->rules)
			break;
		if (dwell_rule_covers(&servers->rule[i], &key->b, b_port))
			return 0;
		if (dwell_rule_covers(&servers->rule[i], &key->a, a_port))
			return 1;
	}
	if (packet->kind == DWELL_KIND_TCP && packet->tcp_flags & DWELL_TCP_SYN)
		return packet->tcp_flags & DWELL_TCP_ACK ? !direction : direction;
	if (packet->key_kind == DWELL_KEY_5TUPLE || packet->key_kind == DWELL_KEY_QUIC_CID) {
		if (b_port < DWELL_EPHEMERAL_PORT && b_port < a_port)
			return 0;
		if (a_port < DWELL_EPHEMERAL_PORT && a_port < b_port)
			return 1;
	}
	return direction;
}

#endif
