/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* BPF_PROG_TEST_RUN repeats one packet. To measure packets of many flows, and
 * answers to them, these programs rewrite the packet and tail-call the program
 * under test, or an empty one, whose cost is taken off.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "base/headers.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* The same numbers as in driver.rs. */
enum {
	MODE_AS_IS,
	MODE_SAME,   /* data of many flows, TSval and sequence number unchanged */
	MODE_STREAM, /* data with a new TSval or sequence number each, never answered */
	MODE_PAIRS,  /* the same, and after each packet the ACK that answers it */
};

#define SEGMENT 1000

/* `count` goes on from run to run: a TSval that comes back is no new one. */
SEC(".data.state") struct {
	__u32 mode;
	__u32 flows;
	__u64 count;
} state = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} target_tc SEC(".maps"), target_xdp SEC(".maps");

struct packet4 {
	struct dwell_ethernet ethernet;
	struct dwell_ipv4 ip;
	struct dwell_tcp tcp;
	struct dwell_tcp_ts_option ts;
} DWELL_PACKED;

struct packet6 {
	struct dwell_ethernet ethernet;
	struct dwell_ipv6 ip;
} DWELL_PACKED;

/* Tail calls replace the caller only outside of subprograms. */
static __always_inline void rewrite(void *data, void *end)
{
	struct packet4 *packet = data;
	struct packet6 *packet6 = data;
	__u32 flow, client, round, seq, header;
	__u32 server = 0x0100a8c0;
	__u64 n = state.count++;
	__u32 answer = 0;

	if (state.mode == MODE_AS_IS || !state.flows || (void *)(packet + 1) > end)
		return;
	if (state.mode == MODE_PAIRS) {
		answer = n & 1;
		n >>= 1;
	}
	round = n / state.flows;
	/* other than the order in which they open, or slots would be read in theirs, which processors foresee */
	flow = n % state.flows * (round ? 7919 + 10 * (round & 63) : 1) % state.flows;
	if (packet->ethernet.type == DWELL_ETH_IPV6) {
		packet6->ip.src_low = (__u64)__builtin_bswap32(flow) << 32;
		return;
	}
	client = __builtin_bswap32(0x0a000000 | flow);
	packet->ip.src = answer ? server : client;
	packet->ip.dst = answer ? client : server;
	if (state.mode == MODE_SAME)
		return;
	header = (packet->tcp.data_offset >> 4) * 4;
	packet->tcp.src_port = answer ? 0xbb01 : 0x3930;
	packet->tcp.dst_port = answer ? 0x3930 : 0xbb01;
	seq = SEGMENT * round;
	packet->tcp.seq = answer ? 0 : __builtin_bswap32(seq);
	packet->tcp.ack = answer ? __builtin_bswap32(seq + SEGMENT) : 0;
	/* the answer carries no data */
	packet->ip.total_length = __builtin_bswap16(sizeof(packet->ip) + header + (answer ? 0 : SEGMENT));
	if (header > sizeof(packet->tcp)) {
		packet->ts.value = answer ? 0 : __builtin_bswap32(round + 1);
		packet->ts.echo = answer ? __builtin_bswap32(round + 1) : 0;
	}
}

SEC("tc")
int drive_tc(struct __sk_buff *skb)
{
	rewrite((void *)(long)skb->data, (void *)(long)skb->data_end);
	bpf_tail_call(skb, &target_tc, 0);
	return -2; /* the target was missing */
}

SEC("tc")
int empty_tc(struct __sk_buff *skb)
{
	return -1;
}

SEC("xdp")
int drive_xdp(struct xdp_md *xdp)
{
	rewrite((void *)(long)xdp->data, (void *)(long)xdp->data_end);
	bpf_tail_call(xdp, &target_xdp, 0);
	return XDP_ABORTED; /* the target was missing */
}

SEC("xdp")
int empty_xdp(struct xdp_md *xdp)
{
	return XDP_PASS;
}
