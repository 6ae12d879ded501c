//! A connection in a capture, and the division of its time.

mod finish;
mod within;

use std::{collections::VecDeque, sync::Arc};

use self::within::Answering;
use super::{
    super::{
        Part, RequestEnds, Role, Times,
        cause::LONG_NS,
        connection::{longest_pause_ns, unasked::Unasked},
        figures::{ConnectionFigures, RoundTrip, Silences},
    },
    ending::Wait,
    flights::Known,
    reach::{Reach, ShownBy},
    sender::{Path, Sender},
    turns::Turns,
    twins::Number,
};
use crate::{layers::Ends, measure::Protocol, roles::CLIENT_PORTS, rtt::native::Segment};

/// Timestamps that wait for their echo, per end.
const MAX_STAMPS: usize = 256;
/// An end that sends this many times as much as the other is the one whose limits count.
const MOSTLY: u64 = 4;
/// The fewest bytes that make an end the sender of a transfer.
pub(super) const TRANSFER_BYTES: u64 = 64 << 10;
/// A capture that is nearer to an end was taken at its host.
const AT_SENDER_NS: u64 = 200_000;
/// No TCP waits for longer until it sends data again that is not acknowledged (Linux: 120 s).
const LONGEST_TIMEOUT_NS: u64 = 150_000_000_000;
/// Types of TLS's records.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_DATA: u8 = 0x17;

/// A connection: end 0 sent the first packet that was captured.
#[derive(Debug)]
pub(super) struct Conversation {
    ends: Ends,
    /// Which one it is, if several interfaces show it, and the first number that end 0 has sent.
    pub(super) number: Number,
    first_seq: u32,
    pub(super) senders: [Sender; 2],
    /// The way from the place of the capture to each end and back.
    reach: [Reach; 2],
    /// TSvals of each end, from the last one that was echoed on.
    stamps: [VecDeque<Stamp>; 2],
    pub(super) client: usize,
    pub(super) phase: Phase,
    pub(super) set_up: SetUp,
    /// Who sent data last; `None` once nobody waits for an answer any more.
    pub(super) speaker: Option<usize>,
    /// Who has sent the latest request with a label, and what it asked for.
    asked: Option<(usize, Arc<str>)>,
    /// Whether what the client has sent since the last data of the server has a request with a label.
    pub(super) is_asking: bool,
    /// Whether the client has gone on after a silence of its own.
    pub(super) goes_on: bool,
    /// The wait of a client that has closed its side.
    pub(super) half_closed: Option<Wait>,
    pub(super) ends_of_requests: RequestEnds,
    pub(super) silence_ns: u64,
    /// Silences until requests were sent again.
    lost_ns: u64,
    /// What the speaker has sent since the last silence, and its longest segment.
    pub(super) burst_bytes: u64,
    longest_segment: u64,
    /// Silences by who spoke before and who broke them.
    pub(super) quiet: [[Silences; 2]; 2],
    /// From the last data of an end to the first data of the other.
    pub(super) turns: [Silences; 2],
    /// Answers that were waited for long.
    late: Silences,
    answering: Answering,
    pub(super) last_data_ns: u64,
    /// Of the waits for answers, what the server waited for others meanwhile.
    passed_on_ns: u64,
    idle_ns: f64,
    requests: Turns,
    unasked: Unasked,
    start_ns: u64,
    pub(super) last_ns: u64,
    /// By how much the clock of the capture stepped forward, or nothing was captured, with data under way.
    skipped_ns: u64,
    /// Packets of each end.
    pub(super) packets: [u64; 2],
    transfers: [RoundTrip; 2],
    /// How long data of each end was in a queue between it and the place of the capture, where that is at the end itself.
    queued: [RoundTrip; 2],
    /// Which ends have closed it, and whether one has broken it off.
    closed: [bool; 2],
    is_reset: bool,
}

/// A TSval, and when it first passed.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    value: u32,
    passed_ns: u64,
    is_echoed: bool,
    /// Whether the other end echoes it as soon as it arrives: that end had acknowledged all that was sent before. Of what it
    /// acknowledges together it echoes the first (RFC 7323).
    is_due: bool,
}

/// A request whose answer has begun.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) label: Option<Arc<str>>,
    pub(super) wait_ns: u64,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between the first SYN and the end of TCP's handshake.
    Opening,
    /// In TLS's handshake.
    Securing,
    /// Open, or captured from the middle on.
    Open,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SetUp {
    /// When the first SYN passed, and the times that the handshakes took.
    pub(super) syn_ns: Option<u64>,
    /// When it passed last, and the time since the copy before.
    last_syn_ns: u64,
    interval_ns: u64,
    tcp_ns: u64,
    pub(super) tls_ns: u64,
    pub(super) retries: u64,
    time_ns: f64,
}

