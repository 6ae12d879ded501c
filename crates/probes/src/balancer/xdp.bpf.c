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

/* Counts the request that waits at a slot, unless the client has ended the connection. No lock is held: a packet that
 * passes meanwhile may count as waiting, or not.
 */
static __always_inline void count_pending(struct dwell_table *table, const struct dwell_slot *slot, __u32 real)
{
	struct dwell_pending *found;
	__u64 age_ns;
	__u32 log;

	if (!slot->measured || slot->head.flags & (DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED))
		return;
	age_ns = dwell_turn_pending_ns(&slot->state.adaptive, &dwell_response_program_of(table)->response,
				       dwell_now(table->clock));
	found = age_ns ? bpf_map_lookup_elem(&pending, &real) : 0;
	if (!found)
		return;
	log = dwell_log2(age_ns);
	log = log > DWELL_PENDING_LOG_MIN ? log - DWELL_PENDING_LOG_MIN : 0;
	log = log < DWELL_PENDING_LOGS ? log : DWELL_PENDING_LOGS - 1;
	found->count[log]++;
	found->networks[log] |= 1ULL << (dwell_network(slot->client ? &slot->head.key.b : &slot->head.key.a) >> 58);
}

static __always_inline void sweep_bucket(struct dwell_table *table, __u32 index, __u32 reason)
{
	struct dwell_bucket *bucket;

	dwell_slot_sweep(table, index, reason);
	bucket = dwell_bucket_at(table->embedder, index);
	if (!bucket || !bucket->tags)
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		struct dwell_slot *slot;
		__u64 *active;
		__u32 real;

		if (!(bucket->tags >> 16 * way & 0xffff))
			continue;
		slot = dwell_slot_at(table->embedder, dwell_slot_of(bucket, index, way));
		if (!slot)
			continue;
		real = slot->lb.real;
		active = bpf_map_lookup_elem(&actives, &real);
		/* all connections in the upper half, active ones in the lower */
		if (active)
			*active += 1ULL << 32 | dwell_is_active(table, slot);
		count_pending(table, slot, real);
	}
}

#include "sweep.bpf.h"
