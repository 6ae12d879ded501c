/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Log-linear buckets: 64 in each power of two, so that a bucket is at most
 * 1/64 (1.6 %) wide relative to its lower edge. Up to 127 ns buckets are 1 ns;
 * the last one ends at 2^36 ns (68.7 s) and holds all that is longer.
 */
#ifndef DWELL_BASE_HISTOGRAM_H
#define DWELL_BASE_HISTOGRAM_H

#include "base/base.h"

#define DWELL_GROUPING_POWER 6
#define DWELL_MAX_POWER 36
#define DWELL_BUCKETS ((DWELL_MAX_POWER - DWELL_GROUPING_POWER + 1) << DWELL_GROUPING_POWER)

/* Durations that one CPU counted for one group in one interval. */
struct dwell_histogram {
	__u64 count;
	__u64 sum_ns;
	__u64 min_ns; /* undefined while count is 0 */
	__u64 max_ns;
	__u32 bucket[DWELL_BUCKETS];
};

static __always_inline __u32 dwell_bucket_index(__u64 value_ns)
{
	__u32 power;

	if (value_ns < (2 << DWELL_GROUPING_POWER))
		return value_ns;
	if (value_ns >> DWELL_MAX_POWER)
		return DWELL_BUCKETS - 1;
	power = dwell_log2(value_ns);
	/* power >= 7 here: the shift keeps the 6 bits below the leading one */
	return ((power - DWELL_GROUPING_POWER) << DWELL_GROUPING_POWER) +
	       (value_ns >> ((power - DWELL_GROUPING_POWER) & 63));
}

static __always_inline void dwell_histogram_add(struct dwell_histogram *h, __u64 value_ns)
{
	__u32 index = dwell_bucket_index(value_ns);

	if (!h->count || value_ns < h->min_ns)
		h->min_ns = value_ns;
	if (!h->count || value_ns > h->max_ns)
		h->max_ns = value_ns;
	h->count++;
	h->sum_ns += value_ns;
	if (index < DWELL_BUCKETS)
		h->bucket[index]++;
}

#endif
