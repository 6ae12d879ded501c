/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connection IDs for user space. */
#ifndef DWELL_LB_QUIC_LB_NATIVE_H
#define DWELL_LB_QUIC_LB_NATIVE_H

#include "lb/quic_lb.h"

int dwell_quic_lb_config(struct dwell_cid_config *config, __u32 rotation, __u32 server_id_bytes, __u32 nonce_bytes,
			 const __u8 *key);
__u32 dwell_quic_lb_encode(const struct dwell_cid_config *config, const __u8 *server_id, const __u8 *nonce, __u8 *cid);
int dwell_quic_lb_decode(const struct dwell_cid_config *config, const __u8 *cid, __u32 cid_bytes,
			 struct dwell_cid_plain *plain);
__u32 dwell_quic_lb_encode_stamped(const struct dwell_cid_config *config, __u16 server, __u64 stamp, __u8 *cid);
__u32 dwell_quic_lb_encode_token(const struct dwell_cid_config *config, __u16 server, __u64 freshness,
				 __u16 lifetime_minutes, __u8 *token);
__u16 dwell_quic_lb_wait_code(__u64 wait_ns);
__u64 dwell_quic_lb_wait_ns(__u16 code);
void dwell_quic_lb_block(const struct dwell_cid_config *config, __u8 *octets, int decrypt);

#endif
