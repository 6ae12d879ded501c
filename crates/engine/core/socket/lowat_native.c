/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "socket/lowat_native.h"
#include "socket/lowat.h"

__u32 dwell_lowat_next(struct dwell_lowat *lowat, const struct dwell_lowat_sample *sample)
{
	return dwell_lowat_step(lowat, sample);
}
