/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table: a fixed array of buckets, four flows each. A flow lives in
 * one of two buckets that its hash names, so the table fills evenly; both
 * directions share the entry. There is no allocation and no list: admitting
 * and evicting a flow is O(1), memory is what was asked for at start, and
 * kernel and replay evict alike.
 *
 * One direction's packets are expected on one CPU at a time (as RSS and RPS
 * give it); the two directions may be on two. So each field is written by
 * packets of one direction only, and steps need no lock. Where both write (the
 * turns of the spin bit, the count of samples, why a flow is over, a connection
 * that begins anew) they are a round trip apart; should they meet, an increment
 * or an edge is lost. Admission and the sweep take the bucket's lock, and give up
 * (admission counts it) rather than wait.
 */
#ifndef DWELL_FLOW_H
#define DWELL_FLOW_H

#include "packet.h"

#define DWELL_WAYS 4

/* Written by packets of this direction. */
struct dwell_tcp_ts_state {
	__u32 tsval; /* newest that a stampable packet carried */
	__u32 tsecr; /* newest echo that was dealt with */
};

/* What is known of a direction, written by its packets. */
#define DWELL_OWN_TSVAL 1   /* ts.tsval is set */
#define DWELL_OWN_STAMPED 2 /* stamped is set */
#define DWELL_OWN_TS_SYN 4  /* it is the SYN's */
#define DWELL_OWN_FIN 8

/* Of one direction's data, and of the ACKs for it. */
struct dwell_tcp_seq_state {
	/* written by the data's packets */
	__u32 next_seq;   /* one past the highest byte seen */
	__u32 doubt_sent; /* Karn: no sample for ACKs up to here */
	__u32 probe_seq;  /* end of a stamped segment: the oldest that waits */
	/* written by the ACKs */
	__u32 acked;
	__u32 doubt_acked; /* as doubt_sent */
	__u16 window;      /* of the last ACK */
	__u8 answered;     /* DWELL_SEQ_ACKED, DOUBT, PROBE */
	/* by the data's again */
	__u8 sent; /* DWELL_SEQ_NEXT, SYN, DOUBT, PROBE */
	__u64 probe_ns;
};
#define DWELL_SEQ_NEXT 1
#define DWELL_SEQ_ACKED 2
#define DWELL_SEQ_DOUBT 4
#define DWELL_SEQ_SYN 8    /* the SYN was stamped */
#define DWELL_SEQ_PROBE 16 /* differs between `sent` and `answered`: one waits */

struct dwell_spin_state {
	__u64 edge_ns; /* when the last edge was seen */
	__u64 loop_ns; /* least full loop so far, 0 unknown */
	__u8 value;
	__u8 known; /* DWELL_SPIN_* */
	__u8 early; /* edges in a row rejected as too early */
	__u8 holds; /* packets that kept the value while the other side had the turn */
	__u8 flips; /* packets in a row that changed it */
	__s8 calm;  /* packets that kept it, less three for each that changed it */
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
	__u64 min_rtt_ns; /* to this side and back; 0 unknown */
};

/* A pair of cache lines, which is all that most packets touch. */
struct dwell_flow {
	struct dwell_flow_key key;
	__u8 proto;
	__u8 opener;       /* direction of the first packet seen */
	__u8 close_reason; /* enum dwell_close_reason: set when it is over */
	__u8 quic;         /* DWELL_QUIC_* */
	__u8 spent;        /* DNS: answered, may make room for others */
	__u8 own[2];       /* DWELL_OWN_* */
	__u8 reserved;
	struct dwell_tcp_ts_state ts[2];

	struct dwell_side side[2]; /* [0] is key.a's packets */
	__u32 stamped[2];          /* newest TSval that was stamped */
	__u32 seen;                /* last packet, coarse units */
	__u32 samples;
};

/* What some matchers remember of one direction's packets. */
struct dwell_memory {
	__u64 stamp_ns;     /* last stamp, for the rate limit */
	__u32 stamp_coarse; /* the same in coarse units */
	__u32 srtt_q7;      /* to this side, smoothed as in RFC 6298, 128 ns; 0 unknown */
	union {
		struct dwell_tcp_seq_state seq;
		struct dwell_spin_state spin;
		struct dwell_icmp_state icmp;
	};
};

