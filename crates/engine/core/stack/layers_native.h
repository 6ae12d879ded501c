/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell stack` for user space: tests. The caller owns the memory. */
#ifndef DWELL_STACK_LAYERS_NATIVE_H
#define DWELL_STACK_LAYERS_NATIVE_H

#include "base/histogram.h"
#include "stack/layers_types.h"

struct dwell_hop_row;
struct dwell_row;

/* Passages that are kept of one call; of more only the count is. */
#define DWELL_LAYERS_TRACES 64

struct dwell_layers {
	struct dwell_stack_program program;
	struct dwell_stack_counters counters;
	struct dwell_row *rows;
	struct dwell_histogram segment[2 * DWELL_SEGMENTS];
	/* of the flow that is at work; the caller empties it */
	struct dwell_byte_trace trace[DWELL_LAYERS_TRACES];
	__u32 traces; /* how many there were */
	__u32 grid;   /* as dwell_grid_thin() takes it */
	struct dwell_hop_row *hop_rows;
	struct dwell_stack_hop hop[DWELL_LAYERS_TRACES];
	__u64 hop_ns[DWELL_LAYERS_TRACES];
	__u32 hops; /* how many there were; the caller empties it */
	__u32 reserved;
	__u64 due_ns; /* when the next byte is, with a pace: of all flows */
};

/* Bytes of a row of each kind. */
__u32 dwell_layers_stride(void);
__u32 dwell_layers_hop_stride(void);

__u64 dwell_layers_flow(const struct dwell_layers *layers, const struct dwell_address *src,
			const struct dwell_address *dst, __u16 sport, __u16 dport);

/* Bytes pass a layer, in a packet or a write. `tcp_ns` is when TCP handed the packet
 * down, or 0; `device` is where it came in, or 0.
 */
void dwell_layers_pass(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes, __u32 layer, __u64 now_ns,
		       __u64 tcp_ns, __u32 device);

/* All below `end` has come into order (DWELL_RX_READY) or was read. */
void dwell_layers_reach(struct dwell_layers *layers, __u64 flow, __u32 end, __u32 layer, __u64 now_ns);

/* A packet is at a device. */
void dwell_layers_cross(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes,
			const struct dwell_device_point *point, __u64 now_ns);

#endif
