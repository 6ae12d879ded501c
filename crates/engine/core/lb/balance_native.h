/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The balancer for user space: simulation, tests, fuzzing. The caller owns the
 * memory.
 */
#ifndef DWELL_LB_BALANCE_NATIVE_H
#define DWELL_LB_BALANCE_NATIVE_H

#include "lb/balance_types.h"
#include "response/slot_native.h"

struct dwell_named_vip {
	struct dwell_vip_key key;
	struct dwell_vip vip;
};

struct dwell_zero_named_server {
	struct dwell_zero_name name;
	__u32 server; /* plus 1 */
};

struct dwell_balancer {
	struct dwell_slots slots; /* first: what is a table's embedder is one of these */
	struct dwell_balance_config config;
	__u64 reason[DWELL_REASONS];
	const struct dwell_named_vip *vips;
	const struct dwell_real *reals; /* by number, from 0 */
	const __u32 *const *tables;     /* by the VIP's number; as long as the VIP says */
	__u32 vip_count, real_count, table_count, reserved;
	/* VIPs of QUIC, by slot */
	struct dwell_zero_state zero_state;
	__u64 zero[DWELL_ZERO_COUNTERS];
	struct dwell_zero_work zero_work;
	const struct dwell_zero_vip *zero_vips;
	const struct dwell_zero_ids *zero_ids;
	struct dwell_zero_loads *zero_loads;
	struct dwell_heavy *heavies; /* by number */
	const __u32 *zero_servers;   /* plus 1, by the number of the real */
	const struct dwell_zero_named_server *zero_names;
	struct dwell_cid_entry *cids; /* config.cid_mask + 2 */
	__u32 zero_slots, heavy_count, zero_server_count, zero_name_count;
	__u64 now_ns;
	__u32 random; /* the next; the same each time */
	__u32 reserved2;
};

/* Bytes that a frame needs in front of it, at most. */
#define DWELL_BALANCE_HEADROOM 64

/* One frame: `bytes` at `data`, with headroom before. Its first byte is at the
 * offset returned from `data - DWELL_BALANCE_HEADROOM` afterwards, and it has
 * `*bytes` of them. With `dry_run` no table and no count changes. Epochs that ended
 * are in slots.event[0..slots.events].
 */
__u32 dwell_balance_packet(struct dwell_balancer *balancer, void *data, __u32 *bytes, __u32 ingress, __u64 time_ns,
			   int dry_run, struct dwell_decision *decision);

/* The address's bit in struct dwell_vip_filter. */
__u32 dwell_balance_vip_filter_bit(struct dwell_address address);
/* That of an address and a port in struct dwell_zero_state. */
__u32 dwell_balance_zero_bit(struct dwell_address address, __u16 port);

#endif
