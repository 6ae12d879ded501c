/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* BPF_PROG_TEST_RUN repeats one packet. To measure packets of many flows, and
 * answers to them, this program rewrites the packet and tail-calls the program
 * under test, or an empty one, whose cost is taken off.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "headers.h"

char _license[] SEC("license") = "Dual BSD/GPL";

enum {
	MODE_AS_IS,
	MODE_SAME_TSVAL, /* data whose TSval stays: no sample */
	MODE_PAIRS,      /* data with a new TSval, then the ACK that echoes it */
};

SEC(".data.bench") struct {
	__u32 mode;
	__u32 flows;
	__u64 count;
} bench = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} target SEC(".maps");

struct packet {
	struct dwell_ethernet ethernet;
	struct dwell_ipv4 ip;
	struct dwell_tcp tcp;
	struct dwell_tcp_ts_option ts;
} DWELL_PACKED;

/* Tail calls replace the caller only outside of subprograms. */
static __always_inline void rewrite(struct __sk_buff *skb)
{
	struct packet *packet = (void *)(long)skb->data;
	__u64 n = bench.count++, round;
	__u32 flow, client, server, answer, seq;

	if ((void *)(packet + 1) > (void *)(long)skb->data_end || !bench.flows)
		return;
	if (bench.mode == MODE_PAIRS) {
		answer = n & 1;
		n >>= 1;
	} else {
		answer = 0;
	}
	round = n / bench.flows;
	flow = n % bench.flows;
	client = 0x0000000a | (flow & 0xff) << 24 | (flow & 0xff00) << 8 | (flow & 0xff0000) >> 8;
	server = 0x0100a8c0;
	seq = bench.mode == MODE_PAIRS ? 1000 * (__u32)round : 0;
	packet->ip.src = answer ? server : client;
	packet->ip.dst = answer ? client : server;
	packet->tcp.src_port = answer ? 0xbb01 : 0x3930;
	packet->tcp.dst_port = answer ? 0x3930 : 0xbb01;
	packet->tcp.seq = answer ? 0 : __builtin_bswap32(seq);
	packet->tcp.ack = answer ? __builtin_bswap32(seq + 1000) : 0;
	/* the answer carries no data */
	packet->ip.total_length = answer ? __builtin_bswap16(52) : __builtin_bswap16(skb->len - 14);
	if (bench.mode == MODE_PAIRS) {
		packet->ts.value = answer ? 0 : __builtin_bswap32(round + 1);
		packet->ts.echo = answer ? __builtin_bswap32(round + 1) : 0;
	}
}

SEC("tc")
int drive(struct __sk_buff *skb)
{
	if (bench.mode != MODE_AS_IS)
		rewrite(skb);
	bpf_tail_call(skb, &target, 0);
	return -2; /* the target was missing */
}

SEC("tc")
int empty(struct __sk_buff *skb)
{
	return -1;
}
