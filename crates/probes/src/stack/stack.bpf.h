/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The core's rows over BPF maps, and how a flow and its bytes are read from
 * what the kernel hands a program.
 */
#include "kernel.bpf.h"

#include "filter.h"
#include "headers.h"
#include "histogram.h"
#include "layers.h"

/* From kernels newer than the build machine's headers may be. */
#ifndef BPF_F_MMAPABLE
#define BPF_F_MMAPABLE (1U << 10)
#endif

char _license[] SEC("license") = "Dual BSD/GPL";

/* Alone in its section, so that user space can write it whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_stack_program program = {};

/* Which half of the histograms is written: user space reads the other. */
SEC(".data.generation") __u32 generation = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
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

/* Of the grid, each 2^thin-th byte is taken: user space keeps to a budget by it. */
SEC(".data.thin") __u32 thin = 0;

/* Flows that were chosen, by their hash, and when the next byte of each is due. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, __u64);
	__type(value, __u64);
	__uint(max_entries, 1);
} chosen SEC(".maps");

/* Whose flows are chosen: processes by their numbers, and one cgroup with all below. */
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

/* Bytes that went all the way, if they are asked for. Nobody is woken. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} passages SEC(".maps");

/* Entries go when user space has read them, and come again with their flow. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_stack_ends);
	__type(value, struct dwell_flow_segments);
	__uint(max_entries, 1);
} flows SEC(".maps");

/* What an entry begins as: zeros. */
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

static __always_inline struct dwell_flow_segments *flow_segments(
	const struct dwell_stack_ends *ends)
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

/* Global, so that the verifier walks it once. Segments of bytes that were sent again
 * follow the others, and are of no flow. The ends say which generation counts: one for
 * all segments of a byte.
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
		dwell_stack_count(0, DWELL_FLOWS_UNTOLD);
	return 0;
}

/* The embedder is whose bytes they are. */
static __always_inline void dwell_segment_add(void *embedder, __u32 segment, __u64 ns)
{
	segment_add(embedder, segment, ns);
}

static __always_inline void dwell_passage(void *embedder, const struct dwell_row *row, __u32 slot,
					  int up, int again)
{
	struct dwell_stack_passage *passage = bpf_ringbuf_reserve(&passages, sizeof(*passage), 0);

	if (!passage) {
		dwell_stack_count(embedder, DWELL_PASSAGES_LOST);
		return;
	}
	passage->ends = *(const struct dwell_stack_ends *)embedder;
	passage->ends.part = 0;
	dwell_passage_of(&program, row, slot, up, again, passage);
	bpf_ringbuf_submit(passage, BPF_RB_NO_WAKEUP);
}

static __always_inline int dwell_may_begin(void *embedder, __u64 flow, __u64 now_ns)
{
	__u64 *due_ns = bpf_map_lookup_elem(&chosen, &flow);
	__u64 next_ns = now_ns + program.pace_ns;

	if (!due_ns) {
		if (program.chosen)
			return 0;
		bpf_map_update_elem(&chosen, &flow, &next_ns, BPF_ANY);
		return 1;
	}
	if (now_ns < *due_ns)
		return 0;
	*due_ns = next_ns;
	return 1;
}

static __always_inline int wanted_namespace(const struct net *net)
{
	return !program.netns || net->ns.inum == program.netns;
}

static __always_inline int wanted_ports(const struct dwell_stack_ends *ends)
{
	return !program.port || ends->sport == program.port || ends->dport == program.port;
}

static __always_inline int wanted_addresses(const struct dwell_stack_ends *ends)
{
	struct dwell_flow_key key;

	if (!program.filter.rules)
		return 1;
	key.a = ends->src;
	key.b = ends->dst;
	return dwell_filter_admits(&program.filter, &key, ends->sport, ends->dport);
}

static __always_inline __u64 flow_of(const struct dwell_stack_ends *ends)
{
	return dwell_flow_hash(program.seed, &ends->src, &ends->dst, ends->sport, ends->dport);
}

static __always_inline void address_of(const struct in6_addr *from, struct dwell_address *to)
{
	to->high = from->in6_u.u6_addr32[0] | (__u64)from->in6_u.u6_addr32[1] << 32;
	to->low = from->in6_u.u6_addr32[2] | (__u64)from->in6_u.u6_addr32[3] << 32;
}

