/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell lb`: where a connection is, or where the Maglev table of its VIP puts it.
 *
 * The connection table is the flow table: one look-up finds the real and what
 * the estimator of response latency remembers. A connection stays at its real
 * whatever becomes of the Maglev table.
 */
#ifndef DWELL_LB_SELECT_H
#define DWELL_LB_SELECT_H

#include "response/slot.h"
#include "lb/zero_rtt.h"

/* What the embedding program knows; null and 0 for what there is not. */
static __always_inline const struct dwell_balance_config *dwell_balance_config_of(void *embedder);
static __always_inline const struct dwell_vip *dwell_vip_at(void *embedder, const struct dwell_vip_key *key);
static __always_inline const struct dwell_real *dwell_real_at(void *embedder, __u32 number);
static __always_inline __u32 dwell_entry_at(void *embedder, __u32 vip, __u32 index);
static __always_inline struct dwell_load *dwell_vip_load_at(void *embedder, __u32 number);
static __always_inline struct dwell_load *dwell_real_load_at(void *embedder, __u32 number);

/* What was chosen is in the packet: real, vip, measured. This says why, and where
 * the connection's place is if the estimator is to see the packet; packed so that
 * a verified-apart BPF function can return it.
 */
typedef __u64 dwell_choice;
#define DWELL_CHOICE(why, place) ((__u64)(why) | 1ULL << 31 | (__u64)(place) << 32)
#define DWELL_CHOICE_ALONE(why) ((__u64)(why))
#define dwell_choice_why(c) ((__u32)(c)&0xff)
#define dwell_choice_measures(c) ((c)&1ULL << 31)
#define dwell_choice_place(c) ((__u32)((c) >> 32))

/* dwell_choose(), dwell_choose_first() and dwell_choose_again(), or calls of them. */
static __always_inline __u32 dwell_balance_choose(void *embedder, struct dwell_packet *packet);
static __always_inline dwell_choice dwell_balance_first(struct dwell_table *table, struct dwell_packet *packet,
							int asks);
static __always_inline dwell_choice dwell_balance_again(struct dwell_table *table, struct dwell_packet *packet,
							__u32 place, int asks);

/* Reals that are down are passed over so often at most. */
#define DWELL_CHOICE_TRIES 4

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

/* The hash that Maglev's table is entered by. The client's address alone keeps
 * all its connections together.
 */
static __always_inline __u64 dwell_choice_hash(const struct dwell_packet *packet, __u64 seed, __u32 flags)
{
	const struct dwell_address *client = packet->direction & 1 ? &packet->key.b : &packet->key.a;

	if (flags & DWELL_VIP_SOURCE) {
		__u64 host = flags & DWELL_VIP_NETWORK && !dwell_is_v4(client) ? 0 : client->low;

		return dwell_mix(dwell_mix(dwell_mix(seed, client->high), host), seed);
	}
	return dwell_key_hash(&packet->key, packet->proto, seed);
}

/* By the Maglev table alone. Returns DWELL_WHY_NEW, unless it led nowhere. */
static __always_inline __u32 dwell_choose(void *embedder, struct dwell_packet *packet)
{
	const struct dwell_vip *vip =
		dwell_vip_of(embedder, dwell_visit_vip(packet), packet->proto, dwell_visit_port(packet));
	__u32 first = 0;
	__u64 hash;

	packet->real = 0;
	packet->vip = 0;
	if (!vip || !vip->number)
		return DWELL_WHY_NOT_VIP;
	packet->vip = vip->number;
	packet->measured = !!(vip->flags & DWELL_VIP_MEASURE);
	if (!vip->size)
		return DWELL_WHY_NO_BACKEND;
	hash = dwell_choice_hash(packet, dwell_balance_config_of(embedder)->hash_seed, vip->flags);
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_CHOICE_TRIES; i++) {
		__u32 number = dwell_entry_at(embedder, vip->number, (hash >> 32) * vip->size >> 32);
		const struct dwell_real *real = dwell_real_at(embedder, number);

		if (!first)
			first = number;
		if (real && number && real->interface && !(real->flags & DWELL_REAL_DOWN)) {
			first = number;
			break;
		}
		hash = dwell_mix(hash, i + 1);
	}
	/* where all that were tried are down, they are kept: none is better */
	packet->real = first;
	return first ? DWELL_WHY_NEW : DWELL_WHY_NO_BACKEND;
}

/* What a client's packet says of its connection. */
static __always_inline void dwell_seat_mark(struct dwell_seat *seat, const struct dwell_packet *packet)
{
	__u8 flags = seat->head.flags, next = flags;

	if (packet->kind == DWELL_KIND_TCP) {
		if (!(packet->tcp_flags & DWELL_TCP_SYN))
			next |= DWELL_HEAD_ESTABLISHED;
		if (packet->tcp_flags & (DWELL_TCP_FIN | DWELL_TCP_RST))
			next |= DWELL_HEAD_CLOSING;
		else if (packet->payload_bytes) /* it was not over: a forged end */
			next &= ~DWELL_HEAD_CLOSING;
	}
	/* a flood can send each SYN several times, and each Initial of QUIC */
	if (!(packet->tcp_flags & DWELL_TCP_SYN) && !packet->attempt && seat->packets < DWELL_SEAT_SETTLED &&
	    ++seat->packets == DWELL_SEAT_SETTLED)
		next |= DWELL_HEAD_SETTLED;
	if (next != flags)
		seat->head.flags = next;
}

/* Has the cache lines that the estimator is about to need come together, before
 * anything waits for the first.
 */
static __always_inline void dwell_seat_fetch(const struct dwell_seat *seat)
{
	(void)*(const volatile __u8 *)&seat->state.clock;
	(void)*(const volatile __u8 *)&seat->state.adaptive.gaps;
	(void)*(const volatile __u8 *)&seat->state.adaptive.sent;
}

/* Steps the estimator. */
static __always_inline void dwell_seat_measure(struct dwell_table *table, struct dwell_seat *seat,
					       const struct dwell_packet *packet)
{
	struct dwell_response_event *record = dwell_seat_record(table);
	struct dwell_arrival arrival = {};

	if (!record || !dwell_seat_lock(seat)) {
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (dwell_same_key(&seat->head.key, &packet->key)) {
		dwell_arrival_of(&arrival, packet, DWELL_KEY_5TUPLE, dwell_now(table->clock));
		if (dwell_seat_advance(table, seat, &arrival, record))
			dwell_seat_tell(table, seat, record);
	} else { /* the place is another's by now */
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
	}
	dwell_seat_unlock(seat);
}

static __always_inline void dwell_balance_opened(void *embedder, const struct dwell_packet *packet)
{
	struct dwell_load *vip = dwell_vip_load_at(embedder, packet->vip);
	struct dwell_load *real = dwell_real_load_at(embedder, packet->real);

	if (vip)
		vip->opened++;
	if (real)
		real->opened++;
}

/* A new connection of QUIC goes elsewhere if its server has no time for it. */
static __always_inline __u32 dwell_choose_lesser(struct dwell_table *table, struct dwell_packet *packet, __u32 why,
						 int asks)
{
	__u32 diverted = dwell_zero_diverted(table->embedder, packet);

	if (diverted & DWELL_ZERO_IS_ASKED) {
		if (!dwell_zero_heavy_anywhere(table->embedder, packet))
			return why;
		diverted = (diverted & ~DWELL_ZERO_IS_ASKED) | DWELL_ZERO_IS_HEAVY;
	}
	if (!asks && diverted & DWELL_ZERO_IS_HEAVY)
		dwell_zero_count(table->embedder, DWELL_ZERO_HEAVY);
	diverted &= ~DWELL_ZERO_IS_HEAVY;
	if (!diverted)
		return why;
	packet->real = diverted;
	return DWELL_WHY_DIVERTED;
}

/* A packet of no known connection. */
static __always_inline dwell_choice dwell_choose_first(struct dwell_table *table, struct dwell_packet *packet, int asks)
{
	__u32 why = dwell_balance_choose(table->embedder, packet), mask = table->config->bucket_mask,
	      own = packet->real;
	struct dwell_found found;

	if (!packet->real)
		return DWELL_CHOICE_ALONE(why);
	if (packet->attempt)
		why = dwell_choose_lesser(table, packet, why, asks);
	if (packet->kind == DWELL_KIND_TCP && (packet->tcp_flags & (DWELL_TCP_SYN | DWELL_TCP_ACK)) != DWELL_TCP_SYN)
		why = DWELL_WHY_FALLBACK;
	if (!packet->may_open || asks)
		return DWELL_CHOICE_ALONE(why);
	found = dwell_flow_admit(table, packet, dwell_bucket_first(packet->hash, mask),
				 dwell_bucket_second(packet->hash, mask));
	if (!found.head) {
		/* the rest of its flight must come there too */
		packet->real = own;
		return DWELL_CHOICE_ALONE(DWELL_WHY_FULL);
	}
	dwell_balance_opened(table->embedder, packet);
	dwell_seat_mark((struct dwell_seat *)found.head, packet);
	return packet->measured ? DWELL_CHOICE(why, found.place) : DWELL_CHOICE_ALONE(why);
}

/* True if a packet of this connection must not go on to its real: that is gone,
 * or nothing is established there and it is down or out of reach, or the
 * packet is of another connection between the same ends. All else stays,
 * where the real is well even a SYN after an end: that may have been forged.
 */
static __always_inline int dwell_must_leave(struct dwell_table *table, const struct dwell_seat *seat,
					    const struct dwell_packet *packet, const struct dwell_real *real)
{
	__u8 flags = seat->head.flags;

	if (!real || real->forward == DWELL_FORWARD_NONE)
		return 1;
	if (dwell_unlikely(packet->attempt) &&
	    dwell_attempt_is_over(table->embedder, packet, dwell_now_coarse(table->clock) - seat->head.seen))
		return 1;
	if (dwell_likely(real->interface && !(real->flags & DWELL_REAL_DOWN)))
		return 0;
	if (packet->kind == DWELL_KIND_TCP)
		return packet->tcp_flags & DWELL_TCP_SYN &&
		       (!(flags & DWELL_HEAD_ESTABLISHED) || flags & DWELL_HEAD_CLOSING);
	return real->flags & DWELL_REAL_DOWN || !(flags & DWELL_HEAD_SETTLED);
}

/* Under the seat's lock. */
static __always_inline void dwell_seat_move(struct dwell_table *table, struct dwell_seat *seat,
					    const struct dwell_packet *packet, struct dwell_response_event *record)
{
	if (dwell_seat_close(table, seat, ~0ULL, record))
		dwell_seat_tell(table, seat, record);
	__builtin_memset(&seat->state, 0, sizeof(seat->state));
	seat->real = packet->real;
	seat->vip = packet->vip;
	seat->measured = packet->measured;
	seat->packets = 0;
	seat->head.flags &= ~(DWELL_HEAD_CLOSING | DWELL_HEAD_ESTABLISHED | DWELL_HEAD_SETTLED);
	dwell_balance_opened(table->embedder, packet);
}

/* A packet of a connection that may not stay where it is. Where another CPU is at
 * the connection it stays for this packet: two of them must not choose apart.
 */
static __always_inline dwell_choice dwell_choose_again(struct dwell_table *table, struct dwell_packet *packet,
						       __u32 place, int asks)
{
	__u32 why = dwell_balance_choose(table->embedder, packet);
	struct dwell_seat *seat = dwell_seat_at(table->embedder, place);
	struct dwell_response_event *record = dwell_seat_record(table);

	if (!packet->real || !seat || !record)
		return DWELL_CHOICE_ALONE(why);
	if (packet->attempt)
		dwell_choose_lesser(table, packet, why, asks);
	why = seat->real == packet->real ? DWELL_WHY_CONNECTION : DWELL_WHY_MOVED;
	if (asks)
		return DWELL_CHOICE_ALONE(why);
	if (!dwell_seat_lock(seat)) {
		packet->real = seat->real;
		return DWELL_CHOICE_ALONE(DWELL_WHY_CONNECTION);
	}
	if (dwell_same_key(&seat->head.key, &packet->key)) {
		if (!dwell_must_leave(table, seat, packet, dwell_real_at(table->embedder, seat->real))) {
			packet->real = seat->real;
			why = DWELL_WHY_CONNECTION;
		} else if (why == DWELL_WHY_MOVED) {
			dwell_seat_move(table, seat, packet, record);
		}
		seat->head.seen = dwell_now_coarse(table->clock);
		dwell_seat_mark(seat, packet);
	}
	dwell_seat_unlock(seat);
	return seat->measured ? DWELL_CHOICE(why, place) : DWELL_CHOICE_ALONE(why);
}

/* What a packet of a connection that stays does to it. */
static __always_inline dwell_choice dwell_balance_known(struct dwell_table *table, struct dwell_packet *packet,
							struct dwell_seat *seat, __u32 place)
{
	__u32 now_coarse = dwell_now_coarse(table->clock);

	if (seat->head.seen != now_coarse)
		seat->head.seen = now_coarse;
	dwell_seat_mark(seat, packet);
	return seat->measured ? DWELL_CHOICE(DWELL_WHY_CONNECTION, place) : DWELL_CHOICE_ALONE(DWELL_WHY_CONNECTION);
}

/* Where the packet's connection is, or goes. Returns why. */
static __always_inline __u32 dwell_balance_flow(struct dwell_table *table, struct dwell_packet *packet, int asks)
{
	__u32 mask = table->config->bucket_mask;
	struct dwell_found found = dwell_flow_find(table->embedder, dwell_bucket_first(packet->hash, mask),
						   dwell_bucket_second(packet->hash, mask), packet);
	struct dwell_seat *seat = (struct dwell_seat *)found.head;
	dwell_choice choice = DWELL_CHOICE_ALONE(DWELL_WHY_CONNECTION);

	if (dwell_likely(seat)) {
		packet->real = seat->real;
		packet->vip = seat->vip;
		if (seat->measured)
			dwell_seat_fetch(seat);
		DWELL_BARRIER();
		/* the place may be another's by now: a look-up more would find nothing */
		if (dwell_unlikely(!dwell_same_key(&seat->head.key, &packet->key)))
			choice = dwell_balance_first(table, packet, 1);
		else if (dwell_unlikely(
				 dwell_must_leave(table, seat, packet, dwell_real_at(table->embedder, packet->real))))
			choice = dwell_balance_again(table, packet, found.place, asks);
		else if (!asks)
			choice = dwell_balance_known(table, packet, seat, found.place);
	} else {
		choice = dwell_balance_first(table, packet, asks);
		if (dwell_choice_measures(choice))
			seat = dwell_seat_at(table->embedder, dwell_choice_place(choice));
	}
	if (!asks && dwell_choice_measures(choice) && seat)
		dwell_seat_measure(table, seat, packet);
	return dwell_choice_why(choice);
}

/* The connection of what an ICMP error quotes. It is not refreshed: anybody can
 * send such.
 */
static __always_inline __u32 dwell_balance_quoted(struct dwell_table *table, struct dwell_packet *packet)
{
	__u32 mask = table->config->bucket_mask, why;
	struct dwell_found found = dwell_flow_find(table->embedder, dwell_bucket_first(packet->hash, mask),
						   dwell_bucket_second(packet->hash, mask), packet);
	struct dwell_seat *seat = (struct dwell_seat *)found.head;

	if (seat) {
		packet->real = seat->real;
		packet->vip = seat->vip;
		DWELL_BARRIER();
		if (dwell_likely(dwell_same_key(&seat->head.key, &packet->key)))
			return DWELL_WHY_QUOTED;
	}
	why = dwell_choice_why(dwell_balance_first(table, packet, 1));
	return packet->real ? DWELL_WHY_QUOTED : why;
}

#endif
