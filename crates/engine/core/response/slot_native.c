/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "response/slot_hooks.h"

__u32 dwell_seats_stride(void)
{
	return sizeof(struct dwell_seat);
}

__u32 dwell_seats_alias_stride(void)
{
	return sizeof(struct dwell_alias);
}

void dwell_seats_packet(struct dwell_seats *seats, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			__u32 interface, __u64 time_ns)
{
	const void *end = (const char *)data + bytes;
	struct dwell_frame frame = {data, end};
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(seats, &clock);
	struct dwell_packet packet;
	dwell_where where;
	__u32 result;

	seats->events = 0;
	seats->counters.value[DWELL_SEEN_PACKETS]++;
	seats->counters.value[DWELL_SEEN_BYTES] += wire_bytes;
	where = dwell_seat_locate(&frame, data, end, link, seats->program.key_kind);
	result = dwell_where_error(where);
	if (result) {
		seats->counters.value[result]++;
		return;
	}
	__builtin_memset(&packet, 0, sizeof(packet));
	packet.wire_bytes = wire_bytes;
	packet.segments = 1;
	packet.key.interface = interface;
	result = dwell_arrival_parse(data, end, where, seats->program.key_kind, &packet);
	if (result != DWELL_FRAME_OK) {
		seats->counters.value[result]++;
		return;
	}
	packet.hash = dwell_key_hash(&packet.key, packet.proto, seats->program.table.seed);
	dwell_seat_step(&table, &packet);
}

void dwell_seats_sweep(struct dwell_seats *seats, __u32 bucket, __u64 time_ns, __u32 reason)
{
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(seats, &clock);

	seats->events = 0;
	dwell_seat_sweep(&table, bucket, reason);
}
