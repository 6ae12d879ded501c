/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of a flow of `dwell rtt`.
 *
 * One direction's packets are expected on one CPU at a time, as RSS and RPS distribute them; the two directions may be
 * on two. So each field is written by packets of one direction only, and steps need no lock. Where both write (the spin
 * bit's turns, the count of samples, the close reason, a connection that starts again) they are a round trip apart;
 * should they meet, an increment or an edge is lost. Admission and the sweep take the bucket's lock, and give up rather
 * than wait; admission counts that.
 */
#ifndef DWELL_RTT_FLOW_H
#define DWELL_RTT_FLOW_H

#include "rtt/embed.h"
#include "table/table.h"

/* State of tcp-timestamp for one direction, written by its packets. */
struct dwell_tcp_ts_state {
	__u32 tsval; /* newest TSval of a packet that could be stamped */
	__u32 tsecr; /* newest echo that was handled */
};

/* Flags of one direction, written by its packets. */
#define DWELL_OWN_TSVAL 1   /* ts.tsval is set */
#define DWELL_OWN_STAMPED 2 /* stamped is set */
#define DWELL_OWN_TS_SYN 4  /* stamped is the SYN's */
#define DWELL_OWN_FIN 8

/* State of tcp-seq for one direction's data and the ACKs for it. */
struct dwell_tcp_seq_state {
	/* written by the data's packets */
	__u32 next_seq;   /* one past the highest byte seen */
	__u32 doubt_sent; /* Karn's rule: no sample for ACKs up to here */
	__u32 probe_seq;  /* end of the oldest stamped segment without an ACK */
	/* written by the ACKs */
	__u32 acked;
	__u32 doubt_acked; /* like doubt_sent */
	__u16 window;      /* of the last ACK */
	__u8 answered;     /* DWELL_SEQ_ACKED, DOUBT, PROBE */
	/* written by the data's packets */
	__u8 sent; /* DWELL_SEQ_NEXT, SYN, DOUBT, PROBE */
	__u64 probe_ns;
};
#define DWELL_SEQ_NEXT 1
#define DWELL_SEQ_ACKED 2
#define DWELL_SEQ_DOUBT 4
#define DWELL_SEQ_SYN 8    /* the SYN was stamped */
#define DWELL_SEQ_PROBE 16 /* differs between `sent` and `answered` while a probe has no ACK */

struct dwell_spin_state {
	__u64 edge_ns; /* time of the last edge */
	__u64 loop_ns; /* least full loop so far; 0: unknown */
	__u8 value;
	__u8 known; /* DWELL_SPIN_* */
	__u8 early; /* consecutive edges rejected as too early */
	__u8 holds; /* packets that kept the value while it was the other side's turn */
	__u8 flips; /* consecutive packets that changed the value */
	__s8 calm;  /* packets that kept the value, minus three for each that changed it */
	__u8 reserved[2];
};
#define DWELL_SPIN_VALUE 1 /* value is set */
#define DWELL_SPIN_EDGE 2  /* edge_ns is set */

struct dwell_icmp_state {
	__u32 seq;
	__u32 known;
};

struct dwell_side {
	__u64 packets;
	__u64 bytes;
	__u64 min_rtt_ns; /* least round trip to this side; 0: unknown */
};

/* The hot state of a flow: two cache lines, which is all that most packets touch. */
struct dwell_flow {
	struct dwell_head head;
	struct dwell_tcp_ts_state ts[2];

	struct dwell_side side[2]; /* [0] counts key.a's packets */
	__u32 stamped[2];          /* newest TSval that was stamped */
	__u32 samples;
	__u8 own[2]; /* DWELL_OWN_* */
	__u8 quic;   /* DWELL_QUIC_* */
	__u8 reserved;
};

/* Cold state of one direction, which only some matchers need. */
struct dwell_cold_side {
	__u64 stamp_ns;     /* time of the last stamp, for the rate limit */
	__u32 stamp_coarse; /* the same time in coarse units */
	__u32 srtt_q7;      /* smoothed round trip to this side as in RFC 6298, in 128 ns; 0: unknown */
	union {
		struct dwell_tcp_seq_state seq;
		struct dwell_spin_state spin;
		struct dwell_icmp_state icmp;
	};
};

/* The cold state of a flow. */
struct dwell_cold {
	struct dwell_cold_side side[2];
	__u64 first_ns;   /* time of the flow's first packet */
	__u8 spin_streak; /* consecutive alternating edges */
	__u8 spin_faults; /* broken alternations, saturating */
	__u8 reserved[6];
};

#endif
