//! Who waits for whom where the ends do not simply take turns.

use super::*;

#[test]
fn work_after_a_short_head_is_the_services_though_the_head_is_not_acknowledged_meanwhile() {
    for (to_server_ns, to_client_ns) in [(10_000, 12 * MS), (12 * MS, 10_000), (6 * MS, 6 * MS)] {
        let mut wire = Wire::new();
        wire.handshake_between(to_server_ns, to_client_ns);
        for _ in 0..30 {
            wire.data(MS, End::Client, 30);
            wire.data(to_server_ns + 3 * MS, End::Server, 200);
            wire.data(30 * MS, End::Server, 300);
            wire.ack(to_client_ns, End::Client);
        }
        let verdict = wire.verdict();
        assert!(matches!(cause(&verdict), Some(Cause::SlowService | Cause::SlowAnswer)), "{verdict:?}");
        let served_ns = verdict.parts.iter().filter(|(part, _)| matches!(part, Part::Service | Part::Answer));
        let served_ms = served_ns.map(|(_, ns)| ns).sum::<f64>() / 1e6;
        // Between the two, the way of the head to the client and back may count as that.
        assert!((served_ms / (30.0 * 33.0) - 1.0).abs() < 0.15, "{served_ms} {verdict:?}");
    }
}

#[test]
fn a_piece_that_leaves_with_the_acknowledgement_of_the_one_before_is_no_work() {
    for (to_server_ns, to_client_ns) in [(10_000, 30 * MS), (30 * MS, 10_000)] {
        let mut wire = Wire::new();
        wire.handshake_between(to_server_ns, to_client_ns);
        for _ in 0..30 {
            wire.data(MS, End::Client, 30);
            wire.data(to_server_ns, End::Server, 200);
            wire.ack(to_client_ns, End::Client);
            wire.data(to_server_ns, End::Server, 300);
            wire.ack(to_client_ns, End::Client);
        }
        let verdict = wire.verdict();
        assert_eq!(cause(&verdict), Some(Cause::Distance), "{verdict:?}");
    }
}

/// A server writes the head of an answer and then the rest, which Nagle's algorithm holds back until the client acknowledges the head,
/// 40 ms later. Which end is the nearer one shows only after half of the requests.
#[test]
fn what_is_held_back_is_that_whichever_end_seems_nearer() {
    for (first_ns, later_ns) in [(20_000, 20_000), (20_000, 4_000), (8_000, 8_000)] {
        let mut wire = Wire::new();
        wire.handshake_between(first_ns, 10_000);
        for number in 0..40 {
            let way_ns = if number < 20 { first_ns } else { later_ns };
            wire.data(20 * MS, End::Client, 67);
            wire.ack(way_ns, End::Server);
            wire.data(8 * MS, End::Server, 77);
            wire.ack(42 * MS, End::Client);
            wire.data(way_ns, End::Server, 200);
            wire.ack(10_000, End::Client);
        }
        let verdict = wire.verdict();
        assert_eq!(cause(&verdict), Some(Cause::Nagle), "{first_ns} {later_ns} {verdict:?}");
        let held_ns = verdict.parts.iter().find(|(part, _)| *part == Part::Held).map_or(0.0, |(_, ns)| *ns);
        assert!((held_ns / (40.0 * 42.0 * MS as f64) - 1.0).abs() < 0.05, "{held_ns} {verdict:?}");
    }
}

/// A client far away whose requests come in two pieces, of which the second waits for the acknowledgement of the first.
#[test]
fn what_is_held_back_beyond_the_way_is_that_at_the_other_end_too() {
    let mut wire = Wire::new();
    wire.handshake_at_server(12 * MS);
    for _ in 0..30 {
        wire.data(12 * MS, End::Client, 161);
        wire.ack(42 * MS, End::Server);
        wire.data(12 * MS, End::Client, 161);
        wire.ack(10_000, End::Server);
        wire.data(10 * MS, End::Server, 100);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::Nagle), "{verdict:?}");
}

