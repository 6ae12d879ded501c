/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Traces one byte on its way through the layers of a host.
 *
 * The sampling grid is each 2^shift-th byte of TCP's sequence space. Each layer that a packet with such a byte passes
 * stamps it in a row, which is found from flow and byte. All layers and both hosts know the same bytes by the same
 * numbers, so that no search, no initial sequence number and no state of a flow is needed.
 *
 * Rows are one array for all flows. Consecutive grid bytes of a flow have consecutive rows, from an index that its hash
 * gives. A flow uses at most half as many rows as the sequence space has grid bytes, so that another byte has used a
 * row before the same number comes round again, 4 GiB later.
 */
#ifndef DWELL_STACK_LAYERS_H
#define DWELL_STACK_LAYERS_H

#include "stack/embed.h"
#include "stack/sampling.h"

/* Consecutive rows that may be missing before a walk back gives up. */
#define DWELL_WALK_MISSES 4

/* Most steps of a walk back: what may become readable, or be read, at once. */
#define DWELL_WALK_STEPS 1024

struct dwell_row {
	__u64 tag;    /* hash of flow and byte; 0 if never used */
	__u32 device; /* device where it first arrived */
	__u8 sent;    /* how often TCP has sent it, up to 255 */
	__u8 again;   /* it arrived again before TCP took it */
	__u16 reserved;
	struct dwell_isns isns;       /* if sent; of received bytes they are known when they are read */
	__u64 copy_ns;                /* time when the last copy left IP */
	__u64 stamp_ns[DWELL_LAYERS]; /* 0 if missing */
};

static __always_inline struct dwell_row *dwell_row_of(void *embedder, const struct dwell_stack_program *program,
						      __u64 flow, __u32 grid_index)
{
	return dwell_row_at(embedder, dwell_row_index(program, flow, grid_index));
}

/* Starts a row. If it was another byte's, that one was lost or is late, and is counted; forwarded bytes are not, as no
 * socket will read them.
 */
static __always_inline void dwell_row_begin(void *embedder, struct dwell_row *row, __u64 tag)
{
	const __u64 *stamp_ns = row->stamp_ns;

	if (row->tag != tag) {
		if (stamp_ns[DWELL_TX_SOCKET] && !stamp_ns[DWELL_TX_DRIVER])
			dwell_stack_count(embedder, DWELL_TX_DISPLACED);
		if (stamp_ns[DWELL_RX_TCP] && !stamp_ns[DWELL_RX_SOCKET])
			dwell_stack_count(embedder, DWELL_RX_DISPLACED);
	}
	*row = (struct dwell_row){.tag = tag};
}

/* Stamps a byte at a layer. Returns true if it is there for the first time. */
static __always_inline int dwell_row_stamp(void *embedder, struct dwell_row *row, __u64 tag, __u32 layer, __u64 now_ns)
{
	/* The socket's stamp starts a row: bytes that a write was to copy, and did not, are stamped again by the next
	 * write.
	 */
	if (row->tag != tag || layer == DWELL_TX_SOCKET)
		dwell_row_begin(embedder, row, tag);
	else if (row->stamp_ns[layer])
		return 0;
	row->stamp_ns[layer] = now_ns;
	return 1;
}

/* Counts the time between two layers, if both have stamped, and returns it; 0 otherwise. */
static __always_inline __u64 dwell_row_segment(void *embedder, const struct dwell_row *row, __u32 segment, __u32 from,
					       __u32 to)
{
	__u64 from_ns = row->stamp_ns[from], to_ns = row->stamp_ns[to];

	if (!from_ns || to_ns < from_ns)
		return 0;
	dwell_segment_add(embedder, segment, to_ns - from_ns);
	return to_ns - from_ns;
}

static __always_inline void dwell_row_missed(void *embedder, const struct dwell_stack_program *program,
					     const struct dwell_row *row, __u32 first, __u32 last)
{
	for (__u32 layer = first; layer <= last; layer++)
		if (!row->stamp_ns[layer] && program->hooked & 1U << layer)
			dwell_stack_count(embedder, DWELL_MISSED + layer);
}

/* Returns the layer that ends the socket's segment: IP, microseconds later than TCP, if the packet did not carry the
 * time at which TCP handed it down.
 */
static __always_inline __u32 dwell_row_tcp(const struct dwell_stack_program *program, const struct dwell_row *row)
{
	int is_unknown = !row->stamp_ns[DWELL_TX_TCP] && program->hooked & 1U << DWELL_TX_TCP;

	return is_unknown ? DWELL_TX_IP : DWELL_TX_TCP;
}

/* Counts all segments of a sent byte at once, so that they add up to the total; what no segment explains is a segment
 * of its own. `kind` is 0, or DWELL_SEGMENTS for bytes that were sent again.
 */
