/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The clock that a program on the core must supply. */
#ifndef DWELL_BASE_EMBED_H
#define DWELL_BASE_EMBED_H

#include "base/base.h"

/* Returns the packet's time in nanoseconds on the source's clock. The kernel reads its clock at the first call for a
 * packet and keeps the value in the clock; in a replay the packet brought its time. Never fails.
 */
static __always_inline __u64 dwell_now(struct dwell_clock *clock);

/* Returns the time in units of 2^20 ns (1.05 ms), for idle times only: it wraps every 52 days, may lag dwell_now() by
 * one tick of the kernel (DWELL_COARSE_ERROR), and must be much cheaper than dwell_now(). Never fails.
 */
static __always_inline __u32 dwell_now_coarse(struct dwell_clock *clock);

#endif