#[test]
fn pieces_that_are_under_way_beside_each_other_are_not_held_back() {
    let mut wire = Wire::new();
    wire.handshake_at_server(12 * MS);
    for _ in 0..20 {
        for _ in 0..2 {
            wire.data(50 * MS, End::Client, 100);
            wire.ack(40 * MS, End::Server);
            wire.data(12 * MS, End::Client, 100);
            wire.data(20 * MS, End::Client, 100);
            wire.ack(20 * MS, End::Server);
        }
        wire.data(MS, End::Server, 100);
    }
    let verdict = wire.verdict();
    assert!(!verdict.parts.iter().any(|(part, _)| *part == Part::Held), "{verdict:?}");
}

/// A minimal generator of numbers that look random.
fn draw(state: &mut u32, below: u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) % below
}

/// Both ends send when they like, each `ms` after its message before in the mean.
fn chat(ms: [u32; 2]) -> Verdict {
    let mut wire = Wire::new();
    wire.handshake(12 * MS);
    let (mut state, mut due_ns) = (7, [0_u64, 0]);
    let mut next_ns = |side: usize| u64::from(2 * draw(&mut state, ms[side])) * MS + 100_000;
    let begin_ns = wire.now_ns;
    while wire.now_ns < begin_ns + 10_000 * MS {
        let side = usize::from(due_ns[1] < due_ns[0]);
        let after_ns = (begin_ns + due_ns[side]).saturating_sub(wire.now_ns);
        wire.data(after_ns, if side == 0 { End::Client } else { End::Server }, 60);
        wire.ack(10_000, if side == 0 { End::Server } else { End::Client });
        due_ns[side] += next_ns(side);
    }
    wire.verdict()
}

#[test]
fn ends_that_speak_when_they_like_are_hardly_waited_for() {
    for ms in [[100, 100], [50, 200], [300, 100], [20, 20]] {
        let verdict = chat(ms);
        if cause(&verdict).is_some() {
            assert_eq!(verdict.certainty, Some(Certainty::Possible), "{ms:?} {verdict:?}");
        }
    }
}

/// A server asks every second whether its client is there, which says so at once.
#[test]
fn a_capture_does_not_show_whether_an_end_is_silent_on_purpose() {
    for at_server in [false, true] {
        let mut wire = Wire::new();
        let (to_server_ns, to_client_ns) = if at_server { (10_000, 12 * MS) } else { (12 * MS, 10_000) };
        wire.handshake_between(to_server_ns, to_client_ns);
        for _ in 0..20 {
            wire.data(1_000 * MS, End::Server, 5);
            wire.data(to_client_ns, End::Client, 5);
            wire.ack(to_server_ns, End::Server);
        }
        let verdict = wire.verdict();
        assert!(verdict.unseen.iter().any(|it| it.what.contains("on purpose")), "{verdict:?}");
    }
}

/// Two full segments each 10 ms to an end 12 ms away, captured from the middle on.
#[test]
fn a_stream_that_its_program_writes_at_equal_times_is_not_limited_by_a_window() {
    for at_receiver in [false, true] {
        let mut wire = Wire::new();
        (0..1_000).for_each(|_| {
            wire.data(0, End::Client, 1_000);
            wire.data(0, End::Client, 1_000);
            let begin = wire.sent[0];
            let after_ns = if at_receiver { 10_000 } else { 2 * MS };
            if !at_receiver {
                // Of the two before.
                wire.sent[0] = begin - 2_000;
            }
            wire.packet(after_ns, End::Server, wire.sent[1], "A", 97, 0);
            wire.sent[0] = begin;
            wire.now_ns += 10 * MS - after_ns;
        });
        let verdict = wire.verdict();
        assert_ne!(cause(&verdict), Some(Cause::ReceiverWindow), "{at_receiver} {verdict:?}");
    }
}

