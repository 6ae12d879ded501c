/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "clock/sync_native.h"
#include "clock/sync.h"

static __always_inline __u64 dwell_sync_now(void *embedder)
{
	struct dwell_sync_agent *agent = embedder;

	return agent->now_ns;
}

static __always_inline struct dwell_sync_session *dwell_sync_session_at(void *embedder, __u64 id)
{
	struct dwell_sync_agent *agent = embedder;

	return agent->session_id == id ? &agent->session : 0;
}

static __always_inline void dwell_sync_count(void *embedder, __u32 counter)
{
	struct dwell_sync_agent *agent = embedder;

	agent->counters.value[counter]++;
}

__u64 dwell_sync_siphash(const struct dwell_sip_key *key, const void *message, __u32 bytes)
{
	struct dwell_sip sip = dwell_sip_begin(key);
	const __u8 *byte = message;
	__u64 word = 0;

	for (__u32 at = 0; at < bytes; at++) {
		word |= (__u64)byte[at] << at % 8 * 8;
		if (at % 8 == 7) {
			dwell_sip_word(&sip, word);
			word = 0;
		}
	}
	return dwell_sip_end(&sip, word, bytes);
}

void dwell_sync_seal(const struct dwell_sip_key *key, struct dwell_sync *sync)
{
	sync->mac = dwell_sync_mac(key, sync);
}

int dwell_sync_is_sealed(const struct dwell_sip_key *key, const struct dwell_sync *sync, __u8 kind)
{
	return dwell_sync_is_ours(sync, kind) && dwell_sync_mac(key, sync) == sync->mac;
}

__u64 dwell_sync_claimed(const struct dwell_sync_program *program, __u64 now_ns)
{
	return dwell_sync_clock(program, now_ns);
}

int dwell_sync_agent_frame(struct dwell_sync_agent *agent, void *frame, __u32 bytes)
{
	return dwell_sync_reflect(agent, &agent->program, frame, (char *)frame + bytes);
}

int dwell_sync_send_frame(const struct dwell_sync_probe *probe, void *bytes_at, __u32 bytes)
{
	struct dwell_sync_frame frame;

	if (!dwell_sync_locate(bytes_at, (char *)bytes_at + bytes, DWELL_SYNC_REQUEST, &frame))
		return 0;
	dwell_sync_address(&frame, probe);
	return 1;
}

int dwell_sync_take_frame(__u64 session, const struct dwell_sync_probe *probe, struct dwell_sync_exchange *exchange,
			  void *bytes_at, __u32 bytes, __u64 now_ns)
{
	struct dwell_sync_frame frame;

	return dwell_sync_locate(bytes_at, (char *)bytes_at + bytes, DWELL_SYNC_REPLY, &frame) &&
	       frame.sync->session == session && dwell_sync_is_reply_to(&frame, probe) &&
	       dwell_sync_complete(exchange, frame.sync, now_ns);
}
