/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The connections that send a server most of its packets. */
#ifndef DWELL_LB_HEAVY_TYPES_H
#define DWELL_LB_HEAVY_TYPES_H

#include "base/events.h"

#define DWELL_HEAVY_MAX 32 /* entries of a server: a multiple of 4 */

struct dwell_heavy_config {
	__u32 most;     /* entries in use, up to DWELL_HEAVY_MAX */
	__u32 interval; /* packets; the window is this interval and the one before */
	__u32 top;      /* of the entries so many are heavy, those with most packets */
	__u32 reserved;
};

struct dwell_heavy_client {
	struct dwell_address address;
	__u16 port; /* host order */
	__u16 reserved[3];
};

/* Of one server. All zero is an empty one. */
struct dwell_heavy {
	__u64 tags[DWELL_HEAVY_MAX / 4]; /* 16 bits of the address's hash each, 0 is free */
	__u32 lock;
	__u32 packets;                 /* of this interval */
	__u32 least;                   /* no count in the window is less, if there is no free server */
	__u32 turned;                  /* an interval is over */
	__u32 count[DWELL_HEAVY_MAX];  /* in this interval */
	__u32 before[DWELL_HEAVY_MAX]; /* in the one before */
	struct dwell_heavy_client client[DWELL_HEAVY_MAX];
};

#endif
