/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connection IDs that a balancer can route (draft-ietf-quic-load-balancers):
 *
 *   octet 0: rotation (3 bits), length of the rest (5 bits)
 *   server ID, nonce: in the clear, or as one AES block where they have 16 octets
 *   together, or through four passes of a Feistel network
 *
 * Our own layout is one of these, which any such balancer can route: a server ID of
 * 2 octets and a nonce of 14, one block. In the nonce are
 *
 *   check (6 octets, zero), freshness (6), load (2)
 *
 * so that an ID that somebody made up is known as such but for one in 2^48, and
 * freshness and load are one word, of which the largest is the newest.
 *
 * Address-validation tokens begin with the same, but for another check, and their
 * lifetime in place of the load (lb/token.h).
 *
 * A server in C needs dwell_cid_config_init(), dwell_cid_encode_stamped(),
 * dwell_token_encode() and dwell_wait_code() of this file, and nothing else of dwell.
 */
#ifndef DWELL_LB_QUIC_LB_H
#define DWELL_LB_QUIC_LB_H

#include "base/aes128.h"

#define DWELL_CID_MAX_BYTES 20       /* octets of a connection ID, by RFC 9000 */
#define DWELL_CID_PLAIN_MAX_BYTES 19 /* octets of server ID and nonce */
#define DWELL_CID_NONCE_MIN_BYTES 4
#define DWELL_CID_ROTATIONS 7 /* the eighth marks an ID that cannot be routed */

#define DWELL_CID_OWN_SERVER 2
#define DWELL_CID_OWN_NONCE 14
#define DWELL_CID_OWN_BYTES 17

/* What a block must hold, so that it was made with the key: one value for connection IDs, and one ("token1") for the
 * beginnings of tokens, so that neither passes for the other.
 */
#define DWELL_CID_CHECK 0ULL
#define DWELL_TOKEN_CHECK 0x746f6b656e31ULL

enum dwell_cid_cipher {
	DWELL_CID_NONE, /* not configured */
	DWELL_CID_CLEAR,
	DWELL_CID_BLOCK,
	DWELL_CID_FOUR_PASS,
};

/* The format and key of connection IDs of one rotation. */
struct dwell_cid_config {
	struct dwell_aes128 key;
	__u8 cipher; /* enum dwell_cid_cipher */
	__u8 rotation;
	__u8 server_id_bytes;
	__u8 nonce_bytes;
	__u8 stamped; /* our own layout */
	__u8 reserved[3];
};

/* Server ID and nonce; unused octets are zero. */
struct dwell_cid_plain {
	__u8 octet[32];
} DWELL_ALIGNED(8);

/* Configures a layout. `key` has 16 octets; null: in the clear. Returns false if there is no such layout. */
static inline int dwell_cid_config_init(struct dwell_cid_config *config, __u32 rotation, __u32 server_id_bytes,
					__u32 nonce_bytes, const __u8 *key)
{
	__u32 bytes = server_id_bytes + nonce_bytes;

	__builtin_memset(config, 0, sizeof(*config));
	if (rotation >= DWELL_CID_ROTATIONS || !server_id_bytes || nonce_bytes < DWELL_CID_NONCE_MIN_BYTES ||
	    bytes > DWELL_CID_PLAIN_MAX_BYTES)
		return 0;
	config->cipher = !key ? DWELL_CID_CLEAR : bytes == 16 ? DWELL_CID_BLOCK : DWELL_CID_FOUR_PASS;
	config->rotation = rotation;
	config->server_id_bytes = server_id_bytes;
	config->nonce_bytes = nonce_bytes;
	if (key)
		dwell_aes128_expand(&config->key, key);
	return 1;
}

/* Returns the length of a connection ID in octets. */
static __always_inline __u32 dwell_cid_bytes(const struct dwell_cid_config *config)
{
	return 1 + config->server_id_bytes + config->nonce_bytes;
}

static __always_inline void dwell_block_read(struct dwell_block *block, const __u8 *octets)
{
#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 4; i++) {
		__u32 word;

		__builtin_memcpy(&word, octets + 4 * i, sizeof(word));
		block->word[i] = dwell_ntohl(word);
	}
}

static __always_inline void dwell_block_write(const struct dwell_block *block, __u8 *octets)
{
#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 4; i++) {
		__u32 word = dwell_ntohl(block->word[i]);

		__builtin_memcpy(octets + 4 * i, &word, sizeof(word));
	}
}

/* Half of a plaintext, at the beginning of a block. If the number of octets is odd, the halves share the one in the
 * middle: the left half has its first four bits.
 */
struct dwell_half {
	__u64 high, low;
};

/* Returns a mask of the bits that belong to a half. */
static __always_inline struct dwell_half dwell_half_mask(__u32 bytes, int is_right)
{
	__u32 half = (bytes + 1) / 2, odd = bytes & 1;
	struct dwell_half mask = {~0ULL, 0};

	if (half < 8)
		mask.high <<= 64 - 8 * half;
	else if (half > 8)
		mask.low = ~0ULL << (128 - 8 * half & 63);
	if (odd && is_right)
		mask.high &= ~0ULL >> 4;
	else if (odd && half > 8)
		mask.low &= mask.low << 4;
	else if (odd)
		mask.high &= mask.high << 4;
	return mask;
}

