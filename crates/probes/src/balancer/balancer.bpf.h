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
#define DWELL_SLOT_TYPE struct dwell_slot
#include "slot.bpf.h"

/* States of the connections that are measured. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, union dwell_response_state);
	__uint(max_entries, 1);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_pool);
	__uint(max_entries, 1);
} state_pool SEC(".maps");

static __always_inline union dwell_response_state *dwell_state_at(void *embedder, const struct dwell_slot *slot)
{
	__u32 index = dwell_slot_state(slot) - 1;

	return bpf_map_lookup_elem(&states, &index);
}

static __always_inline const union dwell_response_state *dwell_state_likely(void *embedder, __u32 slot_index)
{
	return bpf_map_lookup_elem(&states, &slot_index);
}

static __always_inline __u32 *dwell_state_next(void *embedder, __u32 index)
{
	union dwell_response_state *state = bpf_map_lookup_elem(&states, &index);

	return state ? &state->next : 0;
}

static __always_inline struct dwell_pool *dwell_state_pool(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&state_pool, &zero);
}

/* Global functions, so that the verifier walks their loops once. */
__noinline __u32 take_state(void)
{
	struct dwell_balance_counters *counted;
	__u32 index = dwell_pool_take(0, dwell_state_pool(), balance.states, dwell_state_next), zero = 0;

	if (dwell_likely(index != DWELL_NO_SLOT))
		return index + 1;
	counted = bpf_map_lookup_elem(&counters, &zero);
	if (counted)
		counted->unmeasured++;
	return 0;
}

__noinline int give_state(__u32 state)
{
	dwell_pool_give(0, dwell_state_pool(), state - 1, dwell_state_next);
	return 0;
}

static __always_inline __u32 dwell_state_take(struct dwell_table *table)
{
	return take_state();
}

static __always_inline void dwell_state_give(struct dwell_table *table, __u32 state)
{
	give_state(state);
}

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_budget);
	__uint(max_entries, DWELL_BUDGETS);
} budgets SEC(".maps");

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

#include "zero_rtt.bpf.h"

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

__noinline int select_other(struct dwell_packet *packet)
{
	return packet && dwell_select_other(0, packet);
}

static __always_inline int dwell_balance_select_other(void *embedder, struct dwell_packet *packet)
{
	return select_other(packet);
}

__noinline __u32 kept_ways(__u32 index)
{
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};

	return dwell_kept_ways(&table, index);
}

static __always_inline __u32 dwell_balance_kept_ways(struct dwell_table *table, __u32 index)
{
	return kept_ways(index);
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

__noinline __u32 has_chance(const struct dwell_packet *packet)
{
	return packet ? dwell_chances_find(0, packet, 0) : 0;
}

static __always_inline __u32 dwell_balance_has_chance(void *embedder, const struct dwell_packet *packet)
{
	return has_chance(packet);
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

__noinline int read_turn(dwell_context *context, struct dwell_packet *packet, __u32 l4_offset)
{
	if (context && packet)
		dwell_read_turn((void *)(long)context->data, (void *)(long)context->data_end, l4_offset, packet);
	return 0;
}

static __always_inline void dwell_balance_read_turn(DWELL_FRAME *frame, struct dwell_packet *packet, __u32 l4_offset)
{
	read_turn(frame, packet, l4_offset);
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
