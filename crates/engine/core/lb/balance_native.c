/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lb/balance_native.h"

#include "lb/frame_native.h"
#include "lb/overload_native.h"
#include "response/slot_hooks.h"

#include "lb/balance.h"
#include "lb/sweep.h"

static __always_inline int dwell_frame_cut(struct dwell_frame *frame, __u32 bytes)
{
	const char *data = frame->data;

	if ((const char *)frame->end - data < (long)bytes)
		return 0;
	frame->end = data + bytes;
	return 1;
}

static __always_inline const struct dwell_balance_config *dwell_balance_config_of(void *embedder)
{
	const struct dwell_balancer *balancer = embedder;

	return &balancer->config;
}

static __always_inline const union dwell_response_state *dwell_state_likely(void *embedder, __u32 slot_index)
{
	struct dwell_slots *slots = embedder;

	return slot_index < slots->program.table.slots ? &slots->slots[slot_index].state : 0;
}

static __always_inline const struct dwell_vip *dwell_vip_at(void *embedder, const struct dwell_vip_key *key)
{
	const struct dwell_balancer *balancer = embedder;

	for (__u32 i = 0; i < balancer->vip_count; i++)
		if (!__builtin_memcmp(&balancer->vips[i].key, key, sizeof(*key)))
			return &balancer->vips[i].vip;
	return 0;
}

/* All bits are set, so that VIPs are always looked up. */
static __always_inline const struct dwell_vip_filter *dwell_vip_filter_of(void *embedder)
{
	static const struct dwell_vip_filter all = {{[0 ... DWELL_VIP_FILTER_BITS / 64 - 1] = ~0ULL}};

	(void)embedder;
	return &all;
}

static __always_inline const struct dwell_real *dwell_real_at(void *embedder, __u32 number)
{
	const struct dwell_balancer *balancer = embedder;

	return number < balancer->real_count ? &balancer->reals[number] : 0;
}

static __always_inline __u32 dwell_entry_at(void *embedder, __u32 table, __u32 index)
{
	const struct dwell_balancer *balancer = embedder;

	return table < balancer->table_count && balancer->tables[table] ? balancer->tables[table][index] : 0;
}

/* The caller fills lists up to their full length. */
static __always_inline const struct dwell_member *dwell_members_at(void *embedder, __u32 table)
{
	const struct dwell_balancer *balancer = embedder;

	return table < balancer->table_count ? (const void *)balancer->tables[table] : 0;
}

static __always_inline struct dwell_load *dwell_vip_load_at(void *embedder, __u32 number)
{
	(void)embedder;
	(void)number;
	return 0;
}

static __always_inline struct dwell_load *dwell_real_load_at(void *embedder, __u32 number)
{
	(void)embedder;
	(void)number;
	return 0;
}

static __always_inline __s64 *dwell_open_at(void *embedder, __u32 number)
{
	struct dwell_balancer *balancer = embedder;

	return number < balancer->real_count ? &balancer->open[number] : 0;
}

static __always_inline __u64 *dwell_active_at(void *embedder, __u32 number)
{
	struct dwell_balancer *balancer = embedder;

	return number < balancer->real_count ? &balancer->actives[number] : 0;
}

static __always_inline struct dwell_pending *dwell_pending_at(void *embedder, __u32 number)
{
	struct dwell_balancer *balancer = embedder;

	return number < balancer->real_count ? &balancer->pending[number] : 0;
}

static __always_inline const struct dwell_heartbeat *dwell_heartbeat_of(void *embedder)
{
	const struct dwell_balancer *balancer = embedder;

	return &balancer->heartbeat;
}

static __always_inline struct dwell_budget *dwell_budget_at(void *embedder, __u32 kind)
{
	struct dwell_balancer *balancer = embedder;

	return kind < DWELL_BUDGETS ? &balancer->budgets[kind] : 0;
}

static __always_inline void dwell_unfinished_count(void *embedder)
{
	struct dwell_balancer *balancer = embedder;

	balancer->unfinished++;
}

