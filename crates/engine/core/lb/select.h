/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell lb`: selects the real of a new connection by the Maglev table of its VIP. */
#ifndef DWELL_LB_SELECT_H
#define DWELL_LB_SELECT_H

#include "lb/embed.h"
#include "lb/token.h"

/* Entries of the Maglev table that are tried until one leads to a real that is up. */
#define DWELL_SELECT_TRIES 4

static __always_inline const struct dwell_vip *dwell_vip_of(void *embedder, const struct dwell_address *address,
							    __u8 proto, __u16 port)
{
	struct dwell_vip_key key = {*address, port, proto, {}};
	const struct dwell_vip *vip = dwell_vip_at(embedder, &key);

	if (vip || !port)
		return vip;
	key.port = 0;
	return dwell_vip_at(embedder, &key);
}

/* Returns the hash that selects an entry of the Maglev table. By the client's address alone it keeps all connections of
 * a client together.
 */
static __always_inline __u64 dwell_selection_hash(const struct dwell_packet *packet, __u64 seed, __u32 flags)
{
	const struct dwell_address *client = packet->direction & 1 ? &packet->key.b : &packet->key.a;

	if (flags & DWELL_VIP_SOURCE) {
		__u64 host = flags & DWELL_VIP_NETWORK && !dwell_is_v4(client) ? 0 : client->low;

		return dwell_mix(dwell_mix(dwell_mix(seed, client->high), host), seed);
	}
	return dwell_key_hash(&packet->key, packet->proto, seed);
}

/* Returns true if the latency of a connection is measured. The hash has the secret seed of the connection table, so that
 * the choice depends neither on the selection nor on the client's network, and nobody outside can make it.
 */
static __always_inline int dwell_is_sampled(const struct dwell_packet *packet, __u32 flags)
{
	const __u64 apart = 0x6d65617375726564ULL; /* from the hashes of buckets and tags */
	__u32 sampling = flags >> DWELL_VIP_SAMPLING_SHIFT & DWELL_VIP_SAMPLING;

	return flags & DWELL_VIP_MEASURE && !(dwell_mix(packet->hash, apart) & ((1U << sampling) - 1));
}

/* Returns true if the control plane is silent. */
static __always_inline int dwell_is_stale(void *embedder, const struct dwell_heartbeat *beat)
{
	__s32 age_s = dwell_zero_clock_s(embedder) - (__u32)(beat->renewed_ns / 1000000000);

	return age_s > (__s32)beat->stale_s;
}

/* Returns the distance to tables of equal weights if they count: the control plane is silent. Returns 0 otherwise. */
static __always_inline __u32 dwell_equal_tables(void *embedder)
{
	const struct dwell_heartbeat *beat = dwell_heartbeat_of(embedder);

	if (!beat || dwell_likely(!beat->equal))
		return 0;
	return dwell_is_stale(embedder, beat) ? beat->equal : 0;
}

/* Returns the number of the real at an entry of a VIP's table, or of its table of equal weights at this distance; 0 if
 * there is none.
 */
static __always_inline __u32 dwell_entry_of(void *embedder, __u32 vip, __u32 equal, __u32 index)
{
	__u32 number = equal ? dwell_entry_at(embedder, vip + equal, index) : 0;

	return number ? number : dwell_entry_at(embedder, vip, index);
}

/* Returns the number of the real at the entry of the Maglev table that a hash selects. If that is down, others are tried;
 * if these are too, the first is as good. Returns 0 if the table is empty.
 */
static __always_inline __u32 dwell_candidate(void *embedder, const struct dwell_vip *vip, __u32 equal, __u64 hash)
{
	__u32 first = 0;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_SELECT_TRIES; i++) {
		__u32 number = dwell_entry_of(embedder, vip->number, equal, (hash >> 32) * vip->size >> 32);

		if (!first)
			first = number;
		if (number && dwell_is_up(dwell_real_at(embedder, number)))
			return number;
		hash = dwell_mix(hash, i + 1);
	}
	return first;
}

/* Returns true if a real is up, and another one is not or has more open connections for what it can take. */
static __always_inline int dwell_has_fewer(void *embedder, __u32 number, __u32 than)
{
	const struct dwell_real *real = dwell_real_at(embedder, number), *other = dwell_real_at(embedder, than);
	const __s64 *open = dwell_open_at(embedder, number), *open_other = dwell_open_at(embedder, than);

	if (!dwell_is_up(real) || !open || !open_other)
		return 0;
	if (!dwell_is_up(other))
		return 1;
	return *open * (other->capacity ? other->capacity : 1) < *open_other * (real->capacity ? real->capacity : 1);
}

/* Returns true for a SYN that may open a connection: servers drop one that is a FIN or RST too. */
static __always_inline int dwell_is_first_syn(const struct dwell_packet *packet)
{
	const __u8 others = DWELL_TCP_ACK | DWELL_TCP_FIN | DWELL_TCP_RST;

	return packet->kind == DWELL_KIND_TCP && (packet->tcp_flags & (DWELL_TCP_SYN | others)) == DWELL_TCP_SYN;
}

/* Counts of open connections that differ by less than this part are alike: otherwise a flood, whose connections stay open, leaves
 * a remainder that sends all short ones to the same real.
 */
#define DWELL_ALIKE 16

/* Returns the real of a list that has the fewest open connections for its weight once it has this one too, or about as few; 0 if
 * the list is empty. The hash decides where to begin, so that reals that are alike take turns.
 */
static __always_inline __u32 dwell_least(void *embedder, __u32 table, __u64 hash)
{
	const struct dwell_member *members = dwell_members_at(embedder, table);
	__u64 best_open = 1, best_weight = 0;
	__u32 count, start, best = 0;

	if (!members)
		return 0;
	count = members[0].real;
	start = (hash >> 32) * count >> 32;
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_MEMBERS - 1 && i < count; i++) {
		__u32 at = start + i < count ? start + i : start + i - count;
		const struct dwell_member *member = &members[(at + 1) & (DWELL_MEMBERS - 1)];
		const __s64 *counted = dwell_open_at(embedder, member->real);
		__u64 open = 1 + (counted && *counted > 0 ? *counted : 0);

		if (open * best_weight * (DWELL_ALIKE + 1) < best_open * member->weight * DWELL_ALIKE) {
			best = member->real;
			best_open = open;
			best_weight = member->weight;
		}
	}
	return best;
}

/* Returns true if a real is up and has no open connection. */
static __always_inline int dwell_is_idle(void *embedder, __u32 number)
{
	const __s64 *open = dwell_open_at(embedder, number);

	return open && *open <= 0 && dwell_is_up(dwell_real_at(embedder, number));
}

/* Of the reals that a SYN may go to, selects the one with the fewest open connections: of all of them, or of some
 * candidates of the table. If the first one is idle, it stays there, so that idle reals get what the table gives each.
 * Only a connection that is remembered may go elsewhere than its first real, and only while somebody corrects the counts.
 */
static __always_inline __u32 dwell_choose(void *embedder, const struct dwell_packet *packet,
					  const struct dwell_vip *vip, __u64 hash)
{
	__u32 choices = vip->flags >> DWELL_VIP_CHOICES_SHIFT & DWELL_VIP_CHOICES, best = packet->lb.first;
	const struct dwell_heartbeat *beat = dwell_heartbeat_of(embedder);

	if (!(choices | (vip->flags & DWELL_VIP_LEAST)) || !dwell_is_first_syn(packet) || !beat ||
	    dwell_is_stale(embedder, beat))
		return best;
	if (dwell_is_idle(embedder, best))
		return best;
	if (vip->flags & DWELL_VIP_LEAST) {
		__u32 table = vip->number + DWELL_MEMBERS_KIND * dwell_balance_config_of(embedder)->max_vips;
		__u32 least = dwell_balance_least(embedder, table, hash);

		if (dwell_is_up(dwell_real_at(embedder, least)))
			return least;
	}
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_VIP_CHOICES && i < choices; i++) {
		__u32 number;

		hash = dwell_mix(hash, ~i);
		number = dwell_candidate(embedder, vip, 0, hash);
		if (number != best && dwell_has_fewer(embedder, number, best))
			best = number;
	}
	return best;
}

/* Selects a real by the packet's token, or by the Maglev table, and by the open connections of reals if the VIP says so.
 * Returns DWELL_REASON_TOKEN, DWELL_REASON_NEW or DWELL_REASON_FEWER, DWELL_REASON_SECOND if the packet is under way and
 * another real may have its connection, or why it led nowhere.
 */
static __always_inline __u32 dwell_select(void *embedder, struct dwell_packet *packet)
{
	const struct dwell_vip *vip =
		dwell_vip_of(embedder, dwell_packet_vip(packet), packet->proto, dwell_packet_vip_port(packet));
	__u64 hash, seed = dwell_balance_config_of(embedder)->hash_seed;
	__u32 token = packet->lb.token;

	packet->lb.real = packet->lb.first = 0;
	packet->lb.vip = 0;
	if (!vip || !vip->number)
		return DWELL_REASON_NOT_VIP;
	packet->lb.vip = vip->number;
	packet->lb.measured = dwell_is_sampled(packet, vip->flags);
	if (!vip->size)
		return DWELL_REASON_NO_BACKEND;
	hash = token & DWELL_TOKEN_LEFT ? dwell_token_hash(token, seed)
					: dwell_selection_hash(packet, seed, vip->flags);
	packet->lb.first = dwell_candidate(embedder, vip, dwell_equal_tables(embedder), hash);
	if (dwell_unlikely(token)) {
		packet->lb.real = token & DWELL_TOKEN_LEFT ? packet->lb.first : token;
		return packet->lb.real ? DWELL_REASON_TOKEN : DWELL_REASON_NO_BACKEND;
	}
	packet->lb.real = dwell_choose(embedder, packet, vip, hash);
	if (!packet->lb.real)
		return DWELL_REASON_NO_BACKEND;
	if (vip->flags & DWELL_VIP_SECOND && packet->kind == DWELL_KIND_TCP && !(packet->tcp_flags & DWELL_TCP_SYN) &&
	    dwell_balance_has_chance(embedder, packet))
		return DWELL_REASON_SECOND;
	return packet->lb.real == packet->lb.first ? DWELL_REASON_NEW : DWELL_REASON_FEWER;
}

#endif