static __always_inline void dwell_row_sent(void *embedder, const struct dwell_stack_program *program,
					   const struct dwell_row *row, __u32 kind)
{
	__u64 total_ns, explained_ns;
	__u32 first = program->tx_first;

	total_ns = dwell_row_segment(embedder, row, kind + DWELL_TX_TOTAL, first, DWELL_TX_DRIVER);
	explained_ns =
		dwell_row_segment(embedder, row, kind + DWELL_SOCKET_TCP, DWELL_TX_SOCKET, dwell_row_tcp(program, row));
	explained_ns += dwell_row_segment(embedder, row, kind + DWELL_TCP_IP, DWELL_TX_TCP, DWELL_TX_IP);
	explained_ns += dwell_row_segment(embedder, row, kind + DWELL_IP_DRIVER, DWELL_TX_IP, DWELL_TX_DRIVER);
	dwell_row_segment(embedder, row, kind + DWELL_QUEUEING, DWELL_TX_QUEUE, DWELL_TX_DRIVER);
	if (total_ns > explained_ns)
		dwell_segment_add(embedder, kind + DWELL_TX_UNEXPLAINED, total_ns - explained_ns);
}

/* Counts all segments of a received byte, as dwell_row_sent() does for a sent one. */
static __always_inline void dwell_row_read(void *embedder, const struct dwell_row *row, __u32 first, __u32 kind)
{
	__u64 total_ns, explained_ns;

	total_ns = dwell_row_segment(embedder, row, kind + DWELL_RX_TOTAL, first, DWELL_RX_SOCKET);
	explained_ns = dwell_row_segment(embedder, row, kind + DWELL_DRIVER_IP, DWELL_RX_DRIVER, DWELL_RX_IP);
	explained_ns += dwell_row_segment(embedder, row, kind + DWELL_IP_TCP, DWELL_RX_IP, DWELL_RX_TCP);
	explained_ns += dwell_row_segment(embedder, row, kind + DWELL_TCP_SOCKET, DWELL_RX_TCP, DWELL_RX_SOCKET);
	dwell_row_segment(embedder, row, kind + DWELL_REORDERING, DWELL_RX_TCP, DWELL_RX_READY);
	dwell_row_segment(embedder, row, kind + DWELL_APPLICATION, DWELL_RX_READY, DWELL_RX_SOCKET);
	if (total_ns > explained_ns)
		dwell_segment_add(embedder, kind + DWELL_RX_UNEXPLAINED, total_ns - explained_ns);
}

/* Fills a byte trace, except for its ends. */
static __always_inline void dwell_trace_fill(const struct dwell_stack_program *program, const struct dwell_row *row,
					     __u32 grid_index, int up, int again, struct dwell_byte_trace *trace)
{
	trace->seq = grid_index << (program->shift & 31);
	trace->up = up;
	trace->sent = row->sent;
	trace->again = again;
	trace->reserved = 0;
	trace->isns = row->isns;
	for (__u32 layer = 0; layer < DWELL_LAYERS; layer++)
		trace->stamp_ns[layer] = (layer > DWELL_TX_DRIVER) == up ? row->stamp_ns[layer] : 0;
}

/* Ends the way of a sent byte. The row is a copy, as another CPU may reuse the original. */
static __always_inline void dwell_row_down(void *embedder, const struct dwell_stack_program *program,
					   const struct dwell_row *row, __u32 grid_index)
{
	if (program->tx_first >= DWELL_LAYERS || !row->stamp_ns[program->tx_first]) {
		/* a forwarded byte has no socket, and does not leave IP at that hook */
		if (row->stamp_ns[DWELL_TX_IP])
			dwell_stack_count(embedder, DWELL_TX_UNBEGUN);
		return;
	}
	dwell_row_sent(embedder, program, row, 0);
	dwell_row_missed(embedder, program, row, DWELL_TX_SOCKET, DWELL_TX_DRIVER);
	if (program->traces)
		dwell_trace_emit(embedder, row, grid_index, 0, 0);
}

/* Ends the way of a received byte. It begins at IP if no hook stamps the driver. */
static __always_inline void dwell_row_up(void *embedder, const struct dwell_stack_program *program,
					 const struct dwell_row *row, __u32 grid_index)
{
	__u32 first = program->rx_first;

	if (first == DWELL_RX_DRIVER && !row->stamp_ns[DWELL_RX_DRIVER])
		first = DWELL_RX_IP;
	if (first >= DWELL_LAYERS || !row->stamp_ns[first]) {
		dwell_stack_count(embedder, DWELL_RX_UNBEGUN);
		return;
	}
	if (row->again) {
		dwell_stack_count(embedder, DWELL_RX_AGAIN);
		if (program->again)
			dwell_row_read(embedder, row, first, DWELL_SEGMENTS);
	} else {
		dwell_row_read(embedder, row, first, 0);
		dwell_row_missed(embedder, program, row, DWELL_RX_DRIVER, DWELL_RX_SOCKET);
	}
	if (program->traces)
		dwell_trace_emit(embedder, row, grid_index, 1, row->again);
}

