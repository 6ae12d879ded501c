/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to run `dwell stack`: the first part for the layers of a host (stack/layers.h), the
 * second for the way between devices (stack/hops.h). `embedder` is whatever the program handed to the step.
 */
#ifndef DWELL_STACK_EMBED_H
#define DWELL_STACK_EMBED_H

#include "base/base.h"

struct dwell_hop_row;
struct dwell_row;
struct dwell_stack_hop;

/* Layers. */

/* Returns a row; `index` is at most program->row_mask. Null only where BPF cannot know that. Several CPUs may have the
 * same row at once: the core copes with torn ones.
 */
static __always_inline struct dwell_row *dwell_row_at(void *embedder, __u32 index);

/* Adds a duration to the histogram of a segment: an enum dwell_stack_segment, plus DWELL_SEGMENTS for bytes that were
 * sent again.
 */
static __always_inline void dwell_segment_add(void *embedder, __u32 segment, __u64 ns);

/* Counts one: an enum dwell_stack_counter. */
static __always_inline void dwell_stack_count(void *embedder, __u32 counter);

/* Reports the trace of a byte that has gone all the way: dwell_trace_fill() makes it, but for its ends. `up` is 1 if it
 * was read, 0 if it was sent; `again` says that it was sent or received more than once. One that finds no room is
 * counted as DWELL_TRACES_LOST. Called only if program->traces is set.
 */
static __always_inline void dwell_trace_emit(void *embedder, const struct dwell_row *row, __u32 grid_index, int up,
					     int again);

/* Returns true if a byte of this flow may be traced now, on its way up or down. Called only if program->pace_ns limits
 * how many bytes of a flow are.
 */
static __always_inline int dwell_may_trace(void *embedder, __u64 flow, __u32 grid_index, int up, __u64 now_ns);

/* Devices. */

/* Returns a row, as dwell_row_at() does. */
static __always_inline struct dwell_hop_row *dwell_hop_row_at(void *embedder, __u32 index);

/* Counts one hop: `took_ns` from device to device, `since_ns` from the origin to the first of them. The embedder sets
 * hop->generation; a hop that finds no room is lost, and the embedder counts it.
 */
static __always_inline void dwell_hop_add(void *embedder, struct dwell_stack_hop *hop, __u64 took_ns, __u64 since_ns);

#endif
