/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet that compares clocks: located in a frame, verified, answered. clock/embed.h lists what a program must
 * supply.
 */
#ifndef DWELL_CLOCK_SYNC_H
#define DWELL_CLOCK_SYNC_H

#include "clock/embed.h"
#include "base/headers.h"
#include "clock/sync_types.h"

#define DWELL_SYNC_UDP_BYTES (sizeof(struct dwell_udp) + sizeof(struct dwell_sync))
#define DWELL_SYNC_WORDS 5 /* words of 8 bytes that are authenticated */
#define DWELL_SYNC_TTL 64

/* Pointers to the parts of a frame. Either ipv4 or ipv6 is set. */
struct dwell_sync_frame {
	struct dwell_ethernet *ethernet;
	struct dwell_ipv4 *ipv4;
	struct dwell_ipv6 *ipv6;
	struct dwell_udp *udp;
	struct dwell_sync *sync;
};

static __always_inline int dwell_sync_is_ours(const struct dwell_sync *sync, __u8 kind)
{
	return sync->magic == DWELL_SYNC_MAGIC && sync->version == DWELL_SYNC_VERSION && sync->kind == kind &&
	       !sync->reserved;
}

/* Returns true if the frame holds only such a packet: no tag, option, extension header or fragment. Hosts that follow
 * the protocol send no others.
 */
static __always_inline int dwell_sync_locate(void *data, void *end, __u8 kind, struct dwell_sync_frame *frame)
{
	struct dwell_ethernet *ethernet = data;

	if ((void *)(ethernet + 1) > end)
		return 0;
	frame->ethernet = ethernet;
	frame->ipv4 = 0;
	frame->ipv6 = 0;
	if (ethernet->type == DWELL_ETH_IPV4) {
		struct dwell_ipv4 *ip = (void *)(ethernet + 1);

		if ((void *)ip + sizeof(*ip) + DWELL_SYNC_UDP_BYTES > end || ip->version_length != 0x45 ||
		    ip->proto != DWELL_PROTO_UDP || ip->fragment & 0xff3f ||
		    ip->total_length != dwell_ntohs(sizeof(*ip) + DWELL_SYNC_UDP_BYTES))
			return 0;
		frame->ipv4 = ip;
		frame->udp = (void *)(ip + 1);
	} else if (ethernet->type == DWELL_ETH_IPV6) {
		struct dwell_ipv6 *ip = (void *)(ethernet + 1);

		if ((void *)ip + sizeof(*ip) + DWELL_SYNC_UDP_BYTES > end || ip->next != DWELL_PROTO_UDP ||
		    ip->payload_length != dwell_ntohs(DWELL_SYNC_UDP_BYTES))
			return 0;
		frame->ipv6 = ip;
		frame->udp = (void *)(ip + 1);
	} else {
		return 0;
	}
	frame->sync = (void *)(frame->udp + 1);
	return frame->udp->length == dwell_ntohs(DWELL_SYNC_UDP_BYTES) && dwell_sync_is_ours(frame->sync, kind);
}

static __always_inline struct dwell_address dwell_sync_mapped(__u32 ipv4)
{
	struct dwell_address address = {0, (__u64)ipv4 << 32 | 0xffff0000};

	return address;
}

static __always_inline struct dwell_address dwell_sync_source(const struct dwell_sync_frame *frame)
{
	struct dwell_address address = {0, 0};

	if (frame->ipv4)
		return dwell_sync_mapped(frame->ipv4->src);
	if (frame->ipv6) {
		address.high = frame->ipv6->src_high;
		address.low = frame->ipv6->src_low;
	}
	return address;
}

static __always_inline int dwell_sync_same(const struct dwell_address *a, const struct dwell_address *b)
{
	return a->high == b->high && a->low == b->low;
}

/* Starts the MAC with all words but the last, the departure. */
static __always_inline struct dwell_sip dwell_sync_mac_begin(const struct dwell_sip_key *key,
							     const struct dwell_sync *sync)
{
	const __u64 *word = (const __u64 *)sync;
	struct dwell_sip sip = dwell_sip_begin(key);

	for (int at = 0; at < DWELL_SYNC_WORDS - 1; at++)
		dwell_sip_word(&sip, word[at]);
	return sip;
}

static __always_inline __u64 dwell_sync_mac_end(struct dwell_sip *sip, __u64 departure_ns)
{
	dwell_sip_word(sip, departure_ns);
	return dwell_sip_end(sip, 0, DWELL_SYNC_WORDS * sizeof(__u64));
}

static __always_inline __u64 dwell_sync_mac(const struct dwell_sip_key *key, const struct dwell_sync *sync)
{
	struct dwell_sip sip = dwell_sync_mac_begin(key, sync);

	return dwell_sync_mac_end(&sip, sync->departure_ns);
}

