/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Heavy hitters by randomized admission (RAP: Ben Basat, Chen, Einziger, Friedman, Kassner, "Randomized admission
 * policy for efficient top-k, frequency, and volume estimation"): a connection without an entry replaces the lightest
 * one, whose count is c, with probability 1 / (c + 1), and continues its count. So light connections, of which there
 * are many, seldom replace each other.
 *
 * If two CPUs use one table at once, counts may be lost and admissions are skipped.
 */
#ifndef DWELL_LB_HEAVY_H
#define DWELL_LB_HEAVY_H

#include "base/base.h"
#include "lb/heavy_types.h"

static __always_inline __u64 dwell_heavy_tag(const struct dwell_address *address)
{
	__u64 hash = dwell_mix(dwell_mix(0, address->high), address->low);

	return hash >> 48 ? hash >> 48 : 1;
}

/* Returns the lane that holds this tag, or 4; see dwell_way_of(). */
static __always_inline __u32 dwell_heavy_lane(__u64 tags, __u64 tag)
{
	const __u64 ones = 0x0001000100010001ULL;
	__u64 other = tags ^ tag * ones;
	__u64 zero = (other - ones) & ~other & ones << 15;

	if (!zero)
		return 4;
	zero = (zero & -zero) >> 15;
	return (zero >> 16 & 1) | (zero >> 31 & 2) | (zero >> 48 & 1) * 3;
}

#define DWELL_HEAVY_NONE DWELL_HEAVY_MAX
#define DWELL_HEAVY_ANY_PORT 0x10000

/* Returns the entry of a connection, or with DWELL_HEAVY_ANY_PORT one of an address; DWELL_HEAVY_NONE if there is none.
 */
static __always_inline __u32 dwell_heavy_find(const struct dwell_heavy *heavy, const struct dwell_address *address,
					      __u32 port, const struct dwell_heavy_config *config)
{
	__u64 tag = dwell_heavy_tag(address);

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 word = 0; word < DWELL_HEAVY_MAX / 4; word++) {
		__u64 tags = *(const volatile __u64 *)&heavy->tags[word];

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
		for (__u32 tries = 0; tries < 4; tries++) {
			__u32 lane = dwell_heavy_lane(tags, tag), place;
			const struct dwell_heavy_client *end;

			if (lane > 3)
				break;
			place = (word * 4 + lane) & (DWELL_HEAVY_MAX - 1);
			DWELL_OPAQUE(place);
			end = &heavy->client[place & (DWELL_HEAVY_MAX - 1)];
			if (place < config->most && end->address.high == address->high &&
			    end->address.low == address->low && (port == DWELL_HEAVY_ANY_PORT || end->port == port))
				return place;
			tags &= ~(0xffffULL << 16 * lane);
		}
		if (word * 4 + 4 >= config->most)
			break;
	}
	return DWELL_HEAVY_NONE;
}

static __always_inline void dwell_heavy_set_tag(struct dwell_heavy *heavy, __u32 place, __u64 tag)
{
	__u32 word = place / 4 & (DWELL_HEAVY_MAX / 4 - 1), shift = 16 * (place & 3);
	__u64 tags = heavy->tags[word];

	*(volatile __u64 *)&heavy->tags[word] = (tags & ~(0xffffULL << shift)) | tag << shift;
}

/* Ends an interval. Entries that were not hit in two of them are freed. */
static __always_inline void dwell_heavy_turn(struct dwell_heavy *heavy)
{
	heavy->packets = 0;
	heavy->least = 0;
	heavy->turned = 1;
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 place = 0; place < DWELL_HEAVY_MAX; place++) {
		heavy->before[place] = heavy->count[place];
		heavy->count[place] = 0;
		if (!heavy->before[place])
			dwell_heavy_set_tag(heavy, place, 0);
	}
}

static __always_inline int dwell_heavy_lock(struct dwell_heavy *heavy)
{
	return __sync_val_compare_and_swap(&heavy->lock, 0, 1) == 0;
}

static __always_inline void dwell_heavy_unlock(struct dwell_heavy *heavy)
{
	__sync_lock_test_and_set(&heavy->lock, 0);
}

static __always_inline void dwell_heavy_tick(struct dwell_heavy *heavy, const struct dwell_heavy_config *config)
{
	if (dwell_likely(++heavy->packets < config->interval) || !dwell_heavy_lock(heavy))
		return;
	if (heavy->packets >= config->interval)
		dwell_heavy_turn(heavy);
	dwell_heavy_unlock(heavy);
}

/* Returns a free entry, or else the lightest, and its count. It has no branch, as the verifier would continue from each
 * entry separately.
 */
