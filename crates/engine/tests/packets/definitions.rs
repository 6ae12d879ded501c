//! The definitions of tcp-timestamp and tcp-seq, written as simply as they can be with unbounded memory, and compared with
//! the core sample by sample.

use dwell_engine::{measure::Method, rtt::Config};
use proptest::prelude::*;

use crate::wire::{Segment, Side, client, run, segment, server, small};

/// A sample: the time of the answer and the round trip, in nanoseconds, and the side that answered.
type Sample = (u64, u64, Side);

fn after(x: u32, y: u32) -> bool {
    x.wrapping_sub(y) as i32 > 0
}

fn ns(at_ms: f64) -> u64 {
    (at_ms * 1e6).round() as u64
}

/// The first packet of a direction that carries a new TSval, and the first packet back that echoes it and acknowledges
/// at least one byte of it.
fn by_timestamp(scene: &[Segment]) -> Vec<Sample> {
    /// A stamped packet: its TSval, its first byte, its time.
    type Stamp = (u32, u32, u64);
    let (mut waiting, mut newest) = ([Vec::<Stamp>::new(), Vec::new()], [None; 2]);
    let mut samples = Vec::new();
    for packet in scene {
        let (from, at_ns) = (packet.from as usize, ns(packet.at_ms));
        let (value, echo) = packet.ts.unwrap();
        if let Some(ack) = packet.ack
            && let Some(index) =
                waiting[1 - from].iter().position(|&(value, first, _)| value == echo && after(ack, first))
        {
            let (_, _, sent_ns) = waiting[1 - from].remove(index);
            samples.push((at_ns, at_ns - sent_ns, packet.from));
        }
        let is_new = newest[from].is_none_or(|newest| after(value, newest));
        if packet.payload > 0 && is_new {
            newest[from] = Some(value);
            waiting[from].push((value, packet.seq, at_ns));
        }
    }
    samples
}

/// What is known of one direction's data, and of the ACKs for it.
#[derive(Default)]
struct Data {
    /// One past the highest byte so far.
    next: Option<u32>,
    /// Whether the first segment has passed, and the FIN.
    has_begun: bool,
    has_ended: bool,
    /// The ends of segments that wait for an ACK which ends there, and their times.
    waiting: Vec<(u32, u64)>,
    /// The first segment that was stamped after an ACK had covered the last probe.
    probe: Option<(u32, u64)>,
    /// The newest ACK and its window.
    acked: Option<u32>,
    window: u16,
    /// Karn's rule: no ACK up to here gives a sample.
    unclear: Option<u32>,
    packets: u32,
}

impl Data {
    fn is_unclear(&self, ack: u32) -> bool {
        self.unclear.is_some_and(|last| !after(ack, last))
    }

    /// Returns when the segment was sent that this ACK answers.
    fn answered(&mut self, packet: &Segment, is_seen: impl Fn(u64) -> bool) -> Option<u64> {
        let (ack, next) = (packet.ack?, self.next);
        let has_sack = packet.sack.is_some();
        match self.acked {
            Some(acked) if ack == acked => {
                let is_duplicate = packet.payload == 0 && packet.window == self.window && !packet.syn && !packet.fin;
                let is_all = next.is_none_or(|next| !after(next, ack));
                self.window = packet.window;
                if self.has_begun && !is_all && (is_duplicate || has_sack) {
                    self.unclear = next;
                }
                return None;
            }
            Some(acked) if !after(ack, acked) => return None,
            _ => {}
        }
        let is_unclear = self.is_unclear(ack);
        let probe = self.probe.take_if(|(end, _)| !after(*end, ack));
        let probe = probe.filter(|(end, sent)| !self.is_unclear(*end) && is_seen(*sent));
        let covers_fin =
            self.has_ended && Some(ack) == next && self.acked.is_none_or(|acked| ack.wrapping_sub(1) != acked);
        let end = ack.wrapping_sub(u32::from(covers_fin));
        (self.acked, self.window) = (Some(ack), packet.window);
        if !self.has_begun {
            return None;
        }
        if has_sack {
            self.unclear = next;
        }
        if is_unclear {
            return None;
        }
        let exact = self.waiting.iter().rposition(|(waiting, _)| *waiting == end);
        let exact = exact.map(|index| self.waiting.remove(index)).filter(|(_, sent)| is_seen(*sent));
        exact.or(probe).map(|(_, sent)| sent)
    }

