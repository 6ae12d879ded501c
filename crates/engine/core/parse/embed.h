/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a program on the core reaches a packet's bytes.
 *
 * An embedder that verifies functions apart (BPF) defines DWELL_FRAME before it includes the core, as the type of its
 * context, and with it those functions that rtt/embed.h and this header declare only natively. Each takes the frame in
 * place of the packet's bounds and calls the core function of the same name that ends in _on or _in. They are
 * functions of their own because the verifier then walks their loops once.
 *
 * Every other embedder leaves DWELL_FRAME alone: a frame is then two pointers, and the core defines these functions
 * itself, as inline calls.
 */
#ifndef DWELL_PARSE_EMBED_H
#define DWELL_PARSE_EMBED_H

#include <linux/types.h>

#ifndef DWELL_FRAME
#define DWELL_FRAME struct dwell_frame
#define DWELL_FRAME_IS_NATIVE

struct dwell_frame {
	const void *data; /* the first byte of the link header */
	const void *end;  /* one past the last captured byte */
};

/* Steps over one header of a nested packet: dwell_walk_on(). Returns the next walk, or DWELL_WALK_ERROR(). */
static inline __u64 dwell_walk_step(const struct dwell_frame *frame, __u64 walk);

/* Returns the tunnel with the header that the walk is about to step over: dwell_walk_tunnel_in(). */
static inline __u32 dwell_walk_tunnel(const struct dwell_frame *frame, __u64 walk, __u32 tunnel);
#endif

#endif
