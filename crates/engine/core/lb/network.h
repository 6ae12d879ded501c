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

/* Returns true for an address that does not belong to a single host: unspecified, loopback, multicast, broadcast, and
 * IPv4 written as IPv6 in the obsolete manner (::a.b.c.d).
 */
static __always_inline int dwell_is_no_host(const struct dwell_address *address)
{
	__u32 first = (dwell_is_v4(address) ? address->low >> 32 : address->high) & 0xff;

	if (dwell_is_v4(address))
		return !first || first == 127 || first >> 4 == 14 || address->low >> 32 == 0xffffffff;
	return (!address->high && !(__u32)address->low) || first == 0xff;
}

/* Returns true for an address that is valid on one link only. */
static __always_inline int dwell_is_link_local(const struct dwell_address *address)
{
	if (dwell_is_v4(address))
		return (address->low >> 32 & 0xffff) == (169 | 254 << 8);
	return (address->high & 0xc0ff) == (0xfe | 0x80 << 8);
}

/* Returns a hash of the first 24 bits of an address of IPv4, or of the first 48 of IPv6. */
static __always_inline __u64 dwell_network(const struct dwell_address *client)
{
	if (dwell_is_v4(client))
		return dwell_mix(4, client->low & 0x00ffffffffffffffULL);
	return dwell_mix(6, client->high & 0x0000ffffffffffffULL);
}

#endif
