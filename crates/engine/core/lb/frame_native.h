/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies lb/frame_embed.h in user space. */
#ifndef DWELL_LB_FRAME_NATIVE_H
#define DWELL_LB_FRAME_NATIVE_H

#include "lb/frame_embed.h"

/* A frame in a larger buffer, so that it can grow. */
struct dwell_framed {
	struct dwell_frame frame;
	const char *first;
};

static __always_inline void *dwell_frame_data(struct dwell_frame *frame)
{
	return (void *)frame->data;
}

static __always_inline const void *dwell_frame_end(struct dwell_frame *frame)
{
	return frame->end;
}

static __always_inline int dwell_frame_grow(struct dwell_frame *frame, int bytes)
{
	struct dwell_framed *framed = (void *)frame;
	const char *data = frame->data;

	if (data - framed->first < bytes)
		return 0;
	frame->data = data - bytes;
	return 1;
}

#endif
