/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What kernel and user space share for `dwell response`. */
#ifndef DWELL_RESPONSE_EVENT_H
#define DWELL_RESPONSE_EVENT_H

#include "base/events.h"
#include "response/response_types.h"

/* An epoch of a flow, as it is handed on. */
struct dwell_response_event {
	__u8 event; /* DWELL_EVENT_RESPONSE */
	__u8 proto;
	__u8 key_kind; /* enum dwell_key_kind */
	__u8 reserved;
	__u32 interface;
	struct dwell_address src; /* the client */
	struct dwell_address dst;
	__u16 src_port; /* 0 where the key has no ports */
	__u16 dst_port;
	__u32 id;   /* SPI, receiver index, connection; 0 where the key has none */
	__u32 real; /* at a balancer: the backend, and what it is one of */
	__u32 vip;
	struct dwell_epoch epoch;
};

/* What the program is told at load. */
struct dwell_response_program {
	struct dwell_table_config table;
	struct dwell_response_config response;
	struct dwell_filter servers; /* whose packets are answers; empty: told by ports */
	__u32 alias_mask;            /* entries for connection IDs, less one */
	__u32 slots;                 /* for flows */
	__u32 chain_next;            /* slot of the program to call next, plus 1; 0: none */
	__u32 jiffy_ns;              /* the kernel's tick; 0 if not known */
	__u8 replay;                 /* packets bring their time, as in a capture */
	__u8 key_kind;               /* enum dwell_key_kind that is wanted */
	__u8 stores_in_order;        /* the machine keeps the order of stores */
	__u8 reserved[5];
};

#endif
