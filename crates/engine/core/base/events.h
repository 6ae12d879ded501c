/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that kernel and user space share. They have fixed width, no holes, and units in their names: user space decodes
 * them from bytes.
 */
#ifndef DWELL_BASE_EVENTS_H
#define DWELL_BASE_EVENTS_H

#include <linux/types.h>

/* An address in network byte order. IPv4 is written as ::ffff:a.b.c.d. */
struct dwell_address {
	__u64 high;
	__u64 low;
};

/* The key of a flow, the same for both directions: `a` is the lower endpoint. Ports are in host byte order; for ICMP
 * both hold the echo identifier. The protocol belongs to the key but is stored elsewhere.
 */
struct dwell_flow_key {
	struct dwell_address a;
	struct dwell_address b;
	__u16 a_port;
	__u16 b_port;
	union {
		__u32 interface; /* the interface that its packets cross */
		__u32 attempt_id; /* at a balancer: hash of the connection ID that a QUIC client chose for a new connection; else 0 */
	};
};

/* What identifies the packets of a flow. Identifiers are stored in the ports, which such packets do not have. */
enum dwell_key_kind {
	DWELL_KEY_AUTO, /* the most specific kind below that the packet has */
	DWELL_KEY_5TUPLE,
	DWELL_KEY_IP_PAIR,   /* addresses and protocol: fragments, unknown transports */
	DWELL_KEY_ESP,       /* security parameter index */
	DWELL_KEY_WIREGUARD, /* receiver index */
	DWELL_KEY_QUIC_CID,  /* destination connection ID */
	DWELL_KEY_OUTER,     /* addresses of the outermost IP header */
};

enum dwell_method {
	DWELL_TCP_TIMESTAMP,
	DWELL_TCP_SEQ,
	DWELL_ICMP,
	DWELL_ICMPV6,
	DWELL_DNS,
	DWELL_QUIC_SPIN,
	DWELL_QUIC_SPIN_LOOP,
	DWELL_QUIC_HANDSHAKE,
	DWELL_METHODS,
};

enum dwell_event_type {
	DWELL_EVENT_SAMPLE,
	DWELL_EVENT_FLOW,
	DWELL_EVENT_RESPONSE,
};

enum dwell_flow_change {
	DWELL_FLOW_OPEN,
	DWELL_FLOW_FIRST_RTT,
	DWELL_FLOW_CLOSE,
};

enum dwell_close_reason {
	DWELL_CLOSE_NONE,
	DWELL_CLOSE_FIN,
	DWELL_CLOSE_RST,
	DWELL_CLOSE_IDLE,     /* no packet for the idle timeout */
	DWELL_CLOSE_ANSWERED, /* DNS: made room after its answer */
	DWELL_CLOSE_EVICTED,  /* never answered, made room for another flow */
	DWELL_CLOSE_END,      /* the run or the capture ended */
	DWELL_CLOSE_REUSED,   /* TCP: another connection began under its addresses and ports, and no end had passed */
};

/* What has passed since the last sample of the same flow and side: of the packets to the side that answered, and of
 * those from it. All but `received` and `ce` are 0 if the flow is not TCP.
 */
struct dwell_path_counts {
	__u32 sent;          /* segments with data to the side */
	__u32 retransmitted; /* of these, segments that had passed before */
	__u32 received;      /* packets from the side */
	__u32 late;          /* of these, segments that filled a hole: retransmitted after a loss, or reordered */
	__u32 ce;            /* of these, packets that a router has marked with CE (RFC 3168) */
};

/* Ports below this belong to servers: Linux gives clients none of them by default. */
#define DWELL_EPHEMERAL_PORT 32768

#define DWELL_SAMPLE_HANDSHAKE 1 /* SYN and SYN-ACK, or QUIC Initial */
#define DWELL_SAMPLE_OF_CLIENT 2 /* `src` is the client, as the packets show that opened the flow */
#define DWELL_SAMPLE_OF_SERVER 4 /* `src` is the server; neither bit: unknown */

/* One latency: a packet of `src` passed, then the answer of `dst`. */
struct dwell_rtt_sample {
	__u8 event;  /* DWELL_EVENT_SAMPLE */
	__u8 method; /* enum dwell_method */
	__u8 proto;
	__u8 flags; /* DWELL_SAMPLE_* */
	__u32 interface;
	__u64 time_ns;
	__u64 rtt_ns;
	__u64 min_rtt_ns; /* of this flow towards dst, including this sample */
	__u64 base_ns;    /* the least in a window of time */
	struct dwell_address src;
	struct dwell_address dst;
	__u16 src_port;
	__u16 dst_port;
	struct dwell_path_counts path;
	__u32 tunnel; /* what encloses the flow (parse/walk.h) */
	__u32 reserved;
	__u64 packets; /* of the flow so far, in both directions */
	__u64 bytes;
};

/* A flow has opened, had its first round trip, or closed. `src` is the endpoint that sent its first packet. */
struct dwell_flow_event {
	__u8 event;  /* DWELL_EVENT_FLOW */
	__u8 change; /* enum dwell_flow_change */
	__u8 proto;
	__u8 detail; /* of a close enum dwell_close_reason; of a first RTT enum dwell_method */
	__u32 interface;
	__u64 time_ns;
	__u64 rtt_ns;   /* DWELL_FLOW_FIRST_RTT only */
	__u64 first_ns; /* time of the flow's first packet */
	struct dwell_address src;
	struct dwell_address dst;
	__u16 src_port;
	__u16 dst_port;
	__u32 samples;
	__u64 packets;
	__u64 bytes;
	__u64 data; /* TCP segments with data; this and the next three as in dwell_path_counts, in both directions */
	__u32 retransmitted;
	__u32 late;
	__u32 ce;
	__u32 tunnel;
	__u32 client; /* DWELL_SAMPLE_OF_CLIENT or _SERVER; 0: unknown */
	__u32 reserved;
};

