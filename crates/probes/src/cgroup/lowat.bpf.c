/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Keeps the send buffers of a cgroup's connections short, without a change to their processes. */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "socket/lowat.h"

#define SOL_TCP IPPROTO_TCP

/* The kernel's type: libbpf finds where the field is (CO-RE). */
struct tcp_sock {
	__u8 rate_app_limited : 1;
} __attribute__((preserve_access_index));

const volatile struct dwell_lowat_program program SEC(".rodata.program");

struct connection {
	struct dwell_lowat lowat;
	__u64 next_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dwell_lowat_counters);
} counters SEC(".maps");

static void count(enum dwell_lowat_counter counter)
{
	struct dwell_lowat_counters *mine = bpf_map_lookup_elem(&counters, &(__u32){0});

	if (mine)
		mine->value[counter]++;
}

static void set(struct bpf_sock_ops *ops, __u32 bytes)
{
	if (bpf_setsockopt(ops, SOL_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes)))
		count(DWELL_LOWAT_REFUSED);
	else
		count(DWELL_LOWAT_SETTINGS);
}

static void look(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	__u64 now_ns = bpf_ktime_get_ns();
	struct connection *connection;
	struct tcp_sock *tcp;
	__u32 bytes;

	if (!sk)
		return;
	connection = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!connection || now_ns < connection->next_ns)
		return;
	connection->next_ns = now_ns + program.every_us * 1000ULL;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return;
	struct dwell_lowat_sample sample = {
		.mss = ops->mss_cache,
		.app_limited = BPF_CORE_READ_BITFIELD(tcp, rate_app_limited),
		.target_us = program.target_us,
		.rtt_us = ops->srtt_us >> 3,
		.now_us = now_ns / 1000,
	};
	if (sample.rtt_us > ops->rtt_min)
		sample.queue_us = sample.rtt_us - ops->rtt_min;
	if (ops->rate_interval_us)
		sample.rate = (__u64)ops->rate_delivered * ops->mss_cache * 1000000 / ops->rate_interval_us;
	bytes = dwell_lowat_step(&connection->lowat, &sample);
	if (bytes)
		set(ops, bytes);
}

static void begin(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct connection *connection;
	char congestion[sizeof(program.congestion)];

	count(DWELL_LOWAT_CONNECTIONS);
	for (int n = 0; n < (int)sizeof(congestion); n++)
		congestion[n] = program.congestion[n];
	if (congestion[0] && bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, congestion, sizeof(congestion)))
		count(DWELL_LOWAT_CONGESTION);
	if (!program.lowat || !sk)
		return;
	connection = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!connection || bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG))
		count(DWELL_LOWAT_REFUSED);
	look(ops);
}

SEC("sockops")
int watch(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		begin(ops);
		break;
	case BPF_SOCK_OPS_RTT_CB:
		look(ops);
		break;
	}
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
