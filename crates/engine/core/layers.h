/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One byte on its way through the layers.
 *
 * Each 2^shift-th byte of TCP's sequence space is a grid byte. A layer that a
 * packet with one passes stamps it in a row, which is found from flow and byte.
 * All layers and both hosts know the same bytes by the same numbers, so that no
 * search, no initial sequence number and no state of a flow is needed.
 *
 * Rows are one array for all flows. Consecutive grid bytes of a flow have
 * consecutive rows, from where its hash says. A flow uses at most half as many
 * rows as the sequence space has grid bytes: so that a row is used by another
 * byte before the same number comes round again, 4 GiB later.
 *
 * The embedding program defines dwell_row_at(), dwell_segment_add() and
 * dwell_stack_count().
 */
#ifndef DWELL_LAYERS_H
#define DWELL_LAYERS_H

#include "layers_types.h"

/* Grid bytes of one packet that are stamped; of one that has more, the last.
 * All of 64 KiB where each 64th is one.
 */
#define DWELL_GRID_BURST 1024

/* Rows in a sequence that may be missing before a walk back gives up. */
#define DWELL_WALK_MISSES 4

/* Steps of a walk back: what may come into order, or be read, at once. */
#define DWELL_WALK_STEPS 1024

struct dwell_row {
	__u64 tag;  /* of flow and byte; 0 if never used */
	__u32 sent; /* how often TCP sent it */
	__u32 reserved;
	__u64 stamp_ns[DWELL_LAYERS]; /* 0 if missing */
};

/* Bytes of a flow. */
struct dwell_span {
	__u64 flow; /* hash of source and destination */
	__u32 seq;
	__u32 bytes;
};

static __always_inline struct dwell_row *dwell_row_at(void *embedder, __u32 index);
static __always_inline void dwell_segment_add(void *embedder, __u32 segment, __u64 ns);
static __always_inline void dwell_stack_count(void *embedder, __u32 counter);

/* Several CPUs may count at once. */
static __always_inline void dwell_flow_segment_add(struct dwell_flow_segment *flow, __u64 ns)
{
	__u32 index = dwell_bucket_index(ns) >> DWELL_COARSE_SHIFT;

	__sync_fetch_and_add(&flow->count, 1);
	__sync_fetch_and_add(&flow->sum_ns, ns);
	if (ns > flow->max_ns)
		flow->max_ns = ns;
	if (index < DWELL_COARSE_BUCKETS)
		__sync_fetch_and_add(&flow->bucket[index], 1);
}

static __always_inline __u64 dwell_flow_hash(__u64 seed, const struct dwell_address *src,
					     const struct dwell_address *dst, __u16 sport,
					     __u16 dport)
{
	__u64 hash = dwell_mix(seed, (__u64)sport << 16 | dport);

	hash = dwell_mix(hash, src->low);
	hash = dwell_mix(hash, dst->low);
	if (src->high | dst->high) {
		hash = dwell_mix(hash, src->high);
		hash = dwell_mix(hash, dst->high);
	}
	return hash;
}

/* The first grid byte from `seq` on. */
static __always_inline __u32 dwell_grid_from(__u32 seq, __u32 shift)
{
	__u32 low = (1U << (shift & 31)) - 1;

	return (seq + low) & ~low;
}

/* True if one of the bytes is on the grid. */
static __always_inline int dwell_grid_hit(const struct dwell_span *span, __u32 shift)
{
	return dwell_grid_from(span->seq, shift) - span->seq < span->bytes;
}

static __always_inline __u64 dwell_row_tag(__u64 flow, __u32 slot)
{
	return dwell_mix(flow, slot) | 1;
}

static __always_inline struct dwell_row *dwell_row_of(void *embedder,
						      const struct dwell_stack_program *program,
						      __u64 flow, __u32 slot)
{
	__u32 index = ((flow >> 32) + (slot & program->cycle_mask)) & program->row_mask;

	return dwell_row_at(embedder, index);
}

/* Stamps a byte at a layer, and says whether it is there for the first time.
 * A row of another byte is taken over: that one is on its way for too long, or
 * was lost.
 */
static __always_inline int dwell_row_stamp(struct dwell_row *row, __u64 tag, __u32 layer,
					   __u64 now_ns)
{
	/* The socket's stamp begins a row: what a write was told to copy, and did
	 * not, is stamped again by the next.
	 */
	if (row->tag != tag || layer == DWELL_TX_SOCKET)
		*row = (struct dwell_row){.tag = tag};
	else if (row->stamp_ns[layer])
		return 0;
	row->stamp_ns[layer] = now_ns;
	return 1;
}

