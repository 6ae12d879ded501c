/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs at the entry of kernel functions, for layers that have neither tracepoint nor netfilter hook in this kernel:
 * by fentry, or by kprobe if there is no fentry. The functions are called by pointer or from other files, so that none
 * is inlined.
 */

#define FENTRY(function, does, ...)                                                                                    \
	SEC("fentry/" #function)                                                                                       \
	int BPF_PROG(fentry_##function, __VA_ARGS__)                                                                   \
	{                                                                                                              \
		return does;                                                                                           \
	}

#define KPROBE(function, does, ...)                                                                                    \
	SEC("kprobe/" #function)                                                                                       \
	int BPF_KPROBE(kprobe_##function, __VA_ARGS__)                                                                 \
	{                                                                                                              \
		return does;                                                                                           \
	}

/* Arguments of a kprobe have no type to be read by. */
#ifdef DWELL_PROBED
#define AT_ENTRY(function, does, ...)                                                                                  \
	FENTRY(function, does, __VA_ARGS__)                                                                            \
	KPROBE(function, does, __VA_ARGS__)
#else
#define AT_ENTRY FENTRY
#endif

/* Runs once per write, before it waits for room. */
AT_ENTRY(tcp_sendmsg_locked, to_be_written(sk, size), const struct sock *sk, const struct msghdr *msg, __u64 size)

/* sendfile(2), in kernels where it has a path of its own. */
AT_ENTRY(do_tcp_sendpages, to_be_written(sk, size), const struct sock *sk, const void *page, int offset, __u64 size)

/* Behind IP's own netfilter hook. A packet without a socket is forwarded. */
static __always_inline int sent_by_ip(const struct sk_buff *skb)
{
	if (READ(skb, sk))
		pass_down(skb, 0, pass_tx_ip);
	return 0;
}

AT_ENTRY(ip_output, sent_by_ip(skb), const void *net, const void *sk, const struct sk_buff *skb)
AT_ENTRY(ip6_output, sent_by_ip(skb), const void *net, const void *sk, const struct sk_buff *skb)

/* A packet for this host, once that is known. */
static __always_inline int taken_by_ip(const struct sk_buff *skb)
{
	if (wanted_device(skb))
		pass_up(skb, pass_rx_ip);
	return 0;
}

AT_ENTRY(ip_local_deliver, taken_by_ip(skb), const struct sk_buff *skb)
AT_ENTRY(ip6_input, taken_by_ip(skb), const struct sk_buff *skb)

AT_ENTRY(tcp_rcv_established, pass_tcp(sk, skb), const struct sock *sk, const struct sk_buff *skb)
AT_ENTRY(sock_def_readable, to_be_read(sk), const struct sock *sk)
AT_ENTRY(tcp_rcv_space_adjust, was_read(sk), const struct sock *sk)
