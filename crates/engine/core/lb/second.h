/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A second chance for a connection that is under way and not known here: it may have begun at another balancer, when the
 * table led elsewhere. Its packets go to the real of the table as it is, and carry outer headers towards the reals that
 * the same entry had before, or that take its place while its real is considered down, the one around the other. Each
 * tunnel's end that does not have the connection takes off one header, and sends on what is inside (lb/decap.h): a packet
 * goes on at most DWELL_CHANCES times.
 */
#ifndef DWELL_LB_SECOND_H
#define DWELL_LB_SECOND_H

#include "lb/embed.h"
#include "lb/encapsulation.h"
#include "lb/select.h"

static __always_inline int dwell_has_tunnel(const struct dwell_real *real)
{
	return real && real->interface && (real->forward == DWELL_FORWARD_IPIP || real->forward == DWELL_FORWARD_GUE);
}

/* The reals that a packet may go on to from the one that it is sent to. */
struct dwell_chances {
	__u32 real[DWELL_CHANCES];
	__u32 count;
	__u32 bytes; /* of their outer headers */
};

/* Adds a real, once, whose outer header has so many bytes. Returns false if there is no room for more. */
static __always_inline int dwell_chances_add(struct dwell_chances *chances, __u32 number, __u32 bytes)
{
	__u32 count = chances->count;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (int i = 0; i < DWELL_CHANCES; i++)
		if (chances->real[i] == number)
			return 1;
	DWELL_OPAQUE(count);
	if (count >= DWELL_CHANCES)
		return 0;
	chances->real[count] = number;
	chances->bytes += bytes;
	chances->count = count + 1;
	return count + 1 < DWELL_CHANCES;
}

/* Finds the reals other than packet->lb.real that may have the connection: those that its entry had most recently; then those that
 * the entries had which take its place while a balancer considers a real down (dwell_candidate); and at last what is down of the
 * first, which may swallow the packet. Returns how many there are; without `chances`, 1 as soon as there is one.
 */
static __always_inline __u32 dwell_chances_find(void *embedder, const struct dwell_packet *packet,
						struct dwell_chances *chances)
{
	const struct dwell_balance_config *config = dwell_balance_config_of(embedder);
	const struct dwell_vip *vip =
		dwell_vip_of(embedder, dwell_packet_vip(packet), packet->proto, dwell_packet_vip_port(packet));
	const __u32 up = DWELL_SELECT_TRIES * DWELL_RECENT;
	__u64 hash, tried;

	if (chances)
		*chances = (struct dwell_chances){};
	if (!vip || !vip->size)
		return 0;
	hash = tried = dwell_selection_hash(packet, config->hash_seed, vip->flags);
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < up + DWELL_RECENT; i++) {
		const struct dwell_real *real;
		__u32 number, at;

		if (i == up)
			tried = hash;
		else if (i && !(i % DWELL_RECENT))
			tried = dwell_mix(tried, i / DWELL_RECENT);
		at = ((tried >> 32) * vip->size >> 32) * DWELL_RECENT + i % DWELL_RECENT;
		number = dwell_entry_at(embedder, vip->number + 2 * config->max_vips, at);
		real = dwell_real_at(embedder, number);
		if (!number || number == packet->lb.real || !dwell_has_tunnel(real) || dwell_is_up(real) != (i < up))
			continue;
		if (!chances)
			return 1;
		if (!dwell_chances_add(chances, number, dwell_encapsulation_bytes(real)))
			break;
	}
	return chances ? chances->count : 0;
}

/* Puts outer headers towards a real around a packet. Returns false if there is no room. */
static __always_inline int dwell_wrap(DWELL_FRAME *frame, void *embedder, __u32 number, struct dwell_inner *inner)
{
	const struct dwell_real *real = dwell_real_at(embedder, number);
	__u32 bytes;

	if (!dwell_has_tunnel(real))
		return 0;
	bytes = dwell_encapsulation_bytes(real);
	if (!dwell_frame_grow(frame, bytes) || !dwell_encapsulate(dwell_frame_data(frame), dwell_frame_end(frame), real,
								  inner, dwell_balance_config_of(embedder)))
		return 0;
	inner->version = dwell_is_v4(&real->address) ? 4 : 6;
	inner->bytes += bytes;
	return 1;
}

/* Puts outer headers towards all reals around a packet, those of the first one last. Returns false if there is no room. */
static __always_inline int dwell_wrap_all(DWELL_FRAME *frame, void *embedder, const struct dwell_chances *chances,
					  struct dwell_inner *inner)
{
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (int i = DWELL_CHANCES - 1; i >= 0; i--)
		if ((__u32)i < chances->count && !dwell_balance_wrap(frame, embedder, chances->real[i], inner))
			return 0;
	return 1;
}

#endif
