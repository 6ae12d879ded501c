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
	DWELL_VISIBLE_QUIC, /* encrypted: times and sizes of a protocol whose ACKs differ by little */
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
	__u8 segments; /* packets on the wire that it stands for, saturating */
	__u8 content;  /* enum dwell_content, and how many requests the payload holds */
	__u32 tsecr;   /* TCP: the server's clock as the client echoes it; of a SYN, the largest segment; 0: unknown */
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
	__u16 idle;    /* gaps, and latencies of runs, longer than the idle time, saturating */
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

/* Flags of dwell_turn_state. */
#define DWELL_TURN_SYN 1          /* the last packet was the connection's only SYN */
#define DWELL_TURN_BEGUN 2        /* the connection's first answer has not come yet */
#define DWELL_TURN_WINDOW 4       /* a burst may have opened a window that is kept full */
#define DWELL_TURN_WINDOWED 16384 /* until a pause in this epoch it had */
#define DWELL_TURN_AGED 8         /* the last answer was counted before a request followed it */
#define DWELL_TURN_REOPENED 16    /* such an answer went on, in this epoch */
#define DWELL_TURN_SHARED 32      /* streams or messages share the connection: HTTP/2, WebSocket */
/* of the turn */
#define DWELL_TURN_ALIKE 64    /* the packets of the request are of like size */
#define DWELL_TURN_UNSURE 128  /* the newest ACK may have been delayed, and the server's clock is unknown */
#define DWELL_TURN_MOVED 256   /* the end was computed from the server's clock */
#define DWELL_TURN_CARRIED 512 /* a request carried the ACK, in time as far as the server's clock tells */
#define DWELL_TURN_LOOSE 1024  /* packets so far apart that they are hardly one request */
#define DWELL_TURN_PART 2048   /* the write continues after the last data packet */
#define DWELL_TURN_FRAME 8192  /* the last packet looked like a frame or a message: of the connection */
#define DWELL_TURN_TEXT 4096   /* requests begin as those of a protocol in text do: of the connection */
#define DWELL_TURN_TIED 32768  /* an ACK that was not late ties the server's clock to ours: of the connection */

/* Sides that have spoken unasked. */
#define DWELL_SPEAKS_CLIENT 1
#define DWELL_SPEAKS_SERVER 2

/* Length of the queue of requests that wait for their responses. */
#define DWELL_QUEUE_LENGTH 16
/* Buckets of gaps between requests, two per octave, from 2^14 ns (16 us) to 2^30 ns. */
#define DWELL_GAP_LOGS 32
#define DWELL_GAP_LOG_MIN 14
/* Buckets of answers, four per octave, from 2^15 ns (33 us) to 2^31 ns. The first and the last hold what is shorter or
 * longer.
 */
#define DWELL_ANSWER_LOGS 64
#define DWELL_ANSWER_LOG_MIN 15
/* Why nothing else is under way. */
#define DWELL_ALONE_PAUSED 1 /* nothing has come for several round trips, and nothing was asked */
#define DWELL_ALONE_FIRST 2  /* the connection begins */

/* Whether the client's timer may acknowledge the answer under way. */
#define DWELL_TIMERS_HELD 7    /* how many late ACKs it may have sent since a request carried one */
#define DWELL_TIMERS_SOON 8    /* the request under way followed an answer so soon that the client delays ACKs */
#define DWELL_TIMERS_DOUBT 240 /* how many last segments must come together first, as the path spread one */

/* Turns of a client, where TCP's header is visible (response/turns.h). Times are ticks of 256 ns since the flow's
 * origin.
 */
