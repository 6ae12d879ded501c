/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames at XDP, for programs that also change them. Included after hook_xdp.bpf.h and before the core's headers. */
#include "frame.bpf.h"

static __always_inline void *dwell_frame_data(DWELL_FRAME *frame)
{
	return (void *)(long)frame->data;
}

static __always_inline const void *dwell_frame_end(DWELL_FRAME *frame)
{
	return (void *)(long)frame->data_end;
}

static __always_inline int dwell_frame_grow(DWELL_FRAME *frame, int bytes)
{
	return !bpf_xdp_adjust_head(frame, -bytes);
}
