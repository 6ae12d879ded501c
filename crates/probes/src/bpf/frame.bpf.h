/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How the core sees a packet in the kernel: through the hook's context, which
 * the including file has defined. Before the core's own headers.
 */
#ifndef DWELL_FRAME
#define DWELL_FRAME dwell_context
__u64 dwell_walk_step(dwell_context *context, __u64 walk);
__u32 dwell_tcp_option(dwell_context *context, __u32 at, __u32 stop);
__u32 dwell_dns_question(dwell_context *context, __u32 offset);
#endif
