/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A backend's end of the balancer's tunnel, at XDP. */
#include "hook_xdp.bpf.h"

#include "frame_xdp.bpf.h"

#include "base/aggregate.h"
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

/* Prefixes of inner destinations, and of senders of outer packets. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct dwell_prefix_key);
	__type(value, struct dwell_prefix);
	__uint(max_entries, 65536);
} vips SEC(".maps"), senders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_decap_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

static __always_inline int dwell_is_local_address(void *embedder, const struct dwell_address *address)
{
	return !!bpf_map_lookup_elem(&own, address);
}

static __always_inline __u32 longest(void *trie, const struct dwell_address *address)
{
	struct dwell_prefix_key whole = {.bits = 128};
	const struct dwell_prefix *listed;

	__builtin_memcpy(whole.address, address, sizeof(whole.address));
	listed = bpf_map_lookup_elem(trie, &whole);
	return listed ? listed->bits + 1 : 0;
}

static __always_inline __u32 dwell_decap_vip_bits(void *embedder, const struct dwell_address *address)
{
	return longest(&vips, address);
}

static __always_inline __u32 dwell_decap_sender_bits(void *embedder, const struct dwell_address *address)
{
	return longest(&senders, address);
}

SEC("xdp")
int decapsulate(struct xdp_md *xdp)
{
	struct dwell_decap_counters *counted;
	__u32 zero = 0, did;

	counted = bpf_map_lookup_elem(&counters, &zero);
	did = dwell_decapsulate(xdp, 0, program.gue_port);
	if (counted && did < DWELL_DECAPS)
		counted->value[did]++;
	return dwell_decap_drops(did) ? XDP_DROP : XDP_PASS;
}
