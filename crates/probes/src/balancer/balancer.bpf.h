/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies lb/embed.h: the balancer's maps, and calls of the core's steps. Included after hook_xdp.bpf.h. The maps are
 * pinned by name: a new name would break the hand-over from an older process.
 */
#include "frame_xdp.bpf.h"

#include "lb/balance_types.h"
#include "response/response_event.h"

/* Each is alone in its section, so that user space can write it as a whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_response_program program = {};
SEC(".rodata.balance") struct dwell_balance_config balance = {};

#define DWELL_COUNTERS_TYPE struct dwell_balance_counters
#include "slot.bpf.h"

#include "lb/balance.h"
#include "lb/sweep.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_vip_key);
	__type(value, struct dwell_vip);
	__uint(max_entries, 1);
} vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_vip_filter);
	__uint(max_entries, 1);
} maybe SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_real);
	__uint(max_entries, 1);
} reals SEC(".maps");

/* A Maglev table of struct dwell_chunk. Tables may differ in size. */
struct maglev {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct dwell_chunk));
	__uint(max_entries, 1);
};

/* Maglev tables by the number of their VIP, behind all of them their tables of equal weights, and behind those what their
 * entries had recently and their lists of reals; each is replaced at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, __u32);
	__uint(max_entries, 1);
	__array(values, struct maglev);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_load);
	__uint(max_entries, 1);
} vip_counts SEC(".maps"), real_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_heartbeat);
	__uint(max_entries, 1);
} heartbeat SEC(".maps");

/* Active connections per real, as the sweep counts them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} actives SEC(".maps");

/* Open connections per real: counted as they come and go, and corrected by what the sweep counts. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __s64);
	__uint(max_entries, 1);
} open SEC(".maps");

/* Requests that wait per real, as the sweep finds them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_pending);
	__uint(max_entries, 1);
} pending SEC(".maps");

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
} zero_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_heavy);
	__uint(max_entries, 1);
} heavies SEC(".maps");

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
	__type(value, struct dwell_budget);
	__uint(max_entries, DWELL_BUDGETS);
} budgets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_opening);
	__uint(max_entries, DWELL_OPENINGS);
} openings SEC(".maps");

/* Shows user space whether it can use these maps as they are. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_balance_layout);
	__uint(max_entries, 1);
} layout SEC(".maps");

static __always_inline const struct dwell_balance_config *dwell_balance_config_of(void *embedder)
{
	return &balance;
}

static __always_inline const struct dwell_vip *dwell_vip_at(void *embedder, const struct dwell_vip_key *key)
{
	return bpf_map_lookup_elem(&vips, key);
}

static __always_inline const struct dwell_vip_filter *dwell_vip_filter_of(void *embedder)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&maybe, &zero);
}

static __always_inline const struct dwell_real *dwell_real_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&reals, &number);
}

static __always_inline __u32 dwell_entry_at(void *embedder, __u32 table, __u32 index)
{
	__u32 chunk_index = index / DWELL_CHUNK;
	struct dwell_chunk *chunk;
	void *chunks = bpf_map_lookup_elem(&tables, &table);

	if (!chunks)
		return 0;
	chunk = bpf_map_lookup_elem(chunks, &chunk_index);
	return chunk ? chunk->real[index % DWELL_CHUNK] : 0;
}

static __always_inline const struct dwell_member *dwell_members_at(void *embedder, __u32 table)
{
	void *chunks = bpf_map_lookup_elem(&tables, &table);
	__u32 first = 0;

	_Static_assert(sizeof(struct dwell_chunk) == DWELL_MEMBERS * sizeof(struct dwell_member), "a list in a chunk");
	return chunks ? bpf_map_lookup_elem(chunks, &first) : 0;
}

static __always_inline struct dwell_load *dwell_vip_load_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&vip_counts, &number);
}

static __always_inline struct dwell_load *dwell_real_load_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&real_counts, &number);
}

static __always_inline __s64 *dwell_open_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&open, &number);
}

static __always_inline __u64 *dwell_active_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&actives, &number);
}

static __always_inline struct dwell_pending *dwell_pending_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&pending, &number);
}

static __always_inline const struct dwell_heartbeat *dwell_heartbeat_of(void *embedder)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&heartbeat, &zero);
}

static __always_inline struct dwell_budget *dwell_budget_at(void *embedder, __u32 kind)
{
	return bpf_map_lookup_elem(&budgets, &kind);
}

static __always_inline void dwell_unfinished_count(void *embedder)
{
	struct dwell_balance_counters *counted;
	__u32 zero = 0;

	counted = bpf_map_lookup_elem(&counters, &zero);
	if (counted)
		counted->unfinished++;
}

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
	const __u32 *server = bpf_map_lookup_elem(&zero_places, &real);

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

static __always_inline int dwell_frame_cut(DWELL_FRAME *frame, __u32 bytes)
{
	int now = bpf_xdp_get_buff_len(frame);

	return now >= (int)bytes && !bpf_xdp_adjust_tail(frame, (int)bytes - now);
}

/* Global functions, so that the verifier walks each once, and the path of known connections stays short. */
__noinline __u32 parse_unusual(dwell_context *context, struct dwell_packet *packet)
{
	if (!packet)
		return DWELL_READ_NOT_IP;
	return dwell_lb_parse_unusual(dwell_frame_data(context), dwell_frame_end(context), packet);
}

