/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A backend's end of the tunnel for user space: tests and fuzzing. The caller owns the memory. */
#ifndef DWELL_LB_DECAP_NATIVE_H
#define DWELL_LB_DECAP_NATIVE_H

#include "base/aggregate.h"
#include "lb/balance_types.h"

struct dwell_tunnel_end {
	struct dwell_decap_program program;
	struct dwell_decap_counters counters;
	const struct dwell_address *own; /* where tunnels may end */
	const struct dwell_prefix *vips;
	const struct dwell_prefix *senders;
	const struct dwell_prefix *backends; /* to which packets may be sent on */
	const struct dwell_real *hops;       /* the paths to some of them */
	__u32 own_count, vip_count, sender_count, backend_count, hop_count;
	__u32 owns; /* connections are this host's */
};

/* Unwraps one frame of `*bytes` at `data`, in place. Afterwards it begins at the returned offset and has `*bytes`.
 * `decap` becomes an enum dwell_decap; the frame of a packet that is dropped has no meaning.
 */
__u32 dwell_decap_packet(struct dwell_tunnel_end *tunnel_end, void *data, __u32 *bytes, __u32 *decap);

/* Returns true for an address towards which nothing is unwrapped, whatever is listed. */
int dwell_decap_is_special(struct dwell_address address);

#endif
