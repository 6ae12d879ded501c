/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs at tc. Included last, after observe() and sweep_bucket(). */

SEC("tc")
int observe_tc(struct __sk_buff *skb)
{
	observe(skb, DWELL_LINK_ETHERNET);
	return -1; /* TCX_NEXT, TC_ACT_UNSPEC: continue as if this program did not exist */
}

/* For devices without a link header: tun, WireGuard, PPP. */
SEC("tc")
int observe_tc_raw(struct __sk_buff *skb)
{
	observe(skb, DWELL_LINK_RAW);
	return -1;
}

#include "sweep.bpf.h"
