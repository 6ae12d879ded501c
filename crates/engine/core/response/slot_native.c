/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "response/slot_hooks.h"

__u32 dwell_slots_stride(void)
{
	return sizeof(struct dwell_wide_slot);
}

__u32 dwell_slots_alias_stride(void)
{
	return sizeof(struct dwell_alias);
}

void dwell_slots_packet(struct dwell_slots *slots, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			__u32 interface, __u64 time_ns)
{
	const void *end = (const char *)data + bytes;
	struct dwell_frame frame = {data, end};
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(slots, &clock);
	struct dwell_packet packet;
	dwell_where where;
	__u32 result;

	slots->events = 0;
	slots->counters.value[DWELL_SEEN_PACKETS]++;
	slots->counters.value[DWELL_SEEN_BYTES] += wire_bytes;
	__builtin_memset(&packet, 0, sizeof(packet));
	packet.wire_bytes = wire_bytes;
	packet.segments = 1;
	packet.key.interface = dwell_captured_interface(data, bytes, link, interface);
	where = dwell_response_locate(&frame, data, end, link, &slots->program, &packet);
	result = dwell_where_error(where);
	if (result) {
		slots->counters.value[result]++;
		return;
	}
	result = dwell_arrival_parse(data, end, where, slots->program.key_kind, &packet);
	if (result != DWELL_FRAME_OK) {
		slots->counters.value[result]++;
		return;
	}
	packet.hash = dwell_key_hash(&packet.key, packet.proto, slots->program.table.seed);
	dwell_slot_packet(&table, &packet);
}

void dwell_slots_sweep(struct dwell_slots *slots, __u32 bucket, __u64 time_ns, __u32 reason)
{
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(slots, &clock);

	slots->events = 0;
	dwell_slot_sweep(&table, bucket, reason, 0);
}
