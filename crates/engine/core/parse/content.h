/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What `dwell response` reads of a TCP packet beyond the header's fixed part: the echo of the server's clock, the largest
 * segment, and how the payload begins. Only the usual layout of options is read; another one counts as none.
 */
#ifndef DWELL_PARSE_CONTENT_H
#define DWELL_PARSE_CONTENT_H

#include "parse/packet.h"

/* Bytes of a record of TLS 1.3 that holds a frame of HTTP/2 without data: 31 of an acknowledgement of settings, 4 more of a reset
 * or a window update, and 8 more of a PING, the longest. Small requests of other protocols rarely have these.
 */
#define DWELL_TLS_CONTROL_MIN_BYTES 31
#define DWELL_TLS_CONTROL_BYTES 39
#define DWELL_TLS_RECORD_BYTES 5
/* Type, flags and stream follow the length of a frame of HTTP/2 (RFC 9113 section 4.1). */
#define DWELL_HTTP2_HEADER_BYTES 9
#define DWELL_HTTP2_TYPES 10

/* Words of 8 bytes in which the end of a request is looked for. */
#define DWELL_HEAD_WORDS 32
#define DWELL_EACH_BYTE 0x0101010101010101ULL

/* Opcodes of WebSocket, a bit each (RFC 6455 section 5.2). */
#define DWELL_WEBSOCKET_OPCODES 0x707

struct dwell_mss_option {
	__u8 kind, length;
	__u16 mss;
} DWELL_PACKED;

struct dwell_content_line {
	__u64 bytes;
} DWELL_PACKED;

struct dwell_content_word {
	__u32 word;
} DWELL_PACKED;

struct dwell_content_head {
	__u8 byte[DWELL_HTTP2_HEADER_BYTES];
} DWELL_PACKED;

/* Classifies the beginning of a payload of `bytes`. */
static __always_inline __u8 dwell_content_of(const struct dwell_content_head *head, __u32 bytes)
{
	const __u8 *byte = head->byte;
	__u32 length;

	if (byte[0] >= 0x14 && byte[0] <= 0x17 && byte[1] == 3 && byte[2] <= 4) { /* records of TLS */
		if (byte[0] != 0x17)
			return DWELL_CONTENT_TLS_HANDSHAKE;
		length = byte[3] << 8 | byte[4];
		return bytes <= DWELL_TLS_CONTROL_BYTES && bytes >= DWELL_TLS_CONTROL_MIN_BYTES &&
				       (bytes & 3) == (DWELL_TLS_CONTROL_MIN_BYTES & 3) &&
				       bytes == length + DWELL_TLS_RECORD_BYTES
			       ? DWELL_CONTENT_TLS_CONTROL
			       : DWELL_CONTENT_OTHER;
	}
	switch ((__u32)byte[0] << 24 | byte[1] << 16 | byte[2] << 8 | byte[3]) {
	case 0x47455420: /* "GET " */
	case 0x48454144: /* "HEAD" */
	case 0x504f5354: /* "POST" */
	case 0x50555420: /* "PUT " */
	case 0x50415443: /* "PATC" */
	case 0x44454c45: /* "DELE" */
	case 0x4f505449: /* "OPTI" */
	case 0x67657420: /* "get " of memcached, "gets", "set " */
	case 0x67657473:
	case 0x73657420:
		return DWELL_CONTENT_TEXT;
	case 0x50524920: /* "PRI " */
		return DWELL_CONTENT_FRAMES;
	}
	if (byte[0] == '*' && byte[1] >= '1' && byte[1] <= '9') /* a command of Redis */
		return DWELL_CONTENT_TEXT;
	if (!byte[0] && byte[3] < DWELL_HTTP2_TYPES && !(byte[5] >> 7)) {
		length = byte[1] << 8 | byte[2];
		/* a frame that lies in the packet, of a stream that a client may open or the connection's own */
		if (length + DWELL_HTTP2_HEADER_BYTES <= bytes && length + byte[3] &&
		    (byte[8] & 1 || !(byte[5] | byte[6] | byte[7] | byte[8])))
			return DWELL_CONTENT_FRAMES;
	}
	/* text, binary, close, ping, pong or more of a message, perhaps compressed; masked, as clients' are */
	if ((byte[0] & 0x30) == 0 && DWELL_WEBSOCKET_OPCODES >> (byte[0] & 0xf) & 1 && byte[0] && byte[1] >> 7) {
		length = byte[1] & 0x7f;
		if (length < 126 ? length + 6 == bytes : length == 126 && (byte[2] << 8 | byte[3]) + 8U == bytes)
			return DWELL_CONTENT_MESSAGE;
	}
	return DWELL_CONTENT_OTHER;
}

