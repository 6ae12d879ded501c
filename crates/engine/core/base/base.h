/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types and macros that every part of the core uses. The core is plain C: no helper, no map, no allocation, no loop
 * without a constant bound. BPF programs include it, and user space compiles the same headers natively.
 */
#ifndef DWELL_BASE_H
#define DWELL_BASE_H

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define DWELL_ALIGNED(n) __attribute__((aligned(n)))
#define dwell_likely(x) __builtin_expect(!!(x), 1)
#define dwell_unlikely(x) __builtin_expect(!!(x), 0)

/* Keeps the compiler from caching or reordering accesses to memory that another CPU writes. That is enough on machines
 * with total store order; on others, a check word in the object reveals a torn read.
 */
#define DWELL_BARRIER() __asm__ volatile("" ::: "memory")

/* Makes the compiler test and use the same register, so that the BPF verifier knows the bounds of the value. */
#define DWELL_OPAQUE(x) __asm__ volatile("" : "+r"(x))

#define dwell_ntohs(x) __builtin_bswap16(x)
#define dwell_ntohl(x) __builtin_bswap32(x)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the core is written for little-endian machines"
#endif

/* Serial number arithmetic (RFC 1982) for TCP sequence numbers and TSvals. */
static __always_inline int dwell_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* Returns the position of the highest bit; 0 for 0. */
static __always_inline __u32 dwell_log2(__u64 value)
{
	__u32 power = 0;

	if (value >> 32) {
		power += 32;
		value >>= 32;
	}
	if (value >> 16) {
		power += 16;
		value >>= 16;
	}
	if (value >> 8) {
		power += 8;
		value >>= 8;
	}
	if (value >> 4) {
		power += 4;
		value >>= 4;
	}
	if (value >> 2) {
		power += 2;
		value >>= 2;
	}
	return power + (__u32)(value >> 1);
}

static __always_inline __u64 dwell_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/* The time of the current packet. In a capture it is known. The kernel reads its clock at most once per packet, and
 * only if a matcher asks for it (base/embed.h): most packets need no precise time, and reading it would be a third of
 * their cost.
 */
struct dwell_clock {
	__u64 now_ns; /* 0 in the kernel: the clock has not been read yet */
};

#endif
