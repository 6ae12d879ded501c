/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency at XDP: ingress, before the stack has touched the packet. */
#include "hook_xdp.bpf.h"

#include "chain.bpf.h"
#include "response.bpf.h"

SEC("xdp")
int observe_xdp(struct xdp_md *xdp)
{
	observe(xdp, DWELL_LINK_ETHERNET);
	return XDP_PASS;
}

/* A program of its own, as the ability to make tail calls costs time in each run. */
SEC("xdp")
int observe_xdp_chained(struct xdp_md *xdp)
{
	observe(xdp, DWELL_LINK_ETHERNET);
	if (program.chain_next)
		bpf_tail_call(xdp, &chain, program.chain_next - 1);
	return XDP_PASS;
}