impl Conversation {
    pub(super) fn new(first: &Segment, number: Number) -> Conversation {
        let ends = Ends { src: first.src, dst: first.dst };
        let is_syn = first.has(Segment::SYN);
        let client = match is_syn {
            true => usize::from(first.has(Segment::ACK)),
            false => usize::from(Role::by_ports(&ends, Protocol(6), &CLIENT_PORTS) == Some(Role::Server)),
        };
        Conversation {
            ends,
            number,
            first_seq: first.seq,
            senders: <[Sender; 2]>::default(),
            reach: [Reach::default(); 2],
            stamps: [VecDeque::new(), VecDeque::new()],
            client,
            phase: if is_syn { Phase::Opening } else { Phase::Open },
            set_up: SetUp::default(),
            speaker: None,
            asked: None,
            is_asking: false,
            goes_on: false,
            half_closed: None,
            ends_of_requests: RequestEnds::default(),
            silence_ns: 0,
            lost_ns: 0,
            burst_bytes: 0,
            longest_segment: 0,
            quiet: [[Silences::default(); 2]; 2],
            turns: [Silences::default(); 2],
            late: Silences::default(),
            answering: Answering::default(),
            last_data_ns: first.time_ns,
            passed_on_ns: 0,
            idle_ns: 0.0,
            requests: Turns::default(),
            unasked: Unasked::default(),
            start_ns: first.time_ns,
            last_ns: first.time_ns,
            skipped_ns: 0,
            packets: [0; 2],
            transfers: [RoundTrip::default(); 2],
            queued: [RoundTrip::default(); 2],
            closed: [false; 2],
            is_reset: false,
        }
    }

    /// Whether the first packet that another interface shows of a connection between the same ends is of this one: it has the same
    /// number, or one near to it if the connection began before the capture.
    pub(super) fn is_same(&self, first: &Segment) -> bool {
        const NEAR: u32 = 1 << 22;
        let is_from_0 = first.src == self.ends.src;
        let number = if is_from_0 { first.seq } else { first.ack };
        match first.has(Segment::SYN) && !first.has(Segment::ACK) {
            true => is_from_0 && number == self.first_seq,
            false => number.wrapping_sub(self.first_seq).cast_signed().unsigned_abs() < NEAR,
        }
    }

    /// Whether both ends have closed it, or one has broken it off.
    pub(super) fn is_over(&self) -> bool {
        self.is_reset || self.closed == [true; 2]
    }

    /// Whether an end has closed it: a SYN begins another connection.
    pub(super) fn is_closing(&self) -> bool {
        self.is_reset || self.closed.contains(&true)
    }

