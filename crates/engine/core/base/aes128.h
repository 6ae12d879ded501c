/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* AES-128 (FIPS 197), one block at a time, by tables: for connection IDs, whose
 * keys protect no data. A table look-up takes longer if the entry is not in the
 * cache, so whoever can measure that on the same machine may learn about the key.
 */
#ifndef DWELL_BASE_AES128_H
#define DWELL_BASE_AES128_H

#include "base/base.h"

#define DWELL_AES_ROUNDS 10
#define DWELL_AES_KEY_WORDS (4 * (DWELL_AES_ROUNDS + 1))

/* A block of 16 octets. The first is the most significant octet of word[0]. */
struct dwell_block {
	__u32 word[4];
};

/* Round keys in the order of their use. Those for decryption are the ones of the
 * equivalent inverse cipher (section 5.3.5).
 */
struct dwell_aes128 {
	__u32 encrypt[DWELL_AES_KEY_WORDS];
	__u32 decrypt[DWELL_AES_KEY_WORDS];
};

/* The S-box and its inverse (figures 7 and 14). */
/* clang-format off */
#define DWELL_AES_SBOX(X) \
	X(0x63) X(0x7c) X(0x77) X(0x7b) X(0xf2) X(0x6b) X(0x6f) X(0xc5) \
	X(0x30) X(0x01) X(0x67) X(0x2b) X(0xfe) X(0xd7) X(0xab) X(0x76) \
	X(0xca) X(0x82) X(0xc9) X(0x7d) X(0xfa) X(0x59) X(0x47) X(0xf0) \
	X(0xad) X(0xd4) X(0xa2) X(0xaf) X(0x9c) X(0xa4) X(0x72) X(0xc0) \
	X(0xb7) X(0xfd) X(0x93) X(0x26) X(0x36) X(0x3f) X(0xf7) X(0xcc) \
	X(0x34) X(0xa5) X(0xe5) X(0xf1) X(0x71) X(0xd8) X(0x31) X(0x15) \
	X(0x04) X(0xc7) X(0x23) X(0xc3) X(0x18) X(0x96) X(0x05) X(0x9a) \
	X(0x07) X(0x12) X(0x80) X(0xe2) X(0xeb) X(0x27) X(0xb2) X(0x75) \
	X(0x09) X(0x83) X(0x2c) X(0x1a) X(0x1b) X(0x6e) X(0x5a) X(0xa0) \
	X(0x52) X(0x3b) X(0xd6) X(0xb3) X(0x29) X(0xe3) X(0x2f) X(0x84) \
	X(0x53) X(0xd1) X(0x00) X(0xed) X(0x20) X(0xfc) X(0xb1) X(0x5b) \
	X(0x6a) X(0xcb) X(0xbe) X(0x39) X(0x4a) X(0x4c) X(0x58) X(0xcf) \
	X(0xd0) X(0xef) X(0xaa) X(0xfb) X(0x43) X(0x4d) X(0x33) X(0x85) \
	X(0x45) X(0xf9) X(0x02) X(0x7f) X(0x50) X(0x3c) X(0x9f) X(0xa8) \
	X(0x51) X(0xa3) X(0x40) X(0x8f) X(0x92) X(0x9d) X(0x38) X(0xf5) \
	X(0xbc) X(0xb6) X(0xda) X(0x21) X(0x10) X(0xff) X(0xf3) X(0xd2) \
	X(0xcd) X(0x0c) X(0x13) X(0xec) X(0x5f) X(0x97) X(0x44) X(0x17) \
	X(0xc4) X(0xa7) X(0x7e) X(0x3d) X(0x64) X(0x5d) X(0x19) X(0x73) \
	X(0x60) X(0x81) X(0x4f) X(0xdc) X(0x22) X(0x2a) X(0x90) X(0x88) \
	X(0x46) X(0xee) X(0xb8) X(0x14) X(0xde) X(0x5e) X(0x0b) X(0xdb) \
	X(0xe0) X(0x32) X(0x3a) X(0x0a) X(0x49) X(0x06) X(0x24) X(0x5c) \
	X(0xc2) X(0xd3) X(0xac) X(0x62) X(0x91) X(0x95) X(0xe4) X(0x79) \
	X(0xe7) X(0xc8) X(0x37) X(0x6d) X(0x8d) X(0xd5) X(0x4e) X(0xa9) \
	X(0x6c) X(0x56) X(0xf4) X(0xea) X(0x65) X(0x7a) X(0xae) X(0x08) \
	X(0xba) X(0x78) X(0x25) X(0x2e) X(0x1c) X(0xa6) X(0xb4) X(0xc6) \
	X(0xe8) X(0xdd) X(0x74) X(0x1f) X(0x4b) X(0xbd) X(0x8b) X(0x8a) \
	X(0x70) X(0x3e) X(0xb5) X(0x66) X(0x48) X(0x03) X(0xf6) X(0x0e) \
	X(0x61) X(0x35) X(0x57) X(0xb9) X(0x86) X(0xc1) X(0x1d) X(0x9e) \
	X(0xe1) X(0xf8) X(0x98) X(0x11) X(0x69) X(0xd9) X(0x8e) X(0x94) \
	X(0x9b) X(0x1e) X(0x87) X(0xe9) X(0xce) X(0x55) X(0x28) X(0xdf) \
	X(0x8c) X(0xa1) X(0x89) X(0x0d) X(0xbf) X(0xe6) X(0x42) X(0x68) \
	X(0x41) X(0x99) X(0x2d) X(0x0f) X(0xb0) X(0x54) X(0xbb) X(0x16)

