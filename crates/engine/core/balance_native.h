/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The balancer for user space: simulation, tests, fuzzing. The caller owns the
 * memory.
 */
#ifndef DWELL_BALANCE_NATIVE_H
#define DWELL_BALANCE_NATIVE_H

#include "balance_types.h"
#include "seat_native.h"

struct dwell_named_vip {
	struct dwell_vip_key key;
	struct dwell_vip vip;
};

struct dwell_balancer {
	struct dwell_seats seats; /* first: what is a table's embedder is one of these */
	struct dwell_balance_config config;
	__u64 why[DWELL_WHYS];
	const struct dwell_named_vip *vips;
	const struct dwell_real *reals; /* by number, from 0 */
	const __u32 *const *tables;     /* by the VIP's number; as long as the VIP says */
	__u32 vip_count, real_count, table_count, reserved;
};

/* Bytes that a frame needs in front of it, at most. */
#define DWELL_BALANCE_HEADROOM 64

/* One frame: `bytes` at `data`, with headroom before. Its first byte is at the
 * offset returned from `data - DWELL_BALANCE_HEADROOM` afterwards, and it has
 * `*bytes` of them. With `asks` no table and no count changes. Epochs that ended
 * are in seats.event[0..seats.events].
 */
__u32 dwell_balance_packet(struct dwell_balancer *balancer, void *data, __u32 *bytes, __u32 ingress,
			   __u64 time_ns, int asks, struct dwell_decision *decision);

/* The address's bit in struct dwell_maybe. */
__u32 dwell_balance_maybe_bit(struct dwell_address address);

#endif