static __always_inline struct dwell_opening *dwell_opening_at(void *embedder, __u32 number)
{
	struct dwell_balancer *balancer = embedder;

	return &balancer->openings[number];
}

static __always_inline const struct dwell_zero_state *dwell_zero_state_of(void *embedder)
{
	const struct dwell_balancer *balancer = embedder;

	return &balancer->zero_state;
}

static __always_inline const struct dwell_zero_vip *dwell_zero_vip_at(void *embedder, __u32 slot)
{
	const struct dwell_balancer *balancer = embedder;

	return slot < balancer->zero_slots ? &balancer->zero_vips[slot] : 0;
}

static __always_inline struct dwell_server_load *dwell_zero_loads_at(void *embedder, __u32 slot)
{
	const struct dwell_balancer *balancer = embedder;

	return slot < balancer->zero_slots ? balancer->zero_loads[slot].server : 0;
}

static __always_inline struct dwell_heavy *dwell_heavy_at(void *embedder, __u32 number)
{
	const struct dwell_balancer *balancer = embedder;

	return number < balancer->heavy_count ? &balancer->heavies[number] : 0;
}

static __always_inline const struct dwell_heavy *dwell_other_heavy_at(void *embedder, __u32 number)
{
	const struct dwell_balancer *balancer = embedder;

	return number < balancer->heavy_count ? &balancer->other_heavies[number] : 0;
}

static __always_inline __u32 dwell_zero_server_by_id(void *embedder, __u32 slot, __u32 id)
{
	const struct dwell_balancer *balancer = embedder;

	return slot < balancer->zero_slots ? balancer->zero_ids[slot].server[id & 0xffff] : 0;
}

static __always_inline __u32 dwell_zero_server_by_name(void *embedder, const struct dwell_zero_name *name)
{
	const struct dwell_balancer *balancer = embedder;

	for (__u32 i = 0; i < balancer->zero_name_count; i++)
		if (!__builtin_memcmp(&balancer->zero_names[i].name, name, sizeof(*name)))
			return balancer->zero_names[i].server;
	return 0;
}

static __always_inline __u32 dwell_zero_server_by_real(void *embedder, __u32 real)
{
	const struct dwell_balancer *balancer = embedder;

	return real < balancer->zero_server_count ? balancer->zero_servers[real] : 0;
}

static __always_inline struct dwell_cid_entry *dwell_cid_entry_at(void *embedder, __u32 hash)
{
	const struct dwell_balancer *balancer = embedder;

	return balancer->cids ? &balancer->cids[hash & balancer->config.cid_mask] : 0;
}

static __always_inline struct dwell_cid_entry *dwell_cid_scratch(void *embedder)
{
	const struct dwell_balancer *balancer = embedder;

	return balancer->cids ? &balancer->cids[balancer->config.cid_mask + 1] : 0;
}

static __always_inline struct dwell_zero_work *dwell_zero_work_of(void *embedder)
{
	struct dwell_balancer *balancer = embedder;

	return &balancer->zero_work;
}

static __always_inline dwell_zero_vip_id dwell_zero_vip_of(void *embedder, const struct dwell_packet *packet)
{
	return dwell_zero_vip_at_port(embedder, packet);
}

static __always_inline int dwell_zero_may_open(void *embedder, const struct dwell_packet *packet)
{
	return dwell_opening_may_open(embedder, packet);
}

static __always_inline __u32 dwell_zero_note_opened(void *embedder, const struct dwell_packet *packet,
						    const struct dwell_cid_entry *entry, __u32 server)
{
	return dwell_opening_note_opened(embedder, packet, entry, server);
}

static __always_inline void dwell_zero_count(void *embedder, __u32 counter)
{
	struct dwell_balancer *balancer = embedder;

	balancer->zero[counter]++;
}

static __always_inline __u32 dwell_zero_clock_s(void *embedder)
{
	const struct dwell_balancer *balancer = embedder;

	return balancer->now_ns / 1000000000;
}

