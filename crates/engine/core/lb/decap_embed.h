/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to take packets out of the balancer's tunnel (lb/decap.h): the function below and
 * those of lb/frame_embed.h.
 */
#ifndef DWELL_LB_DECAP_EMBED_H
#define DWELL_LB_DECAP_EMBED_H

#include "lb/frame_embed.h"

struct dwell_address;
struct dwell_real;

/* Returns true if a tunnel may end at this address of the host. */
static __always_inline int dwell_is_local_address(void *embedder, const struct dwell_address *address);

/* Returns the length of the longest listed prefix of VIPs that contains the address, in bits of 128, plus 1; 0: none. */
static __always_inline __u32 dwell_decap_vip_bits(void *embedder, const struct dwell_address *address);

/* The same for the listed prefixes of senders of outer packets. */
static __always_inline __u32 dwell_decap_sender_bits(void *embedder, const struct dwell_address *address);

/* The same for the listed prefixes of backends to which packets may be sent on. */
static __always_inline __u32 dwell_decap_backend_bits(void *embedder, const struct dwell_address *address);

/* Returns true if the packet at an offset belongs to a connection of this host, or is not one of TCP without options of IP. */
static __always_inline int dwell_decap_owns(DWELL_FRAME *frame, void *embedder, __u32 at);

/* Returns the path to a backend; null or without an interface: it is not known yet, and is looked for. */
static __always_inline const struct dwell_real *dwell_decap_hop_to(void *embedder, const struct dwell_address *address);

#endif
