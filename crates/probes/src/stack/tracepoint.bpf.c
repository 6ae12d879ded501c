/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs of `dwell stack`, one per hook, named for the layer that it stamps; here those at tracepoints and
 * netfilter. Only netfilter uses what they return.
 */
#include "stack.bpf.h"

#define NF_ACCEPT 1

/* The most bytes of one write. */
#define WRITE_MAX_BYTES 0x7ffff000

/* Handles a write of which this many bytes are about to be copied. */
static __always_inline int to_be_written(const struct sock *sk, __u64 bytes)
{
	const struct tcp_sock *tcp = CAST(struct tcp_sock, sk);
	struct dwell_span span;
	struct passing passing;

	span.seq = READ(tcp, write_seq);
	span.bytes = bytes < WRITE_MAX_BYTES ? bytes : WRITE_MAX_BYTES;
	span.grid = grid;
	if (!dwell_span_hit(&program, &span))
		return 0;
	if (!ends_of_socket(sk, &passing.ends, 1) || !wanted_addresses(&passing.ends))
		return 0;
	span.flow = flow_of(&passing.ends);
	choose(&passing.ends, span.flow);
	passing.pass = dwell_pass_of(&program, &span, bpf_ktime_get_ns(), 0, 0);
	passing.pass.isns = isns_of(sk, 1);
	bpf_loop(passing.pass.steps, pass_tx_socket, &passing, 0);
	return 0;
}

/* Runs before each piece of a write is copied, with what is left of the write; and again if the write had to wait for
 * room.
 */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(tx_socket, const struct sock *sk, const struct msghdr *msg, const struct sk_buff *skb, int size_goal)
{
	__u64 left = READ(msg, msg_iter.count);

	return to_be_written(sk, left < (__u32)size_goal ? left : (__u32)size_goal);
}

/* LOCAL_OUT. */
SEC("netfilter")
int tx_ip(struct bpf_nf_ctx *context)
{
	const struct sk_buff *skb = context->skb;

	pass_down(skb, 0, pass_tx_ip);
	return NF_ACCEPT;
}

static __always_inline int wanted_device(const struct sk_buff *skb)
{
	return wanted_namespace(READ2(skb, dev, nd_net.net));
}

static __always_inline int is_ip(const struct sk_buff *skb)
{
	__be16 protocol = READ(skb, protocol);

	return protocol == DWELL_ETH_IPV4 || protocol == DWELL_ETH_IPV6;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(tx_queue, const struct sk_buff *skb)
{
	if (!is_ip(skb) || !wanted_device(skb))
		return 0;
	/* a packet without a socket is forwarded */
	if (program.ip_at_queue && READ(skb, sk))
		pass_down(skb, netns_of_device(skb), pass_tx_ip);
	pass_down(skb, netns_of_device(skb), pass_tx_queue);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(tx_driver, const struct sk_buff *skb, const struct net_device *dev)
{
	if (is_ip(skb) && wanted_device(skb))
		pass_down(skb, netns_of_device(skb), pass_tx_driver);
	return 0;
}

static __always_inline int pass_part(const struct sk_buff *skb, struct ip_part part, __u32 hook)
{
	if (is_ip(skb) && wanted_device(skb))
		pass_in(skb, part, hook);
	return 0;
}

/* Handles a packet on its way in. The link header has been removed; the network header is not known yet. */
static __always_inline int pass_received(const struct sk_buff *skb, __u32 hook)
{
	return pass_part(skb, ip_part_at(skb, READ(skb, data)), hook);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(rx_driver_napi, const struct sk_buff *skb)
{
	return pass_received(skb, 1);
}

/* Drivers whose packets are fragments of pages; the number is that of the other hook of drivers with NAPI. */
SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(rx_driver_frags, const struct sk_buff *skb)
{
	return pass_part(skb, ip_part_of_frags(skb), 1);
}

/* Drivers without NAPI: veth, loopback. */
SEC("tp_btf/netif_rx")
int BPF_PROG(rx_driver, const struct sk_buff *skb)
{
	return pass_received(skb, 2);
}

/* Drivers that hand packets on at once: tun; and bridges, for their own packets. */
SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(rx_driver_at_once, const struct sk_buff *skb)
{
	return pass_received(skb, 3);
}

/* PRE_ROUTING. */
SEC("netfilter")
int rx_ip(struct bpf_nf_ctx *context)
{
	const struct sk_buff *skb = context->skb;

	pass_up(skb, pass_rx_ip);
	return NF_ACCEPT;
}

/* Where neither netfilter nor functions can be hooked. A packet that is handed on from device to device comes several
 * times.
 */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(rx_ip_at_device, const struct sk_buff *skb)
{
	if (is_ip(skb) && wanted_device(skb))
		pass_up_from(ip_part_at(skb, READ(skb, data)), netns_of_device(skb), 0, pass_rx_ip);
	return 0;
}

/* Handles a packet that a connection receives. */
static __always_inline int pass_tcp(const struct sock *sk, const struct sk_buff *skb)
{
	const struct tcp_skb_cb *cb = CAST(struct tcp_skb_cb, &skb->cb);
	struct dwell_span span;
	struct passing passing;

	span.seq = READ(cb, seq);
	span.bytes = READ(cb, end_seq) - span.seq;
	span.grid = grid;
	if (!dwell_span_hit(&program, &span))
		return 0;
	if (!ends_of_socket(sk, &passing.ends, 0) || !wanted_addresses(&passing.ends))
		return 0;
	span.flow = flow_of(&passing.ends);
	pass_span(&passing, &span, 0, 0, pass_rx_tcp);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(rx_tcp, const struct sock *sk, const struct sk_buff *skb)
{
	return pass_tcp(sk, skb);
}

/* Handles the notification that an application can read, which sockets of all kinds get. */
static __always_inline int to_be_read(const struct sock *sk)
{
	const struct tcp_sock *tcp = CAST(struct tcp_sock, sk);
	struct reaching reaching;
	__u32 end;

	if (READ(sk, sk_protocol) != IPPROTO_TCP || READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		return 0;
	if (!ends_of_socket(sk, &reaching.ends, 0) || !wanted_addresses(&reaching.ends))
		return 0;
	end = READ(tcp, rcv_nxt);
	reaching.walk = dwell_walk_from(&program, flow_of(&reaching.ends), end, bpf_ktime_get_ns(), grid);
	bpf_loop(walk_steps(&reaching.walk, end), reach_ready, &reaching, 0);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(rx_ready, const struct sock *sk)
{
	return to_be_read(sk);
}

/* Handles a read of the application. */
static __always_inline int was_read(const struct sock *sk)
{
	const struct tcp_sock *tcp = CAST(struct tcp_sock, sk);
	struct reaching reaching;
	__u32 end, steps;
	__u64 flow;

	if (!ends_of_socket(sk, &reaching.ends, 0) || !wanted_addresses(&reaching.ends))
		return 0;
	flow = flow_of(&reaching.ends);
	choose(&reaching.ends, flow);
	end = READ(tcp, copied_seq);
	reaching.walk = dwell_walk_from(&program, flow, end, bpf_ktime_get_ns(), grid);
	reaching.walk.isns = isns_of(sk, 0);
	steps = walk_steps(&reaching.walk, end);
	if (bpf_loop(steps, reach_socket, &reaching, 0) >= DWELL_WALK_STEPS)
		dwell_stack_count(0, DWELL_RX_UNWALKED);
	if (steps == 1)
		end_choice(flow);
	return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(rx_socket, const struct sock *sk)
{
	return was_read(sk);
}

#include "function.bpf.h"