static __always_inline __u32 dwell_heavy_lightest(const struct dwell_heavy *heavy,
						  const struct dwell_heavy_config *config, __u32 *least)
{
	__u64 lightest = 1ULL << 62;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 place = 0; place < DWELL_HEAVY_MAX; place++) {
		__u64 count = heavy->count[place] + heavy->before[place];
		__u64 is_used = ((__u64)place - config->most) >> 63, candidate, is_less;

		/* without this, the compiler would make branches of them */
		DWELL_OPAQUE(is_used);
		candidate = (is_used ^ 1) << 61 | count << 8 | place;
		is_less = (candidate - lightest) >> 63; /* both are below 2^63 */
		DWELL_OPAQUE(is_less);
		lightest += (candidate - lightest) & -is_less;
	}
	*least = lightest >> 8;
	return lightest & (DWELL_HEAVY_MAX - 1);
}

/* Counts a packet of a connection with an entry. Returns false if it has none. */
static __always_inline int dwell_heavy_hit(struct dwell_heavy *heavy, const struct dwell_address *address, __u16 port,
					   const struct dwell_heavy_config *config)
{
	__u32 place = dwell_heavy_find(heavy, address, port, config);

	if (place >= DWELL_HEAVY_MAX)
		return 0;
	heavy->count[place & (DWELL_HEAVY_MAX - 1)]++;
	dwell_heavy_tick(heavy, config);
	return 1;
}

static __always_inline void dwell_heavy_replace(struct dwell_heavy *heavy, __u32 place,
						const struct dwell_address *address, __u16 port)
{
	struct dwell_heavy_client *end = &heavy->client[place];

	dwell_heavy_set_tag(heavy, place, 0);
	DWELL_BARRIER();
	end->address = *address;
	end->port = port;
	DWELL_BARRIER();
	dwell_heavy_set_tag(heavy, place, dwell_heavy_tag(address));
	heavy->count[place]++;
}

/* Returns true with probability 1 / (count + 1). */
static __always_inline int dwell_heavy_draw(__u32 random, __u32 count)
{
	return !((random * ((__u64)count + 1)) >> 32);
}

/* Counts a packet of a connection without an entry. The same random number is tried against a lower bound of the least
 * count, and then against the count itself: most packets need no search.
 */
static __always_inline void dwell_heavy_admit(struct dwell_heavy *heavy, const struct dwell_address *address,
					      __u16 port, __u32 random, const struct dwell_heavy_config *config)
{
	__u32 place, least;

	if (dwell_heavy_draw(random, heavy->least) && dwell_heavy_lock(heavy)) {
		place = dwell_heavy_lightest(heavy, config, &least) & (DWELL_HEAVY_MAX - 1);
		heavy->least = least;
		if (dwell_heavy_draw(random, least))
			dwell_heavy_replace(heavy, place, address, port);
		dwell_heavy_unlock(heavy);
	}
	dwell_heavy_tick(heavy, config);
}

/* Counts a packet that a client sends to this server. `address` identifies the client: for IPv6 it is the part of the
 * address that selects the server.
 */
static __always_inline void dwell_heavy_count(struct dwell_heavy *heavy, const struct dwell_address *address,
					      __u16 port, __u32 random, const struct dwell_heavy_config *config)
{
	if (!dwell_heavy_hit(heavy, address, port, config))
		dwell_heavy_admit(heavy, address, port, random, config);
}

/* Returns how many connections are heavier than the heaviest of this address. It has no branch; see
 * dwell_heavy_lightest().
 */
static __always_inline __u32 dwell_heavy_rank(const struct dwell_heavy *heavy, const struct dwell_address *address,
					      const struct dwell_heavy_config *config)
{
	__u64 heaviest = 0;
	__u32 rank = 0;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 place = 0; place < DWELL_HEAVY_MAX; place++) {
		const struct dwell_address *other = &heavy->client[place].address;
		__u64 count = heavy->count[place] + heavy->before[place];
		__u64 differs = (other->high ^ address->high) | (other->low ^ address->low);
		__u64 is_more =
			((__u64)place - config->most) >> 63 & (heaviest - count) >> 63 & ~((differs | -differs) >> 63);

		DWELL_OPAQUE(is_more);
		heaviest += (count - heaviest) & -is_more;
	}
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 place = 0; place < DWELL_HEAVY_MAX; place++) {
		__u64 count = heavy->count[place] + heavy->before[place];
		__u64 is_heavier = ((__u64)place - config->most) >> 63 & (heaviest - count) >> 63;

		DWELL_OPAQUE(is_heavier);
		rank += is_heavier;
	}
	return rank;
}

/* Returns true if a connection of this address is among the server's heaviest. */
static __always_inline int dwell_heavy_has(const struct dwell_heavy *heavy, const struct dwell_address *address,
					   const struct dwell_heavy_config *config)
{
	if (dwell_heavy_find(heavy, address, DWELL_HEAVY_ANY_PORT, config) >= DWELL_HEAVY_MAX)
		return 0;
	return config->top >= config->most || dwell_heavy_rank(heavy, address, config) < config->top;
}

#endif
