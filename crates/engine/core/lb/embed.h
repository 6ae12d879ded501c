/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* All that a program must supply to run the balancer (lb/balance.h): the functions below, those of lb/frame_embed.h,
 * and all of response/embed.h, as connections lie on its table.
 *
 * Numbers of VIPs and reals are 1 to their maximum; 0 is none. A slot is that of a VIP with the policy zero-rtt
 * (dwell_vip.zero_slot). A server index is plus 1 where 0 means none.
 */
#ifndef DWELL_LB_EMBED_H
#define DWELL_LB_EMBED_H

#include "lb/frame_embed.h"
#include "response/embed.h"

struct dwell_address;
struct dwell_balance_config;
struct dwell_budget;
struct dwell_chances;
struct dwell_cid_entry;
struct dwell_decision;
struct dwell_heartbeat;
struct dwell_heavy;
struct dwell_opening;
struct dwell_pending;
struct dwell_heavy_config;
struct dwell_inner;
struct dwell_load;
struct dwell_real;
struct dwell_server_load;
struct dwell_vip;
struct dwell_vip_filter;
struct dwell_vip_key;
struct dwell_zero_name;
struct dwell_zero_state;
struct dwell_zero_vip;
struct dwell_zero_work;

/* Frames. */

/* Cuts the frame off behind `bytes`. Returns false, and changes nothing, if it is shorter. */
static __always_inline int dwell_frame_cut(DWELL_FRAME *frame, __u32 bytes);

/* Configuration and tables. */

/* Returns the configuration that the program was loaded with. Never null. */
static __always_inline const struct dwell_balance_config *dwell_balance_config_of(void *embedder);

/* Returns the bitmap of addresses that may be VIPs. Null: every packet passes. */
static __always_inline const struct dwell_vip_filter *dwell_vip_filter_of(void *embedder);

/* Returns the VIP with exactly this key; null if there is none. */
static __always_inline const struct dwell_vip *dwell_vip_at(void *embedder, const struct dwell_vip_key *key);

/* Returns a real by its number; null if the number is beyond the array. */
static __always_inline const struct dwell_real *dwell_real_at(void *embedder, __u32 number);

/* Returns the number of the real at an entry of a Maglev table, which has the number of its VIP; 0 if there is none. */
static __always_inline __u32 dwell_entry_at(void *embedder, __u32 table, __u32 index);

/* Returns the list of a VIP's reals, DWELL_MEMBERS entries with what is unused, which has this number among the tables.
 * Null: there is none.
 */
static __always_inline const struct dwell_member *dwell_members_at(void *embedder, __u32 table);

/* Returns the control plane's sign of life. Null: there is none. */
static __always_inline const struct dwell_heartbeat *dwell_heartbeat_of(void *embedder);

/* Returns where this CPU counts what a VIP was sent; null: it is not counted. */
static __always_inline struct dwell_load *dwell_vip_load_at(void *embedder, __u32 number);

/* Returns where this CPU counts what a real was sent; null: it is not counted. */
static __always_inline struct dwell_load *dwell_real_load_at(void *embedder, __u32 number);

/* Returns the number of a real's open connections: an estimate that user space corrects from time to time, so it may be
 * negative for a moment. Null: it is not counted.
 */
static __always_inline __s64 *dwell_open_at(void *embedder, __u32 number);

/* Returns where a sweep counts a real's connections: all in the upper half, active ones in the lower. Null: nowhere. */
static __always_inline __u64 *dwell_active_at(void *embedder, __u32 number);

/* Returns where a sweep counts the requests that wait at a real. Null: nowhere. */
static __always_inline struct dwell_pending *dwell_pending_at(void *embedder, __u32 number);

/* Returns this CPU's budget by its enum dwell_budget_kind. Null: nothing is allowed. */
static __always_inline struct dwell_budget *dwell_budget_at(void *embedder, __u32 kind);

/* Returns the state that a slot with this index has if all of them take and give states as they come and go: known before the
 * slot has been read. Null if there is none.
 */
static __always_inline const union dwell_response_state *dwell_state_likely(void *embedder, __u32 slot_index);

/* Counts a SYN whose checksum was left to a device. */
static __always_inline void dwell_unfinished_count(void *embedder);

/* Steps that BPF verifies apart. Each is the core function that is named, or a call of it. */

/* dwell_lb_parse_unusual(): reads a packet that the fast path could not. Returns a DWELL_READING(). */
static __always_inline __u32 dwell_balance_parse_unusual(DWELL_FRAME *frame, struct dwell_packet *packet);

/* dwell_select(): selects a real by the Maglev table. Returns an enum dwell_reason. */
static __always_inline __u32 dwell_balance_select(void *embedder, struct dwell_packet *packet);

