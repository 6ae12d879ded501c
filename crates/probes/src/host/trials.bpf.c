/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A minimal program of each type, to find out what this kernel accepts. None of them does anything, should a packet or
 * an event arrive while it is attached.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int try_tc(void *context)
{
	return -1; /* TCX_NEXT, TC_ACT_UNSPEC */
}

SEC("xdp")
int try_xdp(void *context)
{
	return XDP_PASS;
}

static long once(__u32 index, void *unused)
{
	return 1;
}

SEC("tc")
int try_loop(void *context)
{
	bpf_loop(2, once, 0, 0);
	return -1;
}

SEC("tp_btf/tcp_probe")
int try_tp_btf(void *context)
{
	return 0;
}

SEC("sockops")
int try_sockops(void *context)
{
	return 1;
}

SEC("netfilter")
int try_netfilter(void *context)
{
	return 1; /* NF_ACCEPT */
}

SEC("fentry/tcp_v4_connect")
int try_fentry(void *context)
{
	return 0;
}

SEC("kprobe/tcp_v4_connect")
int try_kprobe(void *context)
{
	return 0;
}
