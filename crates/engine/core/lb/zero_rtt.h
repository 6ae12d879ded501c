/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Routes a QUIC packet by its destination connection ID, and but for tokens by nothing else than what RFC 8999 says of
 * every version: the form of the header, and where the connection ID is. docs/method/zero-rtt.md gives the rules and
 * their reasons.
 * - A connection ID that names a server: to that server. In a long header only if it is as young as a handshake.
 * - A long header whose ID names no server: a new connection. The connection table keeps it together by its endpoints
 *   and the ID that its client chose. If it is not in the table, the server is selected that its token names
 *   (lb/token.h), else by the client's address from the Maglev table; or, if that server is overloaded and the client
 *   heavy, the least loaded one.
 * - A short header whose ID names no server: nowhere.
 */
#ifndef DWELL_LB_ZERO_RTT_H
#define DWELL_LB_ZERO_RTT_H

#include "lb/embed.h"
#include "lb/heavy.h"
#include "lb/opening.h"
#include "lb/overload.h"
#include "table/table.h"
#include "lb/parse.h"
#include "lb/zero_rtt_types.h"

/* Number and slot of the VIP that a packet is sent to; 0 if the VIP does not route by connection ID. */
typedef __u64 dwell_zero_vip_id;
#define dwell_zero_number_of(id) ((__u32)((id) >> 32))
#define dwell_zero_slot_of(id) ((__u32)(id))

/* In place of an enum dwell_reason: the packet is routed as any UDP. */
#define DWELL_REASON_FLOW 0xff

/* In place of a server's index: there is none, and this counter says why. */
#define DWELL_ZERO_NONE(counter) (1U << 31 | (counter))
#define dwell_zero_is_none(server) ((server) >> 31)
#define dwell_zero_counter_of(server) ((server)&0xff)

/* The beginning of a connection ID that a client chose, which identifies it: such IDs have at least 8 octets (RFC 9000
 * section 7.2).
 */
struct dwell_cid_begin {
	__u64 word;
} DWELL_WORDS(8);

/* The octets after the first of our own connection IDs. */
struct dwell_cid_words {
	__u64 word[2];
} DWELL_WORDS(8);

static __always_inline __u32 dwell_zero_bit(const struct dwell_address *address, __u16 port)
{
	__u64 word = address->high ^ address->low;

	return ((__u32)(word ^ word >> 32 ^ port) * 0x9e3779b1) >> 20;
}

static __always_inline int dwell_is_up(const struct dwell_real *real)
{
	return real && real->interface && !(real->flags & DWELL_REAL_DOWN);
}

static __always_inline __u32 dwell_zero_now_s(void *embedder)
{
	const struct dwell_zero_state *state = dwell_zero_state_of(embedder);

	return dwell_zero_clock_s(embedder) + (state ? state->unix_offset_s : 0);
}

/* Returns what identifies a client: its IPv4 address, or the network of its IPv6 address, as the rest changes by itself
 * (RFC 8981).
 */
static __always_inline struct dwell_address dwell_zero_client(const struct dwell_packet *packet)
{
	struct dwell_address client = packet->direction & 1 ? packet->key.b : packet->key.a;

	if (!dwell_is_v4(&client))
		client.low = 0;
	return client;
}

static __always_inline __u16 dwell_zero_client_port(const struct dwell_packet *packet)
{
	return packet->direction & 1 ? packet->key.b_port : packet->key.a_port;
}

/* Returns the index of the server whose ID is in the plaintext of `work`. */
static __always_inline __u32 dwell_zero_find_named(void *embedder, __u32 slot, const struct dwell_cid_config *layout,
						   struct dwell_zero_work *work)
{
	__u32 server;

	__builtin_memset(&work->name, 0, sizeof(work->name));
	work->name.slot = slot;
	work->name.bytes = layout->server_id_bytes;
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < sizeof(work->name.id) && i < layout->server_id_bytes; i++)
		work->name.id[i] = work->plain.octet[i];
	server = dwell_zero_server_by_name(embedder, &work->name);
	return server ? server - 1 : DWELL_ZERO_NONE(DWELL_ZERO_NO_SERVER);
}

