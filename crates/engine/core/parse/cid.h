/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* QUIC connections that keep their flow though the client's address changes
 * under them (RFC 9000 section 9.5: a NAT that forgot it).
 *
 * A flow is found by its addresses and ports, whatever connection ID the client
 * takes. Ends that are new, and do not begin a connection, may be those of a
 * known one: then the destination connection ID is the one seen last between
 * its old ends. A short header does not say how long the ID is. Its first eight
 * bytes are taken, if two packets in a row have them: behind a shorter ID all is
 * encrypted, and differs each time.
 */
#ifndef DWELL_PARSE_CID_H
#define DWELL_PARSE_CID_H

#include "parse/packet.h"

#define DWELL_QUIC_FIXED 0x40
#define DWELL_QUIC_LONG 0x80
/* What holds an Initial is padded to this (RFC 9000 section 14.1). */
#define DWELL_QUIC_INITIAL_BYTES 1200
/* A shorter packet with a short header cannot be valid (section 10.3). */
#define DWELL_QUIC_SHORT_BYTES 21

struct dwell_quic_short {
	__u8 first;
	__u64 cid;
} DWELL_PACKED;

/* What a datagram shows of QUIC. Unless `sure`, it may be anything, and only
 * what an Initial fits is taken for the begin of a connection.
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
		packet->cid = brief->cid;
}

/* Where the flow of a connection ID is. What it says is checked at the flow. */
struct dwell_alias {
	__u64 token;
	__u32 slot_index;
	__u32 reserved;
};

/* One of its server's connection IDs. Never 0. */
static __always_inline __u64 dwell_cid_token(const struct dwell_packet *packet, __u32 client, __u64 seed)
{
	const struct dwell_flow_key *key = &packet->key;
	const struct dwell_address *server = client ? &key->a : &key->b;
	__u64 token = dwell_mix(seed, packet->cid);

	token = dwell_mix(token, server->high ^ (client ? key->a_port : key->b_port));
	token = dwell_mix(token, server->low);
	return token ? token : 1;
}

/* What a flow keeps of it: enough to tell that it is still the one of an alias. */
static __always_inline __u32 dwell_token_short(__u64 token)
{
	return (__u32)(token >> 32) | 1;
}

#endif
