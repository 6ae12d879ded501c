/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Response latency at tc. */
#include "hook_tc.bpf.h"

#include "response.bpf.h"

#define sweep_bucket(table, index, reason) dwell_slot_sweep(table, index, reason, 0)
#include "programs_tc.bpf.h"
