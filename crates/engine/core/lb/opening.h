/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many connection IDs and tokens of QUIC may turn out to be forged: so many per second, CPU and bucket of networks. What
 * is above that is not opened, as opening one costs passes of AES. A network that has sent one that was made with the key has
 * a budget of its own for some time, so that it is left alone when forgers use the addresses of others. An old token counts
 * for neither.
 */
#ifndef DWELL_LB_OPENING_H
#define DWELL_LB_OPENING_H

#include "base/base.h"
#include "lb/network.h"
#include "lb/zero_rtt_types.h"

#define DWELL_FORGED_PER_S 64
/* Of a network that is known. */
#define DWELL_FORGED_KNOWN_PER_S 512
/* How long a network is known after its last connection ID or token that was made with the key. */
#define DWELL_KNOWN_S 60

/* Returns the bucket of a network, which dwell_network() has hashed. */
static __always_inline __u32 dwell_opening_bucket(__u64 network)
{
	return network / (~0ULL / DWELL_OPENINGS + 1);
}

/* Returns what tells networks of a bucket apart; never 0. */
static __always_inline __u32 dwell_opening_tag(__u64 network)
{
	return network >> 16 | 1;
}

static __always_inline int dwell_opening_knows(const struct dwell_opening *bucket, __u64 network, __u32 now_s)
{
	return bucket->known == dwell_opening_tag(network) && now_s - bucket->known_s <= DWELL_KNOWN_S;
}

/* Returns false if the connection ID that a network has sent is not to be opened. */
static __always_inline int dwell_opening_may(const struct dwell_opening *bucket, __u64 network, __u32 now_s)
{
	if (bucket->second != now_s)
		return 1;
	return dwell_opening_knows(bucket, network, now_s) ? bucket->forged_known < DWELL_FORGED_KNOWN_PER_S
							   : bucket->forged < DWELL_FORGED_PER_S;
}

/* Takes note of a connection ID that was opened. */
static __always_inline void dwell_opening_note(struct dwell_opening *bucket, __u64 network, __u32 now_s, int is_forged)
{
	int is_known = dwell_opening_knows(bucket, network, now_s);

	if (bucket->second != now_s) {
		bucket->second = now_s;
		bucket->forged = 0;
		bucket->forged_known = 0;
	}
	if (!is_forged) {
		bucket->forged_known = is_known ? bucket->forged_known : 0;
		bucket->known = dwell_opening_tag(network);
		bucket->known_s = now_s;
	} else if (is_known) {
		bucket->forged_known++;
	} else {
		bucket->forged++;
	}
}

#endif
