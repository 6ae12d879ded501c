/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow of a socket or packet, and which of its bytes the kernel hands to a program; and the configuration of what
 * is observed.
 */
#ifndef DWELL_STACK_PACKET_H
#define DWELL_STACK_PACKET_H

#include "socket.bpf.h"

#include "parse/filter.h"
#include "base/headers.h"
#include "base/histogram.h"
#include "stack/sampling.h"

char _license[] SEC("license") = "Dual BSD/GPL";

/* Alone in its section, so that user space can write it as a whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_stack_program program = {};

/* Which half of the histograms is written; user space reads the other. */
SEC(".data.generation") __u32 generation = 0;

/* Which grid bytes are sampled, by which user space keeps to a budget. Each run reads it once. */
SEC(".data.grid") volatile __u32 grid = 0;

/* Returns the number of a network namespace. Where one is observed, callers admit no other. */
static __always_inline __u32 netns_of(const struct net *net)
{
	return program.netns ? program.netns : READ(net, ns.inum);
}

static __always_inline __u32 netns_of_device(const struct sk_buff *skb)
{
	return netns_of(READ2(skb, dev, nd_net.net));
}

static __always_inline int wanted_namespace(const struct net *net)
{
	return !program.netns || READ(net, ns.inum) == program.netns;
}

static __always_inline int wanted_ports(const struct dwell_stack_ends *ends)
{
	return !program.port || ends->sport == program.port || ends->dport == program.port;
}

static __always_inline int wanted_addresses(const struct dwell_stack_ends *ends)
{
	struct dwell_flow_key key;

	if (!program.filter.rules)
		return 1;
	key.a = ends->src;
	key.b = ends->dst;
	return dwell_filter_admits(&program.filter, &key, DWELL_PROTO_TCP, ends->sport, ends->dport);
}

/* Flows of equal ends in several namespaces are different ones. */
static __always_inline __u64 flow_of(const struct dwell_stack_ends *ends)
{
	__u64 seed = program.netns ? program.seed : dwell_mix(program.seed, ends->netns);

	return dwell_flow_hash(seed, &ends->src, &ends->dst, ends->sport, ends->dport);
}

/* Reads the endpoints of a socket's flow, local first if it sends. Returns false if it is not an observed TCP
 * connection.
 */
static __always_inline int ends_of_socket(const struct sock *sk, struct dwell_stack_ends *ends, int sends)
{
	const struct sock_common *common = &sk->__sk_common;
	struct dwell_address local, remote;
	const struct net *net = READ(common, skc_net.net);
	__u16 local_port = READ(common, skc_num), remote_port;

	remote_port = dwell_ntohs(READ(common, skc_dport));
	ends->part = generation & 1 ? DWELL_PART_GENERATION : 0;
	ends->sport = sends ? local_port : remote_port;
	ends->dport = sends ? remote_port : local_port;
	if (!wanted_ports(ends) || !wanted_namespace(net))
		return 0;
	ends->netns = netns_of(net);
	ends->reserved = 0;
	addresses_of(common, &local, &remote);
	ends->src = sends ? local : remote;
	ends->dst = sends ? remote : local;
	return 1;
}

/* Returns the initial sequence numbers of a connection, the local one first if it sends. The caller holds the socket's
 * lock, under which counters and sequence numbers belong together, and knows that the connection is, or was, open; but a
 * first write may be what opens it (TCP Fast Open).
 *
 * What TCP counts as received does not include the other end's SYN. What it counts as acknowledged includes its own SYN
 * if it has opened the connection, and not if it has accepted it: then it has the backlog of the socket that listened.
 */
static __always_inline struct dwell_isns isns_of(const struct sock *sk, int sends)
{
	const struct tcp_sock *tcp = CAST(struct tcp_sock, sk);
	__u8 state = READ(sk, __sk_common.skc_state);
	__u32 local, remote;

	if (sends && (state == TCP_SYN_SENT || state == TCP_CLOSE))
		return (struct dwell_isns){};
	local = READ(tcp, snd_una) - (__u32)READ(tcp, bytes_acked) - !!READ(sk, sk_max_ack_backlog);
	remote = READ(tcp, rcv_nxt) - (__u32)READ(tcp, bytes_received) - 1;
	return (struct dwell_isns){.src = sends ? local : remote, .dst = sends ? remote : local};
}

#define WIRE8(at, offset) (*((const __u8 *)(at) + (offset)))
#define WIRE16(at, offset) dwell_ntohs(*(const __u16 *)((const __u8 *)(at) + (offset)))
#define WIRE32(at, offset) (*(const __u32 *)((const __u8 *)(at) + (offset)))

static __always_inline __u64 wire64(const void *at, __u32 offset)
{
	return WIRE32(at, offset) | (__u64)WIRE32(at, offset + 4) << 32;
}