/* Opens the connection ID or token of one block that is in the entry, and stores its stamp there if our own layout has
 * one. That layout needs this check, and stores the ID in dwell_zero_work.id. Returns the server's index, or
 * DWELL_ZERO_NONE().
 */
static __always_inline __u32 dwell_zero_open_block(void *embedder, __u32 rotation, __u64 check,
						   struct dwell_cid_entry *entry)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, entry->slot);
	struct dwell_zero_work *work = dwell_zero_work_of(embedder);
	__u32 id, server;

	if (!vip || !work || rotation >= DWELL_CID_ROTATIONS)
		return DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT);
	dwell_block_read(&work->block, (const __u8 *)entry->cid);
	dwell_aes128_decrypt(&vip->layout[rotation].key, &work->block);
	if (!vip->layout[rotation].stamped) {
		dwell_block_write(&work->block, work->plain.octet);
		return dwell_zero_find_named(embedder, entry->slot, &vip->layout[rotation], work);
	}
	id = dwell_cid_stamped(&work->block, check, &entry->stamp);
	if (id == DWELL_CID_FORGED)
		return DWELL_ZERO_NONE(DWELL_ZERO_FORGED);
	work->id = id;
	server = dwell_zero_server_by_id(embedder, entry->slot, id);
	return server ? server - 1 : DWELL_ZERO_NONE(DWELL_ZERO_NO_SERVER);
}

/* Opens a connection ID in the clear or of four passes, from offset `at` of the frame. Returns as
 * dwell_zero_open_block().
 */
static __always_inline __u32 dwell_zero_open_other(const void *data, const void *end, void *embedder, __u32 slot,
						   __u32 rotation, __u32 at)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, slot);
	struct dwell_zero_work *work = dwell_zero_work_of(embedder);
	const struct dwell_cid_config *layout;
	__u32 bytes;

	DWELL_OPAQUE(at);
	if (!vip || !work || rotation >= DWELL_CID_ROTATIONS || at > 4 * DWELL_MAX_OFFSET)
		return DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT);
	layout = &vip->layout[rotation];
	bytes = layout->server_id_bytes + layout->nonce_bytes;
	__builtin_memset(&work->plain, 0, sizeof(work->plain));
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_CID_PLAIN_MAX_BYTES && i < bytes; i++) {
		DWELL_PEEK(__u8, octet, at + 1 + i, DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT));
		work->plain.octet[i] = *octet;
	}
	if (layout->cipher == DWELL_CID_FOUR_PASS)
		dwell_cid_four_pass(layout, &work->plain, &work->halves, 1);
	return dwell_zero_find_named(embedder, slot, layout, work);
}

/* Takes over the load that a connection ID reports, once per connection ID. */
static __always_inline void dwell_zero_update_load(void *embedder, const struct dwell_zero_vip *vip,
						   struct dwell_cid_entry *entry)
{
	struct dwell_server_load *loads = dwell_zero_loads_at(embedder, entry->slot);
	__u32 now_s = dwell_zero_now_s(embedder), noted = DWELL_LOAD_FUTURE;

	entry->noted = 1;
	if (!loads)
		return;
	if (dwell_cid_stamp_wait(entry->stamp) <= DWELL_WAIT_MAX)
		noted = dwell_load_update(&loads[entry->server & (DWELL_SERVERS_MAX - 1)], entry->stamp, now_s, now_s,
					  &vip->overload);
	if (noted == DWELL_LOAD_ACCEPTED)
		dwell_zero_count(embedder, DWELL_ZERO_LOAD_UPDATED);
	else if (noted != DWELL_LOAD_NOT_NEWER)
		dwell_zero_count(embedder, DWELL_ZERO_LOAD_REFUSED);
}

