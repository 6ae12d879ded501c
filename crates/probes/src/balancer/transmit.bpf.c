/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counts the frames of XDP that devices took and refused, and sends frames that test whether a device takes any. */
#include "kernel.bpf.h"

#include "lb/balance_types.h"

struct bpf_prog;

/* The network namespace whose devices are counted, by the number of its file. */
SEC(".rodata.network") volatile __u32 network = 0;

/* Counts by the index of the device. User space enters the devices that it watches. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__type(key, __u32);
	__type(value, struct dwell_transmit);
	__uint(max_entries, 256);
} transmits SEC(".maps");

/* The device that the next test frame leaves by. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} target SEC(".maps");

static __always_inline struct dwell_transmit *counts_of(const struct net_device *via, __u32 index)
{
	return via->nd_net.net->ns.inum == network ? bpf_map_lookup_elem(&transmits, &index) : 0;
}

/* The driver of a device has handled some frames, of which it refused `refused`. */
static __always_inline void count(struct dwell_transmit *counts, int taken, __u64 *kind, int refused, int error)
{
	counts->taken += taken > 0 ? taken : 0;
	if (refused <= 0)
		return;
	*kind += refused;
	counts->error = error;
}

/* Drivers that send a bulk of frames report it here; the others report each refused frame as an exception. */
SEC("tp_btf/xdp_bulk_tx")
int BPF_PROG(sent_back, const struct net_device *device, int taken, int refused, int error)
{
	struct dwell_transmit *counts = counts_of(device, device->ifindex);

	if (counts)
		count(counts, taken, &counts->refused_tx, refused, error);
	return 0;
}

SEC("tp_btf/xdp_exception")
int BPF_PROG(not_sent_back, const struct net_device *device, const struct bpf_prog *program, __u32 action)
{
	struct dwell_transmit *counts = action == XDP_TX ? counts_of(device, device->ifindex) : 0;

	if (counts)
		count(counts, 0, &counts->refused_tx, 1, 0);
	return 0;
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(redirected, const struct net_device *from, const struct net_device *to, int taken, int refused, int error)
{
	struct dwell_transmit *counts = counts_of(to, to->ifindex);

	if (counts)
		count(counts, taken, &counts->refused_redirect, refused, error);
	return 0;
}

/* In place of the map's number: the program named the target by its index, without a map. */
#define NO_MAP 0x7fffffff

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(not_redirected, const struct net_device *from, const struct bpf_prog *program, const void *to, int error,
	     int map_type, __u32 map, __u32 index)
{
	struct dwell_transmit *counts = map == NO_MAP ? counts_of(from, index) : 0;

	if (counts)
		count(counts, 0, &counts->refused_redirect, 1, error);
	return 0;
}

/* User space runs it with a frame that then really leaves. */
SEC("xdp")
int send_test(struct xdp_md *xdp)
{
	__u32 zero = 0, *index = bpf_map_lookup_elem(&target, &zero);

	return index ? bpf_redirect(*index, 0) : XDP_ABORTED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
