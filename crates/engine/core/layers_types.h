/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What `dwell stack` shares between kernel and user space: layers, segments
 * between them, and its configuration.
 */
#ifndef DWELL_LAYERS_TYPES_H
#define DWELL_LAYERS_TYPES_H

#include "base.h"
#include "events.h"
#include "histogram.h"

/* Where a byte is stamped, in the order in which it passes. */
enum dwell_stack_layer {
	DWELL_TX_SOCKET, /* copied from the application into the socket's queue */
	DWELL_TX_TCP,    /* given to IP by TCP */
	DWELL_TX_IP,     /* left IP */
	DWELL_TX_QUEUE,  /* at the queueing discipline of the device */
	DWELL_TX_DRIVER, /* given to the driver */
	DWELL_RX_DRIVER, /* taken from the driver */
	DWELL_RX_IP,     /* taken by IP */
	DWELL_RX_TCP,    /* taken by TCP */
	DWELL_RX_READY,  /* in order: the application may read it */
	DWELL_RX_SOCKET, /* read by the application */
	DWELL_LAYERS,
};

/* What the time between two layers is counted as. */
enum dwell_stack_segment {
	DWELL_SOCKET_TCP,
	DWELL_TCP_IP,
	DWELL_IP_DRIVER,
	DWELL_QUEUEING, /* part of the one before */
	DWELL_TX_TOTAL,
	DWELL_TX_UNEXPLAINED,
	DWELL_DRIVER_IP,
	DWELL_IP_TCP,
	DWELL_TCP_SOCKET,
	DWELL_REORDERING,  /* part of the one before */
	DWELL_APPLICATION, /* the other part */
	DWELL_RX_TOTAL,
	DWELL_RX_UNEXPLAINED,
	DWELL_SEGMENTS,
};

enum dwell_stack_counter {
	DWELL_TX_UNBEGUN,    /* reached the driver; the first stamp was missing */
	DWELL_RX_UNBEGUN,    /* read; the first stamp was missing */
	DWELL_RETRANSMITTED, /* reached the driver after TCP had sent it again */
	DWELL_FLOWS_UNTOLD,  /* went all the way; of a flow that there was no room for */
	DWELL_MISSED,        /* and on: a layer's stamp was missing */
	DWELL_STACK_COUNTERS = DWELL_MISSED + DWELL_LAYERS,
};

struct dwell_stack_counters {
	__u64 value[DWELL_STACK_COUNTERS];
};

/* Who sends the bytes, and who gets them. Ports in host byte order. */
struct dwell_stack_ends {
	struct dwell_address src;
	struct dwell_address dst;
	__u16 sport;
	__u16 dport;
	__u32 reserved; /* 0 */
};

/* What all CPUs have counted for one flow and segment. Buckets are those of a
 * histogram, eight taken together: 12.5 % wide.
 */
#define DWELL_COARSE_SHIFT 3
#define DWELL_COARSE_BUCKETS (DWELL_BUCKETS >> DWELL_COARSE_SHIFT)

struct dwell_flow_segment {
	__u64 count;
	__u64 sum_ns;
	__u64 max_ns; /* may miss one that came at the same moment as another */
	__u32 bucket[DWELL_COARSE_BUCKETS];
};

struct dwell_flow_segments {
	struct dwell_flow_segment segment[DWELL_SEGMENTS];
};

/* What the programs are told at load. */
struct dwell_stack_program {
	struct dwell_filter filter;
	__u64 seed;
	__u32 netns;      /* number of the network namespace; 0 for all */
	__u32 row_mask;   /* rows - 1, a power of two less 1 */
	__u32 cycle_mask; /* rows that one flow may use - 1; see layers.h */
	__u32 hooked;     /* a bit for each layer that is stamped */
	__u16 port;       /* one of the ends has it; 0 for any */
	__u8 shift;       /* each 2^shift-th byte is stamped: 6 to 24 */
	__u8 tx_first;    /* the first layer that is stamped on the way down */
	__u8 rx_first;    /* and on the way up: totals begin there */
	__u8 flows;       /* count each flow by itself too */
	__u8 reserved[2];
};

#endif
