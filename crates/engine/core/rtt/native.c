/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "rtt/native.h"
#include "rtt/rtt.h"

static __always_inline __u64 dwell_now(struct dwell_clock *clock)
{
	return clock->now_ns;
}

static __always_inline __u32 dwell_now_coarse(struct dwell_clock *clock)
{
	return clock->now_ns >> 20;
}

static __always_inline struct dwell_stamp_set *dwell_stamps_at(struct dwell_step *step, __u32 index)
{
	struct dwell_native *native = step->table->embedder;

	return &native->stamps[(index & native->config.stamp_mask) / DWELL_STAMP_WAYS];
}

static __always_inline struct dwell_bucket *dwell_bucket_at(void *embedder, __u32 index)
{
	struct dwell_native *native = embedder;

	return &native->buckets[index & native->config.table.bucket_mask].bucket;
}

static __always_inline struct dwell_pool *dwell_pool_of(void *embedder)
{
	struct dwell_native *native = embedder;

	return &native->pool;
}

static __always_inline __u32 dwell_slot_total(void *embedder)
{
	struct dwell_native *native = embedder;

	return native->config.table.slots;
}

static __always_inline struct dwell_flow *dwell_flow_at(void *embedder, __u32 slot_index)
{
	struct dwell_native *native = embedder;

	return slot_index < native->config.table.slots ? &native->flows[slot_index] : 0;
}

static __always_inline struct dwell_cold *dwell_cold_at(void *embedder, __u32 slot_index)
{
	struct dwell_native *native = embedder;

	return slot_index < native->config.table.slots ? &native->cold[slot_index] : 0;
}

static __always_inline struct dwell_matcher *dwell_matcher_at(void *embedder, __u32 slot_index)
{
	struct dwell_native *native = embedder;

	return slot_index < native->config.table.slots ? &native->matchers[slot_index] : 0;
}

static __always_inline __u32 dwell_rank_at(void *embedder, __u32 slot_index, __u32 now_coarse, __u32 timeout_coarse)
{
	return dwell_rank(dwell_head_at(embedder, slot_index), now_coarse, timeout_coarse);
}

static __always_inline __u32 dwell_vacancy_for(struct dwell_table *table, __u32 first, __u32 second, __u64 tag)
{
	return dwell_vacancy_of(table->embedder, first, second, tag, dwell_now_coarse(table->clock),
				table->config->idle_timeout_ns >> 20);
}

static __always_inline void dwell_emit_flow(struct dwell_table *table, const struct dwell_flow *flow,
					    const struct dwell_cold *cold, __u32 change, __u32 detail, __u64 rtt_ns)
{
	struct dwell_native *native = table->embedder;

	if (native->config.flow_events && native->events < DWELL_NATIVE_EVENTS)
		dwell_fill_flow_event(&native->event[native->events++].flow, flow, cold, change, detail, rtt_ns,
				      dwell_now(table->clock));
}

static struct dwell_table table_of(struct dwell_native *native, struct dwell_clock *clock)
{
	struct dwell_table table = {&native->config.table, &native->counters, clock, native};

	return table;
}

static void emit_sample(struct dwell_step *step, const struct dwell_match *match)
{
	struct dwell_native *native = step->table->embedder;

	if (match->found && native->events < DWELL_NATIVE_EVENTS)
		dwell_fill_sample(&native->event[native->events++].sample, step, match, dwell_now(step->table->clock));
}

/* A packet that was read before its turn. */
struct dwell_native_prepared {
	__u64 number; /* 0: there is none */
	__u32 result; /* of read_packet() */
	__u32 reserved;
	struct dwell_packet packet;
};
_Static_assert(sizeof(struct dwell_native_prepared) <= DWELL_NATIVE_PREPARED_BYTES, "the memory that callers reserve");
_Static_assert(!(DWELL_NATIVE_AHEAD & (DWELL_NATIVE_AHEAD - 1)), "a power of two");

/* Packets from the preparation of one to that of the one at which its bucket has arrived. */
#define BUCKET_ARRIVES 6

static struct dwell_native_prepared *prepared_at(struct dwell_native *native, __u64 number)
{
	char *all = (void *)native->prepared;

	return (void *)(all + (number & (DWELL_NATIVE_AHEAD - 1)) * DWELL_NATIVE_PREPARED_BYTES);
}

static __always_inline void prefetch_stamp(struct dwell_native *native, const struct dwell_packet *packet, __u32 method,
					   __u32 direction, __u32 position)
{
	__u32 index = dwell_stamp_index(packet, method, direction, position);

	__builtin_prefetch(&native->stamps[(index & native->config.stamp_mask) / DWELL_STAMP_WAYS], 1);
}

