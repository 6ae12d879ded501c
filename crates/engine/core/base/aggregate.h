/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DWELL_BASE_AGGREGATE_H
#define DWELL_BASE_AGGREGATE_H

#include "base/events.h"
#include "base/histogram.h"

/* What samples of one histogram have in common; the prefix is that of the side that answered. */
struct dwell_group_key {
	struct dwell_address prefix;
	__u32 interface;
	__u32 tunnel; /* what encloses the packets (parse/walk.h) */
	__u8 method;
	__u8 listed; /* length in bits of a listed prefix, of 128, plus one; 0: the prefix is not listed */
	__u8 reserved[6];
};

/* A prefix that the user has listed, in a trie for the longest match. */
struct dwell_prefix_key {
	__u32 bits; /* of 128: IPv4 is ::ffff:a.b.c.d */
	__u8 address[16];
};

struct dwell_prefix {
	struct dwell_address address;
	__u32 bits;
	__u32 reserved;
};

/* What one CPU counted for one group in one interval. */
struct dwell_group {
	struct dwell_histogram rtt;
	__u64 queue_sum_ns; /* of what the round trips are longer than their base */
	__u64 queue_max_ns;
	__u64 sent; /* this and the next four: sums of dwell_path_counts */
	__u64 retransmitted;
	__u64 received;
	__u64 late;
	__u64 ce;
};

/* Configuration of the RTT program, written before it is loaded. */
struct dwell_rtt_program {
	struct dwell_rtt_config config;
	struct dwell_address prefix6_mask;
	__u32 prefix4_mask; /* network byte order */
	__u32 max_groups;   /* at least 1: group 0 holds samples without a group of their own */
	__u32 jiffy_ns;     /* length of the kernel's tick; 0: unknown */
	__u8 report;        /* deliver each sample through the ring buffer */
	__u8 aggregate;     /* count samples in one histogram per group */
	__u8 replay;        /* packets bring their own time, as in a capture */
	__u8 prefixes;      /* there are listed prefixes */
};

#endif
