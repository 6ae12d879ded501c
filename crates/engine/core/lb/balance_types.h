/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of `dwell lb` that kernel and user space share: VIPs, reals (the backends behind them), and what became of
 * packets.
 */
#ifndef DWELL_LB_BALANCE_TYPES_H
#define DWELL_LB_BALANCE_TYPES_H

#include "base/events.h"
#include "lb/zero_rtt_types.h"

/* Version of the pinned maps, raised whenever those of another build would be misread. */
#define DWELL_BALANCE_LAYOUT 9

/* The key of a virtual address that clients connect to. Each address of a VIP also has an entry with the protocol ICMP
 * or ICMPv6 and port 0, whose number is 0.
 */
struct dwell_vip_key {
	struct dwell_address address;
	__u16 port; /* host order; 0: any */
	__u8 proto;
	__u8 reserved[5];
};

#define DWELL_VIP_MEASURE 1 /* response latency is estimated */
#define DWELL_VIP_QUIC 2    /* carries QUIC; routed as any UDP unless it has a zero_slot */
#define DWELL_VIP_SOURCE 4  /* new connections are selected by the client's address alone */
#define DWELL_VIP_NETWORK 8 /* with DWELL_VIP_SOURCE: only the first half of an IPv6 address counts */
/* The number of further candidates: the real among all candidates with the fewest open connections gets a new one. */
#define DWELL_VIP_CHOICES_SHIFT 4
#define DWELL_VIP_CHOICES 3
#define DWELL_VIP_SECOND 64 /* packets of unknown connections may go on to reals of other tables (lb/second.h) */
#define DWELL_VIP_LEAST 128 /* likewise of all reals in the VIP's list, where it has one: struct dwell_member */
/* With DWELL_VIP_MEASURE: of 2 to the power of so many connections one is measured. */
#define DWELL_VIP_SAMPLING_SHIFT 8
#define DWELL_VIP_SAMPLING 15

struct dwell_vip {
	__u32 number;    /* 1 to max_vips */
	__u32 size;      /* entries of its Maglev table; 0: no backend */
	__u32 flags;     /* DWELL_VIP_* */
	__u32 zero_slot; /* slot of its struct dwell_zero_vip: packets are routed by connection ID; 0: none */
};

enum dwell_forward {
	DWELL_FORWARD_NONE,
	DWELL_FORWARD_L2,   /* another destination MAC address, for reals on the same segment */
	DWELL_FORWARD_IPIP, /* RFC 2003, RFC 2473, RFC 4213: 4in4, 6in6, 6in4, 4in6 */
	DWELL_FORWARD_GUE,  /* UDP that carries IP without a header in between: GUE variant 1 */
};

#define DWELL_REAL_DOWN 1    /* connections that are not established are sent elsewhere */
#define DWELL_REAL_LEAVING 2 /* no longer wanted: silent connections are forgotten soon */
/* The sampling of its VIP: a measured connection that waits stands for 2 to the power of so many. */
#define DWELL_REAL_SAMPLING_SHIFT 4
#define DWELL_REAL_SAMPLING 15

/* How many reals are known that an entry of a VIP's table had most recently, that of now and the next one included. They
 * are in a table behind those of equal weights, as many in a row for each entry, so that all are replaced at once.
 */
#define DWELL_RECENT 4

/* One of the reals among which new connections of a VIP choose. The first of a list is not one: its `real` is the number of
 * those that follow. The list is in a table behind those of what entries had recently.
 */
struct dwell_member {
	__u32 real;
	__u32 weight; /* at least 1, relative to others of the list; at most 2^16 */
};
#define DWELL_MEMBERS 128    /* as many as a struct dwell_chunk holds */
#define DWELL_MEMBERS_KIND 3 /* behind the tables of each kind before */

/* To how many more reals a packet may go on from the first one. */
#define DWELL_CHANCES 3

/* A backend. */
struct dwell_real {
	struct dwell_address address;
	__u32 interface; /* where packets to it leave; 0: it cannot be reached */
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__u16 mtu;      /* path MTU to it: the largest IP packet, with outer headers */
	__u16 gue_port; /* host order */
	__u8 forward;   /* enum dwell_forward */
	__u8 flags;     /* DWELL_REAL_* */
	__u16 capacity; /* how many connections it takes, relative to other reals; 0 counts as 1 */
};

