/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* auto: the server's clock, as the client's packets echo it in TCP timestamps: how long its tick is, and by how much an ACK
 * is later than the soonest one.
 */
#ifndef DWELL_RESPONSE_SERVER_CLOCK_H
#define DWELL_RESPONSE_SERVER_CLOCK_H

#include "response/response_queue.h"

/* The server's tick until it has been measured: that of Linux and the BSDs. */
#define DWELL_USUAL_TICK_NS 1000000
/* The server's tick is measured when the flow is 2^18 ticks (67 ms) old, and again at each doubling up to 2^26. */
#define DWELL_CLOCK_AGE_MIN 18
#define DWELL_CLOCK_AGE_SURE 22 /* 1.07 s: delays of ACKs no longer matter */
#define DWELL_CLOCK_AGE_MAX 26

/* Returns the tick length that a measured one stands for; 0 if none is known. Delays make the measured one too long
 * while the flow is young, never too short by more than one tick in `count`.
 */
static __always_inline __u32 dwell_known_tick(__u64 measured_ns, __u32 count, int sure)
{
	__u64 least = measured_ns - measured_ns / 8, most = measured_ns + measured_ns / 8 + measured_ns / count;

	if (most < 1000 || (least <= 1000 && most >= 1000))
		return most < 900 ? 0 : 1000;
	if (!sure)
		return most < 900000 || least > 3 * DWELL_USUAL_TICK_NS ? 0 : DWELL_USUAL_TICK_NS;
	if (least <= 1000000 && most >= 1000000)
		return 1000000;
	if (least <= 4000000 && most >= 4000000)
		return 4000000;
	if (least <= 10000000 && most >= 10000000)
		return 10000000;
	return 0;
}

/* Measures the server's tick from the first echo to this one. */
static __always_inline void dwell_clock_learn(struct dwell_turn_state *turn, __u32 tick, __u32 echo)
{
	__u32 elapsed = tick - turn->first_tick, count = echo - turn->first_echo, unit_ns;

	if (!turn->clock_age) {
		turn->first_tick = turn->base_tick = tick;
		turn->first_echo = turn->base_echo = echo;
		turn->unit_ns = DWELL_USUAL_TICK_NS;
		turn->clock_age = DWELL_CLOCK_AGE_MIN;
		return;
	}
	if (turn->clock_age > DWELL_CLOCK_AGE_MAX || !(elapsed >> (turn->clock_age & 31)))
		return;
	turn->clock_age = dwell_log2(elapsed) + 1;
	unit_ns = 0;
	if (count && !(count >> 31))
		unit_ns = dwell_known_tick(((__u64)elapsed << DWELL_TICK_SHIFT) / count, count,
					   turn->clock_age > DWELL_CLOCK_AGE_SURE);
	if (unit_ns == turn->unit_ns)
		return;
	turn->unit_ns = unit_ns;
	turn->flags &= turn->round_trip ? ~0 : ~DWELL_TURN_TIED;
	turn->base_tick = turn->first_tick; /* the handshake's ACK was not late */
	turn->base_echo = turn->first_echo;
	turn->clock_samples = 0;
}

#define DWELL_LATE_UNKNOWN 0x7fffffff

/* Returns by how many ticks an ACK is later than the soonest one seen, relative to the server's clock;
 * DWELL_LATE_UNKNOWN without such a clock. The clocks may part by 122 ppm, but no
 * pause of the client is taken for that.
 */
static __always_inline __s32 dwell_ack_lateness(struct dwell_turn_state *turn, __u32 tick, __u32 echo)
{
	__u32 unit, drift;
	__s64 passed;
	__s32 late;

	if (!echo)
		return DWELL_LATE_UNKNOWN;
	dwell_clock_learn(turn, tick, echo);
	if (!turn->unit_ns)
		return DWELL_LATE_UNKNOWN;
	unit = turn->unit_ns >> DWELL_TICK_SHIFT;
	passed = (__s64)(__s32)(echo - turn->base_echo) * turn->unit_ns >> DWELL_TICK_SHIFT;
	late = tick - turn->base_tick - (__u32)passed;
	drift = (tick - turn->base_tick) >> 13;
	if (late <= (__s32)(drift < unit / 2 ? drift : unit / 2)) {
		turn->base_tick = tick;
		turn->base_echo = echo;
		late = 0;
	}
	if (late <= (__s32)unit)
		dwell_count_u8(&turn->clock_samples);
	return late;
}

/* Returns how far into the server's tick a segment was sent, on average, given that `base` is the soonest of the ACKs
 * seen: half a tick if they are many, and no more than is known if there was one.
 */
static __always_inline __u32 dwell_within_tick(const struct dwell_turn_state *turn)
{
	__u32 unit = turn->unit_ns >> DWELL_TICK_SHIFT;

	if (turn->clock_samples >= 8)
		return unit / 2;
	return turn->clock_samples >= 4 ? unit / 4 + unit / 8 : turn->clock_samples >= 2 ? unit / 4 : 0;
}

#endif
