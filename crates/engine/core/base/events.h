/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types shared by kernel and user space. Fixed width, no holes, units in the
 * names: user space decodes them from bytes.
 */
#ifndef DWELL_BASE_EVENTS_H
#define DWELL_BASE_EVENTS_H

#include <linux/types.h>

/* IPv4 is written as ::ffff:a.b.c.d. Network byte order. */
struct dwell_address {
	__u64 high;
	__u64 low;
};

/* The same for both directions of a flow: `a` is the lower endpoint. Ports
 * are in host byte order; for ICMP both hold the echo identifier. The protocol
 * belongs to it, but is kept apart.
 */
struct dwell_flow_key {
	struct dwell_address a;
	struct dwell_address b;
	__u16 a_port;
	__u16 b_port;
	__u32 interface;
};

/* What tells the packets of a flow. The identifiers lie in the ports, of which
 * there are none then.
 */
enum dwell_key_kind {
	DWELL_KEY_AUTO, /* whatever the packet is: the most telling below */
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
};

#define DWELL_SAMPLE_HANDSHAKE 1 /* SYN and SYN-ACK, or QUIC Initial */

/* One latency: a packet of `src` was seen, then the answer of `dst`. */
struct dwell_rtt_sample {
	__u8 event;  /* DWELL_EVENT_SAMPLE */
	__u8 method; /* enum dwell_method */
	__u8 proto;
	__u8 flags; /* DWELL_SAMPLE_* */
	__u32 interface;
	__u64 time_ns;
	__u64 rtt_ns;
	__u64 min_rtt_ns; /* of this flow towards dst, this sample included */
	struct dwell_address src;
	struct dwell_address dst;
	__u16 src_port;
	__u16 dst_port;
	__u32 reserved;
	__u64 packets; /* of the flow so far, both directions */
	__u64 bytes;
};

/* src is the endpoint that sent the first packet seen. */
struct dwell_flow_event {
	__u8 event;  /* DWELL_EVENT_FLOW */
	__u8 change; /* enum dwell_flow_change */
	__u8 proto;
	__u8 detail; /* of a close enum dwell_close_reason, of a first RTT enum dwell_method */
	__u32 interface;
	__u64 time_ns;
	__u64 rtt_ns;   /* DWELL_FLOW_FIRST_RTT only */
	__u64 first_ns; /* time of the first packet seen */
	struct dwell_address src;
	struct dwell_address dst;
	__u16 src_port;
	__u16 dst_port;
	__u32 samples;
	__u64 packets;
	__u64 bytes;
};

/* Why a packet, a flow or a match was not used. A counter each. */
enum dwell_counter {
	DWELL_SEEN_PACKETS,
	DWELL_SEEN_BYTES,
	DWELL_SKIP_NOT_IP,
	DWELL_SKIP_PROTOCOL,  /* nothing that a matcher knows */
	DWELL_SKIP_TRUNCATED, /* a header is cut off */
	DWELL_SKIP_MALFORMED, /* a length contradicts itself */
	DWELL_SKIP_FRAGMENT,
	DWELL_SKIP_DEPTH, /* more nested headers than are looked through */
	DWELL_SKIP_FILTERED,
	DWELL_SKIP_LINK,   /* link type that is not known */
	DWELL_SKIP_SERVER, /* response: the server's, which tells nothing */
	DWELL_SKIP_STRAY,  /* of no flow that is known, and begins none: an answer to nothing seen */
	DWELL_FLOWS_OPENED,
	DWELL_FLOWS_EVICTED,   /* closed before their idle timeout */
	DWELL_FLOWS_EXPIRED,   /* closed after it */
	DWELL_FLOWS_UNTRACKED, /* packets without a place in the table */
	DWELL_FLOWS_CONTENDED, /* the same, as two CPUs wanted one place */
	DWELL_SLOTS_FREED,     /* by eviction, expiry, the sweep, or a new flow over one that is over */
	DWELL_STAMPS_MADE,
	DWELL_STAMPS_OVERWRITTEN, /* lost to another stamp, younger than 1 s */
	DWELL_SAMPLES,
	DWELL_EVENTS_LOST,       /* samples and flow events: the ring buffer was full */
	DWELL_REJECT_AMBIGUOUS,  /* Karn: retransmitted, or a hole before it */
	DWELL_REJECT_SPIN_EARLY, /* edge too soon after the last: reordering */
	DWELL_REJECT_SPIN_ORDER, /* edges of the two sides do not alternate */
	DWELL_REJECT_BACKWARDS,  /* the answer is older than the packet */
	DWELL_AGGREGATE_OTHER,   /* samples of prefixes without a group */
	DWELL_COUNTERS,
};

struct dwell_counters {
	__u64 value[DWELL_COUNTERS];
};

/* An address range and a port range; a flow matches if one of its endpoints
 * lies in both.
 */
struct dwell_filter_rule {
	struct dwell_address address;
	struct dwell_address mask;
	__u16 port_low;
	__u16 port_high;
	__u8 exclude;
	__u8 family; /* 4, 6, or 0 for both: ::/0 would hold IPv4 too */
	__u8 reserved[2];
};

#define DWELL_FILTER_RULES 16

struct dwell_filter {
	__u32 rules;   /* used entries of rule[] */
	__u8 includes; /* at least one rule is not exclude */
	__u8 reserved[3];
	struct dwell_filter_rule rule[DWELL_FILTER_RULES];
};

struct dwell_table_config {
	__u64 idle_timeout_ns;
	__u64 seed;        /* of the flow hash */
	__u32 bucket_mask; /* buckets of the flow table - 1 */
	__u32 reserved;
	struct dwell_filter filter;
};

struct dwell_rtt_config {
	struct dwell_table_config table;
	__u64 rate_limit_ns; /* least time between two stamps, a flow and direction */
	__u64 spin_floor_ns; /* spin edges closer than this are rejected */
	__u32 rtt_rate_q8;   /* rate limit as a multiple of the flow's RTT, 8 fractional bits; 0 off */
	__u32 methods;       /* bit (1 << enum dwell_method) */
	__u32 stamp_mask;    /* stamps - 1 */
	__u8 include_handshake;
	__u8 stamp_acks; /* stamp pure ACKs too */
	__u8 flow_events;
	__u8 reserved;
};

#endif
