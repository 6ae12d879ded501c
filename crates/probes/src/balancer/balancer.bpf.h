/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The balancer's maps, and the core's steps over them. After hook_xdp.bpf.h. */
#include "frame.bpf.h"

#include "balance_types.h"
#include "response_event.h"

/* Alone in their sections, so that user space can write each whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_response_program program = {};
SEC(".rodata.balance") struct dwell_balance_config balance = {};

#define DWELL_COUNTED struct dwell_balance_counters
#include "seat.bpf.h"

#include "balance.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_vip_key);
	__type(value, struct dwell_vip);
	__uint(max_entries, 1);
} vips SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_maybe);
	__uint(max_entries, 1);
} maybe SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_real);
	__uint(max_entries, 1);
} reals SEC(".maps");

/* A Maglev table, of struct dwell_chunk. All may differ in size. */
struct maglev {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct dwell_chunk));
	__uint(max_entries, 1);
};

/* By the number of the VIP; swapped at once. */
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

/* Active connections by the number of their real, as the sweep finds them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} actives SEC(".maps");

/* For user space: that these maps are read as they were made. */
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

static __always_inline const struct dwell_vip *dwell_vip_at(void *embedder,
							    const struct dwell_vip_key *key)
{
	return bpf_map_lookup_elem(&vips, key);
}

static __always_inline const struct dwell_maybe *dwell_maybe_of(void *embedder)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&maybe, &zero);
}

static __always_inline const struct dwell_real *dwell_real_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&reals, &number);
}

static __always_inline __u32 dwell_entry_at(void *embedder, __u32 vip, __u32 index)
{
	__u32 chunk_index = index / DWELL_CHUNK;
	struct dwell_chunk *chunk;
	void *table = bpf_map_lookup_elem(&tables, &vip);

	if (!table)
		return 0;
	chunk = bpf_map_lookup_elem(table, &chunk_index);
	return chunk ? chunk->real[index % DWELL_CHUNK] : 0;
}

static __always_inline struct dwell_load *dwell_vip_load_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&vip_counts, &number);
}

static __always_inline struct dwell_load *dwell_real_load_at(void *embedder, __u32 number)
{
	return bpf_map_lookup_elem(&real_counts, &number);
}

static __always_inline void *dwell_frame_data(DWELL_FRAME *frame)
{
	return (void *)(long)frame->data;
}

static __always_inline const void *dwell_frame_end(DWELL_FRAME *frame)
{
	return (void *)(long)frame->data_end;
}

static __always_inline int dwell_frame_grow(DWELL_FRAME *frame, int bytes)
{
	return !bpf_xdp_adjust_head(frame, -bytes);
}

static __always_inline int dwell_frame_cut(DWELL_FRAME *frame, __u32 bytes)
{
	int now = bpf_xdp_get_buff_len(frame);

	return now >= (int)bytes && !bpf_xdp_adjust_tail(frame, (int)bytes - now);
}

/* Global functions, so that the verifier walks each once, and the path of known
 * connections stays short.
 */
__noinline __u32 read_odd(dwell_context *context, struct dwell_packet *packet)
{
	if (!packet)
		return DWELL_READ_NOT_IP;
	return dwell_visit_odd(dwell_frame_data(context), dwell_frame_end(context), packet);
}

__noinline __u32 choose(struct dwell_packet *packet)
{
	return packet ? dwell_choose(0, packet) : DWELL_WHY_NOT_VIP;
}

static __always_inline __u32 dwell_balance_choose(void *embedder, struct dwell_packet *packet)
{
	return choose(packet);
}

__noinline __u64 choose_first(struct dwell_packet *packet, int asks)
{
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};
	__u32 zero = 0;

	table.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!packet || !table.counters)
		return 0;
	return dwell_choose_first(&table, packet, asks);
}

__noinline __u64 choose_again(struct dwell_packet *packet, __u32 place, int asks)
{
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};
	__u32 zero = 0;

	table.counters = bpf_map_lookup_elem(&counters, &zero);
	if (!packet || !table.counters)
		return 0;
	return dwell_choose_again(&table, packet, place, asks);
}

__noinline int reply_ping(dwell_context *context, __u32 l4_offset)
{
	return dwell_reply_ping(dwell_frame_data(context), dwell_frame_end(context), l4_offset);
}

__noinline int reply_too_big(dwell_context *context, __u32 version, __u32 mtu)
{
	return dwell_too_big(context, version, mtu);
}

static __always_inline __u32 dwell_balance_odd(DWELL_FRAME *frame, struct dwell_packet *packet)
{
	return read_odd(frame, packet);
}

static __always_inline dwell_choice dwell_balance_first(struct dwell_table *table,
							struct dwell_packet *packet, int asks)
{
	return choose_first(packet, asks);
}

static __always_inline dwell_choice dwell_balance_again(struct dwell_table *table,
							struct dwell_packet *packet, __u32 place,
							int asks)
{
	return choose_again(packet, place, asks);
}

static __always_inline __u32 dwell_balance_forward(DWELL_FRAME *frame, struct dwell_table *table,
						   const struct dwell_packet *packet, __u32 ingress,
						   struct dwell_decision *decision)
{
	return dwell_balance_send(frame, 0, packet, ingress, decision);
}

static __always_inline int dwell_balance_ping(DWELL_FRAME *frame, __u32 l4_offset)
{
	return reply_ping(frame, l4_offset);
}

static __always_inline int dwell_balance_too_big(DWELL_FRAME *frame, __u32 version, __u32 mtu)
{
	return reply_too_big(frame, version, mtu);
}