/* Counts the time between two layers, if both have stamped. Returns it. */
static __always_inline __u64 dwell_row_segment(void *embedder, const struct dwell_row *row,
					       __u32 segment, __u32 from, __u32 to)
{
	__u64 from_ns = row->stamp_ns[from], to_ns = row->stamp_ns[to];

	if (!from_ns || to_ns < from_ns)
		return 0;
	dwell_segment_add(embedder, segment, to_ns - from_ns);
	return to_ns - from_ns;
}

static __always_inline void dwell_row_missed(void *embedder,
					     const struct dwell_stack_program *program,
					     const struct dwell_row *row, __u32 first, __u32 last)
{
	for (__u32 layer = first; layer <= last; layer++)
		if (!row->stamp_ns[layer] && program->hooked & 1U << layer)
			dwell_stack_count(embedder, DWELL_MISSED + layer);
}

/* The way down is over: all its segments are counted at once, so that they add
 * up to the total, and what no segment explains is a figure of its own.
 */
static __always_inline void dwell_row_sent(void *embedder,
					   const struct dwell_stack_program *program,
					   const struct dwell_row *row)
{
	__u64 total_ns, explained_ns;
	__u32 first = program->tx_first;

	if (first >= DWELL_LAYERS || !row->stamp_ns[first]) {
		/* what is forwarded here has no socket, and does not leave IP there */
		if (row->stamp_ns[DWELL_TX_IP])
			dwell_stack_count(embedder, DWELL_TX_UNBEGUN);
		return;
	}
	total_ns = dwell_row_segment(embedder, row, DWELL_TX_TOTAL, first, DWELL_TX_DRIVER);
	explained_ns =
		dwell_row_segment(embedder, row, DWELL_SOCKET_TCP, DWELL_TX_SOCKET, DWELL_TX_TCP);
	explained_ns += dwell_row_segment(embedder, row, DWELL_TCP_IP, DWELL_TX_TCP, DWELL_TX_IP);
	explained_ns +=
		dwell_row_segment(embedder, row, DWELL_IP_DRIVER, DWELL_TX_IP, DWELL_TX_DRIVER);
	dwell_row_segment(embedder, row, DWELL_QUEUEING, DWELL_TX_QUEUE, DWELL_TX_DRIVER);
	if (total_ns > explained_ns)
		dwell_segment_add(embedder, DWELL_TX_UNEXPLAINED, total_ns - explained_ns);
	dwell_row_missed(embedder, program, row, DWELL_TX_SOCKET, DWELL_TX_DRIVER);
}

/* The same for the way up. */
static __always_inline void dwell_row_read(void *embedder,
					   const struct dwell_stack_program *program,
					   const struct dwell_row *row)
{
	__u64 total_ns, explained_ns;
	__u32 first = program->rx_first;

	if (first >= DWELL_LAYERS || !row->stamp_ns[first]) {
		dwell_stack_count(embedder, DWELL_RX_UNBEGUN);
		return;
	}
	total_ns = dwell_row_segment(embedder, row, DWELL_RX_TOTAL, first, DWELL_RX_SOCKET);
	explained_ns =
		dwell_row_segment(embedder, row, DWELL_DRIVER_IP, DWELL_RX_DRIVER, DWELL_RX_IP);
	explained_ns += dwell_row_segment(embedder, row, DWELL_IP_TCP, DWELL_RX_IP, DWELL_RX_TCP);
	explained_ns +=
		dwell_row_segment(embedder, row, DWELL_TCP_SOCKET, DWELL_RX_TCP, DWELL_RX_SOCKET);
	dwell_row_segment(embedder, row, DWELL_REORDERING, DWELL_RX_TCP, DWELL_RX_READY);
	dwell_row_segment(embedder, row, DWELL_APPLICATION, DWELL_RX_READY, DWELL_RX_SOCKET);
	if (total_ns > explained_ns)
		dwell_segment_add(embedder, DWELL_RX_UNEXPLAINED, total_ns - explained_ns);
	dwell_row_missed(embedder, program, row, DWELL_RX_DRIVER, DWELL_RX_SOCKET);
}

/* The grid bytes of a packet, or of what a write is about to copy, at a layer. */
struct dwell_pass {
	__u64 flow;
	__u64 now_ns;
	__u64 tcp_ns; /* on the way down: when TCP handed it down, as the packet says */
	__u32 slot;   /* the first one, in grid bytes */
	__u32 steps;  /* how many */
};

