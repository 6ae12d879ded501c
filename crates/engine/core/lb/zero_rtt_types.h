/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of VIPs that route QUIC packets by connection ID. */
#ifndef DWELL_LB_ZERO_RTT_TYPES_H
#define DWELL_LB_ZERO_RTT_TYPES_H

#include "base/events.h"
#include "lb/heavy_types.h"
#include "lb/overload_types.h"
#include "lb/quic_lb.h"

/* A short header without a server's ID is routed by the client's address instead of being dropped. */
#define DWELL_ZERO_HASH 1
/* A client that is heavy at any server may be diverted, not only at its own. */
#define DWELL_ZERO_ANY 2
/* Every client may be diverted, heavy or not. */
#define DWELL_ZERO_ALL 4

/* A server of such a VIP. It keeps its index in all arrays of the VIP while it is there. */
struct dwell_zero_server {
	__u32 real;  /* 0: no server has this index */
	__u32 heavy; /* number of its table of heavy hitters */
};

struct dwell_zero_vip {
	struct dwell_cid_config layout[DWELL_CID_ROTATIONS];
	struct dwell_overload_config overload;
	struct dwell_heavy_config heavy;
	__u32 servers;        /* entries of server[] in use */
	__u32 window_s;       /* largest age of a connection ID in a long header */
	__u32 attempt_coarse; /* how long packets without a server's ID stay together; coarse units */
	__u32 flags;          /* DWELL_ZERO_* */
	struct dwell_zero_server server[DWELL_SERVERS_MAX];
};

/* Server indexes plus 1, by server IDs of our own layout; 0: no server. */
struct dwell_zero_ids {
	__u16 server[65536];
};

/* The key of a server ID of another layout. */
struct dwell_zero_name {
	__u32 slot;
	__u8 bytes;
	__u8 id[15]; /* unused octets are zero */
};

struct dwell_zero_loads {
	struct dwell_server_load server[DWELL_SERVERS_MAX];
};

/* Bitmap of addresses and ports that may be such VIPs, by hash. */
#define DWELL_ZERO_BITS 4096
struct dwell_zero_state {
	__u32 unix_offset_s; /* Unix time minus that of the kernel's clock */
	__u32 generation;    /* changes to void what was cached; never 0 */
	__u64 vip_filter[DWELL_ZERO_BITS / 64];
};

/* A cached connection ID, which need not be opened again. It fills a cache line. */
struct dwell_cid_entry {
	__u64 cid[2]; /* without the first octet */
	struct dwell_address vip;
	__u64 check; /* first octet, port, generation */
	__u64 stamp;
	__u32 real;
	__u16 slot;
	__u16 server;
	__u32 vip_number;
	__u8 noted;    /* its load has been taken over, or it reports none */
	__u8 is_block; /* `cid` holds all that was opened, so that it may be cached */
	__u16 client;  /* a hash of the address that it was first seen with in a short header; 0: in none yet */
};

/* What the networks of a bucket have sent, as one CPU saw it; see lb/opening.h. */
#define DWELL_OPENINGS 1024
struct dwell_opening {
	__u32 known;   /* the network that last sent a connection ID or a token that was made with the key; 0: none */
	__u32 known_s; /* when */
	__u32 second;  /* in which the others count */
	__u16 forged;
	__u16 forged_known; /* by the network that is known */
};

/* Where a packet's connection ID is. */
struct dwell_zero_header {
	__u32 at;
	__u32 bytes; /* its length; all that follows in a short header, which does not state it */
	__u32 is_long;
};

/* Work space for opening a connection ID, which is too large for the stack. */
struct dwell_zero_work {
	struct dwell_zero_header header;
	struct dwell_cid_plain plain;
	struct dwell_cid_halves halves;
	struct dwell_block block;
	struct dwell_zero_name name;
	__u32 id; /* of the server that a block of our own layout named last */
};

/* What is counted apart from the reasons of packets. */
enum dwell_zero_counter {
	DWELL_ZERO_OPENED,       /* connection IDs that were not cached and had to be opened */
	DWELL_ZERO_NO_LAYOUT,    /* a rotation or a length that is not configured */
	DWELL_ZERO_FORGED,       /* opened, but not made with the key */
	DWELL_ZERO_NO_SERVER,    /* names a server that does not exist */
	DWELL_ZERO_OLD,          /* in a long header, and older than a handshake */
	DWELL_ZERO_LOAD_UPDATED, /* loads that servers reported */
	DWELL_ZERO_LOAD_REFUSED, /* reported loads that cannot be true, or are too old */
	DWELL_ZERO_HEAVY,        /* new connections of heavy hitters */
	DWELL_ZERO_UNOPENED,     /* not opened, as too many from the same networks were forged */
	/* of tokens, in Initials that may open a connection */
	DWELL_ZERO_TOKEN,          /* tokens of servers that take new connections */
	DWELL_ZERO_TOKEN_LEFT,     /* of servers that were drained or removed: their successors get the connection */
	DWELL_ZERO_TOKEN_OLD,      /* expired, or from the future */
	DWELL_ZERO_TOKEN_OTHER,    /* begin with no rotation and layout that is configured */
	DWELL_ZERO_TOKEN_FORGED,   /* opened, but not made with the key */
	DWELL_ZERO_TOKEN_UNOPENED, /* not opened, as DWELL_ZERO_UNOPENED */
	DWELL_ZERO_TOKEN_DOWN,     /* of servers that are down, and keep their sessions */
	DWELL_ZERO_COUNTERS,
};

#endif
