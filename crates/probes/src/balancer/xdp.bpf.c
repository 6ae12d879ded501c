/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The balancer at XDP. */
#include "hook_xdp.bpf.h"

#include "balancer.bpf.h"
#include "chain.bpf.h"

/* Input and output of `ask`: the interface where the packet arrives, and the decision. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_decision);
	__uint(max_entries, 1);
} answer SEC(".maps");

static __always_inline __u32 handle(struct xdp_md *xdp, __u32 ingress, int dry_run, struct dwell_decision *decision)
{
	struct dwell_clock clock = {};
	struct dwell_table table = {&program.table, 0, &clock};
	struct dwell_balance_counters *counted;
	struct dwell_packet packet = {};
	__u32 zero = 0, verdict;

	counted = bpf_map_lookup_elem(&counters, &zero);
	if (!counted)
		return DWELL_VERDICT_PASS;
	table.counters = &counted->table;
	packet.wire_bytes = dwell_context_wire_bytes(xdp);
	packet.segments = 1;
	verdict = dwell_balance(xdp, &table, &packet, ingress, dry_run, decision);
	if (dry_run)
		return verdict;
	counted->table.value[DWELL_SEEN_PACKETS]++;
	counted->table.value[DWELL_SEEN_BYTES] += packet.wire_bytes;
	if (decision->reason < DWELL_REASONS)
		counted->reason[decision->reason]++;
	return verdict;
}

static __always_inline int action_of(__u32 verdict, __u32 interface)
{
	switch (verdict) {
	case DWELL_VERDICT_SEND:
		/* What a veth sends back stays in the queue of a peer without a program of its own. */
		return balance.redirects_back ? bpf_redirect(interface, 0) : XDP_TX;
	case DWELL_VERDICT_REDIRECT:
		return bpf_redirect(interface, 0);
	case DWELL_VERDICT_DROP:
		return XDP_DROP;
	}
	return XDP_PASS;
}

SEC("xdp")
int balance_xdp(struct xdp_md *xdp)
{
	struct dwell_decision decision = {};
	__u32 verdict = handle(xdp, xdp->ingress_ifindex, 0, &decision);

	return action_of(verdict, decision.interface);
}

/* A program of its own, as the ability to make tail calls costs time in each run. */
SEC("xdp")
int balance_xdp_chained(struct xdp_md *xdp)
{
	struct dwell_decision decision = {};
	__u32 verdict = handle(xdp, xdp->ingress_ifindex, 0, &decision);

	if (verdict == DWELL_VERDICT_PASS && program.chain_next)
		bpf_tail_call(xdp, &chain, program.chain_next - 1);
	return action_of(verdict, decision.interface);
}

/* Decides about a packet without changing anything. Only user space runs it. */
SEC("xdp")
int ask(struct xdp_md *xdp)
{
	struct dwell_decision *answered, decision = {};
	__u32 zero = 0;

	answered = bpf_map_lookup_elem(&answer, &zero);
	if (!answered)
		return XDP_ABORTED;
	handle(xdp, answered->interface, 1, &decision);
	*answered = decision;
	return XDP_PASS;
}

#define sweep_bucket dwell_balance_sweep_bucket
#include "sweep.bpf.h"
