/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of response latency from the client's packets alone: the state of a flow, and the record of an epoch. User
 * space makes estimates from the records, once per epoch.
 */
#ifndef DWELL_RESPONSE_TYPES_H
#define DWELL_RESPONSE_TYPES_H

#include "response/gaps.h"

/* What can be seen of a transport. */
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
	__u32 payload_bytes; /* transport payload, if its header is visible */
	__u32 seq, ack;      /* TCP only */
	__u8 visible;        /* enum dwell_visible */
	__u8 tcp_flags;
	__u16 segments; /* packets on the wire that it stands for */
	__u32 reserved;
};

struct dwell_response_config {
	__u64 epoch_ns;
	__u64 phase_ns;     /* offset to the clock that epochs are aligned to */
	__u64 epsilon_ns;   /* pirate: how near to a mode a gap must be */
	__u64 idle_ns;      /* a longer gap is not a response: at most 2^36 - 1 */
	__u64 threshold_ns; /* gap: a longer gap is between batches */
	__u64 run_gap_ns;   /* auto: progress further apart belongs to two responses */
	__u32 epsilon_q8;   /* epsilon relative to the edge, in 1/256; 0: absolute */
	__u16 mtu;          /* of the path between server and client */
	__u16 ack_bytes;    /* without headers, a longer packet is not a transport ACK */
	__u8 estimator;     /* enum dwell_estimator */
	__u8 modes;         /* 1 to DWELL_MODES */
	__u8 coalesce_acks; /* pirate, gap: transport ACKs end no gaps */
	__u8 mark_small;    /* pirate: gaps after small packets are candidates */
	__u8 reserved[4];
};

/* State that all estimators have. */
struct dwell_epoch_clock {
	__u64 last_ns; /* time of the newest packet that counts; 0: none */
	__u64 end_ns;  /* end of the epoch; before its first packet, of the one before; 0: none */
	__u32 packets; /* in the epoch, with ACKs */
	__u16 idle;    /* gaps and latencies longer than the idle time, saturating */
	__u16 full;    /* data packets after which a write continues, saturating */
};

struct dwell_pirate_state {
	struct dwell_epoch_clock clock;
	struct dwell_modes modes;
	__u16 discarded; /* gaps without a mode, saturating */
	__u16 marks;     /* modes that a gap after a small packet fell into */
	__u16 answer;    /* from the last request to the ACK after it, as a float of 16 bits; 0: none */
	__u8 used;       /* modes in use */
	__u8 small : 1;  /* the last packet was smaller than the MTU */
	__u8 first : 1;  /* the flow, or its clock, began in this epoch */
	__u8 waits : 6;  /* score of a client that waits after an ACK */
};
_Static_assert(sizeof(struct dwell_pirate_state) <= 154, "the figure of the paper");

/* State of gap: Algorithm 1 (a threshold), and the handshake. */
struct dwell_gap_state {
	struct dwell_epoch_clock clock;
	__u64 start_ns;      /* start of the batch; 0: unknown */
	dwell_tally batches; /* durations from start to start */
	__u64 handshake_ns;  /* SYN to ACK; 0: none in this epoch */
	__u32 requests;
	__u16 shortest, longest; /* batches, as floats of 16 bits */
	__u16 answer;            /* see dwell_pirate_state */
	__u16 flags;             /* DWELL_FLOW_SYN, DWELL_FLOW_RESYN */
	__u8 waits;              /* see dwell_pirate_state */
	__u8 reserved[3];
};

#define DWELL_FLOW_SYN 1       /* the last packet was the SYN */
#define DWELL_FLOW_RESYN 2     /* more than one SYN: it is unclear which one the ACK answers */
#define DWELL_FLOW_NUMBERS 4   /* next_seq and ack are set */
#define DWELL_FLOW_ALIGNED 8   /* progress comes in multiples of the segment size */
#define DWELL_FLOW_RUN 16      /* progress since the last response was considered complete */
#define DWELL_FLOW_EDGE 32     /* the run contains a short segment: the end of a write */
#define DWELL_FLOW_ALONE 64    /* the run is one packet so far */
#define DWELL_FLOW_PUSHES 128  /* the client marks the ends of its writes (PSH) */
#define DWELL_FLOW_PART 256    /* the request continues after the last data packet */
#define DWELL_FLOW_GUESS 512   /* decided by its size alone: progress may refute it */
#define DWELL_FLOW_GREET 1024  /* the last request may be the end of a TLS handshake */
#define DWELL_FLOW_GROWN 2048  /* more requests than the queue holds were sent */
#define DWELL_FLOW_DEEP 4096   /* more requests at once than the queue holds */
#define DWELL_FLOW_TWICE 8192  /* several at once, not only in the first burst */
#define DWELL_FLOW_LOWER 16384 /* one packet of the epoch was smaller than `least` */

/* Length of the queue of requests that wait for their responses. */
#define DWELL_QUEUE_LENGTH 16
/* Buckets of gaps between requests, two per octave, from 2^14 ns (16 us) to 2^30 ns. */
#define DWELL_GAP_LOGS 32
#define DWELL_GAP_LOG_MIN 14

