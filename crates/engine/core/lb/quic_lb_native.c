/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "lb/quic_lb_native.h"

int dwell_quic_lb_config(struct dwell_cid_config *config, __u32 rotation, __u32 server_id_bytes, __u32 nonce_bytes,
			 const __u8 *key)
{
	return dwell_cid_config_init(config, rotation, server_id_bytes, nonce_bytes, key);
}

__u32 dwell_quic_lb_encode(const struct dwell_cid_config *config, const __u8 *server_id, const __u8 *nonce, __u8 *cid)
{
	return dwell_cid_encode(config, server_id, nonce, cid);
}

int dwell_quic_lb_decode(const struct dwell_cid_config *config, const __u8 *cid, __u32 cid_bytes,
			 struct dwell_cid_plain *plain)
{
	return dwell_cid_decode(config, cid, cid_bytes, plain);
}

__u32 dwell_quic_lb_encode_stamped(const struct dwell_cid_config *config, __u16 server, __u64 stamp, __u8 *cid)
{
	return dwell_cid_encode_stamped(config, server, stamp, cid);
}

__u32 dwell_quic_lb_encode_token(const struct dwell_cid_config *config, __u16 server, __u64 freshness,
				 __u16 lifetime_minutes, __u8 *token)
{
	return dwell_token_encode(config, server, freshness, lifetime_minutes, token);
}

__u16 dwell_quic_lb_wait_code(__u64 wait_ns)
{
	return dwell_wait_code(wait_ns);
}

__u64 dwell_quic_lb_wait_ns(__u16 code)
{
	return dwell_wait_ns(code);
}

void dwell_quic_lb_block(const struct dwell_cid_config *config, __u8 *octets, int decrypt)
{
	struct dwell_block block;

	dwell_block_read(&block, octets);
	if (decrypt)
		dwell_aes128_decrypt(&config->key, &block);
	else
		dwell_aes128_encrypt(&config->key, &block);
	dwell_block_write(&block, octets);
}
