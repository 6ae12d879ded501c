/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every program with a flow table has: license, buckets, counters, ring buffer, clock. Included after `program`,
 * whose `jiffy_ns` and `replay` the clock reads, after DWELL_TABLE, the configuration of its table, and after
 * DWELL_COUNTERS_TYPE, if it counts more than the table does: a struct that begins with struct dwell_counters.
 */
#ifndef DWELL_COUNTERS_TYPE
#define DWELL_COUNTERS_TYPE struct dwell_counters
#endif

/* The build machine's headers may be older than this flag. */
#ifndef BPF_F_MMAPABLE
#define BPF_F_MMAPABLE (1U << 10)
#endif

char _license[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_slot_bucket);
	__uint(max_entries, 1);
} buckets SEC(".maps");

/* The pool of free slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_pool);
	__uint(max_entries, 1);
} pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, DWELL_COUNTERS_TYPE);
	__uint(max_entries, 1);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

/* The embedder of a table while user space has it swept. */
#define DWELL_SWEEPS ((void *)1)

static __always_inline __u64 dwell_now(struct dwell_clock *clock)
{
	if (!clock->now_ns)
		clock->now_ns = bpf_ktime_get_ns();
	return clock->now_ns;
}

static __always_inline __u32 dwell_now_coarse(struct dwell_clock *clock)
{
	if (program.replay)
		return clock->now_ns >> 20;
	/* the cheapest clock there is: about 1 ns */
	if (program.jiffy_ns)
		return bpf_jiffies64() * program.jiffy_ns >> 20;
	return bpf_ktime_get_coarse_ns() >> 20;
}

/* Parses a packet. The including file defines it. Returns DWELL_FRAME_OK, or the counter that says why not. */
__u32 read_packet(dwell_context *context, __u32 link, struct dwell_packet *packet);

/* Counts and parses a packet. Returns true if it is of use; otherwise counts why not. */
static __always_inline int receive(dwell_context *context, __u32 link, struct dwell_table *table,
				   struct dwell_packet *packet)
{
	__u32 zero = 0, result;

	table->counters = bpf_map_lookup_elem(&counters, &zero);
	if (!table->counters)
		return 0;
	packet->wire_bytes = dwell_context_wire_bytes(context);
	packet->segments = dwell_context_segments(context);
	packet->key.interface = dwell_context_interface(context);
	table->counters->value[DWELL_SEEN_PACKETS] += packet->segments;
	table->counters->value[DWELL_SEEN_BYTES] += packet->wire_bytes;

	result = read_packet(context, link, packet);
	if (dwell_unlikely(result == DWELL_SKIP_TRUNCATED) && DWELL_LINEARIZE(context))
		result = read_packet(context, link, packet);
	if (result != DWELL_FRAME_OK) {
		if (result < DWELL_COUNTERS)
			table->counters->value[result]++;
		return 0;
	}
	packet->hash = dwell_key_hash(&packet->key, packet->proto, DWELL_TABLE.seed);
	return 1;
}

static __always_inline struct dwell_bucket *dwell_bucket_at(void *embedder, __u32 index)
{
	return bpf_map_lookup_elem(&buckets, &index);
}

static __always_inline __u32 dwell_slot_total(void *embedder)
{
	return DWELL_TABLE.slots;
}

static __always_inline struct dwell_pool *dwell_pool_of(void *embedder)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pool, &zero);
}

/* Global functions, so that the verifier walks their loops once, separately. */
__noinline __u64 dwell_walk_step(dwell_context *context, __u64 walk)
{
	return dwell_walk_on((void *)(long)context->data, (void *)(long)context->data_end, walk);
}

__noinline __u32 dwell_walk_tunnel(dwell_context *context, __u64 walk, __u32 tunnel)
{
	return dwell_walk_tunnel_in((void *)(long)context->data, (void *)(long)context->data_end, walk, tunnel);
}

__noinline __u32 rank_at(__u32 slot_index, __u32 now_coarse)
{
	return dwell_rank(dwell_head_at(0, slot_index), now_coarse, DWELL_TABLE.idle_timeout_ns >> 20);
}

static __always_inline __u32 dwell_rank_at(void *embedder, __u32 slot_index, __u32 now_coarse, __u32 timeout_coarse)
{
	return rank_at(slot_index, now_coarse);
}

__noinline __u32 dwell_vacancy_choose(__u32 first, __u32 second, __u64 tag, __u32 now_coarse)
{
	return dwell_vacancy_of(0, first, second, tag, now_coarse, DWELL_TABLE.idle_timeout_ns >> 20);
}

static __always_inline __u32 dwell_vacancy_for(struct dwell_table *table, __u32 first, __u32 second, __u64 tag)
{
	return dwell_vacancy_choose(first, second, tag, dwell_now_coarse(table->clock));
}
