/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One parsed packet through look-up, matchers and bookkeeping. */
#ifndef DWELL_RTT_H
#define DWELL_RTT_H

#include "dns.h"
#include "filter.h"
#include "icmp.h"
#include "quic.h"
#include "tcp_seq.h"
#include "tcp_timestamp.h"

/* Gives the packet's flow a place. None if the filter or the table refuses. */
static __always_inline struct dwell_found dwell_flow_admit(struct dwell_step *step, __u32 first,
							   __u32 second)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_found none = {}, found;
	struct dwell_memories *memories;
	struct dwell_bucket *bucket;
	struct dwell_flow *flow;
	__u32 vacancy, index, way, rank, reason;

	if (step->config->filter_rules && !dwell_filter_admits(step->config, &packet->key)) {
		dwell_count(step, DWELL_SKIP_FILTERED);
		return none;
	}
	vacancy = dwell_vacancy_for(step, first, second);
	index = dwell_vacancy_second(vacancy) ? second : first;
	way = dwell_vacancy_way(vacancy);
	rank = dwell_vacancy_rank(vacancy);
	bucket = dwell_bucket_at(step->embedder, index);
	found.place = index * DWELL_WAYS + way;
	found.flow = flow = dwell_flow_at(step->embedder, found.place);
	memories = dwell_memories_at(step->embedder, found.place);
	if (rank == DWELL_RANK_NONE || !bucket || !flow || !memories) {
		dwell_count(step, DWELL_FLOWS_UNTRACKED);
		return none;
	}
	if (!dwell_bucket_lock(bucket)) {
		dwell_count(step, DWELL_FLOWS_CONTENDED);
		return none;
	}
	/* another CPU may have taken the place, or admitted this very flow */
	if (dwell_vacancy_for(step, first, second) != vacancy) {
		dwell_bucket_unlock(bucket);
		dwell_count(step, DWELL_FLOWS_CONTENDED);
		return none;
	}
	if (rank != DWELL_RANK_FREE) {
		reason = rank == DWELL_RANK_IDLE ? DWELL_CLOSE_IDLE : DWELL_CLOSE_EVICTED;
		if (rank == DWELL_RANK_IDLE)
			dwell_count(step, DWELL_FLOWS_EXPIRED);
		else if (rank == DWELL_RANK_UNANSWERED)
			dwell_count(step, DWELL_FLOWS_EVICTED);
		else if (flow->spent)
			reason = DWELL_CLOSE_ANSWERED;
		if (!flow->close_reason)
			dwell_emit_flow(step, flow, memories, DWELL_FLOW_CLOSE, reason, 0);
		dwell_count(step, DWELL_PLACES_FREED);
	}
	dwell_flow_write(bucket, way, flow, memories, packet, step->clock);
	dwell_bucket_unlock(bucket);
	dwell_count(step, DWELL_FLOWS_OPENED);
	step->opened = 1;
	return found;
}

/* Finds the packet's flow; step->flow stays null if it has none and gets none. */
static __always_inline void dwell_flow_of(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	__u32 mask = step->config->bucket_mask;
	__u32 first = dwell_bucket_first(packet->hash, mask);
	__u32 second = dwell_bucket_second(packet->hash, mask);
	struct dwell_found found = dwell_flow_find(step->embedder, first, second, packet);
	__u32 now_coarse;

	if (found.flow) {
		now_coarse = dwell_now_coarse(step->clock);
		if (found.flow->seen != now_coarse)
			found.flow->seen = now_coarse;
	} else if (packet->may_open) {
		found = dwell_flow_admit(step, first, second);
	} else {
		/* a short header could be any UDP */
		dwell_count(step, packet->kind == DWELL_KIND_QUIC && !(packet->quic_first & 0x80)
					  ? DWELL_SKIP_PROTOCOL
					  : DWELL_SKIP_STRAY);
	}
	step->flow = found.flow;
	step->place = found.place;
}

/* Frees the flows of a bucket: those that were idle for the timeout, or all of
 * them at the end of a run (DWELL_CLOSE_END).
 */
