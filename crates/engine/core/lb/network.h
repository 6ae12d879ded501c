/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Addresses: their family, and the networks that they belong to. */
#ifndef DWELL_LB_NETWORK_H
#define DWELL_LB_NETWORK_H

#include "base/base.h"
#include "base/events.h"

static __always_inline int dwell_is_v4(const struct dwell_address *address)
{
	return !address->high && (__u32)address->low == 0xffff0000;
}

/* Returns a hash of the first 24 bits of an address of IPv4, or of the first 48 of IPv6. */
static __always_inline __u64 dwell_network(const struct dwell_address *client)
{
	if (dwell_is_v4(client))
		return dwell_mix(4, client->low & 0x00ffffffffffffffULL);
	return dwell_mix(6, client->high & 0x0000ffffffffffffULL);
}

#endif
