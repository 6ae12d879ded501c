/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of a flow of `dwell rtt`.
 *
 * One direction's packets are expected on one CPU at a time, as RSS and RPS distribute them; the two directions may be
 * on two. So each field is written by packets of one direction only, and steps need no lock. Where both write (the spin
 * bit's turns, the close reason, who the client is, a connection that starts again) they are a round trip apart; should
 * they meet, an edge is lost. Admission and the sweep take the bucket's lock, and give up rather than wait; admission
 * counts that.
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
#define DWELL_OWN_BY_TS 16 /* tcp_auto.h has chosen tcp-timestamp; else tcp-seq */
#define DWELL_OWN_BLIND 32 /* because tcp-seq had no samples */
#define DWELL_OWN_NEXT 64  /* next_seq is set */

/* State of tcp-seq for one direction's data and the ACKs for it. */
struct dwell_tcp_seq_state {
	/* written by the data's packets */
	__u32 doubt_sent; /* Karn's rule: no sample for ACKs up to here */
	__u32 probe_seq;  /* end of the oldest stamped segment without an ACK */
	/* written by the ACKs */
	__u32 acked;
	__u32 doubt_acked; /* like doubt_sent */
	__u16 window;      /* of the last ACK */
	__u8 answered;     /* DWELL_SEQ_ACKED, DOUBT, PROBE */
	/* written by the data's packets */
	__u8 sent; /* DWELL_SEQ_NEXT (there was data), SYN, DOUBT, PROBE, FINE */
	/* written by the ACKs */
	__u8 blind; /* tcp_auto.h: doubt about tcp-seq for this direction's data */
	__u8 reserved[3];
	/* written by the data's packets */
	__u64 probe_ns;
};
#define DWELL_SEQ_NEXT 1
#define DWELL_SEQ_ACKED 2
#define DWELL_SEQ_DOUBT 4
#define DWELL_SEQ_SYN 8    /* the SYN was stamped */
#define DWELL_SEQ_FINE 32  /* short segments wait at positions of their own */
#define DWELL_SEQ_PROBE 16 /* differs between `sent` and `answered` while a probe has no ACK */

struct dwell_spin_state {
	__u64 edge_ns; /* time of the last edge */
	__u64 loop_ns; /* least full loop so far; 0: unknown */
	__u8 value;
	__u8 known; /* DWELL_SPIN_* */
	__u8 early; /* edges rejected as too early since the last measured loop */
	__u8 holds; /* packets that kept the value while it was the other side's turn */
	__u8 flips; /* consecutive packets that changed the value */
	__s8 calm;  /* packets that kept the value, minus three for each that changed it */
	__u8 reserved[2];
};
#define DWELL_SPIN_VALUE 1 /* value is set */
#define DWELL_SPIN_EDGE 2  /* edge_ns is set */
#define DWELL_SPIN_TIMED 4 /* edge_ns is the time of the first packet with the value */
#define DWELL_SPIN_EARLY 8 /* the last packet was an edge rejected as too early */

struct dwell_icmp_state {
	__u32 seq;
	__u32 known;
};

struct dwell_side {
	__u64 packets;
	__u64 bytes;
};

/* The hot state of a flow: two cache lines, which each packet touches. */
struct dwell_flow {
	struct dwell_head head;
	struct dwell_tcp_ts_state ts[2];

	struct dwell_side side[2]; /* [0] counts key.a's packets */
	__u32 stamped[2];          /* newest TSval that was stamped */
	__u32 next_seq[2];         /* TCP: one past the highest byte seen */
	__u32 data[2];             /* TCP: segments with data */
	__u8 own[2];               /* DWELL_OWN_* */
	__u8 score[2];             /* tcp_auto.h, written by the direction's packets */
	__u8 quic;                 /* DWELL_QUIC_* */
	__u8 client; /* direction of the client's packets, plus 1, as the opening packets show it; 0: unknown */
	__u8 reserved[2];
};

/* Cold state of one direction. */
struct dwell_cold_side {
	__u64 stamp_ns;     /* time of the last stamp, for the rate limit */
	__u32 stamp_coarse; /* the same time in coarse units */
	/* written by the packets of this side that give samples */
	__u32 srtt_q7;    /* smoothed round trip to this side as in RFC 6298, in 128 ns; 0: unknown */
	__u64 min_rtt_ns; /* least round trip to this side; 0: unknown */
	__u32 base_ns[2]; /* least round trip to this side in this window and the last (rtt/path.h); 0: none */
	__u32 base_window;
	__u32 samples;
	struct dwell_path_counts reported; /* what samples to this side have carried so far */
	/* written by this side's packets, which were retransmitted, filled a hole, carried CE */
	__u32 retransmitted;
	__u32 late;
	__u32 ce;
	__u32 hole_start; /* bytes that were skipped; none if both are equal */
	__u32 hole_end;
};

/* What a flow's matcher keeps of both directions: one cache line, which tcp-seq touches at each packet. */
struct dwell_matcher {
	union {
		struct dwell_tcp_seq_state seq;
		struct dwell_spin_state spin;
		struct dwell_icmp_state icmp;
	} side[2];
};

/* The cold state of a flow, which samples and rare packets touch. */
struct dwell_cold {
	struct dwell_cold_side side[2];
	__u64 first_ns;   /* time of the flow's first packet */
	__u8 spin_streak; /* consecutive alternating edges */
	__u8 spin_faults; /* broken alternations, saturating */
	union {
		__u32 tunnel; /* as of struct dwell_packet */
		__u32 next;   /* of a slot that no flow occupies: index of the next free slot, plus 1; 0: none */
	};
};

#endif
