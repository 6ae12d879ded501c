/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Address-validation tokens (RFC 9000 section 8.1.3), by which a client that returns names the server that knows its
 * session, wherever it sends from. A server begins its tokens with a block like our own connection IDs (lb/quic_lb.h):
 *
 *   octet 0: rotation (3 bits), 16 (5 bits)
 *   server ID (2 octets), check (6), freshness (6), lifetime in minutes (2): one AES block
 *
 * What follows is the server's. Clients send a token in clear, in the header of each Initial, which RFC 9000 and RFC 9369
 * define; packets of other versions have none here.
 */
#ifndef DWELL_LB_TOKEN_H
#define DWELL_LB_TOKEN_H

#include "lb/zero_rtt.h"

/* Beside the ID of a server that has left, in place of the number of the real that a token leads to. */
#define DWELL_TOKEN_LEFT (1U << 31)

/* Versions as they lie on the wire, and the bits of a packet's type in its first octet. */
#define DWELL_QUIC_1 dwell_ntohl(1)
#define DWELL_QUIC_2 dwell_ntohl(0x6b3343cf)
#define DWELL_QUIC_TYPE 0x30
#define DWELL_QUIC_2_INITIAL 0x10

/* Returns true if a long header is that of an Initial. The fixed bit does not matter, as clients may vary it (RFC 9287).
 */
static __always_inline int dwell_is_initial(const struct dwell_quic_long *quic)
{
	__u8 type = quic->first & DWELL_QUIC_TYPE;

	return (quic->version == DWELL_QUIC_1 && !type) ||
	       (quic->version == DWELL_QUIC_2 && type == DWELL_QUIC_2_INITIAL);
}

/* Returns the offset behind the connection ID whose length is at `at`; 0 if it is longer than any. */
static __always_inline __u32 dwell_token_skip_cid(const void *data, const void *end, __u32 at)
{
	__u32 bytes;

	DWELL_PEEK(__u8, length, at, 0);
	bytes = *length;
	return bytes <= DWELL_CID_MAX_BYTES ? at + 1 + bytes : 0;
}

/* Returns the offset of the token in the QUIC packet at `at`; 0 if there is none that could begin with a block. Its length
 * has one, two, four or eight octets, and need not have the fewest (RFC 9000 section 16). Eight are there in any case, as
 * no block is shorter.
 */
static __always_inline __u32 dwell_token_find(const void *data, const void *end, __u32 at, __u32 payload_bytes)
{
	__u32 limit = at + payload_bytes, octets;
	__u64 bytes;

	DWELL_PEEK(struct dwell_quic_long, quic, at, 0);
	if (!dwell_is_initial(quic))
		return 0;
	at = dwell_token_skip_cid(data, end, at + sizeof(*quic));
	if (!at)
		return 0;
	at = dwell_token_skip_cid(data, end, at);
	if (!at)
		return 0;
	DWELL_PEEK(struct dwell_cid_begin, length, at, 0);
	bytes = __builtin_bswap64(length->word);
	octets = 1 << (bytes >> 62);
	bytes = bytes << 2 >> (66 - 8 * octets);
	DWELL_OPAQUE(octets);
	at += octets & 15;
	return bytes >= DWELL_CID_OWN_BYTES && at + bytes <= limit ? at : 0;
}

/* Opens the token at this offset: its ID is in dwell_zero_work.id then, and its stamp in the entry. Returns as
 * dwell_zero_open_block().
 */
static __always_inline __u32 dwell_token_open(const void *data, const void *end, void *embedder,
					      const struct dwell_packet *packet, __u32 at,
					      struct dwell_cid_entry *entry, int dry_run)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, packet->lb.attempt);
	__u32 rotation;

	DWELL_PEEK(__u8, first, at, DWELL_ZERO_NONE(DWELL_ZERO_TOKEN_OTHER));
	DWELL_PEEK(struct dwell_cid_words, words, at + 1, DWELL_ZERO_NONE(DWELL_ZERO_TOKEN_OTHER));
	rotation = *first >> 5;
	if (!vip || rotation >= DWELL_CID_ROTATIONS || !vip->layout[rotation].stamped ||
	    (*first & 31) != DWELL_CID_OWN_BYTES - 1)
		return DWELL_ZERO_NONE(DWELL_ZERO_TOKEN_OTHER);
	entry->cid[0] = words->word[0];
	entry->cid[1] = words->word[1];
	entry->slot = packet->lb.attempt;
	entry->noted = 0; /* a forged one is known as such: dwell_zero_is_forged() */
	if (!dry_run && !dwell_zero_may_open(embedder, packet))
		return DWELL_ZERO_NONE(DWELL_ZERO_TOKEN_UNOPENED);
	return dwell_zero_open_own(embedder, rotation, DWELL_TOKEN_CHECK, entry);
}

