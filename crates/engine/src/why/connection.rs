//! Divides the time of one connection into parts, from successive polls of its socket.

use super::{
    Part, Times,
    evidence::{RoundTrip, Silences},
};
use crate::socket::{Estimator, Meter, Reading, TcpInfo, Totals};

/// A pause between two parts of one transfer that is longer is idleness: nobody waits.
const LONGEST_PAUSE_NS: u64 = 1_000_000_000;
/// Up to this many segments in flight are a message, which fills no queue; more are a transfer.
const MESSAGE_SEGMENTS: u32 = 2;
/// TCP repairs a loss from this state on (`TCP_CA_Recovery`).
const RECOVERY: u8 = 3;

/// Which end of a connection this host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It has opened the connection: it asks and waits for answers.
    Client,
    /// It has accepted the connection: it answers.
    Server,
}

/// Who sent last, or who will send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Local,
    Peer,
}

/// The time of one connection, from polls in the order of their times.
#[derive(Debug, Clone)]
pub struct Connection {
    role: Role,
    first: Reading,
    last: Reading,
    polls: u64,
    meter: Meter,
    /// Who sent data last.
    speaker: Side,
    /// Time without anything under way or to read since the last data of either side.
    silence_ns: u64,
    /// Time by polls: of what is under way, and of what is not.
    under_way: Times,
    quiet: Times,
    idle_ns: f64,
    /// Time in which a client that has its answer had not acknowledged it.
    late_ns: f64,
    /// The sums over polls, weighted by time, of the round trips of transfers and of messages.
    transfers: RoundTripSum,
    messages: RoundTripSum,
    busy_polls: u64,
    closed_polls: u64,
    service: Silences,
    answer: Silences,
    pause: Silences,
}

#[derive(Debug, Clone, Copy, Default)]
struct RoundTripSum {
    time_ns: f64,
    mean: f64,
    base: f64,
}

impl RoundTripSum {
    fn add(&mut self, info: &TcpInfo, ns: u64) -> f64 {
        let (rtt, base) = (f64::from(info.rtt_us), f64::from(info.min_rtt_us.unwrap_or(info.rtt_us)));
        if rtt <= 0.0 {
            return 1.0;
        }
        let time = ns as f64;
        self.time_ns += time;
        self.mean += rtt * 1e3 * time;
        self.base += base.min(rtt) * 1e3 * time;
        base.min(rtt) / rtt
    }

    fn round_trip(&self) -> RoundTrip {
        RoundTrip { time_ns: self.time_ns, mean: self.mean, base: self.base }
    }
}

/// The figures of one connection over all of its polls.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionFigures {
    pub(super) role: Role,
    pub(super) polls: u64,
    pub(super) times: Times,
    pub(super) idle_ns: f64,
    pub(super) transfers: RoundTrip,
    pub(super) messages: RoundTrip,
    pub(super) busy_polls: u64,
    pub(super) closed_polls: u64,
    pub(super) service: Silences,
    pub(super) answer: Silences,
    pub(super) pause: Silences,
    pub(super) totals: Totals,
    pub(super) segments_sent: u64,
    pub(super) segments_sent_again: u64,
    pub(super) segments_received: u64,
    pub(super) segments_out_of_order: u64,
}

impl Connection {
    /// Begins with the first poll of a socket.
    pub fn new(role: Role, first: &Reading) -> Connection {
        let info = &first.info;
        let speaker = if info.last_data_sent_ms <= info.last_data_received_ms { Side::Local } else { Side::Peer };
        let mut meter = Meter::new(Estimator::Exact);
        meter.observe(first);
        Connection {
            role,
            first: *first,
            last: *first,
            polls: 1,
            meter,
            speaker,
            silence_ns: 0,
            under_way: Times::default(),
            quiet: Times::default(),
            idle_ns: 0.0,
            late_ns: 0.0,
            transfers: RoundTripSum::default(),
            messages: RoundTripSum::default(),
            busy_polls: 0,
            closed_polls: 0,
            service: Silences::default(),
            answer: Silences::default(),
            pause: Silences::default(),
        }
    }

    /// Adds a poll.
    pub fn observe(&mut self, now: &Reading) {
        let dt_ns = now.time_ns.saturating_sub(self.last.time_ns);
        self.spend(dt_ns);
        let wrote = written(now) > written(&self.last);
        let got = now.info.bytes_received > self.last.info.bytes_received;
        if wrote || got {
            let next = match (wrote, got) {
                (true, false) => Side::Local,
                (false, _) => Side::Peer,
                // Both in one interval: they take turns.
                (true, true) if self.speaker == Side::Local => Side::Peer,
                (true, true) => Side::Local,
            };
            self.break_silence(next);
            self.speaker = match (wrote, got) {
                (true, false) => Side::Local,
                (false, _) => Side::Peer,
                (true, true) => self.last_of_both(&now.info),
            };
        }
        self.meter.observe(now);
        self.polls += 1;
        self.last = *now;
    }

    /// Returns when the socket was last polled, on the clock of the polls.
    pub fn last_ns(&self) -> u64 {
        self.last.time_ns
    }