static __always_inline void address4_of(__u32 from, struct dwell_address *to)
{
	to->high = 0;
	to->low = 0xffff0000 | (__u64)from << 32;
}

/* The ends of a socket's flow, from here to there. False if it is not of a
 * TCP connection that is looked at.
 */
static __always_inline int ends_of_socket(const struct sock *sk, struct dwell_stack_ends *ends,
					  int sends)
{
	const struct sock_common *common = &sk->__sk_common;
	struct dwell_address local, remote;
	__u16 local_port = common->skc_num, remote_port;

	remote_port = dwell_ntohs(common->skc_dport);
	ends->part = generation & 1 ? DWELL_PART_GENERATION : 0;
	ends->sport = sends ? local_port : remote_port;
	ends->dport = sends ? remote_port : local_port;
	if (!wanted_ports(ends) || !wanted_namespace(common->skc_net.net))
		return 0;
	if (common->skc_family == AF_INET) {
		address4_of(common->skc_rcv_saddr, &local);
		address4_of(common->skc_daddr, &remote);
	} else {
		/* IPv4 on a socket of IPv6 is written as a mapped address */
		address_of(&common->skc_v6_rcv_saddr, &local);
		address_of(&common->skc_v6_daddr, &remote);
	}
	ends->src = sends ? local : remote;
	ends->dst = sends ? remote : local;
	return 1;
}

#define WIRE8(at, offset) (*((const __u8 *)(at) + (offset)))
#define WIRE16(at, offset) dwell_ntohs(*(const __u16 *)((const __u8 *)(at) + (offset)))
#define WIRE32(at, offset) (*(const __u32 *)((const __u8 *)(at) + (offset)))

static __always_inline __u64 wire64(const void *at, __u32 offset)
{
	return WIRE32(at, offset) | (__u64)WIRE32(at, offset + 4) << 32;
}

/* Whose bytes a packet carries is what its socket says: addresses may have been
 * translated on the way down (NAT). What is forwarded has none.
 */
static __always_inline const struct sock *socket_of(const struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;
	__u8 state;

	if (!sk)
		return 0;
	state = sk->__sk_common.skc_state;
	/* these are no whole sockets */
	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	return sk;
}

/* Reads a packet from its IP header on, which is at `at`. False if it carries no byte
 * that is stamped, or is of no flow that is looked at.
 */
static __always_inline int read_packet(const struct sk_buff *skb, const void *at,
				       const struct sock *sk, struct dwell_stack_ends *ends,
				       struct dwell_span *span)
{
	const struct iphdr *ip4 = bpf_core_cast(at, struct iphdr);
	const struct ipv6hdr *ip6 = bpf_core_cast(at, struct ipv6hdr);
	const struct tcphdr *tcp;
	__u32 before = at - (const void *)skb->data;
	__u32 linear = skb->len - skb->data_len - before;
	__u32 bytes = skb->len - before;
	__u8 first = WIRE8(ip4, 0);
	int is_ip4 = first >> 4 == 4;
	__u32 head;