#define DWELL_AES_SBOX_BACK(X) \
	X(0x52) X(0x09) X(0x6a) X(0xd5) X(0x30) X(0x36) X(0xa5) X(0x38) \
	X(0xbf) X(0x40) X(0xa3) X(0x9e) X(0x81) X(0xf3) X(0xd7) X(0xfb) \
	X(0x7c) X(0xe3) X(0x39) X(0x82) X(0x9b) X(0x2f) X(0xff) X(0x87) \
	X(0x34) X(0x8e) X(0x43) X(0x44) X(0xc4) X(0xde) X(0xe9) X(0xcb) \
	X(0x54) X(0x7b) X(0x94) X(0x32) X(0xa6) X(0xc2) X(0x23) X(0x3d) \
	X(0xee) X(0x4c) X(0x95) X(0x0b) X(0x42) X(0xfa) X(0xc3) X(0x4e) \
	X(0x08) X(0x2e) X(0xa1) X(0x66) X(0x28) X(0xd9) X(0x24) X(0xb2) \
	X(0x76) X(0x5b) X(0xa2) X(0x49) X(0x6d) X(0x8b) X(0xd1) X(0x25) \
	X(0x72) X(0xf8) X(0xf6) X(0x64) X(0x86) X(0x68) X(0x98) X(0x16) \
	X(0xd4) X(0xa4) X(0x5c) X(0xcc) X(0x5d) X(0x65) X(0xb6) X(0x92) \
	X(0x6c) X(0x70) X(0x48) X(0x50) X(0xfd) X(0xed) X(0xb9) X(0xda) \
	X(0x5e) X(0x15) X(0x46) X(0x57) X(0xa7) X(0x8d) X(0x9d) X(0x84) \
	X(0x90) X(0xd8) X(0xab) X(0x00) X(0x8c) X(0xbc) X(0xd3) X(0x0a) \
	X(0xf7) X(0xe4) X(0x58) X(0x05) X(0xb8) X(0xb3) X(0x45) X(0x06) \
	X(0xd0) X(0x2c) X(0x1e) X(0x8f) X(0xca) X(0x3f) X(0x0f) X(0x02) \
	X(0xc1) X(0xaf) X(0xbd) X(0x03) X(0x01) X(0x13) X(0x8a) X(0x6b) \
	X(0x3a) X(0x91) X(0x11) X(0x41) X(0x4f) X(0x67) X(0xdc) X(0xea) \
	X(0x97) X(0xf2) X(0xcf) X(0xce) X(0xf0) X(0xb4) X(0xe6) X(0x73) \
	X(0x96) X(0xac) X(0x74) X(0x22) X(0xe7) X(0xad) X(0x35) X(0x85) \
	X(0xe2) X(0xf9) X(0x37) X(0xe8) X(0x1c) X(0x75) X(0xdf) X(0x6e) \
	X(0x47) X(0xf1) X(0x1a) X(0x71) X(0x1d) X(0x29) X(0xc5) X(0x89) \
	X(0x6f) X(0xb7) X(0x62) X(0x0e) X(0xaa) X(0x18) X(0xbe) X(0x1b) \
	X(0xfc) X(0x56) X(0x3e) X(0x4b) X(0xc6) X(0xd2) X(0x79) X(0x20) \
	X(0x9a) X(0xdb) X(0xc0) X(0xfe) X(0x78) X(0xcd) X(0x5a) X(0xf4) \
	X(0x1f) X(0xdd) X(0xa8) X(0x33) X(0x88) X(0x07) X(0xc7) X(0x31) \
	X(0xb1) X(0x12) X(0x10) X(0x59) X(0x27) X(0x80) X(0xec) X(0x5f) \
	X(0x60) X(0x51) X(0x7f) X(0xa9) X(0x19) X(0xb5) X(0x4a) X(0x0d) \
	X(0x2d) X(0xe5) X(0x7a) X(0x9f) X(0x93) X(0xc9) X(0x9c) X(0xef) \
	X(0xa0) X(0xe0) X(0x3b) X(0x4d) X(0xae) X(0x2a) X(0xf5) X(0xb0) \
	X(0xc8) X(0xeb) X(0xbb) X(0x3c) X(0x83) X(0x53) X(0x99) X(0x61) \
	X(0x17) X(0x2b) X(0x04) X(0x7e) X(0xba) X(0x77) X(0xd6) X(0x26) \
	X(0xe1) X(0x69) X(0x14) X(0x63) X(0x55) X(0x21) X(0x0c) X(0x7d)
