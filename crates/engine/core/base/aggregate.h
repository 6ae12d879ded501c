/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DWELL_BASE_AGGREGATE_H
#define DWELL_BASE_AGGREGATE_H

#include "base/events.h"

/* What samples of one histogram have in common; the prefix is that of the side that answered. */
struct dwell_group_key {
	struct dwell_address prefix;
	__u32 interface;
	__u8 method;
	__u8 reserved[3];
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
	__u8 reserved[1];
};

#endif