/* Bitmap of addresses that may be VIPs, by hash. It spares most packets to other addresses a look-up. */
#define DWELL_VIP_FILTER_BITS 65536
struct dwell_vip_filter {
	__u64 word[DWELL_VIP_FILTER_BITS / 64];
};

/* Part of a Maglev table: numbers of reals. When a table is written, the kernel handles each element on its own, which
 * costs as much as copying hundreds of entries.
 */
#define DWELL_CHUNK 256
struct dwell_chunk {
	__u32 real[DWELL_CHUNK];
};

/* What a VIP or a real was sent. Bytes are those of IP, without outer headers. */
struct dwell_load {
	__u64 packets;
	__u64 bytes;
	__u64 opened; /* connections that were entered into the table */
};

/* Beside an enum dwell_close_reason: the connection table has room, so that a sweep need not forget what is idle. */
#define DWELL_SWEEP_HAS_ROOM 0x100

/* Requests that wait for their answers, by age in octaves from 2^20 ns (1 ms) to 2^36: a younger one is in the first
 * element.
 */
#define DWELL_PENDING_LOGS 16
#define DWELL_PENDING_LOG_MIN 20
struct dwell_pending {
	__u32 count[DWELL_PENDING_LOGS];
	__u64 networks[DWELL_PENDING_LOGS]; /* their clients' networks: bit dwell_network() >> 58 */
};

struct dwell_balance_config {
	__u64 hash_seed;               /* seed of Maglev hashes: the same on all balancers of a VIP */
	struct dwell_address outer_v4; /* source of outer headers; the low 16 bits vary */
	struct dwell_address outer_v6; /* source of outer headers; the low 64 bits vary */
	__u32 active_coarse;           /* a connection without a packet for longer is not active; coarse units */
	__u32 cid_mask;                /* connection IDs that are cached, minus 1 */
	__u32 redirects_back;          /* frames leave the device where they arrived by a redirect, not by XDP_TX */
	__u32 max_vips;                /* distance between a VIP's tables */
	__u32 states;                  /* connections that are measured at the same time */
	__u32 reserved;
};

/* Frames that XDP programs gave to a device. */
struct dwell_transmit {
	__u64 taken;            /* by drivers that report it: those that send in bulk */
	__u64 refused_tx;       /* sent back by the program (XDP_TX) */
	__u64 refused_redirect; /* redirected to the device */
	__s32 error;            /* negative errno of the last refusal; 0: not reported */
	__u32 reserved;
};

/* Pinned with the maps, so that another process uses them as they were created. */
struct dwell_balance_layout {
	__u32 layout;     /* DWELL_BALANCE_LAYOUT */
	__u32 slot_bytes; /* of a slot and a state */
	__u64 table_seed;
	__u32 estimator;  /* enum dwell_estimator whose state the slots hold */
	__u32 chain_slot; /* slot that another program calls, plus 1; 0: none */
};

/* What became of a packet, and why. Each has a counter. */
enum dwell_reason {
	/* passed on to the next program or to this host */
	DWELL_REASON_NOT_IP,
	DWELL_REASON_NOT_VIP,
	/* sent to a real */
	DWELL_REASON_CONNECTION, /* to the real of its connection */
	DWELL_REASON_NEW,        /* by the VIP's Maglev table, and entered into the connection table */
	DWELL_REASON_FEWER,      /* as DWELL_REASON_NEW, but to another real that had fewer open connections */
	DWELL_REASON_FALLBACK,   /* as DWELL_REASON_NEW, for a connection that is under way but not known */
	DWELL_REASON_FULL,       /* by the Maglev table, as the connection table has no slot */
	DWELL_REASON_MOVED,      /* by the Maglev table, as its real is down or gone */
	DWELL_REASON_QUOTED,     /* an ICMP error, to the real of the packet that it quotes */
	DWELL_REASON_CID,        /* to the server that its connection ID names */
	DWELL_REASON_DIVERTED,   /* as DWELL_REASON_NEW, but to a less loaded server */
	DWELL_REASON_TOKEN,  /* as DWELL_REASON_NEW, but to the server that its token names, or that one's successor */
	DWELL_REASON_SECOND, /* as DWELL_REASON_FALLBACK, with further reals, and not entered into the table */
	/* answered */
	DWELL_REASON_PING,
	DWELL_REASON_TOO_BIG, /* by "fragmentation needed" or "packet too big" */
	/* dropped */
	DWELL_REASON_NO_BACKEND, /* the VIP has no backend */
	DWELL_REASON_NO_ROUTE,   /* the real cannot be reached */
	DWELL_REASON_TTL,        /* hop limit reached: a loop, or traceroute */
	DWELL_REASON_FRAGMENT,
	DWELL_REASON_MALFORMED,  /* cut off, or a length contradicts itself */
	DWELL_REASON_NO_ROOM,    /* the driver left no room for outer headers */
	DWELL_REASON_UNROUTABLE, /* a short header without a server's connection ID */
	DWELL_REASON_UNANSWERED, /* the answers of this second are spent, or its sender is no single host */
	DWELL_REASONS,
};