struct dwell_turn_state {
	__u64 origin_ns;      /* time of the flow's first packet, less a tick; 0: none */
	dwell_tally answered; /* from the first packet of a request to the end of its answer, in the epoch */
	__u32 start;          /* first packet of the request under way; 0: none */
	__u32 end;            /* end of its answer so far, the earliest that it may be; 0: nothing has come */
	__u32 sent;           /* newest packet with data, or SYN */
	__u32 progress;       /* newest progress, the latest that `end` may be */
	__u32 pause;          /* longest pause between pieces of the answer */
	__u16 path;           /* lateness of the newest ACK that was sent at once, in 4 us: see DWELL_PATH_SHIFT */
	__u16 queue;          /* ... of the latest of the last ones, each of which makes up for 1/16 */
	__u32 bytes;          /* of the answer so far */
	__u32 round_trip;     /* of the handshake, lowered by sooner answers to lone requests; 0: unknown */
	__u32 usual;          /* running mean of latencies */
	__u32 usual_bytes;    /* running mean of answers */
	__u32 window_bytes;   /* for each request of a burst, what came before the next one */
	__u32 first_tick, first_echo; /* from which the server's tick is measured */
	__u32 base_tick, base_echo;   /* the ACK that came soonest, relative to the server's clock */
	__u32 unit_ns;                /* the server's tick; 0: unknown */
	__u32 unknown;                /* by how much the epoch's answers may have ended sooner than counted, in all */
	__u16 flags;                  /* DWELL_TURN_* */
	__u16 size;                   /* payload of the request's first packet */
	/* turns of the epoch, saturating: see struct dwell_epoch */
	__u16 bursts, alike, unsure, moved, carried, loose, early, unasked;
	__u16 frames, overlong;
	__u16 pieces, extra;   /* runs of progress of answers, and writes of requests, beyond the first of each */
	__u16 mss;             /* the largest segment that the client's SYN accepts; 0: unknown */
	__u8 burst;            /* writes of the request under way */
	__u8 runs;             /* runs of progress of its answer */
	__u8 clock_samples;    /* ACKs that were as soon as the soonest, within a tick */
	__u8 clock_age : 5;    /* binary logarithm of the age at which the tick is measured next; 0: no echo yet */
	__u8 parts : 3;        /* of the answer beyond its first, after pauses before which it may have been complete */
	__u8 stale : 4;        /* consecutive ACKs that were sent at once and yet came late */
	__u8 refuted : 2;      /* pauses that no client makes while answers are due */
	__u8 is_full : 1;      /* the newest progress was by full segments only, so that more of the answer follows */
	__u8 at_once : 1;      /* the client began the request under way at once after the answer before */
	__u8 spoken : 3;       /* how often the client spoke again within the request, after a pause, saturating */
	__u8 usual_spoken : 3; /* ... within requests, plus 1; 0: not known */
	__u8 more_spoken : 1;  /* the last request had more */
	__u8 rest : 1; /* what the client has sent may be the rest of a request, as no beginning of one was seen yet */
};

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
	union {
		__u16 smallest; /* without headers: smallest request of the epoch */
		/* otherwise: when the answer under way may first have been complete or, before it went on after that, how long after the answer before it began: see dwell_within() */
		__u16 done;
	};
	__u16 turns;          /* requests that came first after progress */
	__u16 slow;           /* turns after a pause */
	__u16 surplus;        /* ends without a pending request */
	__u16 missed;         /* ends that were not seen, but concluded */
	__u16 early;          /* ends before their request was sent */
	__u16 minor;          /* requests far smaller than usual */
	__u16 plain;          /* missed ends that the next request answers to */
	__u8 deeper : 2;      /* bursts in the epoch that were longer than `depth`, saturating */
	__u8 asked_whole : 4; /* turns in a row in which the client said no more than a request: see dwell_turn_trust() */
	__u8 speaks : 2;      /* DWELL_SPEAKS_* */
	__u8 peak;            /* most pending requests in the epoch */
	__u8 quiet : 2;       /* consecutive epochs in which fewer than `depth` were pending */
	__u8 unasked : 2;     /* turns for which a side is taken to speak unasked: see dwell_turn_unasked() */
	__u8 usual_parts : 3; /* `parts` of answers, plus 1, saturating; 0: not known */
	__u8 more_parts : 1;  /* the last answer had more */
	__u8 streak;          /* recent requests that came alone; halved by one that did not */
	union {
		struct {
			__u8 steady; /* without headers: score of a timer */
			__u8 soon;   /* ... requests that progress followed at once, saturating */
		};
		/* otherwise: when the client last spoke again within the request or, before it did, how long after its data before the request began: see dwell_within() */
		__u16 again;
	};

	__u32 sent[DWELL_QUEUE_LENGTH]; /* times of pending requests, in ticks of 256 ns modulo 2^32 */
	/* where TCP's header is visible, answers by their latency; otherwise gaps between requests */
	union {
		__u8 log[DWELL_ANSWER_LOGS];
		__u16 gap_log[DWELL_GAP_LOGS];
	};
	struct dwell_turn_state turn;
	__u8 log_shift : 4;      /* a count in `log` stands for 2^log_shift answers */
	__u8 answered_whole : 4; /* turns in a row in which the server said no more than an answer */
	__u8 alone : 2;          /* DWELL_ALONE_* of the turn under way; 0: others may be */
	__u8 pieced : 3;         /* answers come in pieces: so many must be seen whole before that is forgotten */
	__u8 lone : 1;    /* all that came of the answer is one byte, or the FIN of a server that does not answer */
	__u8 closing : 1; /* the client has ended the connection while it waited */
	__u8 second : 1;  /* the client was seen to acknowledge each second segment */
	__u8 together : 4; /* last segments that came together with those before, less late ACKs since that a timer sent */
	__u8 came : 1;     /* the newest ACK of the answer is of such a segment, so far the last */
	__u8 maybe : 1;    /* a request may have followed an answer soon enough, or not */
	__u8 unanswered : 2; /* requests of the epoch whose connection ended without an answer, saturating */
	__u8 timers;         /* DWELL_TIMERS_* */
};
_Static_assert(__builtin_offsetof(struct dwell_auto_state, gaps) == 64, "a cache line");
_Static_assert(__builtin_offsetof(struct dwell_auto_state, sent) == 128, "a cache line");
_Static_assert(sizeof(struct dwell_auto_state) <= 384, "six cache lines");

