/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A backend's end of the balancer's tunnel, at XDP. */
#include "hook_xdp.bpf.h"

#include "frame_xdp.bpf.h"

#include "lb/decap.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC(".rodata.program") struct dwell_decap_program program = {};

/* Addresses of this host at which tunnels may end. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_address);
	__type(value, __u32);
	__uint(max_entries, 1);
} own SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_decap_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

static __always_inline int dwell_is_local_address(const struct dwell_address *address)
{
	return !!bpf_map_lookup_elem(&own, address);
}

SEC("xdp")
int decapsulate(struct xdp_md *xdp)
{
	struct dwell_decap_counters *counted;
	__u32 zero = 0, did;

	counted = bpf_map_lookup_elem(&counters, &zero);
	did = dwell_decapsulate(xdp, program.gue_port);
	if (counted && did < DWELL_DECAPS)
		counted->value[did]++;
	return did == DWELL_DECAP_CONGESTED || did == DWELL_DECAP_MALFORMED ? XDP_DROP : XDP_PASS;
}
