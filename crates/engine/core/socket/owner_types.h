/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of the owner of a flow's socket, in the kernel and in user space. */
#ifndef DWELL_SOCKET_OWNER_TYPES_H
#define DWELL_SOCKET_OWNER_TYPES_H

#include "base/base.h"
#include "base/events.h"

/* Flows whose owner is remembered, about the last ones: those that were noted longest ago make room for others. */
#define DWELL_OWNERS 32768
/* Sockets that wait for the answer to their SYN; of more than these the owner is not noted. */
#define DWELL_OWNERS_PENDING 8192

/* A socket's flow, its own end first. Ports are in host byte order. */
struct dwell_owner_key {
	struct dwell_address local;
	struct dwell_address remote;
	__u16 local_port;
	__u16 remote_port;
	__u32 proto; /* IPPROTO_* */
};

/* The process that connected the socket. */
struct dwell_owner {
	__u64 time_ns; /* when it did, by CLOCK_MONOTONIC */
	__u64 cgroup;  /* the ID of its cgroup of version 2 */
	__u32 pid;     /* in the initial PID namespace */
	char name[16]; /* of its main thread, with a 0 at the end */
	__u32 reserved;
};

/* Configuration of the program that notes owners. */
struct dwell_owner_program {
	__u32 netns; /* number of the network namespace whose sockets are noted */
};

struct dwell_owner_counters {
	__u64 lost; /* sockets whose owner was not noted, as there was no room */
};

#endif