/* Fetches the stamps that the packet may want. */
static void prefetch_stamps(struct dwell_native *native, const struct dwell_packet *packet)
{
	__u32 direction = packet->direction & 1, end = packet->seq + packet->payload_bytes;

	if (packet->rtt.has_ts) {
		prefetch_stamp(native, packet, DWELL_TCP_TIMESTAMP, direction, packet->rtt.tsval);
		prefetch_stamp(native, packet, DWELL_TCP_TIMESTAMP, !direction, packet->rtt.tsecr);
		if (!native->config.tcp_auto)
			return;
	}
	if (packet->kind != DWELL_KIND_TCP)
		return;
	if (packet->payload_bytes)
		prefetch_stamp(native, packet, DWELL_TCP_SEQ, direction, dwell_tcp_seq_position(end, 0));
	prefetch_stamp(native, packet, DWELL_TCP_SEQ, !direction, dwell_tcp_seq_position(packet->ack, 0));
}

/* Fetches the state of the packet's flow, by its first bucket, where nearly all flows are. */
static void prefetch_flow(struct dwell_native *native, const struct dwell_packet *packet)
{
	__u32 first = dwell_bucket_first(packet->hash, native->config.table.bucket_mask);
	struct dwell_bucket *bucket = dwell_bucket_at(native, first);
	__u32 way = dwell_way_of(bucket->tags, dwell_tag(packet->hash)), slot_index;
	struct dwell_flow *flow;

	if (way >= DWELL_WAYS)
		return;
	slot_index = dwell_slot_of(bucket, way);
	flow = dwell_flow_at(native, slot_index);
	if (!flow)
		return;
	__builtin_prefetch(flow, 1);
	__builtin_prefetch((const char *)flow + 64, 1);
	__builtin_prefetch(&native->cold[slot_index].side[packet->direction & 1], 1);
	if (!packet->rtt.has_ts || native->config.tcp_auto)
		__builtin_prefetch(&native->matchers[slot_index], 1);
}

/* Returns DWELL_FRAME_OK, or the counter that says why the packet is of no use. */
static __always_inline __u32 read_packet(struct dwell_native *native, const void *data, __u32 bytes, __u32 wire_bytes,
					 __u32 link, __u32 interface, struct dwell_packet *packet)
{
	const void *end = (const char *)data + bytes;
	struct dwell_frame frame = {data, end};
	dwell_where where;
	__u32 result;

	__builtin_memset(packet, 0, sizeof(*packet));
	where = dwell_locate_plain(data, end, link);
	if (!where)
		where = dwell_locate_nested(&frame, data, end, link, &packet->tunnel);
	result = dwell_where_error(where);
	if (result)
		return result;
	packet->wire_bytes = wire_bytes;
	packet->segments = 1;
	if (native->config.ignore_tunnels)
		packet->tunnel = 0;
	packet->key.interface =
		dwell_interface_in(dwell_captured_interface(data, bytes, link, interface), packet->tunnel);
	result = dwell_rtt_parse(&frame, data, end, where, &native->config, packet);
	if (result != DWELL_FRAME_OK)
		return result;
	packet->hash = dwell_key_hash(&packet->key, packet->proto, native->config.table.seed);
	/* while the flow is looked up, as both may lie far away */
	prefetch_stamps(native, packet);
	return DWELL_FRAME_OK;
}

void dwell_native_prepare(struct dwell_native *native, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			  __u32 interface, __u64 number)
{
	struct dwell_native_prepared *prepared = prepared_at(native, number);
	__u32 mask = native->config.table.bucket_mask;

	prepared->number = number;
	prepared->result = read_packet(native, data, bytes, wire_bytes, link, interface, &prepared->packet);
	if (prepared->result == DWELL_FRAME_OK)
		__builtin_prefetch(dwell_bucket_at(native, dwell_bucket_first(prepared->packet.hash, mask)));
	prepared = prepared_at(native, number - BUCKET_ARRIVES);
	if (prepared->number == number - BUCKET_ARRIVES && prepared->result == DWELL_FRAME_OK)
		prefetch_flow(native, &prepared->packet);
}

void dwell_native_packet(struct dwell_native *native, const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			 __u32 interface, __u64 number, __u64 time_ns)
{
	struct dwell_native_prepared *prepared = prepared_at(native, number);
	struct dwell_clock clock = {time_ns};
	struct dwell_packet now;
	struct dwell_table table = table_of(native, &clock);
	struct dwell_step step = {
		.table = &table,
		.config = &native->config,
	};
	__u32 result;

	native->events = 0;
	native->counters.value[DWELL_SEEN_PACKETS]++;
	native->counters.value[DWELL_SEEN_BYTES] += wire_bytes;
	if (number && prepared->number == number) {
		step.packet = &prepared->packet;
		result = prepared->result;
	} else {
		step.packet = &now;
		result = read_packet(native, data, bytes, wire_bytes, link, interface, &now);
	}
	if (result != DWELL_FRAME_OK) {
		native->counters.value[result]++;
		return;
	}
	dwell_rtt_flow(&step);
	if (!step.flow)
		return;
	dwell_rtt_step(&step);
	emit_sample(&step, &step.match);
	emit_sample(&step, &step.loop);
}

void dwell_native_sweep(struct dwell_native *native, __u32 bucket, __u64 time_ns, __u32 reason)
{
	struct dwell_clock clock = {time_ns};
	struct dwell_table table = table_of(native, &clock);

	native->events = 0;
	dwell_bucket_sweep(&table, bucket, reason, 0);
}

__u32 dwell_native_bucket_index(__u64 value_ns)
{
	return dwell_bucket_index(value_ns);
}

