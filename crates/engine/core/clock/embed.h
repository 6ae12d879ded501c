/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to compare clocks (clock/sync.h). `embedder` is whatever it handed to the step. */
#ifndef DWELL_CLOCK_EMBED_H
#define DWELL_CLOCK_EMBED_H

#include "base/base.h"

struct dwell_sync_session;

/* Returns this host's CLOCK_MONOTONIC in nanoseconds, read as late as possible. */
static __always_inline __u64 dwell_sync_now(void *embedder);

/* Returns an admitted session by its identifier; null if there is none. */
static __always_inline struct dwell_sync_session *dwell_sync_session_at(void *embedder, __u64 id);

/* Counts one: an enum dwell_sync_counter. */
static __always_inline void dwell_sync_count(void *embedder, __u32 counter);

#endif
