/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* quic-handshake: the client's first Initial, and the first long-header packet in return.
 *
 * quic-spin: the client inverts the spin bit that it last saw, the server echoes it (RFC 9000 section 17.4). So the
 * sides take turns: after an edge of one side only the other may change its value, the server to the client's, the
 * client away from the server's. To an observer in the middle, an edge that follows the other side's is a round trip to
 * its sender (RFC 9312 section 3.8.2).
 *
 * Either side may instead send a constant, or a random value with each packet (RFC 9000 recommends it for at least one
 * connection in sixteen), and then there is nothing to measure. A constant is recognized at once, as the other side
 * never gets its turn. Randomness is recognized by how long a rule has held:
 * - An edge out of turn or of the wrong value is a fault. Samples resume after a streak of correct edges, which is
 *   longer the more faults there were.
 * - Each side must be trusted, by one of three kinds of evidence that its values are not random. In parentheses is the
 *   probability that random values produce it. Holds: 6 packets kept the value while it was the other side's turn, each
 *   of which had an even chance to be a fault (2^-6). Calm: since the connection began, packets that kept the value
 *   exceed three times those that changed it by 8 (1.84^-8, 0.8 %). Flips: 16 consecutive packets changed it, as when
 *   requests and answers alternate (2^-16).
 *
 * Each fault raises these numbers by 2, so that the probabilities add up to little more than the first. A genuine spin
 * bit that is too short or too sparse to prove itself gives no sample.
 */
#ifndef DWELL_RTT_QUIC_H
#define DWELL_RTT_QUIC_H

#include "rtt/step.h"

#define DWELL_QUIC_WAITING 1 /* an Initial was stamped and has no answer yet */
#define DWELL_QUIC_OFFERED 2 /* an Initial was seen */
#define DWELL_QUIC_CLIENT_KNOWN 4
#define DWELL_QUIC_CLIENT 8 /* the client's direction, if it is known */
#define DWELL_QUIC_EDGE_KNOWN 16
#define DWELL_QUIC_EDGE 32 /* direction of the last edge, if it is known */

#define DWELL_SPIN_STREAK 2
#define DWELL_SPIN_STREAK_PER_FAULT 4
#define DWELL_SPIN_FAULTS_MAX 15
#define DWELL_SPIN_HOLDS 6
#define DWELL_SPIN_CALM 8
#define DWELL_SPIN_CALM_PER_FLIP 3
#define DWELL_SPIN_CALM_MAX 100
#define DWELL_SPIN_FLIPS 16

/* Returns true if an Initial of this direction would be a client's first: of the flow, or of another connection between
 * the same ports. A client stops sending Initials once it sends short headers (RFC 9001 section 4.9.1).
 */
static __always_inline int dwell_quic_begins(struct dwell_step *step)
{
	__u32 direction = step->packet->direction & 1;
	struct dwell_matcher *matcher = dwell_matcher_of(step);

	if (!(step->flow->quic & DWELL_QUIC_OFFERED))
		return 1;
	if (!matcher || direction != (step->flow->quic & DWELL_QUIC_CLIENT ? 1U : 0U) ||
	    !matcher->side[direction].spin.known)
		return 0;
	__builtin_memset(matcher, 0, sizeof(*matcher));
	return 1;
}

