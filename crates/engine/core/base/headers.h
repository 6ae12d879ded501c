/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Wire formats. Only the fields that are read have a name. */
#ifndef DWELL_BASE_HEADERS_H
#define DWELL_BASE_HEADERS_H

#include <linux/types.h>

#define DWELL_PACKED __attribute__((packed))

/* The alignment of headers that are read a word at a time. Nothing is aligned on the
 * wire, but the machines that the BPF programs are built for load unaligned words
 * equally fast. Without this the compiler would assemble each word from its bytes.
 */
#if defined(__bpf__)
#define DWELL_WORDS(bytes) __attribute__((packed, aligned(bytes)))
#else
#define DWELL_WORDS(bytes) DWELL_PACKED
#endif

/* EtherTypes and PPP protocols in network byte order, as a little-endian machine reads them. */
#define DWELL_ETH_IPV4 0x0008
#define DWELL_ETH_IPV6 0xdd86
#define DWELL_ETH_ARP 0x0608
#define DWELL_ETH_LLDP 0xcc88
#define DWELL_ETH_VLAN 0x0081 /* 802.1Q */
#define DWELL_ETH_QINQ 0xa888 /* 802.1ad */
#define DWELL_ETH_QINQ_OLD 0x0091
#define DWELL_ETH_MPLS 0x4788
#define DWELL_ETH_MPLS_MULTI 0x4888
#define DWELL_ETH_PPPOE 0x6488
#define DWELL_ETH_BRIDGED 0x5865 /* Ethernet within GRE */
#define DWELL_PPP_IPV4 0x2100
#define DWELL_PPP_IPV6 0x5700

#define DWELL_PROTO_HOP_BY_HOP 0
#define DWELL_PROTO_ICMP 1
#define DWELL_PROTO_IPV4 4
#define DWELL_PROTO_TCP 6
#define DWELL_PROTO_UDP 17
#define DWELL_PROTO_IPV6 41
#define DWELL_PROTO_ROUTING 43
#define DWELL_PROTO_FRAGMENT 44
#define DWELL_PROTO_GRE 47
#define DWELL_PROTO_AH 51
#define DWELL_PROTO_ICMPV6 58
#define DWELL_PROTO_DEST_OPTIONS 60
#define DWELL_PROTO_MOBILITY 135

struct dwell_ethernet {
	__u8 addresses[12];
	__u16 type;
} DWELL_WORDS(2);

struct dwell_vlan {
	__u16 tag;
	__u16 type;
} DWELL_PACKED;

struct dwell_pppoe {
	__u8 version_type;
	__u8 code;
	__u16 session;
	__u16 length;
	__u16 ppp_protocol;
} DWELL_PACKED;

struct dwell_gre {
	__u16 flags;
	__u16 type;
} DWELL_PACKED;
#define DWELL_GRE_CHECKSUM 0x0080
#define DWELL_GRE_ROUTING 0x0040
#define DWELL_GRE_KEY 0x0020
#define DWELL_GRE_SEQUENCE 0x0010
#define DWELL_GRE_VERSION 0x0700

struct dwell_ipv4 {
	__u8 version_length;
	__u8 tos;
	__u16 total_length;
	__u16 id;
	__u16 fragment; /* a fragment if any bit of 0xff3f is set */
	__u8 ttl;
	__u8 proto;
	__u16 checksum;
	__u32 src;
	__u32 dst;
} DWELL_WORDS(4);

struct dwell_ipv6 {
	__u32 version_class_flow;
	__u16 payload_length;
	__u8 next;
	__u8 hop_limit;
	__u64 src_high;
	__u64 src_low;
	__u64 dst_high;
	__u64 dst_low;
} DWELL_WORDS(8);

struct dwell_ipv6_fragment {
	__u8 next;
	__u8 reserved;
	__u16 offset_more;
	__u32 id;
} DWELL_WORDS(4);

struct dwell_tcp {
	__u16 src_port;
	__u16 dst_port;
	__u32 seq;
	__u32 ack;
	__u8 data_offset;
	__u8 flags;
	__u16 window;
	__u16 checksum;
	__u16 urgent;
} DWELL_WORDS(4);
#define DWELL_TCP_FIN 1
#define DWELL_TCP_SYN 2
#define DWELL_TCP_RST 4
#define DWELL_TCP_PSH 8
#define DWELL_TCP_ACK 16

struct dwell_tcp_ts_option {
	__u32 head; /* 01 01 08 0a, as all common stacks send it */
	__u32 value;
	__u32 echo;
} DWELL_WORDS(4);
#define DWELL_TCP_TS_HEAD 0x0a080101

struct dwell_udp {
	__u16 src_port;
	__u16 dst_port;
	__u16 length;
	__u16 checksum;
} DWELL_WORDS(4);

/* Ports of overlays in network byte order: VXLAN's (RFC 7348), the one that Linux took before it had one, and Geneve's
 * (RFC 8926).
 */
#define DWELL_PORT_VXLAN 0xb512
#define DWELL_PORT_VXLAN_LINUX 0x1821
#define DWELL_PORT_GENEVE 0xc117

/* What follows the header of UDP to one of these ports. */
struct dwell_overlay {
	struct dwell_udp udp;
	__u8 first;  /* VXLAN: flags; Geneve: version and words of options */
	__u8 second; /* VXLAN: reserved; Geneve: flags */
	__u16 type;  /* VXLAN: reserved, or a group; Geneve: EtherType of what is inside */
	__u8 network[3];
	__u8 reserved;
} DWELL_PACKED;
#define DWELL_VXLAN_NETWORK 0x08 /* the network's number is valid */
#define DWELL_VXLAN_GROUP 0x80

struct dwell_icmp_echo {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u16 id;
	__u16 seq;
} DWELL_WORDS(4);

struct dwell_dns_header {
	__u16 id;
	__u8 flags; /* QR, opcode, AA, TC, RD */
	__u8 flags2;
	__u16 questions;
	__u16 answers;
	__u16 authorities;
	__u16 additionals;
} DWELL_PACKED;

struct dwell_quic_long {
	__u8 first;
	__u32 version;
} DWELL_PACKED;

/* How a payload begins, as far as it can be read: the lower bits of a byte. The others count the requests in text that lie
 * in the payload, 0 standing for one.
 */
#define DWELL_CONTENT_BITS 3
#define DWELL_CONTENT_REQUESTS 31
enum dwell_content {
	DWELL_CONTENT_OTHER,
	DWELL_CONTENT_TEXT,          /* a request of a protocol in text: HTTP/1, Redis, memcached */
	DWELL_CONTENT_TLS_HANDSHAKE, /* a record of TLS other than application data */
	DWELL_CONTENT_TLS_CONTROL,   /* application data too short for a request: a frame that manages HTTP/2 */
	DWELL_CONTENT_FRAMES,        /* HTTP/2 in the clear */
	DWELL_CONTENT_MESSAGE,       /* of a WebSocket in the clear */
};

#endif
