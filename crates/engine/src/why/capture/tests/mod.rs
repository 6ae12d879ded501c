//! Captures that are written by hand: what was the limit is known, and where the capture was taken.

mod incomplete;
mod interfaces;
mod late;
mod limits;
mod requests;
mod turns;
mod unanswered;

use etherparse::{PacketBuilder, TcpOptionElement};

use super::{super::*, Replay};
use crate::{filter::Filter, observe::Observation};

const MS: u64 = 1_000_000;
const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 40_000);
const SERVER: ([u8; 4], u16) = ([192, 0, 2, 2], 80);

/// What one end sends: its bytes so far, and how many of the other's it has.
#[derive(Clone, Copy)]
enum End {
    Client,
    Server,
}

struct Wire {
    replay: Replay,
    now_ns: u64,
    sent: [u32; 2],
    /// The last TSval that each end has sent and, as far as it knows, received; ends without the option have none.
    stamps: Option<[(u32, u32); 2]>,
    /// What acknowledgements report beyond a gap.
    sack: Option<(u32, u32)>,
    /// How payloads begin.
    payload: &'static [u8],
    /// The addresses of client and server.
    addresses: [[u8; 4]; 2],
    port: u16,
    client_port: u16,
    /// How much later packets of the client pass a second interface, if there is one, and those of the server sooner.
    second: Option<u64>,
    /// Whether those of the server pass the second one alone.
    is_split: bool,
}

impl Wire {
    fn new() -> Wire {
        Wire {
            replay: Replay::new(Filter::default(), true),
            now_ns: 1_000_000 * MS,
            sent: [1_000, 5_000],
            stamps: None,
            sack: None,
            payload: &[],
            addresses: [CLIENT.0, SERVER.0],
            port: SERVER.1,
            client_port: CLIENT.1,
            second: None,
            is_split: false,
        }
    }

    /// A packet `after` the one before.
    fn packet(&mut self, after_ns: u64, end: End, seq: u32, flags: &str, window: u16, payload: usize) {
        self.now_ns += after_ns;
        let (src, dst, peer) = match end {
            End::Client => ((self.addresses[0], self.client_port), (self.addresses[1], self.port), 1),
            End::Server => ((self.addresses[1], self.port), (self.addresses[0], self.client_port), 0),
        };
        let builder = PacketBuilder::ipv4(src.0, dst.0, 64).tcp(src.1, dst.1, seq, window);
        let builder = if flags.contains('A') { builder.ack(self.sent[peer]) } else { builder };
        let builder = if flags.contains('F') { builder.fin() } else { builder };
        let builder = if flags.contains('R') { builder.rst() } else { builder };
        let mut options: Vec<TcpOptionElement> = self
            .stamps
            .iter()
            .map(|stamps| TcpOptionElement::Timestamp(stamps[end as usize].0, stamps[end as usize].1))
            .collect();
        options.extend(self.sack.map(|block| TcpOptionElement::SelectiveAcknowledgement(block, [None; 3])));
        let builder = if flags.contains('S') {
            options.extend([TcpOptionElement::MaximumSegmentSize(1_000), TcpOptionElement::WindowScale(7)]);
            builder.syn()
        } else {
            builder
        };
        let builder = builder.options(&options).unwrap();
        let mut data = Vec::new();
        let mut bytes = vec![b'x'; payload];
        bytes.iter_mut().zip(self.payload).for_each(|(byte, first)| *byte = *first);
        builder.write(&mut data, &bytes).unwrap();
        let wire_len = data.len() as u32;
        let (is_client, now_ns) = (matches!(end, End::Client), self.now_ns);
        let second = self.second.map(|ns| (1, if is_client { now_ns + ns } else { now_ns - ns }));
        let first = (is_client || !self.is_split).then_some((0, now_ns));
        for (interface, time_ns) in first.into_iter().chain(second) {
            self.replay.observe(&Observation { time_ns, interface, link: 101, data: &data, wire_len });
        }
    }

    fn data(&mut self, after_ns: u64, end: End, payload: usize) {
        let sent = &mut self.sent[end as usize];
        let seq = *sent;
        *sent += payload as u32;
        self.packet(after_ns, end, seq, "A", 1_000, payload);
    }

