/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The sampling grid: which bytes of a flow are followed, and how they are identified. stack/layers.h and stack/hops.h
 * share it.
 */
#ifndef DWELL_STACK_SAMPLING_H
#define DWELL_STACK_SAMPLING_H

#include "stack/layers_types.h"

/* Most grid bytes of one packet that are stamped; of more, the last ones. It covers 64 KiB with every 64th byte. */
#define DWELL_GRID_BYTES_MAX 1024

/* A range of bytes of a flow. */
struct dwell_span {
	__u64 flow; /* hash of source and destination */
	__u32 seq;
	__u32 bytes;
	__u32 grid; /* which grid bytes are sampled now: see dwell_grid_thin() */
	__u32 reserved;
};

static __always_inline __u64 dwell_flow_hash(__u64 seed, const struct dwell_address *src,
					     const struct dwell_address *dst, __u16 sport, __u16 dport)
{
	__u64 hash = dwell_mix(seed, (__u64)sport << 16 | dport);

	hash = dwell_mix(hash, src->low);
	hash = dwell_mix(hash, dst->low);
	if (src->high | dst->high) {
		hash = dwell_mix(hash, src->high);
		hash = dwell_mix(hash, dst->high);
	}
	return hash;
}

/* Returns the first grid byte from `seq` on. */
static __always_inline __u32 dwell_grid_from(__u32 seq, __u32 shift)
{
	__u32 low = (1U << (shift & 31)) - 1;

	return (seq + low) & ~low;
}

/* Returns true if the range has a byte on the grid. */
static __always_inline int dwell_grid_hit(const struct dwell_span *span, __u32 shift)
{
	return dwell_grid_from(span->seq, shift) - span->seq < span->bytes;
}

/* Returns how far the grid is thinned: each 2^thin-th grid byte is sampled. A row of another epoch belongs to another
 * byte. User space changes both while packets pass, so each run reads them once, together.
 */
static __always_inline __u32 dwell_grid_thin(__u32 grid)
{
	return grid & 31;
}

/* Returns true if the range has a sampled byte. */
static __always_inline int dwell_span_hit(const struct dwell_stack_program *program, const struct dwell_span *span)
{
	return dwell_grid_hit(span, program->shift + dwell_grid_thin(span->grid));
}

static __always_inline __u64 dwell_row_tag(__u64 flow, __u32 grid, __u32 grid_index)
{
	return dwell_mix(flow + (grid >> 8), grid_index) | 1;
}

/* Returns the index of a grid byte's row. Consecutive grid bytes of a flow have consecutive rows. */
static __always_inline __u32 dwell_row_index(const struct dwell_stack_program *program, __u64 flow, __u32 grid_index)
{
	return ((flow >> 32) + (grid_index & program->cycle_mask)) & program->row_mask;
}

/* The sampled bytes of a packet, or of what a write is about to copy, at a layer; a write knows the numbers of its flow. */
struct dwell_pass {
	__u64 flow;
	__u64 now_ns;
	__u64 tcp_ns;     /* of sent bytes: when TCP handed the packet down, as the packet says */
	__u32 device;     /* of received bytes, at the driver: the device */
	__u32 grid_index; /* the first one, in grid bytes */
	__u32 stride;     /* from one to the next */
	__u32 steps;      /* how many there are */
	__u32 grid;       /* of the range */
	struct dwell_isns isns;
};

/* Returns the sampled bytes of a range, which has at least one. */
static __always_inline struct dwell_pass dwell_pass_of(const struct dwell_stack_program *program,
						       const struct dwell_span *span, __u64 now_ns, __u64 tcp_ns,
						       __u32 device)
{
	__u32 shift = program->shift & 31, thin = dwell_grid_thin(span->grid);
	__u32 first = dwell_grid_from(span->seq, shift + thin);
	__u32 steps = ((span->bytes - (first - span->seq) - 1) >> ((shift + thin) & 31)) + 1;
	__u32 grid_index = first >> shift, stride = 1U << (thin & 31);

	if (steps > DWELL_GRID_BYTES_MAX) {
		grid_index += (steps - DWELL_GRID_BYTES_MAX) * stride;
		steps = DWELL_GRID_BYTES_MAX;
	}
	return (struct dwell_pass){
		.flow = span->flow,
		.now_ns = now_ns,
		.tcp_ns = tcp_ns,
		.device = device,
		.grid_index = grid_index,
		.stride = stride,
		.steps = steps,
		.grid = span->grid,
	};
}

/* Counts a duration. Several CPUs may do so at once. */
static __always_inline void dwell_flow_segment_add(struct dwell_flow_segment *flow, __u64 ns)
{
	__u32 index = dwell_bucket_index(ns) >> DWELL_COARSE_SHIFT;

	index = index > DWELL_COARSE_SKIPPED ? index - DWELL_COARSE_SKIPPED : 0;
	if (index >= DWELL_COARSE_BUCKETS)
		index = DWELL_COARSE_BUCKETS - 1;
	__sync_fetch_and_add(&flow->count, 1);
	__sync_fetch_and_add(&flow->sum_ns, ns);
	if (ns > flow->max_ns)
		flow->max_ns = ns;
	__sync_fetch_and_add(&flow->bucket[index], 1);
}

#endif
