/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A backend's end of the balancer's tunnel, at XDP. */
#include "hook_xdp.bpf.h"

#include "frame_xdp.bpf.h"

#include "base/aggregate.h"
#include "lb/decap.h"

char _license[] SEC("license") = "Dual BSD/GPL";

SEC(".rodata.program") struct dwell_decap_program program = {};

/* Addresses of this host at which tunnels may end. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct dwell_address);
	__type(value, __u32);
	__uint(max_entries, 1);
} own SEC(".maps");

/* Prefixes of inner destinations, of senders of outer packets, and of backends to which packets may be sent on. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct dwell_prefix_key);
	__type(value, struct dwell_prefix);
	__uint(max_entries, 65536);
} vips SEC(".maps"), senders SEC(".maps"), backends SEC(".maps");

/* The paths to these backends. The program adds those that user space is to look for. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct dwell_address);
	__type(value, struct dwell_real);
	__uint(max_entries, 4096);
} hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_decap_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

static __always_inline int dwell_is_local_address(void *embedder, const struct dwell_address *address)
{
	return !!bpf_map_lookup_elem(&own, address);
}

static __always_inline __u32 longest(void *trie, const struct dwell_address *address)
{
	struct dwell_prefix_key whole = {.bits = 128};
	const struct dwell_prefix *listed;

	__builtin_memcpy(whole.address, address, sizeof(whole.address));
	listed = bpf_map_lookup_elem(trie, &whole);
	return listed ? listed->bits + 1 : 0;
}

static __always_inline __u32 dwell_decap_vip_bits(void *embedder, const struct dwell_address *address)
{
	return longest(&vips, address);
}

static __always_inline __u32 dwell_decap_sender_bits(void *embedder, const struct dwell_address *address)
{
	return longest(&senders, address);
}

static __always_inline __u32 dwell_decap_backend_bits(void *embedder, const struct dwell_address *address)
{
	return program.sends_on ? longest(&backends, address) : 0;
}

struct tcp_request_sock {
	__u32 snt_isn;
} __attribute__((preserve_access_index));

/* Returns true if a packet acknowledges the SYN-ACK of a half-open connection. A SYN that was sent again may have come to
 * another host than before: the one whose SYN-ACK the client does not acknowledge would reset the connection.
 */
static __always_inline int opens(struct bpf_sock *sock, const struct dwell_tcp *tcp)
{
	struct tcp_request_sock *request = bpf_skc_to_tcp_request_sock(sock);

	return request && tcp->flags & DWELL_TCP_ACK && dwell_ntohl(tcp->ack) == request->snt_isn + 1;
}

/* Returns true if a packet that is not a SYN belongs to a socket of this host: one that is open, or about to be, or that
 * listens if the packet brings back its SYN cookie. A socket that has ended waits for stragglers only, to which any host
 * may answer.
 */
static __always_inline int owns(struct xdp_md *xdp, struct bpf_sock_tuple *tuple, __u32 tuple_bytes, void *ip,
				__u32 ip_bytes, struct dwell_tcp *tcp)
{
	struct bpf_sock *sock;
	int is_own;

	if (tcp->flags & DWELL_TCP_SYN)
		return 1;
	sock = bpf_skc_lookup_tcp(xdp, tuple, tuple_bytes, BPF_F_CURRENT_NETNS, 0);
	if (!sock)
		return 0;
	if (sock->state == BPF_TCP_LISTEN)
		is_own = !bpf_tcp_check_syncookie(sock, ip, ip_bytes, (void *)tcp, sizeof(*tcp));
	else if (sock->state == BPF_TCP_NEW_SYN_RECV)
		is_own = opens(sock, tcp);
	else
		is_own = sock->state != BPF_TCP_TIME_WAIT;
	bpf_sk_release(sock);
	return is_own;
}

static __always_inline int dwell_decap_owns(DWELL_FRAME *frame, void *embedder, __u32 at)
{
	void *data = dwell_frame_data(frame);
	const void *end = dwell_frame_end(frame);
	struct bpf_sock_tuple tuple = {};
	struct dwell_ipv4 *ip = data + at;
	struct dwell_ipv6 *ip6 = data + at;
	struct dwell_tcp *tcp;

	if ((void *)(ip + 1) > end)
		return 1;
	if (ip->version_length == 0x45) {
		tcp = (void *)(ip + 1);
		if (ip->proto != DWELL_PROTO_TCP || ip->fragment & 0xff3f || (void *)(tcp + 1) > end)
			return 1;
		tuple.ipv4.saddr = ip->src;
		tuple.ipv4.daddr = ip->dst;
		tuple.ipv4.sport = tcp->src_port;
		tuple.ipv4.dport = tcp->dst_port;
		return owns(frame, &tuple, sizeof(tuple.ipv4), ip, sizeof(*ip), tcp);
	}
	if ((void *)(ip6 + 1) > end)
		return 1;
	tcp = (void *)(ip6 + 1);
	if (ip->version_length >> 4 != 6 || ip6->next != DWELL_PROTO_TCP || (void *)(tcp + 1) > end)
		return 1;
	__builtin_memcpy(tuple.ipv6.saddr, &ip6->src_high, sizeof(tuple.ipv6.saddr));
	__builtin_memcpy(tuple.ipv6.daddr, &ip6->dst_high, sizeof(tuple.ipv6.daddr));
	tuple.ipv6.sport = tcp->src_port;
	tuple.ipv6.dport = tcp->dst_port;
	return owns(frame, &tuple, sizeof(tuple.ipv6), ip6, sizeof(*ip6), tcp);
}

static __always_inline const struct dwell_real *dwell_decap_hop_to(void *embedder, const struct dwell_address *address)
{
	const struct dwell_real *hop = bpf_map_lookup_elem(&hops, address);
	struct dwell_real wanted = {.address = *address};

	if (!hop)
		bpf_map_update_elem(&hops, address, &wanted, BPF_NOEXIST);
	return hop;
}

SEC("xdp")
int decapsulate(struct xdp_md *xdp)
{
	struct dwell_decap_counters *counted;
	__u32 zero = 0, did, interface = 0;

	counted = bpf_map_lookup_elem(&counters, &zero);
	did = dwell_decapsulate(xdp, 0, program.gue_port, &interface);
	if (counted && did < DWELL_DECAPS)
		counted->value[did]++;
	if (did == DWELL_DECAP_SENT_ON)
		return interface == xdp->ingress_ifindex && !program.redirects_back ? XDP_TX
										    : bpf_redirect(interface, 0);
	return dwell_decap_drops(did) ? XDP_DROP : XDP_PASS;
}
