/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The context of a program at tc. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

typedef struct __sk_buff dwell_context;

#define dwell_context_wire_bytes(skb) ((skb)->len)
#define dwell_context_segments(skb) ((skb)->gso_segs > 1 ? (skb)->gso_segs : 1)
#define dwell_context_interface(skb) ((skb)->ifindex)
#define dwell_context_time(skb) ((skb)->tstamp)
/* The outermost VLAN tag, which the kernel takes out of the packet. */
#define dwell_context_vlan(skb) ((skb)->vlan_present ? (skb)->vlan_tci : 0)

/* Makes headers readable that lie beyond the linear part. This may move bytes, but changes none. */
#define DWELL_LINEARIZE(skb)                                                                                           \
	((skb)->len > (skb)->data_end - (skb)->data && !bpf_skb_pull_data(skb, (skb)->len < 256 ? (skb)->len : 256))