/* Age of a row after which it belongs to a byte 4 GiB earlier. With a pace, most rows are not reused before the same
 * numbers come round.
 */
#define DWELL_ROW_AGE_NS (60ULL * 1000 * 1000 * 1000)

static __always_inline int dwell_row_is_over(const struct dwell_row *row, __u32 layer, __u64 now_ns)
{
	int up = layer > DWELL_TX_DRIVER;

	if (row->stamp_ns[up ? DWELL_RX_SOCKET : DWELL_TX_DRIVER])
		return 1;
	return row->stamp_ns[layer] && now_ns > row->stamp_ns[layer] + DWELL_ROW_AGE_NS;
}

/* Returns true if a byte is to be traced. The first layer decides, or IP for drivers that no hook stamps, and the
 * others follow; with a pace IP would otherwise trace bytes that the driver left out.
 */
static __always_inline int dwell_row_wanted(void *embedder, const struct dwell_stack_program *program,
					    struct dwell_row *row, __u64 tag, __u32 grid_index, __u32 layer,
					    const struct dwell_pass *pass)
{
	int first =
		layer == program->tx_first || layer == program->rx_first || (layer == DWELL_RX_IP && !program->pace_ns);

	if (!program->chosen && !program->pace_ns)
		return 1;
	if (row->tag == tag && !(first && program->pace_ns && dwell_row_is_over(row, layer, pass->now_ns)))
		return 1;
	if (!first)
		return 0;
	if (row->tag == tag)
		row->tag = 0;
	return dwell_may_trace(embedder, pass->flow, grid_index, layer > DWELL_TX_DRIVER, pass->now_ns);
}

/* Returns true, below IP, for a packet in which TCP sent the byte again. The first copy, which may still be queued when
 * the second is sent, carries its own time. If there is no second copy any time will do, as other programs may have
 * changed it.
 */
static __always_inline int dwell_row_is_copy(const struct dwell_row *row, __u64 tag, __u64 tcp_ns)
{
	return row->tag == tag && row->sent > 1 && row->stamp_ns[DWELL_TX_TCP] != tcp_ns;
}

/* Returns true for a packet that has left IP, and is at another of its devices. TCP sends a copy only after the packet
 * before it has left.
 */
static __always_inline int dwell_has_left_ip(const struct dwell_row *row, __u64 tag, __u64 tcp_ns)
{
	__u64 left_ns = row->copy_ns ? row->copy_ns : row->stamp_ns[DWELL_TX_IP];

	return row->tag == tag && left_ns && tcp_ns <= left_ns;
}

static __always_inline void dwell_pass_ip(void *embedder, const struct dwell_stack_program *program,
					  struct dwell_row *row, __u64 tag, const struct dwell_pass *pass)
{
	if (program->ip_at_queue && dwell_has_left_ip(row, tag, pass->tcp_ns))
		return;
	/* a time in the future belongs to a paced packet: it says when that should leave, not when TCP handed it down;
	 * nor does it belong to a retransmission
	 */
	if (pass->tcp_ns && pass->tcp_ns <= pass->now_ns && !(row->tag == tag && row->stamp_ns[DWELL_TX_IP]))
		dwell_row_stamp(embedder, row, tag, DWELL_TX_TCP, pass->tcp_ns);
	if (!dwell_row_stamp(embedder, row, tag, DWELL_TX_IP, pass->now_ns))
		row->copy_ns = pass->now_ns;
	if (row->sent < 255)
		row->sent++;
}

/* Handles a later copy that has reached the driver. If the first has not, it may have been dropped: the byte then
 * counts in no segment of bytes that were sent once.
 */
static __always_inline void dwell_pass_copy(void *embedder, const struct dwell_stack_program *program,
					    struct dwell_row *row, __u32 grid_index, const struct dwell_pass *pass)
{
	struct dwell_row copy = {.sent = row->sent, .isns = row->isns};

	copy.stamp_ns[DWELL_TX_SOCKET] = row->stamp_ns[DWELL_TX_SOCKET];
	if (pass->tcp_ns <= pass->now_ns)
		copy.stamp_ns[DWELL_TX_TCP] = pass->tcp_ns;
	/* only the last copy's time is known */
	if (row->copy_ns >= pass->tcp_ns)
		copy.stamp_ns[DWELL_TX_IP] = row->copy_ns;
	copy.stamp_ns[DWELL_TX_DRIVER] = pass->now_ns;
	if (!row->stamp_ns[DWELL_TX_DRIVER]) {
		row->stamp_ns[DWELL_TX_DRIVER] = pass->now_ns;
		dwell_stack_count(embedder, DWELL_TX_AGAIN);
	}
	if (program->again)
		dwell_row_sent(embedder, program, &copy, DWELL_SEGMENTS);
	if (program->traces)
		dwell_trace_emit(embedder, &copy, grid_index, 0, 1);
}