static __always_inline void dwell_bucket_sweep(struct dwell_step *step, __u32 index, __u32 reason)
{
	__u32 coarse = dwell_now_coarse(step->clock);
	__u32 timeout = step->config->idle_timeout_ns >> 20;
	struct dwell_bucket *bucket = dwell_bucket_at(step->embedder, index);

	if (!bucket || !bucket->tags || !dwell_bucket_lock(bucket))
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		__u32 place = index * DWELL_WAYS + way, idle;
		struct dwell_flow *flow = dwell_flow_at(step->embedder, place);
		struct dwell_memories *memories = dwell_memories_at(step->embedder, place);

		if (!flow || !memories || !(bucket->tags >> 16 * way & 0xffff))
			continue;
		idle = coarse - flow->seen;
		if (reason != DWELL_CLOSE_END && (dwell_is_future(idle) || idle <= timeout))
			continue;
		if (!flow->close_reason) {
			if (reason == DWELL_CLOSE_IDLE)
				dwell_count(step, DWELL_FLOWS_EXPIRED);
			dwell_emit_flow(step, flow, memories, DWELL_FLOW_CLOSE, reason, 0);
		}
		dwell_count(step, DWELL_PLACES_FREED);
		*(volatile __u64 *)&bucket->tags = bucket->tags & ~(0xffffULL << 16 * way);
	}
	dwell_bucket_unlock(bucket);
}

/* A flow that begins again under the same addresses and ports: what is known
 * of its sequence numbers and TSvals no longer holds.
 */
static __always_inline void dwell_tcp_begin(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;
	struct dwell_memories *memories = dwell_memories_of(step);
	struct dwell_tcp_seq_state *seq;

	if (!memories)
		return;
	seq = &memories->of[direction].seq;
	if (flow->close_reason && !(packet->tcp_flags & DWELL_TCP_ACK)) {
		flow->close_reason = DWELL_CLOSE_NONE;
		flow->samples = 0;
		flow->opener = direction;
		memories->first_ns = dwell_now(step->clock);
		for (int side = 0; side < 2; side++) {
			flow->own[side] &= ~DWELL_OWN_FIN;
			flow->side[side].packets = 0;
			flow->side[side].bytes = 0;
			flow->side[side].min_rtt_ns = 0;
			memories->of[side].srtt_q7 = 0;
		}
		flow->side[direction].packets = packet->segments;
		flow->side[direction].bytes = packet->wire_bytes;
		dwell_emit_flow(step, flow, memories, DWELL_FLOW_OPEN, DWELL_CLOSE_NONE, 0);
		seq->sent = 0;
	}
	/* a SYN that is sent again has the number of the first */
	if (!(seq->sent & DWELL_SEQ_NEXT) || seq->next_seq != packet->seq + 1) {
		__builtin_memset(seq, 0, sizeof(*seq));
		flow->own[direction] &= DWELL_OWN_FIN;
	}
}

static __always_inline void dwell_tcp(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 flags = packet->tcp_flags, syn = flags & DWELL_TCP_SYN;
	int by_ts = packet->has_ts && dwell_wants(step->config, DWELL_TCP_TIMESTAMP);

	if (dwell_unlikely(syn))
		dwell_tcp_begin(step);
	if (by_ts)
		dwell_tcp_timestamp(step);
	/* a SYN's options are an offer: only the answer tells which matcher the
	 * connection gets
	 */
	if (dwell_wants(step->config, DWELL_TCP_SEQ) && (!by_ts || syn) && !step->match.found)
		dwell_tcp_seq(step);
	if (dwell_unlikely(flags & (DWELL_TCP_FIN | DWELL_TCP_RST))) {
		__u8 reason = DWELL_CLOSE_NONE;

		if (flags & DWELL_TCP_FIN) {
			flow->own[packet->direction & 1] |= DWELL_OWN_FIN;
			if (flow->own[0] & flow->own[1] & DWELL_OWN_FIN)
				reason = DWELL_CLOSE_FIN;
		}
		if (flags & DWELL_TCP_RST)
			reason = DWELL_CLOSE_RST;
		if (reason && !flow->close_reason) {
			flow->close_reason = reason;
			dwell_emit_flow(step, flow, dwell_memories_of(step), DWELL_FLOW_CLOSE,
					reason, 0);
		}
	}
}

/* Counts a sample, and tells of a flow's first. */
static __always_inline void dwell_rtt_note(struct dwell_step *step, const struct dwell_match *match)
{
	struct dwell_flow *flow = step->flow;

	dwell_count(step, DWELL_SAMPLES);
	if (!flow->samples++)
		dwell_emit_flow(step, flow, dwell_memories_of(step), DWELL_FLOW_FIRST_RTT,
				match->method, match->rtt_ns);
}

