/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency from the client's packets alone: what a flow remembers, and
 * what an epoch of it leaves behind. Estimates are made of the records of
 * epochs, once an epoch, by who reads them.
 *
 * Epochs are aligned to the clock. A gap belongs to the epoch of the packet
 * that ends it. Time that goes backwards ends no epoch and makes no gap, unless
 * it goes back by more than an epoch: then the clock was set.
 */
#ifndef DWELL_RESPONSE_TYPES_H
#define DWELL_RESPONSE_TYPES_H

#include "gaps.h"

/* What a vantage point can see of a transport. */
enum dwell_visible {
	DWELL_VISIBLE_NONE, /* encrypted or unknown: times and sizes */
	DWELL_VISIBLE_UDP,
	DWELL_VISIBLE_TCP,
};

enum dwell_estimator {
	DWELL_ESTIMATE_AUTO,
	DWELL_ESTIMATE_PIRATE,
	DWELL_ESTIMATE_GAP,
	DWELL_ESTIMATE_SYN_ACK,
};

/* One packet of the client. */
struct dwell_arrival {
	__u64 time_ns;
	__u32 bytes;         /* IP length: all that is known of an encrypted packet */
	__u32 payload_bytes; /* of the transport, where its header is visible */
	__u32 seq, ack;      /* TCP only */
	__u8 visible;        /* enum dwell_visible */
	__u8 tcp_flags;
	__u16 segments; /* packets on the wire that this one stands for */
	__u32 reserved;
};

struct dwell_response_config {
	__u64 epoch_ns;
	__u64 phase_ns;     /* what the clock lacks to the one that epochs are aligned to */
	__u64 epsilon_ns;   /* pirate: how near a gap must come to a mode */
	__u64 idle_ns;      /* a longer gap is no response: at most 2^36 - 1 */
	__u64 threshold_ns; /* gap: a longer gap is between batches */
	__u64 run_gap_ns;   /* auto: progress further apart is of two responses */
	__u32 epsilon_q8;   /* relative to the edge, of 256; 0: absolute */
	__u16 mtu;          /* of the way from server to client and back */
	__u16 ack_bytes;    /* without headers, a longer packet is no transport ACK */
	__u8 estimator;     /* enum dwell_estimator */
	__u8 modes;         /* 1 to DWELL_MODES */
	__u8 coalesce_acks; /* pirate, gap: transport ACKs make no gaps */
	__u8 mark_small;    /* pirate: gaps after small packets are candidates */
	__u8 reserved[4];
};

/* What all estimators remember. */
struct dwell_epoch_clock {
	__u64 last_ns;  /* the newest packet that counts; 0: none */
	__u64 end_ns;   /* of the epoch; 0: none has begun */
	__u32 packets;  /* in the epoch, ACKs too */
	__u32 requests; /* in the epoch: packets that count for the estimator */
};

struct dwell_pirate_state {
	struct dwell_epoch_clock clock;
	struct dwell_modes modes;
	__u16 discarded; /* gaps for which there was no mode, saturating */
	__u16 idle;      /* gaps longer than the idle time, saturating */
	__u16 marks;     /* modes that a gap after a small packet fell into */
	__u8 used;       /* modes */
	__u8 flags;      /* DWELL_FLOW_SMALL */
};
_Static_assert(sizeof(struct dwell_pirate_state) <= 154, "the figure of the paper");

/* Algorithm 1 (a threshold), and the handshake. */
struct dwell_gap_state {
	struct dwell_epoch_clock clock;
	__u64 start_ns;      /* of the batch; 0 unknown */
	dwell_tally batches; /* from start to start */
	__u64 handshake_ns;  /* SYN to ACK; 0 none in this epoch */
	__u16 idle;
	__u16 flags;
	__u32 reserved;
};

#define DWELL_FLOW_SYN 1       /* the last packet was the SYN */
#define DWELL_FLOW_SMALL 2     /* the last packet was smaller than the MTU */
#define DWELL_FLOW_RESYN 4     /* more than one SYN: whose answer the ACK is, is unclear */
#define DWELL_FLOW_BEGUN 8     /* the connection was seen from its begin */
#define DWELL_FLOW_ALIGNED 16  /* progress comes in multiples of the segment size */
#define DWELL_FLOW_RUN 32      /* progress since the last response was taken to be complete */
#define DWELL_FLOW_EDGE 64     /* and a short segment was in it: the end of a write */
#define DWELL_FLOW_PART 128    /* the last data packet was full: the request goes on */
#define DWELL_FLOW_ALONE 512   /* the run has one packet so far */
#define DWELL_FLOW_NUMBERS 256 /* next_seq and ack are set */
#define DWELL_FLOW_GROWN 1024  /* more requests than can wait were sent */

