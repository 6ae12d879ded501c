/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "response/response_native.h"
#include "response/response.h"

int dwell_native_response_step(union dwell_response_state *state, const struct dwell_response_config *config,
			       const struct dwell_arrival *arrival, struct dwell_epoch *ended)
{
	return dwell_response_step(state, config, arrival, ended);
}

int dwell_native_response_end(union dwell_response_state *state, const struct dwell_response_config *config,
			      __u64 now_ns, struct dwell_epoch *ended)
{
	return dwell_response_end(state, config, now_ns, ended);
}

__u16 dwell_native_float16_floor(__u64 ns)
{
	return dwell_float16_floor(ns);
}

__u16 dwell_native_float16_ceil(__u64 ns)
{
	return dwell_float16_ceil(ns);
}

__u64 dwell_native_float16_ns(__u16 code)
{
	return dwell_float16_ns(code);
}
