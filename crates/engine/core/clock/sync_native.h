/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sync packets for user space: for hosts without XDP, and tests. The caller owns the memory. */
#ifndef DWELL_CLOCK_SYNC_NATIVE_H
#define DWELL_CLOCK_SYNC_NATIVE_H

#include "clock/sync_types.h"

/* An agent with one session. */
struct dwell_sync_agent {
	struct dwell_sync_program program;
	__u64 session_id;
	struct dwell_sync_session session;
	struct dwell_sync_counters counters;
	__u64 now_ns;
};

__u64 dwell_sync_siphash(const struct dwell_sip_key *key, const void *message, __u32 bytes);

/* Writes the MAC. */
void dwell_sync_seal(const struct dwell_sip_key *key, struct dwell_sync *sync);

/* Returns true if the packet is of this kind and its MAC is correct. */
int dwell_sync_is_sealed(const struct dwell_sip_key *key, const struct dwell_sync *sync, __u8 kind);

__u64 dwell_sync_claimed(const struct dwell_sync_program *program, __u64 now_ns);

/* Handles a frame as the agent's XDP program does: see dwell_sync_reflect(). */
int dwell_sync_agent_frame(struct dwell_sync_agent *agent, void *frame, __u32 bytes);

/* Addresses the request in a frame from the loopback, as the collector's program does. Returns false if there is none.
 */
int dwell_sync_send_frame(const struct dwell_sync_probe *probe, void *frame, __u32 bytes);

/* Completes an exchange from the reply in a frame. Returns false if there is none of this session. */
int dwell_sync_take_frame(__u64 session, const struct dwell_sync_probe *probe, struct dwell_sync_exchange *exchange,
			  void *frame, __u32 bytes, __u64 now_ns);

#endif
