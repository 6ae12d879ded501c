use super::*;

/// Requests that are answered after `service_ns` at a server that is `way_ns` away, there and back, from a client at which the
/// capture was taken, with pauses of 20 ms between them. Answers carry the acknowledgement of their request, and have so many
/// segments.
fn at_client(way_ns: u64, service_ns: u64, segments: usize) -> Verdict {
    let mut wire = Wire::new();
    wire.handshake(way_ns);
    for _ in 0..20 {
        wire.data(20 * MS, End::Client, 100);
        wire.data(way_ns + service_ns, End::Server, 1_000);
        (1..segments).for_each(|_| wire.data(10_000, End::Server, 1_000));
        wire.ack(10_000, End::Client);
    }
    wire.verdict()
}

fn ms_of(verdict: &Verdict, what: &str) -> f64 {
    let fact = verdict.facts.iter().find(|fact| fact.what.contains(what));
    match fact.and_then(|fact| fact.value) {
        Some(Value::Time(ns)) => ns / 1e6,
        other => panic!("{what}: {other:?} in {verdict:?}"),
    }
}

#[test]
fn an_answer_that_carries_the_acknowledgement_of_its_request_is_late_all_the_same() {
    for (way_ns, service_ns) in [(MS / 2, 8 * MS), (2 * MS, 15 * MS), (4 * MS, 30 * MS), (12 * MS, 38 * MS)] {
        let verdict = at_client(way_ns, service_ns, 1);
        assert_eq!(cause(&verdict), Some(Cause::SlowAnswer), "{verdict:?}");
        let service_ms = service_ns as f64 / 1e6;
        assert!((ms_of(&verdict, "round trips of requests beyond the shortest") / service_ms - 1.0).abs() < 0.05);
        // A queue on the path would look the same.
        assert_eq!(verdict.certainty, Some(Certainty::Likely), "{verdict:?}");
    }
}

#[test]
fn the_way_from_the_capture_to_the_server_is_not_the_work_of_the_service() {
    // The server sends most, so that its limits count.
    let far = at_client(20 * MS, MS, 10);
    assert_eq!(cause(&far), Some(Cause::Distance), "{far:?}");
    let slow = at_client(4 * MS, 15 * MS, 10);
    assert_eq!(cause(&slow), Some(Cause::SlowService), "{slow:?}");
    let took_ms = ms_of(&slow, "mean time to answer");
    assert!((took_ms / 15.0 - 1.0).abs() < 0.05, "{took_ms}");
}

#[test]
fn messages_to_an_end_that_sends_nothing_itself_keep_nobody_waiting() {
    let mut wire = Wire::new();
    wire.handshake(35 * MS);
    for _ in 0..50 {
        wire.data(65 * MS, End::Client, 200);
        wire.ack(35 * MS, End::Server);
    }
    let verdict = wire.verdict();
    let awaited = [Part::Distance, Part::Answer];
    assert!(!verdict.parts.iter().any(|(part, _)| awaited.contains(part)), "{verdict:?}");
}

/// After so long an end acknowledges what it has not answered.
const DELAYED_NS: u64 = 40 * MS;

/// Requests one after the other, of a server that is 20 ms away, there and back.
#[derive(Debug, Clone, Copy)]
struct Loop {
    /// The place of the capture: 0 is the client, 100 the server.
    place: u64,
    service_ns: u64,
    /// Segments of an answer, and their bytes.
    segments: usize,
    bytes: usize,
    /// From an answer to the next request, in turn.
    pauses_ns: &'static [u64],
    /// Whether the client acknowledges answers before it asks again.
    has_acks: bool,
}

impl Loop {
    const WAY_NS: u64 = 20 * MS;

