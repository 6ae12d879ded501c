/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to run `dwell rtt` (rtt/rtt.h): the functions below, those of base/embed.h, the first
 * part of table/embed.h, and the frame of parse/embed.h.
 */
#ifndef DWELL_RTT_EMBED_H
#define DWELL_RTT_EMBED_H

#include "parse/embed.h"
#include "table/embed.h"

struct dwell_cold;
struct dwell_flow;
struct dwell_matcher;
struct dwell_stamp_set;
struct dwell_step;

#ifdef DWELL_FRAME_IS_NATIVE
/* Reads the TCP option at offset `at`: dwell_tcp_option_in(). Returns a DWELL_OPTION(), 0 after the last one, or
 * DWELL_OPTION_CUT.
 */
static inline __u32 dwell_tcp_option(const struct dwell_frame *frame, __u32 at, __u32 stop);

/* Hashes the question of the DNS message at an offset: dwell_dns_question_in(). Returns 0 if it has no single
 * question, and DWELL_DNS_CUT if it is cut off.
 */
static inline __u32 dwell_dns_question(const struct dwell_frame *frame, __u32 offset);
#endif

/* Returns the flow in a slot. Null if the index is not below dwell_slot_total(). */
static __always_inline struct dwell_flow *dwell_flow_at(void *embedder, __u32 slot_index);

/* Returns the cold state of the same slot, from an array of the same length. Null if the index is beyond it. */
static __always_inline struct dwell_cold *dwell_cold_at(void *embedder, __u32 slot_index);

/* Returns the matcher's state of the same slot, from an array of the same length. Null if the index is beyond it. */
static __always_inline struct dwell_matcher *dwell_matcher_at(void *embedder, __u32 slot_index);

/* Returns the set with the stamp at `index` modulo the number of stamps (config.stamp_mask + 1). Null only where BPF
 * cannot know that there is one.
 */
static __always_inline struct dwell_stamp_set *dwell_stamps_at(struct dwell_step *step, __u32 index);

/* Reports that a flow has opened, had its first sample, or closed: dwell_fill_flow_event() makes the event. Does
 * nothing unless config.flow_events is set. `change` is an enum dwell_flow_change, `detail` the reason or method that
 * belongs to it, `rtt_ns` 0 but for a first sample; `cold` may be null. An event that finds no room is counted as
 * DWELL_EVENTS_LOST.
 */
static __always_inline void dwell_emit_flow(struct dwell_table *table, const struct dwell_flow *flow,
					    const struct dwell_cold *cold, __u32 change, __u32 detail, __u64 rtt_ns);

#endif