/* Returns the socket whose bytes a packet carries, as addresses may have been translated on the way down (NAT); null
 * for a forwarded packet.
 */
static __always_inline const struct sock *socket_of(const struct sk_buff *skb)
{
	const struct sock *sk = READ(skb, sk);
	__u8 state;

	if (!sk)
		return 0;
	state = READ(sk, __sk_common.skc_state);
	/* these are not full sockets */
	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV || READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	return sk;
}

/* Returns the header behind the option in which IPv6 states the length of packets beyond 64 KiB (RFC 2675), as it makes
 * them for devices that segment. Only a lone option is read.
 */
static __always_inline __u8 jumbogram_next(const void *at, __u32 *head)
{
	WIRE(struct ipv6_opt_hdr, options, at + sizeof(struct ipv6hdr));

	if (WIRE8(options, 1))
		return 0;
	*head += 8;
	return WIRE8(options, 0);
}

/* A packet from its IP header on: where it begins, the bytes that can be read there, and all bytes. */
struct ip_part {
	const void *at;
	__u32 linear;
	__u32 bytes;
};

/* Finds the IP header at `at`, in the linear part of a packet. */
static __always_inline struct ip_part ip_part_at(const struct sk_buff *skb, const void *at)
{
	__u32 bytes = READ(skb, len) - (at - (const void *)READ(skb, data));

	return (struct ip_part){at, bytes - READ(skb, data_len), bytes};
}

/* Finds the IP header of a packet that a driver hands on by napi_gro_frags(), which has removed the link header. */
static __always_inline struct ip_part ip_part_of_frags(const struct sk_buff *skb)
{
	const struct napi_gro_cb *cb = CAST(struct napi_gro_cb, &skb->cb);
	const void *at = READ(cb, frag0);

	if (!at)
		return ip_part_at(skb, READ(skb, data));
	return (struct ip_part){at, READ(cb, frag0_len), READ(skb, len)};
}

/* Reads a packet, of this socket or else of this namespace. Returns false if it carries no sampled byte, or belongs to
 * no observed flow.
 */
static __always_inline int read_packet(struct ip_part part, const struct sock *sk, __u32 netns,
				       struct dwell_stack_ends *ends, struct dwell_span *span)
{
	const void *at = part.at;
	WIRE(struct iphdr, ip4, at);
	WIRE(struct ipv6hdr, ip6, at);
	__u32 bytes = part.bytes;
	__u8 first = WIRE8(ip4, 0);
	int is_ip4 = first >> 4 == 4;
	__u8 next;
	__u32 head;

	if (is_ip4) {
		if (WIRE8(ip4, 9) != IPPROTO_TCP || WIRE16(ip4, 6) & 0x3fff)
			return 0;
		head = (first & 15) << 2;
		/* 0 in packets too long for the field */
		if (WIRE16(ip4, 2))
			bytes = WIRE16(ip4, 2);
	} else {
		next = WIRE8(ip6, 6);
		head = sizeof(struct ipv6hdr);
		if (WIRE16(ip6, 4))
			bytes = WIRE16(ip6, 4) + head;
		else if (next == IPPROTO_HOPOPTS)
			next = jumbogram_next(at, &head);
		if (first >> 4 != 6 || next != IPPROTO_TCP)
			return 0;
	}
	/* headers may be in further fragments, which cannot be read here */
	if ((__s32)part.linear < (__s32)(head + sizeof(struct tcphdr)))
		return 0;
	WIRE(struct tcphdr, tcp, at + head);
	head += WIRE8(tcp, 12) >> 4 << 2;
	if (bytes <= head)
		return 0;
	span->seq = dwell_ntohl(WIRE32(tcp, 4));
	span->bytes = bytes - head;
	span->grid = grid;
	if (!dwell_span_hit(&program, span))
		return 0;
	if (sk)
		return ends_of_socket(sk, ends, 1);
	ends->part = generation & 1 ? DWELL_PART_GENERATION : 0;
	ends->sport = WIRE16(tcp, 0);
	ends->dport = WIRE16(tcp, 2);
	ends->netns = netns;
	ends->reserved = 0;
	if (!wanted_ports(ends))
		return 0;
	if (is_ip4) {
		address4_of(WIRE32(ip4, 12), &ends->src);
		address4_of(WIRE32(ip4, 16), &ends->dst);
	} else {
		ends->src.high = wire64(ip6, 8);
		ends->src.low = wire64(ip6, 16);
		ends->dst.high = wire64(ip6, 24);
		ends->dst.low = wire64(ip6, 32);
	}
	return 1;
}

static __always_inline const void *network_header(const struct sk_buff *skb)
{
	return READ(skb, head) + READ(skb, network_header);
}

#endif
