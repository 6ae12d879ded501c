/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell rtt`: takes one parsed packet through look-up, matcher and bookkeeping. */
#ifndef DWELL_RTT_H
#define DWELL_RTT_H

#include "base/aggregate.h"
#include "rtt/dns.h"
#include "rtt/icmp.h"
#include "rtt/path.h"
#include "rtt/quic.h"
#include "rtt/tcp_auto.h"
#include "rtt/tcp_seq.h"
#include "rtt/tcp_timestamp.h"
#include "table/pool.h"

static __always_inline struct dwell_head *dwell_head_at(void *embedder, __u32 slot_index)
{
	struct dwell_flow *flow = dwell_flow_at(embedder, slot_index);

	return flow ? &flow->head : 0;
}

static __always_inline void dwell_slot_close(struct dwell_table *table, __u32 slot_index, __u32 reason)
{
	struct dwell_flow *flow = dwell_flow_at(table->embedder, slot_index);
	struct dwell_cold *cold = dwell_cold_at(table->embedder, slot_index);

	if (flow && cold)
		dwell_emit_flow(table, flow, cold, DWELL_FLOW_CLOSE, reason, 0);
}

static __always_inline int dwell_slot_init(struct dwell_table *table, __u32 slot_index,
					   const struct dwell_packet *packet)
{
	struct dwell_flow *flow = dwell_flow_at(table->embedder, slot_index);
	struct dwell_cold *cold = dwell_cold_at(table->embedder, slot_index);
	struct dwell_matcher *matcher = dwell_matcher_at(table->embedder, slot_index);

	if (!flow || !cold || !matcher)
		return 0;
	__builtin_memset(flow, 0, sizeof(*flow));
	__builtin_memset(cold, 0, sizeof(*cold));
	__builtin_memset(matcher, 0, sizeof(*matcher));
	cold->first_ns = dwell_now(table->clock);
	cold->tunnel = packet->tunnel;
	return 1;
}

static __always_inline __u32 *dwell_slot_next(void *embedder, __u32 slot_index)
{
	struct dwell_cold *cold = dwell_cold_at(embedder, slot_index);

	return cold ? &cold->next : 0;
}

/* Steps take no lock. */
static __always_inline int dwell_slot_acquire(struct dwell_table *table, __u32 slot_index)
{
	(void)table;
	(void)slot_index;
	return 1;
}

static __always_inline void dwell_slot_release(struct dwell_table *table, __u32 slot_index)
{
	(void)table;
	(void)slot_index;
}

/* Finds the packet's flow. step->flow stays null if it has none and cannot open one. */
static __always_inline void dwell_rtt_flow(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_lookup found = dwell_flow_of(step->table, packet);

	if (!found.head && !found.filtered && !packet->may_open)
		/* a short header could be any UDP packet */
		dwell_count(step, packet->kind == DWELL_KIND_QUIC && !(packet->rtt.quic_first & 0x80)
					  ? DWELL_SKIP_PROTOCOL
					  : DWELL_SKIP_STRAY);
	step->flow = (struct dwell_flow *)found.head;
	step->slot_index = found.slot_index;
	step->opened = found.opened;
}

/* Begins the flow again, under the same addresses and ports, with figures of its own. `opener` is the direction of its SYN. */
static __always_inline void dwell_tcp_restart(struct dwell_step *step, struct dwell_cold *cold, __u32 opener)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;

	if (!flow->head.close_reason)
		dwell_emit_flow(step->table, flow, cold, DWELL_FLOW_CLOSE, DWELL_CLOSE_REUSED, 0);
	flow->head.close_reason = DWELL_CLOSE_NONE;
	flow->head.flags = opener ? DWELL_HEAD_OPENER : 0;
	flow->client = 1 + opener;
	cold->first_ns = dwell_now(step->table->clock);
	for (int side = 0; side < 2; side++) {
		flow->own[side] &= ~DWELL_OWN_FIN;
		flow->side[side].packets = 0;
		flow->side[side].bytes = 0;
		flow->data[side] = 0;
		dwell_path_reset(&cold->side[side]);
	}
	flow->side[direction].packets = packet->segments;
	flow->side[direction].bytes = packet->wire_bytes;
	dwell_emit_flow(step->table, flow, cold, DWELL_FLOW_OPEN, DWELL_CLOSE_NONE, 0);
}

/* Returns true for a SYN-ACK of another connection than the one that the flow is so far, of which no end has passed: it answers a
 * SYN that has passed. A SYN alone may be forged, or a mistake that is answered otherwise (RFC 5961 section 4).
 */
static __always_inline int dwell_tcp_reused(const struct dwell_flow *flow, const struct dwell_packet *packet)
{
	__u32 direction = packet->direction & 1;

	return flow->side[direction].packets > packet->segments && flow->own[0] & flow->own[1] & DWELL_OWN_NEXT &&
	       packet->ack == flow->next_seq[!direction] && packet->seq + 1 != flow->next_seq[direction];
}

/* Handles a SYN. If the flow starts again under the same addresses and ports, its sequence numbers and TSvals no longer
 * hold.
 */
static __always_inline void dwell_tcp_begin(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, answers = packet->tcp_flags & DWELL_TCP_ACK;
	struct dwell_cold *cold = dwell_cold_of(step);
	struct dwell_matcher *matcher = dwell_matcher_of(step);
	struct dwell_tcp_seq_state *seq;

	if (!cold || !matcher)
		return;
	seq = &matcher->side[direction].seq;
	if (flow->head.close_reason ? !answers : answers && dwell_tcp_reused(flow, packet)) {
		dwell_tcp_restart(step, cold, answers ? !direction : direction);
		seq->sent = 0;
	}
	/* a retransmitted SYN has the number of the first */
	if (!(flow->own[direction] & DWELL_OWN_NEXT) || flow->next_seq[direction] != packet->seq + 1) {
		__builtin_memset(seq, 0, sizeof(*seq));
		flow->own[direction] &= DWELL_OWN_FIN;
		cold->side[direction].hole_start = 0;
		cold->side[direction].hole_end = 0;
		flow->score[direction] = 0;
	}
}

/* Takes the packet through tcp-timestamp or tcp-seq: as an answer to the other direction, and as data of its own. */
static __always_inline void dwell_tcp_match(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, syn = packet->tcp_flags & DWELL_TCP_SYN;
	int has_ts = packet->rtt.has_ts && dwell_method_enabled(step->config, DWELL_TCP_TIMESTAMP);
	int has_seq = dwell_method_enabled(step->config, DWELL_TCP_SEQ);

	if (!step->config->tcp_auto) {
		if (has_ts) {
			dwell_tcp_timestamp_ack(step);
			dwell_tcp_timestamp_data(step);
		}
		/* a SYN's options are an offer: only the answer shows which matcher the connection gets */
		if (has_seq && (!has_ts || syn) && !step->match.found) {
			dwell_tcp_seq_ack(step);
			dwell_tcp_seq_data(step);
		}
		return;
	}
	if (!dwell_tcp_by_ts(flow, !direction)) {
		dwell_tcp_seq_ack(step);
		if (has_ts && flow->ts[direction].tsecr != packet->rtt.tsecr)
			flow->ts[direction].tsecr = packet->rtt.tsecr;
	} else if (has_ts) {
		dwell_tcp_timestamp_ack(step);
	}
	if (has_ts && !syn)
		dwell_tcp_auto(step);
	if (!dwell_tcp_by_ts(flow, direction))
		dwell_tcp_seq_data(step);
	else if (has_ts)
		dwell_tcp_timestamp_data(step);
}

static __always_inline void dwell_tcp(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 flags = packet->tcp_flags, syn = flags & DWELL_TCP_SYN;

	if (dwell_unlikely(syn))
		dwell_tcp_begin(step);
	dwell_path_data(step);
	dwell_tcp_match(step);
	if (dwell_unlikely(flags & (DWELL_TCP_FIN | DWELL_TCP_RST))) {
		__u8 reason = DWELL_CLOSE_NONE;

		if (flags & DWELL_TCP_FIN) {
			flow->own[packet->direction & 1] |= DWELL_OWN_FIN;
			if (flow->own[0] & flow->own[1] & DWELL_OWN_FIN)
				reason = DWELL_CLOSE_FIN;
		}
		if (flags & DWELL_TCP_RST)
			reason = DWELL_CLOSE_RST;
		if (reason && !flow->head.close_reason) {
			flow->head.close_reason = reason;
			dwell_emit_flow(step->table, flow, dwell_cold_of(step), DWELL_FLOW_CLOSE, reason, 0);
		}
	}
}

/* Counts a sample, and reports a flow's first. */
static __always_inline void dwell_rtt_count_sample(struct dwell_step *step, struct dwell_cold *cold,
						   const struct dwell_match *match)
{
	dwell_count(step, DWELL_SAMPLES);
	__u32 first = !(cold->side[0].samples | cold->side[1].samples);

	cold->side[step->packet->direction & 1].samples++;
	if (first)
		dwell_emit_flow(step->table, step->flow, cold, DWELL_FLOW_FIRST_RTT, match->method, match->rtt_ns);
}

/* Updates the least, the base and the smoothed round trip to this side. */
static __always_inline void dwell_rtt_update(struct dwell_step *step, struct dwell_cold *cold)
{
	struct dwell_cold_side *side = &cold->side[step->packet->direction & 1];
	struct dwell_match *match = &step->match;
	__u32 rtt_q7;

	match->min_rtt_ns = match->rtt_ns;
	if (!side->min_rtt_ns || match->rtt_ns < side->min_rtt_ns)
		side->min_rtt_ns = match->rtt_ns ? match->rtt_ns : 1; /* 0: unknown */
	else
		match->min_rtt_ns = side->min_rtt_ns;
	match->base_ns = dwell_path_base(side, match->rtt_ns, dwell_now(step->table->clock));
	if (!step->config->rtt_rate_q8)
		return;
	rtt_q7 = match->rtt_ns >> 39 ? 0xffffffff : match->rtt_ns >> 7;
	if (!rtt_q7)
		rtt_q7 = 1; /* 0: unknown */
	if (side->srtt_q7)
		rtt_q7 = side->srtt_q7 + (((__s64)rtt_q7 - side->srtt_q7) >> 3);
	side->srtt_q7 = rtt_q7;
}

/* Completes what the matchers found. */
static __always_inline void dwell_rtt_found(struct dwell_step *step)
{
	struct dwell_cold *cold = dwell_cold_of(step);

	if (!cold)
		return;
	dwell_path_report(step, cold);
	if (step->match.found) {
		dwell_rtt_update(step, cold);
		dwell_rtt_count_sample(step, cold, &step->match);
	}
	if (step->loop.found) {
		step->loop.base_ns = step->loop.min_rtt_ns;
		dwell_rtt_count_sample(step, cold, &step->loop);
	}
}

/* Notes who the client is, where the packet shows it: by the SYN or SYN-ACK of a connection, or by a request that opened
 * the flow. An Initial of QUIC is noted where it is read.
 */
static __always_inline void dwell_rtt_client(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1, answers = packet->tcp_flags & DWELL_TCP_ACK;

	if (packet->kind == DWELL_KIND_TCP) {
		if (!(packet->tcp_flags & DWELL_TCP_SYN))
			return;
		/* who was seen to open the connection stays the client until it starts again */
		if (!flow->client || (flow->head.close_reason && !answers))
			flow->client = 1 + (answers ? !direction : direction);
	} else if (step->opened && (packet->kind == DWELL_KIND_DNS || packet->kind == DWELL_KIND_ICMP)) {
		flow->client = 1 + direction;
	}
}

/* Notes that a flow is no part of a flood: who opened it goes on after an answer. An answer alone, be it a SYN-ACK, an
 * echo reply or a stateless reset, is what a flood from forged addresses gets too.
 */
static __always_inline void dwell_rtt_settle(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;

	if (packet->tcp_flags & DWELL_TCP_SYN || !flow->side[!direction].packets)
		return;
	if (flow->client ? flow->client == 1 + direction : flow->side[direction].packets > 1)
		flow->head.flags |= DWELL_HEAD_SETTLED;
}

/* Runs the packet of step->flow through its matcher, which leaves what it completed in step->match and step->loop. */
static __always_inline void dwell_rtt_step(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	struct dwell_side *side = &flow->side[packet->direction & 1];

	side->packets += packet->segments;
	side->bytes += packet->wire_bytes;
	if (dwell_unlikely(packet->rtt.ce))
		dwell_path_ce(step);
	if (dwell_unlikely(!(flow->head.flags & DWELL_HEAD_SETTLED)))
		dwell_rtt_settle(step);
	dwell_rtt_client(step);
	if (dwell_unlikely(step->opened))
		dwell_emit_flow(step->table, flow, dwell_cold_of(step), DWELL_FLOW_OPEN, DWELL_CLOSE_NONE, 0);

	switch (packet->kind) {
	case DWELL_KIND_TCP:
		dwell_tcp(step);
		break;
	case DWELL_KIND_ICMP:
		dwell_icmp(step);
		break;
	case DWELL_KIND_DNS:
		dwell_dns(step);
		break;
	case DWELL_KIND_QUIC:
		dwell_quic(step);
		break;
	}
	if (step->match.found || step->loop.found)
		dwell_rtt_found(step);
}

static __always_inline void dwell_fill_sample(struct dwell_rtt_sample *sample, const struct dwell_step *step,
					      const struct dwell_match *match, __u64 now_ns)
{
	const struct dwell_packet *packet = step->packet;
	const struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;

	sample->event = DWELL_EVENT_SAMPLE;
	sample->method = match->method;
	sample->proto = packet->proto;
	sample->flags = match->flags;
	if (flow->client) /* `src` is the end that the answer went to */
		sample->flags |= flow->client == 1 + direction ? DWELL_SAMPLE_OF_SERVER : DWELL_SAMPLE_OF_CLIENT;
	sample->interface = dwell_interface_in(packet->key.interface, packet->tunnel);
	sample->tunnel = packet->tunnel;
	sample->reserved = 0;
	sample->time_ns = now_ns;
	sample->rtt_ns = match->rtt_ns;
	sample->min_rtt_ns = match->min_rtt_ns;
	sample->base_ns = match->base_ns;
	sample->src = direction ? packet->key.a : packet->key.b;
	sample->dst = direction ? packet->key.b : packet->key.a;
	sample->src_port = direction ? packet->key.a_port : packet->key.b_port;
	sample->dst_port = direction ? packet->key.b_port : packet->key.a_port;
	if (match == &step->match || !step->match.found)
		sample->path = step->path;
	else
		__builtin_memset(&sample->path, 0, sizeof(sample->path));
	sample->packets = flow->side[0].packets + flow->side[1].packets;
	sample->bytes = flow->side[0].bytes + flow->side[1].bytes;
}

/* Counts a sample in a group. */
static __always_inline void dwell_group_add(struct dwell_group *group, const struct dwell_step *step,
					    const struct dwell_match *match)
{
	__u64 queue_ns = match->rtt_ns - match->base_ns;

	dwell_histogram_add(&group->rtt, match->rtt_ns);
	group->queue_sum_ns += queue_ns;
	if (queue_ns > group->queue_max_ns)
		group->queue_max_ns = queue_ns;
	if (match != &step->match && step->match.found)
		return;
	group->sent += step->path.sent;
	group->retransmitted += step->path.retransmitted;
	group->received += step->path.received;
	group->late += step->path.late;
	group->ce += step->path.ce;
}

static __always_inline void dwell_fill_flow_event(struct dwell_flow_event *event, const struct dwell_flow *flow,
						  const struct dwell_cold *cold, __u32 change, __u32 detail,
						  __u64 rtt_ns, __u64 now_ns)
{
	int opener = flow->head.flags & DWELL_HEAD_OPENER;

	event->event = DWELL_EVENT_FLOW;
	event->change = change;
	event->proto = flow->head.proto;
	event->detail = detail;
	event->interface = dwell_interface_in(flow->head.key.interface, cold->tunnel);
	event->tunnel = cold->tunnel;
	event->time_ns = now_ns;
	event->rtt_ns = rtt_ns;
	event->first_ns = cold->first_ns;
	event->client =
		flow->client ? (flow->client - 1 == opener ? DWELL_SAMPLE_OF_CLIENT : DWELL_SAMPLE_OF_SERVER) : 0;
	event->src = opener ? flow->head.key.b : flow->head.key.a;
	event->dst = opener ? flow->head.key.a : flow->head.key.b;
	event->src_port = opener ? flow->head.key.b_port : flow->head.key.a_port;
	event->dst_port = opener ? flow->head.key.a_port : flow->head.key.b_port;
	event->samples = cold->side[0].samples + cold->side[1].samples;
	event->packets = flow->side[0].packets + flow->side[1].packets;
	event->bytes = flow->side[0].bytes + flow->side[1].bytes;
	event->data = (__u64)flow->data[0] + flow->data[1];
	event->retransmitted = cold->side[0].retransmitted + cold->side[1].retransmitted;
	event->late = cold->side[0].late + cold->side[1].late;
	event->ce = cold->side[0].ce + cold->side[1].ce;
}

#endif