/* Returns true if a token has expired, or is from the future by more than clocks may differ. */
static __always_inline int dwell_token_is_old(void *embedder, const struct dwell_zero_vip *vip, __u64 stamp)
{
	__s32 age_s = dwell_zero_now_s(embedder) - dwell_cid_stamp_seconds(stamp);
	__s32 lifetime_s = dwell_cid_stamp_wait(stamp) * 60;

	return age_s > lifetime_s || age_s < -(__s32)vip->overload.slack_s;
}

/* Stores where the token of a server leads: to this server, or to the successor of one that has left and may have handed
 * its sessions over. One that is down has them still, so that others are as good as its successor: its token leads
 * nowhere. Returns what is counted.
 */
static __always_inline __u32 dwell_token_lead(void *embedder, const struct dwell_zero_vip *vip,
					      struct dwell_packet *packet, __u32 server)
{
	const struct dwell_server_load *loads = dwell_zero_loads_at(embedder, packet->lb.attempt);
	const struct dwell_zero_work *work = dwell_zero_work_of(embedder);
	__u32 index = server & (DWELL_SERVERS_MAX - 1), real;

	if (!loads || !work)
		return DWELL_ZERO_TOKEN_OTHER;
	if (dwell_zero_is_none(server) || loads[index].flags & DWELL_SERVER_LEFT) {
		packet->lb.token = DWELL_TOKEN_LEFT | (work->id & 0xffff);
		return DWELL_ZERO_TOKEN_LEFT;
	}
	real = vip->server[index].real;
	if (loads[index].flags & DWELL_SERVER_OUT || !dwell_is_up(dwell_real_at(embedder, real)))
		return DWELL_ZERO_TOKEN_DOWN;
	packet->lb.token = real;
	return DWELL_ZERO_TOKEN;
}

/* Stores where the token at this offset leads. Returns what is counted, an enum dwell_zero_counter. */
static __always_inline __u32 dwell_token_follow(const void *data, const void *end, void *embedder,
						struct dwell_packet *packet, __u32 at, int dry_run)
{
	struct dwell_cid_entry *entry = dwell_cid_scratch(embedder);
	const struct dwell_zero_vip *vip;
	__u32 server, counter;

	if (!entry)
		return DWELL_ZERO_TOKEN_OTHER;
	server = dwell_token_open(data, end, embedder, packet, at, entry, dry_run);
	counter = dwell_zero_counter_of(server);
	if (dwell_zero_is_none(server) && counter != DWELL_ZERO_NO_SERVER)
		return counter == DWELL_ZERO_FORGED ? DWELL_ZERO_TOKEN_FORGED : counter;
	vip = dwell_zero_vip_at(embedder, packet->lb.attempt);
	if (!vip || dwell_token_is_old(embedder, vip, entry->stamp))
		return DWELL_ZERO_TOKEN_OLD;
	return dwell_token_lead(embedder, vip, packet, server);
}

/* Takes note of a token that was opened. An old one tells nothing of its network: it is not forged, and who has it can
 * send it for ever.
 */
static __always_inline void dwell_token_note(void *embedder, const struct dwell_packet *packet, __u32 counter)
{
	__u32 is_forged = counter == DWELL_ZERO_TOKEN_FORGED;
	const struct dwell_cid_entry *entry = dwell_cid_scratch(embedder);

	if (entry && (is_forged || counter == DWELL_ZERO_TOKEN || counter == DWELL_ZERO_TOKEN_LEFT ||
		      counter == DWELL_ZERO_TOKEN_DOWN))
		dwell_zero_note_opened(embedder, packet, entry, is_forged ? DWELL_ZERO_NONE(DWELL_ZERO_FORGED) : 0);
}

/* Reads the token of the Initial at offset `at`, which may open a connection, and stores where it leads in
 * packet->lb.token.
 */
static __always_inline void dwell_token_read(const void *data, const void *end, void *embedder,
					     struct dwell_packet *packet, __u32 at, int dry_run)
{
	__u32 counter;

	DWELL_OPAQUE(at);
	if (at > 4 * DWELL_MAX_OFFSET)
		return;
	at = dwell_token_find(data, end, at, packet->payload_bytes);
	if (!at)
		return;
	counter = dwell_token_follow(data, end, embedder, packet, at, dry_run);
	if (dry_run)
		return;
	dwell_zero_count(embedder, counter);
	dwell_token_note(embedder, packet, counter);
}

/* Returns the hash by which the Maglev table selects the successor of a server: the same at all balancers, for all
 * clients.
 */
static __always_inline __u64 dwell_token_hash(__u32 token, __u64 seed)
{
	return dwell_mix(dwell_mix(seed, token), seed);
}

#endif
