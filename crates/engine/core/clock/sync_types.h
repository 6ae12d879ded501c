/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packets that compare the clocks of two hosts, and their state in kernel and user space. docs/method/clock.md
 * describes the protocol.
 */
#ifndef DWELL_CLOCK_SYNC_TYPES_H
#define DWELL_CLOCK_SYNC_TYPES_H

#include "base/events.h"
#include "base/siphash.h"

#define DWELL_SYNC_MAGIC 0x4b435744 /* "DWCK" */
#define DWELL_SYNC_VERSION 1
#define DWELL_SYNC_EXCHANGES 256 /* exchanges of one prober that may be under way: a power of two */

/* Kind of packet, which is authenticated: a request cannot pass as a reply. */
enum dwell_sync_kind {
	DWELL_SYNC_REQUEST = 1,
	DWELL_SYNC_REPLY = 2,
};

/* What stamped a reply. */
enum dwell_sync_stamper {
	DWELL_SYNC_UNSTAMPED, /* nothing: a request */
	DWELL_SYNC_XDP,
	DWELL_SYNC_SOCKET,
	DWELL_SYNC_SOCKET_YET, /* a socket; XDP will answer the next requests */
};

/* The payload of a packet of either kind, in little-endian byte order. */
struct dwell_sync {
	__u32 magic;
	__u8 version;
	__u8 kind;
	__u8 stamper;
	__u8 reserved; /* 0 */
	__u64 session;
	__u64 sequence;     /* greater than in all earlier requests of the session */
	__u64 arrival_ns;   /* the answering host's CLOCK_MONOTONIC; 0 in a request */
	__u64 departure_ns; /* likewise */
	__u64 mac;          /* SipHash-2-4 of the 40 bytes before */
};

/* The agent's state of a session. */
struct dwell_sync_session {
	struct dwell_sip_key key;
	struct dwell_address peer; /* the collector's */
	__u64 largest;             /* largest sequence number answered */
};

/* The collector's state of a session. */
struct dwell_sync_probe {
	struct dwell_sip_key key;
	struct dwell_address src;
	struct dwell_address dst;
	__u32 interface; /* interface that leads to dst */
	__u32 first;     /* index of its first exchange */
	__u16 src_port;  /* all ports in host byte order */
	__u16 dst_port;
	__u16 loop_port; /* both ports of the socket that sends requests */
	__u8 src_mac[6];
	__u8 dst_mac[6];
	__u16 reserved[3];
};

/* One exchange; what is not known yet is 0. */
struct dwell_sync_exchange {
	__u64 sequence;
	__u64 t1_ns; /* collector's clock: the request leaves */
	__u64 t2_ns; /* agent's clock: the request arrives */
	__u64 t3_ns; /* agent's clock: the reply leaves */
	__u64 t4_ns; /* collector's clock: the reply arrives */
	__u64 stamper;
};

enum dwell_sync_counter {
	DWELL_SYNC_ANSWERED,   /* requests answered, or replies received, in XDP */
	DWELL_SYNC_ADMITTED,   /* requests left to the socket, which answers them */
	DWELL_SYNC_MALFORMED,  /* arrived at the socket, but are not packets of this protocol */
	DWELL_SYNC_UNKNOWN,    /* name no admitted session */
	DWELL_SYNC_WRONG_PEER, /* name a session, but do not come from its collector */
	DWELL_SYNC_FORGED,     /* the MAC is wrong */
	DWELL_SYNC_REPLAYED,   /* the sequence is not greater than the largest seen */
	DWELL_SYNC_COUNTERS,
};

struct dwell_sync_counters {
	__u64 value[DWELL_SYNC_COUNTERS];
};

/* Configuration of the agent's programs. The experiment falsifies the agent's clock by a known amount, to test that the
 * difference is found; otherwise it is all zero.
 */
struct dwell_sync_program {
	__u64 experiment_since_ns;
	__s64 experiment_offset_ns;
	__s64 experiment_drift_ppb;
	__u16 port; /* host byte order */
	__u16 reserved[3];
};

#endif
