//! Requests without an answer, and connections that are refused: somebody waited, however it ended.

use super::*;

/// A connection at its client, whose last request has no answer until somebody ends it after two seconds.
fn ended(answers: usize, by: End, flags: &str) -> Verdict {
    let mut wire = Wire::new();
    wire.handshake(20 * MS);
    for _ in 0..answers {
        wire.ask(MS);
        wire.data(25 * MS, End::Server, 400);
        wire.ack(10_000, End::Client);
    }
    wire.ask(MS);
    wire.ack(20 * MS, End::Server);
    wire.end(2_000 * MS, by, flags);
    wire.verdict()
}

impl Wire {
    /// A request whose label is known.
    fn ask(&mut self, after_ns: u64) {
        self.payload = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        self.data(after_ns, End::Client, 27);
        self.payload = &[];
    }

    /// One end closes the connection, or resets it.
    fn end(&mut self, after_ns: u64, by: End, flags: &str) {
        self.packet(after_ns, by, self.sent[by as usize], flags, 1_000, 0);
        self.sent[by as usize] += 1;
    }

    /// Both ends close it, this one first.
    fn close(&mut self, after_ns: u64, by: End) {
        self.end(after_ns, by, "FA");
        self.end(20 * MS, if matches!(by, End::Client) { End::Server } else { End::Client }, "FA");
        self.ack(10_000, by);
    }
}

fn count_of(verdict: &Verdict, what: &str) -> Option<u64> {
    match verdict.facts.iter().find(|fact| fact.what.contains(what))?.value {
        Some(Value::Count(count)) => Some(count),
        _ => None,
    }
}

#[test]
fn a_wait_that_no_answer_ends_is_the_servers() {
    for (by, flags, what) in [
        (End::Client, "FA", "clients gave up"),
        (End::Client, "RA", "clients gave up"),
        (End::Server, "FA", "server closed"),
        (End::Server, "RA", "server reset"),
    ] {
        for answers in [0, 1] {
            let verdict = ended(answers, by, flags);
            assert_eq!(cause(&verdict), Some(Cause::SlowAnswer), "{flags} after {answers}: {verdict:?}");
            assert_eq!(count_of(&verdict, what), Some(1), "{flags} after {answers}: {verdict:?}");
        }
    }
}

#[test]
fn a_request_that_is_reset_at_once_is_not_healthy() {
    let mut wire = Wire::new();
    wire.handshake(20 * MS);
    wire.ask(MS);
    wire.end(20 * MS, End::Server, "RA");
    let verdict = wire.verdict();
    assert!(!matches!(verdict.outcome, Outcome::Healthy), "{verdict:?}");
    assert_eq!(count_of(&verdict, "server reset"), Some(1), "{verdict:?}");
}

#[test]
fn a_client_that_has_closed_its_side_with_its_request_waits_until_the_server_closes() {
    for (flags, what) in [("FA", "server closed"), ("RA", "server reset")] {
        let mut wire = Wire::new();
        wire.handshake(20 * MS);
        wire.ask(MS);
        wire.end(10_000, End::Client, "FA");
        wire.ack(20 * MS, End::Server);
        wire.end(10_000 * MS, End::Server, flags);
        let verdict = wire.verdict();
        assert_eq!(cause(&verdict), Some(Cause::SlowAnswer), "{verdict:?}");
        assert_eq!(count_of(&verdict, what), Some(1), "{verdict:?}");
    }
}

/// SYNs that nothing answers pass one way, and no packet is missing.
#[test]
fn a_server_that_is_down_is_named_with_how_long_nothing_answered() {
    for (gaps_ms, later_ms, longest_s, syns) in
        [(&[1_000][..], 60_000, 1, 2), (&[1_000, 2_000, 4_000], 60_000, 7, 4), (&[1_000, 2_000, 4_000], 5_000, 12, 4)]
    {
        let mut wire = Wire::new();
        wire.packet(0, End::Client, 1_000, "S", 1_000, 0);
        gaps_ms.iter().for_each(|gap| wire.packet(gap * MS, End::Client, 1_000, "S", 1_000, 0));
        // A packet of others, later.
        wire.port = 9;
        wire.packet(later_ms * MS, End::Server, 1, "A", 1_000, 0);
        let verdict = wire.verdict();
        assert_eq!(cause(&verdict), Some(Cause::SlowSetUp), "{verdict:?}");
        assert!(!verdict.unseen.iter().any(|unseen| unseen.what.contains("one end")), "{verdict:?}");
        let said = format!("192.0.2.2:80 cannot be opened: nothing answered its SYN for {longest_s}.0 s");
        assert!(verdict.sentence.contains(&said), "{}", verdict.sentence);
        assert!(verdict.remedies[0].command.starts_with("mtr --tcp --port 80"), "{:?}", verdict.remedies);
        assert_eq!(count_of(&verdict, "nothing answered"), Some(1), "{verdict:?}");
        assert_eq!(count_of(&verdict, "SYNs of connections that nothing answered"), Some(syns), "{verdict:?}");
        assert!(verdict.facts.iter().all(|fact| fact.what != "connections opened"), "{verdict:?}");
    }
    // Of a hundred connections, five of whose SYNs are lost, the host is not down.
    let mut wire = Wire::new();
    for number in 0..105 {
        wire.client_port += 1;
        wire.packet(MS, End::Client, 1_000, "S", 1_000, 0);
        match number % 21 {
            0 => [1_000, 2_000].iter().for_each(|gap| wire.packet(gap * MS, End::Client, 1_000, "S", 1_000, 0)),
            _ => {
                wire.packet(MS, End::Server, 5_000, "SA", 1_000, 0);
                wire.packet(MS, End::Client, 1_001, "A", 1_000, 0);
            }
        }
    }
    let verdict = wire.verdict();
    assert!(!verdict.sentence.contains("cannot be opened"), "{}", verdict.sentence);
    // A client that gives up before TCP sends one again.
    let mut wire = Wire::new();
    for attempt in 1..=5 {
        wire.sent[0] = attempt * 1_000_000;
        wire.port += 1;
        wire.packet(2_000 * MS, End::Client, wire.sent[0], "S", 1_000, 0);
    }
    let verdict = wire.verdict();
    // The last one may still be answered.
    assert!(verdict.sentence.starts_with("Nothing answered the SYNs of 4 connections"), "{}", verdict.sentence);
}

