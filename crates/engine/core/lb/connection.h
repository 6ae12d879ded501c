/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `dwell lb`: the connections that the balancer knows, with their reals.
 *
 * The connection table is the flow table: one look-up finds both the real and the estimator's state. A connection stays
 * at its real whatever becomes of the Maglev table.
 */
#ifndef DWELL_LB_CONNECTION_H
#define DWELL_LB_CONNECTION_H

#include "lb/select.h"
#include "lb/zero_rtt.h"
#include "response/slot.h"

/* A selection: its reason, and the connection's slot if the estimator must see the packet; the real, the VIP and
 * whether to measure are in the packet. It is packed so that a BPF function that is verified apart can return it.
 */
typedef __u64 dwell_selection;
#define DWELL_SELECTION(reason, slot_index) ((__u64)(reason) | 1ULL << 31 | (__u64)(slot_index) << 32)
#define DWELL_SELECTION_UNMEASURED(reason) ((__u64)(reason))
#define dwell_selection_reason(c) ((__u32)(c)&0xff)
#define dwell_selection_is_measured(c) ((c)&1ULL << 31)
#define dwell_selection_slot(c) ((__u32)((c) >> 32))

/* How far a client's sequence number may run ahead of the newest one, in 64 KiB: packets may be lost before they come
 * here, or be sent again from up to 64 KiB behind it. Whoever does not know the numbers guesses right once in
 * 2^16 / (DWELL_SEQ_AHEAD + 2) attempts.
 */
#define DWELL_SEQ_AHEAD 4

/* How far behind it may be, likewise: it was sent again. */
#define DWELL_SEQ_BEHIND 16

/* Returns the sequence number after a packet. */
static __always_inline __u32 dwell_seq_end(const struct dwell_packet *packet)
{
	__u32 flag_bytes = !!(packet->tcp_flags & (DWELL_TCP_SYN | DWELL_TCP_FIN));

	return packet->kind == DWELL_KIND_TCP ? packet->seq + packet->payload_bytes + flag_bytes : 0;
}

/* The client's newest sequence number: the one after all that has passed here. */
static __always_inline __u32 dwell_slot_newest(const struct dwell_slot *slot)
{
	return (__u32)slot->seq_high << 16 | slot->lb.seq_low;
}

static __always_inline void dwell_slot_set_newest(struct dwell_slot *slot, __u32 seq)
{
	slot->seq_high = seq >> 16;
	slot->lb.seq_low = seq;
}

/* Different seconds (of 2^30 ns) in which a client must go on until its connection has settled. */
#define DWELL_SETTLED_SECONDS 3

/* Counts a packet towards settling, and returns what it makes of the connection's flags. A balancer sees nothing of the
 * server, so that packets to which nobody listens look like a client's: what a flood can do for a moment is not enough,
 * it has to go on with each of its connections, with sequence numbers that fit. `slot->packets` holds the number of
 * packets, up to DWELL_SETTLED_PACKETS, the number of seconds with one, and the low bits of the newest of these.
 */
static __always_inline __u8 dwell_slot_settle(struct dwell_slot *slot, const struct dwell_packet *packet,
					      __u32 now_coarse)
{
	__u32 packets = slot->packets & 3, seconds = slot->packets >> 2 & 3, second = now_coarse >> 10 & 15;
	__u8 flags = 0;

	if (packets < DWELL_SETTLED_PACKETS && ++packets == DWELL_SETTLED_PACKETS && packet->kind != DWELL_KIND_TCP)
		flags = DWELL_HEAD_ESTABLISHED;
	if ((!seconds || slot->packets >> 4 != second) && ++seconds == DWELL_SETTLED_SECONDS) {
		flags |= DWELL_HEAD_SETTLED;
		slot->measured |= slot->trusted;
	}
	slot->packets = packets | seconds << 2 | second << 4;
	return flags;
}

/* How far behind the newest sequence number an end may be: a client resets at what the server has acknowledged. Whoever does
 * not know the numbers guesses right once in 2^16 attempts, and the client's next data shows that the end was forged.
 */
#define DWELL_END_BEHIND (1U << 16)

