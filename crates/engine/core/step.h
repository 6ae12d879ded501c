/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a matcher is given, and the few things that the embedding program does
 * for it.
 */
#ifndef DWELL_STEP_H
#define DWELL_STEP_H

#include "flow.h"
#include "stamp.h"

struct dwell_match {
	__u64 rtt_ns;
	__u8 found;
	__u8 method;
	__u8 flags;       /* DWELL_SAMPLE_* */
	__u64 min_rtt_ns; /* least of its kind, this one included */
};

/* One packet of one flow. A packet completes at most one round trip and one
 * full loop of the spin bit.
 */
struct dwell_step {
	const struct dwell_rtt_config *config;
	struct dwell_counters *counters;
	struct dwell_clock *clock;
	const struct dwell_packet *packet;
	struct dwell_flow *flow;
	__u32 place; /* of the flow */
	void *embedder;
	struct dwell_match match;
	struct dwell_match loop;
};

/* The place of a stamp, or null. */
static __always_inline struct dwell_stamp *dwell_stamp_at(struct dwell_step *step, __u64 hash);

/* dwell_vacancy_of() for the packet in hand. */
static __always_inline __u32 dwell_vacancy_for(struct dwell_step *step, __u32 first, __u32 second);

static __always_inline void dwell_emit_flow(struct dwell_step *step, const struct dwell_flow *flow,
					    __u32 change, __u32 reason, __u64 rtt_ns);

static __always_inline void dwell_count(struct dwell_step *step, __u32 counter)
{
	step->counters->value[counter]++;
}

/* The flow's less used half; not null for a flow that has a place, which the
 * BPF verifier cannot know.
 */
static __always_inline struct dwell_memories *dwell_memories_of(struct dwell_step *step)
{
	return dwell_memories_at(step->embedder, step->place);
}

/* True if the rate limit allows another stamp of this direction now. */
static __always_inline int dwell_may_stamp(struct dwell_step *step)
{
	const struct dwell_rtt_config *config = step->config;
	__u32 direction = step->packet->direction & 1;
	__u64 interval = config->rate_limit_ns, now;
	struct dwell_memories *memories;
	struct dwell_memory *memory;

	if (!interval && !config->rtt_rate_q8)
		return 1;
	memories = dwell_memories_of(step);
	if (!memories)
		return 0;
	memory = &memories->of[direction];
	if (config->rtt_rate_q8 && memories->of[!direction].srtt_ns)
		interval = memories->of[!direction].srtt_ns * config->rtt_rate_q8 >> 8;
	now = dwell_now(step->clock);
	if (memory->stamp_ns && now - memory->stamp_ns < interval)
		return 0;
	memory->stamp_ns = now;
	return 1;
}

static __always_inline void dwell_stamp_put(struct dwell_step *step, __u64 hash, __u32 ack,
					    int keep_first)
{
	struct dwell_stamp *stamp = dwell_stamp_at(step, hash);
	__u64 now = dwell_now(step->clock);

	if (!stamp)
		return;
	if (stamp->check) {
		__u64 age = dwell_stamp_age(stamp, now);

		if (dwell_stamp_holds(stamp, hash)) {
			if (keep_first && age < 60000000000ULL)
				return;
		} else if (age < 1000000000ULL) {
			dwell_count(step, DWELL_STAMPS_OVERWRITTEN);
		}
	}
	dwell_stamp_write(stamp, hash, ack, now);
	dwell_count(step, DWELL_STAMPS_MADE);
}

/* Records the round trip that this packet completes. */
static __always_inline void dwell_match_set(struct dwell_step *step, struct dwell_match *match,
					    __u32 method, __u64 rtt_ns, __u32 flags)
{
	if (rtt_ns >> (DWELL_STAMP_TIME_BITS - 1)) {
		dwell_count(step, DWELL_REJECT_BACKWARDS);
		return;
	}
	match->found = 1;
	match->method = method;
	match->flags = flags;
	match->rtt_ns = rtt_ns;
}

static __always_inline void dwell_stamp_take(struct dwell_step *step, struct dwell_stamp *stamp,
					     __u32 method, __u32 flags)
{
	__u64 rtt_ns = dwell_stamp_age(stamp, dwell_now(step->clock));

	stamp->check = 0;
	dwell_match_set(step, &step->match, method, rtt_ns, flags);
}

#endif
