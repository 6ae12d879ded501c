/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What seat.h wants of its embedder, in user space: the embedder is a struct
 * dwell_seats, or begins with one.
 */
#ifndef DWELL_RESPONSE_SLOT_HOOKS_H
#define DWELL_RESPONSE_SLOT_HOOKS_H

#include "response/slot_native.h"
#ifndef DWELL_STORES_IN_ORDER
#define DWELL_STORES_IN_ORDER 1 /* one thread */
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
	struct dwell_seats *seats = embedder;

	return &seats->buckets[index & seats->program.table.bucket_mask].bucket;
}

static __always_inline struct dwell_seat *dwell_seat_at(void *embedder, __u32 place)
{
	struct dwell_seats *seats = embedder;

	return place < seats->program.places ? &seats->seats[place] : 0;
}

static __always_inline struct dwell_pool *dwell_pool_of(void *embedder)
{
	struct dwell_seats *seats = embedder;

	return &seats->pool;
}

static __always_inline __u32 dwell_places_in(void *embedder)
{
	struct dwell_seats *seats = embedder;

	return seats->program.places;
}

static __always_inline struct dwell_alias *dwell_alias_at(void *embedder, __u32 index)
{
	struct dwell_seats *seats = embedder;

	return &seats->aliases[index & seats->program.alias_mask];
}

static __always_inline __u32 dwell_vacancy_for(struct dwell_table *table, __u32 first, __u32 second, __u64 tag)
{
	return dwell_vacancy_of(table->embedder, first, second, tag, dwell_now_coarse(table->clock),
				table->config->idle_timeout_ns >> 20);
}

static __always_inline const struct dwell_response_program *dwell_seat_program(struct dwell_table *table)
{
	struct dwell_seats *seats = table->embedder;

	return &seats->program;
}

static __always_inline struct dwell_response_event *dwell_seat_record(struct dwell_table *table)
{
	struct dwell_seats *seats = table->embedder;

	return seats->events < DWELL_SEAT_EVENTS ? &seats->event[seats->events] : 0;
}

static __always_inline void dwell_seat_emit(struct dwell_table *table, struct dwell_response_event *record)
{
	struct dwell_seats *seats = table->embedder;

	(void)record;
	seats->events++;
}

static __always_inline int dwell_seat_advance(struct dwell_table *table, struct dwell_seat *seat,
					      const struct dwell_arrival *arrival, struct dwell_response_event *record)
{
	return dwell_response_step(&seat->state, &dwell_seat_program(table)->response, arrival, &record->epoch);
}

static __always_inline int dwell_seat_close(struct dwell_table *table, struct dwell_seat *seat, __u64 now_ns,
					    struct dwell_response_event *record)
{
	return dwell_response_end(&seat->state, &dwell_seat_program(table)->response, now_ns, &record->epoch);
}

static __always_inline struct dwell_table table_of(struct dwell_seats *seats, struct dwell_clock *clock)
{
	struct dwell_table table = {&seats->program.table, &seats->counters, clock, seats};

	return table;
}

#endif