/* What is counted: reasons for which a packet, a flow or a match was not used, and totals. */
enum dwell_counter {
	DWELL_SEEN_PACKETS,
	DWELL_SEEN_BYTES,
	DWELL_SKIP_NOT_IP,
	DWELL_SKIP_PROTOCOL,  /* no matcher knows the protocol */
	DWELL_SKIP_TRUNCATED, /* a header is cut off */
	DWELL_SKIP_MALFORMED, /* a length contradicts itself */
	DWELL_SKIP_FRAGMENT,
	DWELL_SKIP_DEPTH, /* too many nested headers */
	DWELL_SKIP_FILTERED,
	DWELL_SKIP_LINK,   /* unknown link type */
	DWELL_SKIP_SERVER, /* response: a server's packet, which is not measured */
	DWELL_SKIP_STRAY,  /* of no known flow and unable to open one, such as an answer without a request */
	DWELL_SKIP_BRIEF,  /* response: of an epoch that shows nothing, and has no record */
	DWELL_FLOWS_OPENED,
	DWELL_FLOWS_EVICTED,   /* closed before their idle timeout */
	DWELL_FLOWS_EXPIRED,   /* closed after their idle timeout */
	DWELL_FLOWS_UNTRACKED, /* packets whose flow found no slot */
	DWELL_FLOWS_CONTENDED, /* packets whose flow found no slot because two CPUs wanted it */
	DWELL_SLOTS_FREED,     /* by eviction, expiry, the sweep, or a new flow in place of one that is over */
	DWELL_STAMPS_MADE,
	DWELL_STAMPS_OVERWRITTEN, /* replaced by another stamp within 1 s */
	DWELL_SAMPLES,
	DWELL_EVENTS_LOST,       /* samples and flow events that the ring buffer had no room for */
	DWELL_REJECT_AMBIGUOUS,  /* Karn's rule: the packet was retransmitted, or follows a hole */
	DWELL_REJECT_SPIN_EARLY, /* the edge follows the last one too soon: reordering */
	DWELL_REJECT_SPIN_ORDER, /* edges of the two sides do not alternate */
	DWELL_REJECT_BACKWARDS,  /* the answer is older than the packet */
	DWELL_AGGREGATE_OTHER,   /* samples whose prefix has no group */
	DWELL_GROUPS_FREED,      /* groups that were without samples for long; user space counts them */
	DWELL_COUNTERS,
};

struct dwell_counters {
	__u64 value[DWELL_COUNTERS];
};

/* A protocol, and a range of addresses and of ports. A flow matches if it is of the protocol and one of its ends lies in
 * both ranges.
 */
struct dwell_filter_rule {
	struct dwell_address address;
	struct dwell_address mask;
	__u16 port_low;
	__u16 port_high;
	__u8 flags;  /* DWELL_RULE_* */
	__u8 family; /* 4, 6, or 0 for both, as ::/0 would include IPv4 */
	__u8 proto;  /* IPPROTO_*, DWELL_RULE_PORTS, or 0 for all */
	__u8 reserved;
};

#define DWELL_RULE_PORTS 255 /* in `proto`: TCP or UDP */

#define DWELL_RULE_NEGATED 1  /* flows that do not match, instead of those that do */
#define DWELL_RULE_JOINED 2   /* the next rule must hold too */
#define DWELL_RULE_EXCLUDES 4 /* flows for which this rule, with those that are joined to it, holds are left out */

#define DWELL_FILTER_RULES 16

struct dwell_filter {
	__u32 rules;   /* entries of rule[] in use */
	__u8 includes; /* at least one rule does not exclude */
	__u8 reserved[3];
	struct dwell_filter_rule rule[DWELL_FILTER_RULES];
};

struct dwell_table_config {
	__u64 idle_timeout_ns;
	__u64 seed;        /* seed of the flow hash */
	__u32 bucket_mask; /* number of buckets - 1 */
	__u32 slots;       /* number of slots: at most that of ways, of which there is a power of two */
	struct dwell_filter filter;
};

struct dwell_rtt_config {
	struct dwell_table_config table;
	__u64 rate_limit_ns; /* least time between two stamps of a flow's direction */
	__u64 spin_floor_ns; /* spin edges closer together than this are rejected */
	__u32 rtt_rate_q8;   /* rate limit as a multiple of the flow's RTT, with 8 fractional bits; 0: off */
	__u32 methods;       /* bit (1 << enum dwell_method) for each method in use */
	__u32 stamp_mask;    /* number of stamps - 1 */
	__u8 include_handshake;
	__u8 stamp_acks; /* stamp pure ACKs as well */
	__u8 flow_events;
	__u8 tcp_auto;       /* choose between the two methods for TCP, per flow and direction (rtt/tcp_auto.h) */
	__u8 ignore_tunnels; /* tell no flows apart by what encloses them */
	__u8 reserved[7];
};

#endif
