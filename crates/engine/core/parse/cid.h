/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* QUIC connections that keep their flow although the client's address changes (RFC 9000 section 9.5: a NAT that forgot
 * it).
 *
 * A flow is found by its addresses and ports, whatever connection ID the client uses. New endpoints that do not begin a
 * connection may belong to a known one: then the destination connection ID is the one last used between its old
 * endpoints. A short header does not state the length of the ID. Its first eight bytes are used if two consecutive
 * packets have the same: behind a shorter ID everything is encrypted, and differs each time.
 */
#ifndef DWELL_PARSE_CID_H
#define DWELL_PARSE_CID_H

#include "parse/packet.h"

#define DWELL_QUIC_FIXED 0x40
#define DWELL_QUIC_LONG 0x80
/* Least size of a datagram with an Initial (RFC 9000 section 14.1). */
#define DWELL_QUIC_INITIAL_BYTES 1200
/* Least size of a packet with a short header (RFC 9000 section 10.3). */
#define DWELL_QUIC_SHORT_BYTES 21

struct dwell_quic_short {
	__u8 first;
	__u64 cid;
} DWELL_PACKED;

/* Reads what a datagram shows of QUIC. Unless `sure`, it may be any protocol, and only a datagram that could hold an
 * Initial is taken for the beginning of a connection.
 */
static __always_inline void dwell_quic_peek(const void *data, const void *end, __u32 offset, int sure,
					    struct dwell_packet *packet)
{
	const struct dwell_quic_long *quic;
	const struct dwell_quic_short *brief;

	if (offset > 3 * DWELL_MAX_OFFSET)
		return;
	quic = data + offset;
	if ((const void *)(quic + 1) > end || !(quic->first & DWELL_QUIC_FIXED))
		return;
	if (quic->first & DWELL_QUIC_LONG) {
		if (quic->version && (sure || packet->payload_bytes >= DWELL_QUIC_INITIAL_BYTES))
			packet->key_kind = DWELL_KEY_QUIC_CID;
		return;
	}
	if (sure)
		packet->key_kind = DWELL_KEY_QUIC_CID;
	brief = data + offset;
	if ((const void *)(brief + 1) <= end && packet->payload_bytes >= DWELL_QUIC_SHORT_BYTES)
		packet->response.cid = brief->cid;
}

/* Leads from a connection ID to the slot of its flow, where it must be verified. */
struct dwell_alias {
	__u64 token;
	__u32 slot_index;
	__u32 reserved;
};

/* Returns the token of a connection ID of the packet's server; never 0. */
static __always_inline __u64 dwell_cid_token(const struct dwell_packet *packet, __u32 client, __u64 seed)
{
	const struct dwell_flow_key *key = &packet->key;
	const struct dwell_address *server = client ? &key->a : &key->b;
	__u64 token = dwell_mix(seed, packet->response.cid);

	token = dwell_mix(token, server->high ^ (client ? key->a_port : key->b_port));
	token = dwell_mix(token, server->low);
	return token ? token : 1;
}

/* Returns the part of a token that a flow keeps, to verify that an alias leads to it. */
static __always_inline __u32 dwell_token_short(__u64 token)
{
	return (__u32)(token >> 32) | 1;
}

#endif