	if (is_ip4) {
		if (WIRE8(ip4, 9) != IPPROTO_TCP || WIRE16(ip4, 6) & 0x3fff)
			return 0;
		head = (first & 15) << 2;
		/* 0 in packets too long for the field */
		if (WIRE16(ip4, 2))
			bytes = WIRE16(ip4, 2);
	} else {
		if (first >> 4 != 6 || WIRE8(ip6, 6) != IPPROTO_TCP)
			return 0;
		head = sizeof(struct ipv6hdr);
		if (WIRE16(ip6, 4))
			bytes = WIRE16(ip6, 4) + head;
	}
	/* headers may be in fragments, which cannot be read here */
	if ((__s32)linear < (__s32)(head + sizeof(struct tcphdr)))
		return 0;
	tcp = bpf_core_cast(at + head, struct tcphdr);
	head += WIRE8(tcp, 12) >> 4 << 2;
	if (bytes <= head)
		return 0;
	span->seq = dwell_ntohl(WIRE32(tcp, 4));
	span->bytes = bytes - head;
	if (!dwell_grid_hit(span, program.shift + thin))
		return 0;
	if (sk)
		return ends_of_socket(sk, ends, 1);
	ends->part = generation & 1 ? DWELL_PART_GENERATION : 0;
	ends->sport = WIRE16(tcp, 0);
	ends->dport = WIRE16(tcp, 2);
	if (!wanted_ports(ends))
		return 0;
	if (is_ip4) {
		address4_of(WIRE32(ip4, 12), &ends->src);
		address4_of(WIRE32(ip4, 16), &ends->dst);
	} else {
		ends->src.high = wire64(ip6, 8);
		ends->src.low = wire64(ip6, 16);
		ends->dst.high = wire64(ip6, 24);
		ends->dst.low = wire64(ip6, 32);
	}
	return 1;
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

/* In the process that writes or reads: both directions of its connection are followed
 * from here on.
 */
static __always_inline void choose(const struct dwell_stack_ends *ends, __u64 flow)
{
	__u64 back, due_ns = 0;

	if (!program.chosen || bpf_map_lookup_elem(&chosen, &flow))
		return;
	if (!is_chosen_process() && !(program.chosen & DWELL_CHOSEN_CGROUP &&
				      bpf_current_task_under_cgroup(&cgroup, 0) == 1))
		return;
	back = dwell_flow_hash(program.seed, &ends->dst, &ends->src, ends->dport, ends->sport);
	bpf_map_update_elem(&chosen, &flow, &due_ns, BPF_ANY);
	bpf_map_update_elem(&chosen, &back, &due_ns, BPF_ANY);
}

/* What bpf_loop() hands on: bytes, and whose. */
struct passing {
	struct dwell_pass pass;
	struct dwell_stack_ends ends;
};

/* Steps of bpf_loop(), a layer each, so that the verifier drops what is of others. */
#define LOOP_PASS(name, layer)                                                                     \
	static long name(__u32 index, void *context)                                               \
	{                                                                                          \
		struct passing *passing = context;                                                 \
                                                                                                   \
		dwell_pass_step(&passing->ends, &program, &passing->pass, layer);                  \
		return 0;                                                                          \
	}

LOOP_PASS(pass_tx_socket, DWELL_TX_SOCKET)
LOOP_PASS(pass_tx_ip, DWELL_TX_IP)
LOOP_PASS(pass_tx_queue, DWELL_TX_QUEUE)
LOOP_PASS(pass_tx_driver, DWELL_TX_DRIVER)
LOOP_PASS(pass_rx_driver, DWELL_RX_DRIVER)
LOOP_PASS(pass_rx_ip, DWELL_RX_IP)
LOOP_PASS(pass_rx_tcp, DWELL_RX_TCP)

typedef long (*pass_step)(__u32 index, void *context);

/* The ends are known. */
static __always_inline void pass_span(struct passing *passing, const struct dwell_span *span,
				      __u64 tcp_ns, __u32 device, pass_step step)
{
	passing->pass = dwell_pass_of(&program, span, bpf_ktime_get_ns(), tcp_ns, device, thin);
	bpf_loop(passing->pass.steps, step, passing, 0);
}

static __always_inline const void *network_header(const struct sk_buff *skb)
{
	return skb->head + skb->network_header;
}

/* A packet passes a layer on the way down. It brings the time at which TCP handed it
 * down.
 */
static __always_inline void pass_down(const struct sk_buff *skb, pass_step step)
{
	struct passing passing;
	struct dwell_span span;

	if (!read_packet(skb, network_header(skb), socket_of(skb), &passing.ends, &span))
		return;
	if (!wanted_addresses(&passing.ends))
		return;
	span.flow = flow_of(&passing.ends);
	pass_span(&passing, &span, skb->tstamp, 0, step);
}

/* On the way up, with its IP header at `at`. */
static __always_inline void pass_up(const struct sk_buff *skb, const void *at, pass_step step)
{
	struct passing passing;
	struct dwell_span span;

	if (!read_packet(skb, at, 0, &passing.ends, &span) || !wanted_addresses(&passing.ends))
		return;
	span.flow = flow_of(&passing.ends);
	pass_span(&passing, &span, 0, skb->dev->ifindex, step);
}

/* The same of a walk back. */
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
