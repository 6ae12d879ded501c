/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies response/embed.h in user space. The embedder is a struct dwell_slots, or begins with one. */
#ifndef DWELL_RESPONSE_SLOT_HOOKS_H
#define DWELL_RESPONSE_SLOT_HOOKS_H

#include "response/slot_native.h"
#ifndef DWELL_STORES_IN_ORDER
#define DWELL_STORES_IN_ORDER 1 /* a table has one thread */
#endif
#include "response/slot.h"

static __always_inline __u64 dwell_now(struct dwell_clock *clock)
{
	return clock->now_ns;
}

static __always_inline __u32 dwell_now_coarse(struct dwell_clock *clock)
{
	return clock->now_ns >> 20;
}

static __always_inline struct dwell_bucket *dwell_bucket_at(void *embedder, __u32 index)
{
	struct dwell_slots *slots = embedder;

	return &slots->buckets[index & slots->program.table.bucket_mask].bucket;
}

static __always_inline struct dwell_slot *dwell_slot_at(void *embedder, __u32 slot_index)
{
	struct dwell_slots *slots = embedder;

	return slot_index < slots->program.table.slots ? &slots->slots[slot_index].slot : 0;
}

static __always_inline union dwell_response_state *dwell_state_at(void *embedder, const struct dwell_slot *slot)
{
	struct dwell_slots *slots = embedder;
	__u32 state = dwell_slot_state(slot);

	if (!slots->states)
		return &((struct dwell_wide_slot *)slot)->state;
	return state ? &slots->slots[state - 1].state : 0;
}

static __always_inline __u32 *dwell_state_next(void *embedder, __u32 index)
{
	struct dwell_slots *slots = embedder;

	return &slots->slots[index].state.next;
}

static __always_inline __u32 dwell_state_take(struct dwell_table *table)
{
	struct dwell_slots *slots = table->embedder;
	__u32 index = 0;

	if (slots->states)
		index = dwell_pool_take(slots, &slots->state_pool, slots->states, dwell_state_next);
	return index == DWELL_NO_SLOT ? 0 : index + 1;
}

static __always_inline void dwell_state_give(struct dwell_table *table, __u32 state)
{
	struct dwell_slots *slots = table->embedder;

	if (slots->states)
		dwell_pool_give(slots, &slots->state_pool, state - 1, dwell_state_next);
}

static __always_inline struct dwell_pool *dwell_pool_of(void *embedder)
{
	struct dwell_slots *slots = embedder;

	return &slots->pool;
}

static __always_inline __u32 dwell_slot_total(void *embedder)
{
	struct dwell_slots *slots = embedder;

	return slots->program.table.slots;
}

static __always_inline struct dwell_alias *dwell_alias_at(void *embedder, __u32 index)
{
	struct dwell_slots *slots = embedder;

	return &slots->aliases[index & slots->program.alias_mask];
}

static __always_inline __u32 dwell_rank_at(void *embedder, __u32 slot_index, __u32 now_coarse, __u32 timeout_coarse)
{
	return dwell_rank(dwell_head_at(embedder, slot_index), now_coarse, timeout_coarse);
}

static __always_inline __u32 dwell_vacancy_for(struct dwell_table *table, __u32 first, __u32 second, __u64 tag)
{
	return dwell_vacancy_of(table->embedder, first, second, tag, dwell_now_coarse(table->clock),
				table->config->idle_timeout_ns >> 20);
}

static __always_inline const struct dwell_response_program *dwell_response_program_of(struct dwell_table *table)
{
	struct dwell_slots *slots = table->embedder;

	return &slots->program;
}

static __always_inline struct dwell_response_event *dwell_response_record(struct dwell_table *table)
{
	struct dwell_slots *slots = table->embedder;

	return slots->events < DWELL_RESPONSE_EVENTS ? &slots->event[slots->events] : 0;
}

static __always_inline void dwell_response_emit(struct dwell_table *table, struct dwell_response_event *record)
{
	struct dwell_slots *slots = table->embedder;

	(void)record;
	slots->events++;
}

static __always_inline int dwell_state_step(struct dwell_table *table, union dwell_response_state *state,
					    const struct dwell_arrival *arrival, struct dwell_response_event *record)
{
	return dwell_response_step(state, &dwell_response_program_of(table)->response, arrival, &record->epoch);
}

static __always_inline int dwell_state_end(struct dwell_table *table, union dwell_response_state *state, __u64 now_ns,
					   struct dwell_response_event *record)
{
	return dwell_response_end(state, &dwell_response_program_of(table)->response, now_ns, &record->epoch);
}

static __always_inline struct dwell_table table_of(struct dwell_slots *slots, struct dwell_clock *clock)
{
	struct dwell_table table = {&slots->program.table, &slots->counters, clock, slots};

	return table;
}

#endif
