/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What servers say of their load, as the balancer keeps it. */
#ifndef DWELL_LB_OVERLOAD_TYPES_H
#define DWELL_LB_OVERLOAD_TYPES_H

#include <linux/types.h>

#define DWELL_SERVERS_MAX 1024 /* of one VIP: a power of two */

#define DWELL_SERVER_OUT 1 /* down or drained: gets nothing new */

/* The newest that a server said. A stamp is freshness << 16 | load code; the
 * freshness is Unix seconds << 16 and what keeps it rising within a second.
 */
struct dwell_server_load {
	__u64 stamp;
	__u32 seen_s; /* when it came, in seconds of any clock */
	__u32 flags;  /* DWELL_SERVER_* */
};

struct dwell_overload_config {
	__u64 margin_ns;  /* alpha times the mean RTT: what a detour must gain */
	__u32 percentile; /* in 1/1000 */
	__u32 stale_s;    /* after so long nothing is known; 0: never */
	__u32 slack_s;    /* by which clocks may differ */
	__u32 reserved;
};

/* What became of a stamp. */
enum dwell_load_result {
	DWELL_LOAD_ACCEPTED,
	DWELL_LOAD_NOT_NEWER, /* not newer than what is known */
	DWELL_LOAD_FUTURE,    /* of a time that is still to come: refused */
	DWELL_LOAD_STALE,     /* so old that it says nothing: refused */
};

#endif
