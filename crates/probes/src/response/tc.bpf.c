/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency at tc. */
#include "hook_tc.bpf.h"

#include "response.bpf.h"

SEC("tc")
int observe_tc(struct __sk_buff *skb)
{
	observe(skb, DWELL_LINK_ETHERNET);
	return -1; /* TCX_NEXT, TC_ACT_UNSPEC: as if we were not here */
}

/* For devices without a link header: tun, WireGuard, PPP. */
SEC("tc")
int observe_tc_raw(struct __sk_buff *skb)
{
	observe(skb, DWELL_LINK_RAW);
	return -1;
}

struct sweep {
	__u32 first;
	__u32 reason;
};

static long sweep_one(__u32 index, void *context)
{
	struct sweep *sweep = context;
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};
	__u32 zero = 0;

	table.counters = bpf_map_lookup_elem(&counters, &zero);
	if (table.counters)
		dwell_seat_sweep(&table, sweep->first + index, sweep->reason);
	return 0;
}

/* Run by user space several times an epoch, to end the epochs of flows that
 * fell silent; at the end of a run, with DWELL_CLOSE_END in the mark, all. The
 * buckets from cb[0] on, as many as cb[1] says.
 */
SEC("tc")
int sweep(struct __sk_buff *skb)
{
	struct sweep sweep = {skb->cb[0], skb->mark};

	bpf_loop(skb->cb[1], sweep_one, &sweep, 0);
	return 0;
}
