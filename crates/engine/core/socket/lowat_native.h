/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The controller of a send buffer for user space. */
#ifndef DWELL_SOCKET_LOWAT_NATIVE_H
#define DWELL_SOCKET_LOWAT_NATIVE_H

#include "socket/lowat_types.h"

/* Returns what TCP_NOTSENT_LOWAT should be set to now; 0: leave it as it is. */
__u32 dwell_lowat_next(struct dwell_lowat *lowat, const struct dwell_lowat_sample *sample);

#endif