__noinline __u32 select_real(struct dwell_packet *packet)
{
	return packet ? dwell_select(0, packet) : DWELL_REASON_NOT_VIP;
}

static __always_inline __u32 dwell_balance_select(void *embedder, struct dwell_packet *packet)
{
	return select_real(packet);
}

__noinline __u32 least(__u32 table, __u64 hash)
{
	return dwell_least(0, table, hash);
}

static __always_inline __u32 dwell_balance_least(void *embedder, __u32 table, __u64 hash)
{
	return least(table, hash);
}

__noinline __u64 select_new(struct dwell_packet *packet, int dry_run)
{
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};
	__u32 zero = 0;

	table.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!packet || !table.counters)
		return 0;
	return dwell_select_new(&table, packet, dry_run);
}

__noinline __u64 select_again(struct dwell_packet *packet, __u32 slot_index, int dry_run)
{
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};
	__u32 zero = 0;

	table.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!packet || !table.counters)
		return 0;
	return dwell_select_again(&table, packet, slot_index, dry_run);
}

__noinline __u32 forward(dwell_context *context, const struct dwell_packet *packet, __u32 ingress, int dry_run,
			 struct dwell_decision *decision)
{
	if (!packet || !decision)
		return DWELL_VERDICT_DROP;
	return dwell_balance_send(context, 0, packet, ingress, dry_run, decision);
}

__noinline __u32 find_chances(const struct dwell_packet *packet, struct dwell_chances *chances)
{
	return packet && chances ? dwell_chances_find(0, packet, chances) : 0;
}

static __always_inline __u32 dwell_balance_chances(void *embedder, const struct dwell_packet *packet,
						   struct dwell_chances *chances)
{
	return find_chances(packet, chances);
}

__noinline int wrap(dwell_context *context, __u32 real, struct dwell_inner *inner)
{
	return inner && dwell_wrap(context, 0, real, inner);
}

static __always_inline int dwell_balance_wrap(DWELL_FRAME *frame, void *embedder, __u32 real, struct dwell_inner *inner)
{
	return wrap(frame, real, inner);
}

__noinline __u32 forward_second(dwell_context *context, const struct dwell_packet *packet, __u32 ingress, int dry_run,
				struct dwell_decision *decision)
{
	if (!packet || !decision)
		return DWELL_VERDICT_DROP;
	return dwell_balance_send_second(context, 0, packet, ingress, dry_run, decision);
}

static __always_inline __u32 dwell_balance_forward_second(DWELL_FRAME *frame, struct dwell_table *table,
							  const struct dwell_packet *packet, __u32 ingress, int dry_run,
							  struct dwell_decision *decision)
{
	return forward_second(frame, packet, ingress, dry_run, decision);
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

__noinline int read_turn(dwell_context *context, struct dwell_packet *packet, __u32 l4_offset)
{
	if (context && packet)
		dwell_read_turn((void *)(long)context->data, (void *)(long)context->data_end, l4_offset, packet);
	return 0;
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

static __always_inline void dwell_balance_read_turn(DWELL_FRAME *frame, struct dwell_packet *packet, __u32 l4_offset)
{
	read_turn(frame, packet, l4_offset);
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

__noinline int reply_ping(dwell_context *context, __u32 l4_offset)
{
	return dwell_reply_ping(dwell_frame_data(context), dwell_frame_end(context), l4_offset);
}

__noinline int reply_too_big(dwell_context *context, __u32 version, __u32 mtu)
{
	return dwell_too_big(context, version, mtu);
}

static __always_inline __u32 dwell_balance_parse_unusual(DWELL_FRAME *frame, struct dwell_packet *packet)
{
	return parse_unusual(frame, packet);
}

static __always_inline dwell_selection dwell_balance_select_new(struct dwell_table *table, struct dwell_packet *packet,
								int dry_run)
{
	return select_new(packet, dry_run);
}

static __always_inline dwell_selection dwell_balance_select_again(struct dwell_table *table,
								  struct dwell_packet *packet, __u32 slot_index,
								  int dry_run)
{
	return select_again(packet, slot_index, dry_run);
}

static __always_inline __u32 dwell_balance_forward(DWELL_FRAME *frame, struct dwell_table *table,
						   const struct dwell_packet *packet, __u32 ingress, int dry_run,
						   struct dwell_decision *decision)
{
	return forward(frame, packet, ingress, dry_run, decision);
}

static __always_inline int dwell_balance_ping(DWELL_FRAME *frame, __u32 l4_offset)
{
	return reply_ping(frame, l4_offset);
}

static __always_inline int dwell_balance_too_big(DWELL_FRAME *frame, __u32 version, __u32 mtu)
{
	return reply_too_big(frame, version, mtu);
}
