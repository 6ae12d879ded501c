/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The headers of TCP and UDP: one reader for all programs, so that what one calls malformed no other measures. */
#ifndef DWELL_PARSE_TRANSPORT_H
#define DWELL_PARSE_TRANSPORT_H

#include "parse/packet.h"

struct dwell_transport {
	__u16 src_port; /* host byte order */
	__u16 dst_port;
	__u32 header_bytes;
};

/* Reads a TCP header at `l4_offset`, of which IP carries `l4_bytes`: fills `transport`, and kind, numbers, flags and
 * payload length of the packet. Returns DWELL_FRAME_OK, or the counter that says why it is of no use.
 */
static __always_inline __u32 dwell_read_tcp(const void *data, const void *end, __u32 l4_offset, __u32 l4_bytes,
					    struct dwell_packet *packet, struct dwell_transport *transport)
{
	DWELL_PEEK(struct dwell_tcp, tcp, l4_offset, DWELL_SKIP_TRUNCATED);
	__u32 header = (tcp->data_offset >> 4) * 4;

	if (header < sizeof(*tcp) || header > l4_bytes)
		return DWELL_SKIP_MALFORMED;
	transport->src_port = dwell_ntohs(tcp->src_port);
	transport->dst_port = dwell_ntohs(tcp->dst_port);
	transport->header_bytes = header;
	packet->kind = DWELL_KIND_TCP;
	packet->payload_bytes = l4_bytes - header;
	packet->tcp_flags = tcp->flags;
	packet->seq = dwell_ntohl(tcp->seq);
	packet->ack = dwell_ntohl(tcp->ack);
	/* no stack opens a connection by a SYN that is a FIN too */
	packet->may_open = !(tcp->flags & DWELL_TCP_RST) &&
			   (tcp->flags & (DWELL_TCP_SYN | DWELL_TCP_FIN)) != (DWELL_TCP_SYN | DWELL_TCP_FIN);
	return DWELL_FRAME_OK;
}

/* Reads a UDP header as dwell_read_tcp() reads one of TCP. Its length is at least 8 (RFC 768) and at most what IP
 * carries; over IPv6 a length of 0 stands for all of that, as jumbograms have it (RFC 2675 section 4) and Linux takes
 * it from packets of any size. Over IPv4 such a packet is malformed: stacks drop it.
 */
static __always_inline __u32 dwell_read_udp(const void *data, const void *end, __u32 l4_offset, __u32 l4_bytes,
					    int is_ipv6, struct dwell_packet *packet, struct dwell_transport *transport)
{
	DWELL_PEEK(struct dwell_udp, udp, l4_offset, DWELL_SKIP_TRUNCATED);
	__u32 bytes = dwell_ntohs(udp->length);

	if (!bytes && is_ipv6)
		bytes = l4_bytes;
	if (bytes < sizeof(*udp) || bytes > l4_bytes)
		return DWELL_SKIP_MALFORMED;
	transport->src_port = dwell_ntohs(udp->src_port);
	transport->dst_port = dwell_ntohs(udp->dst_port);
	transport->header_bytes = sizeof(*udp);
	packet->kind = DWELL_KIND_UDP;
	packet->payload_bytes = l4_bytes - sizeof(*udp);
	return DWELL_FRAME_OK;
}

#endif