/// The same each 6 ms, at the receiver, whose buffer grows by less than a segment.
#[test]
fn a_window_that_grows_by_less_than_a_segment_is_not_what_a_stream_follows() {
    let mut wire = Wire::new();
    for number in 0..1_000 {
        let now = number * 6;
        // The sender has the acknowledgement of the last but one.
        wire.stamps = Some([(100 + now, if number < 2 { 0 } else { 888 + now }), (900 + now, 100 + now)]);
        wire.data(0, End::Client, 1_000);
        wire.data(0, End::Client, 1_000);
        wire.packet(10_000, End::Server, wire.sent[1], "A", if number < 20 { 63 } else { 93 }, 0);
        wire.now_ns += 6 * MS - 10_000;
    }
    let verdict = wire.verdict();
    assert_ne!(cause(&verdict), Some(Cause::ReceiverWindow), "{verdict:?}");
}

/// Full segments to an end that says nothing, one after the other, each of which is acknowledged before the next.
#[test]
fn a_stream_of_full_segments_is_not_called_healthy_because_nobody_answers_it() {
    for has_handshake in [false, true] {
        let mut wire = Wire::new();
        if has_handshake {
            wire.handshake(12 * MS);
        }
        for number in 0..500 {
            wire.data(if number % 7 == 0 { 30 * MS } else { 2 * MS }, End::Client, 1_000);
            wire.ack(12 * MS, End::Server);
        }
        let verdict = wire.verdict();
        assert_ne!(verdict.outcome, Outcome::Healthy, "{verdict:?}");
    }
}

/// A proxy that asks a service for each of its requests, on one host: the service is slow, or the proxy itself.
fn proxied(service_ns: u64, own_ns: u64) -> Verdict {
    let proxy = [192, 0, 2, 7];
    let mut wires = [Wire::new(), Wire::new()];
    wires[0].addresses[1] = proxy;
    (wires[1].addresses[0], wires[1].port) = (proxy, 9_000);
    let replay = Replay::new(Filter::default(), true);
    let mut replay = Some(replay);
    let mut now_ns = 1_000 * MS;
    let mut step = |at: usize, what: &dyn Fn(&mut Wire)| {
        wires[at].replay = replay.take().unwrap();
        wires[at].now_ns = now_ns;
        what(&mut wires[at]);
        now_ns = wires[at].now_ns;
        replay = Some(std::mem::replace(&mut wires[at].replay, Replay::new(Filter::default(), true)));
    };
    (0..2).for_each(|at| step(at, &|wire| wire.handshake(20_000)));
    for _ in 0..20 {
        step(0, &|wire| {
            wire.data(2 * MS, End::Client, 100);
            wire.ack(10_000, End::Server);
        });
        step(1, &|wire| {
            wire.data(own_ns, End::Client, 100);
            wire.ack(10_000, End::Server);
            wire.data(service_ns, End::Server, 500);
            wire.ack(10_000, End::Client);
        });
        step(0, &|wire| {
            wire.data(100_000, End::Server, 600);
            wire.ack(10_000, End::Client);
        });
    }
    decide(&replay.unwrap().evidence("proxy"))
}

#[test]
fn what_a_proxy_waits_for_its_service_is_counted_once_and_there() {
    let slow_service = proxied(100 * MS, MS);
    assert_eq!(slow_service.about.port, Some(9_000), "{slow_service:?}");
    assert!(matches!(cause(&slow_service), Some(Cause::SlowAnswer | Cause::SlowService)), "{slow_service:?}");
    let all_ns: f64 = slow_service.parts.iter().map(|(_, ns)| ns).sum();
    assert!(all_ns < 20.0 * 110.0 * MS as f64, "{slow_service:?}");
    let slow_proxy = proxied(MS, 100 * MS);
    assert_eq!(slow_proxy.about.port, Some(80), "{slow_proxy:?}");
}
