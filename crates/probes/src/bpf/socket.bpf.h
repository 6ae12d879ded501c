/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The addresses of a kernel socket. */
#ifndef DWELL_SOCKET_H
#define DWELL_SOCKET_H

#include "kernel.bpf.h"

#include "base/events.h"

static __always_inline void address_of(const struct in6_addr *from, struct dwell_address *to)
{
	to->high = READ(from, in6_u.u6_addr32[0]) | (__u64)READ(from, in6_u.u6_addr32[1]) << 32;
	to->low = READ(from, in6_u.u6_addr32[2]) | (__u64)READ(from, in6_u.u6_addr32[3]) << 32;
}

static __always_inline void address4_of(__u32 from, struct dwell_address *to)
{
	to->high = 0;
	to->low = 0xffff0000 | (__u64)from << 32;
}

static __always_inline void addresses_of(const struct sock_common *common, struct dwell_address *local,
					 struct dwell_address *remote)
{
	if (READ(common, skc_family) == AF_INET) {
		address4_of(READ(common, skc_rcv_saddr), local);
		address4_of(READ(common, skc_daddr), remote);
	} else {
		/* IPv4 on an IPv6 socket is written as a mapped address */
		address_of(&common->skc_v6_rcv_saddr, local);
		address_of(&common->skc_v6_daddr, remote);
	}
}

#endif