/* The control plane's sign of life. While it is stale, new connections are selected by tables of equal weights, if there
 * are any.
 */
struct dwell_heartbeat {
	__u64 renewed_ns; /* CLOCK_MONOTONIC; 0: never */
	__u32 stale_s;    /* stale if it is older */
	__u32 equal; /* distance from a VIP's table to its table of equal weights; 0: the ordinary one stays in use */
};

/* What has a budget per second and CPU (lb/budget.h). */
enum dwell_budget_kind {
	DWELL_BUDGET_PING,
	DWELL_BUDGET_TOO_BIG,
	DWELL_BUDGETS,
};

struct dwell_budget {
	__u32 second; /* in which `spent` counts */
	__u32 spent;
};

struct dwell_balance_counters {
	struct dwell_counters table;
	__u64 reason[DWELL_REASONS];
	__u64 zero[DWELL_ZERO_COUNTERS];
	__u64 unfinished; /* SYNs whose checksum was left to a device */
	__u64 unmeasured; /* connections that were to be measured and found no state */
};

/* What a backend's end of the tunnel did with a packet. Each has a counter. */
enum dwell_decap {
	/* passed on unchanged */
	DWELL_DECAP_OTHER,  /* not for this end */
	DWELL_DECAP_SENDER, /* its sender is not listed: the host may have a tunnel of its own to it */
	/* unwrapped */
	DWELL_DECAP_IPIP,
	DWELL_DECAP_GUE,
	DWELL_DECAP_MARKED, /* from either, and congestion on the path was marked in the inner packet */
	DWELL_DECAP_KEPT,   /* it might have gone on, but its connection is here */
	/* sent */
	DWELL_DECAP_SENT_ON, /* to the next real that may have its connection */
	/* dropped */
	DWELL_DECAP_CONGESTED, /* the inner packet cannot carry the congestion mark */
	DWELL_DECAP_MALFORMED, /* it does not match its lengths, or is not IP */
	DWELL_DECAP_SPECIAL,   /* its inner destination is loopback, link-local, multicast or the like */
	DWELL_DECAP_NOT_VIP,   /* its inner destination is not listed */
	DWELL_DECAP_NO_ROUTE,  /* its connection is not here, and the path to the next real is not known yet */
	DWELL_DECAPS,
};

struct dwell_decap_counters {
	__u64 value[DWELL_DECAPS];
};

struct dwell_decap_program {
	__u16 gue_port;      /* host order; 0: no GUE */
	__u8 sends_on;       /* packets may be sent on to other reals */
	__u8 redirects_back; /* as in struct dwell_balance_config */
	__u8 reserved[4];
};

enum dwell_verdict {
	DWELL_VERDICT_PASS,
	DWELL_VERDICT_DROP,
	DWELL_VERDICT_SEND, /* out of the interface where it arrived */
	DWELL_VERDICT_REDIRECT,
};

struct dwell_decision {
	__u32 real;   /* 0: none */
	__u32 vip;    /* 0: none */
	__u32 reason; /* enum dwell_reason */
	__u32 verdict;
	__u32 interface; /* where it leaves, if it does */
	__u32 size;      /* IP length when it leaves */
};

#endif