/* clang-format on */

/* Products with constants in GF(2^8). */
#define DWELL_AES_2(s) (((s) << 1 ^ ((s) >> 7) * 0x1b) & 0xff)
#define DWELL_AES_4(s) DWELL_AES_2(DWELL_AES_2(s))
#define DWELL_AES_8(s) DWELL_AES_2(DWELL_AES_4(s))
#define DWELL_AES_COLUMN(a, b, c, d) ((__u32)(a) << 24 | (__u32)(b) << 16 | (__u32)(c) << 8 | (__u32)(d))

/* The substitution and mixing of one octet of a column, by the octet's row. */
#define DWELL_AES_3(s) (DWELL_AES_2(s) ^ (s))
#define DWELL_AES_MIX0(s) DWELL_AES_COLUMN(DWELL_AES_2(s), s, s, DWELL_AES_3(s)),
#define DWELL_AES_MIX1(s) DWELL_AES_COLUMN(DWELL_AES_3(s), DWELL_AES_2(s), s, s),
#define DWELL_AES_MIX2(s) DWELL_AES_COLUMN(s, DWELL_AES_3(s), DWELL_AES_2(s), s),
#define DWELL_AES_MIX3(s) DWELL_AES_COLUMN(s, s, DWELL_AES_3(s), DWELL_AES_2(s)),

#define DWELL_AES_9(s) (DWELL_AES_8(s) ^ (s))
#define DWELL_AES_B(s) (DWELL_AES_8(s) ^ DWELL_AES_3(s))
#define DWELL_AES_D(s) (DWELL_AES_8(s) ^ DWELL_AES_4(s) ^ (s))
#define DWELL_AES_E(s) (DWELL_AES_8(s) ^ DWELL_AES_4(s) ^ DWELL_AES_2(s))
#define DWELL_AES_BACK0(s) DWELL_AES_COLUMN(DWELL_AES_E(s), DWELL_AES_9(s), DWELL_AES_D(s), DWELL_AES_B(s)),
#define DWELL_AES_BACK1(s) DWELL_AES_COLUMN(DWELL_AES_B(s), DWELL_AES_E(s), DWELL_AES_9(s), DWELL_AES_D(s)),
#define DWELL_AES_BACK2(s) DWELL_AES_COLUMN(DWELL_AES_D(s), DWELL_AES_B(s), DWELL_AES_E(s), DWELL_AES_9(s)),
#define DWELL_AES_BACK3(s) DWELL_AES_COLUMN(DWELL_AES_9(s), DWELL_AES_D(s), DWELL_AES_B(s), DWELL_AES_E(s)),

#define DWELL_AES_PLAIN(s) s,
static const __u8 dwell_aes_sbox[256] = {DWELL_AES_SBOX(DWELL_AES_PLAIN)};
static const __u8 dwell_aes_sbox_back[256] = {DWELL_AES_SBOX_BACK(DWELL_AES_PLAIN)};
static const __u32 dwell_aes_mix[4][256] = {
	{DWELL_AES_SBOX(DWELL_AES_MIX0)},
	{DWELL_AES_SBOX(DWELL_AES_MIX1)},
	{DWELL_AES_SBOX(DWELL_AES_MIX2)},
	{DWELL_AES_SBOX(DWELL_AES_MIX3)},
};
static const __u32 dwell_aes_back[4][256] = {
	{DWELL_AES_SBOX_BACK(DWELL_AES_BACK0)},
	{DWELL_AES_SBOX_BACK(DWELL_AES_BACK1)},
	{DWELL_AES_SBOX_BACK(DWELL_AES_BACK2)},
	{DWELL_AES_SBOX_BACK(DWELL_AES_BACK3)},
};