/* Accounts a short header that was routed to a server: the load that its ID reports, and the client that sent it. Long
 * headers are not counted, as anybody may send them with IDs that he has overheard. Nor is a packet from another address
 * than the ID's first one: a client that moves takes a new ID (RFC 9000 section 9.5), and whoever has an ID could make
 * any address seem heavy by it.
 */
static __always_inline void dwell_zero_account(void *embedder, const struct dwell_packet *packet,
					       struct dwell_cid_entry *entry)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, entry->slot);
	struct dwell_address client = dwell_zero_client(packet);
	__u16 port = dwell_zero_client_port(packet);
	struct dwell_heavy *heavy;

	if (!vip)
		return;
	if (!entry->noted)
		dwell_zero_update_load(embedder, vip, entry);
	if (!entry->client)
		entry->client = dwell_heavy_tag(&client);
	if (entry->client != (__u16)dwell_heavy_tag(&client))
		return;
	heavy = dwell_heavy_at(embedder, vip->server[entry->server & (DWELL_SERVERS_MAX - 1)].heavy);
	if (heavy && !dwell_heavy_hit(heavy, &client, port, &vip->heavy))
		dwell_zero_admit(embedder, heavy, &client, port, &vip->heavy);
}

/* Returns true if a connection ID is as young as one of a handshake. An older one comes from another connection, whose
 * owner may want to choose a server by it.
 */
static __always_inline int dwell_zero_is_young(void *embedder, const struct dwell_zero_vip *vip, __u64 stamp)
{
	__s32 age_s = dwell_zero_now_s(embedder) - dwell_cid_stamp_seconds(stamp);

	return vip && age_s <= (__s32)vip->window_s && age_s >= -(__s32)vip->overload.slack_s;
}

/* Offset of the destination connection ID in a long header, behind form, version and its length. */
#define DWELL_LONG_CID 6

/* Locates the connection ID. Returns false if it is cut off. */
static __always_inline int dwell_zero_read(const void *data, const void *end, __u32 at, __u32 payload_bytes,
					   struct dwell_zero_header *header)
{
	DWELL_PEEK(__u8, first, at, 0);
	if (!payload_bytes)
		return 0;
	header->is_long = *first >> 7;
	header->at = at + 1;
	header->bytes = payload_bytes - 1;
	if (!header->is_long)
		return 1;
	DWELL_PEEK(__u8, length, at + DWELL_LONG_CID - 1, 0);
	header->at = at + DWELL_LONG_CID;
	header->bytes = *length;
	return payload_bytes >= DWELL_LONG_CID + header->bytes;
}

static __always_inline __u64 dwell_zero_network(const struct dwell_packet *packet)
{
	return dwell_network(packet->direction & 1 ? &packet->key.b : &packet->key.a);
}

/* Returns false if the connection ID of a packet is not to be opened: too many from its network were forged. */
static __always_inline int dwell_opening_may_open(void *embedder, const struct dwell_packet *packet)
{
	__u64 network = dwell_zero_network(packet);
	const struct dwell_opening *bucket = dwell_opening_at(embedder, dwell_opening_bucket(network));

	return !bucket || dwell_opening_may(bucket, network, dwell_zero_clock_s(embedder));
}

/* Returns true if a connection ID was not made with the key, as far as that can be known. `server` is what opening it has
 * returned.
 */
static __always_inline int dwell_zero_is_forged(const struct dwell_cid_entry *entry, __u32 server)
{
	int is_stamped = !entry->noted;

	return dwell_zero_is_none(server) && (!is_stamped || dwell_zero_counter_of(server) == DWELL_ZERO_FORGED);
}

/* Takes note of a connection ID that was opened. The entry's load has not been taken over yet. Returns `server`, which the
 * caller need not keep then.
 */
static __always_inline __u32 dwell_opening_note_opened(void *embedder, const struct dwell_packet *packet,
						       const struct dwell_cid_entry *entry, __u32 server)
{
	__u64 network = dwell_zero_network(packet);
	struct dwell_opening *bucket = dwell_opening_at(embedder, dwell_opening_bucket(network));

	if (bucket)
		dwell_opening_note(bucket, network, dwell_zero_clock_s(embedder), dwell_zero_is_forged(entry, server));
	return server;
}

