/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Traces one byte from device to device: through the namespaces, bridges and tunnels of a host. Sampling grid and rows
 * are as in stack/layers.h.
 */
#ifndef DWELL_STACK_HOPS_H
#define DWELL_STACK_HOPS_H

#include "stack/embed.h"
#include "stack/sampling.h"

struct dwell_hop_row {
	__u64 tag; /* hash of flow and byte; 0 if never used */
	__u64 first_ns;
	__u64 last_ns;
	struct dwell_device_point origin;
	struct dwell_device_point last;
};

static __always_inline int dwell_is_same_point(const struct dwell_device_point *point,
					       const struct dwell_device_point *other)
{
	return point->netns == other->netns && point->device == other->device && point->point == other->point;
}

/* Counts the hop of one byte of a packet, and advances to the next byte. A byte that is back at its origin was sent
 * again: its path starts anew.
 */
static __always_inline void dwell_hop_step(void *embedder, const struct dwell_stack_program *program,
					   struct dwell_pass *pass, const struct dwell_device_point *point)
{
	__u32 grid_index = pass->grid_index & ~0U >> (program->shift & 31);
	__u64 tag = dwell_row_tag(pass->flow, pass->grid, grid_index);
	__u32 index = dwell_row_index(program, pass->flow, grid_index);
	struct dwell_hop_row *row = dwell_hop_row_at(embedder, index);
	struct dwell_stack_hop hop = {};

	pass->grid_index += pass->stride;
	if (!row)
		return;
	if (row->tag != tag || dwell_is_same_point(&row->origin, point)) {
		row->tag = tag;
		row->first_ns = pass->now_ns;
		row->last_ns = pass->now_ns;
		row->origin = *point;
		row->last = *point;
		return;
	}
	if (dwell_is_same_point(&row->last, point) || pass->now_ns < row->last_ns)
		return;
	hop.origin = row->origin;
	hop.from = row->last;
	hop.to = *point;
	dwell_hop_add(embedder, &hop, pass->now_ns - row->last_ns, row->last_ns - row->first_ns);
	row->last = *point;
	row->last_ns = pass->now_ns;
}

#endif
