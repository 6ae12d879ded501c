/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table: a fixed array of buckets with four flows each. A flow lives in one of the two buckets that its hash
 * selects, so that the table fills evenly; both directions share the slot. There is no allocation and no list:
 * admitting and evicting a flow is O(1), memory is what was requested at the start, and kernel and replay evict alike.
 * A slot begins with its head; the rest belongs to the algorithm on the table.
 */
#ifndef DWELL_TABLE_H
#define DWELL_TABLE_H

#include "table/embed.h"
#include "parse/filter.h"
#include "parse/packet.h"

#define DWELL_WAYS 4

/* The beginning of every slot. */
struct dwell_head {
	struct dwell_flow_key key;
	__u8 proto;
	__u8 close_reason; /* enum dwell_close_reason; set when the flow is over */
	__u8 flags;        /* DWELL_HEAD_* */
	__u8 reserved;
	__u32 seen; /* time of the last packet, in coarse units */
};
#define DWELL_HEAD_OPENER 1  /* direction of the first packet */
#define DWELL_HEAD_SETTLED 2 /* the flow has shown that it is not part of a flood */
#define DWELL_HEAD_SPENT 4   /* the flow has had its answer and may make room for others */
#define DWELL_HEAD_CLOSING 8 /* one side has said that the flow is over */
#define DWELL_HEAD_ESTABLISHED 16
#define DWELL_HEAD_ENDED 32   /* at a balancer: it was closed by a sender that knew its sequence numbers */
#define DWELL_HEAD_ORPHAN 64  /* at a balancer: its beginning was not seen */
#define DWELL_HEAD_YIELDS 128 /* at a balancer: until it has settled it may be replaced at any time */

/* A flow whose end one side has announced may lose its slot after 10 s of silence. It is not removed at once because
 * anybody can forge such an end, and after one half has closed, answers go on.
 */
#define DWELL_CLOSING_COARSE (10000000000ULL >> 20)

/* Under pressure, a flow that may be part of a flood loses its slot after 1 s of silence, or 30 s if it was seen to begin
 * and has been established, in coarse units.
 */
#define DWELL_UNSETTLED_COARSE (1000000000 >> 20)
#define DWELL_UNSETTLED_ESTABLISHED_COARSE (30 * DWELL_UNSETTLED_COARSE)

/* Everything that a step of the table works with. */
struct dwell_table {
	const struct dwell_table_config *config;
	struct dwell_counters *counters;
	struct dwell_clock *clock;
	void *embedder;
};

/* A bucket. Buckets are apart from the flows so that all of them stay in cache. */
struct dwell_bucket {
	__u64 tags; /* 16 bits of hash per way; 0: the way is free */
	__u32 lock;
	__u32 reserved;
};

#define DWELL_NO_SLOT (~0U)

static __always_inline void dwell_table_count(struct dwell_table *table, __u32 counter)
{
	table->counters->value[counter]++;
}

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

/* Returns the way that holds this tag, or DWELL_WAYS. It is plain arithmetic because the verifier would walk a loop
 * with a branch once per way.
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

static __always_inline int dwell_same_key(const struct dwell_flow_key *x, const struct dwell_flow_key *y)
{
	const __u64 *p = (const void *)x, *q = (const void *)y;

	return !((p[0] ^ q[0]) | (p[1] ^ q[1]) | (p[2] ^ q[2]) | (p[3] ^ q[3]) | (p[4] ^ q[4]));
}

/* The result of a look-up; `head` is null if the flow is not in the table. */
struct dwell_lookup {
	struct dwell_head *head;
	__u32 slot_index;
	__u32 opened;   /* the packet has opened the flow */
	__u32 filtered; /* the filter leaves the flow out, which is counted */
};

static __always_inline struct dwell_lookup dwell_flow_in(void *embedder, __u32 index, const struct dwell_packet *packet)
{
	struct dwell_bucket *bucket = dwell_bucket_at(embedder, index);
	struct dwell_lookup none = {}, found = {};
	__u64 tag = dwell_tag(packet->hash), tags;
	__u32 way;

	if (!bucket)
		return none;
	tags = *(volatile __u64 *)&bucket->tags;
	/* this branch is predicted well, so that the slot can be fetched before the tags have been compared */
	if (dwell_likely((tags & 0xffff) == tag)) {
		found.slot_index = dwell_slot_of(bucket, 0);
	} else {
		way = dwell_way_of(tags, tag);
		if (way >= DWELL_WAYS)
			return none;
		found.slot_index = dwell_slot_of(bucket, way);
	}
	found.head = dwell_head_at(embedder, found.slot_index);
	if (!found.head || !dwell_same_key(&found.head->key, &packet->key) || found.head->proto != packet->proto)
		return none;
	return found;
}

