/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tables and functions of the balancer for QUIC by connection ID: included by balancer.bpf.h. Global functions, so that
 * the verifier walks each once.
 */
#ifndef DWELL_ZERO_RTT_BPF_H
#define DWELL_ZERO_RTT_BPF_H

/* VIPs that route by connection ID, by slot; see lb/zero_rtt.h. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_zero_vip);
	__uint(max_entries, 1);
} zero_vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_zero_ids);
	__uint(max_entries, 1);
} zero_ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_zero_loads);
	__uint(max_entries, 1);
} zero_loads SEC(".maps");

/* Server indexes plus 1, by server IDs of other layouts than our own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_zero_name);
	__type(value, __u32);
	__uint(max_entries, 1);
} zero_names SEC(".maps");

/* Server indexes plus 1, by numbers of reals. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} zero_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_heavy);
	__uint(max_entries, 1);
} heavies SEC(".maps");

/* The heavy hitters of each server at the other balancers, by the same numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_heavy);
	__uint(max_entries, 1);
} other_heavies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_zero_state);
	__uint(max_entries, 1);
} zero_state SEC(".maps");

/* Cache of connection IDs; the last entry is scratch space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_cid_entry);
	__uint(max_entries, 2);
} cids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_zero_work);
	__uint(max_entries, 1);
} zero_work SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_opening);
	__uint(max_entries, DWELL_OPENINGS);
} openings SEC(".maps");

static __always_inline struct dwell_opening *dwell_opening_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&openings, &number);
}

static __always_inline const struct dwell_zero_state *dwell_zero_state_of(void *embedder)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&zero_state, &zero);
}

static __always_inline const struct dwell_zero_vip *dwell_zero_vip_at(void *embedder, __u32 slot)
{
	return bpf_map_lookup_elem(&zero_vips, &slot);
}

static __always_inline struct dwell_server_load *dwell_zero_loads_at(void *embedder, __u32 slot)
{
	struct dwell_zero_loads *loads = bpf_map_lookup_elem(&zero_loads, &slot);

	return loads ? loads->server : 0;
}

static __always_inline struct dwell_heavy *dwell_heavy_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&heavies, &number);
}

static __always_inline const struct dwell_heavy *dwell_other_heavy_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&other_heavies, &number);
}

static __always_inline __u32 dwell_zero_server_by_id(void *embedder, __u32 slot, __u32 id)
{
	const struct dwell_zero_ids *ids = bpf_map_lookup_elem(&zero_ids, &slot);

	DWELL_OPAQUE(id);
	return ids ? ids->server[id & 0xffff] : 0;
}

static __always_inline __u32 dwell_zero_server_by_name(void *embedder, const struct dwell_zero_name *name)
{
	const __u32 *server = bpf_map_lookup_elem(&zero_names, name);

	return server ? *server : 0;
}

static __always_inline __u32 dwell_zero_server_by_real(void *embedder, __u32 real)
{
	const __u32 *server = bpf_map_lookup_elem(&zero_numbers, &real);

	return server ? *server : 0;
}

static __always_inline struct dwell_cid_entry *dwell_cid_entry_at(void *embedder, __u32 hash)
{
	__u32 index = hash & balance.cid_mask;

	return bpf_map_lookup_elem(&cids, &index);
}

static __always_inline struct dwell_cid_entry *dwell_cid_scratch(void *embedder)
{
	__u32 index = balance.cid_mask + 1;

	return bpf_map_lookup_elem(&cids, &index);
}

static __always_inline struct dwell_zero_work *dwell_zero_work_of(void *embedder)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&zero_work, &zero);
}

static __always_inline void dwell_zero_count(void *embedder, __u32 counter)
{
	struct dwell_balance_counters *counted;
	__u32 zero = 0;

	counted = bpf_map_lookup_elem(&counters, &zero);
	if (counted && counter < DWELL_ZERO_COUNTERS)
		counted->zero[counter]++;
}

static __always_inline __u32 dwell_zero_clock_s(void *embedder)
{
	return bpf_ktime_get_coarse_ns() / 1000000000;
}

__noinline __u64 zero_vip(const struct dwell_packet *packet)
{
	return packet ? dwell_zero_vip_at_port(0, packet) : 0;
}

static __always_inline dwell_zero_vip_id dwell_zero_vip_of(void *embedder, const struct dwell_packet *packet)
{
	return zero_vip(packet);
}

__noinline __u32 zero_route(dwell_context *context, struct dwell_packet *packet, __u32 l4_offset, int dry_run)
{
	return packet ? dwell_zero_route(context, 0, packet, l4_offset, dry_run) : DWELL_REASON_FLOW;
}

__noinline int zero_may_open(const struct dwell_packet *packet)
{
	return packet && dwell_opening_may_open(0, packet);
}

static __always_inline int dwell_zero_may_open(void *embedder, const struct dwell_packet *packet)
{
	return zero_may_open(packet);
}

__noinline __u32 zero_note_opened(const struct dwell_packet *packet, const struct dwell_cid_entry *entry, __u32 server)
{
	return packet && entry ? dwell_opening_note_opened(0, packet, entry, server) : server;
}

static __always_inline __u32 dwell_zero_note_opened(void *embedder, const struct dwell_packet *packet,
						    const struct dwell_cid_entry *entry, __u32 server)
{
	return zero_note_opened(packet, entry, server);
}

__noinline __u32 zero_open_own(__u32 rotation, __u64 check, struct dwell_cid_entry *entry)
{
	return entry ? dwell_zero_open_block(0, rotation, check, entry) : DWELL_ZERO_NONE(DWELL_ZERO_NO_LAYOUT);
}

__noinline __u32 zero_open_foreign(dwell_context *context, __u32 slot, __u32 rotation, __u32 at)
{
	return dwell_zero_open_other(dwell_frame_data(context), dwell_frame_end(context), 0, slot, rotation, at);
}

__noinline int zero_add_attempt(dwell_context *context, struct dwell_packet *packet, __u32 at)
{
	if (packet)
		dwell_attempt_key(dwell_frame_data(context), dwell_frame_end(context), packet, at);
	return 0;
}

__noinline int zero_read_token(dwell_context *context, struct dwell_packet *packet, __u32 at, int dry_run)
{
	if (packet)
		dwell_token_read(dwell_frame_data(context), dwell_frame_end(context), 0, packet, at, dry_run);
	return 0;
}

__noinline int heavy_admit(struct dwell_heavy *heavy, const struct dwell_address *client, __u16 port,
			   const struct dwell_heavy_config *config)
{
	if (heavy && client && config)
		dwell_heavy_admit(heavy, client, port, bpf_get_prandom_u32(), config);
	return 0;
}

static __always_inline void dwell_zero_admit(void *embedder, struct dwell_heavy *heavy,
					     const struct dwell_address *client, __u16 port,
					     const struct dwell_heavy_config *config)
{
	heavy_admit(heavy, client, port, config);
}

__noinline int has_heavy(const struct dwell_heavy *heavy, const struct dwell_address *client,
			 const struct dwell_heavy_config *config)
{
	return heavy && client && config && dwell_heavy_has(heavy, client, config);
}

static __always_inline int dwell_zero_has_heavy(void *embedder, const struct dwell_heavy *heavy,
						const struct dwell_address *client,
						const struct dwell_heavy_config *config)
{
	return has_heavy(heavy, client, config);
}

__noinline int zero_account(const struct dwell_packet *packet, struct dwell_cid_entry *entry)
{
	if (packet && entry)
		dwell_zero_account(0, packet, entry);
	return 0;
}

static long load_turn(__u32 turn, struct dwell_load_round *round)
{
	dwell_load_turn(round, turn);
	return 0;
}

static __always_inline void dwell_load_turns(struct dwell_load_round *round)
{
	bpf_loop(round->count, load_turn, round, 0);
}

__noinline __u32 zero_divert(const struct dwell_packet *packet)
{
	return packet ? dwell_zero_divert(0, packet) : 0;
}

/* State of bpf_loop() over the servers of a VIP. */
struct anywhere {
	struct dwell_address client;
	__u32 slot;
	__u32 found;
};