    /// The last bytes once more.
    fn again(&mut self, after_ns: u64, end: End, payload: usize) {
        let seq = self.sent[end as usize] - payload as u32;
        self.packet(after_ns, end, seq, "A", 1_000, payload);
    }

    fn ack(&mut self, after_ns: u64, end: End) {
        self.packet(after_ns, end, self.sent[end as usize], "A", 1_000, 0);
    }

    /// The first record of TLS's handshake.
    fn hello(&mut self, after_ns: u64) {
        let sent = &mut self.sent[End::Client as usize];
        let seq = *sent;
        *sent += 200;
        self.payload = &[0x16, 3, 1, 0, 195];
        self.packet(after_ns, End::Client, seq, "A", 1_000, 200);
        self.payload = &[];
    }

    /// At the client, with a round trip of this length to the server.
    fn handshake(&mut self, round_trip_ns: u64) {
        self.handshake_between(round_trip_ns, 10_000);
    }

    /// At the server, with a round trip of this length to the client.
    fn handshake_at_server(&mut self, round_trip_ns: u64) {
        self.handshake_between(10_000, round_trip_ns);
    }

    /// Where the ways to the server and to the client, and back, take so long.
    fn handshake_between(&mut self, to_server_ns: u64, to_client_ns: u64) {
        self.packet(0, End::Client, self.sent[0], "S", 1_000, 0);
        self.sent[0] += 1;
        self.packet(to_server_ns, End::Server, self.sent[1], "SA", 1_000, 0);
        self.sent[1] += 1;
        self.ack(to_client_ns, End::Client);
    }

    /// All time of the connections is in a part or idle.
    fn verdict(self) -> Verdict {
        let evidence = self.replay.evidence("test");
        let divided_ns = evidence.sums.times.total() - evidence.sums.times.get(Part::Names) + evidence.sums.idle_ns;
        assert!((divided_ns - evidence.sums.polled_ns).abs() < 1e3, "{divided_ns} of {}", evidence.sums.polled_ns);
        decide(&evidence)
    }
}

fn cause(verdict: &Verdict) -> Option<Cause> {
    match verdict.outcome {
        Outcome::Slow(cause) => Some(cause),
        _ => None,
    }
}

