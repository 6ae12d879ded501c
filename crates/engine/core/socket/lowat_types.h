/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of the control of a socket's unsent data, in the kernel and in user space. */
#ifndef DWELL_SOCKET_LOWAT_TYPES_H
#define DWELL_SOCKET_LOWAT_TYPES_H

#include "base/base.h"

/* State of one socket between two samples. Starts as all zero. */
struct dwell_lowat {
	__u64 rate;  /* bytes per second: the highest recent rate */
	__u32 bytes; /* what TCP_NOTSENT_LOWAT should be */
	__u32 set;   /* what it is set to; 0: not set yet */
	__u32 raised_us;
	__u32 raised; /* 1: it has been raised, at raised_us */
};

/* One sample of a socket. */
struct dwell_lowat_sample {
	__u64 rate;        /* bytes per second that were delivered last */
	__u32 mss;         /* bytes */
	__u32 app_limited; /* the buffer was empty although more could have left */
	__u32 target_us;
	__u32 rtt_us;   /* smoothed */
	__u32 queue_us; /* part of rtt_us beyond the least: queues in the network; 0: none, or unknown */
	__u32 now_us;   /* modulo 2^32 */
};

/* Configuration of the program of a cgroup. */
struct dwell_lowat_program {
	__u32 target_us;
	__u32 every_us;      /* time between two samples of a socket */
	char congestion[16]; /* TCP_CONGESTION of connections; empty: unchanged */
	__u32 lowat;         /* 0: only the congestion control is set */
	__u32 reserved;
};

enum dwell_lowat_counter {
	DWELL_LOWAT_CONNECTIONS,
	DWELL_LOWAT_SETTINGS,
	DWELL_LOWAT_REFUSED,    /* refused by the kernel */
	DWELL_LOWAT_CONGESTION, /* the kernel does not have this congestion control */
	DWELL_LOWAT_COUNTERS,
};

struct dwell_lowat_counters {
	__u64 value[DWELL_LOWAT_COUNTERS];
};

#endif
