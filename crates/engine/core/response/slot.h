/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell response` on a flow table: whose packets count, what happens as
 * epochs and flows end.
 */
#ifndef DWELL_RESPONSE_SLOT_H
#define DWELL_RESPONSE_SLOT_H

#include "response/embed.h"
#include "parse/arrival.h"
#include "table/pool.h"
#include "response/response.h"
#include "response/response_event.h"

/* One flow. Its packets may come on several CPUs at once: the lock is tried for
 * a while, and then the packet is given up, and counted. All that a balancer needs
 * to send a packet on is in the first cache line.
 */
struct dwell_slot {
	struct dwell_head head;
	__u32 lock;
	union {
		__u32 real;  /* at a balancer: the backend */
		__u32 token; /* QUIC: of the alias that leads here, brief; 0: none */
	};
	union {
		__u32 vip;  /* at a balancer: what the backend is one of */
		__u32 id;   /* QUIC: of the connection, the same whatever its ends are */
		__u32 next; /* of nobody: the next slot that is free, plus 1 */
	};
	__u8 client : 1;   /* direction of the client's packets */
	__u8 measured : 1; /* at a balancer: its latency is estimated */
	__u8 key_kind : 6;
	__u8 packets;     /* of the client, up to DWELL_SETTLED_PACKETS */
	__u16 token_next; /* of the newest packet, if it is another: its upper half */
	union dwell_response_state state;
};
_Static_assert(__builtin_offsetof(struct dwell_slot, state) == 64, "a cache line");

/* More than a flow of a flood has: SYN, ACK, request. */
#define DWELL_SETTLED_PACKETS 3
#define DWELL_SLOT_LOCK_TRIES 64

static __always_inline int dwell_slot_lock(struct dwell_slot *slot)
{
	for (int i = 0; i < DWELL_SLOT_LOCK_TRIES; i++)
		if (__sync_val_compare_and_swap(&slot->lock, 0, 1) == 0)
			return 1;
	return 0;
}

/* Machines that keep the order of stores need no exchange. */
static __always_inline void dwell_slot_unlock(struct dwell_slot *slot)
{
	if (DWELL_STORES_IN_ORDER) {
		DWELL_BARRIER();
		*(volatile __u32 *)&slot->lock = 0;
	} else {
		__sync_lock_test_and_set(&slot->lock, 0);
	}
}

static __always_inline void dwell_slot_report(struct dwell_table *table, const struct dwell_slot *slot,
					      struct dwell_response_event *record)
{
	const struct dwell_flow_key *key = &slot->head.key;
	int from_b = slot->client & 1,
	    has_id = slot->key_kind == DWELL_KEY_ESP || slot->key_kind == DWELL_KEY_WIREGUARD;
	__u32 id = has_id ? (__u32)key->a_port << 16 | key->b_port : 0;

	/* at a balancer a flood's flows would fill the ring buffer */
	if (slot->measured && !record->epoch.requests && !record->epoch.all && !record->epoch.handshake_ns)
		return;
	record->event = DWELL_EVENT_RESPONSE;
	record->proto = slot->head.proto;
	record->key_kind = slot->key_kind;
	record->interface = key->interface;
	record->src = from_b ? key->b : key->a;
	record->dst = from_b ? key->a : key->b;
	record->src_port = has_id ? 0 : from_b ? key->b_port : key->a_port;
	record->dst_port = has_id ? 0 : from_b ? key->a_port : key->b_port;
	record->id = slot->key_kind == DWELL_KEY_QUIC_CID ? slot->id : id;
	record->real = slot->measured ? slot->real : 0;
	record->vip = slot->measured ? slot->vip : 0;
	dwell_table_count(table, DWELL_SAMPLES);
	dwell_response_emit(table, record);
}

static __always_inline struct dwell_head *dwell_head_at(void *embedder, __u32 slot_index)
{
	struct dwell_slot *slot = dwell_slot_at(embedder, slot_index);

	return slot ? &slot->head : 0;
}

static __always_inline __u32 dwell_slot_of(const struct dwell_bucket *bucket, __u32 index, __u32 way)
{
	(void)index;
	return ((const struct dwell_slot_bucket *)bucket)->slot_index[way & (DWELL_WAYS - 1)];
}

static __always_inline int dwell_slot_is_available(void *embedder)
{
	return dwell_pool_spare(dwell_pool_of(embedder), dwell_slot_total(embedder));
}

/* None if other CPUs are at the pool all the time: the packet goes on without one. */
static __always_inline __u32 dwell_slot_allocate(struct dwell_table *table, struct dwell_bucket *bucket, __u32 index,
						 __u32 way)
{
	struct dwell_pool *pool = dwell_pool_of(table->embedder);
	__u32 slot_index = DWELL_NO_SLOT;

	(void)index;
	for (int i = 0; pool && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;
		struct dwell_slot *slot;

		if (!(__u32)top) {
			slot_index = dwell_pool_fresh(pool, dwell_slot_total(table->embedder));
			break;
		}
		slot = dwell_slot_at(table->embedder, (__u32)top - 1);
		if (!slot)
			break;
		if (dwell_pool_swap(pool, top, *(volatile __u32 *)&slot->next)) {
			slot_index = (__u32)top - 1;
			break;
		}
	}
	((struct dwell_slot_bucket *)bucket)->slot_index[way & (DWELL_WAYS - 1)] = slot_index;
	return slot_index;
}

/* Nobody may find it there any more. The slot is lost until the table is made anew if all
 * tries fail: each only if another CPU's exchange falls into the few nanoseconds between
 * look and exchange.
 */
static __always_inline void dwell_slot_free(struct dwell_table *table, __u32 slot_index)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);
	struct dwell_pool *pool = dwell_pool_of(table->embedder);

	for (int i = 0; pool && slot && i < DWELL_POOL_TRIES; i++) {
		__u64 top = *(volatile __u64 *)&pool->top;

		*(volatile __u32 *)&slot->next = (__u32)top;
		DWELL_BARRIER();
		if (dwell_pool_swap(pool, top, slot_index + 1))
			return;
	}
}

static __always_inline int dwell_slot_acquire(struct dwell_table *table, __u32 slot_index)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);

	return slot && dwell_slot_lock(slot);
}

static __always_inline void dwell_slot_release(struct dwell_table *table, __u32 slot_index)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);

	if (slot)
		dwell_slot_unlock(slot);
}

static __always_inline void dwell_slot_close(struct dwell_table *table, __u32 slot_index, __u32 reason)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);
	struct dwell_response_event *record = dwell_response_record(table);

	(void)reason;
	if (!slot)
		return;
	if (record && dwell_slot_end_epoch(table, slot, ~0ULL, record))
		dwell_slot_report(table, slot, record);
	/* a CPU that found the flow before must see that it is gone */
	__builtin_memset(&slot->head.key, 0xff, sizeof(slot->head.key));
}

/* Which way is the client's must be known before a packet of the other way, on
 * another CPU, can find the flow.
 */
static __always_inline int dwell_slot_init(struct dwell_table *table, __u32 slot_index,
					   const struct dwell_packet *packet)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);

	if (!slot)
		return 0;
	__builtin_memset(&slot->head, 0, sizeof(slot->head));
	__builtin_memset(&slot->state, 0, sizeof(slot->state));
	/* only clients' packets come to a balancer */
	slot->client = packet->vip ? packet->direction & 1
				   : dwell_client_direction(&dwell_response_program_of(table)->servers, packet);
	slot->key_kind = packet->key_kind;
	slot->measured = packet->measured;
	slot->packets = 0;
	slot->real = packet->real; /* of no balancer: 0, and so no token */
	slot->token_next = 0;
	if (packet->vip)
		slot->vip = packet->vip;
	else
		slot->id = packet->hash;
	return 1;
}

/* Moves a connection here from the slot between its old ends, if that has been
 * silent for 20 ms: else they are two, whose IDs begin alike.
 */
static __always_inline void dwell_slot_follow(struct dwell_table *table, struct dwell_slot *slot, __u64 token)
{
	const struct dwell_response_program *program = dwell_response_program_of(table);
	struct dwell_alias *alias = dwell_alias_at(table->embedder, token & program->alias_mask);
	struct dwell_slot *old;
	__u32 idle;

	if (!alias || alias->token != token)
		return;
	old = dwell_slot_at(table->embedder, alias->slot_index);
	if (!old || old == slot || old->token != dwell_token_short(token) || old->client != slot->client)
		return;
	idle = dwell_now_coarse(table->clock) - old->head.seen;
	if (idle < 19 || dwell_is_future(idle) || !dwell_slot_lock(old))
		return;
	if (old->token == dwell_token_short(token)) { /* else the slot is another's by now */
		slot->key_kind = old->key_kind;
		slot->id = old->id;
		slot->state = old->state;
		old->token = 0;
		__builtin_memset(&old->state, 0, sizeof(old->state));
	}
	dwell_slot_unlock(old);
}

/* Keeps the way from the connection ID to the flow. */
static __always_inline void dwell_slot_alias(struct dwell_table *table, struct dwell_slot *slot, __u32 slot_index,
					     __u64 token)
{
	const struct dwell_response_program *program = dwell_response_program_of(table);
	struct dwell_alias *alias;

	if (slot->token_next != dwell_token_short(token) >> 16) {
		slot->token_next = dwell_token_short(token) >> 16;
		return;
	}
	alias = dwell_alias_at(table->embedder, token & program->alias_mask);
	if (!alias)
		return;
	alias->slot_index = slot_index;
	alias->token = token;
	slot->token = dwell_token_short(token);
}

/* What a client's packet shows of its connection. The slot is locked. */
static __always_inline void dwell_slot_connection(struct dwell_table *table, const struct dwell_lookup *found,
						  const struct dwell_packet *packet)
{
	struct dwell_slot *slot = (struct dwell_slot *)found->head;
	__u64 token;

	if (packet->key_kind == DWELL_KEY_QUIC_CID)
		slot->key_kind = DWELL_KEY_QUIC_CID;
	if (!packet->cid)
		return;
	token = dwell_cid_token(packet, slot->client, table->config->seed);
	/* these ends are new, or the connection had moved away from them */
	if (!slot->token && !slot->state.clock.last_ns)
		dwell_slot_follow(table, slot, token);
	if (slot->key_kind == DWELL_KEY_QUIC_CID && slot->token != dwell_token_short(token))
		dwell_slot_alias(table, slot, found->slot_index, token);
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
static __always_inline void dwell_slot_packet(struct dwell_table *table, const struct dwell_packet *packet)
{
	struct dwell_lookup found = dwell_flow_of(table, packet);
	struct dwell_slot *slot = (struct dwell_slot *)found.head;
	struct dwell_response_event *record;
	struct dwell_arrival arrival = {};

	if (!slot) {
		if (!packet->may_open)
			dwell_table_count(table, DWELL_SKIP_STRAY);
		return;
	}
	if ((packet->direction & 1) != slot->client) {
		dwell_table_count(table, DWELL_SKIP_SERVER);
		return;
	}
	record = dwell_response_record(table);
	if (!record || !dwell_slot_lock(slot)) {
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (!dwell_same_key(&slot->head.key, &packet->key)) { /* the slot is another's by now */
		dwell_slot_unlock(slot);
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (packet->kind == DWELL_KIND_UDP)
		dwell_slot_connection(table, &found, packet);
	dwell_arrival_of(&arrival, packet, slot->key_kind, dwell_now(table->clock));
	if (dwell_slot_step(table, slot, &arrival, record))
		dwell_slot_report(table, slot, record);
	if (slot->packets < DWELL_SETTLED_PACKETS && ++slot->packets == DWELL_SETTLED_PACKETS)
		slot->head.flags |= DWELL_HEAD_SETTLED;
	dwell_slot_unlock(slot);
}

/* Ends the epochs of a bucket that are over, then frees idle flows; with
 * DWELL_CLOSE_END all.
 */
static __always_inline void dwell_slot_sweep(struct dwell_table *table, __u32 index, __u32 reason)
{
	struct dwell_bucket *bucket = dwell_bucket_at(table->embedder, index);

	if (!bucket || !bucket->tags)
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		struct dwell_slot *slot = dwell_slot_at(table->embedder, dwell_slot_of(bucket, index, way));
		struct dwell_response_event *record = dwell_response_record(table);

		if (!slot || !record || !(bucket->tags >> 16 * way & 0xffff) || !dwell_slot_lock(slot))
			continue;
		if (dwell_slot_end_epoch(table, slot, dwell_now(table->clock), record))
			dwell_slot_report(table, slot, record);
		dwell_slot_unlock(slot);
	}
	dwell_bucket_sweep(table, index, reason);
}

/* The packet that dwell_locate_plain() or dwell_locate_any() found. */
static __always_inline dwell_where dwell_response_locate(DWELL_FRAME *frame, const void *data, const void *end,
							 __u32 link, __u32 key_kind)
{
	dwell_where where = 0;

	if (key_kind != DWELL_KEY_OUTER)
		where = dwell_locate_plain(data, end, link);
	return where ? where : dwell_locate_any(frame, data, end, link, key_kind == DWELL_KEY_OUTER);
}

#endif
