/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies rtt/embed.h: the passive RTT program, the core's steps over BPF maps. Included by one file per hook, after
 * that hook's context (hook_*.bpf.h).
 */
#include "frame.bpf.h"

#include "base/aggregate.h"
#include "base/histogram.h"
#include "rtt/rtt.h"

/* Alone in its section, so that user space can write it as a whole. It is constant once loaded, and the verifier drops
 * the code of what is switched off; it is not const here, or the compiler would take it for zeros.
 */
SEC(".rodata.program") struct dwell_rtt_program program = {};

#define DWELL_TABLE program.config.table
#include "table.bpf.h"

/* Which half of the histograms is written; user space reads the other. */
SEC(".data.generation") __u32 generation = 0;
SEC(".data.groups_used") __u32 groups_used = 1; /* group 0 holds samples without a group */

/* Groups that user space has freed: freed[], from `freed_taken` on, which is ours, up to `freed_given`, which is its. */
SEC(".data.freed_taken") __u32 freed_taken = 0;
SEC(".data.freed_given") __u32 freed_given = 0;

/* Mappable arrays start on a page, so that no flow spans more cache lines than it must. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_flow);
	__uint(max_entries, 1);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_cold);
	__uint(max_entries, 1);
} cold SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_matcher);
	__uint(max_entries, 1);
} matchers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_stamp_set);
	__uint(max_entries, 1);
} stamps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_group_key);
	__type(value, __u32);
	__uint(max_entries, 1);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_group);
	__uint(max_entries, 1);
} histograms SEC(".maps");

static __always_inline struct dwell_flow *dwell_flow_at(void *embedder, __u32 slot_index)
{
	return bpf_map_lookup_elem(&flows, &slot_index);
}

static __always_inline struct dwell_cold *dwell_cold_at(void *embedder, __u32 slot_index)
{
	return bpf_map_lookup_elem(&cold, &slot_index);
}

static __always_inline struct dwell_matcher *dwell_matcher_at(void *embedder, __u32 slot_index)
{
	return bpf_map_lookup_elem(&matchers, &slot_index);
}

static __always_inline struct dwell_stamp_set *dwell_stamps_at(struct dwell_step *step, __u32 number)
{
	__u32 index = (number & program.config.stamp_mask) / DWELL_STAMP_WAYS;

	return bpf_map_lookup_elem(&stamps, &index);
}

/* Nobody is woken: readers poll, as waking them for each record would cost ten times the record. */
static __noinline int emit_flow(const struct dwell_flow *flow, const struct dwell_cold *cold, __u32 what, __u64 rtt_ns,
				__u64 now_ns)
{
	struct dwell_flow_event *event;

	if (!flow || !cold)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return -1;
	dwell_fill_flow_event(event, flow, cold, what & 0xff, what >> 8, rtt_ns, now_ns);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void dwell_emit_flow(struct dwell_table *table, const struct dwell_flow *flow,
					    const struct dwell_cold *cold, __u32 change, __u32 detail, __u64 rtt_ns)
{
	if (!program.config.flow_events)
		return;
	if (emit_flow(flow, cold, change | detail << 8, rtt_ns, dwell_now(table->clock)))
		dwell_table_count(table, DWELL_EVENTS_LOST);
}

static __always_inline void emit_sample(struct dwell_step *step, const struct dwell_match *match)
{
	struct dwell_rtt_sample *sample = bpf_ringbuf_reserve(&events, sizeof(*sample), 0);

	if (!sample) {
		dwell_count(step, DWELL_EVENTS_LOST);
		return;
	}
	dwell_fill_sample(sample, step, match, dwell_now(step->table->clock));
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} freed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct dwell_prefix_key);
	__type(value, struct dwell_prefix);
	__uint(max_entries, 1);
} prefixes SEC(".maps");

/* Sets the prefix of a group: the longest listed one that contains the address, else one of fixed length. */
static __always_inline void set_prefix(struct dwell_group_key *key, const struct dwell_address *address)
{
	int ipv4 = !address->high && (__u32)address->low == 0xffff0000;

	if (program.prefixes) {
		struct dwell_prefix_key whole = {.bits = 128};
		const struct dwell_prefix *listed;

		__builtin_memcpy(whole.address, address, sizeof(whole.address));
		listed = bpf_map_lookup_elem(&prefixes, &whole);
		/* an IPv6 prefix that contains ::ffff:0:0/96, such as ::/0, is not one of IPv4 */
		if (listed && (!ipv4 || listed->bits >= 96)) {
			key->prefix = listed->address;
			key->listed = listed->bits + 1;
			return;
		}
	}
	if (ipv4) {
		key->prefix.low = address->low & ((__u64)program.prefix4_mask << 32 | 0xffffffff);
	} else {
		key->prefix.high = address->high & program.prefix6_mask.high;
		key->prefix.low = address->low & program.prefix6_mask.low;
	}
}

