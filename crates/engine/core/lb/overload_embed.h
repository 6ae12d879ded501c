/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What an embedder of lb/overload.h supplies. */
#ifndef DWELL_LB_OVERLOAD_EMBED_H
#define DWELL_LB_OVERLOAD_EMBED_H

#include "base/base.h"

struct dwell_load_round;

/* Calls dwell_load_turn() for each turn of a round. BPF does it by bpf_loop(), which the verifier walks once, and any other
 * loop as often as it turns.
 */
static __always_inline void dwell_load_turns(struct dwell_load_round *round);

#endif