    /// Returns when the last packet passed.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns.saturating_add(self.skipped_ns)
    }

    /// Takes a segment, with the label of the request that begins in it. Returns the request whose answer begins.
    pub(super) fn observe(&mut self, segment: &Segment, label: Option<Arc<str>>) -> Option<Answered> {
        let is_under_way = self.senders.iter().any(Sender::is_busy);
        let since_ns = segment.time_ns.saturating_sub(self.skipped_ns).saturating_sub(self.last_ns);
        if is_under_way && since_ns > LONGEST_TIMEOUT_NS {
            self.skipped_ns += since_ns.saturating_sub(self.path(0).base_ns);
        }
        let segment = &Segment { time_ns: segment.time_ns.saturating_sub(self.skipped_ns), ..*segment };
        let side = usize::from(segment.src != self.ends.src);
        // Packets of several queues may be captured out of order.
        let now_ns = segment.time_ns.max(self.last_ns);
        self.advance(now_ns);
        self.packets[side] += 1;
        self.open(side, segment);
        let queued_ns = self.read_stamps(side, segment);
        if segment.payload_bytes > 0 {
            self.queue(side, queued_ns);
        }
        if segment.has(Segment::ACK) && !segment.has(Segment::RST) {
            let other = 1 - side;
            let scale = if segment.has(Segment::SYN) { Some(0) } else { self.senders[side].scale };
            let (reach_ns, peer_ns) = (self.reach[other].base(), self.reach[side].base());
            let path = self.path(other);
            let sample = self.senders[other].acknowledge(segment, scale, reach_ns, peer_ns, path);
            if let Some(sample) = sample {
                let is_transfer = self.senders[other].is_transferring();
                let shown_by = ShownBy::of(segment, self.senders[other].has_many_under_way());
                self.reach[side].add(sample, is_transfer, shown_by);
            }
            self.senders[other].arrive(now_ns);
        }
        let answered = match segment.payload_bytes > 0 && !segment.has(Segment::SYN) {
            true => self.take_message(side, segment, label),
            false => None,
        };
        self.is_reset |= segment.has(Segment::RST);
        self.closed[side] |= segment.has(Segment::FIN);
        self.end(side, segment);
        answered
    }

    /// Tells for how much of the wait for the answer that has begun the server had asked another one.
    pub(super) fn pass_on(&mut self, ns: u64) {
        self.passed_on_ns += ns;
    }

    /// Takes data with its label. Returns the request whose answer begins.
    fn take_message(&mut self, side: usize, segment: &Segment, label: Option<Arc<str>>) -> Option<Answered> {
        let turn_ns = self.take_data(side, segment);
        if side != self.client {
            self.half_closed = None;
            self.is_asking = false;
            self.ends_of_requests.answered += u64::from(self.phase == Phase::Open && turn_ns.is_some());
        }
        self.is_asking |= side == self.client && label.is_some();
        let asked = self.asked.as_ref().filter(|(asker, _)| *asker != side).map(|(_, label)| Arc::clone(label));
        let is_answer = self.phase == Phase::Open && (asked.is_some() || side != self.client);
        let answered = turn_ns.filter(|_| is_answer).map(|wait_ns| Answered { label: asked, wait_ns });
        self.asked = label.map(|label| (side, label)).or(self.asked.take());
        answered
    }

    /// Takes data. Returns how long the other end has waited for it, if that spoke before.
    fn take_data(&mut self, side: usize, segment: &Segment) -> Option<u64> {
        let (path, own_ns) = (self.path(side), self.reach[side].base());
        let again_before = self.senders[side].figures.again;
        let meanwhile = self.works_meanwhile(side);
        if !self.senders[side].send(segment, path, own_ns, &mut self.silence_ns) {
            let sender = &self.senders[side];
            let is_again = side == self.client && sender.figures.again > again_before;
            let has_arrived = sender.has_all_acknowledged(segment.seq.wrapping_add(segment.payload_bytes));
            if is_again
                && !has_arrived
                && self.requests.ask_again(self.last_ns, self.reach[1 - side].base(), &self.senders)
            {
                self.lost_ns += std::mem::take(&mut self.silence_ns);
            }
            return None;
        }
        let is_whole = self.senders[1 - side].ask(segment);
        if self.phase == Phase::Open {
            self.follow_turn(side, is_whole);
            let (after_ns, is_first) = (self.last_ns.saturating_sub(self.last_data_ns), self.speaker != Some(side));
            match side == self.client {
                true => self.unasked.ask(after_ns, is_first, self.reach[side].base()),
                false => self.unasked.answer(after_ns, is_first),
            }
            self.break_silence(side, meanwhile);
        }
        let bytes = u64::from(segment.payload_bytes);
        let mut turn_ns = None;
        if self.speaker != Some(side) {
            self.burst_bytes = 0;
            if side == self.client {
                self.settle_within(true);
            }
            if self.speaker.is_some() {
                let ns = self.last_ns.saturating_sub(self.last_data_ns);
                self.turns[1 - side].add(ns);
                if side != self.client && self.phase == Phase::Open && ns as f64 >= LONG_NS {
                    self.late.add(ns);
                }
                turn_ns = Some(ns);
            }
        }
        self.begin_within(side);
        self.last_data_ns = self.last_ns;
        self.burst_bytes += bytes;
        self.longest_segment = self.longest_segment.max(bytes);
        self.speaker = Some(side);
        turn_ns
    }

    /// Follows whose turn it is, by data of an end, which has all that the other one has sent if it `is_whole`.
    fn follow_turn(&mut self, side: usize, is_whole: bool) {
        let ways_ns = (self.reach[side].base(), self.reach[1 - side].base());
        match side == self.client {
            true => self.requests.ask(self.last_ns, self.silence_ns, ways_ns, is_whole, &self.senders),
            false => {
                let at_server_of = self.is_at_server().then_some(self.client);
                self.requests.answer(self.last_ns, self.silence_ns, at_server_of, &self.senders);
            }
        }
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
                    Some(_) => {
                        self.set_up.retries += 1;
                        self.set_up.interval_ns = now_ns.saturating_sub(self.set_up.last_syn_ns);
                    }
                }
                self.set_up.last_syn_ns = now_ns;
            } else if let Some(syn_ns) = self.set_up.syn_ns
                && self.set_up.retries == 0
            {
                self.reach[side].add(now_ns.saturating_sub(syn_ns), false, ShownBy::Prompt);
                self.set_up.tcp_ns = now_ns.saturating_sub(syn_ns);
            }
            return;
        }
        if self.phase == Phase::Opening && side == self.client && segment.has(Segment::ACK) {
            let took = self.set_up.syn_ns.map_or(0, |syn| now_ns.saturating_sub(syn));
            if self.set_up.retries == 0 && took >= self.set_up.tcp_ns {
                self.reach[side].add(took - self.set_up.tcp_ns, false, ShownBy::Prompt);
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
                // One that was opened in advance, as by a pool, waits for nothing until it is needed.
                let kept_ns = now_ns.saturating_sub(self.last_data_ns);
                let kept_ns = if self.is_prompt(kept_ns) { 0 } else { kept_ns };
                self.set_up.tls_ns = now_ns.saturating_sub(open_ns + kept_ns);
                self.set_up.time_ns -= kept_ns as f64;
                self.idle_ns += kept_ns as f64;
                self.phase = Phase::Open;
            }
            _ => {}
        }
    }

    /// A TSval that is echoed shows the way to the echoing end and back, even if that end alone sends data. Returns for how
    /// long at least the segment was in a queue before it passed: it echoes an older TSval than the end had by then.
    fn read_stamps(&mut self, side: usize, segment: &Segment) -> u64 {
        /// The shortest tick of most timestamp clocks.
        const TICK_NS: u64 = 1_000_000;
        let Some((value, echo)) = segment.stamps else {
            return 0;
        };
        let own = &mut self.stamps[side];
        if own.back().is_none_or(|last| last.value != value) {
            if own.len() == MAX_STAMPS {
                own.pop_front();
            }
            let is_due = self.senders[side].has_all_acknowledged(segment.seq);
            own.push_back(Stamp { value, passed_ns: segment.time_ns, is_echoed: false, is_due });
        }
        let theirs = &mut self.stamps[1 - side];
        let Some(found) = theirs.iter().position(|stamp| stamp.value == echo) else {
            return 0;
        };
        theirs.drain(..found);
        let newer_ns = theirs.iter().skip(1).find(|stamp| stamp.is_due).map_or(u64::MAX, |stamp| stamp.passed_ns);
        if !std::mem::replace(&mut theirs[0].is_echoed, true) {
            let sample_ns = segment.time_ns.saturating_sub(theirs[0].passed_ns);
            let sender = &self.senders[side];
            let is_transfer = segment.payload_bytes > 0 && sender.is_transferring();
            let shown_by = ShownBy::of(segment, sender.has_many_under_way());
            self.reach[side].add(sample_ns, is_transfer, shown_by);
        }
        let queued_ns = segment.time_ns.saturating_sub(newer_ns).saturating_sub(self.reach[side].base());
        if queued_ns < TICK_NS { 0 } else { queued_ns }
    }

    /// Notes that data was in a queue between the sender and the capture for `queued_ns`, which is not a pause of the sender.
    fn queue(&mut self, side: usize, queued_ns: u64) {
        let last_ns = self.senders[side].last_sent_ns().unwrap_or(self.last_ns);
        let ns = queued_ns.min(self.last_ns.saturating_sub(last_ns));
        if ns == 0 {
            return;
        }
        let path = self.path(side);
        let of_silence_ns = ns.min(self.silence_ns);
        self.silence_ns -= of_silence_ns;
        let into = if self.reach[side].base() < AT_SENDER_NS { Part::LocalQueue } else { Part::RemoteQueue };
        self.senders[side].queue(ns, of_silence_ns, queued_ns, into);
        if into == Part::LocalQueue {
            self.queued[side].observe(ns, queued_ns as f64, 0.0);
        }
        self.transfers[side].observe(ns, (path.base_ns + queued_ns) as f64, path.base_ns as f64);
    }

    /// The round trip of the path for data of one end.
    pub(super) fn path(&self, sender: usize) -> Path {
        let (own, peer) = (self.reach[sender], self.reach[1 - sender]);
        Path {
            base_ns: own.base() + peer.base(),
            current_ns: own.current() + peer.current(),
            own_queue_ns: own.current() - own.base(),
        }
    }

    /// Whether the capture was taken at the host of the server, which has a request when that passes.
    fn is_at_server(&self) -> bool {
        let [client_ns, server_ns] = [self.client, 1 - self.client].map(|side| self.reach[side].base());
        self.set_up.syn_ns.is_some() && server_ns < AT_SENDER_NS && server_ns < client_ns
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
    /// acknowledgement, and of a request.
    fn advance(&mut self, now_ns: u64) {
        while self.last_ns < now_ns {
            let arrivals = self.senders.iter().filter_map(Sender::next_arrival);
            let arrival = arrivals.chain(self.requests.due()).min();
            let until_ns = arrival.map_or(now_ns, |arrives_ns| arrives_ns.clamp(self.last_ns, now_ns));
            self.spend(until_ns);
            self.last_ns = until_ns;
            self.senders.iter_mut().for_each(|sender| sender.arrive(until_ns));
            self.requests.reach(until_ns, self.silence_ns, &self.senders);
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
}