/* Opens a connection ID of a known layout. Returns as dwell_zero_open(). */
static __always_inline __u32 dwell_zero_decrypt(DWELL_FRAME *frame, void *embedder,
						const struct dwell_cid_config *layout, __u32 rotation,
						const struct dwell_zero_header *header, struct dwell_cid_entry *entry)
{
	if (layout->cipher == DWELL_CID_BLOCK)
		return dwell_zero_open_own(embedder, rotation, DWELL_CID_CHECK, entry);
	return dwell_zero_open_foreign(frame, embedder, entry->slot, rotation, header->at);
}

/* Opens a connection ID and fills the entry. Returns the server's index, or DWELL_ZERO_NONE(). */
static __always_inline __u32 dwell_zero_open(DWELL_FRAME *frame, void *embedder, const struct dwell_zero_vip *vip,
					     const struct dwell_packet *packet, __u32 first,
					     const struct dwell_zero_header *header, struct dwell_cid_entry *entry,
					     int dry_run)
{
	__u32 rotation = first >> 5, bytes, server;
	const struct dwell_cid_config *layout;

	if (rotation >= DWELL_CID_ROTATIONS)
		return DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT);
	layout = &vip->layout[rotation];
	bytes = dwell_cid_bytes(layout);
	if (layout->cipher == DWELL_CID_NONE || header->bytes < bytes || (header->is_long && header->bytes != bytes))
		return DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT);
	entry->noted = !layout->stamped;
	entry->is_block = layout->cipher == DWELL_CID_BLOCK;
	entry->client = 0;
	if (layout->cipher == DWELL_CID_BLOCK && layout->stamped && (first & 31) != DWELL_CID_OWN_BYTES - 1)
		return DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT);
	if (dry_run || layout->cipher == DWELL_CID_CLEAR)
		return dwell_zero_decrypt(frame, embedder, layout, rotation, header, entry);
	if (!dwell_zero_may_open(embedder, packet))
		return DWELL_ZERO_NONE(DWELL_ZERO_UNOPENED);
	server = dwell_zero_decrypt(frame, embedder, layout, rotation, header, entry);
	return dwell_zero_note_opened(embedder, packet, entry, server);
}

/* Returns true if a connection ID was opened, whatever it names. `server` is what dwell_zero_open() returned. */
static __always_inline int dwell_zero_was_opened(__u32 server)
{
	__u32 counter = dwell_zero_counter_of(server);

	return !dwell_zero_is_none(server) || (counter != DWELL_ZERO_NO_LAYOUT && counter != DWELL_ZERO_UNOPENED);
}

/* Adds the connection ID that a client chose to the packet's key, so that connections from one socket stay apart until
 * the server has assigned an ID. Not called with DWELL_ZERO_HASH: later packets carry another ID and must still find
 * the entry.
 */
static __always_inline void dwell_attempt_key(const void *data, const void *end, struct dwell_packet *packet, __u32 at)
{
	__u32 drawn;

	DWELL_OPAQUE(at);
	if (at > 4 * DWELL_MAX_OFFSET)
		return;
	DWELL_PEEK(struct dwell_cid_begin, begin, at, );
	drawn = dwell_mix(begin->word, 0) >> 32;
	packet->key.attempt_id = drawn;
	packet->hash = dwell_mix(dwell_mix(packet->hash, drawn), packet->hash);
}

