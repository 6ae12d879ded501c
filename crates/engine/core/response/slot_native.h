/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell response` for user space: replay, tests, fuzzing. The caller owns the
 * memory.
 */
#ifndef DWELL_RESPONSE_SLOT_NATIVE_H
#define DWELL_RESPONSE_SLOT_NATIVE_H

#include "response/response_event.h"
#include "table/pool.h"

#define DWELL_RESPONSE_EVENTS 8 /* more than one packet or bucket can cause */

struct dwell_wide_slot;
struct dwell_alias;

struct dwell_slots {
	struct dwell_response_program program;
	struct dwell_counters counters;
	struct dwell_slot_bucket *buckets;
	struct dwell_wide_slot *slots;
	struct dwell_pool pool;
	struct dwell_pool state_pool;
	struct dwell_alias *aliases;
	__u32 events;
	__u32 states; /* in the pool of states, at most as many as slots; 0: each slot has its own */
	struct dwell_response_event event[DWELL_RESPONSE_EVENTS];
};

/* Size of a slot with its state and of an alias in bytes. */
__u32 dwell_slots_stride(void);
__u32 dwell_slots_alias_stride(void);

/* Observes one packet, as dwell_native_packet() does. */
void dwell_slots_packet(struct dwell_slots *slots, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			__u32 interface, __u64 time_ns);

/* Ends the epochs of a bucket that are over, and frees idle flows; with DWELL_CLOSE_END, all of them. */
void dwell_slots_sweep(struct dwell_slots *slots, __u32 bucket, __u64 time_ns, __u32 reason);

#endif
