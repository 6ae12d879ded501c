/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell lb`: finds the real of a connection, or selects one by the Maglev table of its VIP.
 *
 * The connection table is the flow table: one look-up finds both the real and the estimator's state. A connection stays
 * at its real whatever becomes of the Maglev table.
 */
#ifndef DWELL_LB_SELECT_H
#define DWELL_LB_SELECT_H

#include "lb/embed.h"
#include "response/slot.h"
#include "lb/token.h"
#include "lb/zero_rtt.h"

/* A selection: its reason, and the connection's slot if the estimator must see the packet; the real, the VIP and
 * whether to measure are in the packet. It is packed so that a BPF function that is verified apart can return it.
 */
typedef __u64 dwell_selection;
#define DWELL_SELECTION(reason, slot_index) ((__u64)(reason) | 1ULL << 31 | (__u64)(slot_index) << 32)
#define DWELL_SELECTION_UNMEASURED(reason) ((__u64)(reason))
#define dwell_selection_reason(c) ((__u32)(c)&0xff)
#define dwell_selection_is_measured(c) ((c)&1ULL << 31)
#define dwell_selection_slot(c) ((__u32)((c) >> 32))

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

static __always_inline int dwell_is_first_syn(const struct dwell_packet *packet)
{
	return packet->kind == DWELL_KIND_TCP && (packet->tcp_flags & (DWELL_TCP_SYN | DWELL_TCP_ACK)) == DWELL_TCP_SYN;
}

/* Returns the real of a list that has the fewest open connections for its weight once it has this one too; 0 if the list
 * is empty. The hash decides where to begin, so that reals that are alike take turns.
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

		if (open * best_weight < best_open * member->weight) {
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

/* How far a client's sequence number may run ahead of the newest one, in 64 KiB: packets may be lost before they come
 * here. Whoever does not know the numbers guesses right once in 2^16 / (DWELL_SEQ_AHEAD + 1) attempts.
 */
#define DWELL_SEQ_AHEAD 4

/* How far behind it may be, likewise: it was sent again. */
#define DWELL_SEQ_BEHIND 16

/* Returns the upper half of the sequence number behind a packet. */
static __always_inline __u16 dwell_seq_high(const struct dwell_packet *packet)
{
	__u32 flag_bytes = !!(packet->tcp_flags & (DWELL_TCP_SYN | DWELL_TCP_FIN));

	return packet->kind == DWELL_KIND_TCP ? (packet->seq + packet->payload_bytes + flag_bytes) >> 16 : 0;
}

/* Follows the client's sequence numbers. Returns true if the packet's is near the newest one. */
static __always_inline int dwell_slot_advance(struct dwell_slot *slot, const struct dwell_packet *packet)
{
	__u16 ahead = (packet->seq >> 16) - slot->seq_high, next = dwell_seq_high(packet);

	if (ahead > DWELL_SEQ_AHEAD)
		return 0;
	if (dwell_unlikely(next != slot->seq_high))
		slot->seq_high = next;
	return 1;
}

/* Different seconds (of 2^30 ns) in which a client must go on until its connection has settled. */
#define DWELL_SETTLED_SECONDS 3

/* Counts a packet towards settling, and returns what it makes of the connection's flags. A balancer sees nothing of the
 * server, so that packets to which nobody listens look like a client's: what a flood can do for a moment is not enough,
 * it has to go on with each of its connections, with sequence numbers that fit. `slot->packets` holds the number of
 * packets, up to DWELL_SETTLED_PACKETS, the number of seconds with one, and the low bits of the newest of these.
 */
static __always_inline __u8 dwell_slot_settle(struct dwell_slot *slot, const struct dwell_packet *packet,
					      __u32 now_coarse)
{
	__u32 packets = slot->packets & 3, seconds = slot->packets >> 2 & 3, second = now_coarse >> 10 & 15;
	__u8 flags = 0;

	if (packets < DWELL_SETTLED_PACKETS && ++packets == DWELL_SETTLED_PACKETS && packet->kind != DWELL_KIND_TCP)
		flags = DWELL_HEAD_ESTABLISHED;
	if ((!seconds || slot->packets >> 4 != second) && ++seconds == DWELL_SETTLED_SECONDS) {
		flags |= DWELL_HEAD_SETTLED;
		slot->measured |= slot->trusted;
	}
	slot->packets = packets | seconds << 2 | second << 4;
	return flags;
}

/* Updates the flags of a connection from a client's packet. */
static __always_inline void dwell_slot_mark(struct dwell_slot *slot, const struct dwell_packet *packet,
					    __u32 now_coarse)
{
	__u8 flags = slot->head.flags, next = flags;
	int is_near = 1;

	if (packet->kind == DWELL_KIND_TCP && packet->tcp_flags & DWELL_TCP_SYN) {
		if (!(flags & DWELL_HEAD_ESTABLISHED) || flags & DWELL_HEAD_ENDED)
			slot->seq_high = dwell_seq_high(packet);
	} else if (packet->kind == DWELL_KIND_TCP) {
		is_near = dwell_slot_advance(slot, packet);
		next |= DWELL_HEAD_ESTABLISHED;
		if (packet->tcp_flags & (DWELL_TCP_FIN | DWELL_TCP_RST))
			next |= DWELL_HEAD_CLOSING | (is_near ? DWELL_HEAD_ENDED : 0);
		else if (packet->payload_bytes) /* the connection was not over: the end was forged */
			next &= ~(DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED);
	}
	/* a flood can repeat its SYN, or its Initial of QUIC */
	if (dwell_unlikely(!(flags & DWELL_HEAD_SETTLED)) && is_near && !(packet->tcp_flags & DWELL_TCP_SYN) &&
	    !packet->lb.attempt)
		next |= dwell_slot_settle(slot, packet, now_coarse);
	if (next != flags)
		slot->head.flags = next;
}

/* Fetches the cache lines that the estimator is about to need at once, so that it does not wait for one after the
 * other.
 */
static __always_inline void dwell_slot_prefetch(const struct dwell_slot *slot)
{
	(void)*(const volatile __u8 *)&slot->state.clock;
	(void)*(const volatile __u8 *)&slot->state.adaptive.gaps;
	(void)*(const volatile __u8 *)&slot->state.adaptive.sent;
}

/* Steps the estimator of a connection. */
static __always_inline void dwell_slot_measure(struct dwell_table *table, struct dwell_slot *slot,
					       const struct dwell_packet *packet)
{
	struct dwell_response_event *record = dwell_response_record(table);
	struct dwell_arrival arrival = {};

	if (!record || !dwell_slot_lock(slot)) {
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (dwell_same_key(&slot->head.key, &packet->key)) {
		dwell_arrival_of(&arrival, packet, DWELL_KEY_5TUPLE, dwell_now(table->clock));
		if (dwell_slot_step(table, slot, &arrival, record))
			dwell_slot_report(table, slot, record);
	} else { /* the slot has been reused */
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
	}
	dwell_slot_unlock(slot);
}

static __always_inline void dwell_count_open(void *embedder, __u32 real, __s64 by)
{
	__s64 *open = dwell_open_at(embedder, real);

	if (open)
		__sync_fetch_and_add(open, by);
}

static __always_inline void dwell_balance_opened(void *embedder, const struct dwell_packet *packet)
{
	struct dwell_load *vip = dwell_vip_load_at(embedder, packet->lb.vip);
	struct dwell_load *real = dwell_real_load_at(embedder, packet->lb.real);

	if (vip)
		vip->opened++;
	if (real)
		real->opened++;
}

/* Returns true if a connection may be open: it is of TCP, as others never say that they end. */
static __always_inline int dwell_is_open(const struct dwell_slot *slot, const struct dwell_packet *packet)
{
	return packet->kind == DWELL_KIND_TCP && !(slot->head.flags & DWELL_HEAD_ENDED);
}

/* Diverts a new QUIC connection if its server is overloaded. Returns the reason. */
static __always_inline __u32 dwell_select_less_loaded(struct dwell_table *table, struct dwell_packet *packet,
						      __u32 reason, int dry_run)
{
	__u32 diverted = dwell_zero_divert_packet(table->embedder, packet);

	if (diverted & DWELL_ZERO_CHECK_ANYWHERE) {
		if (!dwell_zero_is_heavy_anywhere(table->embedder, packet))
			return reason;
		diverted = (diverted & ~DWELL_ZERO_CHECK_ANYWHERE) | DWELL_ZERO_IS_HEAVY;
	}
	if (!dry_run && diverted & DWELL_ZERO_IS_HEAVY)
		dwell_zero_count(table->embedder, DWELL_ZERO_HEAVY);
	diverted &= ~DWELL_ZERO_IS_HEAVY;
	if (!diverted)
		return reason;
	packet->lb.real = diverted;
	return DWELL_REASON_DIVERTED;
}

/* Handles a packet of no known connection. */
static __always_inline dwell_selection dwell_select_new(struct dwell_table *table, struct dwell_packet *packet,
							int dry_run)
{
	__u32 reason = dwell_balance_select(table->embedder, packet), mask = table->config->bucket_mask;
	struct dwell_lookup found;
	struct dwell_slot *slot;

	/* where a connection is that may be elsewhere is not learnt from its packets */
	if (!packet->lb.real || reason == DWELL_REASON_SECOND)
		return DWELL_SELECTION_UNMEASURED(reason);
	if (packet->lb.attempt)
		reason = dwell_select_less_loaded(table, packet, reason, dry_run);
	if (packet->kind == DWELL_KIND_TCP && !dwell_is_first_syn(packet))
		reason = DWELL_REASON_FALLBACK;
	if (!packet->may_open || dry_run)
		return DWELL_SELECTION_UNMEASURED(reason);
	found = dwell_flow_admit(table, packet, dwell_bucket_first(packet->hash, mask),
				 dwell_bucket_second(packet->hash, mask));
	if (!found.head) {
		/* the rest of its packets must go to the same real */
		packet->lb.real = packet->lb.first;
		return DWELL_SELECTION_UNMEASURED(DWELL_REASON_FULL);
	}
	dwell_balance_opened(table->embedder, packet);
	slot = (struct dwell_slot *)found.head;
	slot->seq_high = dwell_seq_high(packet);
	found.head->flags |= DWELL_HEAD_YIELDS;
	if (dwell_unlikely(reason == DWELL_REASON_FALLBACK)) {
		found.head->flags |= DWELL_HEAD_ORPHAN;
		slot->trusted = slot->measured;
		slot->measured = 0;
	}
	dwell_slot_mark(slot, packet, found.head->seen);
	if (dwell_is_open(slot, packet))
		dwell_count_open(table->embedder, packet->lb.real, 1);
	return slot->measured ? DWELL_SELECTION(reason, found.slot_index) : DWELL_SELECTION_UNMEASURED(reason);
}

/* Silence after which a SYN may open another connection with the same endpoints, 16 ms in coarse units: a client that has
 * closed its side only acknowledges what it receives more often.
 */
#define DWELL_REOPEN_COARSE (16000000 >> 20)

/* Returns true for a SYN of the addresses and ports of a connection that has ended, or that was silent for the idle timeout:
 * the server may have ended it. The end must have come with the connection's sequence numbers, so that a forged end moves
 * nobody.
 */
static __always_inline int dwell_reopens(struct dwell_table *table, const struct dwell_slot *slot,
					 const struct dwell_packet *packet)
{
	__u32 idle;

	if (dwell_likely(!dwell_is_first_syn(packet)))
		return 0;
	idle = dwell_now_coarse(table->clock) - slot->head.seen;
	return slot->head.flags & DWELL_HEAD_ENDED ||
	       (idle > table->config->idle_timeout_ns >> 20 && !dwell_is_future(idle));
}

static __always_inline int dwell_is_silent(struct dwell_table *table, const struct dwell_slot *slot)
{
	__u32 idle = dwell_now_coarse(table->clock) - slot->head.seen;

	return idle > DWELL_REOPEN_COARSE && !dwell_is_future(idle);
}

/* Returns true if a packet may be of another connection than the one that is known with its endpoints: a client may have used
 * its port again, and the end of the one and the beginning of the other passed another balancer. Without a pause, sequence
 * numbers may run ahead; after one, a client begins where it stopped, or has sent more elsewhere. Linux lets another
 * connection begin as little as 64 KiB ahead (tcp_tw_reuse).
 */
static __always_inline int dwell_may_be_other(struct dwell_table *table, const struct dwell_slot *slot,
					      const struct dwell_packet *packet)
{
	__u16 ahead = (packet->seq >> 16) - slot->seq_high, behind = -ahead;

	if (dwell_likely(!ahead) || behind <= DWELL_SEQ_BEHIND || packet->kind != DWELL_KIND_TCP)
		return 0;
	if (dwell_is_first_syn(packet) && !(slot->head.flags & DWELL_HEAD_ESTABLISHED))
		return 0;
	return ahead > DWELL_SEQ_AHEAD || dwell_is_silent(table, slot);
}

/* Lets a packet that may be of another connection than the one that is known with its endpoints go on from that one's real;
 * its beginning goes where other balancers send it. Returns true if the VIP has a second chance. The known connection stays
 * as it is, since the packet may be forged.
 */
static __always_inline int dwell_select_other(void *embedder, struct dwell_packet *packet)
{
	const struct dwell_vip *vip =
		dwell_vip_of(embedder, dwell_packet_vip(packet), packet->proto, dwell_packet_vip_port(packet));
	__u32 known = packet->lb.real;

	if (!vip || !(vip->flags & DWELL_VIP_SECOND))
		return 0;
	if (!dwell_is_first_syn(packet))
		return dwell_balance_has_chance(embedder, packet);
	dwell_balance_select(embedder, packet);
	if (!packet->lb.real)
		packet->lb.real = known;
	return 1;
}

/* Returns true if a packet of this connection must not go to its real: that is gone; or nothing is established there
 * and it is down or out of reach; or the packet belongs to another connection between the same endpoints. Everything
 * else stays.
 */
static __always_inline int dwell_must_reselect(struct dwell_table *table, const struct dwell_slot *slot,
					       const struct dwell_packet *packet, const struct dwell_real *real)
{
	__u8 flags = slot->head.flags;

	if (!real || real->forward == DWELL_FORWARD_NONE)
		return 1;
	if (dwell_unlikely(packet->lb.attempt) &&
	    dwell_attempt_is_over(table->embedder, packet, dwell_now_coarse(table->clock) - slot->head.seen))
		return 1;
	if (dwell_reopens(table, slot, packet) && dwell_is_silent(table, slot))
		return 1;
	if (dwell_likely(dwell_is_up(real)))
		return 0;
	if (packet->kind == DWELL_KIND_TCP)
		return packet->tcp_flags & DWELL_TCP_SYN &&
		       (!(flags & DWELL_HEAD_ESTABLISHED) || flags & DWELL_HEAD_CLOSING);
	return real->flags & DWELL_REAL_DOWN || !(flags & DWELL_HEAD_ESTABLISHED);
}

/* Moves a locked slot to the real that was selected for the packet. */
static __always_inline void dwell_slot_move(struct dwell_table *table, struct dwell_slot *slot,
					    const struct dwell_packet *packet, struct dwell_response_event *record)
{
	dwell_slot_finish(table, slot, ~0ULL, record);
	slot->lb.real = packet->lb.real;
	slot->lb.vip = packet->lb.vip;
	dwell_slot_begin(slot, packet);
	slot->packets = 0;
	slot->trusted = 0;
	slot->seq_high = dwell_seq_high(packet);
	slot->head.flags &= ~(DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED | DWELL_HEAD_ESTABLISHED | DWELL_HEAD_SETTLED |
			      DWELL_HEAD_ORPHAN);
	dwell_balance_opened(table->embedder, packet);
}

/* Returns true if a connection that was idle for so long, in coarse units, still counts as active. */
static __always_inline int dwell_is_recent(struct dwell_table *table, __u32 idle)
{
	return dwell_is_future(idle) || idle <= dwell_balance_config_of(table->embedder)->active_coarse;
}

/* Selects anew for a connection that must leave its real. If another CPU has its slot, this packet still goes to the
 * old real: two CPUs must not select differently.
 */
static __always_inline dwell_selection dwell_select_again(struct dwell_table *table, struct dwell_packet *packet,
							  __u32 slot_index, int dry_run)
{
	__u32 reason = dwell_balance_select(table->embedder, packet);
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);
	struct dwell_response_event *record = dwell_response_record(table);

	if (reason == DWELL_REASON_SECOND)
		reason = DWELL_REASON_NEW;
	if (!packet->lb.real || !slot || !record)
		return DWELL_SELECTION_UNMEASURED(reason);
	if (packet->lb.attempt)
		dwell_select_less_loaded(table, packet, reason, dry_run);
	if (!dwell_reopens(table, slot, packet))
		reason = slot->lb.real == packet->lb.real ? DWELL_REASON_CONNECTION : DWELL_REASON_MOVED;
	if (dry_run)
		return DWELL_SELECTION_UNMEASURED(reason);
	if (!dwell_slot_lock(slot)) {
		packet->lb.real = slot->lb.real;
		return DWELL_SELECTION_UNMEASURED(DWELL_REASON_CONNECTION);
	}
	if (dwell_same_key(&slot->head.key, &packet->key)) {
		if (dwell_is_open(slot, packet) &&
		    dwell_is_recent(table, dwell_now_coarse(table->clock) - slot->head.seen))
			dwell_count_open(table->embedder, slot->lb.real, -1);
		if (!dwell_must_reselect(table, slot, packet, dwell_real_at(table->embedder, slot->lb.real))) {
			packet->lb.real = slot->lb.real;
			reason = DWELL_REASON_CONNECTION;
		} else if (reason != DWELL_REASON_CONNECTION) {
			dwell_slot_move(table, slot, packet, record);
		}
		slot->head.seen = dwell_now_coarse(table->clock);
		dwell_slot_mark(slot, packet, slot->head.seen);
		if (dwell_is_open(slot, packet))
			dwell_count_open(table->embedder, slot->lb.real, 1);
	}
	dwell_slot_unlock(slot);
	return slot->measured ? DWELL_SELECTION(reason, slot_index) : DWELL_SELECTION_UNMEASURED(reason);
}

/* Updates a connection that stays with its real. */
static __always_inline dwell_selection dwell_balance_known(struct dwell_table *table, struct dwell_packet *packet,
							   struct dwell_slot *slot, __u32 slot_index)
{
	__u32 now_coarse = dwell_now_coarse(table->clock), idle = now_coarse - slot->head.seen;
	__u8 flags = slot->head.flags;

	if (idle)
		slot->head.seen = now_coarse;
	dwell_slot_mark(slot, packet, now_coarse);
	if (dwell_unlikely((flags ^ slot->head.flags) & DWELL_HEAD_ENDED) && dwell_is_recent(table, idle))
		dwell_count_open(table->embedder, slot->lb.real, flags & DWELL_HEAD_ENDED ? 1 : -1);
	return slot->measured ? DWELL_SELECTION(DWELL_REASON_CONNECTION, slot_index)
			      : DWELL_SELECTION_UNMEASURED(DWELL_REASON_CONNECTION);
}

/* Finds or selects the real of a packet whose transport begins at `l4_offset`. Returns the reason. */
static __always_inline __u32 dwell_balance_flow(DWELL_FRAME *frame, struct dwell_table *table,
						struct dwell_packet *packet, __u32 l4_offset, int dry_run)
{
	__u32 mask = table->config->bucket_mask;
	struct dwell_lookup found = dwell_flow_find(table->embedder, dwell_bucket_first(packet->hash, mask),
						    dwell_bucket_second(packet->hash, mask), packet);
	struct dwell_slot *slot = (struct dwell_slot *)found.head;
	dwell_selection selection = DWELL_SELECTION_UNMEASURED(DWELL_REASON_CONNECTION);

	if (dwell_likely(slot)) {
		packet->lb.real = slot->lb.real;
		packet->lb.vip = slot->lb.vip;
		if (slot->measured)
			dwell_slot_prefetch(slot);
		DWELL_BARRIER();
		/* the slot may have been reused: another look-up would find nothing */
		if (dwell_unlikely(!dwell_same_key(&slot->head.key, &packet->key)))
			selection = dwell_balance_select_new(table, packet, 1);
		else if (dwell_unlikely(dwell_must_reselect(table, slot, packet,
							    dwell_real_at(table->embedder, packet->lb.real))))
			selection = dwell_balance_select_again(table, packet, found.slot_index, dry_run);
		else if (dwell_unlikely(dwell_may_be_other(table, slot, packet)) &&
			 dwell_balance_select_other(table->embedder, packet))
			selection = DWELL_SELECTION_UNMEASURED(DWELL_REASON_SECOND);
		else if (!dry_run)
			selection = dwell_balance_known(table, packet, slot, found.slot_index);
	} else {
		selection = dwell_balance_select_new(table, packet, dry_run);
		if (dwell_selection_is_measured(selection))
			slot = dwell_slot_at(table->embedder, dwell_selection_slot(selection));
	}
	if (!dry_run && dwell_selection_is_measured(selection) && slot) {
		if (packet->kind == DWELL_KIND_TCP)
			dwell_balance_read_turn(frame, packet, l4_offset);
		dwell_slot_measure(table, slot, packet);
	}
	return dwell_selection_reason(selection);
}

/* Finds the connection that an ICMP error quotes, without refreshing it, as anybody can send such an error. Returns the
 * reason.
 */
static __always_inline __u32 dwell_balance_quoted(struct dwell_table *table, struct dwell_packet *packet)
{
	__u32 mask = table->config->bucket_mask, reason;
	struct dwell_lookup found = dwell_flow_find(table->embedder, dwell_bucket_first(packet->hash, mask),
						    dwell_bucket_second(packet->hash, mask), packet);
	struct dwell_slot *slot = (struct dwell_slot *)found.head;

	if (slot) {
		packet->lb.real = slot->lb.real;
		packet->lb.vip = slot->lb.vip;
		DWELL_BARRIER();
		if (dwell_likely(dwell_same_key(&slot->head.key, &packet->key)))
			return DWELL_REASON_QUOTED;
	}
	reason = dwell_selection_reason(dwell_balance_select_new(table, packet, 1));
	return packet->lb.real ? DWELL_REASON_QUOTED : reason;
}

#endif
