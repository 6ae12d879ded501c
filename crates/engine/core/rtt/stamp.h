/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stamps: times of packets that wait for their answer, in one array for all flows and matchers. A flow may have any
 * number of them; consecutive ones lie next to each other, so that the next is in a cache line or page that was just
 * used. A stamp may be in any entry of a set, which is a cache line; one that is never answered is overwritten by another
 * that finds its set full.
 */
#ifndef DWELL_RTT_STAMP_H
#define DWELL_RTT_STAMP_H

#include "parse/packet.h"

#define DWELL_STAMP_TIME_BITS 48
#define DWELL_STAMP_TIME ((1ULL << DWELL_STAMP_TIME_BITS) - 1)

/* One stamp. 48 bits of hash identify it: one look-up in 7 * 10^13 matches falsely. 48 bits of time wrap in 78 hours. */
struct dwell_stamp {
	__u32 check; /* 0: empty */
	__u32 ack;   /* tcp-timestamp: the least that the echo must acknowledge; see icmp.h */
	__u64 check_time;
};

#define DWELL_STAMP_WAYS 4

/* The entries that a stamp can be in. */
struct dwell_stamp_set {
	struct dwell_stamp stamp[DWELL_STAMP_WAYS];
};

static __always_inline __u64 dwell_stamp_hash(const struct dwell_packet *packet, __u32 method, __u32 direction,
					      __u32 id)
{
	return dwell_mix(dwell_mix(packet->hash, (__u64)id << 8 | method << 1 | direction), packet->hash >> 7);
}

/* Returns the index of a stamp: `position` orders the stamps of a flow, method and direction, so that consecutive ones
 * are adjacent.
 */
static __always_inline __u32 dwell_stamp_index(const struct dwell_packet *packet, __u32 method, __u32 direction,
					       __u32 position)
{
	return (packet->hash >> 24) + (method << 1 | direction) * 0x9e3779b1 + position;
}

static __always_inline __u32 dwell_stamp_check(__u64 hash)
{
	return hash >> 32 ? hash >> 32 : 1;
}

#define DWELL_STAMP_NONE (~0ULL)

/* Returns when the packet that `hash` identifies was stamped, or DWELL_STAMP_NONE. A writer clears the check word
 * first, so that a time that is read before it belongs to it.
 */
static __always_inline __u64 dwell_stamp_read(const struct dwell_stamp *stamp, __u64 hash, __u32 *ack)
{
	__u64 check_time;

	if (*(const volatile __u32 *)&stamp->check != dwell_stamp_check(hash))
		return DWELL_STAMP_NONE;
	check_time = *(const volatile __u64 *)&stamp->check_time;
	*ack = *(const volatile __u32 *)&stamp->ack;
	if (*(const volatile __u32 *)&stamp->check != dwell_stamp_check(hash) ||
	    check_time >> DWELL_STAMP_TIME_BITS != ((__u32)hash >> 16))
		return DWELL_STAMP_NONE;
	return check_time & DWELL_STAMP_TIME;
}

static __always_inline __u64 dwell_stamp_age(__u64 time_ns, __u64 now_ns)
{
	return (now_ns - time_ns) & DWELL_STAMP_TIME;
}

/* Returns true if the clock was set back since the stamp. */
static __always_inline int dwell_is_backwards(__u64 age_ns)
{
	return age_ns >> (DWELL_STAMP_TIME_BITS - 1) != 0;
}

static __always_inline void dwell_stamp_write(struct dwell_stamp *stamp, __u64 hash, __u32 ack, __u64 now_ns)
{
	*(volatile __u32 *)&stamp->check = 0;
	stamp->ack = ack;
	stamp->check_time = (now_ns & DWELL_STAMP_TIME) | (__u64)((__u32)hash >> 16) << DWELL_STAMP_TIME_BITS;
	*(volatile __u32 *)&stamp->check = dwell_stamp_check(hash);
}

#endif