/* Routes a packet whose connection ID is not in this CPU's cache. Returns as dwell_zero_route(). */
static __always_inline __u32 dwell_zero_unknown(DWELL_FRAME *frame, void *embedder, struct dwell_packet *packet,
						__u32 first, const struct dwell_zero_header *header,
						struct dwell_cid_entry *entry, int dry_run)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, entry->slot);
	__u32 server, real = 0;

	if (!vip)
		return DWELL_REASON_FLOW;
	server = dwell_zero_open(frame, embedder, vip, packet, first, header, entry, dry_run);
	if (!dwell_zero_is_none(server)) {
		entry->server = server;
		real = vip->server[server & (DWELL_SERVERS_MAX - 1)].real;
		entry->real = real;
		if (!real)
			server = DWELL_ZERO_NONE(DWELL_ZERO_NO_SERVER);
		else if (header->is_long && !entry->noted && !dwell_zero_is_young(embedder, vip, entry->stamp))
			server = DWELL_ZERO_NONE(DWELL_ZERO_OLD);
	}
	if (!dry_run && dwell_zero_was_opened(server))
		dwell_zero_count(embedder, DWELL_ZERO_OPENED);
	if (!dwell_zero_is_none(server)) {
		packet->lb.real = real;
		return DWELL_REASON_CID;
	}
	if (!dry_run && header->bytes)
		dwell_zero_count(embedder, dwell_zero_counter_of(server));
	packet->lb.vip = entry->vip_number;
	if (header->is_long) {
		packet->lb.attempt = entry->slot;
		if (header->bytes >= sizeof(struct dwell_cid_begin) && !(vip->flags & DWELL_ZERO_HASH))
			dwell_zero_add_attempt(frame, packet, header->at);
		dwell_zero_read_token(frame, embedder, packet, header->at - DWELL_LONG_CID, dry_run);
		return DWELL_REASON_FLOW;
	}
	return vip->flags & DWELL_ZERO_HASH ? DWELL_REASON_FLOW : DWELL_REASON_UNROUTABLE;
}

/* Routes a UDP packet whose header is at `l4`, and stores real and VIP in the packet. Returns an enum dwell_reason, or
 * DWELL_REASON_FLOW if it is routed as any UDP.
 */
static __always_inline __u32 dwell_zero_route(DWELL_FRAME *frame, void *embedder, struct dwell_packet *packet, __u32 l4,
					      int dry_run)
{
	const void *data = dwell_frame_data(frame), *end = dwell_frame_end(frame);
	const struct dwell_zero_state *state = dwell_zero_state_of(embedder);
	const struct dwell_address *address = dwell_packet_vip(packet);
	struct dwell_cid_entry *entry = dwell_cid_scratch(embedder), *known = 0;
	struct dwell_zero_work *work = dwell_zero_work_of(embedder);
	__u32 at = l4 + sizeof(struct dwell_udp), first = 0xff, reason;
	__u16 port = dwell_packet_vip_port(packet);
	dwell_zero_vip_id vip;
	int is_whole, is_block;

	DWELL_OPAQUE(at);
	if (!state || !entry || !work || at > 4 * DWELL_MAX_OFFSET)
		return DWELL_REASON_FLOW;
	is_whole = dwell_zero_read(data, end, at, packet->payload_bytes, &work->header);
	is_block = is_whole && work->header.bytes >= DWELL_CID_OWN_BYTES &&
		   (!work->header.is_long || work->header.bytes == DWELL_CID_OWN_BYTES);
	if (is_whole && work->header.bytes) {
		DWELL_PEEK(__u8, octet, work->header.at, DWELL_REASON_MALFORMED);
		first = *octet;
	}
	if (is_block) {
		DWELL_PEEK(struct dwell_cid_words, words, work->header.at + 1, DWELL_REASON_MALFORMED);
		entry->cid[0] = words->word[0];
		entry->cid[1] = words->word[1];
		entry->check = first | (__u32)port << 8 | (__u64)state->generation << 32;
		known = dwell_cid_entry_at(embedder, entry->cid[0] ^ entry->cid[1] >> 7);
	}
	if (known && known->cid[0] == entry->cid[0] && known->cid[1] == entry->cid[1] && known->check == entry->check &&
	    known->vip.high == address->high && known->vip.low == address->low &&
	    (!work->header.is_long ||
	     dwell_zero_is_young(embedder, dwell_zero_vip_at(embedder, known->slot), known->stamp))) {
		packet->lb.real = known->real;
		packet->lb.vip = known->vip_number;
		if (!dry_run && !work->header.is_long)
			dwell_zero_account_packet(embedder, packet, known);
		return DWELL_REASON_CID;
	}
	vip = dwell_zero_vip_of(embedder, packet);
	if (!vip)
		return DWELL_REASON_FLOW;
	if (!is_whole)
		return DWELL_REASON_MALFORMED;
	entry->vip = *address;
	entry->slot = dwell_zero_slot_of(vip);
	entry->vip_number = dwell_zero_number_of(vip);
	entry->stamp = 0;
	reason = dwell_zero_unknown(frame, embedder, packet, first, &work->header, entry, dry_run);
	if (reason != DWELL_REASON_CID)
		return reason;
	packet->lb.vip = entry->vip_number;
	if (!dry_run && !work->header.is_long)
		dwell_zero_account_packet(embedder, packet, entry);
	if (!dry_run && known && entry->is_block)
		*known = *entry;
	return reason;
}

