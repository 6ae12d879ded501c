/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, section 2.2): a
 * message authentication code for short messages. Words are absorbed one by one, so that a timestamp
 * at the end of a message can be read as late as possible.
 */
#ifndef DWELL_BASE_SIPHASH_H
#define DWELL_BASE_SIPHASH_H

#include "base/base.h"

struct dwell_sip_key {
	__u64 k0; /* the first 8 bytes, little-endian */
	__u64 k1;
};

struct dwell_sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 dwell_rotate(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void dwell_sip_round(struct dwell_sip *sip)
{
	sip->v0 += sip->v1;
	sip->v2 += sip->v3;
	sip->v1 = dwell_rotate(sip->v1, 13) ^ sip->v0;
	sip->v3 = dwell_rotate(sip->v3, 16) ^ sip->v2;
	sip->v0 = dwell_rotate(sip->v0, 32);
	sip->v2 += sip->v1;
	sip->v0 += sip->v3;
	sip->v1 = dwell_rotate(sip->v1, 17) ^ sip->v2;
	sip->v3 = dwell_rotate(sip->v3, 21) ^ sip->v0;
	sip->v2 = dwell_rotate(sip->v2, 32);
}

static __always_inline struct dwell_sip dwell_sip_begin(const struct dwell_sip_key *key)
{
	struct dwell_sip sip = {
		.v0 = key->k0 ^ 0x736f6d6570736575ULL,
		.v1 = key->k1 ^ 0x646f72616e646f6dULL,
		.v2 = key->k0 ^ 0x6c7967656e657261ULL,
		.v3 = key->k1 ^ 0x7465646279746573ULL,
	};

	return sip;
}

/* Absorbs the next 8 bytes of the message, little-endian. */
static __always_inline void dwell_sip_word(struct dwell_sip *sip, __u64 word)
{
	sip->v3 ^= word;
	dwell_sip_round(sip);
	dwell_sip_round(sip);
	sip->v0 ^= word;
}

/* `rest` holds the last bytes of the message, fewer than 8, which fill no word. */
static __always_inline __u64 dwell_sip_end(struct dwell_sip *sip, __u64 rest, __u64 message_bytes)
{
	dwell_sip_word(sip, rest | message_bytes << 56);
	sip->v2 ^= 0xff;
	for (int round = 0; round < 4; round++)
		dwell_sip_round(sip);
	return sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3;
}

#endif
