/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of heavy hitters: the connections that send a server most of its packets. */
#ifndef DWELL_LB_HEAVY_TYPES_H
#define DWELL_LB_HEAVY_TYPES_H

#include "base/events.h"

#define DWELL_HEAVY_MAX 32 /* entries per server: a multiple of 4 */

struct dwell_heavy_config {
	__u32 most;     /* entries in use, up to DWELL_HEAVY_MAX */
	__u32 interval; /* packets per interval; the window is this interval and the one before */
	__u32 top;      /* number of entries that count as heavy: those with most packets */
	__u32 reserved;
};

struct dwell_heavy_client {
	struct dwell_address address;
	__u16 port; /* host order */
	__u16 reserved[3];
};

/* The heavy hitters of one server. All zero is an empty table. */
struct dwell_heavy {
	__u64 tags[DWELL_HEAVY_MAX / 4]; /* 16 bits of hash per entry; 0: free */
	__u32 lock;
	__u32 packets;                 /* packets in this interval */
	__u32 least;                   /* lower bound of the counts in the window, if no entry is free */
	__u32 turned;                  /* an interval has ended */
	__u32 count[DWELL_HEAVY_MAX];  /* packets in this interval */
	__u32 before[DWELL_HEAVY_MAX]; /* packets in the interval before */
	struct dwell_heavy_client client[DWELL_HEAVY_MAX];
};

#endif
