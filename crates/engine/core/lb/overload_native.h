/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef DWELL_LB_OVERLOAD_NATIVE_H
#define DWELL_LB_OVERLOAD_NATIVE_H

#include "lb/overload.h"

static __always_inline void dwell_load_turns(struct dwell_load_round *round)
{
	for (__u32 turn = 0; turn < round->count; turn++)
		dwell_load_turn(round, turn);
}

#endif
