/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency at XDP: ingress, before the stack has touched the packet. */
#include "hook_xdp.bpf.h"

#include "response.bpf.h"

SEC("xdp")
int observe_xdp(struct xdp_md *xdp)
{
	observe(xdp, DWELL_LINK_ETHERNET);
	return XDP_PASS;
}