/* Follows the client's sequence numbers by a packet without a SYN, and updates `*flags` by what it says of the end. Returns true
 * if its number is near the newest one.
 *
 * A FIN or RST ends the connection if it comes at the newest number. One that is ahead of it does not, since data that is still
 * to come would look like data that is sent again; the ACK that follows it shows the end. A connection that has ended goes on if
 * data passes its end, which was forged: data that was lost is sent again after the end too, however late, but not beyond it, and
 * what is ahead of it was sent by somebody who does not know the end.
 */
static __always_inline int dwell_slot_track(struct dwell_slot *slot, const struct dwell_packet *packet, __u8 *flags)
{
	__u32 newest = dwell_slot_newest(slot), end = dwell_seq_end(packet), ahead = packet->seq - newest;
	__u32 had_ended = *flags & DWELL_HEAD_ENDED;

	if (packet->tcp_flags & (DWELL_TCP_FIN | DWELL_TCP_RST)) {
		if (-ahead < DWELL_END_BEHIND)
			*flags |= DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED;
		else
			end -= !!(packet->tcp_flags & DWELL_TCP_FIN);
	} else if (packet->payload_bytes) {
		if (-ahead < packet->payload_bytes)
			*flags &= ~(DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED);
	} else if (ahead == 1) {
		*flags |= DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED;
	} else { /* it may be ahead of data that was lost */
		end = newest;
	}
	if (had_ended ? ahead > 1 && -ahead >= DWELL_END_BEHIND
		      : (__u16)((packet->seq >> 16) - (newest >> 16) + 1) > DWELL_SEQ_AHEAD + 1)
		return 0;
	if ((__s32)(end - newest) > 0)
		dwell_slot_set_newest(slot, end);
	return 1;
}

/* In what dwell_slot_mark() returns: the packet's number shows that the client has sent it, as far as that can be seen; without
 * it, anybody may have.
 */
#define DWELL_MARK_NEAR 1

/* Updates the flags of a connection from a client's packet. Returns DWELL_MARK_NEAR, and DWELL_HEAD_ENDED if that has changed. */
static __always_inline __u32 dwell_slot_mark(struct dwell_slot *slot, const struct dwell_packet *packet,
					     __u32 now_coarse)
{
	__u8 flags = slot->head.flags, next = flags;
	int is_near = packet->kind != DWELL_KIND_TCP;

	if (!is_near && packet->tcp_flags & DWELL_TCP_SYN) {
		if (dwell_is_first_syn(packet) && (!(flags & DWELL_HEAD_ESTABLISHED) || flags & DWELL_HEAD_ENDED)) {
			dwell_slot_set_newest(slot, dwell_seq_end(packet));
			next &= ~DWELL_HEAD_CLOSING; /* another connection may begin, or this one may still receive */
		}
	} else if (!is_near) {
		next |= DWELL_HEAD_ESTABLISHED;
		is_near = dwell_slot_track(slot, packet, &next);
	}
	/* a flood can repeat its SYN, or its Initial of QUIC */
	if (dwell_unlikely(!(flags & DWELL_HEAD_SETTLED)) && is_near && !packet->lb.attempt)
		next |= dwell_slot_settle(slot, packet, now_coarse);
	if (next != flags)
		slot->head.flags = next;
	return ((flags ^ next) & DWELL_HEAD_ENDED) | (is_near ? DWELL_MARK_NEAR : 0);
}

/* Fetches the cache lines that the estimator is about to need at once, so that it does not wait for one after the
 * other.
 */
static __always_inline void dwell_slot_prefetch(void *embedder, __u32 slot_index)
{
	const union dwell_response_state *state = dwell_state_likely(embedder, slot_index);

	if (!state)
		return;
	(void)*(const volatile __u8 *)&state->clock;
	(void)*(const volatile __u8 *)&state->adaptive.gaps;
	(void)*(const volatile __u8 *)&state->adaptive.sent;
}

