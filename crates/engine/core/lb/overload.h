/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which servers are overloaded, by the load that they report. */
#ifndef DWELL_LB_OVERLOAD_H
#define DWELL_LB_OVERLOAD_H

#include "base/base.h"
#include "lb/overload_embed.h"
#include "lb/overload_types.h"
#include "lb/quic_lb.h"

static __always_inline __u64 dwell_stamp_of_seconds(__u64 seconds)
{
	return seconds << 32;
}

/* Takes over a load that a server reports, if it is newer than all before. `unix_s` and `now_s` are the present time,
 * the latter on the clock of `seen_s`. If two CPUs have a report at once, one may be lost: it was as good.
 */
static __always_inline enum dwell_load_result dwell_load_update(struct dwell_server_load *load, __u64 stamp,
								__u64 unix_s, __u32 now_s,
								const struct dwell_overload_config *config)
{
	__u64 before = *(volatile __u64 *)&load->stamp;

	if (dwell_likely(stamp >> 16 <= before >> 16))
		return DWELL_LOAD_NOT_NEWER;
	if (stamp >= dwell_stamp_of_seconds(unix_s + config->slack_s + 1))
		return DWELL_LOAD_FUTURE;
	if (config->stale_s && stamp < dwell_stamp_of_seconds(unix_s - config->slack_s - config->stale_s))
		return DWELL_LOAD_STALE;
	if (__sync_val_compare_and_swap(&load->stamp, before, stamp) != before)
		return DWELL_LOAD_NOT_NEWER;
	load->seen_s = now_s;
	return DWELL_LOAD_ACCEPTED;
}

/* Returns 1 if a < b, else 0, for numbers below 2^63. Here and below there is no branch: the verifier would follow both
 * sides, and the kernel limits how many steps it may walk.
 */
static __always_inline __u64 dwell_less(__u64 a, __u64 b)
{
	__u64 difference = a - b;

	DWELL_OPAQUE(difference);
	return difference >> 63;
}

/* Returns the load code of a server that may get connections; 0 if its load is unknown. A report from the future is not
 * stale: the clock was set back since, or another CPU is just writing it.
 */
static __always_inline __u32 dwell_load_code(const struct dwell_server_load *load, __u32 now_s,
					     const struct dwell_overload_config *config)
{
	__u32 age_s = now_s - load->seen_s;
	__u64 is_stale = dwell_less(config->stale_s, age_s) & dwell_less(0, config->stale_s) & ~(age_s >> 31);

	return load->stamp & 0xffff & (((load->flags & DWELL_SERVER_OUT) | is_stale) - 1);
}

/* Returns the server at a turn of a round over `count` servers that begins with `from`. */
static __always_inline __u32 dwell_server_of_turn(__u32 from, __u32 turn, __u32 count)
{
	__u32 index = from + turn;

	return index - (count & (dwell_less(index, count) - 1)) & (DWELL_SERVERS_MAX - 1);
}

/* A round over the servers of a VIP: how many of them are known, how many of these wait for less than a code, and the
 * least: its code and, in the low bits, its turn.
 */
struct dwell_load_round {
	const struct dwell_server_load *servers; /* DWELL_SERVERS_MAX entries, `count` of them in use */
	const struct dwell_overload_config *config;
	__u64 known;
	__u64 below;
	__u64 least;
	__u32 code;
	__u32 now_s;
	__u32 from; /* the server of the first turn */
	__u32 count;
};

static __always_inline void dwell_load_turn(struct dwell_load_round *round, __u32 turn)
{
	__u32 server = dwell_server_of_turn(round->from, turn, round->count);
	__u64 code = dwell_load_code(&round->servers[server], round->now_s, round->config);
	__u64 is_known = dwell_less(0, code), candidate = code << 32 | turn;

	round->known += is_known;
	round->below += dwell_less(code, round->code) & is_known;
	round->least += (candidate - round->least) & -(dwell_less(candidate, round->least) & is_known);
}

/* Returns true if a server's wait is above a percentile of all known ones, and exceeds the least by more than
 * `margin_ns` (TrafficGrinder, Equation 1); then `least` is the server with the least wait. The percentile lies between
 * the two values next to its rank, as otherwise the highest of few servers would never be above it. Among servers with
 * the same wait, the first from `from` on is the least: a number that differs from connection to connection spreads
 * connections over them.
 */
static __always_inline int dwell_overload_divert(const struct dwell_server_load *servers, __u32 count, __u32 server,
						 __u32 from, __u32 now_s, const struct dwell_overload_config *config,
						 __u32 *least)
{
	struct dwell_load_round round = {.servers = servers, .config = config};

	round.code = dwell_load_code(&servers[server & (DWELL_SERVERS_MAX - 1)], now_s, config);
	if (round.code <= DWELL_WAIT_NONE)
		return 0;
	round.least = (round.code + 1ULL) << 32;
	round.now_s = now_s;
	round.from = from;
	round.count = count;
	dwell_load_turns(&round);
	*least = dwell_server_of_turn(from, round.least, count);
	return round.below * 1000 > config->percentile * (round.known - 1) &&
	       dwell_wait_ns(round.code) - dwell_wait_ns(round.least >> 32) > config->margin_ns;
}

#endif
