/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compares the clocks of two hosts in XDP: the agent's reflector, and the collector's programs on the loopback and the
 * device. Each passes other packets on.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "clock/sync.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Alone in its section, so that user space can write it as a whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_sync_program program = {};

/* Sessions of the agent, by identifier. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct dwell_sync_session);
	__uint(max_entries, 1);
} sessions SEC(".maps");

/* Sessions of the collector, by identifier. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct dwell_sync_probe);
	__uint(max_entries, 1);
} probes SEC(".maps");

/* DWELL_SYNC_EXCHANGES per prober. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_sync_exchange);
	__uint(max_entries, 1);
} exchanges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_sync_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

static __always_inline __u64 dwell_sync_now(void *embedder)
{
	return bpf_ktime_get_ns();
}

static __always_inline struct dwell_sync_session *dwell_sync_session_at(void *embedder, __u64 id)
{
	return bpf_map_lookup_elem(&sessions, &id);
}

static __always_inline void dwell_sync_count(void *embedder, __u32 counter)
{
	__u32 zero = 0;
	struct dwell_sync_counters *here = bpf_map_lookup_elem(&counters, &zero);

	if (here && counter < DWELL_SYNC_COUNTERS)
		here->value[counter]++;
}

static __always_inline struct dwell_sync_exchange *exchange_of(const struct dwell_sync_probe *probe, __u64 sequence)
{
	__u32 index = probe->first + (sequence & (DWELL_SYNC_EXCHANGES - 1));

	return bpf_map_lookup_elem(&exchanges, &index);
}

/* At the agent's device: answers requests where they arrive. */
SEC("xdp")
int reflect(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;

	switch (dwell_sync_reflect(0, &program, data, end)) {
	case 0:
		return XDP_PASS;
	case 1:
		return XDP_TX;
	default:
		return XDP_DROP;
	}
}

/* At the agent's socket: receives what XDP has not answered. Only valid requests wake the thread that reads it. */
SEC("socket")
int admit(struct __sk_buff *skb)
{
	struct dwell_address from = {0, 0};
	struct dwell_ipv6 ipv6;
	struct dwell_ipv4 ipv4;
	struct dwell_sync sync;

	if (skb->len != DWELL_SYNC_UDP_BYTES ||
	    bpf_skb_load_bytes(skb, sizeof(struct dwell_udp), &sync, sizeof(sync)) ||
	    !dwell_sync_is_ours(&sync, DWELL_SYNC_REQUEST)) {
		dwell_sync_count(0, DWELL_SYNC_MALFORMED);
		return 0;
	}
	if (skb->protocol == DWELL_ETH_IPV4) {
		if (!bpf_skb_load_bytes_relative(skb, 0, &ipv4, sizeof(ipv4), BPF_HDR_START_NET))
			from = dwell_sync_mapped(ipv4.src);
	} else if (!bpf_skb_load_bytes_relative(skb, 0, &ipv6, sizeof(ipv6), BPF_HDR_START_NET)) {
		from.high = ipv6.src_high;
		from.low = ipv6.src_low;
	}
	if (!dwell_sync_admit(0, &sync, &from))
		return 0;
	dwell_sync_count(0, DWELL_SYNC_ADMITTED);
	return skb->len;
}

/* At the collector's loopback: sends what its own socket sends itself to the agent, past the device's queueing
 * discipline.
 */
SEC("xdp")
int depart(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;
	struct dwell_sync_exchange *exchange;
	struct dwell_sync_probe *probe;
	struct dwell_sync_frame frame;
	__u64 session;

	if (!dwell_sync_locate(data, end, DWELL_SYNC_REQUEST, &frame) || frame.udp->src_port != frame.udp->dst_port)
		return XDP_PASS;
	session = frame.sync->session;
	probe = bpf_map_lookup_elem(&probes, &session);
	if (!probe || frame.udp->dst_port != dwell_ntohs(probe->loop_port))
		return XDP_PASS;
	exchange = exchange_of(probe, frame.sync->sequence);
	if (!exchange)
		return XDP_PASS;
	dwell_sync_address(&frame, probe);
	exchange->t2_ns = 0;
	exchange->t3_ns = 0;
	exchange->t4_ns = 0;
	exchange->stamper = DWELL_SYNC_UNSTAMPED;
	exchange->sequence = frame.sync->sequence;
	exchange->t1_ns = bpf_ktime_get_ns();
	return bpf_redirect(probe->interface, 0);
}

/* At the collector's device: receives replies to what departed. */
SEC("xdp")
int arrive(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;
	struct dwell_sync_exchange *exchange;
	struct dwell_sync_probe *probe;
	struct dwell_sync_frame frame;
	__u64 session;
	__u64 now_ns;

	if (!dwell_sync_locate(data, end, DWELL_SYNC_REPLY, &frame))
		return XDP_PASS;
	now_ns = bpf_ktime_get_ns();
	session = frame.sync->session;
	probe = bpf_map_lookup_elem(&probes, &session);
	if (!probe || !dwell_sync_is_reply_to(&frame, probe))
		return XDP_PASS;
	exchange = exchange_of(probe, frame.sync->sequence);
	if (!exchange || !dwell_sync_complete(exchange, frame.sync, now_ns))
		return XDP_PASS;
	dwell_sync_count(0, DWELL_SYNC_ANSWERED);
	return XDP_DROP;
}
