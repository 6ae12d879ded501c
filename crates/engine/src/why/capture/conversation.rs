//! A connection in a capture, and the division of its time.

use std::collections::VecDeque;

use super::{
    super::{
        Part, Role, Times,
        connection::{ConnectionFigures, longest_pause_ns},
        evidence::{RoundTrip, Silences},
    },
    sender::{Path, Sender},
};
use crate::{layers::Ends, rtt::native::Segment};

/// Timestamps that wait for their echo, per end.
const MAX_STAMPS: usize = 256;
/// An end that sends this many times as much as the other is the one whose limits count.
const MOSTLY: u64 = 4;
/// The fewest bytes that make an end the sender of a transfer.
const TRANSFER_BYTES: u64 = 64 << 10;
/// Types of TLS's records.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_DATA: u8 = 0x17;

/// A connection: end 0 sent the first packet that was captured.
#[derive(Debug)]
pub(super) struct Conversation {
    ends: Ends,
    senders: [Sender; 2],
    /// The way from the place of the capture to each end and back.
    reach: [Reach; 2],
    /// TSvals of each end that were not echoed yet, with when they first passed.
    stamps: [VecDeque<(u32, u64)>; 2],
    client: usize,
    phase: Phase,
    set_up: SetUp,
    /// Who sent data last.
    speaker: Option<usize>,
    silence_ns: u64,
    /// What the speaker has sent since the last silence, and its longest segment.
    burst_bytes: u64,
    longest_segment: u64,
    /// Silences by who spoke before and who broke them.
    quiet: [[Silences; 2]; 2],
    idle_ns: f64,
    start_ns: u64,
    last_ns: u64,
    /// Packets of each end.
    packets: [u64; 2],
    transfers: [RoundTrip; 2],
    is_over: bool,
}

/// The way from the place of the capture to an end and back.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    base_ns: Option<u64>,
    smoothed_ns: f64,
}

impl Reach {
    fn add(&mut self, sample_ns: u64, smooths: bool) {
        self.base_ns = Some(self.base_ns.map_or(sample_ns, |base| base.min(sample_ns)));
        if smooths {
            let sample = sample_ns as f64;
            self.smoothed_ns = match self.smoothed_ns > 0.0 {
                true => self.smoothed_ns + (sample - self.smoothed_ns) / 8.0,
                false => sample,
            };
        }
    }

    fn base(&self) -> u64 {
        self.base_ns.unwrap_or(0)
    }

    fn current(&self) -> u64 {
        (self.smoothed_ns as u64).max(self.base())
    }
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between the first SYN and the end of TCP's handshake.
    Opening,
    /// In TLS's handshake.
    Securing,
    /// Open, or captured from the middle on.
    Open,
}

#[derive(Debug, Clone, Copy, Default)]
struct SetUp {
    /// When the first SYN passed, and the times that the handshakes took.
    syn_ns: Option<u64>,
    tcp_ns: u64,
    tls_ns: u64,
    retries: u64,
    time_ns: f64,
}

impl Conversation {
    pub(super) fn new(first: &Segment) -> Conversation {
        const FIRST_OF_CLIENTS: u16 = 32768;
        let is_syn = first.has(Segment::SYN);
        let client = match is_syn {
            true => usize::from(first.has(Segment::ACK)),
            false => usize::from(first.src.port < FIRST_OF_CLIENTS && first.dst.port >= FIRST_OF_CLIENTS),
        };
        Conversation {
            ends: Ends { src: first.src, dst: first.dst },
            senders: <[Sender; 2]>::default(),
            reach: [Reach::default(); 2],
            stamps: [VecDeque::new(), VecDeque::new()],
            client,
            phase: if is_syn { Phase::Opening } else { Phase::Open },
            set_up: SetUp::default(),
            speaker: None,
            silence_ns: 0,
            burst_bytes: 0,
            longest_segment: 0,
            quiet: [[Silences::default(); 2]; 2],
            idle_ns: 0.0,
            start_ns: first.time_ns,
            last_ns: first.time_ns,
            packets: [0; 2],
            transfers: [RoundTrip::default(); 2],
            is_over: false,
        }
    }