static __always_inline struct dwell_lookup dwell_flow_find(void *embedder, __u32 first, __u32 second,
							   const struct dwell_packet *packet)
{
	struct dwell_lookup found = dwell_flow_in(embedder, first, packet);

	if (!found.head)
		found = dwell_flow_in(embedder, second, packet);
	return found;
}

/* How suitable a slot is for a new flow, best first: free; its flow is over; its flow was idle for the timeout; under
 * pressure, its flow may be part of a flood and was silent for long. From DWELL_RANK_YIELDING on, a rank is that value plus
 * the silence, so that the newest go first: whoever fills the table replaces his own flows, not those that were there
 * before.
 */
enum dwell_rank {
	DWELL_RANK_FREE,
	DWELL_RANK_OVER,
	DWELL_RANK_IDLE,
	DWELL_RANK_UNSETTLED,
	DWELL_RANK_YIELDING,
	DWELL_RANK_NONE = 0xffff,
};
_Static_assert(DWELL_RANK_YIELDING + DWELL_UNSETTLED_ESTABLISHED_COARSE < DWELL_RANK_NONE, "a rank");

/* Returns true if an idle time is negative: another CPU saw the flow a moment later than now, or the clock of a capture
 * stepped back.
 */
static __always_inline int dwell_is_future(__u32 idle)
{
	return idle >= 0xf0000000;
}

static __always_inline int dwell_is_closed(const struct dwell_head *head, __u32 idle)
{
	return head->flags & DWELL_HEAD_CLOSING && idle > DWELL_CLOSING_COARSE;
}

static __always_inline __u32 dwell_rank(const struct dwell_head *head, __u32 now_coarse, __u32 timeout_coarse)
{
	__u32 idle, is_proper;

	if (!head)
		return DWELL_RANK_NONE;
	idle = now_coarse - head->seen;
	if (dwell_is_future(idle))
		return DWELL_RANK_NONE;
	if (head->close_reason || head->flags & DWELL_HEAD_SPENT)
		return DWELL_RANK_OVER;
	if (idle > timeout_coarse || dwell_is_closed(head, idle))
		return DWELL_RANK_IDLE;
	if (head->flags & DWELL_HEAD_SETTLED)
		return DWELL_RANK_NONE;
	is_proper = (head->flags & (DWELL_HEAD_ESTABLISHED | DWELL_HEAD_ORPHAN)) == DWELL_HEAD_ESTABLISHED;
	if (idle > (is_proper ? DWELL_UNSETTLED_ESTABLISHED_COARSE : DWELL_UNSETTLED_COARSE))
		return DWELL_RANK_UNSETTLED;
	if (!(head->flags & DWELL_HEAD_YIELDS) || (is_proper && idle <= DWELL_UNSETTLED_COARSE))
		return DWELL_RANK_NONE;
	return DWELL_RANK_YIELDING + idle;
}

/* A slot for a new flow in one of its two buckets, packed: which bucket, which way, how suitable. The first bucket,
 * which look-ups try first, is preferred unless it is half full and the second is emptier. A tag is unique within its
 * bucket, so that a look-up tries one way; a bucket that already has the tag cannot be used.
 */
#define DWELL_VACANCY(second, way, rank) ((second) | (way) << 8 | (rank) << 16)
#define dwell_vacancy_second(v) ((v)&0xff)
#define dwell_vacancy_way(v) ((v) >> 8 & (DWELL_WAYS - 1))
#define dwell_vacancy_rank(v) ((v) >> 16)

static __always_inline __u32 dwell_bucket_used(const struct dwell_bucket *bucket)
{
	__u64 tags = bucket->tags;

	return !!(tags & 0xffff) + !!(tags >> 16 & 0xffff) + !!(tags >> 32 & 0xffff) + !!(tags >> 48);
}

