//! What one poll of a socket says, and two in a row.

use std::cmp::Ordering;

use super::{
    connection::{MESSAGE_SEGMENTS, Side},
    figures::RoundTrip,
};
use crate::socket::{Reading, TcpInfo};

/// The state in which the peer has closed its side.
pub(super) const CLOSE_WAIT: u8 = 8;
/// Both sides have been closed, the peer's first (LAST_ACK), or this one (CLOSING).
const BOTH_CLOSED: [u8; 2] = [9, 11];

/// Whether less than a segment waits although both windows have room: TCP holds it back until what is in flight is
/// acknowledged (Nagle's algorithm).
pub(super) fn is_held_back(reading: &Reading) -> bool {
    let info = &reading.info;
    let waiting = info.notsent_bytes.unwrap_or(0);
    // What is in flight and what waits, which the peer's window is for.
    let outstanding =
        reading.unacknowledged.unwrap_or_else(|| (u64::from(info.unacked) + 1) * u64::from(info.send_mss));
    let has_room = info.unacked < info.cwnd && info.send_window.is_none_or(|window| u64::from(window) > outstanding);
    waiting > 0 && waiting < info.send_mss && (1..=MESSAGE_SEGMENTS).contains(&info.unacked) && has_room
}

/// Whether less than a segment waits with nothing in flight and room in the window, and not for the limit of the socket's rate: the
/// application has said that more follows (MSG_MORE, TCP_CORK). No path and no queue has anything to do with that.
pub(super) fn is_corked(info: &TcpInfo) -> bool {
    let waiting = info.notsent_bytes.unwrap_or(0);
    info.unacked == 0
        && waiting > 0
        && waiting < info.send_mss
        && info.send_window.is_none_or(|window| window >= waiting)
        && !is_at_rate_limit(info)
}

/// Whether data waits although nothing is in flight, the peer's window has room, and the socket is not at the limit of its rate. That
/// lasts only where this host drops what it sends.
pub(super) fn is_stuck(info: &TcpInfo) -> bool {
    let has_room = info.send_window.is_some_and(|window| window >= info.send_mss);
    info.unacked == 0 && info.notsent_bytes > Some(0) && has_room && !is_at_rate_limit(info)
}

/// Whether the application has set a limit of the rate (SO_MAX_PACING_RATE) that data leaves at.
fn is_at_rate_limit(info: &TcpInfo) -> bool {
    info.max_pacing_rate.is_some_and(|limit| info.pacing_rate >= Some(limit))
}

/// Whether it stands for the search that did not find the connection yet, and is of no state of the kernel.
pub(super) fn is_before_it_began(reading: &Reading) -> bool {
    reading.info.state == 0
}

/// The bytes that have arrived and were not read. The kernel counts the end of the peer's data (FIN) as one more.
pub(super) fn unread(reading: &Reading) -> u64 {
    reading.readable.unwrap_or(0).saturating_sub(u64::from(reading.info.state == CLOSE_WAIT))
}

/// The bytes that have arrived. The kernel counts the end of the peer's data (FIN) as one more.
pub(super) fn arrived(reading: &Reading) -> Option<u64> {
    let state = reading.info.state;
    let has_ended = state == CLOSE_WAIT || BOTH_CLOSED.contains(&state);
    Some(reading.info.bytes_received?.saturating_sub(has_ended.into()))
}

/// The bytes that the application has written, up to a constant.
pub(super) fn written(reading: &Reading) -> Option<u64> {
    let info = &reading.info;
    let left = info.bytes_sent?.checked_sub(info.bytes_retransmitted?)?;
    left.checked_add(info.notsent_bytes?.into())
}

/// Returns how many bytes were written that the peer has not acknowledged; 0 if the kernel does not tell.
pub(super) fn unacknowledged(reading: &Reading) -> u64 {
    // The SYN counts as a byte.
    let acked = reading.info.bytes_acked.map(|acked| acked.saturating_sub(1));
    written(reading).zip(acked).map_or(0, |(written, acked)| written.saturating_sub(acked))
}

/// Adds the round trips of a poll, which stands for this much time. Returns the share of the shortest in the smoothed one.
pub(super) fn round_trip(sum: &mut RoundTrip, info: &TcpInfo, ns: u64) -> f64 {
    let (rtt, base) = (f64::from(info.rtt_us), f64::from(info.min_rtt_us.unwrap_or(info.rtt_us)));
    if rtt <= 0.0 {
        return 1.0;
    }
    sum.observe(ns, rtt * 1e3, base.min(rtt) * 1e3);
    base.min(rtt) / rtt
}

/// Who sent last where both have between two polls. Data of this host that is not acknowledged is the last there was; what was
/// acknowledged by data alone was followed by that data. Else the kernel's times tell if they are a tick apart.
pub(super) fn last_of_both(before: &TcpInfo, info: &TcpInfo) -> Option<Side> {
    let received = |of: &TcpInfo| Some((of.segments_in?, of.data_segments_in?));
    let pure = received(info).zip(received(before)).map(|((all, data), (all_before, data_before))| {
        all.wrapping_sub(all_before).saturating_sub(data.wrapping_sub(data_before))
    });
    match info.last_data_sent_ms.cmp(&info.last_data_received_ms) {
        _ if info.unacked > 0 => Some(Side::Local),
        _ if pure == Some(0) => Some(Side::Peer),
        Ordering::Less => Some(Side::Local),
        Ordering::Greater => Some(Side::Peer),
        Ordering::Equal => None,
    }
}

/// Whether this host has acknowledged something between two polls with a segment that had no data.
pub(super) fn has_acknowledged(before: &TcpInfo, info: &TcpInfo) -> bool {
    let without_data = |of: &TcpInfo| Some(of.segments_out?.wrapping_sub(of.data_segments_out?));
    without_data(info).zip(without_data(before)).is_some_and(|(now, before)| now != before)
}
