/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "stack/layers_native.h"
#include "stack/hops.h"
#include "stack/layers.h"

static __always_inline struct dwell_row *dwell_row_at(void *embedder, __u32 index)
{
	struct dwell_layers *layers = embedder;

	return &layers->rows[index];
}

static __always_inline void dwell_segment_add(void *embedder, __u32 segment, __u64 ns)
{
	struct dwell_layers *layers = embedder;

	dwell_histogram_add(&layers->segment[segment], ns);
}

static __always_inline void dwell_stack_count(void *embedder, __u32 counter)
{
	struct dwell_layers *layers = embedder;

	layers->counters.value[counter]++;
}

static __always_inline void dwell_trace_emit(void *embedder, const struct dwell_row *row, __u32 grid_index, int up,
					     int again)
{
	struct dwell_layers *layers = embedder;

	if (layers->traces < DWELL_LAYERS_TRACES)
		dwell_trace_fill(&layers->program, row, grid_index, up, again, &layers->trace[layers->traces]);
	layers->traces++;
}

static __always_inline int dwell_may_trace(void *embedder, __u64 flow, __u32 grid_index, int up, __u64 now_ns)
{
	struct dwell_layers *layers = embedder;

	(void)flow;
	(void)grid_index;
	(void)up;
	if (now_ns < layers->due_ns)
		return 0;
	layers->due_ns = now_ns + layers->program.pace_ns;
	return 1;
}

static __always_inline struct dwell_hop_row *dwell_hop_row_at(void *embedder, __u32 index)
{
	struct dwell_layers *layers = embedder;

	return &layers->hop_rows[index];
}

static __always_inline void dwell_hop_add(void *embedder, struct dwell_stack_hop *hop, __u64 took_ns, __u64 since_ns)
{
	struct dwell_layers *layers = embedder;

	(void)since_ns;
	if (layers->hops >= DWELL_LAYERS_TRACES)
		return;
	layers->hop[layers->hops] = *hop;
	layers->hop_ns[layers->hops++] = took_ns;
}

__u32 dwell_layers_hop_stride(void)
{
	return sizeof(struct dwell_hop_row);
}

__u32 dwell_layers_stride(void)
{
	return sizeof(struct dwell_row);
}

__u64 dwell_layers_flow(const struct dwell_layers *layers, const struct dwell_address *src,
			const struct dwell_address *dst, __u16 sport, __u16 dport)
{
	return dwell_flow_hash(layers->program.seed, src, dst, sport, dport);
}

void dwell_layers_pass(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes, __u32 layer, __u64 now_ns,
		       __u64 tcp_ns, __u32 device)
{
	struct dwell_span span = {flow, seq, bytes, layers->grid, 0};
	struct dwell_pass pass;

	layers->traces = 0;
	if (!dwell_span_hit(&layers->program, &span))
		return;
	pass = dwell_pass_of(&layers->program, &span, now_ns, tcp_ns, device);
	pass.isns = layers->isns;
	for (__u32 step = 0; step < pass.steps; step++)
		dwell_pass_step(layers, &layers->program, &pass, layer);
}

void dwell_layers_reach(struct dwell_layers *layers, __u64 flow, __u32 end, __u32 layer, __u64 now_ns)
{
	struct dwell_walk_back walk = dwell_walk_from(&layers->program, flow, end, now_ns, layers->grid);

	walk.isns = layers->isns;
	layers->traces = 0;
	for (int step = 0; step < DWELL_WALK_STEPS; step++)
		if (dwell_walk_step_back(layers, &layers->program, &walk, layer))
			break;
}

void dwell_layers_cross(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes,
			const struct dwell_device_point *point, __u64 now_ns)
{
	struct dwell_span span = {flow, seq, bytes, layers->grid, 0};
	struct dwell_pass pass;

	if (!dwell_span_hit(&layers->program, &span))
		return;
	pass = dwell_pass_of(&layers->program, &span, now_ns, 0, 0);
	for (__u32 step = 0; step < pass.steps; step++)
		dwell_hop_step(layers, &layers->program, &pass, point);
}
