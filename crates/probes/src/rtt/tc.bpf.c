/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Passive RTT at tc: both directions, after XDP on the way in. */
#include "hook_tc.bpf.h"

#include "rtt.bpf.h"

#define sweep_bucket(table, index, reason) dwell_bucket_sweep(table, index, reason, 0)
#include "programs_tc.bpf.h"