/* Steps the estimator of a connection. */
static __always_inline void dwell_slot_measure(struct dwell_table *table, struct dwell_slot *slot,
					       const struct dwell_packet *packet)
{
	struct dwell_response_event *record = dwell_response_record(table);
	struct dwell_arrival arrival = {};

	if (!record || !dwell_slot_lock(slot)) {
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
		return;
	}
	if (dwell_same_key(&slot->head.key, &packet->key)) {
		dwell_arrival_of(&arrival, packet, DWELL_KEY_5TUPLE, dwell_now(table->clock));
		dwell_slot_step(table, slot, &arrival, record);
	} else { /* the slot has been reused */
		dwell_table_count(table, DWELL_FLOWS_CONTENDED);
	}
	dwell_slot_unlock(slot);
}

static __always_inline void dwell_count_open(void *embedder, __u32 real, __s64 by)
{
	__s64 *open = dwell_open_at(embedder, real);

	/* what was taken out as a stray may end by itself later */
	if (open && (by > 0 || *open > 0))
		__sync_fetch_and_add(open, by);
}

static __always_inline void dwell_balance_opened(void *embedder, const struct dwell_packet *packet)
{
	struct dwell_load *vip = dwell_vip_load_at(embedder, packet->lb.vip);
	struct dwell_load *real = dwell_real_load_at(embedder, packet->lb.real);

	if (vip)
		vip->opened++;
	if (real)
		real->opened++;
}

/* Returns true if a connection may be open: it is of TCP, as others never say that they end. */
static __always_inline int dwell_is_open(const struct dwell_slot *slot, const struct dwell_packet *packet)
{
	return packet->kind == DWELL_KIND_TCP && !(slot->head.flags & DWELL_HEAD_ENDED);
}

/* Diverts a new QUIC connection if its server is overloaded. Returns the reason. */
static __always_inline __u32 dwell_select_less_loaded(struct dwell_table *table, struct dwell_packet *packet,
						      __u32 reason, int dry_run)
{
	__u32 diverted = dwell_zero_divert_packet(table->embedder, packet);

	if (diverted & DWELL_ZERO_CHECK_ANYWHERE) {
		if (!dwell_zero_is_heavy_anywhere(table->embedder, packet))
			return reason;
		diverted = (diverted & ~DWELL_ZERO_CHECK_ANYWHERE) | DWELL_ZERO_IS_HEAVY;
	}
	if (!dry_run && diverted & DWELL_ZERO_IS_HEAVY)
		dwell_zero_count(table->embedder, DWELL_ZERO_HEAVY);
	diverted &= ~DWELL_ZERO_IS_HEAVY;
	if (!diverted)
		return reason;
	packet->lb.real = diverted;
	return DWELL_REASON_DIVERTED;
}

/* Handles a packet of no known connection. */
static __always_inline dwell_selection dwell_select_new(struct dwell_table *table, struct dwell_packet *packet,
							int dry_run)
{
	__u32 reason = dwell_balance_select(table->embedder, packet), mask = table->config->bucket_mask;
	struct dwell_lookup found;
	struct dwell_slot *slot;

	/* where a connection is that may be elsewhere is not learnt from its packets */
	if (!packet->lb.real || reason == DWELL_REASON_SECOND)
		return DWELL_SELECTION_UNMEASURED(reason);
	if (packet->lb.attempt)
		reason = dwell_select_less_loaded(table, packet, reason, dry_run);
	if (packet->kind == DWELL_KIND_TCP && !dwell_is_first_syn(packet))
		reason = DWELL_REASON_FALLBACK;
	if (!packet->may_open || dry_run)
		return DWELL_SELECTION_UNMEASURED(reason);
	found = dwell_flow_admit(table, packet, dwell_bucket_first(packet->hash, mask),
				 dwell_bucket_second(packet->hash, mask));
	if (!found.head) {
		/* the rest of its packets must go to the same real */
		packet->lb.real = packet->lb.first;
		return DWELL_SELECTION_UNMEASURED(DWELL_REASON_FULL);
	}
	dwell_balance_opened(table->embedder, packet);
	slot = (struct dwell_slot *)found.head;
	dwell_slot_set_newest(slot, dwell_seq_end(packet));
	found.head->flags |= DWELL_HEAD_YIELDS;
	if (dwell_unlikely(reason == DWELL_REASON_FALLBACK)) {
		found.head->flags |= DWELL_HEAD_ORPHAN;
		slot->trusted = slot->measured;
		slot->measured = 0;
	}
	dwell_slot_mark(slot, packet, found.head->seen);
	if (dwell_is_open(slot, packet))
		dwell_count_open(table->embedder, packet->lb.real, 1);
	return slot->measured ? DWELL_SELECTION(reason, found.slot_index) : DWELL_SELECTION_UNMEASURED(reason);
}