#[test]
fn answers_that_come_late_are_the_peers_at_the_client_and_the_services_at_the_server() {
    let mut wire = Wire::new();
    wire.handshake(2 * MS);
    for _ in 0..10 {
        wire.data(5 * MS, End::Client, 100);
        wire.ack(2 * MS, End::Server);
        wire.data(50 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let at_client = wire.verdict();
    assert_eq!(cause(&at_client), Some(Cause::SlowAnswer), "{at_client:?}");
    assert!(at_client.sentence.starts_with("Seen from 192.0.2.1"), "{}", at_client.sentence);
    let mut wire = Wire::new();
    wire.handshake_at_server(2 * MS);
    for _ in 0..10 {
        wire.data(5 * MS, End::Client, 100);
        wire.data(50 * MS, End::Server, 200);
        wire.ack(2 * MS, End::Client);
    }
    let at_server = wire.verdict();
    assert_eq!(cause(&at_server), Some(Cause::SlowService), "{at_server:?}");
}

#[test]
fn a_lost_message_that_waits_for_a_timeout_is_a_tail_loss() {
    let mut wire = Wire::new();
    wire.handshake(10 * MS);
    for _ in 0..5 {
        wire.data(5 * MS, End::Client, 100);
        wire.again(220 * MS, End::Client, 100);
        wire.data(10 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::TailLoss), "{verdict:?}");
}

#[test]
fn a_second_small_write_that_waits_for_a_delayed_acknowledgement_is_nagles() {
    let mut wire = Wire::new();
    wire.handshake(2 * MS);
    for _ in 0..10 {
        wire.data(5 * MS, End::Client, 20);
        wire.ack(42 * MS, End::Server);
        wire.data(20_000, End::Client, 80);
        wire.data(2 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::Nagle), "{verdict:?}");
    let mut wire = Wire::new();
    wire.handshake_at_server(2 * MS);
    for _ in 0..10 {
        wire.data(5 * MS, End::Client, 20);
        wire.ack(40 * MS, End::Server);
        wire.data(2 * MS, End::Client, 80);
        wire.data(20_000, End::Server, 200);
        wire.ack(2 * MS, End::Client);
    }
    let at_server = wire.verdict();
    assert_eq!(cause(&at_server), Some(Cause::Nagle), "{at_server:?}");
}

/// A client that thinks about as long as it delays acknowledgements.
#[test]
fn an_answer_to_what_came_after_a_late_acknowledgement_was_not_held_back() {
    let mut wire = Wire::new();
    wire.handshake_at_server(MS / 10);
    for _ in 0..40 {
        wire.data(500_000, End::Client, 60);
        wire.data(200_000, End::Server, 500);
        wire.ack(42 * MS, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!((verdict.outcome, cause(&verdict)), (Outcome::Healthy, None), "{verdict:?}");
}

#[test]
fn a_first_packet_that_is_lost_makes_the_set_up_slow() {
    let mut wire = Wire::new();
    wire.packet(0, End::Client, wire.sent[0], "S", 1_000, 0);
    wire.packet(1_000 * MS, End::Client, wire.sent[0], "S", 1_000, 0);
    wire.sent[0] += 1;
    wire.packet(10 * MS, End::Server, wire.sent[1], "SA", 1_000, 0);
    wire.sent[1] += 1;
    wire.ack(10_000, End::Client);
    for _ in 0..8 {
        wire.data(MS, End::Client, 100);
        wire.data(11 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SlowSetUp), "{verdict:?}");
    let retries = verdict.facts.iter().find(|fact| fact.what.contains("sent again")).unwrap();
    assert_eq!(retries.value, Some(Value::Count(1)));
}

#[test]
fn quick_requests_are_healthy_and_cut_packets_are_no_panic() {
    let mut wire = Wire::new();
    wire.handshake(MS);
    for _ in 0..50 {
        wire.data(MS, End::Client, 100);
        wire.data(MS + 100_000, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!(verdict.outcome, Outcome::Healthy, "{verdict:?}");
    let mut data = Vec::new();
    PacketBuilder::ipv4(CLIENT.0, SERVER.0, 64).tcp(1, 2, 3, 4).syn().write(&mut data, &[]).unwrap();
    let mut replay = Replay::new(Filter::default(), true);
    for length in 0..=data.len() {
        let data = &data[..length];
        replay.observe(&Observation { time_ns: 5, interface: 0, link: 101, data, wire_len: 40 });
    }
    assert_eq!(decide(&replay.evidence("cut")).outcome, Outcome::NoTraffic);
}

#[test]
fn connections_beyond_the_limit_are_counted_and_do_not_begin_later() {
    let mut replay = Replay::new(Filter::default(), true);
    let mut pass = |number: u32, at_ms: u64, is_first: bool| {
        let mut data = Vec::new();
        let source = (number >> 8).to_be_bytes();
        let builder = PacketBuilder::ipv4([10, source[1], source[2], source[3]], SERVER.0, 64);
        let builder = builder.tcp(30_000 + (number & 0xff) as u16, 80, 1, 100);
        let builder = if is_first { builder.syn() } else { builder.ack(1) };
        builder.write(&mut data, &[]).unwrap();
        let wire_len = data.len() as u32;
        replay.observe(&Observation { time_ns: at_ms * MS, interface: 0, link: 101, data: &data, wire_len });
    };
    let most = super::MAX_CONNECTIONS as u32;
    (0..most + 10).for_each(|number| pass(number, 0, true));
    // The first ones have made room.
    (0..300).for_each(|_| pass(0, 100_000, false));
    (most..most + 10).for_each(|number| pass(number, 100_000, false));
    pass(most + 20, 100_000, true);
    let evidence = replay.evidence("flood");
    assert_eq!(evidence.omitted, 10);
    assert!(evidence.unseen.iter().any(|unseen| unseen.what.starts_with("10 connections beyond")));
    assert!(!evidence.unseen.iter().any(|unseen| unseen.what.contains("began before")), "{:?}", evidence.unseen);
}
