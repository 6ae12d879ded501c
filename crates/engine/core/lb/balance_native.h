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
	__u32 server; /* index plus 1 */
};

struct dwell_balancer {
	struct dwell_slots slots; /* first, as the embedder of a table is a struct dwell_slots */
	struct dwell_balance_config config;
	__u64 reason[DWELL_REASONS];
	struct dwell_budget budgets[DWELL_BUDGETS];
	struct dwell_heartbeat heartbeat;
	const struct dwell_named_vip *vips;
	const struct dwell_real *reals; /* by number, from 0; number 0 is unused */
	__s64 *open;                    /* likewise */
	__u64 *actives;                 /* likewise, for dwell_balance_sweep() */
	struct dwell_pending *pending;  /* likewise */
	const __u32 *const *tables;     /* by the VIP's number, then those behind; each is as long as its VIP says */
	__u32 vip_count, real_count, table_count, reserved;
	/* VIPs of zero-rtt, by slot */
	struct dwell_zero_state zero_state;
	__u64 zero[DWELL_ZERO_COUNTERS];
	__u64 unfinished;
	struct dwell_opening *openings; /* DWELL_OPENINGS */
	struct dwell_zero_work zero_work;
	const struct dwell_zero_vip *zero_vips;
	const struct dwell_zero_ids *zero_ids;
	struct dwell_zero_loads *zero_loads;
	struct dwell_heavy *heavies;             /* by number */
	const struct dwell_heavy *other_heavies; /* likewise: as many */
	const __u32 *zero_servers;               /* index plus 1, by the number of the real */
	const struct dwell_zero_named_server *zero_names;
	struct dwell_cid_entry *cids; /* config.cid_mask + 2 entries */
	__u32 zero_slots, heavy_count, zero_server_count, zero_name_count;
	__u64 now_ns;
	__u32 random; /* next random number; each run has the same sequence */
	__u32 reserved2;
};

/* Most bytes that a frame needs in front of it. */
#define DWELL_BALANCE_HEADROOM 256

/* Balances one frame of `*bytes` at `data`, with headroom in front. Afterwards it begins at the returned offset from
 * `data - DWELL_BALANCE_HEADROOM` and has `*bytes`. With `dry_run` no table and no counter changes. Epochs that ended
 * are in slots.event[0..slots.events].
 */
__u32 dwell_balance_packet(struct dwell_balancer *balancer, void *data, __u32 *bytes, __u32 ingress, __u64 time_ns,
			   int dry_run, struct dwell_decision *decision);

/* Sweeps a bucket of the connection table, and adds what it finds to `actives` and `pending`. Epochs that ended are in
 * slots.event[0..slots.events].
 */
void dwell_balance_sweep(struct dwell_balancer *balancer, __u32 bucket, __u64 time_ns, __u32 reason);

/* Returns the bytes of a connection in the kernel's table, without its share of a bucket, and without the state that it has if it
 * is measured.
 */
__u32 dwell_balance_slot_bytes(void);
/* Returns an address's bit in struct dwell_vip_filter. */
__u32 dwell_balance_vip_filter_bit(struct dwell_address address);
/* Returns the entry of a Maglev table of this size that has the successor of a server. */
__u32 dwell_balance_successor(__u16 server_id, __u64 hash_seed, __u32 size);
/* Returns the bit of an address and a port in struct dwell_zero_state. */
__u32 dwell_balance_zero_bit(struct dwell_address address, __u16 port);

#endif