    fn sent(&mut self, packet: &Segment, before: Option<u32>, at_ns: u64) {
        let end = end_of(packet);
        if end == packet.seq {
            return;
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first && !packet.syn {
            self.unclear = Some(end);
        } else if before.is_some_and(|before| after(before, packet.seq)) {
            self.unclear = self.next;
        } else if packet.payload > 0 && !packet.syn && self.acked.is_none_or(|acked| after(end, acked)) {
            self.waiting.push((end.wrapping_sub(u32::from(packet.fin)), at_ns));
            if self.probe.is_none_or(|(end, _)| self.is_unclear(end)) {
                self.probe = Some((end, at_ns));
            }
        }
        self.has_ended |= packet.fin;
    }
}

fn end_of(packet: &Segment) -> u32 {
    packet.seq.wrapping_add(packet.payload as u32 + u32::from(packet.syn) + u32::from(packet.fin))
}

/// The time from data to the ACK that ends where it does, or else covers the probe, with Karn's rule as widened.
fn by_seq(scene: &[Segment]) -> Vec<Sample> {
    let mut sides = [Data::default(), Data::default()];
    let mut samples = Vec::new();
    for packet in scene {
        let (from, at_ns) = (packet.from as usize, ns(packet.at_ms));
        let before = sides[from].next;
        if end_of(packet) != packet.seq && before.is_none_or(|before| after(end_of(packet), before)) {
            sides[from].next = Some(end_of(packet));
        }
        sides[from].packets += 1;
        let in_view = sides[from].packets > 1 || packet.syn;
        let is_seen = |sent_ns| in_view || at_ns - sent_ns <= 1_000_000_000;
        if let Some(sent_ns) = sides[1 - from].answered(packet, is_seen) {
            samples.push((at_ns, at_ns - sent_ns, packet.from));
        }
        sides[from].sent(packet, before, at_ns);
    }
    samples
}

fn measured(config: &Config, scene: &[Segment]) -> Vec<Sample> {
    let samples = run(config, scene.iter().cloned()).samples;
    let side = |port| if port == 80 { Side::Server } else { Side::Client };
    let start_ns = crate::wire::START_NS;
    samples.iter().map(|it| (it.time_ns - start_ns, it.rtt_ns, side(it.dst.port))).collect()
}

/// Connections one after the other, of a handshake, requests with answers, and two FINs, over a path of `rtt_ms` with
/// the vantage point at the client, by clocks with this tick.
fn connections(rtt_ms: f64, tick_ms: f64, requests: u32, think_ms: f64) -> Vec<Vec<Segment>> {
    let connection = |n: u32| {
        let mut at_ms = f64::from(n) * (tick_ms * 0.37 + rtt_ms * f64::from(requests + 3));
        let tick = |at_ms: f64, from: u32| (at_ms / tick_ms) as u32 + from;
        let (mut mine, mut theirs, mut echo) = (100 + n, 500 + n, 0);
        let mut scene = Vec::new();
        let exchange = |scene: &mut Vec<Segment>, at_ms: &mut f64, ask: Segment, answer: Segment, echo: &mut u32| {
            let sent = tick(*at_ms, 7_000);
            scene.push(Segment { at_ms: *at_ms, ..ask }.ts(sent, *echo));
            *at_ms += rtt_ms;
            *echo = tick(*at_ms - rtt_ms / 2.0, 90_000_000);
            scene.push(Segment { at_ms: *at_ms, ..answer }.ts(*echo, sent));
            *at_ms += 0.01;
        };
        exchange(&mut scene, &mut at_ms, client(0.0).syn(mine - 1), server(0.0).syn(theirs - 1).ack(mine), &mut echo);
        scene.push(client(at_ms).seq(mine).ack(theirs).ts(tick(at_ms, 7_000), echo));
        for _ in 0..requests {
            at_ms += think_ms;
            let ask = client(0.0).data(mine, 100).ack(theirs);
            mine += 100;
            exchange(&mut scene, &mut at_ms, ask, server(0.0).data(theirs, 300).ack(mine), &mut echo);
            theirs += 300;
        }
        let end = server(0.0).fin(theirs).ack(mine + 1);
        exchange(&mut scene, &mut at_ms, client(0.0).fin(mine).ack(theirs), end, &mut echo);
        scene
    };
    (0..20).map(connection).collect()
}

#[test]
fn tcp_timestamp_is_as_defined_on_short_connections_and_coarse_clocks() {
    for tick_ms in [1.0, 4.0, 10.0] {
        for rtt_ms in [0.05, 0.2, 0.9, 3.0, 30.0] {
            for (requests, think_ms) in [(1, 0.0), (5, 0.0), (5, 0.3), (20, 2.0)] {
                for scene in connections(rtt_ms, tick_ms, requests, think_ms) {
                    let defined = by_timestamp(&scene);
                    assert!(!defined.is_empty());
                    assert_eq!(measured(&small(), &scene), defined, "{tick_ms} {rtt_ms} {requests} {think_ms}");
                }
            }
        }
    }
}

#[test]
fn segments_of_any_one_length_have_stamps_of_their_own() {
    for bytes in 1..=64 {
        for window in [2, 7, 64] {
            let mut scene = vec![client(0.0).syn(99), server(1.0).syn(499).ack(100)];
            let end = |n: u32| 100 + (n + 1) * bytes;
            for n in 0..300 {
                let at_ms = 2.0 + f64::from(n) * 0.1;
                scene.push(client(at_ms).data(end(n) - bytes, bytes as usize).ack(500));
                if n + 1 >= window {
                    scene.push(server(at_ms + 0.05).ack(end(n + 1 - window)));
                }
            }
            assert_eq!(measured(&only_seq(), &scene), by_seq(&scene), "{bytes} {window}");
        }
    }
}

#[test]
fn thousands_of_short_segments_in_flight_are_measured() {
    let mut scene = vec![client(0.0).syn(99), server(1.0).syn(499).ack(100)];
    let (mut end, mut ends) = (100, Vec::new());
    for n in 0..20_000_u32 {
        let (at_ms, bytes) = (2.0 + f64::from(n) * 0.01, 1 + n * 7 % 40);
        scene.push(client(at_ms).data(end, bytes as usize).ack(500));
        end += bytes;
        ends.push(end);
        if n >= 4_000 {
            scene.push(server(at_ms + 0.005).ack(ends[n as usize - 4_000]));
        }
    }
    let (measured, defined) = (measured(&only_seq(), &scene), by_seq(&scene));
    assert_eq!((measured.len(), measured == defined), (16_000, true));
}

fn only_seq() -> Config {
    Config { methods: vec![Method::TcpSeq], ..small() }
}

/// Something that an end does with its side of a connection.
#[derive(Debug, Clone, Copy)]
enum Act {
    Send(u32),
    /// Sends what lies this number of bytes beyond what was sent last.
    Skip(u32),
    /// Sends again what begins this number of bytes before what was sent last.
    SendAgain(u32),
    /// Acknowledges all but the last bytes that were seen of the other end, with a block of SACK if any.
    Ack(u32, Option<u32>),
    OpenWindow,
    Fin,
}

fn acts() -> impl Strategy<Value = Vec<(bool, u32, Act)>> {
    let act = prop_oneof![
        6 => (1u32..4).prop_map(|segments| Act::Send(segments * 50)),
        2 => (1u32..40).prop_map(Act::Send),
        1 => (1u32..3).prop_map(|segments| Act::Skip(segments * 50)),
        1 => (1u32..5).prop_map(|segments| Act::SendAgain(segments * 50)),
        6 => Just(Act::Ack(0, None)),
        3 => (0u32..200).prop_map(|bytes| Act::Ack(bytes, None)),
        1 => (0u32..200).prop_map(|bytes| Act::Ack(bytes, Some(50))),
        1 => Just(Act::OpenWindow),
        1 => Just(Act::Fin),
    ];
    prop::collection::vec((any::<bool>(), prop_oneof![9 => 1u32..30, 1 => 900u32..1100], act), 1..120)
}

/// The packets of these acts: of a connection from its handshake on, or in its middle. Sequence numbers wrap in it.
fn played(acts: &[(bool, u32, Act)], has_handshake: bool) -> Vec<Segment> {
    let mut at_ms = 1.0;
    let mut next = [u32::MAX - 500, 500];
    let (mut acked, mut window) = ([next[1], next[0]], [1000; 2]);
    let mut scene = Vec::new();
    if has_handshake {
        scene.push(client(0.0).syn(next[0].wrapping_sub(1)));
        scene.push(server(1.0).syn(499).ack(next[0]));
    }
    for &(is_client, gap_ms, act) in acts {
        at_ms += f64::from(gap_ms);
        let side = if is_client { Side::Client } else { Side::Server };
        let me = side as usize;
        let mut packet = segment(side, at_ms).seq(next[me]);
        match act {
            Act::Send(bytes) => packet = packet.data(next[me], bytes as usize),
            Act::Skip(bytes) => packet = packet.data(next[me].wrapping_add(bytes), bytes as usize),
            Act::SendAgain(bytes) => packet = packet.data(next[me].wrapping_sub(bytes), 50),
            Act::Ack(unseen, block) => {
                acked[me] = next[1 - me].wrapping_sub(unseen);
                packet.sack = block.map(|bytes| (acked[me].wrapping_add(bytes), acked[me].wrapping_add(2 * bytes)));
            }
            Act::OpenWindow => window[me] += 100,
            Act::Fin => packet = packet.fin(next[me]),
        }
        if after(end_of(&packet), next[me]) {
            next[me] = end_of(&packet);
        }
        scene.push(packet.ack(acked[me]).window(window[me]));
    }
    scene
}

/// Generates segments with timestamps that often answer each other, in the order of their times.
fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let one = (any::<bool>(), 1u32..20, 0u32..6, 0usize..3, 0u32..8, 0u32..10, 0u32..10);
    prop::collection::vec(one, 1..60).prop_map(|list| {
        let mut at_ms = 0.0;
        let one = |(is_client, gap, seq, bytes, ack, value, echo)| {
            at_ms += f64::from(gap);
            let side = if is_client { Side::Client } else { Side::Server };
            segment(side, at_ms).data(1000 + seq * 50, bytes * 50).ack(1000 + ack * 50).ts(1000 + value, 1000 + echo)
        };
        list.into_iter().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tcp_timestamp_is_as_defined_on_any_packets(scene in segments()) {
        prop_assert_eq!(measured(&small(), &scene), by_timestamp(&scene));
    }

    #[test]
    fn tcp_seq_is_as_defined_on_any_packets(acts in acts(), has_handshake in any::<bool>()) {
        let scene = played(&acts, has_handshake);
        prop_assert_eq!(measured(&only_seq(), &scene), by_seq(&scene));
    }
}