/* dwell_least(): returns the real with the fewest open connections for its weight of a list; 0 if there is none. */
static __always_inline __u32 dwell_balance_least(void *embedder, __u32 table, __u64 hash);

/* dwell_select_new(): handles a packet of no known connection. Returns a DWELL_SELECTION(). */
static __always_inline __u64 dwell_balance_select_new(struct dwell_table *table, struct dwell_packet *packet,
						      int dry_run);

/* dwell_select_again(): selects anew for a connection that must leave its real. Returns a DWELL_SELECTION(). */
static __always_inline __u64 dwell_balance_select_again(struct dwell_table *table, struct dwell_packet *packet,
							__u32 slot_index, int dry_run);

/* dwell_select_other(): handles a packet that may be of another connection than the one that is known with its endpoints.
 * Returns false if it goes to the real of that.
 */
static __always_inline int dwell_balance_select_other(void *embedder, struct dwell_packet *packet);

/* dwell_kept_ways(): returns the ways of a bucket with connections that may go on, as bits. */
static __always_inline __u32 dwell_balance_kept_ways(struct dwell_table *table, __u32 index);

/* dwell_balance_send(): wraps and sends a packet to decision->real. Returns an enum dwell_verdict. */
static __always_inline __u32 dwell_balance_forward(DWELL_FRAME *frame, struct dwell_table *table,
						   const struct dwell_packet *packet, __u32 ingress, int dry_run,
						   struct dwell_decision *decision);

/* dwell_balance_send_second(): the same for a packet that further reals may get after that one. */
static __always_inline __u32 dwell_balance_forward_second(DWELL_FRAME *frame, struct dwell_table *table,
							  const struct dwell_packet *packet, __u32 ingress, int dry_run,
							  struct dwell_decision *decision);

/* dwell_chances_find(): finds the further reals of a packet. Returns how many there are. */
static __always_inline __u32 dwell_balance_chances(void *embedder, const struct dwell_packet *packet,
						   struct dwell_chances *chances);

/* dwell_chances_find() without a list: returns 1 if there is one. */
static __always_inline __u32 dwell_balance_has_chance(void *embedder, const struct dwell_packet *packet);

/* dwell_wrap(): puts outer headers towards a real around a packet. Returns false if there is no room. */
static __always_inline int dwell_balance_wrap(DWELL_FRAME *frame, void *embedder, __u32 real,
					      struct dwell_inner *inner);

/* dwell_reply_ping(): turns an echo request into its reply. Returns false if it is cut off. */
static __always_inline int dwell_balance_ping(DWELL_FRAME *frame, __u32 l4_offset);

/* dwell_too_big(): turns a packet of this IP version into an ICMP error that names `mtu`. Returns false if the frame
 * has no room.
 */
static __always_inline int dwell_balance_too_big(DWELL_FRAME *frame, __u32 version, __u32 mtu);

/* QUIC by connection ID: tables. */

/* Returns the state that all VIPs of zero-rtt share. Null: no VIP has that policy. */
static __always_inline const struct dwell_zero_state *dwell_zero_state_of(void *embedder);

/* Returns a VIP's configuration by slot; null if there is none. */
static __always_inline const struct dwell_zero_vip *dwell_zero_vip_at(void *embedder, __u32 slot);

/* Returns what a VIP's servers say of their load: DWELL_SERVERS_MAX entries. Null if the slot has none. */
static __always_inline struct dwell_server_load *dwell_zero_loads_at(void *embedder, __u32 slot);

/* Returns a server's table of heavy hitters by its number; null if there is none. */
static __always_inline struct dwell_heavy *dwell_heavy_at(void *embedder, __u32 number);

/* Returns the heavy hitters that the same server has at other balancers; null if there is no such table. */
static __always_inline const struct dwell_heavy *dwell_other_heavy_at(void *embedder, __u32 number);

/* Returns a server's index plus 1 by the ID in a connection ID of our own layout; 0: no server has it. */
static __always_inline __u32 dwell_zero_server_by_id(void *embedder, __u32 slot, __u32 id);

/* Returns a server's index plus 1 by the ID in a connection ID of another layout; 0: no server has it. */
static __always_inline __u32 dwell_zero_server_by_name(void *embedder, const struct dwell_zero_name *name);

/* Returns a server's index plus 1 by the number of its real; 0: it is not a server of such a VIP. */
static __always_inline __u32 dwell_zero_server_by_real(void *embedder, __u32 real);

/* Returns this CPU's cache entry for connection IDs with this hash. Null: nothing is cached. */
static __always_inline struct dwell_cid_entry *dwell_cid_entry_at(void *embedder, __u32 hash);

