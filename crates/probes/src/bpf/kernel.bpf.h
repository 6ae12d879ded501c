/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fields of kernel types that are read, by name: libbpf finds where they are in the running kernel (CO-RE). Only
 * what is used is here.
 */
#ifndef DWELL_KERNEL_H
#define DWELL_KERNEL_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	__u32 sk_max_ack_backlog;
};

struct inet_sock {
	__be16 inet_sport;
};

struct task_struct {
	unsigned int flags;
	struct task_struct *group_leader;
	char comm[16];
};

struct tcp_sock {
	__u32 write_seq;
	__u32 snd_una;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u64 bytes_acked;
	__u64 bytes_received;
};

struct net_device {
	char name[16];
	int ifindex;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	__s64 tstamp;
	char cb[48];
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	__u16 network_header;
	unsigned char *head;
	unsigned char *data;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
};

/* Where the headers of a packet are while it is merged: in its first fragment, if it has no linear part. */
struct napi_gro_cb {
	void *frag0;
	unsigned int frag0_len;
};

struct iov_iter {
	__u64 count;
};

struct msghdr {
	struct iov_iter msg_iter;
};

struct nf_hook_state;

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

#pragma clang attribute pop

/* Headers on the wire, which are read by offset. */
struct iphdr {
	__u8 bytes[20];
};

struct ipv6hdr {
	__u8 bytes[40];
};

struct ipv6_opt_hdr {
	__u8 bytes[2];
};

struct tcphdr {
	__u8 bytes[20];
};

/* How fields are read. If the kernel has bpf_rdonly_cast, by their types: a load. With DWELL_PROBED, by a call of a
 * helper each: on any kernel, and in kprobes, whose arguments have no types.
 */
#ifdef DWELL_PROBED
#define READ(object, field) BPF_CORE_READ(object, field)
#define READ2(object, pointer, field) BPF_CORE_READ(object, pointer, field)
#define CAST(type, object) ((const type *)(object))
#define WIRE(type, name, at)                                                                                           \
	type name##_read __attribute__((aligned(8))) = {};                                                             \
	const type *name = &name##_read;                                                                               \
	bpf_probe_read_kernel(&name##_read, sizeof(name##_read), at)
#else
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;
#define READ(object, field) ((object)->field)
#define READ2(object, pointer, field) ((object)->pointer->field)
#define CAST(type, object) ((const type *)bpf_core_cast(object, type))
#define WIRE(type, name, at) const type *name = bpf_core_cast(at, type)
#endif

#define IPPROTO_HOPOPTS 0
#define IPPROTO_TCP 6
#define AF_INET 2
#define AF_INET6 10
#define TCP_SYN_SENT 2
#define TCP_TIME_WAIT 6
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define TCP_NEW_SYN_RECV 12

#endif
