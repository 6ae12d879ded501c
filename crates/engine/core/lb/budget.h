/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A budget, per second and CPU, for costly acts that anybody's packet can cause, such as an ICMP answer. */
#ifndef DWELL_LB_BUDGET_H
#define DWELL_LB_BUDGET_H

#include "base/base.h"
#include "lb/balance_types.h"

/* Pings that are answered per second and CPU, and as many packets that are too big. */
#define DWELL_ANSWERS_PER_S 1000

/* Spends one of `most` in the second `now_s`. Returns false if none is left. With `dry_run` none is spent. */
static __always_inline int dwell_budget_spend(struct dwell_budget *budget, __u32 now_s, __u32 most, int dry_run)
{
	__u32 spent = budget->second == now_s ? budget->spent : 0;

	if (spent >= most)
		return 0;
	if (!dry_run) {
		budget->second = now_s;
		budget->spent = spent + 1;
	}
	return 1;
}

#endif
