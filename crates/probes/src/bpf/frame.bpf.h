/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Supplies parse/embed.h in the kernel: a frame is the context of the hook, which the including file has defined.
 * Included before the core's headers.
 */
#ifndef DWELL_FRAME
#define DWELL_FRAME dwell_context
__u64 dwell_walk_step(dwell_context *context, __u64 walk);
__u32 dwell_walk_tunnel(dwell_context *context, __u64 walk, __u32 tunnel);
__u32 dwell_tcp_option(dwell_context *context, __u32 at, __u32 stop);
__u32 dwell_dns_question(dwell_context *context, __u32 offset);
#endif