/* Returns how many requests without a body lie in a payload of `bytes` at `at`, if the second begins like the first and the
 * others are about as long. One whose empty line does not lie in the first DWELL_HEAD_WORDS counts as one.
 */
static __always_inline __u32 dwell_requests_at(const void *data, const void *end, __u32 at, __u32 bytes)
{
	const struct dwell_content_line *next = data + at;
	const struct dwell_content_word *first = data + at, *again;
	__u64 apart, lines, before = 0, empty;
	__u32 length;

#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (__u32 i = 0; i < DWELL_HEAD_WORDS; i++, next++) {
		if ((const void *)(next + 1) > end)
			break;
		/* the high bit of each byte that ends a line, and of those that end one of a single byte */
		apart = next->bytes ^ '\n' * DWELL_EACH_BYTE;
		lines = (apart - DWELL_EACH_BYTE) & ~apart & 0x80 * DWELL_EACH_BYTE;
		empty = lines & (lines << 16 | before >> 48);
		before = lines;
		if (!empty)
			continue;
		length = i * sizeof(*next) + dwell_log2(empty & -empty) / 8 + 1;
		again = data + at + (length & (2 * sizeof(*next) * DWELL_HEAD_WORDS - 1));
		if ((const void *)(again + 1) > end || again->word != first->word)
			return 1; /* a body, or another protocol after an upgrade */
		return (bytes + length / 2) / length;
	}
	return 1;
}

/* Reads what turns need of a TCP packet whose header begins at `l4_offset`. What cannot be reached stays 0. */
static __always_inline void dwell_read_turn(const void *data, const void *end, __u32 l4_offset,
					    struct dwell_packet *packet)
{
	__u32 header, at, content, count;
	const struct dwell_tcp_ts_option *ts;
	const struct dwell_mss_option *mss;
	const struct dwell_content_head *head;
	const struct dwell_tcp *tcp;

	packet->response.cid = 0;
	DWELL_OPAQUE(l4_offset);
	if (l4_offset > 2 * DWELL_MAX_OFFSET)
		return;
	tcp = data + l4_offset;
	if ((const void *)(tcp + 1) > end)
		return;
	header = (tcp->data_offset >> 4) * 4;
	if (packet->tcp_flags & DWELL_TCP_SYN) {
		mss = (const void *)(tcp + 1);
		if (header >= sizeof(struct dwell_tcp) + sizeof(*mss) && (const void *)(mss + 1) <= end &&
		    mss->kind == 2 && mss->length == 4)
			packet->response.tsecr = dwell_ntohs(mss->mss);
		return;
	}
	ts = (const void *)(tcp + 1);
	if (header >= sizeof(struct dwell_tcp) + sizeof(*ts) && (const void *)(ts + 1) <= end &&
	    ts->head == DWELL_TCP_TS_HEAD)
		packet->response.tsecr = dwell_ntohl(ts->echo);
	if (packet->payload_bytes < sizeof(*head))
		return;
	at = l4_offset + header;
	DWELL_OPAQUE(at);
	if (at > 3 * DWELL_MAX_OFFSET)
		return;
	head = data + at;
	if ((const void *)(head + 1) > end)
		return;
	content = dwell_content_of(head, packet->payload_bytes);
	if (content == DWELL_CONTENT_TEXT && (head->byte[0] == 'G' || head->byte[0] == 'H')) {
		count = dwell_requests_at(data, end, at, packet->payload_bytes);
		content |= (count < DWELL_CONTENT_REQUESTS ? count : DWELL_CONTENT_REQUESTS) << DWELL_CONTENT_BITS;
	}
	packet->response.content = content;
}

#endif
