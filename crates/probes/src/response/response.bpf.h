/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The response latency program: the core's steps over BPF maps. Included by one file per hook, after that hook's
 * context (hook_*.bpf.h).
 */
#include "frame.bpf.h"

#include "response/response_event.h"

/* Alone in its section, so that user space can write it as a whole; see rtt.bpf.h. */
SEC(".rodata.program") struct dwell_response_program program = {};

#include "slot.bpf.h"

__noinline __u32 read_packet(dwell_context *context, __u32 link, struct dwell_packet *packet)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	dwell_where where;

	if (!packet)
		return DWELL_SKIP_TRUNCATED;
	packet->tunnel = dwell_tunnel_vlan(0, dwell_context_vlan(context));
	packet->key.interface = dwell_context_interface(context);
	where = dwell_response_locate(context, data, end, link, &program, packet);
	if (dwell_unlikely(dwell_where_error(where)))
		return dwell_where_error(where);
	return dwell_arrival_parse(data, end, where, program.key_kind, packet);
}

static __always_inline void observe(dwell_context *context, __u32 link)
{
	struct dwell_clock clock = {program.replay ? dwell_context_time(context) : 0};
	struct dwell_table table = {&program.table, 0, &clock};
	struct dwell_packet packet = {};

	if (!receive(context, link, &table, &packet))
		return;
	dwell_slot_packet(&table, &packet);
}
