/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell stack` for user space: tests. The caller owns the memory. */
#ifndef DWELL_LAYERS_NATIVE_H
#define DWELL_LAYERS_NATIVE_H

#include "histogram.h"
#include "layers_types.h"

struct dwell_row;

struct dwell_layers {
	struct dwell_stack_program program;
	struct dwell_stack_counters counters;
	struct dwell_row *rows;
	struct dwell_histogram segment[DWELL_SEGMENTS];
};

/* Bytes of a row. */
__u32 dwell_layers_stride(void);

__u64 dwell_layers_flow(const struct dwell_layers *layers, const struct dwell_address *src,
			const struct dwell_address *dst, __u16 sport, __u16 dport);

/* Bytes pass a layer, in a packet or a write. `tcp_ns` is when TCP handed the packet
 * down, or 0.
 */
void dwell_layers_pass(struct dwell_layers *layers, __u64 flow, __u32 seq, __u32 bytes, __u32 layer,
		       __u64 now_ns, __u64 tcp_ns);

/* All below `end` has come into order (DWELL_RX_READY) or was read. */
void dwell_layers_reach(struct dwell_layers *layers, __u64 flow, __u32 end, __u32 layer,
			__u64 now_ns);

#endif