#define DWELL_AES_OCTET(word, row) ((word) >> (24 - 8 * (row)) & 0xff)
/* A column of the next state, which comes from octets of four columns of this one. */
#define DWELL_AES_STEP(table, a, b, c, d)                                                                              \
	((table)[0][DWELL_AES_OCTET(a, 0)] ^ (table)[1][DWELL_AES_OCTET(b, 1)] ^ (table)[2][DWELL_AES_OCTET(c, 2)] ^   \
	 (table)[3][DWELL_AES_OCTET(d, 3)])
/* A column after the last round, in which columns are not mixed. */
#define DWELL_AES_LAST(box, a, b, c, d)                                                                                \
	DWELL_AES_COLUMN((box)[DWELL_AES_OCTET(a, 0)], (box)[DWELL_AES_OCTET(b, 1)], (box)[DWELL_AES_OCTET(c, 2)],     \
			 (box)[DWELL_AES_OCTET(d, 3)])

/* Runs all rounds. Rows are shifted to the left if `second` is 1, and to the right if it is
 * 3, which swaps the second and the fourth column.
 */
static __always_inline void dwell_aes128_rounds(struct dwell_block *block, const __u32 *round,
						const __u32 (*table)[256], const __u8 *box, const int second)
{
	const int fourth = 4 - second;
	__u32 a = block->word[0] ^ round[0], b = block->word[second] ^ round[second], c = block->word[2] ^ round[2],
	      d = block->word[fourth] ^ round[fourth];
	__u32 na, nb, nc, nd;

	/* Unrolled, the loop would be slower: it would not fit the instruction cache. */
#ifdef __clang__
#pragma clang loop unroll(disable)
#endif
	for (int i = 1; i < DWELL_AES_ROUNDS; i++) {
		round += 4;
		na = DWELL_AES_STEP(table, a, b, c, d) ^ round[0];
		nb = DWELL_AES_STEP(table, b, c, d, a) ^ round[second];
		nc = DWELL_AES_STEP(table, c, d, a, b) ^ round[2];
		nd = DWELL_AES_STEP(table, d, a, b, c) ^ round[fourth];
		a = na;
		b = nb;
		c = nc;
		d = nd;
	}
	round += 4;
	block->word[0] = DWELL_AES_LAST(box, a, b, c, d) ^ round[0];
	block->word[second] = DWELL_AES_LAST(box, b, c, d, a) ^ round[second];
	block->word[2] = DWELL_AES_LAST(box, c, d, a, b) ^ round[2];
	block->word[fourth] = DWELL_AES_LAST(box, d, a, b, c) ^ round[fourth];
}

static __always_inline void dwell_aes128_encrypt(const struct dwell_aes128 *key, struct dwell_block *block)
{
	dwell_aes128_rounds(block, key->encrypt, dwell_aes_mix, dwell_aes_sbox, 1);
}

static __always_inline void dwell_aes128_decrypt(const struct dwell_aes128 *key, struct dwell_block *block)
{
	dwell_aes128_rounds(block, key->decrypt, dwell_aes_back, dwell_aes_sbox_back, 3);
}

static __always_inline __u32 dwell_aes_substitute(__u32 word)
{
	return DWELL_AES_LAST(dwell_aes_sbox, word, word, word, word);
}

/* Applies the inverse of MixColumns to a column. */
static __always_inline __u32 dwell_aes_unmix(__u32 word)
{
	word = dwell_aes_substitute(word); /* the tables undo this */
	return DWELL_AES_STEP(dwell_aes_back, word, word, word, word);
}

/* Derives the round keys of a key (section 5.2). Only user space does so, once per key. */
static inline void dwell_aes128_expand(struct dwell_aes128 *key, const __u8 octets[16])
{
	__u32 *words = key->encrypt, constant = 1;

	for (int i = 0; i < 4; i++)
		words[i] = DWELL_AES_COLUMN(octets[4 * i], octets[4 * i + 1], octets[4 * i + 2], octets[4 * i + 3]);
	for (int i = 4; i < DWELL_AES_KEY_WORDS; i++) {
		__u32 word = words[i - 1];

		if (i % 4 == 0) {
			word = dwell_aes_substitute(word << 8 | word >> 24) ^ constant << 24;
			constant = DWELL_AES_2(constant);
		}
		words[i] = words[i - 4] ^ word;
	}
	for (int i = 0; i < DWELL_AES_KEY_WORDS; i++) {
		__u32 word = words[4 * (DWELL_AES_ROUNDS - i / 4) + i % 4];

		key->decrypt[i] = i / 4 % DWELL_AES_ROUNDS ? dwell_aes_unmix(word) : word;
	}
}

#endif