/* A flow's less used half. */
struct dwell_memories {
	struct dwell_memory of[2];
	__u64 first_ns;   /* the first packet seen */
	__u8 spin_streak; /* alternating edges in a row */
	__u8 spin_faults; /* broken alternations, saturating */
	__u8 reserved[6];
};

/* Apart from the flows, so that all buckets stay in cache. Flow `way` of
 * bucket `i` has the place DWELL_WAYS * i + way.
 */
struct dwell_bucket {
	__u64 tags; /* 16 bits of hash each, 0 is free */
	__u32 lock;
	__u32 reserved;
};

/* Where the table lies is the embedding program's to know; null beyond it. */
static __always_inline struct dwell_bucket *dwell_bucket_at(void *embedder, __u32 index);
static __always_inline struct dwell_flow *dwell_flow_at(void *embedder, __u32 place);
static __always_inline struct dwell_memories *dwell_memories_at(void *embedder, __u32 place);

static __always_inline __u64 dwell_tag(__u64 hash)
{
	return hash >> 48 ? hash >> 48 : 1;
}

static __always_inline __u32 dwell_bucket_first(__u64 hash, __u32 mask)
{
	return (__u32)hash & mask;
}

static __always_inline __u32 dwell_bucket_second(__u64 hash, __u32 mask)
{
	return ((__u32)hash ^ (__u32)(dwell_tag(hash) * 0x5bd1e995)) & mask;
}

/* The way that holds this tag, or DWELL_WAYS. Plain arithmetic instead of a
 * loop with a branch each, which the verifier would walk once a way.
 */
static __always_inline __u32 dwell_way_of(__u64 tags, __u64 tag)
{
	const __u64 ones = 0x0001000100010001ULL;
	__u64 other = tags ^ tag * ones;
	__u64 zero = (other - ones) & ~other & ones << 15;

	if (!zero)
		return DWELL_WAYS;
	zero = (zero & -zero) >> 15;
	return (zero >> 16 & 1) | (zero >> 31 & 2) | (zero >> 48 & 1) * 3;
}

static __always_inline int dwell_same_key(const struct dwell_flow_key *x,
					  const struct dwell_flow_key *y)
{
	const __u64 *p = (const void *)x, *q = (const void *)y;

	return !((p[0] ^ q[0]) | (p[1] ^ q[1]) | (p[2] ^ q[2]) | (p[3] ^ q[3]) | (p[4] ^ q[4]));
}

/* Where a packet's flow is; flow is null if it is not there. */
struct dwell_found {
	struct dwell_flow *flow;
	__u32 place;
};

static __always_inline struct dwell_found dwell_flow_in(void *embedder, __u32 index,
							const struct dwell_packet *packet)
{
	struct dwell_bucket *bucket = dwell_bucket_at(embedder, index);
	struct dwell_found none = {}, found;
	__u32 way;

	if (!bucket)
		return none;
	way = dwell_way_of(bucket->tags, dwell_tag(packet->hash));
	if (way >= DWELL_WAYS)
		return none;
	found.place = index * DWELL_WAYS + way;
	found.flow = dwell_flow_at(embedder, found.place);
	if (!found.flow || !dwell_same_key(&found.flow->key, &packet->key) ||
	    found.flow->proto != packet->proto)
		return none;
	return found;
}

static __always_inline struct dwell_found dwell_flow_find(void *embedder, __u32 first, __u32 second,
							  const struct dwell_packet *packet)
{
	struct dwell_found found = dwell_flow_in(embedder, first, packet);

	if (!found.flow)
		found = dwell_flow_in(embedder, second, packet);
	return found;
}

/* How good a place is for a new flow, best first: a free one, one whose flow is
 * over, one that was idle for the timeout, and, under pressure, one that never
 * was answered (a flood's) and waits for a second or more.
 */
enum dwell_rank {
	DWELL_RANK_FREE,
	DWELL_RANK_OVER,
	DWELL_RANK_IDLE,
	DWELL_RANK_UNANSWERED,
	DWELL_RANK_NONE,
};

/* Another CPU may have seen a flow a moment later than now, or the clock of a
 * capture stepped back: idle for nearly a whole turn of the coarse clock.
 */
static __always_inline int dwell_is_future(__u32 idle)
{
	return idle >= 0xf0000000;
}