static __u32 next_random(struct dwell_balancer *balancer)
{
	return balancer->random = balancer->random * 1664525 + 1013904223;
}

static __always_inline __u32 dwell_zero_open_own(void *embedder, __u32 rotation, __u64 check,
						 struct dwell_cid_entry *entry)
{
	return dwell_zero_open_block(embedder, rotation, check, entry);
}

static __always_inline __u32 dwell_zero_open_foreign(struct dwell_frame *frame, void *embedder, __u32 slot,
						     __u32 rotation, __u32 at)
{
	return dwell_zero_open_other(frame->data, frame->end, embedder, slot, rotation, at);
}

static __always_inline void dwell_balance_read_turn(struct dwell_frame *frame, struct dwell_packet *packet,
						    __u32 l4_offset)
{
	dwell_read_turn(dwell_frame_data(frame), dwell_frame_end(frame), l4_offset, packet);
}

static __always_inline void dwell_zero_add_attempt(struct dwell_frame *frame, struct dwell_packet *packet, __u32 at)
{
	dwell_attempt_key(dwell_frame_data(frame), dwell_frame_end(frame), packet, at);
}

static __always_inline void dwell_zero_read_token(struct dwell_frame *frame, void *embedder,
						  struct dwell_packet *packet, __u32 at, int dry_run)
{
	dwell_token_read(dwell_frame_data(frame), dwell_frame_end(frame), embedder, packet, at, dry_run);
}

static __always_inline void dwell_zero_account_packet(void *embedder, const struct dwell_packet *packet,
						      struct dwell_cid_entry *entry)
{
	dwell_zero_account(embedder, packet, entry);
}

static __always_inline __u32 dwell_zero_divert_packet(void *embedder, const struct dwell_packet *packet)
{
	return dwell_zero_divert(embedder, packet);
}

static __always_inline int dwell_zero_has_heavy(void *embedder, const struct dwell_heavy *heavy,
						const struct dwell_address *client,
						const struct dwell_heavy_config *config)
{
	(void)embedder;
	return dwell_heavy_has(heavy, client, config);
}

static __always_inline void dwell_zero_admit(void *embedder, struct dwell_heavy *heavy,
					     const struct dwell_address *client, __u16 port,
					     const struct dwell_heavy_config *config)
{
	dwell_heavy_admit(heavy, client, port, next_random(embedder), config);
}

static __always_inline int dwell_zero_is_heavy_anywhere(void *embedder, const struct dwell_packet *packet)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(embedder, packet->lb.attempt);
	struct dwell_address client = dwell_zero_client(packet);

	for (__u32 server = 0; vip && server < vip->servers; server++)
		if (dwell_zero_is_heavy_at(embedder, vip, server, &client))
			return 1;
	return 0;
}

static __always_inline __u32 dwell_balance_zero_route(struct dwell_frame *frame, void *embedder,
						      struct dwell_packet *packet, __u32 l4_offset, int dry_run)
{
	return dwell_zero_route(frame, embedder, packet, l4_offset, dry_run);
}

static __always_inline __u32 dwell_balance_parse_unusual(struct dwell_frame *frame, struct dwell_packet *packet)
{
	return dwell_lb_parse_unusual(frame->data, frame->end, packet);
}

static __always_inline __u32 dwell_balance_select(void *embedder, struct dwell_packet *packet)
{
	return dwell_select(embedder, packet);
}

static __always_inline __u32 dwell_balance_least(void *embedder, __u32 table, __u64 hash)
{
	return dwell_least(embedder, table, hash);
}

static __always_inline dwell_selection dwell_balance_select_new(struct dwell_table *table, struct dwell_packet *packet,
								int dry_run)
{
	return dwell_select_new(table, packet, dry_run);
}

static __always_inline dwell_selection dwell_balance_select_again(struct dwell_table *table,
								  struct dwell_packet *packet, __u32 slot_index,
								  int dry_run)
{
	return dwell_select_again(table, packet, slot_index, dry_run);
}

