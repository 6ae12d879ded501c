/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* quic-handshake: the client's first Initial, and the first long-header
 * packet back.
 *
 * quic-spin: the client inverts the spin bit that it last saw, the server
 * echoes it (RFC 9000 section 17.4). So edges alternate between the sides: the
 * server's to the client's value, the client's away from the server's. Seen
 * from the middle, an edge that follows the other side's is a round trip to
 * its sender; two edges of one side in a row, or of the wrong value, prove
 * that somebody does not spin (constant, greased, random) or that packets were
 * lost or reordered. A sample is given only after a streak of right edges,
 * longer the more often the order was broken.
 */
#ifndef DWELL_QUIC_H
#define DWELL_QUIC_H

#include "step.h"

#define DWELL_QUIC_WAITING 1 /* an Initial was stamped and not answered */
#define DWELL_QUIC_OFFERED 2 /* an Initial was seen */
#define DWELL_QUIC_CLIENT_KNOWN 4
#define DWELL_QUIC_CLIENT 8 /* the client's direction, if known */
#define DWELL_QUIC_EDGE_KNOWN 16
#define DWELL_QUIC_EDGE 32 /* direction of the last edge, if known */

#define DWELL_SPIN_STREAK 2
#define DWELL_SPIN_STREAK_PER_FAULT 4
#define DWELL_SPIN_FAULTS_MAX 15

/* True if an Initial of this direction would be a client's first: of the flow,
 * or of another connection between the same ports. A client sends no Initial
 * any more once it sends short headers (RFC 9001 section 4.9.1).
 */
static __always_inline int dwell_quic_begins(struct dwell_step *step)
{
	__u32 direction = step->packet->direction & 1;
	struct dwell_memories *memories = dwell_memories_of(step);

	if (!(step->flow->quic & DWELL_QUIC_OFFERED))
		return 1;
	if (!memories || direction != (step->flow->quic & DWELL_QUIC_CLIENT ? 1U : 0U) ||
	    !memories->of[direction].spin.known)
		return 0;
	__builtin_memset(&memories->of[0].spin, 0, sizeof(memories->of[0].spin));
	__builtin_memset(&memories->of[1].spin, 0, sizeof(memories->of[1].spin));
	return 1;
}

static __always_inline void dwell_quic_long(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;
	__u32 type = packet->quic_first >> 4 & 3;
	__u32 initial = packet->quic_version == 0x6b3343cf ? 1 : 0;
	__u64 hash;

	if (packet->quic_version && type == initial && dwell_quic_begins(step)) {
		flow->quic = DWELL_QUIC_OFFERED | DWELL_QUIC_CLIENT_KNOWN |
			     (direction ? DWELL_QUIC_CLIENT : 0);
		flow->spin_streak = 0;
		if (dwell_wants(step->config, DWELL_QUIC_HANDSHAKE)) {
			flow->quic |= DWELL_QUIC_WAITING;
			dwell_stamp_put(
				step, dwell_stamp_hash(packet, DWELL_QUIC_HANDSHAKE, direction, 0),
				0, 0);
		}
		return;
	}
	if (!(flow->quic & DWELL_QUIC_WAITING) || direction == !!(flow->quic & DWELL_QUIC_CLIENT))
		return;
	flow->quic &= ~DWELL_QUIC_WAITING;
	hash = dwell_stamp_hash(packet, DWELL_QUIC_HANDSHAKE, !direction, 0);

	struct dwell_stamp *stamp = dwell_stamp_at(step, hash);

	if (stamp && dwell_stamp_holds(stamp, hash))
		dwell_stamp_take(step, stamp, DWELL_QUIC_HANDSHAKE, DWELL_SAMPLE_HANDSHAKE);
}

/* Edges of one side that are closer than this are taken for reordering: a
 * quarter of the round trip known so far, halved with each rejection so that a
 * slow handshake cannot silence a fast path for good.
 */