/* Requests wait for their responses in a queue of this length. */
#define DWELL_WAITING 16
/* Gaps between requests, two buckets an octave, from 2^14 ns (16 us) to 2^30. */
#define DWELL_GAP_LOGS 32
#define DWELL_GAP_LOG_MIN 14

struct dwell_auto_state {
	struct dwell_epoch_clock clock;
	dwell_tally gaps;          /* between requests, idle time left out */
	dwell_tally lag;           /* from a request to the one `depth` later */
	dwell_tally all;           /* from request to end of response */
	dwell_tally causal;        /* of those whose end the next request followed */
	dwell_tally hidden;        /* of those whose end only that request told of */
	__u32 sent[DWELL_WAITING]; /* when, in ticks of 256 ns, modulo 2^32 */
	__u16 gap_log[DWELL_GAP_LOGS];
	__u32 held;     /* latency of the newest, in ticks, until a request follows; 0 none */
	__u32 progress; /* tick of the newest ACK progress */
	__u32 think;    /* ticks in all from progress to the request after it */
	__u32 next_seq, ack;
	__u16 holes;     /* bytes that were skipped: out of order, or lost before us */
	__u16 segment;   /* the server's full segments; without headers the largest packet */
	__u16 least;     /* headers of the client; without them the smallest packet */
	__u16 turns;     /* requests that came first after progress */
	__u16 slow;      /* of them, those that came after a pause */
	__u16 surplus;   /* ends for which no request waited */
	__u16 missed;    /* ends that were not seen, but concluded */
	__u16 repeats;   /* ACKs without progress: something was lost, or came out of order */
	__u16 full;      /* full-size data packets */
	__u16 handshake; /* SYN to ACK, brief; 0 none in this epoch */
	__u8 depth;      /* most requests sent without progress between them */
	__u8 deeper;     /* bursts in the epoch that were longer */
	__u8 merged;     /* how much lately tells of ends within runs */
	__u8 burst;      /* requests since the last progress */
	__u8 streak;     /* requests that came alone, lately; halved by one that did not */
	__u8 tail;       /* of `sent`, modulo 256 */
	__u8 head;
	__u8 ends;   /* since the last request */
	__u8 late;   /* retransmitted or reordered data packets, saturating */
	__u8 idle;   /* gaps and latencies longer than the idle time, saturating */
	__u16 flags; /* DWELL_FLOW_* */
};
_Static_assert(sizeof(struct dwell_auto_state) <= 256, "four cache lines");

/* A flow remembers one of these: which one, the configuration says. Starts as
 * zeros.
 */
union dwell_response_state {
	struct dwell_epoch_clock clock; /* with which each of them begins */
	struct dwell_pirate_state pirate;
	struct dwell_gap_state gap;
	struct dwell_auto_state adaptive;
};

struct dwell_epoch_mode {
	__u64 min_ns, max_ns, sum_ns;
	__u32 count;
	__u32 marked; /* 1: a gap after a small packet fell into it */
};

/* What an epoch of a flow leaves behind. Fields that are not the estimator's are
 * zero.
 */
struct dwell_epoch {
	__u64 start_ns;
	__u64 epoch_ns;
	__u32 packets;
	__u32 discarded;
	__u32 idle; /* gaps longer than the idle time */
	__u8 estimator;
	__u8 modes;         /* used */
	__u8 sizes_only;    /* auto: requests and ACKs were told apart by size */
	__u8 begun;         /* auto: the connection was seen from its begin */
	__u64 handshake_ns; /* SYN to ACK; 0 none in this epoch */
	__u64 gaps_ns;      /* sum of gaps: auto between requests; gap: of batches */
	__u32 gaps;         /* how many: the same */
	__u32 requests;
	/* auto */
	__u64 lag_ns;
	__u32 lags;
	__u32 depth;
	__u64 think_ns;
	__u32 turns;
	__u32 full;
	__u32 late;
	__u32 aligned;                      /* 1: the server's segment size is known */
	__u64 all_ns, causal_ns, hidden_ns; /* as in dwell_auto_state */
	__u32 all, causal, hidden;
	__u32 surplus, missed;
	__u32 slow, streak;
	__u32 repeats;
	__u16 gap_log[DWELL_GAP_LOGS];
	/* pirate */
	struct dwell_epoch_mode mode[DWELL_MODES];
};

#endif