static __always_inline __u32 dwell_rank(const struct dwell_flow *flow, __u32 now_coarse,
					__u32 timeout_coarse)
{
	__u32 idle;

	if (!flow)
		return DWELL_RANK_NONE;
	idle = now_coarse - flow->seen;
	if (dwell_is_future(idle))
		return DWELL_RANK_NONE;
	if (flow->close_reason || flow->spent)
		return DWELL_RANK_OVER;
	if (idle > timeout_coarse)
		return DWELL_RANK_IDLE;
	if (!(flow->side[0].packets && flow->side[1].packets) && !flow->samples && idle > 953)
		return DWELL_RANK_UNANSWERED;
	return DWELL_RANK_NONE;
}

/* A place for a new flow in one of its two buckets, packed: which bucket, which
 * way, how good. The first bucket is taken, which look-ups try first, unless it
 * is half full and the second is emptier. A tag is unique within its
 * bucket, so that a look-up tries one way; a bucket that has the tag already is
 * out.
 */
#define DWELL_VACANCY(second, way, rank) ((second) | (way) << 8 | (rank) << 16)
#define dwell_vacancy_second(v) ((v)&0xff)
#define dwell_vacancy_way(v) ((v) >> 8 & (DWELL_WAYS - 1))
#define dwell_vacancy_rank(v) ((v) >> 16)

static __always_inline __u32 dwell_bucket_used(const struct dwell_bucket *bucket)
{
	__u64 tags = bucket->tags;

	return !!(tags & 0xffff) + !!(tags >> 16 & 0xffff) + !!(tags >> 32 & 0xffff) +
	       !!(tags >> 48);
}

static __always_inline __u32 dwell_vacancy_of(void *embedder, __u32 first, __u32 second, __u64 tag,
					      __u32 now_coarse, __u32 timeout_coarse)
{
	const struct dwell_bucket *one = dwell_bucket_at(embedder, first);
	const struct dwell_bucket *two = dwell_bucket_at(embedder, second);
	__u32 best = DWELL_VACANCY(0, 0, DWELL_RANK_NONE), swap;

	swap = one && two && dwell_bucket_used(one) >= DWELL_WAYS / 2 &&
	       dwell_bucket_used(two) < dwell_bucket_used(one);
	for (__u32 i = 0; i < 2 * DWELL_WAYS; i++) {
		__u32 other = (i >= DWELL_WAYS) ^ swap, index = other ? second : first;
		const struct dwell_bucket *bucket = other ? two : one;
		__u32 way = i & (DWELL_WAYS - 1), rank;

		if (!bucket || dwell_way_of(bucket->tags, tag) < DWELL_WAYS)
			continue;
		if (!(bucket->tags >> 16 * way & 0xffff))
			rank = DWELL_RANK_FREE;
		else
			rank = dwell_rank(dwell_flow_at(embedder, index * DWELL_WAYS + way),
					  now_coarse, timeout_coarse);
		if (rank < dwell_vacancy_rank(best))
			best = DWELL_VACANCY(other, way, rank);
	}
	return best;
}

static __always_inline int dwell_bucket_lock(struct dwell_bucket *bucket)
{
	return __sync_val_compare_and_swap(&bucket->lock, 0, 1) == 0;
}

static __always_inline void dwell_bucket_unlock(struct dwell_bucket *bucket)
{
	/* an exchange: on machines that reorder stores, all before it are seen first */
	__sync_lock_test_and_set(&bucket->lock, 0);
}

/* Writes a new flow over way `way`; nobody finds it before its tag is there.
 * Under the bucket's lock.
 */
static __always_inline void dwell_flow_write(struct dwell_bucket *bucket, __u32 way,
					     struct dwell_flow *flow,
					     struct dwell_memories *memories,
					     const struct dwell_packet *packet,
					     struct dwell_clock *clock)
{
	__u64 shift = 16 * way;

	*(volatile __u64 *)&bucket->tags = bucket->tags & ~(0xffffULL << shift);
	DWELL_BARRIER();
	__builtin_memset(flow, 0, sizeof(*flow));
	__builtin_memset(memories, 0, sizeof(*memories));
	flow->key = packet->key;
	flow->proto = packet->proto;
	flow->opener = packet->direction;
	flow->seen = dwell_now_coarse(clock);
	memories->first_ns = dwell_now(clock);
	DWELL_BARRIER();
	*(volatile __u64 *)&bucket->tags = bucket->tags | dwell_tag(packet->hash) << shift;
}

#endif