static __always_inline __u64 dwell_spin_floor(const struct dwell_step *step,
					      const struct dwell_spin_state *spin)
{
	const struct dwell_flow *flow = step->flow;
	__u64 known = flow->side[0].min_rtt_ns + flow->side[1].min_rtt_ns;
	__u64 floor = known >> 2 >> (spin->early & 63);

	return floor > step->config->spin_floor_ns ? floor : step->config->spin_floor_ns;
}

static __always_inline void dwell_quic_spin(struct dwell_step *step)
{
	const struct dwell_packet *packet = step->packet;
	struct dwell_flow *flow = step->flow;
	__u32 direction = packet->direction & 1;
	struct dwell_memories *memories = dwell_memories_of(step);
	struct dwell_spin_state *mine;
	const struct dwell_spin_state *other;
	__u8 value = packet->quic_first >> 5 & 1;
	__u64 now, previous;

	if (!memories)
		return;
	mine = &memories->of[direction].spin;
	other = &memories->of[!direction].spin;
	if (!mine->known) {
		mine->known = 1;
		mine->value = value;
		return;
	}
	if (mine->value == value)
		return;
	now = dwell_now(step->clock);
	if (mine->edges && now - mine->edge_ns < dwell_spin_floor(step, mine)) {
		if (mine->early < 63)
			mine->early++;
		dwell_count(step, DWELL_REJECT_SPIN_EARLY);
		return;
	}
	previous = mine->edge_ns;
	mine->early = 0;
	mine->value = value;
	mine->edge_ns = now;
	mine->edges++;

	__u8 quic = flow->quic;
	__u32 first = !(quic & DWELL_QUIC_EDGE_KNOWN);
	__u32 last = quic & DWELL_QUIC_EDGE ? 1 : 0;
	__u32 inverts = other->known && other->value != value;

	flow->quic = (quic & ~DWELL_QUIC_EDGE) | DWELL_QUIC_EDGE_KNOWN |
		     (direction ? DWELL_QUIC_EDGE : 0);
	if (first || !other->known)
		return;
	if (!(quic & DWELL_QUIC_CLIENT_KNOWN)) {
		__u32 client = inverts ? direction : !direction;

		flow->quic |= DWELL_QUIC_CLIENT_KNOWN | (client ? DWELL_QUIC_CLIENT : 0);
		quic = flow->quic;
	}
	__u32 is_client = direction == (quic & DWELL_QUIC_CLIENT ? 1U : 0U);

	if (last == direction || is_client != inverts) {
		flow->spin_streak = 0;
		if (flow->spin_faults < DWELL_SPIN_FAULTS_MAX)
			flow->spin_faults++;
		dwell_count(step, DWELL_REJECT_SPIN_ORDER);
		return;
	}
	if (flow->spin_streak < 255)
		flow->spin_streak++;
	if (flow->spin_streak < DWELL_SPIN_STREAK + DWELL_SPIN_STREAK_PER_FAULT * flow->spin_faults)
		return;
	if (flow->spin_streak == 255) {
		flow->spin_streak = 64;
		flow->spin_faults >>= 1;
	}
	if (dwell_wants(step->config, DWELL_QUIC_SPIN))
		dwell_match_set(step, &step->match, DWELL_QUIC_SPIN, now - other->edge_ns, 0);
	if (dwell_wants(step->config, DWELL_QUIC_SPIN_LOOP) && previous) {
		dwell_match_set(step, &step->loop, DWELL_QUIC_SPIN_LOOP, now - previous, 0);
		if (!mine->loop_ns || now - previous < mine->loop_ns)
			mine->loop_ns = now - previous;
		step->loop.min_rtt_ns = mine->loop_ns;
	}
}

static __always_inline void dwell_quic(struct dwell_step *step)
{
	if (step->packet->quic_first & 0x80)
		dwell_quic_long(step);
	else if (dwell_wants(step->config, DWELL_QUIC_SPIN) ||
		 dwell_wants(step->config, DWELL_QUIC_SPIN_LOOP))
		dwell_quic_spin(step);
}

#endif