/* The state of a flow: that of the configured estimator. Starts as all zero. */
union dwell_response_state {
	struct dwell_epoch_clock clock; /* the beginning of each of them */
	struct dwell_pirate_state pirate;
	struct dwell_gap_state gap;
	struct dwell_auto_state adaptive;
	struct {
		__u8 estimator[380];
		__u32 tunnel; /* what encloses the flow (parse/walk.h): the slot's, where no estimator has anything */
	};
	__u32 next; /* of a state that no slot has: index of the next one, plus 1; 0: none */
};
_Static_assert(__builtin_offsetof(struct dwell_auto_state, timers) < 380, "the tunnel's place");

struct dwell_epoch_mode {
	__u64 min_ns, max_ns, sum_ns;
	__u32 count;
	__u32 marked; /* 1: a gap after a small packet fell into it */
};

/* The record of one epoch of a flow. Fields of other estimators are zero. */
struct dwell_epoch {
	__u64 start_ns;
	__u64 epoch_ns;
	__u64 idle_ns; /* of the configuration */
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
	/* auto, with TCP's header visible: turns (response/turns.h) */
	__u64 answered_ns;
	__u64 unknown_ns; /* by how much these answers may have ended sooner, where ACKs may have come late */
	__u32 answered;
	__u32 runs;           /* runs of progress in these answers */
	__u32 extra;          /* writes of these requests beyond the first of each */
	__u32 server_tick_ns; /* of the server's clock in TCP timestamps; 0: unknown */
	__u32 anchor_age_ms;  /* how long ago the ACK came that ties the server's clock to ours */
	__u32 window_bytes; /* for each request of a burst, what came before the next one, and of single ones in the mean */
	__u32 usual_bytes;
	__u16 bursts; /* requests of several writes */
	__u16 alike;  /* ... of like size */
	__u16 unsure; /* the last ACK may have been delayed, and no clock tells */
	__u16 moved;  /* the end is known by the server's clock */
	__u16 carried; /* the next request carried the ACK, within a tick of the server's clock; in QUIC: one ACK shows the end */
	__u16 loose;       /* packets of a request were far apart */
	__u16 early_turns; /* answers sooner than a round trip */
	__u16 unasked; /* requests or answers with something that a side may have said unasked; `unsure` has them too */
	__u16 frames;  /* packets that only manage the connection */
	__u16 overlong;  /* answers that took longer than idle_ns, which are in no other figure */
	__u8 window;     /* 1: the first burst may have opened a window that is kept full */
	__u8 shared;     /* 1: streams or messages share the connection */
	__u8 reopened;   /* 1: an answer went on after it had been counted */
	__u8 log_shift;  /* a count in `log` stands for 2^log_shift answers */
	__u8 text;       /* 1: requests of a protocol in text: each is known, and nothing comes unasked */
	__u8 unanswered; /* requests whose connection ended without an answer, at most 3 */
	__u8 whole;      /* `asked_whole` of the connection and, from bit 4 on, `answered_whole` */
	__u8 speaks;     /* DWELL_SPEAKS_*: the sides of the connection that have spoken unasked */
	__u8 log[DWELL_ANSWER_LOGS];
	__u16 gap_log[DWELL_GAP_LOGS];
	/* pirate */
	struct dwell_epoch_mode mode[DWELL_MODES];
};

#endif
