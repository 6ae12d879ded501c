/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The program that sweeps a flow table. Included last, after sweep_bucket(). */

struct sweep {
	__u64 now_ns; /* 0: the kernel's clock tells */
	__u32 first;
	__u32 reason;
};

static long sweep_one(__u32 index, void *context)
{
	struct sweep *sweep = context;
	struct dwell_clock clock = {sweep->now_ns};
	struct dwell_table table = {&DWELL_TABLE, 0, &clock, DWELL_SWEEPS};
	__u32 zero = 0;

	table.counters = bpf_map_lookup_elem(&counters, &zero);
	if (table.counters)
		sweep_bucket(&table, sweep->first + index, sweep->reason);
	return 0;
}

/* Sweeps cb[1] buckets from bucket cb[0] on, few enough that their reports fit into the ring buffer. User space runs it
 * now and then to close idle flows, and at the end of a run, with DWELL_CLOSE_END in the mark, to close all. It reads
 * no packet. In a replay, the time is that of the packet that it is run on.
 */
SEC("tc")
int sweep(struct __sk_buff *skb)
{
	struct sweep sweep = {program.replay ? skb->tstamp : 0, skb->cb[0], skb->mark};

	bpf_loop(skb->cb[1], sweep_one, &sweep, 0);
	return 0;
}
