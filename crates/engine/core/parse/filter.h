/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which flows are followed: all, or those for which a rule holds; never those for which an excluding rule does. It is
 * evaluated only for packets of unknown flows.
 */
#ifndef DWELL_PARSE_FILTER_H
#define DWELL_PARSE_FILTER_H

#include "base/base.h"
#include "base/events.h"
#include "base/headers.h"

static __always_inline int dwell_rule_covers(const struct dwell_filter_rule *rule, const struct dwell_address *address,
					     __u16 port)
{
	int is_ipv4 = !address->high && (__u32)address->low == 0xffff0000;

	if (rule->family && rule->family != (is_ipv4 ? 4 : 6))
		return 0;
	return (address->high & rule->mask.high) == rule->address.high &&
	       (address->low & rule->mask.low) == rule->address.low && port >= rule->port_low &&
	       port <= rule->port_high;
}

static __always_inline int dwell_rule_holds(const struct dwell_filter_rule *rule, const struct dwell_flow_key *key,
					    __u8 proto, __u16 a_port, __u16 b_port)
{
	int is_of = !rule->proto || rule->proto == proto ||
		    (rule->proto == DWELL_RULE_PORTS && (proto == DWELL_PROTO_TCP || proto == DWELL_PROTO_UDP));
	int holds = is_of && (dwell_rule_covers(rule, &key->a, a_port) || dwell_rule_covers(rule, &key->b, b_port));

	return holds != (rule->flags & DWELL_RULE_NEGATED);
}

static __always_inline int dwell_filter_admits(const struct dwell_filter *filter, const struct dwell_flow_key *key,
					       __u8 proto, __u16 a_port, __u16 b_port)
{
	int admitted = !filter->includes, holds = 1;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_FILTER_RULES; i++) {
		const struct dwell_filter_rule *rule = &filter->rule[i];

		if (i >= filter->rules)
			break;
		holds &= dwell_rule_holds(rule, key, proto, a_port, b_port);
		if (rule->flags & DWELL_RULE_JOINED)
			continue;
		if (holds && rule->flags & DWELL_RULE_EXCLUDES)
			return 0;
		admitted |= holds;
		holds = 1;
	}
	return admitted;
}

#endif
