/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "balance_native.h"

#include "seat_hooks.h"

#include "balance.h"

/* A frame in a buffer that is larger. */
struct framed {
	struct dwell_frame frame;
	const char *first;
};

static __always_inline void *dwell_frame_data(struct dwell_frame *frame)
{
	return (void *)frame->data;
}

static __always_inline const void *dwell_frame_end(struct dwell_frame *frame)
{
	return frame->end;
}

static __always_inline int dwell_frame_grow(struct dwell_frame *frame, int bytes)
{
	struct framed *framed = (void *)frame;
	const char *data = frame->data;

	if (data - framed->first < bytes)
		return 0;
	frame->data = data - bytes;
	return 1;
}

static __always_inline int dwell_frame_cut(struct dwell_frame *frame, __u32 bytes)
{
	const char *data = frame->data;

	if ((const char *)frame->end - data < (long)bytes)
		return 0;
	frame->end = data + bytes;
	return 1;
}

static __always_inline const struct dwell_balance_config *dwell_balance_config_of(void *embedder)
{
	const struct dwell_balancer *balancer = embedder;

	return &balancer->config;
}

static __always_inline const struct dwell_vip *dwell_vip_at(void *embedder,
							    const struct dwell_vip_key *key)
{
	const struct dwell_balancer *balancer = embedder;

	for (__u32 i = 0; i < balancer->vip_count; i++)
		if (!__builtin_memcmp(&balancer->vips[i].key, key, sizeof(*key)))
			return &balancer->vips[i].vip;
	return 0;
}

/* All bits: the VIPs are asked in any case. */
static __always_inline const struct dwell_maybe *dwell_maybe_of(void *embedder)
{
	static struct dwell_maybe all;

	(void)embedder;
	if (!all.word[0])
		__builtin_memset(&all, 0xff, sizeof(all));
	return &all;
}

static __always_inline const struct dwell_real *dwell_real_at(void *embedder, __u32 number)
{
	const struct dwell_balancer *balancer = embedder;

	return number < balancer->real_count ? &balancer->reals[number] : 0;
}

static __always_inline __u32 dwell_entry_at(void *embedder, __u32 vip, __u32 index)
{
	const struct dwell_balancer *balancer = embedder;

	return vip < balancer->table_count && balancer->tables[vip] ? balancer->tables[vip][index]
								    : 0;
}

static __always_inline struct dwell_load *dwell_vip_load_at(void *embedder, __u32 number)
{
	(void)embedder;
	(void)number;
	return 0;
}

static __always_inline struct dwell_load *dwell_real_load_at(void *embedder, __u32 number)
{
	(void)embedder;
	(void)number;
	return 0;
}

static __always_inline __u32 dwell_balance_odd(struct dwell_frame *frame,
					       struct dwell_packet *packet)
{
	return dwell_visit_odd(frame->data, frame->end, packet);
}

static __always_inline __u32 dwell_balance_choose(void *embedder, struct dwell_packet *packet)
{
	return dwell_choose(embedder, packet);
}

static __always_inline dwell_choice dwell_balance_first(struct dwell_table *table,
							struct dwell_packet *packet, int asks)
{
	return dwell_choose_first(table, packet, asks);
}

static __always_inline dwell_choice dwell_balance_again(struct dwell_table *table,
							struct dwell_packet *packet, __u32 place,
							int asks)
{
	return dwell_choose_again(table, packet, place, asks);
}

static __always_inline __u32 dwell_balance_forward(struct dwell_frame *frame,
						   struct dwell_table *table,
						   const struct dwell_packet *packet, __u32 ingress,
						   struct dwell_decision *decision)
{
	return dwell_balance_send(frame, table->embedder, packet, ingress, decision);
}

static __always_inline int dwell_balance_ping(struct dwell_frame *frame, __u32 l4_offset)
{
	return dwell_reply_ping(dwell_frame_data(frame), frame->end, l4_offset);
}

static __always_inline int dwell_balance_too_big(struct dwell_frame *frame, __u32 version,
						 __u32 mtu)
{
	return dwell_too_big(frame, version, mtu);
}

__u32 dwell_balance_packet(struct dwell_balancer *balancer, void *data, __u32 *bytes, __u32 ingress,
			   __u64 time_ns, int asks, struct dwell_decision *decision)
{
	const char *first = (const char *)data - DWELL_BALANCE_HEADROOM;
	struct framed framed = {{data, (const char *)data + *bytes}, first};
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(&balancer->seats, &clock);
	struct dwell_packet packet;

	balancer->seats.events = 0;
	__builtin_memset(decision, 0, sizeof(*decision));
	__builtin_memset(&packet, 0, sizeof(packet));
	packet.wire_bytes = *bytes;
	packet.segments = 1;
	dwell_balance(&framed.frame, &table, &packet, ingress, asks, decision);
	if (!asks) {
		balancer->seats.counters.value[DWELL_SEEN_PACKETS]++;
		balancer->seats.counters.value[DWELL_SEEN_BYTES] += packet.wire_bytes;
		balancer->why[decision->why]++;
	}
	*bytes = (const char *)framed.frame.end - (const char *)framed.frame.data;
	return (const char *)framed.frame.data - first;
}

__u32 dwell_balance_maybe_bit(struct dwell_address address)
{
	return dwell_maybe_bit(&address);
}
