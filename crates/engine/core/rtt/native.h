/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell rtt` for user space: replay, tests, fuzzing. The caller owns the memory. */
#ifndef DWELL_RTT_NATIVE_H
#define DWELL_RTT_NATIVE_H

#include "base/aggregate.h"
#include "base/base.h"
#include "base/events.h"
#include "rtt/flow.h"
#include "base/histogram.h"
#include "rtt/stamp.h"
#include "table/pool.h"

#define DWELL_NATIVE_EVENTS 8 /* more than one packet or bucket can cause */

union dwell_native_event {
	struct dwell_rtt_sample sample;
	struct dwell_flow_event flow;
};

/* Packets that dwell_native_prepare() keeps at most, a power of two, and the memory that each takes. */
#define DWELL_NATIVE_AHEAD 16
#define DWELL_NATIVE_PREPARED_BYTES 256

struct dwell_native_prepared;

struct dwell_native {
	struct dwell_rtt_config config;
	struct dwell_counters counters;
	struct dwell_slot_bucket *buckets;
	struct dwell_flow *flows;
	struct dwell_cold *cold;
	struct dwell_matcher *matchers;
	struct dwell_stamp_set *stamps;
	struct dwell_native_prepared *prepared; /* DWELL_NATIVE_AHEAD of them */
	struct dwell_pool pool;
	__u32 events;
	__u32 reserved;
	union dwell_native_event event[DWELL_NATIVE_EVENTS];
};

/* Reads a packet before its turn, of which `bytes` are at `data` and `wire_bytes` were on the wire, and has the processor
 * fetch what it will need of the tables: with many flows that lies in no cache. Nothing is measured or counted. `number`
 * is not 0 and never that of another packet. Packets are prepared in order; of several with numbers that are equal modulo
 * DWELL_NATIVE_AHEAD, the last is kept.
 */
void dwell_native_prepare(struct dwell_native *native, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			  __u32 interface, __u64 number);

/* Observes one packet. It is not read again if it was prepared under its `number`, which is 0 for one that was not. The
 * events that it caused are in event[0..events].
 */
void dwell_native_packet(struct dwell_native *native, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			 __u32 interface, __u64 number, __u64 time_ns);

/* Closes flows of one bucket: idle ones, or with DWELL_CLOSE_END all of them. */
void dwell_native_sweep(struct dwell_native *native, __u32 bucket, __u64 time_ns, __u32 reason);

__u32 dwell_native_bucket_index(__u64 value_ns);

/* A segment of TCP in a capture, for `dwell why`. */
struct dwell_native_segment {
	struct dwell_flow_key key;
	__u32 seq;
	__u32 ack;
	__u32 payload_bytes;
	__u32 payload_offset; /* from the start of the packet; what lies there may have been cut off */
	__u32 tsval;          /* of the timestamp option, if has_ts */
	__u32 tsecr;
	__u32 sack_left; /* of the first block of the SACK option, if has_sack */
	__u32 sack_right;
	__u32 interface;
	__u16 window; /* not scaled */
	__u16 mss;    /* of a SYN; 0: not stated */
	__u8 scale;   /* of a SYN: the shift of the window */
	__u8 has_scale;
	__u8 has_ts;
	__u8 has_sack;
	__u8 flags;
	__u8 direction; /* 0: key.a sent it */
	__u8 ce;        /* a router has marked the packet (RFC 3168) */
	__u8 reserved;
};

/* Reads a packet as dwell_native_packet() does. Returns DWELL_FRAME_OK and fills `segment`, or the counter that says why it
 * is none of a wanted flow.
 */
__u32 dwell_native_segment(const struct dwell_rtt_config *config, const void *data, __u32 bytes, __u32 wire_bytes,
			   __u32 link, __u32 interface, struct dwell_native_segment *segment);

/* What a packet carries over TCP or UDP. */
struct dwell_native_payload {
	struct dwell_address src;
	struct dwell_address dst;
	__u32 seq;    /* of TCP; of UDP 0 */
	__u32 offset; /* from the start of the packet; what lies there may have been cut off */
	__u32 bytes;  /* on the wire */
	__u16 src_port;
	__u16 dst_port;
	__u8 proto;
	__u8 reserved[7];
};

/* Reads a packet of which `bytes` are at `data`, whatever encloses it. Returns DWELL_FRAME_OK and fills `payload`, or the
 * counter that says why it is none of TCP or UDP.
 */
__u32 dwell_native_payload(const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			   struct dwell_native_payload *payload);

#endif
