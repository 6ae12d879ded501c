/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies the first part of stack/embed.h: the core's rows over BPF maps, and bytes on their way past the layers. */
#include "packet.bpf.h"

#include "stack/layers.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_row);
	__uint(max_entries, 1);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_histogram);
	__uint(max_entries, 4 * DWELL_SEGMENTS);
} histograms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_stack_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

/* A selected flow. With a pace, one of its bytes is on its way up at a time, so that it is found when it is read,
 * however much else was.
 */
struct choice {
	__u64 due_ns;     /* when the next byte may be traced */
	__u64 begun_ns;   /* when the present byte's way up began; 0 if there is none */
	__u32 grid_index; /* the present byte */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u64);
	__type(value, struct choice);
	__uint(max_entries, 1);
} chosen SEC(".maps");

/* Whose flows are selected: processes by number, and one cgroup with all below it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u8);
	__uint(max_entries, 1);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} cgroup SEC(".maps");

/* Byte traces, if they are requested. Nobody is woken. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} traces SEC(".maps");

/* User space removes entries once it has read them; they return with their flow. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_stack_ends);
	__type(value, struct dwell_flow_segments);
	__uint(max_entries, 1);
} flows SEC(".maps");

/* The initial value of an entry: zeros. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_flow_segments);
	__uint(max_entries, 1);
} blank SEC(".maps");

static __always_inline struct dwell_row *dwell_row_at(void *embedder, __u32 index)
{
	return bpf_map_lookup_elem(&rows, &index);
}

static __always_inline void dwell_stack_count(void *embedder, __u32 counter)
{
	__u32 zero = 0;
	struct dwell_stack_counters *here = bpf_map_lookup_elem(&counters, &zero);

	if (here && counter < DWELL_STACK_COUNTERS)
		here->value[counter]++;
}

static __always_inline struct dwell_flow_segments *flow_segments(const struct dwell_stack_ends *ends)
{
	struct dwell_flow_segments *flow = bpf_map_lookup_elem(&flows, ends);
	__u32 zero = 0;
	void *zeros;

	if (flow)
		return flow;
	zeros = bpf_map_lookup_elem(&blank, &zero);
	if (!zeros)
		return 0;
	bpf_map_update_elem(&flows, ends, zeros, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, ends);
}

/* A global function, so that the verifier walks it once. Segments of bytes that were sent again follow the others, and
 * count for no flow. The ends say which generation counts: one for all segments of a byte.
 */
__noinline int segment_add(const struct dwell_stack_ends *ends, __u32 segment, __u64 ns)
{
	struct dwell_histogram *histogram;
	struct dwell_stack_ends key;
	struct dwell_flow_segments *flow;
	int is_total = segment == DWELL_TX_TOTAL || segment == DWELL_RX_TOTAL;
	__u32 index;

	if (!ends)
		return 0;
	index = segment + (ends->part & DWELL_PART_GENERATION ? 2 * DWELL_SEGMENTS : 0);
	histogram = bpf_map_lookup_elem(&histograms, &index);
	if (histogram)
		dwell_histogram_add(histogram, ns);
	if (!program.flows || segment >= DWELL_RX_UNEXPLAINED || segment == DWELL_TX_UNEXPLAINED)
		return 0;
	key = *ends;
	if (segment > DWELL_TX_UNEXPLAINED) {
		key.part |= DWELL_PART_UP;
		segment -= DWELL_DRIVER_IP;
	}
	flow = flow_segments(&key);
	if (flow && segment < DWELL_FLOW_SEGMENTS)
		dwell_flow_segment_add(&flow->segment[segment], ns);
	else if (is_total)
		dwell_stack_count(0, DWELL_FLOWS_LOST);
	return 0;
}

/* The embedder is the ends of the bytes. */
static __always_inline void dwell_segment_add(void *embedder, __u32 segment, __u64 ns)
{
	segment_add(embedder, segment, ns);
}

static __always_inline void dwell_trace_emit(void *embedder, const struct dwell_row *row, __u32 grid_index, int up,
					     int again)
{
	struct dwell_byte_trace *trace = bpf_ringbuf_reserve(&traces, sizeof(*trace), 0);

	if (!trace) {
		dwell_stack_count(embedder, DWELL_TRACES_LOST);
		return;
	}
	trace->ends = *(const struct dwell_stack_ends *)embedder;
	trace->ends.part = 0;
	dwell_trace_fill(&program, row, grid_index, up, again, trace);
	bpf_ringbuf_submit(trace, BPF_RB_NO_WAKEUP);
}

static __always_inline int dwell_may_trace(void *embedder, __u64 flow, __u32 grid_index, int up, __u64 now_ns)
{
	struct choice *choice = bpf_map_lookup_elem(&chosen, &flow);
	struct choice next = {.due_ns = now_ns + program.pace_ns};

	if (up) {
		next.begun_ns = now_ns;
		next.grid_index = grid_index;
	}
	if (!choice) {
		if (program.chosen)
			return 0;
		bpf_map_update_elem(&chosen, &flow, &next, BPF_ANY);
		return 1;
	}
	if (!program.pace_ns)
		return 1;
	if (now_ns < choice->due_ns)
		return 0;
	if (up && choice->begun_ns && now_ns < choice->begun_ns + DWELL_ROW_AGE_NS)
		return 0;
	*choice = next;
	return 1;
}

/* Returns how many steps a walk back from `end` may take. With a pace it is one, to the byte that is on its way, if it
 * is below `end`.
 */
