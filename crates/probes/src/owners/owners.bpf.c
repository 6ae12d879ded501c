/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Notes which process connects a TCP socket. The program runs at each change of a socket's state, and only two of them
 * concern it.
 */
#include "socket.bpf.h"

#include "base/headers.h"
#include "socket/owner_types.h"

/* A thread of the kernel's own. */
#define PF_KTHREAD 0x00200000

const volatile struct dwell_owner_program program SEC(".rodata.program");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct dwell_owner_key);
	__type(value, struct dwell_owner);
	__uint(max_entries, DWELL_OWNERS);
} owners SEC(".maps");

/* Owners of sockets that wait for the answer to their SYN, by the address of the socket. If the kernel has skipped a run,
 * an entry stays until the memory of its socket is used again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u64);
	__type(value, struct dwell_owner);
	__uint(max_entries, DWELL_OWNERS_PENDING);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct dwell_owner_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

static __always_inline void count_lost(void)
{
	struct dwell_owner_counters *mine = bpf_map_lookup_elem(&counters, &(__u32){0});

	if (mine)
		mine->lost++;
}

/* Notes the process in which it runs as the one that connects the socket, which has no port of its own yet. */
static __always_inline void begin(const struct sock *sk)
{
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct net *net = READ(sk, __sk_common.skc_net.net);
	struct dwell_owner owner = {};
	__u64 key = (__u64)sk;

	/* what the kernel connects by itself, as for NFS, has no process */
	if (READ(net, ns.inum) != program.netns || READ(sk, sk_protocol) != DWELL_PROTO_TCP ||
	    READ(task, flags) & PF_KTHREAD) {
		/* an entry here is that of a socket that had this memory before */
		bpf_map_delete_elem(&pending, &key);
		return;
	}
	owner.time_ns = bpf_ktime_get_ns();
	owner.cgroup = bpf_get_current_cgroup_id();
	owner.pid = bpf_get_current_pid_tgid() >> 32;
	BPF_CORE_READ_STR_INTO(&owner.name, task, group_leader, comm);
	if (bpf_map_update_elem(&pending, &key, &owner, BPF_ANY))
		count_lost();
}

/* Notes the owner of the socket's flow, which is known once the other end has answered or refused. */
static __always_inline void end(const struct sock *sk)
{
	const struct inet_sock *inet = (const void *)sk;
	const struct sock_common *common = &sk->__sk_common;
	struct dwell_owner_key flow = {.proto = DWELL_PROTO_TCP};
	const struct dwell_owner *owner;
	__u64 key = (__u64)sk;

	owner = bpf_map_lookup_elem(&pending, &key);
	if (!owner)
		return;
	addresses_of(common, &flow.local, &flow.remote);
	/* skc_num is 0 already where the connection was refused */
	flow.local_port = dwell_ntohs(READ(inet, inet_sport));
	flow.remote_port = dwell_ntohs(READ(common, skc_dport));
	/* without a port it has sent nothing */
	if (flow.local_port && bpf_map_update_elem(&owners, &flow, owner, BPF_ANY))
		count_lost();
	bpf_map_delete_elem(&pending, &key);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(note_owner, const struct sock *sk, int before, int after)
{
	if (after == TCP_SYN_SENT)
		begin(sk);
	else if (before == TCP_SYN_SENT)
		end(sk);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