static __always_inline int dwell_balance_select_other(void *embedder, struct dwell_packet *packet)
{
	return dwell_select_other(embedder, packet);
}

static __always_inline __u32 dwell_balance_kept_ways(struct dwell_table *table, __u32 index)
{
	return dwell_kept_ways(table, index);
}

static __always_inline __u32 dwell_balance_forward(struct dwell_frame *frame, struct dwell_table *table,
						   const struct dwell_packet *packet, __u32 ingress, int dry_run,
						   struct dwell_decision *decision)
{
	return dwell_balance_send(frame, table->embedder, packet, ingress, dry_run, decision);
}

static __always_inline __u32 dwell_balance_forward_second(struct dwell_frame *frame, struct dwell_table *table,
							  const struct dwell_packet *packet, __u32 ingress, int dry_run,
							  struct dwell_decision *decision)
{
	return dwell_balance_send_second(frame, table->embedder, packet, ingress, dry_run, decision);
}

static __always_inline __u32 dwell_balance_chances(void *embedder, const struct dwell_packet *packet,
						   struct dwell_chances *chances)
{
	return dwell_chances_find(embedder, packet, chances);
}

static __always_inline __u32 dwell_balance_has_chance(void *embedder, const struct dwell_packet *packet)
{
	return dwell_chances_find(embedder, packet, 0);
}

static __always_inline int dwell_balance_wrap(struct dwell_frame *frame, void *embedder, __u32 real,
					      struct dwell_inner *inner)
{
	return dwell_wrap(frame, embedder, real, inner);
}

static __always_inline int dwell_balance_ping(struct dwell_frame *frame, __u32 l4_offset)
{
	return dwell_reply_ping(dwell_frame_data(frame), frame->end, l4_offset);
}

static __always_inline int dwell_balance_too_big(struct dwell_frame *frame, __u32 version, __u32 mtu)
{
	return dwell_too_big(frame, version, mtu);
}

__u32 dwell_balance_packet(struct dwell_balancer *balancer, void *data, __u32 *bytes, __u32 ingress, __u64 time_ns,
			   int dry_run, struct dwell_decision *decision)
{
	const char *first = (const char *)data - DWELL_BALANCE_HEADROOM;
	struct dwell_framed framed = {{data, (const char *)data + *bytes}, first};
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(&balancer->slots, &clock);
	struct dwell_packet packet;

	balancer->slots.events = 0;
	balancer->now_ns = time_ns;
	__builtin_memset(decision, 0, sizeof(*decision));
	__builtin_memset(&packet, 0, sizeof(packet));
	packet.wire_bytes = *bytes;
	packet.segments = 1;
	dwell_balance(&framed.frame, &table, &packet, ingress, dry_run, decision);
	if (!dry_run) {
		balancer->slots.counters.value[DWELL_SEEN_PACKETS]++;
		balancer->slots.counters.value[DWELL_SEEN_BYTES] += packet.wire_bytes;
		balancer->reason[decision->reason]++;
	}
	*bytes = (const char *)framed.frame.end - (const char *)framed.frame.data;
	return (const char *)framed.frame.data - first;
}

void dwell_balance_sweep(struct dwell_balancer *balancer, __u32 bucket, __u64 time_ns, __u32 reason)
{
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(&balancer->slots, &clock);

	balancer->slots.events = 0;
	dwell_balance_sweep_bucket(&table, bucket, reason);
}

__u32 dwell_balance_slot_bytes(void)
{
	return sizeof(struct dwell_slot);
}

__u32 dwell_balance_vip_filter_bit(struct dwell_address address)
{
	return dwell_vip_filter_bit(&address);
}

__u32 dwell_balance_successor(__u16 server_id, __u64 hash_seed, __u32 size)
{
	return (dwell_token_hash(DWELL_TOKEN_LEFT | server_id, hash_seed) >> 32) * size >> 32;
}

__u32 dwell_balance_zero_bit(struct dwell_address address, __u16 port)
{
	return dwell_zero_bit(&address, port);
}