/* State of auto, in the order of use: what each packet needs, then what each request needs. */
struct dwell_auto_state {
	struct dwell_epoch_clock clock;
	__u32 next_seq, ack;
	__u32 progress; /* tick of the newest ACK progress */
	__u32 pace;     /* without headers: mean ticks between packets; otherwise when the first hole was seen */
	__u32 held;     /* latency of the newest response in ticks, until a request follows; 0: none */
	__u16 flags;    /* DWELL_FLOW_* */
	__u16 least;    /* header bytes of the client; without headers its smallest packet */
	__u16 segment;  /* the server's full segment; without headers the largest packet */
	__u16 largest;  /* the client's largest payload; without headers the epoch's largest packet */
	__u16 holes;    /* bytes that were skipped: out of order, or lost on the way here */
	__u16 repeats;  /* ACKs without progress: something was lost or reordered */
	__u8 burst;     /* requests since the last progress */
	__u8 late;      /* retransmitted or reordered data packets, saturating */
	__u8 merged;    /* score of ends within runs */
	__u8 ends;      /* ends since the last request */
	__u8 tail;      /* end of `sent`, modulo 256 */
	__u8 head;
	__u8 depth;  /* most requests sent without progress in between */
	__u8 pauses; /* how often in the epoch the client waited for nothing */

	dwell_tally gaps;   /* between requests, without idle time */
	dwell_tally lag;    /* from a request to the `depth`-th after it */
	dwell_tally all;    /* from request to end of response */
	dwell_tally hidden; /* those whose end only the next request revealed */
	__u32 requests;     /* in the epoch */
	__u32 think;        /* total ticks from progress to the request after it */
	__u16 usual;        /* usual size of a request; without headers the epoch's smallest packet */
	__u16 smallest;     /* without headers: smallest request of the epoch */
	__u16 turns;        /* requests that came first after progress */
	__u16 slow;         /* turns after a pause */
	__u16 surplus;      /* ends without a pending request */
	__u16 missed;       /* ends that were not seen, but concluded */
	__u16 early;        /* ends before their request was sent */
	__u16 minor;        /* requests far smaller than usual */
	__u16 plain;        /* missed ends that the next request answers to */
	__u8 deeper;        /* bursts in the epoch that were longer than `depth` */
	__u8 peak;          /* most pending requests in the epoch */
	__u8 quiet;         /* consecutive epochs in which fewer than `depth` were pending */
	__u8 streak;        /* recent requests that came alone; halved by one that did not */
	__u8 steady;        /* score of a timer */
	__u8 soon;          /* without headers: requests that progress followed at once, saturating */

	__u32 sent[DWELL_QUEUE_LENGTH]; /* times of pending requests, in ticks of 256 ns modulo 2^32 */
	__u16 gap_log[DWELL_GAP_LOGS];
};
_Static_assert(__builtin_offsetof(struct dwell_auto_state, gaps) == 64, "a cache line");
_Static_assert(__builtin_offsetof(struct dwell_auto_state, sent) == 128, "a cache line");
_Static_assert(sizeof(struct dwell_auto_state) <= 256, "four cache lines");

/* The state of a flow: that of the configured estimator. Starts as all zero. */
union dwell_response_state {
	struct dwell_epoch_clock clock; /* the beginning of each of them */
	struct dwell_pirate_state pirate;
	struct dwell_gap_state gap;
	struct dwell_auto_state adaptive;
};

struct dwell_epoch_mode {
	__u64 min_ns, max_ns, sum_ns;
	__u32 count;
	__u32 marked; /* 1: a gap after a small packet fell into it */
};

/* The record of one epoch of a flow. Fields of other estimators are zero. */
struct dwell_epoch {
	__u64 start_ns;
	__u64 epoch_ns;
	__u32 packets;
	__u32 discarded;
	__u32 idle; /* gaps longer than the idle time */
	__u8 estimator;
	__u8 modes;         /* modes in use */
	__u8 sizes_only;    /* auto: requests and ACKs were distinguished by size */
	__u8 waits;         /* pirate, gap: above 31, the client mostly waits after an ACK */
	__u64 handshake_ns; /* SYN to ACK; 0: none in this epoch */
	__u64 gaps_ns;      /* sum of gaps: auto: between requests; gap: between batches */
	__u32 gaps;         /* number of the same gaps */
	__u32 requests;
	__u32 full;
	__u32 late;
	/* auto: see dwell_auto_state */
	__u64 lag_ns;
	__u32 lags;
	__u32 depth;
	__u64 think_ns;
	__u32 turns, slow;
	__u64 all_ns, hidden_ns;
	__u32 all, hidden;
	__u32 surplus, missed;
	__u32 early, minor;
	__u32 plain, streak;
	__u32 repeats;
	__u8 steady;
	__u8 deep;   /* 1: more requests at once than the queue holds */
	__u8 once;   /* 1: several requests at once in the first burst only */
	__u8 narrow; /* gap: all batches are within an octave */
	__u32 soon;
	__u16 smallest, largest; /* without headers: of the packets that are requests */
	__u16 gap_log[DWELL_GAP_LOGS];
	/* pirate */
	struct dwell_epoch_mode mode[DWELL_MODES];
};

#endif
