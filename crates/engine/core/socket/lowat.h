/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Controls TCP_NOTSENT_LOWAT: finds the least value that does not starve a connection. It falls slowly while the
 * connection always has something to send, and doubles once it has not, up to what leaves in the target's time. The
 * kernel reports a connection as limited by its application for a round trip, which counts once. An application that
 * has little to send raises the value too, which does no harm, as nothing waits. While the bottleneck has a queue it
 * stays busy, even if the application is late.
 */
#ifndef DWELL_SOCKET_LOWAT_H
#define DWELL_SOCKET_LOWAT_H

#include "socket/lowat_types.h"

/* Unsent data that lasts as long as an application needs to keep up with acknowledgements, in whole segments: one leaves
 * while the next is written, and more than four are the search's to find.
 */
#define DWELL_LOWAT_LEAST_US 8000
#define DWELL_LOWAT_LEAST_SEGMENTS 2
#define DWELL_LOWAT_START_SEGMENTS 4
/* A queue in the network that covers for an application that is late. */
#define DWELL_LOWAT_COVER_US 5000
/* Time that an application gets to write more, whatever delay that costs. */
#define DWELL_LOWAT_MIN_US 500
#define DWELL_LOWAT_MAX_BYTES (1U << 30)

static __always_inline __u32 dwell_lowat_in(__u64 rate, __u32 time_us)
{
	__u64 bytes = (rate >> 10) * time_us / (1000000 >> 10);

	return bytes < DWELL_LOWAT_MAX_BYTES ? bytes : DWELL_LOWAT_MAX_BYTES;
}

/* Returns what TCP_NOTSENT_LOWAT should be set to now; 0: leave it as it is. */
static __always_inline __u32 dwell_lowat_step(struct dwell_lowat *lowat, const struct dwell_lowat_sample *sample)
{
	__u64 rate = lowat->rate - lowat->rate / 16;
	__u32 bytes = lowat->bytes;
	__u32 least, most, difference;

	if (rate < sample->rate)
		rate = sample->rate;
	lowat->rate = rate;
	least = dwell_lowat_in(rate, DWELL_LOWAT_LEAST_US);
	if (least < sample->mss * DWELL_LOWAT_LEAST_SEGMENTS)
		least = sample->mss * DWELL_LOWAT_LEAST_SEGMENTS;
	if (least > sample->mss * DWELL_LOWAT_START_SEGMENTS)
		least = sample->mss * DWELL_LOWAT_START_SEGMENTS;
	if (least < dwell_lowat_in(rate, DWELL_LOWAT_MIN_US))
		least = dwell_lowat_in(rate, DWELL_LOWAT_MIN_US);
	most = dwell_lowat_in(rate, sample->target_us);
	if (most < least)
		most = least;
	if (!sample->app_limited || sample->queue_us >= DWELL_LOWAT_COVER_US) {
		bytes -= bytes / 16;
	} else if (!lowat->raised || sample->now_us - lowat->raised_us >= sample->rtt_us) {
		bytes *= 2;
		lowat->raised = 1;
		lowat->raised_us = sample->now_us;
	}
	if (bytes < least)
		bytes = least;
	if (bytes > most)
		bytes = most;
	lowat->bytes = bytes;
	difference = bytes > lowat->set ? bytes - lowat->set : lowat->set - bytes;
	if (difference <= lowat->set / 8)
		return 0;
	lowat->set = bytes;
	return bytes;
}

#endif