static __always_inline int dwell_zero_is_heavy_at(void *embedder, const struct dwell_zero_vip *vip, __u32 server,
						  const struct dwell_address *client)
{
	__u32 number = vip->server[server & (DWELL_SERVERS_MAX - 1)].heavy;
	const struct dwell_heavy *heavy = dwell_heavy_at(embedder, number);
	const struct dwell_heavy *others = dwell_other_heavy_at(embedder, number);

	return (heavy && dwell_zero_has_heavy(embedder, heavy, client, &vip->heavy)) ||
	       (others && dwell_zero_has_heavy(embedder, others, client, &vip->heavy));
}

/* Flags next to the real that a connection is diverted to: its client is heavy at its own server; it must be checked
 * whether it is heavy at any.
 */
#define DWELL_ZERO_IS_HEAVY (1U << 31)
#define DWELL_ZERO_CHECK_ANYWHERE (1U << 30)

/* Returns the real that a new connection is diverted to in place of packet->lb.real: a less loaded one, if that is
 * overloaded and the client heavy; 0 if it stays.
 */
static __always_inline __u32 dwell_zero_divert(void *embedder, const struct dwell_packet *packet)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, packet->lb.attempt);
	struct dwell_server_load *loads = dwell_zero_loads_at(embedder, packet->lb.attempt);
	__u32 server = dwell_zero_server_by_real(embedder, packet->lb.real), from, least = 0;
	struct dwell_address client = dwell_zero_client(packet);
	int is_heavy;

	if (!vip || !loads || !server || !vip->servers)
		return 0;
	server = (server - 1) & (DWELL_SERVERS_MAX - 1);
	is_heavy = vip->flags & DWELL_ZERO_ALL || dwell_zero_is_heavy_at(embedder, vip, server, &client);
	if (!is_heavy && !(vip->flags & DWELL_ZERO_ANY))
		return 0;
	from = (packet->hash >> 32) * vip->servers >> 32;
	if (!dwell_overload_divert(loads, vip->servers, server, from, dwell_zero_now_s(embedder), &vip->overload,
				   &least))
		return is_heavy ? DWELL_ZERO_IS_HEAVY : 0;
	least = vip->server[least & (DWELL_SERVERS_MAX - 1)].real;
	if (!least || !dwell_is_up(dwell_real_at(embedder, least)))
		return is_heavy ? DWELL_ZERO_IS_HEAVY : 0;
	return least | (is_heavy ? DWELL_ZERO_IS_HEAVY : DWELL_ZERO_CHECK_ANYWHERE);
}

/* Returns true if the connection table's entry for these endpoints belongs to an earlier connection. */
static __always_inline int dwell_attempt_is_over(void *embedder, const struct dwell_packet *packet, __u32 idle_coarse)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, packet->lb.attempt);

	return vip && !dwell_is_future(idle_coarse) && idle_coarse > vip->attempt_coarse;
}

#endif