    /// Attributes time to the state that the last poll found.
    fn spend(&mut self, dt_ns: u64) {
        let last = self.last;
        let (info, time) = (&last.info, dt_ns as f64);
        let waits = info.notsent_bytes.unwrap_or(0) > 0;
        if info.unacked > 0 || waits {
            self.busy_polls += 1;
            let is_closed = info.send_window.is_some_and(|window| window < info.send_mss);
            self.closed_polls += u64::from(is_closed);
            if info.congestion_state >= RECOVERY || info.lost > 0 {
                self.under_way.add(Part::Loss, time);
            } else if info.unacked <= MESSAGE_SEGMENTS && !waits {
                let base = self.messages.add(info, dt_ns);
                self.under_way.add(Part::Distance, time * base);
                match self.role {
                    Role::Client => self.under_way.add(Part::Answer, time * (1.0 - base)),
                    // The client has the answer. It acknowledges it late, and nobody waits for that.
                    Role::Server => self.late_ns += time * (1.0 - base),
                }
            } else {
                let base = self.transfers.add(info, dt_ns);
                self.under_way.add(Part::Transfer, time * base);
                self.under_way.add(Part::RemoteQueue, time * (1.0 - base));
            }
        } else if last.readable.unwrap_or(0) > 0 {
            self.quiet.add(Part::Reader, time);
        } else {
            self.silence_ns += dt_ns;
        }
    }

    /// Attributes the silence to the side that ends it.
    fn break_silence(&mut self, next: Side) {
        let ns = std::mem::take(&mut self.silence_ns);
        if ns == 0 {
            return;
        }
        let is_pause = ns <= LONGEST_PAUSE_NS;
        let part = match (self.speaker, next, self.role) {
            (Side::Local, Side::Local, _) if is_pause => {
                self.pause.add(ns);
                Part::Application
            }
            (Side::Peer, Side::Peer, _) if is_pause => Part::PeerPause,
            (Side::Peer, Side::Local, Role::Server) => {
                self.service.add(ns);
                Part::Service
            }
            (Side::Local, Side::Peer, Role::Client) => {
                self.answer.add(ns);
                Part::Answer
            }
            // Between two requests, or two transfers.
            _ => {
                self.idle_ns += ns as f64;
                return;
            }
        };
        self.quiet.add(part, ns as f64);
    }

    /// Who sent last where both have since the last poll: the kernel's times tell if they are a tick apart.
    fn last_of_both(&self, info: &TcpInfo) -> Side {
        match info.last_data_sent_ms.cmp(&info.last_data_received_ms) {
            std::cmp::Ordering::Less => Side::Local,
            std::cmp::Ordering::Greater => Side::Peer,
            std::cmp::Ordering::Equal if self.role == Role::Server => Side::Local,
            std::cmp::Ordering::Equal => Side::Peer,
        }
    }

    /// Returns the figures so far. The kernel's own times of what was under way, and what limited it, are exact but for
    /// its tick; polls divide what these leave open.
    pub(super) fn figures(&self) -> ConnectionFigures {
        let mut this = self.clone();
        this.end_silence();
        let (first, last) = (&self.first.info, &self.last.info);
        let observed = self.last.time_ns.saturating_sub(self.first.time_ns) as f64;
        let since = |of: fn(&TcpInfo) -> Option<u64>| of(last).zip(of(first)).map(|(b, a)| b.saturating_sub(a) as f64);
        let us = |of| since(of).map(|us| us * 1e3);
        let busy = us(|info| info.busy_us).unwrap_or(this.under_way.total()).min(observed);
        let window = us(|info| info.receiver_limited_us).unwrap_or(0.0).min(busy);
        let buffer = us(|info| info.buffer_limited_us).unwrap_or(0.0).min(busy - window);
        let mut times = Times::default();
        times.add(Part::ReceiverWindow, window);
        times.add(Part::SendBuffer, buffer);
        spread(&this.under_way, busy - window - buffer, &mut times, &mut this.late_ns);
        spread(&this.quiet, observed - busy, &mut times, &mut this.idle_ns);
        let idle_ns = this.idle_ns + this.late_ns;
        let count = |of: fn(&TcpInfo) -> Option<u64>| since(of).unwrap_or(0.0) as u64;
        ConnectionFigures {
            role: self.role,
            polls: self.polls,
            times,
            idle_ns,
            transfers: self.transfers.round_trip(),
            messages: self.messages.round_trip(),
            busy_polls: self.busy_polls,
            closed_polls: self.closed_polls,
            service: this.service,
            answer: this.answer,
            pause: this.pause,
            totals: *self.meter.totals(),
            segments_sent: count(|info| info.data_segments_out.map(u64::from)),
            segments_sent_again: count(|info| Some(info.retransmissions.into())),
            segments_received: count(|info| info.data_segments_in.map(u64::from)),
            segments_out_of_order: count(|info| info.out_of_order.map(u64::from)),
        }
    }

    /// Attributes the silence at the end: to who is to speak next, if the sides have taken turns before.
    fn end_silence(&mut self) {
        match (self.speaker, self.role) {
            (Side::Peer, Role::Server) if self.service.count > 0 => self.break_silence(Side::Local),
            (Side::Local, Role::Client) if self.answer.count > 0 => self.break_silence(Side::Peer),
            _ => self.idle_ns += std::mem::take(&mut self.silence_ns) as f64,
        }
    }
}

/// Distributes `whole` over the parts and `idle_ns` as they were sampled.
fn spread(sampled: &Times, whole: f64, times: &mut Times, idle_ns: &mut f64) {
    let (whole, total) = (whole.max(0.0), sampled.total() + *idle_ns);
    if total <= 0.0 {
        times.add(Part::Unexplained, whole);
        return;
    }
    for part in Part::ALL {
        times.add(part, sampled.get(part) * whole / total);
    }
    *idle_ns *= whole / total;
}

/// The bytes that the application has written, up to a constant.
fn written(reading: &Reading) -> Option<u64> {
    let info = &reading.info;
    let left = info.bytes_sent?.checked_sub(info.bytes_retransmitted?)?;
    left.checked_add(info.notsent_bytes?.into())
}
