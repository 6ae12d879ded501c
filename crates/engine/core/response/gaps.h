/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Modes of the gaps between packets: Algorithm 2 of "Measuring Response Latencies Under Asymmetric Routing" (arXiv
 * 2505.14358).
 *
 * A mode takes 12 bytes. Its edges are floats of 16 bits, rounded outward, so that a mode never excludes a gap that it
 * counted; count and sum share a word and are exact.
 */
#ifndef DWELL_RESPONSE_GAPS_H
#define DWELL_RESPONSE_GAPS_H

#include "base/base.h"

#ifndef DWELL_MODES
#define DWELL_MODES 10
#endif

/* A duration as an unsigned float of 16 bits: 11 bits of mantissa, exact below 4096 ns, otherwise within 0.05 %. A
 * longer duration has a larger code; all from 2^36 ns (68.7 s) on share the last.
 */
#define DWELL_FLOAT16_MANTISSA_BITS 11
#define DWELL_FLOAT16_LIMIT_NS (1ULL << 36)

/* Returns the code of a duration, rounded down. */
static __always_inline __u16 dwell_float16_floor(__u64 ns)
{
	__u32 shift;

	if (ns >= DWELL_FLOAT16_LIMIT_NS)
		ns = DWELL_FLOAT16_LIMIT_NS - 1;
	if (ns < (2 << DWELL_FLOAT16_MANTISSA_BITS))
		return ns;
	shift = dwell_log2(ns) - DWELL_FLOAT16_MANTISSA_BITS;
	return (shift << DWELL_FLOAT16_MANTISSA_BITS) + (ns >> (shift & 63));
}

static __always_inline __u64 dwell_float16_ns(__u32 code)
{
	__u32 shift;

	if (code < (2 << DWELL_FLOAT16_MANTISSA_BITS))
		return code;
	shift = (code >> DWELL_FLOAT16_MANTISSA_BITS) - 1;
	return (__u64)(code - (shift << DWELL_FLOAT16_MANTISSA_BITS)) << (shift & 63);
}

/* Returns the code of a duration, rounded up. */
static __always_inline __u16 dwell_float16_ceil(__u64 ns)
{
	__u32 code = dwell_float16_floor(ns);

	return code + (dwell_float16_ns(code) < ns && ns < DWELL_FLOAT16_LIMIT_NS);
}

/* The number of durations and their sum in one word, of 24 and 40 bits (18 minutes). */
typedef __u64 dwell_tally;
#define DWELL_TALLY_ONE (1ULL << 40)
#define dwell_tally_count(tally) ((tally) >> 40)
#define dwell_tally_sum(tally) ((tally) & (DWELL_TALLY_ONE - 1))

/* Adds a duration. Returns 0 if the tally is full: it then stays as it is, so that its mean does. */
static __always_inline int dwell_tally_add(dwell_tally *tally, __u64 ns)
{
	if (dwell_unlikely(ns >= DWELL_TALLY_ONE || dwell_tally_sum(*tally) + ns >= DWELL_TALLY_ONE ||
			   *tally >= ~0ULL - DWELL_TALLY_ONE + 1))
		return 0;
	*tally += DWELL_TALLY_ONE + ns;
	return 1;
}

struct dwell_mode {
	__u32 low, high; /* a tally, in two words so that a mode takes 12 bytes */
	__u16 min, max;  /* edges, as floats of 16 bits */
};

struct dwell_modes {
	struct dwell_mode mode[DWELL_MODES]; /* ascending, more than epsilon apart */
};

static __always_inline dwell_tally dwell_mode_tally(const struct dwell_mode *mode)
{
	return mode->low | (__u64)mode->high << 32;
}

static __always_inline void dwell_mode_set(struct dwell_mode *mode, dwell_tally tally)
{
	mode->low = (__u32)tally;
	mode->high = tally >> 32;
}

/* How near to an edge a gap must be: absolute, or relative to the edge. */
struct dwell_tolerance {
	__u64 ns;
	__u32 q8; /* in 1/256; 0: absolute */
};

static __always_inline __u64 dwell_tolerance_ns(const struct dwell_tolerance *near, __u64 edge_ns)
{
	return near->q8 ? edge_ns * near->q8 >> 8 : near->ns;
}

/* Returns true if the durations from `low` to `high` touch. */
static __always_inline int dwell_touches(const struct dwell_tolerance *near, __u64 low_ns, __u64 high_ns)
{
	return low_ns + dwell_tolerance_ns(near, low_ns) >= high_ns;
}

static __always_inline int dwell_mode_holds(const struct dwell_mode *mode, const struct dwell_tolerance *near,
					    __u64 gap_ns)
{
	__u64 min = dwell_float16_ns(mode->min), reach = dwell_tolerance_ns(near, min);

	return gap_ns + reach >= min && dwell_touches(near, dwell_float16_ns(mode->max), gap_ns);
}

/* Removes bit `at`: keeps those below it and moves those above it down by one. */
static __always_inline __u32 dwell_bits_close(__u32 bits, __u32 at)
{
	__u32 below = (1U << at) - 1;

	return (bits & below) | (bits >> 1 & ~below);
}