/* Other CPUs can take a freed number first; that they do so this many times in a row does not happen in practice. */
#define TAKE_TRIES 4

/* Takes the number of a group that is free; 0 if there is none. */
static __always_inline __u32 take_group(void)
{
	__u32 index, at;
	__u32 *entry;

	if (groups_used < program.max_groups) {
		index = __sync_fetch_and_add(&groups_used, 1);
		if (index < program.max_groups)
			return index;
	}
	for (int i = 0; i < TAKE_TRIES; i++) {
		at = *(volatile __u32 *)&freed_taken;
		if (at == *(volatile __u32 *)&freed_given)
			break;
		index = at % program.max_groups;
		entry = bpf_map_lookup_elem(&freed, &index);
		if (!entry)
			break;
		index = *entry;
		if (__sync_val_compare_and_swap(&freed_taken, at, at + 1) == at)
			return index < program.max_groups ? index : 0;
	}
	return 0;
}

/* Returns the group of the prefix that answered; 0 if there is no room for it. */
static __always_inline __u32 group_of(struct dwell_step *step, const struct dwell_match *match)
{
	const struct dwell_packet *packet = step->packet;
	const struct dwell_address *dst = packet->direction ? &packet->key.b : &packet->key.a;
	struct dwell_group_key key = {};
	__u32 *known, index;

	key.interface = dwell_interface_in(packet->key.interface, packet->tunnel);
	key.tunnel = packet->tunnel;
	key.method = match->method;
	set_prefix(&key, dst);
	known = bpf_map_lookup_elem(&groups, &key);
	if (known)
		return *known;
	index = take_group();
	if (!index)
		return 0;
	if (!bpf_map_update_elem(&groups, &key, &index, BPF_NOEXIST))
		return index;
	/* another CPU was first, or there is no memory: user space finds the number without a group and gives it back */
	known = bpf_map_lookup_elem(&groups, &key);
	return known ? *known : 0;
}

static __always_inline void count_sample(struct dwell_step *step, const struct dwell_match *match)
{
	__u32 group = group_of(step, match), index = group + (generation & 1) * program.max_groups;
	struct dwell_group *counts = bpf_map_lookup_elem(&histograms, &index);

	if (!group)
		dwell_count(step, DWELL_AGGREGATE_OTHER);
	if (counts)
		dwell_group_add(counts, step, match);
}

static __always_inline void deliver(struct dwell_step *step, const struct dwell_match *match)
{
	if (!match->found)
		return;
	if (program.aggregate)
		count_sample(step, match);
	if (program.report)
		emit_sample(step, match);
}

/* Global functions, so that the verifier walks their loops once, separately. */
__noinline __u32 dwell_tcp_option(dwell_context *context, __u32 at, __u32 stop)
{
	return dwell_tcp_option_in((void *)(long)context->data, (void *)(long)context->data_end, at, stop);
}

__noinline __u32 dwell_dns_question(dwell_context *context, __u32 offset)
{
	return dwell_dns_question_in((void *)(long)context->data, (void *)(long)context->data_end, offset);
}

/* A global function: its result is one state to the verifier, not one per path through the parser. */
__noinline __u32 read_packet(dwell_context *context, __u32 link, struct dwell_packet *packet)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	dwell_where where;

	if (!packet)
		return DWELL_SKIP_TRUNCATED;
	packet->tunnel = dwell_tunnel_vlan(0, dwell_context_vlan(context));
	where = dwell_locate_plain(data, end, link);
	if (dwell_unlikely(!where))
		where = dwell_locate_nested(context, data, end, link, &packet->tunnel);
	if (program.config.ignore_tunnels)
		packet->tunnel = 0;
	packet->key.interface = dwell_interface_in(dwell_context_interface(context), packet->tunnel);
	if (dwell_unlikely(dwell_where_error(where)))
		return dwell_where_error(where);
	return dwell_rtt_parse(context, data, end, where, &program.config, packet);
}

static __always_inline void observe(dwell_context *context, __u32 link)
{
	struct dwell_clock clock = {program.replay ? dwell_context_time(context) : 0};
	struct dwell_table table = {&program.config.table, 0, &clock};
	struct dwell_packet packet = {};
	struct dwell_step step = {};

	step.table = &table;
	step.config = &program.config;
	step.packet = &packet;
	if (!receive(context, link, &table, &packet))
		return;
	dwell_rtt_flow(&step);
	if (!step.flow)
		return;
	dwell_rtt_step(&step);
	deliver(&step, &step.match);
	deliver(&step, &step.loop);
}
