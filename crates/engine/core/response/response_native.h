/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency for user space: replay, tests, fuzzing. */
#ifndef DWELL_RESPONSE_NATIVE_H
#define DWELL_RESPONSE_NATIVE_H

#include "response/response_types.h"

/* Native versions of dwell_response_step() and dwell_response_end(). */
int dwell_native_response_step(union dwell_response_state *state, const struct dwell_response_config *config,
			       const struct dwell_arrival *arrival, struct dwell_epoch *ended);
int dwell_native_response_end(union dwell_response_state *state, const struct dwell_response_config *config,
			      __u64 now_ns, struct dwell_epoch *ended);

/* The edge of a mode as a code of 16 bits, rounded down and up, and the duration of a code. */
__u16 dwell_native_float16_floor(__u64 ns);
__u16 dwell_native_float16_ceil(__u64 ns);
__u64 dwell_native_float16_ns(__u16 code);

#endif