/* The least and the smoothed round trip to this side. */
static __always_inline void dwell_rtt_learn(struct dwell_step *step)
{
	__u32 direction = step->packet->direction & 1, rtt_q7;
	struct dwell_side *side = &step->flow->side[direction];
	struct dwell_match *match = &step->match;
	struct dwell_memories *memories;
	struct dwell_memory *memory;

	match->min_rtt_ns = match->rtt_ns;
	if (!side->min_rtt_ns || match->rtt_ns < side->min_rtt_ns)
		side->min_rtt_ns = match->rtt_ns ? match->rtt_ns : 1; /* 0: unknown */
	else
		match->min_rtt_ns = side->min_rtt_ns;
	if (!step->config->rtt_rate_q8)
		return;
	memories = dwell_memories_of(step);
	if (!memories)
		return;
	memory = &memories->of[direction];
	rtt_q7 = match->rtt_ns >> 39 ? 0xffffffff : match->rtt_ns >> 7;
	if (!rtt_q7)
		rtt_q7 = 1; /* 0: unknown */
	if (memory->srtt_q7)
		rtt_q7 = memory->srtt_q7 + (((__s64)rtt_q7 - memory->srtt_q7) >> 3);
	memory->srtt_q7 = rtt_q7;
}

/* Runs the packet through its matcher; step->match and step->loop tell what it
 * completed. step->flow is the packet's flow.
 */
static __always_inline void dwell_rtt_step(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_side *side = &step->flow->side[packet->direction & 1];

	side->packets += packet->segments;
	side->bytes += packet->wire_bytes;
	if (dwell_unlikely(step->opened))
		dwell_emit_flow(step, step->flow, dwell_memories_of(step), DWELL_FLOW_OPEN,
				DWELL_CLOSE_NONE, 0);

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
	if (step->match.found) {
		dwell_rtt_learn(step);
		dwell_rtt_note(step, &step->match);
	}
	if (step->loop.found)
		dwell_rtt_note(step, &step->loop);
}

static __always_inline void dwell_fill_sample(struct dwell_rtt_sample *sample,
					      const struct dwell_step *step,
					      const struct dwell_match *match, __u64 now_ns)
{
	const struct dwell_packet *packet = step->packet;
	const struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;

	sample->event = DWELL_EVENT_SAMPLE;
	sample->method = match->method;
	sample->proto = packet->proto;
	sample->flags = match->flags;
	sample->interface = packet->key.interface;
	sample->time_ns = now_ns;
	sample->rtt_ns = match->rtt_ns;
	sample->min_rtt_ns = match->min_rtt_ns;
	sample->src = direction ? packet->key.a : packet->key.b;
	sample->dst = direction ? packet->key.b : packet->key.a;
	sample->src_port = direction ? packet->key.a_port : packet->key.b_port;
	sample->dst_port = direction ? packet->key.b_port : packet->key.a_port;
	sample->reserved = 0;
	sample->packets = flow->side[0].packets + flow->side[1].packets;
	sample->bytes = flow->side[0].bytes + flow->side[1].bytes;
}

static __always_inline void dwell_fill_flow_event(struct dwell_flow_event *event,
						  const struct dwell_flow *flow, __u64 first_ns,
						  __u32 change, __u32 detail, __u64 rtt_ns,
						  __u64 now_ns)
{
	int opener = flow->opener & 1;

	event->event = DWELL_EVENT_FLOW;
	event->change = change;
	event->proto = flow->proto;
	event->detail = detail;
	event->interface = flow->key.interface;
	event->time_ns = now_ns;
	event->rtt_ns = rtt_ns;
	event->first_ns = first_ns;
	event->src = opener ? flow->key.b : flow->key.a;
	event->dst = opener ? flow->key.a : flow->key.b;
	event->src_port = opener ? flow->key.b_port : flow->key.a_port;
	event->dst_port = opener ? flow->key.a_port : flow->key.b_port;
	event->samples = flow->samples;
	event->packets = flow->side[0].packets + flow->side[1].packets;
	event->bytes = flow->side[0].bytes + flow->side[1].bytes;
}

#endif
