/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lb/steer_native.h"
#include "lb/heavy.h"
#include "lb/network.h"
#include "lb/overload_native.h"

void dwell_steer_heavy_count(struct dwell_heavy *heavy, const struct dwell_address *address, __u16 port, __u32 random,
			     const struct dwell_heavy_config *config)
{
	dwell_heavy_count(heavy, address, port, random, config);
}

int dwell_steer_heavy_has(const struct dwell_heavy *heavy, const struct dwell_address *address,
			  const struct dwell_heavy_config *config)
{
	return dwell_heavy_has(heavy, address, config);
}

__u32 dwell_steer_load_update(struct dwell_server_load *load, __u64 stamp, __u64 unix_s, __u32 now_s,
			      const struct dwell_overload_config *config)
{
	return dwell_load_update(load, stamp, unix_s, now_s, config);
}

__u16 dwell_steer_load(const struct dwell_server_load *load, __u32 now_s, const struct dwell_overload_config *config)
{
	return dwell_load_code(load, now_s, config);
}

int dwell_steer_divert(const struct dwell_server_load *servers, __u32 count, __u32 server, __u32 from, __u32 now_s,
		       const struct dwell_overload_config *config, __u32 *least)
{
	return dwell_overload_divert(servers, count, server, from, now_s, config, least);
}

__u64 dwell_steer_network(const struct dwell_address *client)
{
	return dwell_network(client);
}
