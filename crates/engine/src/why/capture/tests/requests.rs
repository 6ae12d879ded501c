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