/* Claims a sequence number that is greater than all before. Returns false if another packet has claimed it. */
static __always_inline int dwell_sync_take(__u64 *largest, __u64 sequence)
{
	__u64 before = *(volatile __u64 *)largest;

	return sequence > before && __sync_val_compare_and_swap(largest, before, sequence) == before;
}

/* Returns the session whose collector sent this request for the first time; otherwise null, and counts the reason. */
static __always_inline struct dwell_sync_session *dwell_sync_admit(void *embedder, const struct dwell_sync *sync,
								   const struct dwell_address *from)
{
	struct dwell_sync_session *session = dwell_sync_session_at(embedder, sync->session);
	__u32 reason;

	if (!session)
		reason = DWELL_SYNC_UNKNOWN;
	else if (!dwell_sync_same(&session->peer, from))
		reason = DWELL_SYNC_WRONG_PEER;
	else if (dwell_sync_mac(&session->key, sync) != sync->mac)
		reason = DWELL_SYNC_FORGED;
	else if (!dwell_sync_take(&session->largest, sync->sequence))
		reason = DWELL_SYNC_REPLAYED;
	else
		return session;
	dwell_sync_count(embedder, reason);
	return 0;
}

/* Returns the time that this host claims: the true one, except in an experiment. */
static __always_inline __u64 dwell_sync_clock(const struct dwell_sync_program *program, __u64 now_ns)
{
	__s64 ppb = program->experiment_drift_ppb;
	__u64 elapsed = now_ns - program->experiment_since_ns;
	__u64 drifted;

	if (!ppb)
		return now_ns + program->experiment_offset_ns;
	drifted = elapsed * (ppb < 0 ? -ppb : ppb) / 1000000000;
	return now_ns + program->experiment_offset_ns + (ppb < 0 ? -drifted : drifted);
}

static __always_inline __u16 dwell_sync_folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline __u64 dwell_sync_add(__u64 sum, __u64 word)
{
	return sum + (word & 0xffffffff) + (word >> 32);
}

/* Fills in the checksum of the IPv4 header. Returns the sum of the pseudo-header (RFC 768, RFC 8200) and of everything
 * behind it, except for the checksum, the departure and the MAC.
 */
static __always_inline __u64 dwell_sync_sum(struct dwell_sync_frame *frame)
{
	const __u64 *word = (const __u64 *)frame->sync;
	const __u16 *half = (const __u16 *)frame->ipv4;
	__u64 header = 0;
	__u64 sum = dwell_ntohs(DWELL_PROTO_UDP) + 2 * (__u64)dwell_ntohs(DWELL_SYNC_UDP_BYTES);

	if (frame->ipv4) {
		frame->ipv4->checksum = 0;
		for (unsigned int at = 0; at < sizeof(struct dwell_ipv4) / sizeof(*half); at++)
			header += half[at];
		frame->ipv4->checksum = dwell_sync_folded(header);
		sum += (__u64)frame->ipv4->src + frame->ipv4->dst;
	} else if (frame->ipv6) {
		sum = dwell_sync_add(sum, frame->ipv6->src_high);
		sum = dwell_sync_add(sum, frame->ipv6->src_low);
		sum = dwell_sync_add(sum, frame->ipv6->dst_high);
		sum = dwell_sync_add(sum, frame->ipv6->dst_low);
	}
	sum += (__u64)frame->udp->src_port + frame->udp->dst_port;
	for (int at = 0; at < DWELL_SYNC_WORDS - 1; at++)
		sum = dwell_sync_add(sum, word[at]);
	return sum;
}

/* Returns a UDP checksum from a sum; never 0, which means that there is none (RFC 768). */
static __always_inline __u16 dwell_sync_checksum(__u64 sum)
{
	return dwell_sync_folded(sum) ?: 0xffff;
}

static __always_inline void dwell_sync_turn(struct dwell_sync_frame *frame)
{
	__u16 *mac = (__u16 *)frame->ethernet;
	struct dwell_ipv4 *ipv4 = frame->ipv4;
	struct dwell_ipv6 *ipv6 = frame->ipv6;
	__u16 port = frame->udp->src_port;

	for (int at = 0; at < 3; at++) {
		__u16 half = mac[at];

		mac[at] = mac[at + 3];
		mac[at + 3] = half;
	}
	if (ipv4) {
		__u32 src = ipv4->src;

		ipv4->src = ipv4->dst;
		ipv4->dst = src;
		ipv4->ttl = DWELL_SYNC_TTL;
	} else if (ipv6) {
		__u64 high = ipv6->src_high;
		__u64 low = ipv6->src_low;

		ipv6->src_high = ipv6->dst_high;
		ipv6->src_low = ipv6->dst_low;
		ipv6->dst_high = high;
		ipv6->dst_low = low;
		ipv6->hop_limit = DWELL_SYNC_TTL;
	}
	frame->udp->src_port = frame->udp->dst_port;
	frame->udp->dst_port = port;
}