static __always_inline __u32 walk_steps(struct dwell_walk_back *walk, __u32 end)
{
	struct choice *choice;

	if (!program.pace_ns)
		return DWELL_WALK_STEPS;
	choice = bpf_map_lookup_elem(&chosen, &walk->flow);
	if (!choice || !choice->begun_ns)
		return 0;
	if ((__s32)((choice->grid_index << (program.shift & 31)) - end) >= 0)
		return 0;
	walk->grid_index = choice->grid_index;
	return 1;
}

/* Ends the way up of a flow's present byte, which was read. */
static __always_inline void end_choice(__u64 flow)
{
	struct choice *choice = bpf_map_lookup_elem(&chosen, &flow);

	if (choice)
		choice->begun_ns = 0;
}

static __always_inline int is_chosen_process(void)
{
	struct bpf_pidns_info self;

	if (!(program.chosen & DWELL_CHOSEN_PROCESS))
		return 0;
	if (bpf_get_ns_current_pid_tgid(program.pidns_dev, program.pidns_ino, &self, sizeof(self)))
		return 0;
	return !!bpf_map_lookup_elem(&processes, &self.tgid);
}

/* Selects the flow, both directions, of a process that writes or reads. */
static __always_inline void choose(const struct dwell_stack_ends *ends, __u64 flow)
{
	struct dwell_stack_ends reverse = *ends;
	struct choice choice = {};
	__u64 back;

	if (!program.chosen || bpf_map_lookup_elem(&chosen, &flow))
		return;
	if (!is_chosen_process() &&
	    !(program.chosen & DWELL_CHOSEN_CGROUP && bpf_current_task_under_cgroup(&cgroup, 0) == 1))
		return;
	reverse.src = ends->dst;
	reverse.dst = ends->src;
	reverse.sport = ends->dport;
	reverse.dport = ends->sport;
	back = flow_of(&reverse);
	bpf_map_update_elem(&chosen, &flow, &choice, BPF_ANY);
	bpf_map_update_elem(&chosen, &back, &choice, BPF_ANY);
}

/* State of bpf_loop(): bytes, and their ends. */
struct passing {
	struct dwell_pass pass;
	struct dwell_stack_ends ends;
};

/* Steps of bpf_loop(), one per layer, so that the verifier drops the code of other layers. */
#define LOOP_PASS(name, layer)                                                                                         \
	static long name(__u32 index, void *context)                                                                   \
	{                                                                                                              \
		struct passing *passing = context;                                                                     \
                                                                                                                       \
		dwell_pass_step(&passing->ends, &program, &passing->pass, layer);                                      \
		return 0;                                                                                              \
	}

LOOP_PASS(pass_tx_socket, DWELL_TX_SOCKET)
LOOP_PASS(pass_tx_ip, DWELL_TX_IP)
LOOP_PASS(pass_tx_queue, DWELL_TX_QUEUE)
LOOP_PASS(pass_tx_driver, DWELL_TX_DRIVER)
LOOP_PASS(pass_rx_driver, DWELL_RX_DRIVER)
LOOP_PASS(pass_rx_ip, DWELL_RX_IP)
LOOP_PASS(pass_rx_tcp, DWELL_RX_TCP)

typedef long (*pass_step)(__u32 index, void *context);

/* Stamps bytes whose ends are known. */
static __always_inline void pass_span(struct passing *passing, const struct dwell_span *span, __u64 tcp_ns,
				      __u32 device, pass_step step)
{
	passing->pass = dwell_pass_of(&program, span, bpf_ktime_get_ns(), tcp_ns, device);
	bpf_loop(passing->pass.steps, step, passing, 0);
}

/* Handles a packet that passes a layer on the way down, of a namespace if it is known. It carries the time at which TCP
 * handed it down. One that keeps its socket in another namespace has left the host as its socket's namespace sees it.
 */
static __always_inline void pass_down(const struct sk_buff *skb, __u32 netns, pass_step step)
{
	struct passing passing;
	struct dwell_span span;

	if (!read_packet(ip_part_at(skb, network_header(skb)), socket_of(skb), netns, &passing.ends, &span))
		return;
	if (netns && passing.ends.netns != netns)
		return;
	if (!wanted_addresses(&passing.ends))
		return;
	span.flow = flow_of(&passing.ends);
	pass_span(&passing, &span, READ(skb, tstamp), 0, step);
}

/* Handles a packet of a namespace that passes a layer on the way up. `from` is where it arrived, or 0. */
static __always_inline void pass_up_from(struct ip_part part, __u32 netns, __u32 from, pass_step step)
{
	struct passing passing;
	struct dwell_span span;

	if (!read_packet(part, 0, netns, &passing.ends, &span) || !wanted_addresses(&passing.ends))
		return;
	span.flow = flow_of(&passing.ends);
	pass_span(&passing, &span, 0, from, step);
}

static __always_inline void pass_up(const struct sk_buff *skb, pass_step step)
{
	pass_up_from(ip_part_at(skb, network_header(skb)), netns_of_device(skb), 0, step);
}

/* Handles a packet at the driver. One that passes two hooks of one device (ifb) has arrived once. */
static __always_inline void pass_in(const struct sk_buff *skb, struct ip_part part, __u32 hook)
{
	__u32 from = READ2(skb, dev, ifindex) << 2 | hook;

	pass_up_from(part, netns_of_device(skb), from, pass_rx_driver);
}

/* State of bpf_loop() for a walk back. */
struct reaching {
	struct dwell_walk_back walk;
	struct dwell_stack_ends ends;
};

static long reach_ready(__u32 index, void *context)
{
	struct reaching *reaching = context;

	return dwell_walk_step_back(&reaching->ends, &program, &reaching->walk, DWELL_RX_READY);
}

static long reach_socket(__u32 index, void *context)
{
	struct reaching *reaching = context;

	return dwell_walk_step_back(&reaching->ends, &program, &reaching->walk, DWELL_RX_SOCKET);
}
