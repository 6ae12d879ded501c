/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A VIP of QUIC whose packets go where their connection ID says. */
#ifndef DWELL_LB_ZERO_RTT_TYPES_H
#define DWELL_LB_ZERO_RTT_TYPES_H

#include "base/events.h"
#include "lb/heavy_types.h"
#include "lb/overload_types.h"
#include "lb/quic_lb.h"

/* A short header without a server's ID goes by the client's address, in place of nowhere. */
#define DWELL_ZERO_HASH 1
/* A client that is heavy at any server may be diverted, not only at its own. */
#define DWELL_ZERO_ANY 2

/* A server has the same index in all arrays of its VIP as long as it is there. */
struct dwell_zero_server {
	__u32 real;  /* 0: no server has this index */
	__u32 heavy; /* number of its table of heavy hitters */
};

struct dwell_zero_vip {
	struct dwell_cid_config layout[DWELL_CID_ROTATIONS];
	struct dwell_overload_config overload;
	struct dwell_heavy_config heavy;
	__u32 servers;        /* in use */
	__u32 window_s;       /* a connection ID in a long header is not older */
	__u32 attempt_coarse; /* so long packets without a server's ID stay together */
	__u32 flags;          /* DWELL_ZERO_* */
	struct dwell_zero_server server[DWELL_SERVERS_MAX];
};

/* Places plus 1 by server IDs of our own layout. 0: nobody's. */
struct dwell_zero_ids {
	__u16 server[65536];
};

/* A server ID of another layout. */
struct dwell_zero_name {
	__u32 slot;
	__u8 bytes;
	__u8 id[15]; /* the rest zero */
};

struct dwell_zero_loads {
	struct dwell_server_load server[DWELL_SERVERS_MAX];
};

/* Which addresses and ports may be such VIPs: a bit for those that share a hash. */
#define DWELL_ZERO_BITS 4096
struct dwell_zero_state {
	__u32 unix_offset_s; /* Unix time less that of the kernel's clock */
	__u32 generation;    /* what was cached under another is not so any more; never 0 */
	__u64 vip_filter[DWELL_ZERO_BITS / 64];
};

/* Whose connection ID it is: spares opening it again. A cache line. */
struct dwell_cid_entry {
	__u64 cid[2]; /* without the first octet */
	struct dwell_address vip;
	__u64 check; /* first octet, port, generation */
	__u64 stamp;
	__u32 real;
	__u16 slot;
	__u16 server;
	__u32 vip_number;
	__u16 noted;    /* its load has been noted, or says nothing */
	__u16 is_block; /* what is in `cid` is what was opened: it may be cached */
};

/* Where a packet's connection ID is. */
struct dwell_zero_header {
	__u32 at;
	__u32 bytes; /* of a short header all that follows: it does not say */
	__u32 is_long;
};

/* Where a connection ID is opened: too much for a stack. */
struct dwell_zero_work {
	struct dwell_zero_header header;
	struct dwell_cid_plain plain;
	struct dwell_cid_halves halves;
	struct dwell_block block;
	struct dwell_zero_name name;
	__u32 reserved;
};

/* What is counted beside why packets went where they did. */
enum dwell_zero_counter {
	DWELL_ZERO_OPENED,       /* connection IDs that were opened: not cached */
	DWELL_ZERO_NO_LAYOUT,    /* of a rotation or a length that is not configured */
	DWELL_ZERO_FORGED,       /* opened, and made by nobody with the key */
	DWELL_ZERO_NO_SERVER,    /* of a server that there is not */
	DWELL_ZERO_OLD,          /* in a long header, and not of this handshake */
	DWELL_ZERO_LOAD_UPDATED, /* news of a server's load */
	DWELL_ZERO_LOAD_REFUSED, /* news of its load that cannot be true, or is too old */
	DWELL_ZERO_HEAVY,        /* new connections of heavy hitters */
	DWELL_ZERO_COUNTERS,
};

#endif
