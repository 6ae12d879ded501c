/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of many connections for a balancer. BPF_PROG_TEST_RUN hands each run
 * the frame that the last one left: it is made a client's again before the
 * balancer is called. What the helper that takes outer headers off costs counts
 * as the balancer's.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "base/headers.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* The same as in forward.rs. */
SEC(".data.state") struct {
	__u32 flows;
	__u32 grown;   /* bytes that each run adds in front */
	__u32 begun;   /* a run came before, in this call */
	__u32 scatter; /* ends with 9, so that it has no factor in common with `flows`, a power of ten or half of one */
	__u64 count;
	__u32 seq; /* TCP's numbers advance by so much each time that a flow comes again */
	__u32 ack;
} state = {};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} target SEC(".maps");

SEC("xdp")
int drive(struct xdp_md *xdp)
{
	struct dwell_ethernet *eth;
	struct dwell_ipv4 *ip;
	struct dwell_ipv6 *ip6;
	struct dwell_tcp *tcp;
	__u32 flow, round;
	__u64 count;
	void *end;

	if (state.begun && state.grown && bpf_xdp_adjust_head(xdp, state.grown))
		return XDP_ABORTED;
	state.begun = 1;
	eth = (void *)(long)xdp->data;
	ip = (void *)(eth + 1);
	ip6 = (void *)(eth + 1);
	end = (void *)(long)xdp->data_end;
	if ((void *)(ip6 + 1) > end)
		return XDP_ABORTED;
	count = state.count++;
	round = state.flows ? count / state.flows : 0;
	/* other than the order in which they open, or slots would be read in theirs, which processors foresee */
	flow = state.flows ? count % state.flows * (state.scatter + 10 * (round & 63)) % state.flows : 0;
	if (ip->version_length == 0x45) {
		eth->type = DWELL_ETH_IPV4;
		ip->ttl = 64;
		ip->src = __builtin_bswap32(0x0a000000 | flow);
		tcp = (void *)(ip + 1);
	} else {
		eth->type = DWELL_ETH_IPV6;
		ip6->hop_limit = 64;
		ip6->src_low = (__u64)__builtin_bswap32(flow) << 32;
		tcp = (void *)(ip6 + 1);
	}
	if (state.seq | state.ack && (void *)(tcp + 1) <= end) {
		tcp->seq = __builtin_bswap32(state.seq * round);
		tcp->ack = __builtin_bswap32(state.ack * round);
	}
	bpf_tail_call(xdp, &target, 0);
	return XDP_ABORTED;
}

/* Instead of the balancer: the driver's own cost. */
SEC("xdp")
int nothing(struct xdp_md *xdp)
{
	return XDP_PASS;
}