    fn verdict(self) -> Verdict {
        let mut wire = Wire::new();
        let to_client_ns = Self::WAY_NS * self.place / 100;
        let to_server_ns = Self::WAY_NS - to_client_ns;
        wire.handshake_between(to_server_ns, to_client_ns);
        for number in 0..80 {
            let pause_ns = self.pauses_ns[number % self.pauses_ns.len()];
            let ack_ns = if self.has_acks { 10_000 } else { pause_ns.min(DELAYED_NS) };
            if self.has_acks || pause_ns > DELAYED_NS {
                wire.ack(to_client_ns + ack_ns, End::Client);
                wire.data(pause_ns.saturating_sub(ack_ns), End::Client, 100);
            } else {
                wire.data(to_client_ns + pause_ns, End::Client, 100);
            }
            let delayed_ns = self.service_ns.min(DELAYED_NS);
            if self.service_ns > delayed_ns {
                wire.ack(to_server_ns + delayed_ns, End::Server);
                wire.data(self.service_ns - delayed_ns, End::Server, self.bytes);
            } else {
                wire.data(to_server_ns + self.service_ns, End::Server, self.bytes);
            }
            (1..self.segments).for_each(|_| wire.data(0, End::Server, self.bytes));
        }
        wire.verdict()
    }
}

