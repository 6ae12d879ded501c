/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to take packets out of the balancer's tunnel (lb/decap.h): the function below and
 * those of lb/frame_embed.h.
 */
#ifndef DWELL_LB_DECAP_EMBED_H
#define DWELL_LB_DECAP_EMBED_H

#include "lb/frame_embed.h"

struct dwell_address;

/* Returns true if a tunnel may end at this address of the host. */
static __always_inline int dwell_is_local_address(const struct dwell_address *address);

#endif
