/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell response` on a flow table: whose packets count, what happens as
 * epochs and flows end.
 */
#ifndef DWELL_RESPONSE_SLOT_H
#define DWELL_RESPONSE_SLOT_H

#include "parse/arrival.h"
#include "table/pool.h"
#include "response/response.h"
#include "response/response_event.h"

/* One flow. Its packets may come on several CPUs at once: the lock is tried for
 * a while, and then the packet is given up, and counted. All that a balancer needs
 * to send a packet on is in the first cache line.
 */
struct dwell_seat {
	struct dwell_head head;
	__u32 lock;
	union {
		__u32 real;  /* at a balancer: the backend */
		__u32 token; /* QUIC: of the alias that leads here, brief; 0: none */
	};
	union {
		__u32 vip;  /* at a balancer: what the backend is one of */
		__u32 id;   /* QUIC: of the connection, the same whatever its ends are */
		__u32 next; /* of nobody: the next place that is free, plus 1 */
	};
	__u8 client : 1;   /* direction of the client's packets */
	__u8 measured : 1; /* at a balancer: its latency is estimated */
	__u8 key_kind : 6;
	__u8 packets;     /* of the client, up to DWELL_SEAT_SETTLED */
	__u16 token_next; /* of the newest packet, if it is another: its upper half */
	union dwell_response_state state;
};
_Static_assert(__builtin_offsetof(struct dwell_seat, state) == 64, "a cache line");

static __always_inline struct dwell_seat *dwell_seat_at(void *embedder, __u32 place);
static __always_inline struct dwell_pool *dwell_pool_of(void *embedder);
static __always_inline __u32 dwell_places_in(void *embedder);
static __always_inline struct dwell_alias *dwell_alias_at(void *embedder, __u32 index);

/* Room for a record, and its way out. */
static __always_inline struct dwell_response_event *dwell_seat_record(struct dwell_table *table);
static __always_inline void dwell_seat_emit(struct dwell_table *table, struct dwell_response_event *record);
static __always_inline const struct dwell_response_program *dwell_seat_program(struct dwell_table *table);

/* dwell_response_step() and dwell_response_end(), or calls of them. */
static __always_inline int dwell_seat_advance(struct dwell_table *table, struct dwell_seat *seat,
					      const struct dwell_arrival *arrival, struct dwell_response_event *record);
static __always_inline int dwell_seat_close(struct dwell_table *table, struct dwell_seat *seat, __u64 now_ns,
					    struct dwell_response_event *record);

/* More than a flow of a flood has: SYN, ACK, request. */
#define DWELL_SEAT_SETTLED 3
#define DWELL_SEAT_TRIES 64

static __always_inline int dwell_seat_lock(struct dwell_seat *seat)
{
	for (int i = 0; i < DWELL_SEAT_TRIES; i++)
		if (__sync_val_compare_and_swap(&seat->lock, 0, 1) == 0)
			return 1;
	return 0;
}

/* Machines that keep the order of stores need no exchange. */
static __always_inline void dwell_seat_unlock(struct dwell_seat *seat)
{
	if (DWELL_STORES_IN_ORDER) {
		DWELL_BARRIER();
		*(volatile __u32 *)&seat->lock = 0;
	} else {
		__sync_lock_test_and_set(&seat->lock, 0);
	}
}

static __always_inline void dwell_seat_tell(struct dwell_table *table, const struct dwell_seat *seat,
					    struct dwell_response_event *record)
{
	const struct dwell_flow_key *key = &seat->head.key;
	int from_b = seat->client & 1,
	    has_id = seat->key_kind == DWELL_KEY_ESP || seat->key_kind == DWELL_KEY_WIREGUARD;
	__u32 id = has_id ? (__u32)key->a_port << 16 | key->b_port : 0;

	/* at a balancer a flood's flows would fill the ring buffer */
	if (seat->measured && !record->epoch.requests && !record->epoch.all && !record->epoch.handshake_ns)
		return;
	record->event = DWELL_EVENT_RESPONSE;
	record->proto = seat->head.proto;
	record->key_kind = seat->key_kind;
	record->interface = key->interface;
	record->src = from_b ? key->b : key->a;
	record->dst = from_b ? key->a : key->b;
	record->src_port = has_id ? 0 : from_b ? key->b_port : key->a_port;
	record->dst_port = has_id ? 0 : from_b ? key->a_port : key->b_port;
	record->id = seat->key_kind == DWELL_KEY_QUIC_CID ? seat->id : id;
	record->real = seat->measured ? seat->real : 0;
	record->vip = seat->measured ? seat->vip : 0;
	dwell_table_count(table, DWELL_SAMPLES);
	dwell_seat_emit(table, record);
}

static __always_inline struct dwell_head *dwell_head_at(void *embedder, __u32 place)
{
	struct dwell_seat *seat = dwell_seat_at(embedder, place);

	return seat ? &seat->head : 0;
}

static __always_inline __u32 dwell_place_of(const struct dwell_bucket *bucket, __u32 index, __u32 way)
{
	(void)index;
	return ((const struct dwell_seat_bucket *)bucket)->place[way & (DWELL_WAYS - 1)];
}

static __always_inline int dwell_place_spare(void *embedder)
{
	return dwell_pool_spare(dwell_pool_of(embedder), dwell_places_in(embedder));
}

/* None if other CPUs are at the pool all the time: the packet goes on without one. */
static __always_inline __u32 dwell_place_new(struct dwell_table *table, struct dwell_bucket *bucket, __u32 index,
					     __u32 way)
{
	struct dwell_pool *pool = dwell_pool_of(table->embedder);
	__u32 place = DWELL_NO_PLACE;

	(void)index;
	for (int i = 0; pool && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;
		struct dwell_seat *seat;

		if (!(__u32)top) {
			place = dwell_pool_fresh(pool, dwell_places_in(table->embedder));
			break;
		}
		seat = dwell_seat_at(table->embedder, (__u32)top - 1);
		if (!seat)
			break;
		if (dwell_pool_swap(pool, top, *(volatile __u32 *)&seat->next)) {
			place = (__u32)top - 1;
			break;
		}
	}
	((struct dwell_seat_bucket *)bucket)->place[way & (DWELL_WAYS - 1)] = place;
	return place;
}

/* Nobody may find it there any more. The place is lost until the table is made anew if all
 * tries fail: each only if another CPU's exchange falls into the few nanoseconds between
 * look and exchange.
 */
static __always_inline void dwell_place_free(struct dwell_table *table, __u32 place)
{
	struct dwell_seat *seat = dwell_seat_at(table->embedder, place);
	struct dwell_pool *pool = dwell_pool_of(table->embedder);

	for (int i = 0; pool && seat && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;

		*(volatile __u32 *)&seat->next = (__u32)top;
		DWELL_BARRIER();
		if (dwell_pool_swap(pool, top, place + 1))
			return;
	}
}

static __always_inline int dwell_place_take(struct dwell_table *table, __u32 place)
{
	struct dwell_seat *seat = dwell_seat_at(table->embedder, place);

	return seat && dwell_seat_lock(seat);
}

static __always_inline void dwell_place_give(struct dwell_table *table, __u32 place)
{
	struct dwell_seat *seat = dwell_seat_at(table->embedder, place);

	if (seat)
		dwell_seat_unlock(seat);
}

static __always_inline void dwell_place_over(struct dwell_table *table, __u32 place, __u32 reason)
{
	struct dwell_seat *seat = dwell_seat_at(table->embedder, place);
	struct dwell_response_event *record = dwell_seat_record(table);

	(void)reason;
	if (!seat)
		return;
	if (record && dwell_seat_close(table, seat, ~0ULL, record))
		dwell_seat_tell(table, seat, record);
	/* a CPU that found the flow before must see that it is gone */
	__builtin_memset(&seat->head.key, 0xff, sizeof(seat->head.key));
}

/* Which way is the client's must be known before a packet of the other way, on
 * another CPU, can find the flow.
 */
static __always_inline int dwell_place_begin(struct dwell_table *table, __u32 place, const struct dwell_packet *packet)
{
	struct dwell_seat *seat = dwell_seat_at(table->embedder, place);

	if (!seat)
		return 0;
	__builtin_memset(&seat->head, 0, sizeof(seat->head));
	__builtin_memset(&seat->state, 0, sizeof(seat->state));
	/* only clients' packets come to a balancer */
	seat->client = packet->vip ? packet->direction & 1
				   : dwell_client_direction(&dwell_seat_program(table)->servers, packet);
	seat->key_kind = packet->key_kind;
	seat->measured = packet->measured;
	seat->packets = 0;
	seat->real = packet->real; /* of no balancer: 0, and so no token */
	seat->token_next = 0;
	if (packet->vip)
		seat->vip = packet->vip;
	else
		seat->id = packet->hash;
	return 1;
}

/* Moves a connection here from the place between its old ends, if that has been
 * silent for 20 ms: else they are two, whose IDs begin alike.
 */
static __always_inline void dwell_seat_follow(struct dwell_table *table, struct dwell_seat *seat, __u64 token)
{
	const struct dwell_response_program *program = dwell_seat_program(table);
	struct dwell_alias *alias = dwell_alias_at(table->embedder, token & program->alias_mask);
	struct dwell_seat *old;
	__u32 idle;

	if (!alias || alias->token != token)
		return;
	old = dwell_seat_at(table->embedder, alias->place);
	if (!old || old == seat || old->token != dwell_token_brief(token) || old->client != seat->client)
		return;
	idle = dwell_now_coarse(table->clock) - old->head.seen;
	if (idle < 19 || dwell_is_future(idle) || !dwell_seat_lock(old))
		return;
	if (old->token == dwell_token_brief(token)) { /* else the place is another's by now */
		seat->key_kind = old->key_kind;
		seat->id = old->id;
		seat->state = old->state;
		old->token = 0;
		__builtin_memset(&old->state, 0, sizeof(old->state));
	}
	dwell_seat_unlock(old);
}

/* Keeps the way from the connection ID to the flow. */
static __always_inline void dwell_seat_alias(struct dwell_table *table, struct dwell_seat *seat, __u32 place,
					     __u64 token)
{
	const struct dwell_response_program *program = dwell_seat_program(table);
	struct dwell_alias *alias;

	if (seat->token_next != dwell_token_brief(token) >> 16) {
		seat->token_next = dwell_token_brief(token) >> 16;
		return;
	}
	alias = dwell_alias_at(table->embedder, token & program->alias_mask);
	if (!alias)
		return;
	alias->place = place;
	alias->token = token;
	seat->token = dwell_token_brief(token);
}

/* What a client's packet shows of its connection. The seat is locked. */
static __always_inline void dwell_seat_connection(struct dwell_table *table, const struct dwell_found *found,
						  const struct dwell_packet *packet)
{
	struct dwell_seat *seat = (struct dwell_seat *)found->head;
	__u64 token;

	if (packet->key_kind == DWELL_KEY_QUIC_CID)
		seat->key_kind = DWELL_KEY_QUIC_CID;
	if (!packet->cid)
		return;
	token = dwell_cid_token(packet, seat->client, table->config->seed);
	/* these ends are new, or the connection had moved away from them */
	if (!seat->token && !seat->state.clock.last_ns)
		dwell_seat_follow(table, seat, token);
	if (seat->key_kind == DWELL_KEY_QUIC_CID && seat->token != dwell_token_brief(token))
		dwell_seat_alias(table, seat, found->place, token);
}

static __always_inline void dwell_arrival_of(struct dwell_arrival *arrival, const struct dwell_packet *packet,
					     __u32 key_kind, __u64 now_ns)
{
	arrival->time_ns = now_ns;
	arrival->bytes = packet->ip_bytes;
	arrival->payload_bytes = packet->payload_bytes;
	arrival->seq = packet->seq;
	arrival->ack = packet->ack;
	arrival->tcp_flags = packet->tcp_flags;
	arrival->segments = packet->segments;
	arrival->visible = DWELL_VISIBLE_NONE;
	if (packet->kind == DWELL_KIND_TCP)
		arrival->visible = DWELL_VISIBLE_TCP;
	else if (packet->kind == DWELL_KIND_UDP && key_kind == DWELL_KEY_5TUPLE)
		arrival->visible = DWELL_VISIBLE_UDP;
}

/* One parsed packet through look-up and estimator. */
static __always_inline void dwell_seat_step(struct dwell_table *table, const struct dwell_packet *packet)
{
	struct dwell_found found = dwell_flow_of(table, packet);
	struct dwell_seat *seat = (struct dwell_seat *)found.head;
	struct dwell_response_event *record;
	struct dwell_arrival arrival = {};

	if (!seat) {
		if (!packet->may_open)
			dwell_table_count(table, DWELL_SKIP_STRAY);
		return;
	}
	if ((packet->direction & 1) != seat->client) {
		dwell_table_count(table, DWELL_SKIP_SERVER);
		return;
	}
	record = dwell_seat_record(table);
	if (!record || !dwell_seat_lock(seat)) {
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (!dwell_same_key(&seat->head.key, &packet->key)) { /* the place is another's by now */
		dwell_seat_unlock(seat);
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (packet->kind == DWELL_KIND_UDP)
		dwell_seat_connection(table, &found, packet);
	dwell_arrival_of(&arrival, packet, seat->key_kind, dwell_now(table->clock));
	if (dwell_seat_advance(table, seat, &arrival, record))
		dwell_seat_tell(table, seat, record);
	if (seat->packets < DWELL_SEAT_SETTLED && ++seat->packets == DWELL_SEAT_SETTLED)
		seat->head.flags |= DWELL_HEAD_SETTLED;
	dwell_seat_unlock(seat);
}

/* Ends the epochs of a bucket that are over, then frees idle flows; with
 * DWELL_CLOSE_END all.
 */
static __always_inline void dwell_seat_sweep(struct dwell_table *table, __u32 index, __u32 reason)
{
	struct dwell_bucket *bucket = dwell_bucket_at(table->embedder, index);

	if (!bucket || !bucket->tags)
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		struct dwell_seat *seat = dwell_seat_at(table->embedder, dwell_place_of(bucket, index, way));
		struct dwell_response_event *record = dwell_seat_record(table);

		if (!seat || !record || !(bucket->tags >> 16 * way & 0xffff) || !dwell_seat_lock(seat))
			continue;
		if (dwell_seat_close(table, seat, dwell_now(table->clock), record))
			dwell_seat_tell(table, seat, record);
		dwell_seat_unlock(seat);
	}
	dwell_bucket_sweep(table, index, reason);
}

/* The packet that dwell_locate_plain() or dwell_locate_any() found. */
static __always_inline dwell_where dwell_seat_locate(DWELL_FRAME *frame, const void *data, const void *end, __u32 link,
						     __u32 key_kind)
{
	dwell_where where = 0;

	if (key_kind != DWELL_KEY_OUTER)
		where = dwell_locate_plain(data, end, link);
	return where ? where : dwell_locate_any(frame, data, end, link, key_kind == DWELL_KEY_OUTER);
}

#endif