static __always_inline void dwell_quic_long(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;
	__u32 type = packet->rtt.quic_first >> 4 & 3;
	__u32 initial = packet->rtt.quic_version == 0x6b3343cf ? 1 : 0;
	struct dwell_cold *cold;
	struct dwell_pending_stamp waiting;

	if (packet->rtt.quic_version && type == initial && dwell_quic_begins(step)) {
		flow->quic = DWELL_QUIC_OFFERED | DWELL_QUIC_CLIENT_KNOWN | (direction ? DWELL_QUIC_CLIENT : 0);
		flow->client = 1 + direction;
		cold = dwell_cold_of(step);
		if (cold)
			cold->spin_streak = 0;
		if (dwell_method_enabled(step->config, DWELL_QUIC_HANDSHAKE)) {
			flow->quic |= DWELL_QUIC_WAITING;
			dwell_stamp_put(step, DWELL_QUIC_HANDSHAKE, 0, 0);
		}
		return;
	}
	if (!(flow->quic & DWELL_QUIC_WAITING) || direction == !!(flow->quic & DWELL_QUIC_CLIENT))
		return;
	flow->quic &= ~DWELL_QUIC_WAITING;
	waiting = dwell_stamp_find(step, DWELL_QUIC_HANDSHAKE, !direction, 0);
	if (waiting.stamp)
		dwell_stamp_take(step, &waiting, DWELL_QUIC_HANDSHAKE, DWELL_SAMPLE_HANDSHAKE);
}

/* Returns the distance below which edges of one side are taken for reordering: a quarter of the least loop that the
 * spin bit itself has shown. It is halved with each rejection until the next loop is measured, so that a path that has
 * become much shorter is not silenced for good.
 */
static __always_inline __u64 dwell_spin_floor(const struct dwell_step *step, const struct dwell_spin_state *spin)
{
	__u64 floor = spin->loop_ns >> 2 >> (spin->early & 63);

	return floor > step->config->spin_floor_ns ? floor : step->config->spin_floor_ns;
}

static __always_inline int dwell_spin_trusts(const struct dwell_spin_state *side, __u32 faults)
{
	return side->holds >= DWELL_SPIN_HOLDS + 2 * faults || side->calm >= (int)(DWELL_SPIN_CALM + 2 * faults) ||
	       side->flips >= DWELL_SPIN_FLIPS + 2 * faults;
}

/* Handles a packet with the same value as its side's last one. */
static __always_inline void dwell_spin_kept(struct dwell_spin_state *mine, int its_turn)
{
	mine->known &= ~DWELL_SPIN_EARLY;
	mine->flips = 0;
	if (mine->calm < DWELL_SPIN_CALM_MAX)
		mine->calm++;
	if (!its_turn && mine->holds < 255)
		mine->holds++;
}

static __always_inline void dwell_spin_changed(struct dwell_spin_state *mine)
{
	if (mine->flips < 255)
		mine->flips++;
	if (mine->calm > -DWELL_SPIN_CALM_MAX)
		mine->calm -= DWELL_SPIN_CALM_PER_FLIP;
}

/* Handles an edge that breaks the rule: one side does not spin, or packets were lost or reordered. */
static __always_inline void dwell_spin_fault(struct dwell_step *step, struct dwell_cold *cold,
					     struct dwell_spin_state *mine)
{
	cold->spin_streak = 0;
	if (cold->spin_faults < DWELL_SPIN_FAULTS_MAX)
		cold->spin_faults++;
	mine->holds = 0;
	dwell_count(step, DWELL_REJECT_SPIN_ORDER);
}

