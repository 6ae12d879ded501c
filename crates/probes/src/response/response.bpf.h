/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The response latency program: the core's steps over BPF maps. Included by one
 * file a hook, after that hook's context (hook_*.bpf.h).
 */
#include "frame.bpf.h"

#include "response_event.h"

/* Global, so that the verifier walks each once. */
#define DWELL_RESPONSE_OUTLINED
int auto_complete(struct dwell_auto_state *state, __u32 tick);
int auto_request(struct dwell_auto_state *state, __u64 now_ns, __u32 progress);
#define dwell_complete(state, config, tick) auto_complete(state, tick)
#define dwell_request(state, config, now_ns, progress) auto_request(state, now_ns, progress)

/* Alone in its section, so that user space can write it whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_response_program program = {};

#define DWELL_STORES_IN_ORDER program.stores_in_order
#include "seat.h"

#define DWELL_TABLE program.table
#include "table.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_seat);
	__uint(max_entries, 1);
} seats SEC(".maps");

/* From connection IDs to flows. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct dwell_alias);
	__uint(max_entries, 1);
} aliases SEC(".maps");

/* Where a record is made before it is copied into the ring buffer: one for
 * packets, one for the sweep, which a packet may interrupt.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_response_event);
	__uint(max_entries, 2);
} scratch SEC(".maps");

static __always_inline struct dwell_seat *dwell_seat_at(void *embedder, __u32 place)
{
	return bpf_map_lookup_elem(&seats, &place);
}

static __always_inline struct dwell_alias *dwell_alias_at(void *embedder, __u32 index)
{
	return bpf_map_lookup_elem(&aliases, &index);
}

static __always_inline struct dwell_response_event *dwell_seat_record(struct dwell_table *table)
{
	__u32 which = table->embedder == DWELL_SWEEPS;

	return bpf_map_lookup_elem(&scratch, &which);
}

/* Readers come by on a timer, as for rtt. */
static __always_inline void dwell_seat_emit(struct dwell_table *table,
					    struct dwell_response_event *record)
{
	/* only pirate has modes: more than half of the record */
	__u32 bytes = program.response.estimator == DWELL_ESTIMATE_PIRATE
			      ? sizeof(*record)
			      : offsetof(struct dwell_response_event, epoch.mode);

	if (bpf_ringbuf_output(&events, record, bytes, BPF_RB_NO_WAKEUP))
		dwell_table_count(table, DWELL_EVENTS_LOST);
}

static __always_inline const struct dwell_response_program *dwell_seat_program(
	struct dwell_table *table)
{
	return &program;
}

__noinline int auto_complete(struct dwell_auto_state *state, __u32 tick)
{
	if (state)
		dwell_complete_in(state, &program.response, tick);
	return 0;
}

__noinline int auto_request(struct dwell_auto_state *state, __u64 now_ns, __u32 progress)
{
	if (state)
		dwell_request_in(state, &program.response, now_ns, progress);
	return 0;
}

__noinline int response_step(struct dwell_seat *seat, const struct dwell_arrival *arrival,
			     struct dwell_response_event *record)
{
	if (!seat || !arrival || !record)
		return 0;
	return dwell_response_step(&seat->state, &program.response, arrival, &record->epoch);
}

__noinline int response_end(struct dwell_seat *seat, __u64 now_ns,
			    struct dwell_response_event *record)
{
	if (!seat || !record)
		return 0;
	return dwell_response_end(&seat->state, &program.response, now_ns, &record->epoch);
}

static __always_inline int dwell_seat_advance(struct dwell_table *table, struct dwell_seat *seat,
					      const struct dwell_arrival *arrival,
					      struct dwell_response_event *record)
{
	return response_step(seat, arrival, record);
}

static __always_inline int dwell_seat_close(struct dwell_table *table, struct dwell_seat *seat,
					    __u64 now_ns, struct dwell_response_event *record)
{
	return response_end(seat, now_ns, record);
}

__noinline __u32 read_packet(dwell_context *context, __u32 link, struct dwell_packet *packet)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	dwell_where where;

	if (!packet)
		return DWELL_SKIP_TRUNCATED;
	where = dwell_seat_locate(context, data, end, link, program.key_kind);
	if (dwell_unlikely(dwell_where_error(where)))
		return dwell_where_error(where);
	return dwell_arrival_parse(data, end, where, program.key_kind, packet);
}

static __always_inline void observe(dwell_context *context, __u32 link)
{
	struct dwell_clock clock = {program.replay ? dwell_context_time(context) : 0};
	struct dwell_table table = {&program.table, 0, &clock};
	struct dwell_packet packet = {};

	if (!receive(context, link, &table, &packet))
		return;
	dwell_seat_step(&table, &packet);
}
