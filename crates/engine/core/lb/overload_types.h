/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of the loads that servers report, as the balancer keeps them. */
#ifndef DWELL_LB_OVERLOAD_TYPES_H
#define DWELL_LB_OVERLOAD_TYPES_H

#include <linux/types.h>

#define DWELL_SERVERS_MAX 1024 /* servers of one VIP: a power of two */

#define DWELL_SERVER_OUT 1  /* down or left: gets no new connections */
#define DWELL_SERVER_LEFT 2 /* drained or removed: another one may have its sessions */

/* The newest report of a server. A stamp is freshness << 16 | load code; the freshness is Unix seconds << 16, plus a
 * number that keeps it rising within a second.
 */
struct dwell_server_load {
	__u64 stamp;
	__u32 seen_s; /* when it arrived, in seconds of any clock */
	__u32 flags;  /* DWELL_SERVER_* */
};

struct dwell_overload_config {
	__u64 margin_ns;  /* alpha times the mean RTT: the least that a detour must save */
	__u32 percentile; /* in 1/1000 */
	__u32 stale_s;    /* age after which a report is stale; 0: never */
	__u32 slack_s;    /* most by which clocks may differ */
	__u32 reserved;
};

/* What became of a report. */
enum dwell_load_result {
	DWELL_LOAD_ACCEPTED,
	DWELL_LOAD_NOT_NEWER, /* not newer than the known one */
	DWELL_LOAD_FUTURE,    /* made in the future: refused */
	DWELL_LOAD_STALE,     /* too old to say anything: refused */
};

#endif