static long anywhere_step(__u32 server, struct anywhere *asked)
{
	const struct dwell_zero_vip *vip = dwell_zero_vip_at(0, asked->slot);

	asked->found = vip && dwell_zero_is_heavy_at(0, vip, server, &asked->client);
	return asked->found;
}

__noinline int zero_heavy_anywhere(const struct dwell_packet *packet)
{
	struct anywhere asked = {};
	const struct dwell_zero_vip *vip;

	if (!packet)
		return 0;
	asked.slot = packet->lb.attempt;
	asked.client = dwell_zero_client(packet);
	vip = dwell_zero_vip_at(0, asked.slot);
	if (vip)
		bpf_loop(vip->servers, anywhere_step, &asked, 0);
	return asked.found;
}

static __always_inline __u32 dwell_balance_zero_route(DWELL_FRAME *frame, void *embedder, struct dwell_packet *packet,
						      __u32 l4_offset, int dry_run)
{
	return zero_route(frame, packet, l4_offset, dry_run);
}

static __always_inline __u32 dwell_zero_open_own(void *embedder, __u32 rotation, __u64 check,
						 struct dwell_cid_entry *entry)
{
	return zero_open_own(rotation, check, entry);
}

static __always_inline __u32 dwell_zero_open_foreign(DWELL_FRAME *frame, void *embedder, __u32 slot, __u32 rotation,
						     __u32 at)
{
	return zero_open_foreign(frame, slot, rotation, at);
}

static __always_inline void dwell_zero_add_attempt(DWELL_FRAME *frame, struct dwell_packet *packet, __u32 at)
{
	zero_add_attempt(frame, packet, at);
}

static __always_inline void dwell_zero_read_token(DWELL_FRAME *frame, void *embedder, struct dwell_packet *packet,
						  __u32 at, int dry_run)
{
	zero_read_token(frame, packet, at, dry_run);
}

static __always_inline void dwell_zero_account_packet(void *embedder, const struct dwell_packet *packet,
						      struct dwell_cid_entry *entry)
{
	zero_account(packet, entry);
}

static __always_inline __u32 dwell_zero_divert_packet(void *embedder, const struct dwell_packet *packet)
{
	return zero_divert(packet);
}

static __always_inline int dwell_zero_is_heavy_anywhere(void *embedder, const struct dwell_packet *packet)
{
	return zero_heavy_anywhere(packet);
}

#endif