static __always_inline void dwell_pass_driver(void *embedder, const struct dwell_stack_program *program,
					      struct dwell_row *row, __u64 tag, __u32 grid_index,
					      const struct dwell_pass *pass)
{
	struct dwell_row copy;

	if (dwell_row_is_copy(row, tag, pass->tcp_ns)) {
		dwell_pass_copy(embedder, program, row, grid_index, pass);
		return;
	}
	if (!dwell_row_stamp(embedder, row, tag, DWELL_TX_DRIVER, pass->now_ns))
		return;
	copy = *row;
	if (copy.tag == tag)
		dwell_row_down(embedder, program, &copy, grid_index);
}

/* Handles a byte that arrives again from the same device before TCP took it: this host lost the first copy. */
static __always_inline void dwell_pass_arrive(void *embedder, struct dwell_row *row, __u64 tag,
					      const struct dwell_pass *pass)
{
	if (dwell_row_stamp(embedder, row, tag, DWELL_RX_DRIVER, pass->now_ns))
		row->device = pass->device;
	else if (row->device == pass->device && !row->stamp_ns[DWELL_RX_TCP])
		row->again = 1;
}

/* Stamps one of the pass's bytes, and advances to the next. */
static __always_inline void dwell_pass_step(void *embedder, const struct dwell_stack_program *program,
					    struct dwell_pass *pass, __u32 layer)
{
	__u32 grid_index = pass->grid_index & ~0U >> (program->shift & 31);
	__u64 tag = dwell_row_tag(pass->flow, pass->grid, grid_index);
	struct dwell_row *row = dwell_row_of(embedder, program, pass->flow, grid_index);

	pass->grid_index += pass->stride;
	if (!row || !dwell_row_wanted(embedder, program, row, tag, grid_index, layer, pass))
		return;
	if (layer == DWELL_TX_IP)
		dwell_pass_ip(embedder, program, row, tag, pass);
	else if (layer == DWELL_TX_DRIVER)
		dwell_pass_driver(embedder, program, row, tag, grid_index, pass);
	else if (layer == DWELL_RX_DRIVER)
		dwell_pass_arrive(embedder, row, tag, pass);
	else if (layer != DWELL_TX_QUEUE || !dwell_row_is_copy(row, tag, pass->tcp_ns))
		dwell_row_stamp(embedder, row, tag, layer, pass->now_ns);
	if (layer == DWELL_TX_SOCKET)
		row->isns = pass->isns;
}

/* A walk back over the grid bytes below `end`, which stamps those that are new at a layer. The word next to `misses` is
 * not 0, as the verifier loses track of a value that is written together with another 0.
 */
struct dwell_walk_back {
	__u64 flow;
	__u64 now_ns;
	__u32 grid_index;
	__u32 misses;
	__u32 stride;
	__u32 grid;
	struct dwell_isns isns;
};

static __always_inline struct dwell_walk_back dwell_walk_from(const struct dwell_stack_program *program, __u64 flow,
							      __u32 end, __u64 now_ns, __u32 grid)
{
	__u32 stride = 1U << dwell_grid_thin(grid);

	return (struct dwell_walk_back){
		.flow = flow,
		.now_ns = now_ns,
		.grid_index = ((end - 1) >> (program->shift & 31)) & ~(stride - 1),
		.stride = stride,
		.grid = grid,
	};
}

/* Walks one step. Returns true if it was the last. */
static __always_inline int dwell_walk_step_back(void *embedder, const struct dwell_stack_program *program,
						struct dwell_walk_back *walk, __u32 layer)
{
	__u32 grid_index = walk->grid_index;
	__u64 tag = dwell_row_tag(walk->flow, walk->grid, grid_index);
	struct dwell_row *row = dwell_row_of(embedder, program, walk->flow, grid_index);
	struct dwell_row copy;

	if (!row)
		return 1;
	walk->grid_index = (grid_index - walk->stride) & (~0U >> (program->shift & 31));
	if (row->tag != tag)
		return ++walk->misses >= DWELL_WALK_MISSES;
	walk->misses = 0;
	if (!dwell_row_stamp(embedder, row, tag, layer, walk->now_ns))
		return 1;
	if (layer != DWELL_RX_SOCKET)
		return 0;
	copy = *row;
	copy.isns = walk->isns;
	if (copy.tag == tag)
		dwell_row_up(embedder, program, &copy, grid_index);
	return 0;
}

#endif
