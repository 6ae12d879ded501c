/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What keeps the unsent part of a socket's buffer short, kernel and user space alike. */
#ifndef DWELL_SOCKET_LOWAT_TYPES_H
#define DWELL_SOCKET_LOWAT_TYPES_H

#include "base/base.h"

/* Of a socket, between two looks. All zero at first. */
struct dwell_lowat {
	__u64 rate;  /* bytes a second, the highest of late */
	__u32 bytes; /* what TCP_NOTSENT_LOWAT should be */
	__u32 set;   /* what it is; 0: not set yet */
	__u32 raised_us;
	__u32 raised; /* 1: it was, and raised_us says when */
};

/* What a look shows. */
struct dwell_lowat_sample {
	__u64 rate;        /* bytes a second that were delivered last */
	__u32 mss;         /* bytes */
	__u32 app_limited; /* the buffer was empty while more could have left */
	__u32 target_us;
	__u32 rtt_us;   /* smoothed */
	__u32 queue_us; /* of that beyond the least: in the network's queues; 0: none, or not known */
	__u32 now_us;   /* modulo 2^32 */
};

/* What the program of a cgroup does. */
struct dwell_lowat_program {
	__u32 target_us;
	__u32 every_us;      /* between two looks at a socket */
	char congestion[16]; /* TCP_CONGESTION of connections; empty: as it is */
	__u32 lowat;         /* 0: only the congestion control is set */
	__u32 reserved;
};

enum dwell_lowat_counter {
	DWELL_LOWAT_CONNECTIONS,
	DWELL_LOWAT_SETTINGS,
	DWELL_LOWAT_REFUSED,    /* by the kernel */
	DWELL_LOWAT_CONGESTION, /* the kernel has no such one */
	DWELL_LOWAT_COUNTERS,
};

struct dwell_lowat_counters {
	__u64 value[DWELL_LOWAT_COUNTERS];
};

#endif
