/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Heavy hitters and loads for user space: the simulator and tests. */
#ifndef DWELL_LB_STEER_NATIVE_H
#define DWELL_LB_STEER_NATIVE_H

#include "lb/balance_types.h"
#include "lb/heavy_types.h"
#include "lb/overload_types.h"

void dwell_steer_heavy_count(struct dwell_heavy *heavy, const struct dwell_address *address, __u16 port, __u32 random,
			     const struct dwell_heavy_config *config);
int dwell_steer_heavy_has(const struct dwell_heavy *heavy, const struct dwell_address *address,
			  const struct dwell_heavy_config *config);
/* Returns an enum dwell_load_result. */
__u32 dwell_steer_load_update(struct dwell_server_load *load, __u64 stamp, __u64 unix_s, __u32 now_s,
			      const struct dwell_overload_config *config);
/* Returns a load code; 0 if the load is not known. */
__u16 dwell_steer_load(const struct dwell_server_load *load, __u32 now_s, const struct dwell_overload_config *config);
/* `servers` has DWELL_SERVERS_MAX entries. */
int dwell_steer_divert(const struct dwell_server_load *servers, __u32 count, __u32 server, __u32 from, __u32 now_s,
		       const struct dwell_overload_config *config, __u32 *least);
__u64 dwell_steer_network(const struct dwell_address *client);

#endif