/* Silence after which a SYN may open another connection with the same endpoints, 16 ms in coarse units: a client that has
 * closed its side only acknowledges what it receives more often.
 */
#define DWELL_REOPEN_COARSE (16000000 >> 20)

/* Returns true for a SYN of the addresses and ports of a connection that has ended, or that was silent for the idle timeout:
 * the server may have ended it. The end must have come with the connection's sequence numbers, so that a forged end moves
 * nobody.
 */
static __always_inline int dwell_reopens(struct dwell_table *table, const struct dwell_slot *slot,
					 const struct dwell_packet *packet)
{
	__u32 idle;

	if (dwell_likely(!dwell_is_first_syn(packet)))
		return 0;
	idle = dwell_now_coarse(table->clock) - slot->head.seen;
	return slot->head.flags & DWELL_HEAD_ENDED ||
	       (idle > table->config->idle_timeout_ns >> 20 && !dwell_is_future(idle));
}

static __always_inline int dwell_is_silent(struct dwell_table *table, const struct dwell_slot *slot)
{
	__u32 idle = dwell_now_coarse(table->clock) - slot->head.seen;

	return idle > DWELL_REOPEN_COARSE && !dwell_is_future(idle);
}

/* Returns true if a packet may be of another connection than the one that is known with its endpoints: a client may have used
 * its port again, and the end of the one and the beginning of the other passed another balancer. Without a pause, sequence
 * numbers may run ahead; after one, a client begins where it stopped, or has sent more elsewhere. Linux lets another
 * connection begin as little as 64 KiB ahead (tcp_tw_reuse).
 */
static __always_inline int dwell_may_be_other(struct dwell_table *table, const struct dwell_slot *slot,
					      const struct dwell_packet *packet)
{
	__u16 ahead = (packet->seq >> 16) - slot->seq_high, behind = -ahead;

	if (dwell_likely(!ahead) || behind <= DWELL_SEQ_BEHIND || packet->kind != DWELL_KIND_TCP)
		return 0;
	if (dwell_is_first_syn(packet) && !(slot->head.flags & DWELL_HEAD_ESTABLISHED))
		return 0;
	return ahead > DWELL_SEQ_AHEAD || dwell_is_silent(table, slot);
}

/* Lets a packet that may be of another connection than the one that is known with its endpoints go on from that one's real;
 * its beginning goes where other balancers send it. Returns true if the VIP has a second chance. The known connection stays
 * as it is, since the packet may be forged.
 */
static __always_inline int dwell_select_other(void *embedder, struct dwell_packet *packet)
{
	const struct dwell_vip *vip =
		dwell_vip_of(embedder, dwell_packet_vip(packet), packet->proto, dwell_packet_vip_port(packet));
	__u32 known = packet->lb.real;

	if (!vip || !(vip->flags & DWELL_VIP_SECOND))
		return 0;
	if (!dwell_is_first_syn(packet))
		return dwell_balance_has_chance(embedder, packet);
	dwell_balance_select(embedder, packet);
	if (!packet->lb.real)
		packet->lb.real = known;
	return 1;
}

/* Returns true if a packet of this connection must not go to its real: that is gone; or nothing is established there
 * and it is down or out of reach; or the packet belongs to another connection between the same endpoints. Everything
 * else stays.
 */
static __always_inline int dwell_must_reselect(struct dwell_table *table, const struct dwell_slot *slot,
					       const struct dwell_packet *packet, const struct dwell_real *real)
{
	__u8 flags = slot->head.flags;

	if (!real || real->forward == DWELL_FORWARD_NONE)
		return 1;
	if (dwell_unlikely(packet->lb.attempt) &&
	    dwell_attempt_is_over(table->embedder, packet, dwell_now_coarse(table->clock) - slot->head.seen))
		return 1;
	if (dwell_reopens(table, slot, packet) && dwell_is_silent(table, slot))
		return 1;
	if (dwell_likely(dwell_is_up(real)))
		return 0;
	if (packet->kind == DWELL_KIND_TCP)
		return packet->tcp_flags & DWELL_TCP_SYN &&
		       (!(flags & DWELL_HEAD_ESTABLISHED) || flags & DWELL_HEAD_CLOSING);
	return real->flags & DWELL_REAL_DOWN || !(flags & DWELL_HEAD_ESTABLISHED);
}