#define OPTION_MSS 2
#define OPTION_SCALE 3

static __u32 word_at(const __u8 *at)
{
	return (__u32)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

/* Reads the options that the matchers do not need. Those that were cut off count as not sent. */
static void read_options(const __u8 *at, const __u8 *stop, struct dwell_native_segment *segment)
{
	while (at < stop && *at != 0) {
		__u32 length;

		if (*at == DWELL_OPTION_NONE) {
			at++;
			continue;
		}
		if (stop - at < 2 || at[1] < 2 || at[1] > stop - at)
			return;
		length = at[1];
		if (*at == OPTION_MSS && length == 4)
			segment->mss = at[2] << 8 | at[3];
		if (*at == OPTION_SCALE && length == 3) {
			segment->scale = at[2] < 14 ? at[2] : 14; /* RFC 7323 section 2.3 */
			segment->has_scale = 1;
		}
		if (*at == DWELL_OPTION_SACK && length >= 10) {
			segment->sack_left = word_at(at + 2);
			segment->sack_right = word_at(at + 6);
			segment->has_sack = 1;
		}
		at += length;
	}
}

__u32 dwell_native_segment(const struct dwell_rtt_config *config, const void *data, __u32 bytes, __u32 wire_bytes,
			   __u32 link, __u32 interface, struct dwell_native_segment *segment)
{
	const __u8 *end = (const __u8 *)data + bytes, *options, *stop;
	struct dwell_frame frame = {data, end};
	struct dwell_packet packet;
	dwell_where where;
	__u32 result, header;

	__builtin_memset(&packet, 0, sizeof(packet));
	__builtin_memset(segment, 0, sizeof(*segment));
	where = dwell_locate_plain(data, end, link);
	if (!where)
		where = dwell_locate_nested(&frame, data, end, link, &packet.tunnel);
	result = dwell_where_error(where);
	if (result)
		return result;
	packet.wire_bytes = wire_bytes;
	packet.segments = 1;
	packet.key.interface =
		dwell_interface_in(dwell_captured_interface(data, bytes, link, interface), packet.tunnel);
	result = dwell_rtt_parse(&frame, data, end, where, config, &packet);
	if (result != DWELL_FRAME_OK)
		return result;
	if (packet.kind != DWELL_KIND_TCP || !dwell_filter_admits(&config->table.filter, &packet.key, packet.proto,
								  packet.key.a_port, packet.key.b_port))
		return DWELL_SKIP_PROTOCOL;
	options = (const __u8 *)data + dwell_where_l4(where) + sizeof(struct dwell_tcp);
	header = (options[-8] >> 4) * 4;
	stop = options + header - sizeof(struct dwell_tcp);
	read_options(options, stop < end ? stop : end, segment);
	segment->key = packet.key;
	segment->interface = packet.key.interface;
	segment->seq = packet.seq;
	segment->ack = packet.ack;
	segment->payload_bytes = packet.payload_bytes;
	segment->payload_offset = dwell_where_l4(where) + header;
	segment->tsval = packet.rtt.tsval;
	segment->tsecr = packet.rtt.tsecr;
	segment->has_ts = packet.rtt.has_ts;
	segment->window = dwell_ntohs(packet.rtt.window);
	segment->flags = packet.tcp_flags;
	segment->direction = packet.direction;
	segment->ce = packet.rtt.ce;
	return DWELL_FRAME_OK;
}

__u32 dwell_native_payload(const void *data, __u32 bytes, __u32 wire_bytes, __u32 link,
			   struct dwell_native_payload *payload)
{
	const void *end = (const char *)data + bytes;
	struct dwell_frame frame = {data, end};
	struct dwell_transport transport;
	struct dwell_packet packet;
	dwell_where where;
	__u32 result, l4, l4_bytes;

	__builtin_memset(payload, 0, sizeof(*payload));
	packet.tunnel = 0;
	where = dwell_locate_plain(data, end, link);
	if (!where)
		where = dwell_locate_nested(&frame, data, end, link, &packet.tunnel);
	result = dwell_where_error(where);
	if (result)
		return result;
	l4 = dwell_where_l4(where);
	result = dwell_parse_ip(data, end, where, wire_bytes, &payload->src, &payload->dst, &l4_bytes);
	if (result)
		return result;
	payload->proto = dwell_where_proto(where);
	if (payload->proto == DWELL_PROTO_TCP)
		result = dwell_read_tcp(data, end, l4, l4_bytes, &packet, &transport);
	else if (payload->proto == DWELL_PROTO_UDP)
		result = dwell_read_udp(data, end, l4, l4_bytes, dwell_where_version(where) == 6, &packet, &transport);
	else
		result = DWELL_SKIP_PROTOCOL;
	if (result != DWELL_FRAME_OK)
		return result;
	payload->seq = payload->proto == DWELL_PROTO_TCP ? packet.seq : 0;
	payload->offset = l4 + transport.header_bytes;
	payload->bytes = packet.payload_bytes;
	payload->src_port = transport.src_port;
	payload->dst_port = transport.dst_port;
	return DWELL_FRAME_OK;
}
