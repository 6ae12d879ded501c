/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell stack` for user space: tests. The caller owns the memory. */
#ifndef DWELL_STACK_LAYERS_NATIVE_H
#define DWELL_STACK_LAYERS_NATIVE_H

#include "base/histogram.h"
#include "stack/layers_types.h"

struct dwell_hop_row;
struct dwell_row;

/* Byte traces kept per call; further ones are only counted. */
#define DWELL_LAYERS_TRACES 64

struct dwell_layers {
	struct dwell_stack_program program;
	struct dwell_stack_counters counters;
	struct dwell_row *rows;
	struct dwell_histogram segment[2 * DWELL_SEGMENTS];
	/* of the current flow; the caller empties it */
	struct dwell_byte_trace trace[DWELL_LAYERS_TRACES];
	__u32 traces; /* traces of the call */
	__u32 grid;   /* as dwell_grid_thin() reads it */
	struct dwell_hop_row *hop_rows;
	struct dwell_stack_hop hop[DWELL_LAYERS_TRACES];
	__u64 hop_ns[DWELL_LAYERS_TRACES];
	__u32 hops; /* hops so far; the caller empties it */
	__u32 reserved;
	__u64 due_ns;           /* with a pace: when the next byte of any flow may be traced */
	struct dwell_isns isns; /* of the flow of the call, as its socket has them */
};

/* Size of a row of each kind in bytes. */
__u32 dwell_layers_stride(void);
__u32 dwell_layers_hop_stride(void);

__u64 dwell_layers_flow(const struct dwell_layers *layers, const struct dwell_address *src,
			const struct dwell_address *dst, __u16 sport, __u16 dport);

/* Bytes pass a layer, in a packet or a write. `tcp_ns` is when TCP handed the packet down, or 0; `device` is where it
 * arrived, or 0.
 */
void dwell_layers_pass(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes, __u32 layer, __u64 now_ns,
		       __u64 tcp_ns, __u32 device);

/* All bytes below `end` have become readable (DWELL_RX_READY) or were read. */
void dwell_layers_reach(struct dwell_layers *layers, __u64 flow, __u32 end, __u32 layer, __u64 now_ns);

/* A packet passes a device. */
void dwell_layers_cross(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes,
			const struct dwell_device_point *point, __u64 now_ns);

#endif