static __always_inline struct dwell_half dwell_half_read(const __u8 *octets)
{
	struct dwell_half half = {0, 0};

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 8; i++) {
		half.high = half.high << 8 | octets[i];
		half.low = half.low << 8 | octets[8 + i];
	}
	return half;
}

/* Work space of the passes: both halves, the left one first, and their masks. */
struct dwell_cid_halves {
	struct dwell_half of[2];
	struct dwell_half mask[2];
};

/* Runs one pass over a half, from the other half and the number of the pass. Odd passes change the right half. */
static __always_inline void dwell_cid_pass(const struct dwell_cid_config *config, __u32 bytes, __u32 pass,
					   struct dwell_cid_halves *halves)
{
	const struct dwell_half *from = &halves->of[~pass & 1], *mask = &halves->mask[pass & 1];
	struct dwell_half *to = &halves->of[pass & 1];
	struct dwell_block block = {
		{from->high >> 32, from->high, from->low >> 32, (__u32)from->low | bytes << 8 | pass}};

	dwell_aes128_encrypt(&config->key, &block);
	to->high ^= ((__u64)block.word[0] << 32 | block.word[1]) & mask->high;
	to->low ^= ((__u64)block.word[2] << 32 | block.word[3]) & mask->low;
}

/* Runs the four passes, or undoes them. */
static __always_inline void dwell_cid_four_pass(const struct dwell_cid_config *config, struct dwell_cid_plain *plain,
						struct dwell_cid_halves *halves, int back)
{
	__u32 bytes = (config->server_id_bytes + config->nonce_bytes) & 31;

#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < 2; i++) {
		halves->mask[i] = dwell_half_mask(bytes, i);
		halves->of[i] = dwell_half_read(plain->octet + (i ? bytes / 2 & 15 : 0));
		halves->of[i].high &= halves->mask[i].high;
		halves->of[i].low &= halves->mask[i].low;
	}
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 1; i <= 4; i++)
		dwell_cid_pass(config, bytes, back ? 5 - i : i, halves);
	__builtin_memset(plain, 0, sizeof(*plain));
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < 20; i++) {
		const struct dwell_half *half = &halves->of[i >= 10];
		__u32 at = i >= 10 ? i - 10 : i, shift = 56 - 8 * (at & 7);

		if (at < (bytes + 1) / 2)
			plain->octet[(i >= 10 ? bytes / 2 & 15 : 0) + at] |= (at < 8 ? half->high : half->low) >> shift;
	}
}

/* Opens a connection ID whose first octet has been read: server ID and nonce are decrypted in place. */
static __always_inline void dwell_cid_open(const struct dwell_cid_config *config, struct dwell_cid_plain *plain,
					   struct dwell_cid_halves *halves)
{
	struct dwell_block block;

	if (config->cipher == DWELL_CID_BLOCK) {
		dwell_block_read(&block, plain->octet);
		dwell_aes128_decrypt(&config->key, &block);
		dwell_block_write(&block, plain->octet);
	} else if (config->cipher == DWELL_CID_FOUR_PASS) {
		dwell_cid_four_pass(config, plain, halves, 1);
	}
}

/* Makes a connection ID and returns its length, dwell_cid_bytes(config). A nonce must never be used twice with a key.
 */
static inline __u32 dwell_cid_encode(const struct dwell_cid_config *config, const __u8 *server_id, const __u8 *nonce,
				     __u8 cid[DWELL_CID_MAX_BYTES])
{
	__u32 bytes = config->server_id_bytes + config->nonce_bytes;
	struct dwell_cid_plain plain = {};
	struct dwell_cid_halves halves;
	struct dwell_block block;

	if (config->cipher == DWELL_CID_NONE || bytes > DWELL_CID_PLAIN_MAX_BYTES)
		return 0;
	__builtin_memcpy(plain.octet, server_id, config->server_id_bytes);
	__builtin_memcpy(plain.octet + config->server_id_bytes, nonce, config->nonce_bytes);
	if (config->cipher == DWELL_CID_BLOCK) {
		dwell_block_read(&block, plain.octet);
		dwell_aes128_encrypt(&config->key, &block);
		dwell_block_write(&block, plain.octet);
	} else if (config->cipher == DWELL_CID_FOUR_PASS) {
		dwell_cid_four_pass(config, &plain, &halves, 0);
	}
	cid[0] = config->rotation << 5 | bytes;
	__builtin_memcpy(cid + 1, plain.octet, bytes);
	return bytes + 1;
}

/* Decodes a connection ID. Returns false if it is not of this configuration. Octets behind it belong to the server; the
 * low bits of the first octet may be anything.
 */
