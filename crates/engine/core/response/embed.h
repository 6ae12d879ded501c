/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to run `dwell response` on a flow table (response/slot.h): the macros and functions
 * below, those of base/embed.h, the first part of table/embed.h, and the frame of parse/embed.h.
 *
 * Macros, to be defined before the first include:
 *
 * - DWELL_STORES_IN_ORDER (required): true on machines whose stores become visible in program order, which can unlock
 *   a slot without an atomic exchange. 1 in user space, where a table has one thread.
 * - DWELL_RESPONSE_OUTLINED (optional): defined together with dwell_complete(), dwell_missed(), dwell_request(),
 *   dwell_turn_opened(), dwell_turn_acked(), dwell_turn_asked(), dwell_turn_next() and dwell_turn_age(), which replace
 *   inline calls of the functions of these names with _in (response/response_queue.h, response/turns.h) by calls that
 *   are verified apart.
 * - DWELL_MODES (optional): modes that the pirate estimator keeps per flow, 10 unless defined.
 */
#ifndef DWELL_RESPONSE_EMBED_H
#define DWELL_RESPONSE_EMBED_H

#include "parse/embed.h"
#include "table/embed.h"

#ifndef DWELL_STORES_IN_ORDER
#error "define DWELL_STORES_IN_ORDER before including response/slot.h"
#endif

struct dwell_alias;
struct dwell_arrival;
struct dwell_response_event;
struct dwell_response_program;
struct dwell_slot;
union dwell_response_state;

/* Returns the configuration that the program was loaded with. Never null. */
static __always_inline const struct dwell_response_program *dwell_response_program_of(struct dwell_table *table);

/* Returns a slot; null if the index is not below dwell_slot_total(). */
static __always_inline struct dwell_slot *dwell_slot_at(void *embedder, __u32 slot_index);

/* Returns the entry for a QUIC connection ID at `index`, which is at most program->alias_mask; null beyond it. */
static __always_inline struct dwell_alias *dwell_alias_at(void *embedder, __u32 index);

/* Returns room for one event, the caller's alone until dwell_response_emit() or the end of the packet. Its contents
 * are undefined. Null if there is no room: the packet is then not measured.
 */
static __always_inline struct dwell_response_event *dwell_response_record(struct dwell_table *table);

/* Sends the event that dwell_response_record() gave room for. One that finds no room is counted as
 * DWELL_EVENTS_LOST.
 */
static __always_inline void dwell_response_emit(struct dwell_table *table, struct dwell_response_event *record);

/* Returns the estimator's state of a slot; null if it has none. */
static __always_inline union dwell_response_state *dwell_state_at(void *embedder, const struct dwell_slot *slot);

/* Returns a state for an acquired slot that has none, as its index plus 1; 0 if there is none left. Either states have a pool,
 * and slots take one when they need it, or each slot has its own beside it, whatever the index.
 */
static __always_inline __u32 dwell_state_take(struct dwell_table *table);

/* Undoes dwell_state_take(). */
static __always_inline void dwell_state_give(struct dwell_table *table, __u32 state);

/* Steps the estimator of a locked slot: dwell_response_step(), or a call of it. Returns true if an epoch ended, which
 * is then in record->epoch.
 */
static __always_inline int dwell_state_step(struct dwell_table *table, union dwell_response_state *state,
					    const struct dwell_arrival *arrival, struct dwell_response_event *record);

/* Ends the epoch of a locked slot if it is over at `now_ns` (~0: in any case): dwell_response_end(), or a call of it.
 * Returns true if there was one to report, which is then in record->epoch.
 */
static __always_inline int dwell_state_end(struct dwell_table *table, union dwell_response_state *state, __u64 now_ns,
					   struct dwell_response_event *record);

#endif
