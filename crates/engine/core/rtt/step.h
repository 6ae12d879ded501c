/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The input of a matcher, and what it may do. */
#ifndef DWELL_RTT_STEP_H
#define DWELL_RTT_STEP_H

#include "rtt/embed.h"
#include "rtt/flow.h"
#include "rtt/parse.h"
#include "rtt/stamp.h"

struct dwell_match {
	__u64 rtt_ns;
	__u8 found;
	__u8 method;
	__u8 flags;       /* DWELL_SAMPLE_* */
	__u64 min_rtt_ns; /* least of its kind, including this one */
	__u64 base_ns;    /* the same, within a window of time */
};

/* One packet of one flow. A packet completes at most one round trip and one
 * full loop of the spin bit.
 */
struct dwell_step {
	struct dwell_table *table;
	const struct dwell_rtt_config *config;
	const struct dwell_packet *packet;
	struct dwell_flow *flow;
	__u32 slot_index;              /* index of the flow's slot */
	__u32 opened;                  /* the packet has opened the flow */
	__u32 granted;                 /* the rate limit allows a stamp: two matchers may stamp a SYN */
	__u32 next_seq;                /* TCP: one past the highest byte before this packet */
	struct dwell_path_counts path; /* of the sample in `match` or, if there is none, in `loop` */
	struct dwell_match match;
	struct dwell_match loop;
};

static __always_inline void dwell_count(struct dwell_step *step, __u32 counter)
{
	dwell_table_count(step->table, counter);
}

/* Returns the flow's cold state, which is not null for a flow with a slot; the BPF verifier cannot know that. */
static __always_inline struct dwell_cold *dwell_cold_of(struct dwell_step *step)
{
	return dwell_cold_at(step->table->embedder, step->slot_index);
}

/* The same of its matcher's state. */
static __always_inline struct dwell_matcher *dwell_matcher_of(struct dwell_step *step)
{
	return dwell_matcher_at(step->table->embedder, step->slot_index);
}

/* Time after which TCP retransmits for want of an answer (RFC 6298 section 2). */
#define DWELL_TCP_RTO_NS 1000000000ULL

/* Returns true if the packet is the first of its direction and answers a packet so old that it must have been answered
 * before, unseen: this direction came into view late.
 */
static __always_inline int dwell_is_late_view(struct dwell_step *step, __u64 sent_ns)
{
	const struct dwell_packet *packet = step->packet;
	__u64 age;

	if (step->flow->side[packet->direction & 1].packets != packet->segments || packet->tcp_flags & DWELL_TCP_SYN)
		return 0;
	age = dwell_stamp_age(sent_ns, dwell_now(step->table->clock));
	return age > DWELL_TCP_RTO_NS && !dwell_is_backwards(age);
}

/* The most that the coarse clock may lag, in its units: 10 ms, the longest tick. */
#define DWELL_COARSE_ERROR 11

/* Returns true if the rate limit allows another stamp of this direction now. */
static __always_inline int dwell_may_stamp(struct dwell_step *step)
{
	const struct dwell_rtt_config *config = step->config;
	__u32 direction = step->packet->direction & 1, now_coarse, idle;
	__u64 interval = config->rate_limit_ns, now;
	struct dwell_cold *cold;
	struct dwell_cold_side *cold_side;

	if (step->granted || (!interval && !config->rtt_rate_q8))
		return 1;
	cold = dwell_cold_of(step);
	if (!cold)
		return 0;
	cold_side = &cold->side[direction];
	if (config->rtt_rate_q8 && cold->side[!direction].srtt_q7)
		interval = (__u64)cold->side[!direction].srtt_q7 * config->rtt_rate_q8 >> 1;
	/* most are refused, which the cheap clock can decide */
	now_coarse = dwell_now_coarse(step->table->clock);
	idle = now_coarse - cold_side->stamp_coarse;
	if (cold_side->stamp_ns && !dwell_is_future(idle) && idle + DWELL_COARSE_ERROR + 1 < interval >> 20)
		return 0;
	now = dwell_now(step->table->clock);
	if (cold_side->stamp_ns && now - cold_side->stamp_ns < interval)
		return 0;
	cold_side->stamp_ns = now;
	cold_side->stamp_coarse = now_coarse;
	step->granted = 1;
	return 1;
}

/* The stamp that a packet answers. */
struct dwell_pending_stamp {
	struct dwell_stamp *stamp; /* null: there is none */
	__u64 time_ns;
	__u32 ack;
};

static __always_inline struct dwell_pending_stamp dwell_stamp_in(struct dwell_stamp *stamp, __u64 hash)
{
	struct dwell_pending_stamp waiting = {};

	waiting.time_ns = dwell_stamp_read(stamp, hash, &waiting.ack);
	if (waiting.time_ns != DWELL_STAMP_NONE)
		waiting.stamp = stamp;
	return waiting;
}