static __always_inline void dwell_quic_spin(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;
	struct dwell_cold *cold = dwell_cold_of(step);
	struct dwell_matcher *matcher = dwell_matcher_of(step);
	struct dwell_spin_state *mine;
	const struct dwell_spin_state *other;
	__u8 value = packet->rtt.quic_first >> 5 & 1, quic = flow->quic;
	__u32 first = !(quic & DWELL_QUIC_EDGE_KNOWN);
	__u32 last = quic & DWELL_QUIC_EDGE ? 1 : 0;
	__u64 now, previous, age;
	int timed;

	if (!cold || !matcher)
		return;
	mine = &matcher->side[direction].spin;
	other = &matcher->side[!direction].spin;
	if (!mine->known) {
		mine->known = DWELL_SPIN_VALUE;
		mine->value = value;
		return;
	}
	if (mine->value == value) {
		dwell_spin_kept(mine, first || last != direction);
		return;
	}
	now = dwell_now(step->table->clock);
	age = mine->known & DWELL_SPIN_EDGE ? now - mine->edge_ns : DWELL_STAMP_NONE;
	if (age < dwell_spin_floor(step, mine)) {
		if (mine->early < 63)
			mine->early++;
		mine->known |= DWELL_SPIN_EARLY;
		mine->holds = 0;
		dwell_spin_changed(mine);
		dwell_count(step, DWELL_REJECT_SPIN_EARLY);
		return;
	}

	int trusted = dwell_spin_trusts(mine, cold->spin_faults) && dwell_spin_trusts(other, cold->spin_faults);
	__u32 inverts = other->known && other->value != value;

	dwell_spin_changed(mine);
	/* if the packets before were rejected, the first of them may have been the edge */
	timed = !(mine->known & DWELL_SPIN_EARLY);
	previous = mine->known & DWELL_SPIN_TIMED ? mine->edge_ns : 0;
	mine->known = DWELL_SPIN_VALUE | DWELL_SPIN_EDGE | (timed ? DWELL_SPIN_TIMED : 0);
	mine->value = value;
	mine->edge_ns = now;
	flow->quic = (quic & ~DWELL_QUIC_EDGE) | DWELL_QUIC_EDGE_KNOWN | (direction ? DWELL_QUIC_EDGE : 0);
	if (first || !other->known)
		return;
	if (!(quic & DWELL_QUIC_CLIENT_KNOWN)) {
		__u32 client = inverts ? direction : !direction;

		flow->quic &= ~DWELL_QUIC_CLIENT;
		flow->quic |= DWELL_QUIC_CLIENT_KNOWN | (client ? DWELL_QUIC_CLIENT : 0);
		quic = flow->quic;
	}
	__u32 is_client = direction == (quic & DWELL_QUIC_CLIENT ? 1U : 0U);

	if (last == direction) {
		dwell_spin_fault(step, cold, mine);
		return;
	}
	if (is_client != inverts) {
		dwell_spin_fault(step, cold, mine);
		/* otherwise the roles are unknown: the first packet was not seen */
		if (!(quic & DWELL_QUIC_WAITING))
			flow->quic &= ~DWELL_QUIC_CLIENT_KNOWN;
		return;
	}
	if (cold->spin_streak < 255)
		cold->spin_streak++;
	if (!trusted || cold->spin_streak < DWELL_SPIN_STREAK + DWELL_SPIN_STREAK_PER_FAULT * cold->spin_faults)
		return;
	if (cold->spin_streak == 255) {
		cold->spin_streak = 64;
		cold->spin_faults >>= 1;
	}
	if (!timed)
		return;
	if (dwell_method_enabled(step->config, DWELL_QUIC_SPIN) && other->known & DWELL_SPIN_TIMED)
		dwell_match_set(step, &step->match, DWELL_QUIC_SPIN, now - other->edge_ns, 0);
	if (!previous)
		return;
	mine->early = 0;
	if (now >= previous && (!mine->loop_ns || now - previous < mine->loop_ns))
		mine->loop_ns = now - previous;
	if (dwell_method_enabled(step->config, DWELL_QUIC_SPIN_LOOP)) {
		dwell_match_set(step, &step->loop, DWELL_QUIC_SPIN_LOOP, now - previous, 0);
		step->loop.min_rtt_ns = mine->loop_ns;
	}
}

static __always_inline void dwell_quic(struct dwell_step *step)
{
	struct dwell_matcher *matcher;

	if (step->packet->rtt.quic_first & 0x80) {
		dwell_quic_long(step);
	} else if (dwell_method_enabled(step->config, DWELL_QUIC_SPIN) ||
		   dwell_method_enabled(step->config, DWELL_QUIC_SPIN_LOOP)) {
		dwell_quic_spin(step);
	} else {
		/* shows where the next connection begins */
		matcher = dwell_matcher_of(step);
		if (matcher)
			matcher->side[step->packet->direction & 1].spin.known = DWELL_SPIN_VALUE;
	}
}

#endif