static __always_inline __u32 dwell_vacancy_of(void *embedder, __u32 first, __u32 second, __u64 tag, __u32 now_coarse,
					      __u32 timeout_coarse)
{
	const struct dwell_bucket *one = dwell_bucket_at(embedder, first);
	const struct dwell_bucket *two = dwell_bucket_at(embedder, second);
	__u32 best = DWELL_VACANCY(0, 0, DWELL_RANK_NONE), swap;

	swap = one && two && dwell_bucket_used(one) >= DWELL_WAYS / 2 &&
	       dwell_bucket_used(two) < dwell_bucket_used(one);
	/* the tags alone show a free way: no flow has to be read */
	for (__u32 i = 0; i < 2; i++) {
		const struct dwell_bucket *bucket = i ^ swap ? two : one;
		__u32 way;

		if (!bucket || !dwell_slot_is_available(embedder) || dwell_way_of(bucket->tags, tag) < DWELL_WAYS)
			continue;
		way = dwell_way_of(bucket->tags, 0);
		if (way < DWELL_WAYS)
			return DWELL_VACANCY(i ^ swap, way, DWELL_RANK_FREE);
	}
	for (__u32 i = 0; i < 2 * DWELL_WAYS; i++) {
		__u32 other = (i >= DWELL_WAYS) ^ swap;
		const struct dwell_bucket *bucket = other ? two : one;
		__u32 way = i & (DWELL_WAYS - 1), rank;

		if (!bucket || dwell_way_of(bucket->tags, tag) < DWELL_WAYS || !(bucket->tags >> 16 * way & 0xffff))
			continue;
		rank = dwell_rank_at(embedder, dwell_slot_of(bucket, way), now_coarse, timeout_coarse);
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
	/* an exchange: on machines that reorder stores it makes all earlier ones visible first */
	__sync_lock_test_and_set(&bucket->lock, 0);
}

/* Writes a new flow over way `way`. Look-ups cannot find it before its tag is there. The bucket is locked. Returns
 * false if the slot is beyond the table, which cannot happen, but the BPF verifier does not know that.
 */
static __always_inline int dwell_flow_write(struct dwell_table *table, struct dwell_bucket *bucket, __u32 way,
					    __u32 slot_index, const struct dwell_packet *packet)
{
	__u64 shift = 16 * way;
	struct dwell_head *head = dwell_head_at(table->embedder, slot_index);

	*(volatile __u64 *)&bucket->tags = bucket->tags & ~(0xffffULL << shift);
	DWELL_BARRIER();
	if (!head || !dwell_slot_init(table, slot_index, packet))
		return 0;
	head->key = packet->key;
	head->proto = packet->proto;
	head->flags = packet->direction ? DWELL_HEAD_OPENER : 0;
	head->seen = dwell_now_coarse(table->clock);
	DWELL_BARRIER();
	*(volatile __u64 *)&bucket->tags = bucket->tags | dwell_tag(packet->hash) << shift;
	return 1;
}

/* Gives the packet's flow a slot. Returns no head if the filter or the table refuses, or no flow may begin with the packet. */
static __always_inline struct dwell_lookup dwell_flow_admit(struct dwell_table *table,
							    const struct dwell_packet *packet, __u32 first,
							    __u32 second)
{
	__u64 tag = dwell_tag(packet->hash);
	struct dwell_lookup none = {}, found = {};
	struct dwell_bucket *bucket;
	__u32 vacancy, index, way, rank, reason;

	if (!dwell_filter_admits(&table->config->filter, &packet->key, packet->proto, dwell_a_port(packet),
				 dwell_b_port(packet))) {
		dwell_table_count(table, DWELL_SKIP_FILTERED);
		none.filtered = 1;
		return none;
	}
	if (!packet->may_open)
		return none;
	vacancy = dwell_vacancy_for(table, first, second, tag);
	index = dwell_vacancy_second(vacancy) ? second : first;
	rank = dwell_vacancy_rank(vacancy);
	way = dwell_vacancy_way(vacancy);
	bucket = dwell_bucket_at(table->embedder, index);
	if (rank == DWELL_RANK_NONE || !bucket) {
		dwell_table_count(table, DWELL_FLOWS_UNTRACKED);
		return none;
	}
	if (!dwell_bucket_lock(bucket)) {
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return none;
	}
	/* another CPU may have used the slot, or admitted this very flow */
	if (dwell_vacancy_for(table, first, second, tag) != vacancy)
		found.slot_index = DWELL_NO_SLOT;
	else if (rank == DWELL_RANK_FREE)
		found.slot_index = dwell_slot_allocate(table, bucket, way);
	else
		found.slot_index = dwell_slot_of(bucket, way);
	found.head = dwell_head_at(table->embedder, found.slot_index);
	if (!found.head || !dwell_slot_acquire(table, found.slot_index)) {
		if (found.head && rank == DWELL_RANK_FREE)
			dwell_slot_free(table, found.slot_index);
		dwell_bucket_unlock(bucket);
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return none;
	}
	if (rank != DWELL_RANK_FREE) {
		reason = rank == DWELL_RANK_IDLE ? DWELL_CLOSE_IDLE : DWELL_CLOSE_EVICTED;
		if (rank == DWELL_RANK_IDLE)
			dwell_table_count(table, DWELL_FLOWS_EXPIRED);
		else if (rank >= DWELL_RANK_UNSETTLED)
			dwell_table_count(table, DWELL_FLOWS_EVICTED);
		else if (found.head->flags & DWELL_HEAD_SPENT)
			reason = DWELL_CLOSE_ANSWERED;
		if (!found.head->close_reason)
			dwell_slot_close(table, found.slot_index, reason);
		dwell_table_count(table, DWELL_SLOTS_FREED);
	}
	found.opened = dwell_flow_write(table, bucket, way, found.slot_index, packet);
	dwell_slot_release(table, found.slot_index);
	dwell_bucket_unlock(bucket);
	if (!found.opened)
		return none;
	dwell_table_count(table, DWELL_FLOWS_OPENED);
	return found;
}

/* Finds the packet's flow, or admits it if it may begin with this packet. */
static __always_inline struct dwell_lookup dwell_flow_of(struct dwell_table *table, const struct dwell_packet *packet)
{
	__u32 mask = table->config->bucket_mask;
	__u32 first = dwell_bucket_first(packet->hash, mask);
	__u32 second = dwell_bucket_second(packet->hash, mask);
	struct dwell_lookup found = dwell_flow_find(table->embedder, first, second, packet);
	__u32 now_coarse;

	if (!found.head)
		return dwell_flow_admit(table, packet, first, second);
	now_coarse = dwell_now_coarse(table->clock);
	if (found.head->seen != now_coarse)
		found.head->seen = now_coarse;
	return found;
}

/* Frees flows of a bucket: those that were idle for the timeout, unless their way is among the bits of `kept`, or, with
 * DWELL_CLOSE_END at the end of a run, all of them.
 */
static __always_inline void dwell_bucket_sweep(struct dwell_table *table, __u32 index, __u32 reason, __u32 kept)
{
	__u32 coarse = dwell_now_coarse(table->clock);
	__u32 timeout = table->config->idle_timeout_ns >> 20;
	struct dwell_bucket *bucket = dwell_bucket_at(table->embedder, index);

	if (!bucket || !bucket->tags || !dwell_bucket_lock(bucket))
		return;
	for (__u32 way = 0; way < DWELL_WAYS; way++) {
		__u32 slot_index = dwell_slot_of(bucket, way), idle;
		struct dwell_head *head = dwell_head_at(table->embedder, slot_index);

		if (!head || !(bucket->tags >> 16 * way & 0xffff))
			continue;
		idle = coarse - head->seen;
		if (reason != DWELL_CLOSE_END && (dwell_is_future(idle) || idle <= timeout || kept >> way & 1))
			continue;
		if (!dwell_slot_acquire(table, slot_index))
			continue;
		if (!head->close_reason) {
			if (reason == DWELL_CLOSE_IDLE)
				dwell_table_count(table, DWELL_FLOWS_EXPIRED);
			dwell_slot_close(table, slot_index, reason);
		}
		dwell_table_count(table, DWELL_SLOTS_FREED);
		*(volatile __u64 *)&bucket->tags = bucket->tags & ~(0xffffULL << 16 * way);
		dwell_slot_release(table, slot_index);
		dwell_slot_free(table, slot_index);
	}
	dwell_bucket_unlock(bucket);
}

#endif