#[test]
fn refused_connections_are_no_handshakes() {
    let mut wire = Wire::new();
    // Others are answered elsewhere.
    wire.handshake(MS);
    for _ in 0..10 {
        wire.ask(MS);
        wire.data(MS + MS / 10, End::Server, 400);
        wire.ack(10_000, End::Client);
    }
    wire.port = 81;
    refuse(&mut wire);
    let verdict = wire.verdict();
    assert!(verdict.unseen[0].remedy.contains("sport = :81"), "{verdict:?}");
    let mut wire = Wire::new();
    refuse(&mut wire);
    let verdict = wire.verdict();
    assert_eq!(verdict.outcome, Outcome::NoTraffic, "{verdict:?}");
    assert_eq!(count_of(&verdict, "refused"), Some(5), "{verdict:?}");
    assert!(verdict.sentence.contains("refused"), "{}", verdict.sentence);
}

/// Five attempts to open a connection.
fn refuse(wire: &mut Wire) {
    for attempt in 1..=5 {
        wire.sent = [attempt * 1_000, 0];
        wire.packet(500 * MS, End::Client, wire.sent[0], "S", 1_000, 0);
        wire.sent[0] += 1;
        wire.packet(40 * MS, End::Server, 0, "RA", 0, 0);
    }
}

#[test]
fn what_asks_for_no_answer_has_none_to_wait_for() {
    let said_goodbye = |after_ns: u64| {
        let mut wire = Wire::new();
        wire.handshake(MS);
        for _ in 0..20 {
            wire.ask(10 * MS);
            wire.data(MS + MS / 10, End::Server, 400);
            wire.ack(10_000, End::Client);
        }
        // As an alert of TLS, or a window update of HTTP/2.
        wire.data(MS, End::Client, 31);
        wire.close(after_ns, End::Client);
        wire.verdict()
    };
    let half_closed = || {
        let mut wire = Wire::new();
        wire.handshake(MS);
        wire.ask(MS);
        wire.end(10_000, End::Client, "FA");
        wire.data(MS + MS / 10, End::Server, 400);
        wire.end(10_000, End::Server, "FA");
        wire.verdict()
    };
    let logged = || {
        let mut wire = Wire::new();
        wire.handshake(MS);
        for _ in 0..20 {
            wire.data(100 * MS, End::Client, 200);
            wire.ack(MS, End::Server);
        }
        wire.close(1_000 * MS, End::Client);
        wire.verdict()
    };
    let shipped = || {
        let mut wire = Wire::new();
        wire.handshake(20 * MS);
        wire.data(MS, End::Client, 200);
        wire.close(10_000, End::Client);
        wire.verdict()
    };
    for verdict in [shipped(), said_goodbye(10_000), said_goodbye(5_000 * MS), half_closed(), logged()] {
        assert!(!matches!(cause(&verdict), Some(Cause::SlowAnswer | Cause::SlowService)), "{verdict:?}");
        let failures = ["gave up", "closed", "reset"].map(|what| count_of(&verdict, what));
        assert_eq!(failures, [None; 3], "{verdict:?}");
    }
}

/// Its client alone can say so, though the server has sent nearly all that was sent.
#[test]
fn a_server_that_is_gone_after_a_download_is_a_stalled_peer() {
    let mut wire = Wire::new();
    wire.handshake(10 * MS);
    wire.ask(MS);
    for after_ns in std::iter::repeat_n(10 * MS, 20) {
        (0..20).for_each(|_| wire.data(after_ns / 20, End::Server, 1_000));
        wire.ack(10_000, End::Client);
    }
    wire.ask(MS);
    for after_ms in [220, 440, 880, 1_760] {
        wire.again(after_ms * MS, End::Client, 27);
    }
    let verdict = wire.verdict();
    assert_eq!(cause(&verdict), Some(Cause::StalledPeer), "{verdict:?}");
    assert!(verdict.sentence.starts_with("Seen from 192.0.2.1"), "{}", verdict.sentence);
}

/// As behind a path whose longest packets are lost: what the client sees is over within a moment.
#[test]
fn requests_that_have_no_answer_when_the_capture_ends_are_not_healthy() {
    let asked = |answers: usize| {
        let mut wire = Wire::new();
        wire.handshake(MS);
        wire.ack(10_000, End::Server);
        for _ in 0..answers {
            wire.ask(MS);
            wire.data(MS, End::Server, 400);
        }
        wire.ask(MS);
        wire.ack(MS, End::Server);
        wire.verdict()
    };
    let none = asked(0);
    assert_eq!(none.outcome, Outcome::NotEnough, "{none:?}");
    assert!(none.sentence.contains("1 of 1 requests had no answer"), "{}", none.sentence);
    assert_eq!(asked(5).outcome, Outcome::Healthy, "the last one may be answered soon");
}
