//! Polls that are further apart than what they are to find.

use super::*;

/// A connection that is polled each `apart_ms`, which may vary. The client thinks, and asks; the server answers after `answer_ms`, by so many
/// segments; a round trip takes 1 ms. Times of the last data have the kernel's tick of 4 ms.
pub(super) fn polled(
    role: Role,
    mut apart_ms: impl FnMut() -> u64,
    (answer_ms, segments): (u64, u32),
    mut think_ms: impl FnMut() -> u64,
    look_ms: u64,
) -> Connection {
    const TICK_MS: u64 = 4;
    let (mut asked, mut answered, mut turns, mut pure) = (None, None, (0_u32, 0_u32), 0);
    let mut next_ms = think_ms();
    let mut socket = Socket::new(role);
    let mut at_ms = 1;
    loop {
        // Events up to this poll.
        loop {
            let is_asked = turns.0 > turns.1;
            let event_ms = if is_asked { asked.unwrap_or(0) + answer_ms } else { next_ms };
            if event_ms > at_ms {
                break;
            }
            if is_asked {
                answered = Some(event_ms);
                turns.1 += 1;
                next_ms = event_ms + think_ms();
                // So does a server that has learned that its answers are late.
                pure += u32::from(next_ms > event_ms || role == Role::Client);
            } else {
                asked = Some(event_ms);
                turns.0 += 1;
            }
        }
        let ago = |event: Option<u64>| event.map_or(100_000, |ms| (at_ms / TICK_MS - ms / TICK_MS) * TICK_MS) as u32;
        let info = &mut socket.reading.info;
        let (ask, answer) = ((turns.0, ago(asked)), (turns.1 * segments, ago(answered)));
        let (out, into) = if role == Role::Client { (ask, answer) } else { (answer, ask) };
        (info.data_segments_out, info.bytes_sent, info.last_data_sent_ms) =
            (Some(out.0), Some(u64::from(out.0) * 100), out.1);
        (info.data_segments_in, info.bytes_received, info.last_data_received_ms) =
            (Some(into.0), Some(u64::from(into.0) * 100), into.1);
        info.bytes_acked = Some(1 + u64::from(out.0) * 100);
        // A request that follows at once acknowledges the answer.
        info.segments_in = Some(into.0 + pure);
        (info.rtt_us, info.min_rtt_us) = (1000, Some(1000));
        socket.reading.time_ns = at_ms * 1_000_000;
        if at_ms == 1 {
            socket.connection = Connection::new(role, &socket.reading);
        } else {
            socket.connection.observe(&socket.reading);
        }
        at_ms += apart_ms();
        if at_ms > look_ms {
            return socket.connection;
        }
    }
}