/* Returns a cache entry of this CPU that no look-up finds, as scratch space. Null: packets go as any UDP does. */
static __always_inline struct dwell_cid_entry *dwell_cid_scratch(void *embedder);

/* Returns scratch space of this CPU for opening a connection ID. Null: packets go as any UDP does. */
static __always_inline struct dwell_zero_work *dwell_zero_work_of(void *embedder);

/* Returns this CPU's bucket of networks by its number, below DWELL_OPENINGS. Null: any number of forged connection IDs
 * is opened.
 */
static __always_inline struct dwell_opening *dwell_opening_at(void *embedder, __u32 number);

/* Calls dwell_opening_may_open(), which BPF verifies apart. */
static __always_inline int dwell_zero_may_open(void *embedder, const struct dwell_packet *packet);

/* Calls dwell_opening_note_opened(), which BPF verifies apart. */
static __always_inline __u32 dwell_zero_note_opened(void *embedder, const struct dwell_packet *packet,
						    const struct dwell_cid_entry *entry, __u32 server);

/* Counts one: an enum dwell_zero_counter. */
static __always_inline void dwell_zero_count(void *embedder, __u32 counter);

/* Returns seconds of a clock that becomes Unix time by adding dwell_zero_state.unix_offset_s. */
static __always_inline __u32 dwell_zero_clock_s(void *embedder);

/* dwell_read_turn(): reads what the estimator of response latency needs of a TCP packet; BPF verifies it apart. */
static __always_inline void dwell_balance_read_turn(DWELL_FRAME *frame, struct dwell_packet *packet, __u32 l4_offset);

/* QUIC by connection ID: steps that BPF verifies apart. Each is the core function that is named, or a call of it. */

/* dwell_zero_vip_at_port(): returns number and slot of the VIP that a packet is sent to; 0 if it is not one of these. */
static __always_inline __u64 dwell_zero_vip_of(void *embedder, const struct dwell_packet *packet);

/* dwell_zero_route(): routes a UDP packet by its connection ID. Returns an enum dwell_reason, or DWELL_REASON_FLOW. */
static __always_inline __u32 dwell_balance_zero_route(DWELL_FRAME *frame, void *embedder, struct dwell_packet *packet,
						      __u32 l4_offset, int dry_run);

/* dwell_zero_open_block(): opens a connection ID or token of one block. Returns a server's index, or DWELL_ZERO_NONE().
 */
static __always_inline __u32 dwell_zero_open_own(void *embedder, __u32 rotation, __u64 check,
						 struct dwell_cid_entry *entry);

/* dwell_zero_open_other(): opens any other connection ID, from offset `at` on. Returns as the one above. */
static __always_inline __u32 dwell_zero_open_foreign(DWELL_FRAME *frame, void *embedder, __u32 slot, __u32 rotation,
						     __u32 at);

/* dwell_attempt_key(): adds the connection ID at offset `at`, which the client drew, to the packet's key. */
static __always_inline void dwell_zero_add_attempt(DWELL_FRAME *frame, struct dwell_packet *packet, __u32 at);

/* dwell_token_read(): reads the token of the Initial at offset `at`, and stores where it leads in packet->lb.token. */
static __always_inline void dwell_zero_read_token(DWELL_FRAME *frame, void *embedder, struct dwell_packet *packet,
						  __u32 at, int dry_run);

/* dwell_zero_account(): counts a client's packet and takes over the load that its connection ID reports. */
static __always_inline void dwell_zero_account_packet(void *embedder, const struct dwell_packet *packet,
						      struct dwell_cid_entry *entry);

/* dwell_zero_divert(): returns the real that a new connection is diverted to, with DWELL_ZERO_IS_HEAVY or
 * DWELL_ZERO_CHECK_ANYWHERE; 0 if it stays.
 */
static __always_inline __u32 dwell_zero_divert_packet(void *embedder, const struct dwell_packet *packet);

/* dwell_heavy_admit() with a random number: counts a client that the table does not have, and may put it there. */
static __always_inline void dwell_zero_admit(void *embedder, struct dwell_heavy *heavy,
					     const struct dwell_address *client, __u16 port,
					     const struct dwell_heavy_config *config);

/* dwell_heavy_has(): returns true if a connection of this address is among the server's heaviest. */
static __always_inline int dwell_zero_has_heavy(void *embedder, const struct dwell_heavy *heavy,
						const struct dwell_address *client,
						const struct dwell_heavy_config *config);

/* Returns true if a packet's client is heavy at any server of its VIP: dwell_zero_is_heavy_at() for each of them. */
static __always_inline int dwell_zero_is_heavy_anywhere(void *embedder, const struct dwell_packet *packet);

#endif
