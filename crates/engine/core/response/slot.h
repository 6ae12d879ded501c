/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell response` on a flow table: which packets count, and what happens when epochs and flows end. */
#ifndef DWELL_RESPONSE_SLOT_H
#define DWELL_RESPONSE_SLOT_H

#include "response/embed.h"
#include "parse/arrival.h"
#include "table/pool.h"
#include "response/response.h"
#include "response/response_event.h"

/* The lock of a slot and, as whoever unlocks it must not undo what others write, which state its estimator has. */
union dwell_slot_lock {
	__u32 word;
	struct {
		__u8 locked;
		__u8 state_high; /* index of the state, plus 1; 0: it has none */
		__u16 state_low;
	};
};
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define DWELL_SLOT_LOCKED 1U
#else
#define DWELL_SLOT_LOCKED (1U << 24)
#endif

/* One flow, but for the state of its estimator, which not every connection of a balancer has. Its packets may arrive on several
 * CPUs at once: each tries the lock for a while, and then gives the packet up and counts it. One cache line holds all that the
 * balancer needs to forward a packet.
 */
struct dwell_slot {
	struct dwell_head head;
	union dwell_slot_lock lock;
	union {
		/* of `dwell response`: the QUIC connection */
		struct {
			__u32 token; /* short token of the alias that leads here; 0: none */
			__u32 id;    /* number of the connection, the same whatever its endpoints are */
		} connection;
		/* of the balancer: where the connection goes */
		struct {
			__u32 real;
			__u16 vip;
			__u16 seq_low; /* lower half of the client's newest sequence number; see `seq_high` */
		} lb;
		/* of a slot that no flow occupies */
		struct {
			__u32 reserved;
			__u32 next; /* index of the next free slot, plus 1; 0: none */
		} vacant;
	};
	__u8 client : 1;   /* direction of the client's packets */
	__u8 measured : 1; /* at a balancer: the latency of the connection is estimated */
	__u8 trusted : 1;  /* at a balancer: as `measured`, but only once the connection has settled */
	__u8 key_kind : 4;
	__u8 packets; /* packets of the client, up to DWELL_SETTLED_PACKETS; at a balancer: see dwell_slot_settle() */
	union {
		__u16 token_next; /* upper half of the newest packet's token, if it differs from `token` */
		__u16 seq_high;   /* at a balancer: upper half of the client's newest sequence number */
	};
};
_Static_assert(sizeof(struct dwell_slot) == 64, "a cache line");

/* A slot with room for a state: its own, unless states have a pool (response/embed.h). */
struct dwell_wide_slot {
	struct dwell_slot slot;
	union dwell_response_state state;
};

/* Packets after which a flow cannot be part of a flood: SYN, ACK, request. */
#define DWELL_SETTLED_PACKETS 3
/* Silence of the old endpoints after which a connection may have moved: 20 ms in coarse units. */
#define DWELL_MIGRATION_COARSE (20000000 >> 20)
#define DWELL_SLOT_LOCK_TRIES 64

static __always_inline int dwell_slot_lock(struct dwell_slot *slot)
{
	for (int i = 0; i < DWELL_SLOT_LOCK_TRIES; i++) {
		__u32 free = *(volatile __u32 *)&slot->lock.word & ~DWELL_SLOT_LOCKED;

		if (__sync_val_compare_and_swap(&slot->lock.word, free, free | DWELL_SLOT_LOCKED) == free)
			return 1;
	}
	return 0;
}

/* Unlocks a slot. Machines that keep the order of stores need no exchange. */
static __always_inline void dwell_slot_unlock(struct dwell_slot *slot)
{
	if (DWELL_STORES_IN_ORDER) {
		DWELL_BARRIER();
		*(volatile __u8 *)&slot->lock.locked = 0;
	} else {
		__sync_fetch_and_and(&slot->lock.word, ~DWELL_SLOT_LOCKED);
	}
}

/* Returns the index of the state that a slot has, plus 1; 0: none. */
static __always_inline __u32 dwell_slot_state(const struct dwell_slot *slot)
{
	return (__u32)slot->lock.state_high << 16 | slot->lock.state_low;
}

static __always_inline void dwell_slot_set_state(struct dwell_slot *slot, __u32 state)
{
	*(volatile __u8 *)&slot->lock.state_high = state >> 16;
	*(volatile __u16 *)&slot->lock.state_low = state;
}

/* Returns true for an epoch that shows nothing, which has no record: the flows of a flood, of few packets each, would fill the
 * ring buffer.
 */
static __always_inline int dwell_slot_is_brief(const struct dwell_slot *slot, const struct dwell_epoch *epoch)
{
	if (epoch->all || epoch->answered || epoch->handshake_ns)
		return 0;
	if (slot->measured)
		return !epoch->requests;
	return !(slot->head.flags & DWELL_HEAD_SETTLED) && epoch->requests <= (slot->head.proto == DWELL_PROTO_UDP);
}

static __always_inline void dwell_slot_report(struct dwell_table *table, const struct dwell_slot *slot, __u32 tunnel,
					      struct dwell_response_event *record)
{
	const struct dwell_flow_key *key = &slot->head.key;
	int from_b = slot->client & 1,
	    has_id = slot->key_kind == DWELL_KEY_ESP || slot->key_kind == DWELL_KEY_WIREGUARD;
	__u32 id = has_id ? (__u32)key->a_port << 16 | key->b_port : 0;

	if (dwell_slot_is_brief(slot, &record->epoch)) {
		/* atomic, as that needs less of BPF's stack */
		__sync_fetch_and_add(&table->counters->value[DWELL_SKIP_BRIEF], record->epoch.packets);
		return;
	}
	record->event = DWELL_EVENT_RESPONSE;
	record->proto = slot->head.proto;
	record->key_kind = slot->key_kind;
	record->interface = dwell_interface_in(key->interface, tunnel);
	record->tunnel = tunnel;
	record->src = from_b ? key->b : key->a;
	record->dst = from_b ? key->a : key->b;
	record->src_port = has_id ? 0 : from_b ? key->b_port : key->a_port;
	record->dst_port = has_id ? 0 : from_b ? key->a_port : key->b_port;
	record->id = slot->key_kind == DWELL_KEY_QUIC_CID ? slot->connection.id : id;
	record->real = slot->measured ? slot->lb.real : 0;
	record->vip = slot->measured ? slot->lb.vip : 0;
	dwell_table_count(table, DWELL_SAMPLES);
	dwell_response_emit(table, record);
}

static __always_inline struct dwell_head *dwell_head_at(void *embedder, __u32 slot_index)
{
	struct dwell_slot *slot = dwell_slot_at(embedder, slot_index);

	return slot ? &slot->head : 0;
}

static __always_inline __u32 *dwell_slot_next(void *embedder, __u32 slot_index)
{
	struct dwell_slot *slot = dwell_slot_at(embedder, slot_index);

	return slot ? &slot->vacant.next : 0;
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

/* Ends the epoch of a connection that is measured if that is due at `now_ns` or, with ~0, whatever the time, and reports it. */
static __always_inline void dwell_slot_finish(struct dwell_table *table, struct dwell_slot *slot, __u64 now_ns,
					      struct dwell_response_event *record)
{
	union dwell_response_state *state = dwell_state_at(table->embedder, slot);

	if (state && now_ns >= dwell_epoch_due(&state->clock, &dwell_response_program_of(table)->response) &&
	    dwell_state_end(table, state, now_ns, record))
		dwell_slot_report(table, slot, state->tunnel, record);
}

/* Steps the estimator of a locked slot that has a state. */
static __always_inline void dwell_slot_step(struct dwell_table *table, struct dwell_slot *slot,
					    const struct dwell_arrival *arrival, struct dwell_response_event *record)
{
	union dwell_response_state *state = dwell_state_at(table->embedder, slot);

	if (state && dwell_state_step(table, state, arrival, record))
		dwell_slot_report(table, slot, state->tunnel, record);
}

/* Gives the state of an acquired slot back. */
static __always_inline void dwell_slot_drop_state(struct dwell_table *table, struct dwell_slot *slot)
{
	__u32 state = dwell_slot_state(slot);

	dwell_slot_set_state(slot, 0);
	if (state)
		dwell_state_give(table, state);
}

static __always_inline void dwell_slot_close(struct dwell_table *table, __u32 slot_index, __u32 reason)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);
	struct dwell_response_event *record = dwell_response_record(table);

	(void)reason;
	if (!slot)
		return;
	if (record)
		dwell_slot_finish(table, slot, ~0ULL, record);
	dwell_slot_drop_state(table, slot);
	/* a CPU that found the flow before must notice that it is gone */
	__builtin_memset(&slot->head.key, 0xff, sizeof(slot->head.key));
}

/* Begins the state of a connection, five or six cache lines, unless it is one of a balancer's that is not measured: none is to
 * be, or too many are already.
 */
static __always_inline void dwell_slot_begin(struct dwell_table *table, struct dwell_slot *slot,
					     const struct dwell_packet *packet)
{
	union dwell_response_state *state = 0;

	if (packet->lb.vip && !packet->lb.measured) {
		dwell_slot_drop_state(table, slot);
	} else {
		if (!dwell_slot_state(slot))
			dwell_slot_set_state(slot, dwell_state_take(table));
		state = dwell_state_at(table->embedder, slot);
	}
	slot->measured = state && packet->lb.measured;
	if (!state)
		return;
	__builtin_memset(state, 0, sizeof(*state));
	state->tunnel = packet->tunnel;
}

/* Decides at once which direction is the client's, before a packet of the other direction, on another CPU, can find the
 * flow.
 */
static __always_inline int dwell_slot_init(struct dwell_table *table, __u32 slot_index,
					   const struct dwell_packet *packet)
{
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);

	if (!slot)
		return 0;
	__builtin_memset(&slot->head, 0, sizeof(slot->head));
	dwell_slot_begin(table, slot, packet);
	/* a balancer receives only clients' packets */
	slot->client = packet->lb.vip ? packet->direction & 1
				      : dwell_client_direction(&dwell_response_program_of(table)->servers, packet);
	slot->key_kind = packet->key_kind;
	slot->trusted = 0;
	slot->packets = 0;
	slot->lb.real = packet->lb.real; /* 0 unless at a balancer: no token */
	slot->token_next = 0;
	if (packet->lb.vip)
		slot->lb.vip = packet->lb.vip;
	else
		slot->connection.id = packet->hash;
	return 1;
}

/* Moves a connection here from the slot of its old endpoints if those were silent for DWELL_MIGRATION_COARSE; otherwise
 * they are two connections whose IDs begin alike.
 */
static __always_inline void dwell_slot_follow(struct dwell_table *table, struct dwell_slot *slot,
					      union dwell_response_state *state, __u64 token)
{
	const struct dwell_response_program *program = dwell_response_program_of(table);
	struct dwell_alias *alias = dwell_alias_at(table->embedder, token & program->alias_mask);
	union dwell_response_state *from;
	struct dwell_slot *old;
	__u32 idle;

	if (!alias || alias->token != token)
		return;
	old = dwell_slot_at(table->embedder, alias->slot_index);
	if (!old || old == slot || old->connection.token != dwell_token_short(token) || old->client != slot->client)
		return;
	idle = dwell_now_coarse(table->clock) - old->head.seen;
	if (idle < DWELL_MIGRATION_COARSE || dwell_is_future(idle) || !dwell_slot_lock(old))
		return;
	if (old->connection.token == dwell_token_short(token)) { /* otherwise the slot has been reused */
		slot->key_kind = old->key_kind;
		slot->connection.id = old->connection.id;
		from = dwell_state_at(table->embedder, old);
		if (from) {
			__builtin_memcpy(state->estimator, from->estimator, sizeof(state->estimator));
			__builtin_memset(from->estimator, 0, sizeof(from->estimator));
		}
		old->connection.token = 0;
	}
	dwell_slot_unlock(old);
}

/* Makes the connection ID lead to the flow, once two packets in a row carry it. */
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
	slot->connection.token = dwell_token_short(token);
}

/* Updates the connection of a locked slot from a client's packet. */
static __always_inline void dwell_slot_connection(struct dwell_table *table, const struct dwell_lookup *found,
						  const struct dwell_packet *packet)
{
	struct dwell_slot *slot = (struct dwell_slot *)found->head;
	union dwell_response_state *state;
	__u64 token;

	if (packet->key_kind == DWELL_KEY_QUIC_CID)
		slot->key_kind = DWELL_KEY_QUIC_CID;
	if (!packet->response.cid)
		return;
	token = dwell_cid_token(packet, slot->client, table->config->seed);
	state = dwell_state_at(table->embedder, slot);
	/* the endpoints are new, or the connection had moved away from them */
	if (!slot->connection.token && state && !state->clock.last_ns)
		dwell_slot_follow(table, slot, state, token);
	if (slot->key_kind == DWELL_KEY_QUIC_CID && slot->connection.token != dwell_token_short(token))
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
	arrival->segments = packet->segments < 0xff ? packet->segments : 0xff;
	arrival->visible = DWELL_VISIBLE_NONE;
	if (packet->kind == DWELL_KIND_TCP) {
		arrival->visible = DWELL_VISIBLE_TCP;
		arrival->tsecr = packet->response.tsecr;
		arrival->content = packet->response.content;
	} else if (packet->kind == DWELL_KIND_UDP && key_kind == DWELL_KEY_5TUPLE) {
		arrival->visible = DWELL_VISIBLE_UDP;
	} else if (key_kind == DWELL_KEY_QUIC_CID) {
		arrival->visible = DWELL_VISIBLE_QUIC;
	}
}

/* Takes one parsed packet through look-up and estimator. */
static __always_inline void dwell_slot_packet(struct dwell_table *table, const struct dwell_packet *packet)
{
	struct dwell_lookup found = dwell_flow_of(table, packet);
	struct dwell_slot *slot = (struct dwell_slot *)found.head;
	struct dwell_response_event *record;
	struct dwell_arrival arrival = {};

	if (!slot) {
		if (!found.filtered && !packet->may_open)
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
	if (!dwell_same_key(&slot->head.key, &packet->key)) { /* the slot has been reused */
		dwell_slot_unlock(slot);
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (packet->kind == DWELL_KIND_UDP)
		dwell_slot_connection(table, &found, packet);
	dwell_arrival_of(&arrival, packet, slot->key_kind, dwell_now(table->clock));
	dwell_slot_step(table, slot, &arrival, record);
	if (slot->packets < DWELL_SETTLED_PACKETS && ++slot->packets == DWELL_SETTLED_PACKETS)
		slot->head.flags |= DWELL_HEAD_SETTLED;
	dwell_slot_unlock(slot);
}

/* Ends the epochs of a bucket that are over, then frees idle flows, unless their way is among the bits of `kept`; with
 * DWELL_CLOSE_END, all of them.
 */
static __always_inline void dwell_slot_sweep(struct dwell_table *table, __u32 index, __u32 reason, __u32 kept)
{
	struct dwell_bucket *bucket = dwell_bucket_at(table->embedder, index);

	if (!bucket || !bucket->tags)
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		struct dwell_slot *slot = dwell_slot_at(table->embedder, dwell_slot_of(bucket, way));
		struct dwell_response_event *record = dwell_response_record(table);
		union dwell_response_state *state;

		if (!slot || !record || !(bucket->tags >> 16 * way & 0xffff) || !dwell_slot_state(slot) ||
		    !dwell_slot_lock(slot))
			continue;
		dwell_slot_finish(table, slot, dwell_now(table->clock), record);
		state = dwell_state_at(table->embedder, slot);
		if (state)
			dwell_turn_give_up(&state->adaptive, &dwell_response_program_of(table)->response,
					   dwell_now(table->clock));
		dwell_slot_unlock(slot);
	}
	dwell_bucket_sweep(table, index, reason, kept);
}

/* Locates the packet's headers with dwell_locate_plain() or dwell_locate_any(), whichever the key needs. The caller has set
 * `tunnel` to the tag that its hook keeps beside the packet, and `key.interface`; both are completed.
 */
static __always_inline dwell_where dwell_response_locate(DWELL_FRAME *frame, const void *data, const void *end,
							 __u32 link, const struct dwell_response_program *program,
							 struct dwell_packet *packet)
{
	int outer = program->key_kind == DWELL_KEY_OUTER;
	dwell_where where = 0;

	if (!outer)
		where = dwell_locate_plain(data, end, link);
	if (dwell_unlikely(!where))
		where = dwell_locate_any(frame, data, end, link, outer, &packet->tunnel);
	if (program->ignore_tunnels)
		packet->tunnel = 0;
	packet->key.interface = dwell_interface_in(packet->key.interface, packet->tunnel);
	return where;
}

#endif
