/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Traces bytes from device to device, in all network namespaces of the host. */
#include "packet.bpf.h"
#include "stack/hops.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_hop_row);
	__uint(max_entries, 1);
} hop_rows SEC(".maps");

/* User space removes entries once it has read them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_stack_hop);
	__type(value, struct dwell_stack_hop_time);
	__uint(max_entries, 1024);
} hops SEC(".maps");

/* The initial value of an entry: zeros. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_stack_hop_time);
	__uint(max_entries, 1);
} blank SEC(".maps");

/* Names of devices, and of those that are gone. */
struct device_name {
	union {
		char name[16];
		__u64 words[2];
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct dwell_device_point);
	__type(value, struct device_name);
	__uint(max_entries, 1024);
} names SEC(".maps");

/* Number of hops that found no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} hops_lost SEC(".maps");

static __always_inline struct dwell_hop_row *dwell_hop_row_at(void *embedder, __u32 index)
{
	return bpf_map_lookup_elem(&hop_rows, &index);
}

static __always_inline struct dwell_stack_hop_time *hop_time(const struct dwell_stack_hop *hop)
{
	struct dwell_stack_hop_time *time = bpf_map_lookup_elem(&hops, hop);
	__u32 zero = 0;
	void *zeros;

	if (time)
		return time;
	zeros = bpf_map_lookup_elem(&blank, &zero);
	if (!zeros)
		return 0;
	bpf_map_update_elem(&hops, hop, zeros, BPF_NOEXIST);
	return bpf_map_lookup_elem(&hops, hop);
}

/* The embedder is the generation. */
static __always_inline void dwell_hop_add(void *embedder, struct dwell_stack_hop *hop, __u64 took_ns, __u64 since_ns)
{
	struct dwell_stack_hop_time *time;
	__u32 zero = 0;
	__u64 *lost;

	hop->generation = *(const __u64 *)embedder;
	time = hop_time(hop);
	if (time) {
		__sync_fetch_and_add(&time->since_ns, since_ns);
		dwell_flow_segment_add(&time->took, took_ns);
		return;
	}
	lost = bpf_map_lookup_elem(&hops_lost, &zero);
	if (lost)
		(*lost)++;
}

struct crossing {
	struct dwell_pass pass;
	struct dwell_device_point point;
	__u64 generation;
};

static long cross(__u32 index, void *context)
{
	struct crossing *crossing = context;

	dwell_hop_step(&crossing->generation, &program, &crossing->pass, &crossing->point);
	return 0;
}

static __always_inline void note_name(const struct net_device *device, const struct dwell_device_point *point)
{
	const struct device_name *known = bpf_map_lookup_elem(&names, point);
	struct device_name name = {};

	bpf_probe_read_kernel_str(&name.name, sizeof(name.name), &device->name);
	/* numbers of namespaces and devices are reused */
	if (known && known->words[0] == name.words[0] && known->words[1] == name.words[1])
		return;
	bpf_map_update_elem(&names, point, &name, BPF_ANY);
}

/* Counts a packet at a device. Its endpoints are those that it has there, in whatever namespace: a path on which
 * addresses are translated (NAT) counts as two.
 */
static __always_inline int at_device(const struct sk_buff *skb, struct ip_part part, __u32 point)
{
	const struct net_device *device = READ(skb, dev);
	__be16 protocol = READ(skb, protocol);
	struct crossing crossing = {};
	struct dwell_stack_ends ends;
	struct dwell_span span;

	if (protocol != DWELL_ETH_IPV4 && protocol != DWELL_ETH_IPV6)
		return 0;
	if (!read_packet(part, 0, 0, &ends, &span) || !wanted_addresses(&ends))
		return 0;
	span.flow = flow_of(&ends);
	crossing.generation = generation & 1;
	crossing.point.netns = READ2(device, nd_net.net, ns.inum);
	crossing.point.device = READ(device, ifindex);
	crossing.point.point = point;
	note_name(device, &crossing.point);
	crossing.pass = dwell_pass_of(&program, &span, bpf_ktime_get_ns(), 0, 0);
	bpf_loop(crossing.pass.steps, cross, &crossing, 0);
	return 0;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(device_queue, const struct sk_buff *skb)
{
	return at_device(skb, ip_part_at(skb, network_header(skb)), DWELL_POINT_QUEUE);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(device_out, const struct sk_buff *skb, const struct net_device *device)
{
	return at_device(skb, ip_part_at(skb, network_header(skb)), DWELL_POINT_OUT);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(device_in_napi, const struct sk_buff *skb)
{
	return at_device(skb, ip_part_at(skb, READ(skb, data)), DWELL_POINT_IN);
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(device_in_frags, const struct sk_buff *skb)
{
	return at_device(skb, ip_part_of_frags(skb), DWELL_POINT_IN);
}

SEC("tp_btf/netif_rx")
int BPF_PROG(device_in, const struct sk_buff *skb)
{
	return at_device(skb, ip_part_at(skb, READ(skb, data)), DWELL_POINT_IN);
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(device_in_at_once, const struct sk_buff *skb)
{
	return at_device(skb, ip_part_at(skb, READ(skb, data)), DWELL_POINT_IN);
}