/// Connections that ask now and then, polled a few times each, as thousands of them are.
fn polled_by_the_thousand(role: Role, apart_ms: u64, answer: (u64, u32), think_ms: u64) -> Evidence {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    let mut random = 1_u64;
    for _ in 0..800 {
        let mut think = || {
            random = crate::hash::split_mix(random);
            let share = ((random >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            (-share.ln() * think_ms as f64) as u64
        };
        evidence.add(&polled(role, || apart_ms, answer, &mut think, 10_000), key(role, 80), CountKind::Whole);
    }
    evidence
}

#[test]
fn thousands_of_connections_that_are_polled_seldom_wait_as_long_as_they_do() {
    for role in [Role::Server, Role::Client] {
        for (apart_ms, think_ms) in [(3300, 10_000), (3300, 1_000), (600, 1_000), (1100, 0), (113, 40)] {
            // Whether a client that never pauses or its server was last is told by what acknowledges.
            if role == Role::Client && think_ms == 0 {
                continue;
            }
            for answer_ms in [40, 200, 1500] {
                let evidence = polled_by_the_thousand(role, apart_ms, (answer_ms, 1), think_ms);
                let (waits, part, slow) = match role {
                    Role::Server => (evidence.sums.service, Part::Service, Cause::SlowService),
                    Role::Client => (evidence.sums.answer, Part::Answer, Cause::SlowAnswer),
                };
                let case = format!("{role:?}, polls each {apart_ms} ms, {think_ms} ms, {answer_ms} ms: {waits:?}");
                let mean_ms = waits.mean_ns().unwrap_or(0.0) / MS;
                assert!((0.7..1.3).contains(&(mean_ms / answer_ms as f64)), "{case}: {mean_ms}");
                let share = evidence.sums.times.get(part) / evidence.sums.polled_ns;
                let truth = answer_ms as f64 / (answer_ms + think_ms) as f64;
                assert!((0.6..1.5).contains(&(share / truth)), "{case}: {share} of {truth}");
                assert_eq!(cause(&evidence), Some(slow), "{case}");
            }
            let evidence = polled_by_the_thousand(role, apart_ms, (2, 1), think_ms);
            assert_eq!(cause(&evidence), None, "{role:?} {apart_ms} {think_ms}: {:?}", evidence.sums.service);
        }
    }
}

/// A busy machine: the mean time between polls is 33 ms, and many are 20 to 30 ms apart.
fn polled_on_a_busy_machine(role: Role, answer_ms: u64, think_ms: u64) -> Evidence {
    let mut evidence = Evidence { observed_ns: 8_000_000_000, ..Evidence::default() };
    let (mut random, mut polls) = (1_u64, 0_usize);
    for _ in 0..4 {
        let apart = || {
            polls += 1;
            [21, 27, 29, 24, 62, 18, 28, 55][polls % 8]
        };
        let think = || {
            random = crate::hash::split_mix(random);
            think_ms * (90 + random % 20) / 100
        };
        evidence.add(&polled(role, apart, (answer_ms, 1), think, 8_000), key(role, 80), CountKind::Whole);
    }
    evidence
}

#[test]
fn quick_answers_of_a_busy_machine_are_not_as_long_as_its_polls_are_apart() {
    for role in [Role::Server, Role::Client] {
        for think_ms in [5, 20] {
            let evidence = polled_on_a_busy_machine(role, 1, think_ms);
            assert!(evidence.poll_interval_ns() > 30.0 * MS, "{}", evidence.poll_interval_ns());
            let waits = evidence.sums.service.with(&evidence.sums.answer);
            assert_eq!(cause(&evidence), None, "{role:?} {think_ms}: {waits:?}");
            assert!(
                waits.mean_ns() < Some(20.0 * MS) && waits.longest_ns < 24_000_000,
                "{role:?} {think_ms}: {waits:?}"
            );
        }
        for (answer_ms, think_ms) in [(20, 5), (25, 0), (41, 0), (60, 20), (120, 5)] {
            let evidence = polled_on_a_busy_machine(role, answer_ms, think_ms);
            let waits = evidence.sums.service.with(&evidence.sums.answer);
            let slow = if role == Role::Server { Cause::SlowService } else { Cause::SlowAnswer };
            let case = format!("{role:?} {answer_ms} {think_ms}: {waits:?} {:?}", evidence.sums.times);
            // Nothing tells at a client that never pauses whether it was last, but where polls see it wait.
            match (role, think_ms) {
                (Role::Client, 0) => assert_ne!(decide(&evidence).outcome, Outcome::Healthy, "{case}"),
                _ => assert_eq!(cause(&evidence), Some(slow), "{case}"),
            }
        }
    }
}

/// A client asks again as soon as it is answered, so that nobody knows at polls who spoke last, and nobody is idle.
#[test]
fn what_is_unknown_between_two_polls_is_not_idle() {
    for answer_ms in [41, 86] {
        let evidence = polled_on_a_busy_machine(Role::Client, answer_ms, 0);
        let idle = evidence.sums.idle_ns / evidence.sums.polled_ns;
        assert!(idle < 0.1, "{answer_ms}: idle {idle} {:?}", evidence.sums.times);
        let verdict = decide(&evidence);
        let most = verdict.facts.iter().find(|fact| fact.what.starts_with("at most, in the mean over all answers"));
        if let Some(Value::Time(ns)) = most.and_then(|fact| fact.value) {
            assert!(ns >= answer_ms as f64 * 0.9 * MS, "{answer_ms}: {ns}");
        }
    }
}

/// Nothing tells when an answer that does not fit a congestion window began: its last segment alone has a time.
#[test]
fn quick_answers_that_are_long_are_not_taken_for_late_ones() {
    for (role, apart_ms, think_ms) in [
        (Role::Server, 3300, 10_000),
        (Role::Server, 1000, 2_000),
        (Role::Server, 113, 40),
        (Role::Client, 3300, 10_000),
        (Role::Client, 1000, 2_000),
        (Role::Client, 113, 40),
    ] {
        for answer_ms in [5, 200] {
            let evidence = polled_by_the_thousand(role, apart_ms, (answer_ms, 20), think_ms);
            let (waits, part, slow) = match role {
                Role::Server => (evidence.sums.service, Part::Service, Cause::SlowService),
                Role::Client => (evidence.sums.answer, Part::Answer, Cause::SlowAnswer),
            };
            let case = format!("{role:?}, polls each {apart_ms} ms, {think_ms} ms, {answer_ms} ms: {waits:?}");
            let is_slow = answer_ms >= 200;
            assert_eq!(cause(&evidence), is_slow.then_some(slow), "{case}");
            if is_slow {
                let mean_ms = waits.mean_ns().unwrap_or(0.0) / MS;
                assert!((0.4..1.5).contains(&(mean_ms / answer_ms as f64)), "{case}: {mean_ms}");
                let share = evidence.sums.times.get(part) / evidence.sums.polled_ns;
                let truth = answer_ms as f64 / (answer_ms + think_ms) as f64;
                assert!((0.5..2.0).contains(&(share / truth)), "{case}: {share} of {truth}");
            }
        }
    }
}

/// A small segment waits for the acknowledgement of the one before, 40 ms each time, as often as can be.
#[test]
fn waits_of_small_segments_that_follow_one_another_between_two_polls_are_several() {
    let mut socket = Socket::new(Role::Server);
    for poll in 0..100_u64 {
        socket.reading.time_ns += 113_000_000;
        let info = &mut socket.reading.info;
        (info.notsent_bytes, info.unacked, info.cwnd, info.send_window) = (Some(200), 1, 10, Some(60_000));
        info.last_data_sent_ms = (poll * 113 % 40) as u32;
        info.bytes_acked = info.bytes_acked.map(|acked| acked + 600);
        info.bytes_sent = info.bytes_sent.map(|sent| sent + 600);
        info.bytes_received = info.bytes_received.map(|received| received + 200);
        socket.connection.observe(&socket.reading);
    }
    let held = socket.evidence().sums.held;
    assert!(held.count >= 98, "{held:?}");
    assert!((30.0..50.0).contains(&(held.mean_ns().unwrap() / MS)), "{held:?}");
}

/// The answer to the first message of TLS's handshake, the rest of that and a request come between the same two polls.
#[test]
fn a_slow_handshake_of_tls_opens_a_connection_however_far_apart_polls_are() {
    for role in [Role::Client, Role::Server] {
        let mut socket = Socket::new(role);
        if role == Role::Client {
            socket.answer();
        } else {
            socket.request();
        };
        for waited_ms in [40, 80, 120, 160, 200] {
            socket.reading.time_ns += 39_000_000;
            let info = &mut socket.reading.info;
            let (ask, answer) = if waited_ms < 200 { ((0, waited_ms), (0, 100_000)) } else { ((2, 5), (3, 20)) };
            let (out, into) = if role == Role::Client { (ask, answer) } else { (answer, ask) };
            (info.data_segments_out, info.data_segments_in) = (Some(out.0), Some(into.0));
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100 * u64::from(out.0));
            info.bytes_received = info.bytes_received.map(|bytes| bytes + 100 * u64::from(into.0));
            (info.last_data_sent_ms, info.last_data_received_ms) = (out.1, into.1);
            socket.polls(1, |_| {});
        }
        socket.connection.opened_with_tls();
        let evidence = socket.evidence();
        let set_up_ms = evidence.sums.times.get(Part::SetUp) / MS;
        assert!((160.0..=200.0).contains(&set_up_ms), "{role:?} {:?}", evidence.sums.times);
        assert_eq!(
            (evidence.sums.secured.count, evidence.sums.answer.count + evidence.sums.service.count),
            (1, 0),
            "{role:?}"
        );
    }
}

/// As of a server of small files, which the client asks for one after the other.
#[test]
fn answers_that_take_a_round_trip_or_two_are_limited_by_the_distance() {
    for (polls, wanted) in [(35, Some(Cause::Distance)), (140, None)] {
        let mut socket = Socket::new(Role::Server);
        (socket.reading.info.rtt_us, socket.reading.info.min_rtt_us) = (20_500, Some(20_000));
        for _ in 0..20 {
            socket.request();
            socket.reading.info.unacked = 70;
            for _ in 0..polls {
                socket.polls(1, |info| {
                    info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100_000 / polls);
                    info.busy_us = info.busy_us.map(|us| us + 1_000);
                });
            }
            socket.reading.info.unacked = 0;
        }
        assert_eq!(cause(&socket.evidence()), wanted, "{polls} ms: {:?}", socket.evidence().sums.times);
    }
}