/* Inserts a bit: moves bit `at` and those above it up by one. */
static __always_inline __u32 dwell_bits_open(__u32 bits, __u32 at)
{
	__u32 below = (1U << at) - 1;

	return (bits & below) | (bits & ~below) << 1;
}

/* What became of a gap. */
enum dwell_mode_result {
	DWELL_MODE_COUNTED,
	DWELL_MODE_DISCARDED, /* no mode is near, and none is left; or its mode is full */
};

/* Joins mode `at` and the one above it. */
static __always_inline void dwell_modes_join(struct dwell_modes *modes, __u8 *used, __u16 *marks, __u32 at)
{
	__u32 marked = *marks >> 1 & 1U << at;

	for (__u32 i = 0; i + 1 < DWELL_MODES; i++) {
		struct dwell_mode *mode = &modes->mode[i], *above = &modes->mode[i + 1];

		if (i == at) {
			__u64 one = dwell_mode_tally(mode), two = dwell_mode_tally(above);
			__u64 sum = dwell_tally_sum(one) + dwell_tally_sum(two);
			__u64 count = dwell_tally_count(one) + dwell_tally_count(two);

			mode->max = above->max;
			dwell_mode_set(mode, count << 40 | sum);
		} else if (i > at) {
			*mode = *above;
		}
	}
	*marks = dwell_bits_close(*marks, at + 1) | marked;
	(*used)--;
}

/* Returns false if two modes together hold more than a tally can. */
static __always_inline int dwell_modes_fit(const struct dwell_mode *one, const struct dwell_mode *two)
{
	__u64 a = dwell_mode_tally(one), b = dwell_mode_tally(two);

	return dwell_tally_sum(a) + dwell_tally_sum(b) < DWELL_TALLY_ONE &&
	       dwell_tally_count(a) + dwell_tally_count(b) < (1 << 24);
}

/* Joins the first pair of modes that touch, if there is one. A gap moves one edge, so that only rounding makes a second
 * pair.
 */
static __always_inline void dwell_modes_merge(struct dwell_modes *modes, __u8 *used, __u16 *marks,
					      const struct dwell_tolerance *near)
{
	for (__u32 i = 0; i + 1 < DWELL_MODES; i++) {
		const struct dwell_mode *low = &modes->mode[i], *high = &modes->mode[i + 1];

		if (i + 1 >= *used)
			return;
		if (dwell_touches(near, dwell_float16_ns(low->max), dwell_float16_ns(high->min)) &&
		    dwell_modes_fit(low, high)) {
			dwell_modes_join(modes, used, marks, i);
			return;
		}
	}
}

static __always_inline void dwell_modes_open(struct dwell_modes *modes, __u8 *used, __u16 *marks, __u64 gap_ns,
					     __u32 at)
{
	for (__u32 i = DWELL_MODES - 1; i > 0; i--)
		if (i > at)
			modes->mode[i] = modes->mode[i - 1];
	for (__u32 i = 0; i < DWELL_MODES; i++) {
		struct dwell_mode *mode = &modes->mode[i];

		if (i != at)
			continue;
		mode->min = dwell_float16_floor(gap_ns);
		mode->max = dwell_float16_ceil(gap_ns);
		dwell_mode_set(mode, DWELL_TALLY_ONE + gap_ns);
	}
	*marks = dwell_bits_open(*marks, at);
	(*used)++;
}

/* Counts a gap of less than 2^36 ns. `marks` has a bit for each mode that a
 * marked gap fell into: a candidate for the gap between batches.
 */
static __always_inline enum dwell_mode_result dwell_modes_add(struct dwell_modes *modes, __u8 *used, __u16 *marks,
							      __u32 limit, const struct dwell_tolerance *near,
							      __u64 gap_ns, __u32 marked)
{
	__u32 below = 0;

	for (__u32 i = 0; i < DWELL_MODES; i++) {
		struct dwell_mode *mode = &modes->mode[i];
		dwell_tally tally;
		__u16 code;

		if (i >= *used)
			break;
		if (!dwell_mode_holds(mode, near, gap_ns)) {
			below += dwell_float16_ns(mode->max) < gap_ns;
			continue;
		}
		tally = dwell_mode_tally(mode);
		if (!dwell_tally_add(&tally, gap_ns))
			return DWELL_MODE_DISCARDED;
		dwell_mode_set(mode, tally);
		*marks |= (!!marked) << i;
		code = dwell_float16_floor(gap_ns);
		if (dwell_likely(code >= mode->min && dwell_float16_ns(mode->max) >= gap_ns))
			return DWELL_MODE_COUNTED;
		if (code < mode->min)
			mode->min = code;
		else
			mode->max = dwell_float16_ceil(gap_ns);
		dwell_modes_merge(modes, used, marks, near);
		return DWELL_MODE_COUNTED;
	}
	if (*used >= limit || *used >= DWELL_MODES)
		return DWELL_MODE_DISCARDED;
	dwell_modes_open(modes, used, marks, gap_ns, below);
	*marks |= (!!marked) << below;
	dwell_modes_merge(modes, used, marks, near); /* rounded edges may touch */
	return DWELL_MODE_COUNTED;
}

#endif
