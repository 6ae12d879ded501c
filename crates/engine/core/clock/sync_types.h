/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packets that compare the clocks of two hosts, and what is shared about them between kernel
 * and user space. docs/method/clock.md tells the protocol.
 */
#ifndef DWELL_CLOCK_SYNC_TYPES_H
#define DWELL_CLOCK_SYNC_TYPES_H

#include "base/events.h"
#include "base/siphash.h"

#define DWELL_SYNC_MAGIC 0x4b435744 /* "DWCK" */
#define DWELL_SYNC_VERSION 1
#define DWELL_SYNC_EXCHANGES 256 /* of one prober that may be on their way: a power of two */

/* Part of what is authenticated: a request is no reply. */
enum dwell_sync_kind {
	DWELL_SYNC_REQUEST = 1,
	DWELL_SYNC_REPLY = 2,
};

/* Who stamped a reply. */
enum dwell_sync_stamper {
	DWELL_SYNC_UNSTAMPED, /* a request */
	DWELL_SYNC_XDP,
	DWELL_SYNC_SOCKET,
	DWELL_SYNC_SOCKET_YET, /* a socket, and XDP if asked again soon */
};

/* The payload of a packet, of either kind; all of it little-endian. */
struct dwell_sync {
	__u32 magic;
	__u8 version;
	__u8 kind;
	__u8 stamper;
	__u8 reserved; /* 0 */
	__u64 session;
	__u64 sequence;     /* greater than in all requests of the session before */
	__u64 arrival_ns;   /* the answering host's CLOCK_MONOTONIC; 0 in a request */
	__u64 departure_ns; /* likewise */
	__u64 mac;          /* SipHash-2-4 of the 40 bytes before */
};

/* What the agent knows of a session. */
struct dwell_sync_session {
	struct dwell_sip_key key;
	struct dwell_address peer; /* the collector's */
	__u64 largest;             /* sequence answered */
};

/* What the collector knows of one. */
struct dwell_sync_probe {
	struct dwell_sip_key key;
	struct dwell_address src;
	struct dwell_address dst;
	__u32 interface; /* that leads to dst */
	__u32 first;     /* its first place among the exchanges */
	__u16 src_port;  /* all ports in host byte order */
	__u16 dst_port;
	__u16 loop_port; /* both ends of the socket that requests come from */
	__u8 src_mac[6];
	__u8 dst_mac[6];
	__u16 reserved[3];
};

/* An exchange; what is not known yet is 0. */
struct dwell_sync_exchange {
	__u64 sequence;
	__u64 t1_ns; /* the collector's clock: the request leaves */
	__u64 t2_ns; /* the agent's clock: it arrives */
	__u64 t3_ns; /* the agent's clock: the reply leaves */
	__u64 t4_ns; /* the collector's clock: it arrives */
	__u64 stamper;
};

enum dwell_sync_counter {
	DWELL_SYNC_ANSWERED,   /* requests answered in XDP, or replies taken there */
	DWELL_SYNC_ADMITTED,   /* requests left to the socket, to be answered there */
	DWELL_SYNC_MALFORMED,  /* came to the socket, and are no packets of this protocol */
	DWELL_SYNC_UNKNOWN,    /* of no session that was admitted */
	DWELL_SYNC_WRONG_PEER, /* of a session, and from another address than its collector's */
	DWELL_SYNC_FORGED,     /* the MAC is wrong */
	DWELL_SYNC_REPLAYED,   /* the sequence is not greater than the largest seen */
	DWELL_SYNC_COUNTERS,
};

struct dwell_sync_counters {
	__u64 value[DWELL_SYNC_COUNTERS];
};

/* Configuration of the agent's programs. The experiment falsifies the agent's clock by a known
 * amount, to see whether it is found; all zero otherwise.
 */
struct dwell_sync_program {
	__u64 experiment_since_ns;
	__s64 experiment_offset_ns;
	__s64 experiment_drift_ppb;
	__u16 port; /* host byte order */
	__u16 reserved[3];
};

#endif