/* The agent's side: turns a request into a reply, in its frame and of its size. Between the departure time and the end
 * of the reply, only the last two words of the MAC remain to be computed. Returns 1 if a reply is in the frame, 0 if
 * the frame is not for this agent and is unchanged, -1 if it was refused.
 */
static __always_inline int dwell_sync_reflect(void *embedder, const struct dwell_sync_program *program, void *data,
					      void *end)
{
	struct dwell_sync_session *session;
	struct dwell_sync_frame frame;
	struct dwell_address from;
	struct dwell_sync *sync;
	struct dwell_sip sip;
	__u64 arrival_ns;
	__u64 sum;

	if (!dwell_sync_locate(data, end, DWELL_SYNC_REQUEST, &frame) ||
	    frame.udp->dst_port != dwell_ntohs(program->port))
		return 0;
	sync = frame.sync;
	arrival_ns = dwell_sync_now(embedder);
	from = dwell_sync_source(&frame);
	session = dwell_sync_admit(embedder, sync, &from);
	if (!session)
		return -1;
	dwell_sync_turn(&frame);
	sync->kind = DWELL_SYNC_REPLY;
	sync->stamper = DWELL_SYNC_XDP;
	sync->arrival_ns = dwell_sync_clock(program, arrival_ns);
	sum = dwell_sync_sum(&frame);
	sip = dwell_sync_mac_begin(&session->key, sync);
	sync->departure_ns = dwell_sync_clock(program, dwell_sync_now(embedder));
	sync->mac = dwell_sync_mac_end(&sip, sync->departure_ns);
	sum = dwell_sync_add(sum, sync->departure_ns);
	frame.udp->checksum = dwell_sync_checksum(dwell_sync_add(sum, sync->mac));
	dwell_sync_count(embedder, DWELL_SYNC_ANSWERED);
	return 1;
}

/* The collector's side: addresses a request from the loopback to its agent. */
static __always_inline void dwell_sync_address(struct dwell_sync_frame *frame, const struct dwell_sync_probe *probe)
{
	struct dwell_sync *sync = frame->sync;
	__u64 sum;

	__builtin_memcpy(frame->ethernet->addresses, probe->dst_mac, 6);
	__builtin_memcpy(frame->ethernet->addresses + 6, probe->src_mac, 6);
	if (frame->ipv4) {
		frame->ipv4->src = probe->src.low >> 32;
		frame->ipv4->dst = probe->dst.low >> 32;
		frame->ipv4->ttl = DWELL_SYNC_TTL;
	} else if (frame->ipv6) {
		frame->ipv6->src_high = probe->src.high;
		frame->ipv6->src_low = probe->src.low;
		frame->ipv6->dst_high = probe->dst.high;
		frame->ipv6->dst_low = probe->dst.low;
		frame->ipv6->hop_limit = DWELL_SYNC_TTL;
	}
	frame->udp->src_port = dwell_ntohs(probe->src_port);
	frame->udp->dst_port = dwell_ntohs(probe->dst_port);
	sum = dwell_sync_sum(frame);
	sum = dwell_sync_add(sum, sync->departure_ns);
	frame->udp->checksum = dwell_sync_checksum(dwell_sync_add(sum, sync->mac));
}

/* Returns true if a reply is for this prober, and from its peer. */
static __always_inline int dwell_sync_is_reply_to(const struct dwell_sync_frame *frame,
						  const struct dwell_sync_probe *probe)
{
	struct dwell_address from = dwell_sync_source(frame);

	return dwell_sync_same(&from, &probe->dst) && frame->udp->dst_port == dwell_ntohs(probe->src_port) &&
	       frame->udp->src_port == dwell_ntohs(probe->dst_port) &&
	       dwell_sync_mac(&probe->key, frame->sync) == frame->sync->mac;
}

/* Completes an exchange. Returns false if this is not its first reply. */
static __always_inline int dwell_sync_complete(struct dwell_sync_exchange *exchange, const struct dwell_sync *sync,
					       __u64 now_ns)
{
	if (exchange->sequence != sync->sequence || !exchange->t1_ns || exchange->t4_ns)
		return 0;
	exchange->t2_ns = sync->arrival_ns;
	exchange->t3_ns = sync->departure_ns;
	exchange->stamper = sync->stamper;
	exchange->t4_ns = now_ns;
	return 1;
}

#endif