/* Moves a locked slot to the real that was selected for the packet. */
static __always_inline void dwell_slot_move(struct dwell_table *table, struct dwell_slot *slot,
					    const struct dwell_packet *packet, struct dwell_response_event *record)
{
	dwell_slot_finish(table, slot, ~0ULL, record);
	slot->lb.real = packet->lb.real;
	slot->lb.vip = packet->lb.vip;
	dwell_slot_begin(table, slot, packet);
	slot->packets = 0;
	slot->trusted = 0;
	dwell_slot_set_newest(slot, dwell_seq_end(packet));
	slot->head.flags &= ~(DWELL_HEAD_CLOSING | DWELL_HEAD_ENDED | DWELL_HEAD_ESTABLISHED | DWELL_HEAD_SETTLED |
			      DWELL_HEAD_ORPHAN);
	dwell_balance_opened(table->embedder, packet);
}

/* Returns true if a connection that was idle for so long, in coarse units, still counts as active. */
static __always_inline int dwell_is_recent(struct dwell_table *table, __u32 idle)
{
	return dwell_is_future(idle) || idle <= dwell_balance_config_of(table->embedder)->active_coarse;
}

/* Selects anew for a connection that must leave its real. If another CPU has its slot, this packet still goes to the
 * old real: two CPUs must not select differently.
 */
static __always_inline dwell_selection dwell_select_again(struct dwell_table *table, struct dwell_packet *packet,
							  __u32 slot_index, int dry_run)
{
	__u32 reason = dwell_balance_select(table->embedder, packet);
	struct dwell_slot *slot = dwell_slot_at(table->embedder, slot_index);
	struct dwell_response_event *record = dwell_response_record(table);

	if (reason == DWELL_REASON_SECOND)
		reason = DWELL_REASON_NEW;
	if (!packet->lb.real || !slot || !record)
		return DWELL_SELECTION_UNMEASURED(reason);
	if (packet->lb.attempt)
		dwell_select_less_loaded(table, packet, reason, dry_run);
	if (!dwell_reopens(table, slot, packet))
		reason = slot->lb.real == packet->lb.real ? DWELL_REASON_CONNECTION : DWELL_REASON_MOVED;
	if (dry_run)
		return DWELL_SELECTION_UNMEASURED(reason);
	if (!dwell_slot_lock(slot)) {
		packet->lb.real = slot->lb.real;
		return DWELL_SELECTION_UNMEASURED(DWELL_REASON_CONNECTION);
	}
	if (dwell_same_key(&slot->head.key, &packet->key)) {
		if (dwell_is_open(slot, packet) &&
		    dwell_is_recent(table, dwell_now_coarse(table->clock) - slot->head.seen))
			dwell_count_open(table->embedder, slot->lb.real, -1);
		if (!dwell_must_reselect(table, slot, packet, dwell_real_at(table->embedder, slot->lb.real))) {
			packet->lb.real = slot->lb.real;
			reason = DWELL_REASON_CONNECTION;
		} else if (reason != DWELL_REASON_CONNECTION) {
			dwell_slot_move(table, slot, packet, record);
		}
		dwell_slot_mark(slot, packet, dwell_now_coarse(table->clock));
		slot->head.seen = dwell_now_coarse(table->clock);
		if (dwell_is_open(slot, packet))
			dwell_count_open(table->embedder, slot->lb.real, 1);
	}
	dwell_slot_unlock(slot);
	return slot->measured ? DWELL_SELECTION(reason, slot_index) : DWELL_SELECTION_UNMEASURED(reason);
}

/* Updates a connection that stays with its real. A packet that anybody may have sent keeps the place of a connection that is not
 * over: the client may come back from another balancer.
 */
