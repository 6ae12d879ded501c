/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The context of a program at XDP. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

typedef struct xdp_md dwell_context;

#define dwell_context_wire_bytes(xdp) ((__u32)bpf_xdp_get_buff_len(xdp))
#define dwell_context_segments(xdp) 1
#define dwell_context_interface(xdp) ((xdp)->ingress_ifindex)
#define dwell_context_time(xdp) 0
#define DWELL_LINEARIZE(xdp) 0