/* Returns one of the entries of a set, the stamp's own first. */
static __always_inline struct dwell_stamp *dwell_stamp_way(struct dwell_stamp_set *set, __u32 index, __u32 way)
{
	return &set->stamp[(index ^ way) & (DWELL_STAMP_WAYS - 1)];
}

static __always_inline struct dwell_pending_stamp dwell_stamp_find_at(struct dwell_step *step, __u32 method,
								      __u32 direction, __u32 id, __u32 position)
{
	__u64 hash = dwell_stamp_hash(step->packet, method, direction, id);
	__u32 index = dwell_stamp_index(step->packet, method, direction, position);
	struct dwell_stamp_set *set = dwell_stamps_at(step, index);
	struct dwell_pending_stamp waiting = {};

	for (__u32 way = 0; set && way < DWELL_STAMP_WAYS && !waiting.stamp; way++)
		waiting = dwell_stamp_in(dwell_stamp_way(set, index, way), hash);
	return waiting;
}

static __always_inline struct dwell_pending_stamp dwell_stamp_find(struct dwell_step *step, __u32 method,
								   __u32 direction, __u32 id)
{
	return dwell_stamp_find_at(step, method, direction, id, id);
}

/* Age below which a stamp is expected to be answered yet. */
#define DWELL_STAMP_YOUNG_NS 1000000000ULL

/* Returns where to put a stamp: its present entry, else the first of its set that is free, else the oldest. */
static __always_inline struct dwell_stamp *dwell_stamp_choose(struct dwell_step *step, __u32 index, __u64 hash,
							      __u64 now)
{
	struct dwell_stamp_set *set = dwell_stamps_at(step, index);
	struct dwell_stamp *stamp, *oldest;
	__u64 age;

	if (!set)
		return 0;
	for (__u32 way = 0; way < DWELL_STAMP_WAYS; way++) {
		stamp = dwell_stamp_way(set, index, way);
		if (dwell_stamp_in(stamp, hash).stamp)
			return stamp;
	}
	for (__u32 way = 0; way < DWELL_STAMP_WAYS; way++) {
		stamp = dwell_stamp_way(set, index, way);
		if (!stamp->check)
			return stamp;
	}
	oldest = dwell_stamp_way(set, index, 0);
	age = dwell_stamp_age(oldest->check_time, now);
	for (__u32 way = 1; way < DWELL_STAMP_WAYS; way++) {
		stamp = dwell_stamp_way(set, index, way);
		if (dwell_stamp_age(stamp->check_time, now) > age) {
			oldest = stamp;
			age = dwell_stamp_age(oldest->check_time, now);
		}
	}
	if (age < DWELL_STAMP_YOUNG_NS)
		dwell_count(step, DWELL_STAMPS_OVERWRITTEN);
	return oldest;
}

/* Keeps the time of this packet under `id` until its answer arrives. */
static __always_inline void dwell_stamp_put_at(struct dwell_step *step, __u32 method, __u32 id, __u32 position,
					       __u32 ack)
{
	__u32 direction = step->packet->direction & 1;
	__u32 index = dwell_stamp_index(step->packet, method, direction, position);
	__u64 hash = dwell_stamp_hash(step->packet, method, direction, id);
	__u64 now = dwell_now(step->table->clock);
	struct dwell_stamp *stamp = dwell_stamp_choose(step, index, hash, now);

	if (!stamp)
		return;
	dwell_stamp_write(stamp, hash, ack, now);
	dwell_count(step, DWELL_STAMPS_MADE);
}

static __always_inline void dwell_stamp_put(struct dwell_step *step, __u32 method, __u32 id, __u32 ack)
{
	dwell_stamp_put_at(step, method, id, id, ack);
}

/* Records the round trip that this packet completes. */
static __always_inline void dwell_match_set(struct dwell_step *step, struct dwell_match *match, __u32 method,
					    __u64 rtt_ns, __u32 flags)
{
	if (dwell_is_backwards(rtt_ns)) {
		dwell_count(step, DWELL_REJECT_BACKWARDS);
		return;
	}
	match->found = 1;
	match->method = method;
	match->flags = flags;
	match->rtt_ns = rtt_ns;
}

static __always_inline void dwell_stamp_take(struct dwell_step *step, const struct dwell_pending_stamp *waiting,
					     __u32 method, __u32 flags)
{
	waiting->stamp->check = 0;
	dwell_match_set(step, &step->match, method, dwell_stamp_age(waiting->time_ns, dwell_now(step->table->clock)),
			flags);
}

#endif
