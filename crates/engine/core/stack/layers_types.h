/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of `dwell stack` that kernel and user space share: layers, segments between them, and the configuration. */
#ifndef DWELL_STACK_LAYERS_TYPES_H
#define DWELL_STACK_LAYERS_TYPES_H

#include "base/base.h"
#include "base/events.h"
#include "base/histogram.h"

/* Where a byte is stamped, in the order in which it passes them. */
enum dwell_stack_layer {
	DWELL_TX_SOCKET, /* copied from the application into the socket's queue */
	DWELL_TX_TCP,    /* handed to IP by TCP */
	DWELL_TX_IP,     /* left IP */
	DWELL_TX_QUEUE,  /* at the queueing discipline of the device */
	DWELL_TX_DRIVER, /* handed to the driver */
	DWELL_RX_DRIVER, /* received from the driver */
	DWELL_RX_IP,     /* received by IP */
	DWELL_RX_TCP,    /* received by TCP */
	DWELL_RX_READY,  /* in order: the application may read it */
	DWELL_RX_SOCKET, /* read by the application */
	DWELL_LAYERS,
};

/* What the time between two layers is counted as; for bytes that TCP sent again, or that arrived again, plus
 * DWELL_SEGMENTS.
 */
enum dwell_stack_segment {
	DWELL_SOCKET_TCP,
	DWELL_TCP_IP,
	DWELL_IP_DRIVER,
	DWELL_QUEUEING, /* part of DWELL_IP_DRIVER */
	DWELL_TX_TOTAL,
	DWELL_TX_UNEXPLAINED,
	DWELL_DRIVER_IP,
	DWELL_IP_TCP,
	DWELL_TCP_SOCKET,
	DWELL_REORDERING,  /* part of DWELL_TCP_SOCKET */
	DWELL_APPLICATION, /* the other part of DWELL_TCP_SOCKET */
	DWELL_RX_TOTAL,
	DWELL_RX_UNEXPLAINED,
	DWELL_SEGMENTS,
};

enum dwell_stack_counter {
	DWELL_TX_UNBEGUN,   /* reached the driver without the first stamp */
	DWELL_RX_UNBEGUN,   /* was read without the first stamps */
	DWELL_TX_AGAIN,     /* reached the driver only after TCP had sent it again */
	DWELL_RX_AGAIN,     /* arrived again before TCP took it */
	DWELL_TX_DISPLACED, /* had not reached the driver when another byte reused the row */
	DWELL_RX_DISPLACED, /* had not been read when another byte reused the row */
	DWELL_RX_UNWALKED,  /* reads of more bytes than a walk covers */
	DWELL_TRACES_LOST,  /* traces that found no room */
	DWELL_FLOWS_LOST,   /* bytes of flows that found no room */
	DWELL_MISSED,       /* first of one counter per layer whose stamp was missing */
	DWELL_STACK_COUNTERS = DWELL_MISSED + DWELL_LAYERS,
};

struct dwell_stack_counters {
	__u64 value[DWELL_STACK_COUNTERS];
};

/* Sender and receiver of bytes. Ports are in host byte order. */
struct dwell_stack_ends {
	struct dwell_address src;
	struct dwell_address dst;
	__u16 sport;
	__u16 dport;
	__u32 part;  /* in the key of a flow's entry: DWELL_PART_*; else 0 */
	__u32 netns; /* number of the network namespace that they are of; 0 where a byte passes several */
	__u32 reserved;
};

/* The initial sequence numbers of a connection (RFC 9293, 3.4.1): of the end that sends, and of the end that receives.
 * Both hosts know them, also where addresses are translated between them. Both are 0 where they are not known.
 */
struct dwell_isns {
	__u32 src;
	__u32 dst;
};

/* The trace of one byte that was sent or received; or of a copy that TCP sent again. */
struct dwell_byte_trace {
	struct dwell_stack_ends ends;
	__u32 seq; /* the byte's sequence number */
	__u8 up;   /* 1 if it was read, 0 if it was sent */
	__u8 sent; /* if sent: how often TCP had sent it, up to 255 */
	__u8 again; /* if sent: a copy, or one that held another back; if received: it arrived again before TCP took it */
	__u8 reserved;
	struct dwell_isns isns;
	__u64 stamp_ns[DWELL_LAYERS]; /* of its direction; 0 if missing */
};

/* What all CPUs counted for one flow and segment. Each bucket joins eight of a histogram: 12.5 % wide. The first holds
 * all below 256 ns, the last all from 11 s on.
 */
#define DWELL_COARSE_SHIFT 3
#define DWELL_COARSE_SKIPPED 23 /* buckets that the first one holds in addition */
#define DWELL_COARSE_BUCKETS 204

struct dwell_flow_segment {
	__u64 count;
	__u64 sum_ns;
	__u64 max_ns; /* may miss a value that came at the same moment as another */
	__u32 bucket[DWELL_COARSE_BUCKETS];
};

/* The entry of a flow holds one direction, and one generation: both are in its key. Unexplained time is counted for no
 * flow.
 */
#define DWELL_PART_UP 1
#define DWELL_PART_GENERATION 2
#define DWELL_FLOW_SEGMENTS 6

struct dwell_flow_segments {
	struct dwell_flow_segment segment[DWELL_FLOW_SEGMENTS];
};

/* Where at a device a packet is: before its queueing discipline, handed to its driver, or received from it. */
enum dwell_stack_point {
	DWELL_POINT_QUEUE,
	DWELL_POINT_OUT,
	DWELL_POINT_IN,
};

struct dwell_device_point {
	__u32 netns;  /* number of the network namespace */
	__u32 device; /* number of the device in it */
	__u32 point;
	__u32 reserved; /* 0 */
};

/* A hop from one device to the next, of a byte that was first seen at the origin. */
struct dwell_stack_hop {
	struct dwell_device_point origin;
	struct dwell_device_point from;
	struct dwell_device_point to;
	__u64 generation;
};

struct dwell_stack_hop_time {
	__u64 since_ns; /* sum of the times from the origin to here */
	struct dwell_flow_segment took;
};

/* What selects the flows to follow. */
#define DWELL_CHOSEN_PROCESS 1
#define DWELL_CHOSEN_CGROUP 2

/* Configuration of the programs, written before they are loaded. */
struct dwell_stack_program {
	struct dwell_filter filter;
	__u64 seed;
	__u32 netns;      /* number of the network namespace that is observed; 0 for all */
	__u32 row_mask;   /* number of rows - 1; a power of two minus 1 */
	__u32 cycle_mask; /* rows that one flow may use - 1; see stack/layers.h */
	__u32 hooked;     /* a bit for each layer that is stamped */
	__u16 port;       /* one endpoint has this port; 0 for any */
	__u8 shift;       /* each 2^shift-th byte is stamped: 6 to 24 */
	__u8 tx_first;    /* the first layer that is stamped of sent bytes */
	__u8 rx_first;    /* and of received bytes: totals begin there */
	__u8 flows;       /* also count each flow */
	__u8 traces;      /* report each byte trace */
	__u8 again;       /* count bytes that TCP sent again, apart from the rest */
	__u64 pace_ns;    /* time between two traced bytes of a flow; 0 for all on the sampling grid */
	__u64 pidns_dev;  /* PID namespace of the process numbers */
	__u64 pidns_ino;
	__u8 chosen;      /* DWELL_CHOSEN_* bits; 0 for all flows */
	__u8 ip_at_queue; /* packets leave IP where a device queues them, which may be several devices in turn */
	__u8 reserved[6];
};

#endif
