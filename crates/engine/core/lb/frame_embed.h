/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a program that changes packets supplies them: what lb/embed.h and lb/decap_embed.h have in common. */
#ifndef DWELL_LB_FRAME_EMBED_H
#define DWELL_LB_FRAME_EMBED_H

#include "parse/embed.h"

/* Returns the first byte of the frame's Ethernet header. Pointers from before dwell_frame_grow() or dwell_frame_cut()
 * are void after it.
 */
static __always_inline void *dwell_frame_data(DWELL_FRAME *frame);

/* Returns one past the frame's last byte. */
static __always_inline const void *dwell_frame_end(DWELL_FRAME *frame);

/* Moves the frame's beginning forward by `bytes`, or back by as many if negative; new bytes are undefined. Returns
 * false, and changes nothing, if there is no headroom.
 */
static __always_inline int dwell_frame_grow(DWELL_FRAME *frame, int bytes);

#endif