#[test]
fn the_work_of_a_service_is_as_long_wherever_the_capture_was_taken() {
    let places = [0, 20, 50, 80, 100].into_iter().flat_map(|place| [10, 30, 57, 150].map(|ms| (place, ms)));
    // Of three segments a receiver acknowledges the first two at once.
    let answers = [(1, 300, false), (1, 300, true), (1, 900, false), (1, 900, true), (3, 900, true)];
    let pauses: [&[u64]; 2] = [&[0], &[0, 30 * MS, 100 * MS]];
    let mut wrong = Vec::new();
    for ((place, ms), pauses_ns) in places.flat_map(|case| pauses.map(|pauses_ns| (case, pauses_ns))) {
        for (segments, bytes, has_acks) in answers {
            let case = Loop { place, service_ns: ms * MS, segments, bytes, pauses_ns, has_acks };
            let verdict = case.verdict();
            let ns_of = |parts: &[Part]| {
                verdict.parts.iter().filter(|(part, _)| parts.contains(part)).map(|(_, ns)| ns).sum::<f64>()
            };
            let share = ns_of(&[Part::Service, Part::Answer]) / ns_of(&Part::ALL);
            let truth = ms as f64 / (ms as f64 + 20.0);
            let is_named = matches!(cause(&verdict), Some(Cause::SlowService | Cause::SlowAnswer));
            if (ms > 10 && !is_named) || (share - truth).abs() > 0.05 {
                wrong.push((case, cause(&verdict), truth, share, verdict.parts));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Downloads one after the other on one connection, 20 ms from the server, whose pace sends each in pieces.
fn downloads(place: u64, pieces_apart_ns: &[u64]) -> Verdict {
    let mut wire = Wire::new();
    let to_client_ns = 20 * MS * place / 100;
    let to_server_ns = 20 * MS - to_client_ns;
    wire.handshake_between(to_server_ns, to_client_ns);
    for _ in 0..40 {
        wire.data(10_000, End::Client, 100);
        let asked_ns = wire.now_ns;
        // Of each piece when it passes, and when its acknowledgement does.
        let mut packets = Vec::new();
        let mut leaves_ns = asked_ns + to_server_ns;
        for (number, apart_ns) in (1..).zip(pieces_apart_ns) {
            leaves_ns += apart_ns;
            packets.extend([(leaves_ns, None), (leaves_ns + to_client_ns + 10_000, Some(number))]);
        }
        packets.sort();
        let first = wire.sent[1];
        for (time_ns, acked) in packets {
            wire.now_ns = time_ns;
            let all = wire.sent[1];
            match acked {
                None => (0..10).for_each(|_| wire.data(0, End::Server, 1_000)),
                Some(number) => {
                    wire.sent[1] = first + number * 10_000;
                    wire.ack(0, End::Client);
                    wire.sent[1] = all;
                }
            }
        }
    }
    wire.verdict()
}

#[test]
fn downloads_one_after_the_other_are_no_application_that_pauses() {
    let pieces_apart_ns = [0, 1, 4, 1, 4, 3, 4].map(|ms| ms * MS);
    for place in [0, 50, 100] {
        let verdict = downloads(place, &pieces_apart_ns);
        assert_ne!(cause(&verdict), Some(Cause::SlowApplication), "{place} {verdict:?}");
    }
}

/// Downloads of 30 segments one after the other, each of which takes so many round trips of 60 ms.
fn far_downloads(is_at_client: bool, rounds: usize) -> Verdict {
    let mut wire = Wire::new();
    let (to_server_ns, to_client_ns) = if is_at_client { (60 * MS, 10_000) } else { (10_000, 60 * MS) };
    wire.handshake_between(to_server_ns, to_client_ns);
    for _ in 0..20 {
        wire.data(5 * MS, End::Client, 100);
        for _ in 0..rounds {
            wire.now_ns += to_server_ns;
            (0..30).for_each(|_| wire.data(0, End::Server, 1_000));
            wire.ack(to_client_ns, End::Client);
        }
    }
    wire.verdict()
}

#[test]
fn answers_that_take_a_round_trip_each_wait_for_the_distance_however_long_they_are() {
    for is_at_client in [true, false] {
        let verdict = far_downloads(is_at_client, 1);
        assert_eq!(cause(&verdict), Some(Cause::Distance), "{verdict:?}");
        let verdict = far_downloads(is_at_client, 20);
        assert_ne!(cause(&verdict), Some(Cause::Distance), "{verdict:?}");
    }
}

/// A pool opens connections before it needs them.
#[test]
fn a_connection_of_tls_that_is_kept_for_later_is_open() {
    let mut wire = Wire::new();
    wire.handshake(2 * MS);
    wire.hello(MS);
    wire.data(3 * MS, End::Server, 1_000);
    wire.payload = &[0x16, 3, 3, 0, 195];
    wire.data(MS, End::Client, 200);
    wire.data(3 * MS, End::Server, 200);
    wire.payload = &[0x17, 3, 3, 0, 195];
    for pause_ns in [30_000 * MS, MS, MS, MS] {
        wire.data(pause_ns, End::Client, 200);
        wire.data(3 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert_ne!(cause(&verdict), Some(Cause::SlowSetUp), "{verdict:?}");
    assert!(verdict.parts.iter().all(|(_, ns)| *ns < 100.0 * MS as f64), "{verdict:?}");
}

/// A server flushes the head of its answer, and then works.
#[test]
fn work_after_the_head_of_an_answer_is_the_services_if_the_client_waits_for_its_end() {
    let verdict = |has_handshake: bool, at_server: bool, think_ns: u64| {
        let mut wire = Wire::new();
        let (to_server_ns, to_client_ns) = if at_server { (10_000, 20 * MS) } else { (20 * MS, 10_000) };
        if has_handshake {
            wire.handshake_between(to_server_ns, to_client_ns);
        }
        for _ in 0..20 {
            wire.data(think_ns, End::Client, 100);
            wire.data(to_server_ns + MS, End::Server, 150);
            wire.ack(to_client_ns, End::Client);
            wire.data(150 * MS - to_client_ns, End::Server, 900);
            wire.ack(to_client_ns, End::Client);
        }
        wire.verdict()
    };
    for (has_handshake, at_server) in [(true, false), (true, true), (false, true)] {
        let found = verdict(has_handshake, at_server, MS);
        let expected = if at_server { Cause::SlowService } else { Cause::SlowAnswer };
        assert_eq!(cause(&found), Some(expected), "{has_handshake} {at_server}: {found:?}");
    }
    // One that is sent an event now and then waits for none.
    let events = verdict(true, false, 400 * MS);
    assert_ne!(cause(&events), Some(Cause::SlowAnswer), "{events:?}");
}

#[test]
fn an_answer_that_is_computed_piece_by_piece_is_the_services() {
    for at_server in [false, true] {
        let mut wire = Wire::new();
        let (to_server_ns, to_client_ns) = if at_server { (10_000, 4 * MS) } else { (4 * MS, 10_000) };
        wire.handshake_between(to_server_ns, to_client_ns);
        for _ in 0..20 {
            wire.data(MS, End::Client, 100);
            wire.ack(to_server_ns, End::Server);
            for _ in 0..5 {
                (0..3).for_each(|_| wire.data(0, End::Server, 1_000));
                wire.ack(to_client_ns, End::Client);
                wire.now_ns += 40 * MS - to_client_ns;
            }
            wire.data(0, End::Server, 500);
            wire.ack(to_client_ns, End::Client);
        }
        let verdict = wire.verdict();
        assert!(matches!(cause(&verdict), Some(Cause::SlowService | Cause::SlowAnswer)), "{at_server} {verdict:?}");
    }
}

#[test]
fn a_request_that_was_lost_beyond_the_capture_is_not_the_work_of_the_service() {
    let mut wire = Wire::new();
    wire.handshake(20 * MS);
    for _ in 0..10 {
        wire.data(20 * MS, End::Client, 100);
        wire.again(220 * MS, End::Client, 100);
        wire.data(25 * MS, End::Server, 1_000);
        (0..30).for_each(|_| wire.data(10_000, End::Server, 1_000));
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert!(matches!(cause(&verdict), Some(Cause::TailLoss | Cause::Loss)), "{verdict:?}");
}

/// As small devices do, which have room for a segment only.
#[test]
fn a_message_that_fills_the_window_waits_for_room_only_if_there_is_more() {
    let verdict = |has_more: bool| {
        let mut wire = Wire::new();
        wire.handshake(20 * MS);
        let mut small = |after_ns: u64, end: End, payload: usize| {
            let seq = wire.sent[end as usize];
            wire.sent[end as usize] += payload as u32;
            wire.packet(after_ns, end, seq, "A", 8, payload);
        };
        small(0, End::Server, 0);
        for _ in 0..40 {
            small(10 * MS, End::Client, 900);
            for _ in 0..if has_more { 3 } else { 0 } {
                small(20 * MS, End::Server, 0);
                small(10_000, End::Client, 900);
            }
            small(50 * MS, End::Server, 900);
        }
        wire.verdict()
    };
    let window = |verdict: &Verdict| {
        let found = verdict.parts.iter().find(|(part, _)| *part == Part::ReceiverWindow);
        found.map_or(0.0, |(_, ns)| ns / 1e6)
    };
    let (one, several) = (verdict(false), verdict(true));
    assert!(window(&one) < 1.0 && window(&several) > 1_000.0, "{one:?} {several:?}");
}

#[test]
fn a_clock_that_steps_forward_while_data_is_under_way_is_no_queue() {
    let mut wire = Wire::new();
    wire.handshake(2 * MS);
    for number in 0..20 {
        wire.data(5 * MS, End::Client, 100);
        wire.ack(if number == 10 { 10_800_000 * MS } else { 2 * MS }, End::Server);
        wire.data(50 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::SlowAnswer), "{verdict:?}");
}

/// Of a request in two segments that it acknowledges together, a receiver echoes the first timestamp also with its answer.
#[test]
fn an_answer_that_echoes_the_first_of_two_segments_was_in_no_queue() {
    let mut wire = Wire::new();
    wire.stamps = Some([(100, 0), (900, 100)]);
    wire.handshake_between(10_000, 10_000);
    for now in (1_000..).step_by(1_000).take(10) {
        wire.stamps = Some([(now, now - 700), (now + 50, now)]);
        wire.data(700 * MS, End::Client, 500);
        wire.stamps = Some([(now + 10, now - 700), (now + 50, now)]);
        wire.data(10 * MS, End::Client, 500);
        wire.ack(40 * MS, End::Server);
        wire.stamps = Some([(now + 250, now + 250), (now + 250, now)]);
        wire.data(200 * MS, End::Server, 200);
        wire.ack(10_000, End::Client);
    }
    let verdict = wire.verdict();
    let is_queue = |part: &Part| matches!(part, Part::LocalQueue | Part::RemoteQueue);
    assert!(!verdict.parts.iter().any(|(part, _)| is_queue(part)), "{verdict:?}");
    assert!(matches!(cause(&verdict), Some(Cause::SlowAnswer | Cause::SlowService)), "{verdict:?}");
}

/// Forms that are sent to a server 20 ms away, which works on each for 40 ms.
#[test]
fn long_requests_wait_for_the_server_as_long_at_its_host_as_at_the_client() {
    let asked = |at_server: bool| {
        let mut wire = Wire::new();
        let (up, down) = if at_server { (0, 20 * MS) } else { (20 * MS, 0) };
        wire.handshake_between(up + 10_000, down + 10_000);
        for _ in 0..20 {
            wire.data(down + 10_000, End::Client, 1_000);
            (0..19).for_each(|_| wire.data(10_000, End::Client, 1_000));
            wire.ack(up + 10_000, End::Server);
            wire.data(40 * MS, End::Server, 200);
        }
        wire.verdict()
    };
    for at_server in [false, true] {
        let verdict = asked(at_server);
        assert_eq!(cause(&verdict), Some(Cause::SlowAnswer), "{at_server}: {verdict:?}");
        let share = verdict.ranked[0].share;
        assert!((0.6..0.7).contains(&share), "{at_server}: {share}");
    }
}

/// As of `ab` without `-k`, or of a program that keeps no connection.
#[test]
fn a_connection_for_each_request_costs_half_of_the_time_also_where_the_peer_is_not_far() {
    let asked = |requests: usize| {
        let mut wire = Wire::new();
        for client in 0..20 {
            wire.sent = [client * 100_000, client * 100_000];
            wire.port = 8_000 + client as u16;
            wire.handshake(10 * MS);
            for _ in 0..requests {
                wire.data(10_000, End::Client, 100);
                wire.data(11 * MS, End::Server, 200);
            }
        }
        wire.verdict()
    };
    let each = asked(1);
    assert_eq!(cause(&each), Some(Cause::SlowSetUp), "{each:?}");
    assert!(each.remedies[0].effect.contains("keep connections open"), "{:?}", each.remedies);
    assert_eq!(asked(20).outcome, Outcome::Healthy);
}

#[test]
fn packets_whose_times_are_the_same_show_nothing() {
    let mut wire = Wire::new();
    wire.handshake(0);
    wire.replay = Replay::new(Filter::default(), true);
    let start_ns = wire.now_ns;
    for _ in 0..20 {
        wire.now_ns = start_ns;
        wire.data(0, End::Client, 100);
        wire.data(0, End::Server, 200);
    }
    let verdict = wire.verdict();
    assert_eq!(verdict.outcome, Outcome::NotEnough, "{verdict:?}");
    assert!(verdict.unseen[0].what.contains("all have the same time"), "{verdict:?}");
}

/// A server that is stopped for half a second each second, and answers at once otherwise.
#[test]
fn a_few_answers_that_take_most_of_the_time_are_not_hidden_by_a_short_mean() {
    let mut certainties = Vec::new();
    for late_ms in [500, 0] {
        let mut wire = Wire::new();
        wire.handshake(MS / 10);
        for number in 0..5_000 {
            wire.data(100_000, End::Client, 100);
            wire.data(100_000 + if number % 1_000 == 999 { late_ms * MS } else { 0 }, End::Server, 200);
        }
        let verdict = wire.verdict();
        assert_eq!(verdict.outcome, Outcome::Healthy, "{verdict:?}");
        certainties
            .push((verdict.certainty, verdict.sentence.contains("5 of them were waited for long, up to 0.50 s")));
    }
    assert_eq!(certainties, [(Some(Certainty::Possible), true), (Some(Certainty::Likely), false)]);
}