    /// Whether both ends have closed it, or one has broken it off: a SYN begins another connection.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns when the last packet passed.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(super) fn observe(&mut self, segment: &Segment) {
        let side = usize::from(segment.src != self.ends.src);
        // Packets of several queues may be captured out of order.
        let now_ns = segment.time_ns.max(self.last_ns);
        self.advance(now_ns);
        self.packets[side] += 1;
        self.open(side, segment);
        self.read_stamps(side, segment);
        if segment.has(Segment::ACK) && !segment.has(Segment::RST) {
            let other = 1 - side;
            let scale = if segment.has(Segment::SYN) { Some(0) } else { self.senders[side].scale };
            let (reach_ns, peer_ns) = (self.reach[other].base(), self.reach[side].base());
            let sample = self.senders[other].acknowledge(segment, scale, reach_ns, peer_ns);
            if let Some(sample) = sample {
                let is_transfer = self.senders[other].is_transferring();
                self.reach[side].add(sample, is_transfer);
            }
            self.senders[other].arrive(now_ns);
        }
        if segment.payload_bytes > 0 && !segment.has(Segment::SYN) {
            self.take_data(side, segment);
        }
        self.is_over |= segment.has(Segment::RST) || segment.has(Segment::FIN);
    }

    fn take_data(&mut self, side: usize, segment: &Segment) {
        let (path, own_ns) = (self.path(side), self.reach[side].base());
        if !self.senders[side].send(segment, path, own_ns) {
            return;
        }
        if self.phase == Phase::Open {
            self.break_silence(side);
        }
        let bytes = u64::from(segment.payload_bytes);
        if self.speaker != Some(side) {
            self.burst_bytes = 0;
        }
        self.burst_bytes += bytes;
        self.longest_segment = self.longest_segment.max(bytes);
        self.speaker = Some(side);
    }

    /// Follows TCP's handshake and TLS's.
    fn open(&mut self, side: usize, segment: &Segment) {
        let now_ns = segment.time_ns;
        if segment.has(Segment::SYN) {
            let sender = &mut self.senders[side];
            sender.mss = segment.mss.map(u32::from).or(sender.mss);
            sender.scale = Some(segment.scale.unwrap_or(0));
            // Without the option on both sides no window is scaled.
            if segment.scale.is_none() {
                self.senders.iter_mut().for_each(|sender| sender.scale = Some(0));
            }
            if !segment.has(Segment::ACK) {
                self.client = side;
                match self.set_up.syn_ns {
                    None => self.set_up.syn_ns = Some(now_ns),
                    Some(_) => self.set_up.retries += 1,
                }
            } else if let Some(syn_ns) = self.set_up.syn_ns
                && self.set_up.retries == 0
            {
                self.reach[side].add(now_ns.saturating_sub(syn_ns), false);
                self.set_up.tcp_ns = now_ns.saturating_sub(syn_ns);
            }
            return;
        }
        if self.phase == Phase::Opening && side == self.client && segment.has(Segment::ACK) {
            let took = self.set_up.syn_ns.map_or(0, |syn| now_ns.saturating_sub(syn));
            if self.set_up.retries == 0 && took >= self.set_up.tcp_ns {
                self.reach[side].add(took - self.set_up.tcp_ns, false);
            }
            self.set_up.tcp_ns = took;
            self.phase = Phase::Open;
        }
        let is_first = self.speaker.is_none();
        match (self.phase, segment.tls) {
            (Phase::Open, Some(TLS_HANDSHAKE)) if is_first && side == self.client && self.set_up.syn_ns.is_some() => {
                self.phase = Phase::Securing;
            }
            (Phase::Securing, Some(TLS_DATA)) if side == self.client => {
                let open_ns = self.set_up.syn_ns.unwrap_or(now_ns) + self.set_up.tcp_ns;
                self.set_up.tls_ns = now_ns.saturating_sub(open_ns);
                self.phase = Phase::Open;
            }
            _ => {}
        }
    }

    /// A TSval that is echoed shows the way to the echoing end and back, even if that end alone sends data.
    fn read_stamps(&mut self, side: usize, segment: &Segment) {
        let Some((value, echo)) = segment.stamps else {
            return;
        };
        let own = &mut self.stamps[side];
        if own.back().is_none_or(|(last, _)| *last != value) {
            if own.len() == MAX_STAMPS {
                own.pop_front();
            }
            own.push_back((value, segment.time_ns));
        }
        let theirs = &mut self.stamps[1 - side];
        let Some(found) = theirs.iter().position(|(value, _)| *value == echo) else {
            return;
        };
        let (_, passed_ns) = theirs[found];
        theirs.drain(..=found);
        let sender = &self.senders[side];
        let is_prompt = segment.payload_bytes > 0 && sender.is_transferring();
        self.reach[side].add(segment.time_ns.saturating_sub(passed_ns), is_prompt);
    }

    /// The round trip of the path for data of one end.
    fn path(&self, sender: usize) -> Path {
        let (own, peer) = (self.reach[sender], self.reach[1 - sender]);
        Path { base_ns: own.base() + peer.base(), current_ns: own.current() + peer.current() }
    }

    /// The end whose limits count: the sender of a transfer, else the one that the capture was taken at.
    fn local(&self) -> usize {
        let bytes = [0, 1].map(|side| self.senders[side].figures.bytes);
        let sends_most = |side: usize| bytes[side] > TRANSFER_BYTES.max(MOSTLY * bytes[1 - side]);
        match (sends_most(0), sends_most(1)) {
            (true, _) => 0,
            (_, true) => 1,
            _ => usize::from(self.reach[1].base() < self.reach[0].base()),
        }
    }

    /// Attributes the time until now to the state that the packets before have left, with each arrival of an
    /// acknowledgement.
    fn advance(&mut self, now_ns: u64) {
        while self.last_ns < now_ns {
            let arrival = self.senders.iter().filter_map(Sender::next_arrival).min();
            let until_ns = arrival.map_or(now_ns, |arrives_ns| arrives_ns.clamp(self.last_ns, now_ns));
            self.spend(until_ns);
            self.last_ns = until_ns;
            self.senders.iter_mut().for_each(|sender| sender.arrive(until_ns));
            if arrival.is_none_or(|arrives_ns| arrives_ns > now_ns) {
                break;
            }
        }
        self.last_ns = now_ns;
    }

    fn spend(&mut self, until_ns: u64) {
        let time_ns = until_ns.saturating_sub(self.last_ns);
        if self.phase != Phase::Open {
            self.set_up.time_ns += time_ns as f64;
            return;
        }
        let local = self.local();
        let busy = match (self.senders[local].is_busy(), self.senders[1 - local].is_transferring()) {
            (true, _) => Some(local),
            (false, true) => Some(1 - local),
            (false, false) => None,
        };
        match busy {
            Some(side) => {
                let path = self.path(side);
                if self.senders[side].is_transferring() && path.base_ns > 0 {
                    self.transfers[side].observe(time_ns, path.current_ns as f64, path.base_ns as f64);
                }
                self.senders[side].spend(self.last_ns, until_ns, path);
            }
            None => self.silence_ns += time_ns,
        }
    }

    fn break_silence(&mut self, next: usize) {
        let ns = std::mem::take(&mut self.silence_ns);
        if ns == 0 {
            return;
        }
        let longest_ns = longest_pause_ns(std::mem::take(&mut self.burst_bytes), self.longest_segment);
        match self.speaker {
            Some(speaker) if speaker != next || ns <= longest_ns => self.quiet[speaker][next].add(ns),
            _ => self.idle_ns += ns as f64,
        }
    }

    /// Ends the observation. Returns the figures and the ends, the local one first.
    pub(super) fn finish(mut self) -> (ConnectionFigures, Ends) {
        self.idle_ns += self.silence_ns as f64;
        let local = self.local();
        let peer = 1 - local;
        let role = if local == self.client { Role::Client } else { Role::Server };
        let (paths, last_ns) = ([self.path(0), self.path(1)], self.last_ns);
        if self.phase != Phase::Open && self.senders.iter().all(|sender| sender.figures.bytes == 0) {
            // It was never opened.
            self.set_up.tcp_ns = last_ns.saturating_sub(self.start_ns);
        }
        let own = self.senders[local].finish(last_ns, paths[local]);
        let theirs = self.senders[peer].finish(last_ns, paths[peer]);
        let mut idle_ns = self.idle_ns;
        let times = self.times(own, theirs, role, local, &mut idle_ns);
        let (figures, theirs) = (self.senders[local].figures, self.senders[peer].figures);
        let path = paths[local];
        let mut set_ups = Silences::default();
        if self.set_up.syn_ns.is_some() && self.set_up.time_ns > 0.0 {
            set_ups.add(self.set_up.tcp_ns + self.set_up.tls_ns);
        }
        let figures = ConnectionFigures {
            role,
            polls: self.packets[0] + self.packets[1],
            is_one_way: self.packets.contains(&0),
            began_before: self.set_up.syn_ns.is_none(),
            times,
            idle_ns,
            transfers: self.transfers[local],
            messages: RoundTrip::new(times.get(Part::Distance), path.base_ns as f64, path.base_ns as f64),
            busy_polls: figures.busy_ns / 1_000_000,
            closed_polls: figures.closed_ns / 1_000_000,
            service: if role == Role::Server { self.quiet[peer][local] } else { Silences::default() },
            answer: if role == Role::Client { self.quiet[local][peer] } else { Silences::default() },
            pause: self.quiet[local][local],
            segments_sent: figures.segments,
            segments_sent_again: figures.again,
            segments_sent_needlessly: figures.spurious,
            segments_received: theirs.segments,
            segments_out_of_order: theirs.overtaken + theirs.again,
            sent_bytes: figures.bytes,
            received_bytes: theirs.bytes,
            timeouts: figures.timeouts,
            held: figures.held,
            slow_starts: figures.slow_starts,
            set_ups,
            set_up_retries: self.set_up.retries,
            stalled_ns: figures.stalled_ns,
            overtaken: figures.overtaken,
            ..ConnectionFigures::default()
        };
        let ends = match local {
            0 => self.ends,
            _ => Ends { src: self.ends.dst, dst: self.ends.src },
        };
        (figures, ends)
    }

    /// Names the times as the local end sees them.
    fn times(&self, own: Times, theirs: Times, role: Role, local: usize, idle_ns: &mut f64) -> Times {
        let peer = 1 - local;
        let mut times = own;
        if role == Role::Server {
            // The client has its answer, and acknowledges it late.
            *idle_ns += times.get(Part::Answer);
            times.remove(Part::Answer);
            if self.set_up.syn_ns.is_none() && self.senders[local].figures.bytes < TRANSFER_BYTES {
                // A client acknowledges an answer with its next request, which it sends when it likes: without the
                // handshake nothing tells the way from its pause.
                *idle_ns += times.get(Part::Distance);
                times.remove(Part::Distance);
            }
        }
        for part in Part::ALL {
            // What the peer waits for where the local window is full is the local reader.
            let named = if part == Part::ReceiverWindow { Part::Reader } else { part };
            times.add(named, theirs.get(part));
        }
        times.add(Part::SetUp, self.set_up.time_ns);
        let quiet = |speaker: usize, next: usize| self.quiet[speaker][next].sum_ns as f64;
        times.add(Part::Application, quiet(local, local));
        times.add(Part::PeerPause, quiet(peer, peer));
        let (asked, answered) = (quiet(peer, local), quiet(local, peer));
        match role {
            Role::Server => {
                times.add(Part::Service, asked);
                *idle_ns += answered;
            }
            Role::Client => {
                times.add(Part::Answer, answered);
                *idle_ns += asked;
            }
        }
        times
    }
}
