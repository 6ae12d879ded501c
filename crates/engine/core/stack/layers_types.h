/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What `dwell stack` shares between kernel and user space: layers, segments
 * between them, and its configuration.
 */
#ifndef DWELL_STACK_LAYERS_TYPES_H
#define DWELL_STACK_LAYERS_TYPES_H

#include "base/base.h"
#include "base/events.h"
#include "base/histogram.h"

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

/* What the time between two layers is counted as. Of bytes that TCP sent again, or that
 * came again, DWELL_SEGMENTS more.
 */
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
	DWELL_TX_UNBEGUN,   /* reached the driver; the first stamp was missing */
	DWELL_RX_UNBEGUN,   /* read; the first stamps were missing */
	DWELL_TX_AGAIN,     /* reached the driver only after TCP had sent it again */
	DWELL_RX_AGAIN,     /* came again before TCP took it */
	DWELL_TX_DISPLACED, /* had not reached the driver when another byte took the row */
	DWELL_RX_DISPLACED, /* had not been read then */
	DWELL_RX_UNWALKED,  /* times at which more was read at once than is looked at */
	DWELL_TRACES_LOST,  /* went all the way; no room to tell of it */
	DWELL_FLOWS_LOST,   /* the same, of a flow that there was no room for */
	DWELL_MISSED,       /* and on: a layer's stamp was missing */
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
	__u32 part; /* of a flow's entry: see below; else 0 */
};

/* One byte that went all the way down, or all the way up; or a copy of it that TCP
 * sent when it had sent it before.
 */
struct dwell_byte_trace {
	struct dwell_stack_ends ends;
	__u32 seq;  /* the byte's sequence number */
	__u8 up;    /* 1 if it was read, 0 if it was sent */
	__u8 sent;  /* down: how often TCP had sent it, to 255 */
	__u8 again; /* down: a copy, or held one back; up: came again before TCP took it */
	__u8 reserved;
	__u64 stamp_ns[DWELL_LAYERS]; /* of its side; 0 if missing */
};

/* What all CPUs have counted for one flow and segment. Buckets are those of a
 * histogram, eight taken together: 12.5 % wide. The first one is all below 256 ns, the
 * last one all from 11 s on.
 */
#define DWELL_COARSE_SHIFT 3
#define DWELL_COARSE_SKIPPED 23 /* so many more are in the first */
#define DWELL_COARSE_BUCKETS 204

struct dwell_flow_segment {
	__u64 count;
	__u64 sum_ns;
	__u64 max_ns; /* may miss one that came at the same moment as another */
	__u32 bucket[DWELL_COARSE_BUCKETS];
};

/* A flow's entry is of one side, and of what one generation of it counted: both are in
 * its key. What is unexplained is of no flow.
 */
#define DWELL_PART_UP 1
#define DWELL_PART_GENERATION 2
#define DWELL_FLOW_SEGMENTS 6

struct dwell_flow_segments {
	struct dwell_flow_segment segment[DWELL_FLOW_SEGMENTS];
};

/* Where a packet is at a device: before its queueing discipline, given to its driver,
 * or taken from it.
 */
enum dwell_stack_point {
	DWELL_POINT_QUEUE,
	DWELL_POINT_OUT,
	DWELL_POINT_IN,
};

struct dwell_device_point {
	__u32 netns;  /* the network namespace's number */
	__u32 device; /* its number in it */
	__u32 point;
	__u32 reserved; /* 0 */
};

/* From one device to the next, on a way that begins at the first. */
struct dwell_stack_hop {
	struct dwell_device_point origin;
	struct dwell_device_point from;
	struct dwell_device_point to;
	__u64 generation;
};

struct dwell_stack_hop_time {
	__u64 since_ns; /* from the origin to here, summed up */
	struct dwell_flow_segment took;
};

/* Whose flows are followed. */
#define DWELL_CHOSEN_PROCESS 1
#define DWELL_CHOSEN_CGROUP 2

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
	__u8 traces;      /* tell of each byte */
	__u8 again;       /* count what TCP sent again, apart from the rest */
	__u64 pace_ns;    /* a byte of a flow in such a time; 0 for all on the grid */
	__u64 pidns_dev;  /* of the PID namespace that process numbers are of */
	__u64 pidns_ino;
	__u8 chosen; /* by whose flows are followed: a bit each, 0 for all */
	__u8 reserved[7];
};

#endif
