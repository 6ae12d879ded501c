/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lb/decap_native.h"

#include "lb/frame_native.h"

#include "lb/decap.h"

static __always_inline int dwell_is_local_address(void *embedder, const struct dwell_address *address)
{
	const struct dwell_tunnel_end *tunnel_end = embedder;

	for (__u32 i = 0; i < tunnel_end->own_count; i++)
		if (tunnel_end->own[i].high == address->high && tunnel_end->own[i].low == address->low)
			return 1;
	return 0;
}

/* Returns true if the first bits of two addresses are the same. */
static int has_prefix(const struct dwell_address *address, const struct dwell_prefix *prefix)
{
	const __u8 *left = (const void *)address, *right = (const void *)&prefix->address;

	for (__u32 bit = 0; bit < prefix->bits; bit++)
		if ((left[bit / 8] ^ right[bit / 8]) >> (7 - bit % 8) & 1)
			return 0;
	return 1;
}

static __u32 longest(const struct dwell_address *address, const struct dwell_prefix *prefixes, __u32 count)
{
	__u32 most = 0;

	for (__u32 i = 0; i < count; i++)
		if (prefixes[i].bits >= most && has_prefix(address, &prefixes[i]))
			most = prefixes[i].bits + 1;
	return most;
}

static __always_inline __u32 dwell_decap_vip_bits(void *embedder, const struct dwell_address *address)
{
	const struct dwell_tunnel_end *tunnel_end = embedder;

	return longest(address, tunnel_end->vips, tunnel_end->vip_count);
}

static __always_inline __u32 dwell_decap_sender_bits(void *embedder, const struct dwell_address *address)
{
	const struct dwell_tunnel_end *tunnel_end = embedder;

	return longest(address, tunnel_end->senders, tunnel_end->sender_count);
}

static __always_inline __u32 dwell_decap_backend_bits(void *embedder, const struct dwell_address *address)
{
	const struct dwell_tunnel_end *tunnel_end = embedder;

	return longest(address, tunnel_end->backends, tunnel_end->backend_count);
}

static __always_inline int dwell_decap_owns(struct dwell_frame *frame, void *embedder, __u32 at)
{
	const struct dwell_tunnel_end *tunnel_end = embedder;

	(void)frame;
	(void)at;
	return tunnel_end->owns;
}

static __always_inline const struct dwell_real *dwell_decap_hop_to(void *embedder, const struct dwell_address *address)
{
	const struct dwell_tunnel_end *tunnel_end = embedder;

	for (__u32 i = 0; i < tunnel_end->hop_count; i++)
		if (tunnel_end->hops[i].address.high == address->high &&
		    tunnel_end->hops[i].address.low == address->low)
			return &tunnel_end->hops[i];
	return 0;
}

__u32 dwell_decap_packet(struct dwell_tunnel_end *tunnel_end, void *data, __u32 *bytes, __u32 *decap)
{
	struct dwell_framed framed = {{data, (const char *)data + *bytes}, data};
	__u32 interface = 0;

	*decap = dwell_decapsulate(&framed.frame, tunnel_end, tunnel_end->program.gue_port, &interface);
	tunnel_end->counters.value[*decap]++;
	*bytes = (const char *)framed.frame.end - (const char *)framed.frame.data;
	return (const char *)framed.frame.data - (const char *)data;
}

int dwell_decap_is_special(struct dwell_address address)
{
	return dwell_is_special(&address);
}
