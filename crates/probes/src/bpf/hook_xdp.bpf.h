/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The context of a program at XDP. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

typedef struct xdp_md dwell_context;

/* The whole frame: only programs that declare support get frames in fragments. */
#define dwell_context_wire_bytes(xdp) ((__u32)((xdp)->data_end - (xdp)->data))
#define dwell_context_segments(xdp) 1
#define dwell_context_interface(xdp) ((xdp)->ingress_ifindex)
#define dwell_context_time(xdp) 0
#define dwell_context_vlan(xdp) 0 /* a tag that the device removes is not shown here */
#define DWELL_LINEARIZE(xdp) 0