/* Of a span that has a grid byte. */
static __always_inline struct dwell_pass dwell_pass_of(const struct dwell_stack_program *program,
						       const struct dwell_span *span, __u64 now_ns,
						       __u64 tcp_ns)
{
	__u32 shift = program->shift & 31;
	__u32 first = dwell_grid_from(span->seq, shift);
	__u32 steps = ((span->bytes - (first - span->seq) - 1) >> shift) + 1;
	__u32 slot = first >> shift;

	if (steps > DWELL_GRID_BURST) {
		slot += steps - DWELL_GRID_BURST;
		steps = DWELL_GRID_BURST;
	}
	return (struct dwell_pass){span->flow, now_ns, tcp_ns, slot, steps};
}

/* Below IP: true of a packet in which TCP sent the byte again. That it brings the
 * time of the first copy with it tells the first copy, which may still be queued
 * when the second is sent. Without a second one any time will do: other programs
 * may have changed it.
 */
static __always_inline int dwell_row_is_copy(const struct dwell_row *row, __u64 tag, __u32 layer,
					     __u64 tcp_ns)
{
	if (layer != DWELL_TX_QUEUE && layer != DWELL_TX_DRIVER)
		return 0;
	return row->tag == tag && row->sent > 1 && row->stamp_ns[DWELL_TX_TCP] != tcp_ns;
}

/* Stamps one of them, and goes on to the next. */
static __always_inline void dwell_pass_step(void *embedder,
					    const struct dwell_stack_program *program,
					    struct dwell_pass *pass, __u32 layer)
{
	__u32 slot = pass->slot & ~0U >> (program->shift & 31);
	__u64 tag = dwell_row_tag(pass->flow, slot);
	struct dwell_row *row = dwell_row_of(embedder, program, pass->flow, slot);

	pass->slot++;
	if (!row)
		return;
	if (layer == DWELL_TX_IP) {
		/* one that lies in the future is of a paced packet: when it should
		 * leave, and not when TCP handed it down; nor is it that of the
		 * packet sent again
		 */
		if (pass->tcp_ns && pass->tcp_ns <= pass->now_ns &&
		    !(row->tag == tag && row->stamp_ns[DWELL_TX_IP]))
			dwell_row_stamp(row, tag, DWELL_TX_TCP, pass->tcp_ns);
		dwell_row_stamp(row, tag, DWELL_TX_IP, pass->now_ns);
		row->sent++;
		return;
	}
	if (dwell_row_is_copy(row, tag, layer, pass->tcp_ns)) {
		if (layer == DWELL_TX_DRIVER && !row->stamp_ns[layer]) {
			row->stamp_ns[layer] = pass->now_ns;
			dwell_stack_count(embedder, DWELL_RETRANSMITTED);
		}
		return;
	}
	if (dwell_row_stamp(row, tag, layer, pass->now_ns) && layer == DWELL_TX_DRIVER)
		dwell_row_sent(embedder, program, row);
}

/* A walk back over the grid bytes below `end`, of which those that are new at a
 * layer are stamped.
 */
struct dwell_walk_back {
	__u64 flow;
	__u64 now_ns;
	__u32 slot;
	__u32 misses;
};

static __always_inline struct dwell_walk_back dwell_walk_from(
	const struct dwell_stack_program *program, __u64 flow, __u32 end, __u64 now_ns)
{
	return (struct dwell_walk_back){flow, now_ns, (end - 1) >> (program->shift & 31), 0};
}

/* One step; true if it was the last. */
static __always_inline int dwell_walk_step_back(void *embedder,
						const struct dwell_stack_program *program,
						struct dwell_walk_back *walk, __u32 layer)
{
	__u64 tag = dwell_row_tag(walk->flow, walk->slot);
	struct dwell_row *row = dwell_row_of(embedder, program, walk->flow, walk->slot);

	if (!row)
		return 1;
	walk->slot = (walk->slot - 1) & (~0U >> (program->shift & 31));
	if (row->tag != tag)
		return ++walk->misses >= DWELL_WALK_MISSES;
	walk->misses = 0;
	if (!dwell_row_stamp(row, tag, layer, walk->now_ns))
		return 1;
	if (layer == DWELL_RX_SOCKET)
		dwell_row_read(embedder, program, row);
	return 0;
}

#endif