static inline int dwell_cid_decode(const struct dwell_cid_config *config, const __u8 *cid, __u32 cid_bytes,
				   struct dwell_cid_plain *plain)
{
	__u32 bytes = config->server_id_bytes + config->nonce_bytes;
	struct dwell_cid_halves halves;

	__builtin_memset(plain, 0, sizeof(*plain));
	if (config->cipher == DWELL_CID_NONE || bytes > DWELL_CID_PLAIN_MAX_BYTES || cid_bytes < bytes + 1 ||
	    cid[0] >> 5 != config->rotation)
		return 0;
	__builtin_memcpy(plain->octet, cid + 1, bytes);
	dwell_cid_open(config, plain, &halves);
	return 1;
}

/* The stamp of our own layout: freshness and load. */
#define DWELL_CID_STAMP(freshness, load) ((__u64)(freshness) << 16 | (__u16)(load))
#define dwell_cid_stamp_wait(stamp) ((__u16)(stamp))
/* Unix time at which a stamp was made, in seconds (32 bits); the rest of the freshness distinguishes stamps of one
 * second.
 */
#define dwell_cid_stamp_seconds(stamp) ((__u32)((stamp) >> 32))

/* Makes a block of our own layout, which the configuration must have, with its first octet. Returns its length. */
static inline __u32 dwell_cid_encode_checked(const struct dwell_cid_config *config, __u16 server, __u64 check,
					     __u64 stamp, __u8 cid[DWELL_CID_MAX_BYTES])
{
	__u8 id[DWELL_CID_OWN_SERVER] = {server >> 8, server};
	__u8 nonce[DWELL_CID_OWN_NONCE];

	for (int i = 0; i < 6; i++)
		nonce[i] = check >> (40 - 8 * i);
	for (int i = 0; i < 8; i++)
		nonce[6 + i] = stamp >> (56 - 8 * i);
	return dwell_cid_encode(config, id, nonce, cid);
}

/* Makes a connection ID of our own layout, which the configuration must have. Returns its length. */
static inline __u32 dwell_cid_encode_stamped(const struct dwell_cid_config *config, __u16 server, __u64 stamp,
					     __u8 cid[DWELL_CID_MAX_BYTES])
{
	return dwell_cid_encode_checked(config, server, DWELL_CID_CHECK, stamp, cid);
}

/* Makes the beginning of a token by a configuration of our own layout. A freshness must never be used twice with a key.
 * Returns its length, DWELL_CID_OWN_BYTES.
 */
static inline __u32 dwell_token_encode(const struct dwell_cid_config *config, __u16 server, __u64 freshness,
				       __u16 lifetime_minutes, __u8 token[DWELL_CID_MAX_BYTES])
{
	return dwell_cid_encode_checked(config, server, DWELL_TOKEN_CHECK, DWELL_CID_STAMP(freshness, lifetime_minutes),
					token);
}

#define DWELL_CID_FORGED 0x10000

/* Returns the server's ID of an opened block, and its stamp; DWELL_CID_FORGED if it was not made with the key and this
 * check.
 */
static __always_inline __u32 dwell_cid_stamped(const struct dwell_block *block, __u64 check, __u64 *stamp)
{
	*stamp = (__u64)block->word[2] << 32 | block->word[3];
	if (((__u64)(block->word[0] & 0xffff) << 32 | block->word[1]) != check)
		return DWELL_CID_FORGED;
	return block->word[0] >> 16;
}

/* Waiting times in 16 bits: 0 is unknown, 1 is none, and larger codes are nanoseconds, exact up to 2047 and then with
 * 11 significant bits, so that the error is at most 0.05 %. A longer wait has a larger code. Waits from 2^42 ns (73
 * minutes) share the largest code; no server sends a larger one.
 */
#define DWELL_WAIT_UNKNOWN 0
#define DWELL_WAIT_NONE 1
#define DWELL_WAIT_MAX_NS (1ULL << 42)
#define DWELL_WAIT_MAX (1 + (32 << 10) + 1024)

static __always_inline __u16 dwell_wait_code(__u64 wait_ns)
{
	__u32 shift;

	if (wait_ns >= DWELL_WAIT_MAX_NS)
		return DWELL_WAIT_MAX;
	if (wait_ns < 2048)
		return 1 + wait_ns;
	shift = 53 - __builtin_clzll(wait_ns);
	/* if rounding carries into the next power of two, the sum is still its code */
	return 1 + (shift << 10) + ((wait_ns + (1ULL << shift >> 1)) >> shift);
}

/* Returns the middle of the waits that have this code; 0 for DWELL_WAIT_UNKNOWN. */
static __always_inline __u64 dwell_wait_ns(__u16 code)
{
	__u32 index = code ? code - 1 : 0, shift;

	if (code > DWELL_WAIT_MAX)
		return DWELL_WAIT_MAX_NS;
	if (index < 2048)
		return index;
	shift = (index >> 10) - 1;
	return (__u64)((index & 1023) + 1024) << shift;
}

#endif
