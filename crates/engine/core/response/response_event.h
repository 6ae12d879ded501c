/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types of `dwell response` that kernel and user space share. */
#ifndef DWELL_RESPONSE_EVENT_H
#define DWELL_RESPONSE_EVENT_H

#include "base/events.h"
#include "response/response_types.h"

/* One epoch of a flow, as it is reported. */
struct dwell_response_event {
	__u8 event; /* DWELL_EVENT_RESPONSE */
	__u8 proto;
	__u8 key_kind; /* enum dwell_key_kind */
	__u8 reserved;
	__u32 interface;
	struct dwell_address src; /* the client */
	struct dwell_address dst;
	__u16 src_port; /* 0 if the key has no ports */
	__u16 dst_port;
	__u32 id;     /* SPI, receiver index, or connection number; 0 if the key has none */
	__u32 tunnel; /* what encloses the flow (parse/walk.h) */
	__u32 reserved2;
	__u32 real; /* at a balancer: the backend and its VIP */
	__u32 vip;
	struct dwell_epoch epoch;
};

/* Configuration of the response program, written before it is loaded. */
struct dwell_response_program {
	struct dwell_table_config table;
	struct dwell_response_config response;
	struct dwell_filter servers; /* senders of answers; empty: ports decide */
	__u32 alias_mask;            /* number of aliases - 1 */
	__u32 chain_next;            /* slot of the program to call next, plus 1; 0: none */
	__u32 jiffy_ns;              /* length of the kernel's tick; 0: unknown */
	__u8 replay;                 /* packets bring their own time, as in a capture */
	__u8 key_kind;               /* enum dwell_key_kind that identifies flows */
	__u8 stores_in_order;        /* the machine keeps the order of stores */
	__u8 ignore_tunnels;         /* tell no flows apart by what encloses them */
};

#endif
