/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies response/embed.h: a flow table whose slots hold the estimator of response latency. Included after
 * frame.bpf.h and after `program`, the struct dwell_response_program that configures it. The balancer pins these maps
 * by name.
 */
/* Global functions, so that the verifier walks each once. */
#define DWELL_RESPONSE_OUTLINED
int auto_complete(struct dwell_auto_state *state, __u32 tick);
int auto_missed(struct dwell_auto_state *state, __u32 missed);
int auto_request(struct dwell_auto_state *state, __u64 now_ns, __u32 progress);
int turn_opened(struct dwell_auto_state *state, const struct dwell_arrival *arrival);
int turn_acked(struct dwell_auto_state *state, const struct dwell_arrival *arrival);
int turn_asked(struct dwell_auto_state *state, const struct dwell_arrival *arrival);
int turn_next(struct dwell_auto_state *state, const struct dwell_arrival *arrival);
int turn_age(struct dwell_auto_state *state, __u64 now_ns);
#define dwell_turn_opened(state, arrival) turn_opened(state, arrival)
#define dwell_turn_acked(state, config, arrival) turn_acked(state, arrival)
#define dwell_turn_asked(state, config, arrival) turn_asked(state, arrival)
#define dwell_turn_next(state, config, arrival) turn_next(state, arrival)
#define dwell_turn_age(state, config, now_ns) turn_age(state, now_ns)
#define dwell_complete(state, config, tick) auto_complete(state, tick)
#define dwell_missed(state, config, missed) auto_missed(state, missed)
#define dwell_request(state, config, now_ns, progress) auto_request(state, now_ns, progress)

#define DWELL_STORES_IN_ORDER program.stores_in_order
#include "response/slot.h"

#define DWELL_TABLE program.table
#include "table.bpf.h"

/* What a slot of the map is. One that is not a struct dwell_wide_slot has its state elsewhere: the including file then supplies
 * what response/embed.h says of states.
 */
#ifndef DWELL_SLOT_TYPE
#define DWELL_SLOT_TYPE struct dwell_wide_slot

static __always_inline union dwell_response_state *dwell_state_at(void *embedder, const struct dwell_slot *slot)
{
	return &((struct dwell_wide_slot *)slot)->state;
}

static __always_inline __u32 dwell_state_take(struct dwell_table *table)
{
	return 1;
}

static __always_inline void dwell_state_give(struct dwell_table *table, __u32 state)
{
}
#endif

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, DWELL_SLOT_TYPE);
	__uint(max_entries, 1);
} slots SEC(".maps");

/* Leads from connection IDs to slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_alias);
	__uint(max_entries, 1);
} aliases SEC(".maps");

/* Where a record is made before it is copied into the ring buffer: one for packets, and one for the sweep, which a
 * packet may interrupt.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_response_event);
	__uint(max_entries, 2);
} scratch SEC(".maps");

static __always_inline struct dwell_slot *dwell_slot_at(void *embedder, __u32 slot_index)
{
	return bpf_map_lookup_elem(&slots, &slot_index);
}

static __always_inline struct dwell_alias *dwell_alias_at(void *embedder, __u32 index)
{
	return bpf_map_lookup_elem(&aliases, &index);
}

static __always_inline struct dwell_response_event *dwell_response_record(struct dwell_table *table)
{
	__u32 which = table->embedder == DWELL_SWEEPS;

	return bpf_map_lookup_elem(&scratch, &which);
}

/* Nobody is woken: readers poll, as for rtt. */
static __always_inline void dwell_response_emit(struct dwell_table *table, struct dwell_response_event *record)
{
	/* only pirate has modes, which are more than half of the record */
	__u32 bytes = program.response.estimator == DWELL_ESTIMATE_PIRATE
			      ? sizeof(*record)
			      : offsetof(struct dwell_response_event, epoch.mode);

	if (bpf_ringbuf_output(&events, record, bytes, BPF_RB_NO_WAKEUP))
		dwell_table_count(table, DWELL_EVENTS_LOST);
}

static __always_inline const struct dwell_response_program *dwell_response_program_of(struct dwell_table *table)
{
	return &program;
}

__noinline int auto_complete(struct dwell_auto_state *state, __u32 tick)
{
	if (state)
		dwell_complete_in(state, &program.response, tick);
	return 0;
}

__noinline int auto_missed(struct dwell_auto_state *state, __u32 missed)
{
	if (state)
		dwell_missed_in(state, &program.response, missed);
	return 0;
}

__noinline int auto_request(struct dwell_auto_state *state, __u64 now_ns, __u32 progress)
{
	if (state)
		dwell_request_in(state, &program.response, now_ns, progress, 0);
	return 0;
}

__noinline int turn_opened(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	if (state && arrival)
		dwell_turn_opened_in(state, arrival);
	return 0;
}

__noinline int turn_acked(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	if (state && arrival)
		dwell_turn_acked_in(state, &program.response, arrival);
	return 0;
}

__noinline int turn_asked(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	return state && arrival ? dwell_turn_asked_in(state, &program.response, arrival) : 0;
}

__noinline int turn_next(struct dwell_auto_state *state, const struct dwell_arrival *arrival)
{
	if (state && arrival)
		dwell_turn_next_in(state, &program.response, arrival);
	return 0;
}

__noinline int turn_age(struct dwell_auto_state *state, __u64 now_ns)
{
	if (state)
		dwell_turn_age_in(state, &program.response, now_ns);
	return 0;
}

__noinline int response_step(union dwell_response_state *state, const struct dwell_arrival *arrival,
			     struct dwell_response_event *record)
{
	if (!state || !arrival || !record)
		return 0;
	return dwell_response_step(state, &program.response, arrival, &record->epoch);
}

__noinline int response_end(union dwell_response_state *state, __u64 now_ns, struct dwell_response_event *record)
{
	if (!state || !record)
		return 0;
	return dwell_response_end(state, &program.response, now_ns, &record->epoch);
}

static __always_inline int dwell_state_step(struct dwell_table *table, union dwell_response_state *state,
					    const struct dwell_arrival *arrival, struct dwell_response_event *record)
{
	return response_step(state, arrival, record);
}

static __always_inline int dwell_state_end(struct dwell_table *table, union dwell_response_state *state, __u64 now_ns,
					   struct dwell_response_event *record)
{
	return response_end(state, now_ns, record);
}