static __always_inline dwell_selection dwell_balance_known(struct dwell_table *table, struct dwell_packet *packet,
							   struct dwell_slot *slot, __u32 slot_index)
{
	__u32 now_coarse = dwell_now_coarse(table->clock), idle = now_coarse - slot->head.seen;
	__u32 marked = dwell_slot_mark(slot, packet, now_coarse);

	if (idle && (marked & DWELL_MARK_NEAR || !(slot->head.flags & DWELL_HEAD_CLOSING)))
		slot->head.seen = now_coarse;
	if (dwell_unlikely(marked & DWELL_HEAD_ENDED) && dwell_is_recent(table, idle))
		dwell_count_open(table->embedder, slot->lb.real, slot->head.flags & DWELL_HEAD_ENDED ? -1 : 1);
	return slot->measured ? DWELL_SELECTION(DWELL_REASON_CONNECTION, slot_index)
			      : DWELL_SELECTION_UNMEASURED(DWELL_REASON_CONNECTION);
}

/* Finds or selects the real of a packet whose transport begins at `l4_offset`. Returns the reason. */
static __always_inline __u32 dwell_balance_flow(DWELL_FRAME *frame, struct dwell_table *table,
						struct dwell_packet *packet, __u32 l4_offset, int dry_run)
{
	__u32 mask = table->config->bucket_mask;
	struct dwell_lookup found = dwell_flow_find(table->embedder, dwell_bucket_first(packet->hash, mask),
						    dwell_bucket_second(packet->hash, mask), packet);
	struct dwell_slot *slot = (struct dwell_slot *)found.head;
	dwell_selection selection = DWELL_SELECTION_UNMEASURED(DWELL_REASON_CONNECTION);

	if (dwell_likely(slot)) {
		packet->lb.real = slot->lb.real;
		packet->lb.vip = slot->lb.vip;
		if (slot->measured)
			dwell_slot_prefetch(table->embedder, found.slot_index);
		DWELL_BARRIER();
		/* the slot may have been reused: another look-up would find nothing */
		if (dwell_unlikely(!dwell_same_key(&slot->head.key, &packet->key)))
			selection = dwell_balance_select_new(table, packet, 1);
		else if (dwell_unlikely(dwell_must_reselect(table, slot, packet,
							    dwell_real_at(table->embedder, packet->lb.real))))
			selection = dwell_balance_select_again(table, packet, found.slot_index, dry_run);
		else if (dwell_unlikely(dwell_may_be_other(table, slot, packet)) &&
			 dwell_balance_select_other(table->embedder, packet))
			selection = DWELL_SELECTION_UNMEASURED(DWELL_REASON_SECOND);
		else if (!dry_run)
			selection = dwell_balance_known(table, packet, slot, found.slot_index);
	} else {
		selection = dwell_balance_select_new(table, packet, dry_run);
		if (dwell_selection_is_measured(selection))
			slot = dwell_slot_at(table->embedder, dwell_selection_slot(selection));
	}
	if (!dry_run && dwell_selection_is_measured(selection) && slot) {
		if (packet->kind == DWELL_KIND_TCP)
			dwell_balance_read_turn(frame, packet, l4_offset);
		dwell_slot_measure(table, slot, packet);
	}
	return dwell_selection_reason(selection);
}

/* Finds the connection that an ICMP error quotes, without refreshing it, as anybody can send such an error. Returns the
 * reason.
 */
static __always_inline __u32 dwell_balance_quoted(struct dwell_table *table, struct dwell_packet *packet)
{
	__u32 mask = table->config->bucket_mask, reason;
	struct dwell_lookup found = dwell_flow_find(table->embedder, dwell_bucket_first(packet->hash, mask),
						    dwell_bucket_second(packet->hash, mask), packet);
	struct dwell_slot *slot = (struct dwell_slot *)found.head;

	if (slot) {
		packet->lb.real = slot->lb.real;
		packet->lb.vip = slot->lb.vip;
		DWELL_BARRIER();
		if (dwell_likely(dwell_same_key(&slot->head.key, &packet->key)))
			return DWELL_REASON_QUOTED;
	}
	reason = dwell_selection_reason(dwell_balance_select_new(table, packet, 1));
	return packet->lb.real ? DWELL_REASON_QUOTED : reason;
}

#endif
