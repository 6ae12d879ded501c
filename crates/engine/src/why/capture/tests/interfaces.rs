//! Captures of several interfaces, which have a connection as often as it passes.

use super::*;

/// A service that takes 30 ms, and a router 3 ms from the client and 3 ms from the server, there and back, with 4 ms between its
/// interfaces.
fn routed(is_split: bool) -> Verdict {
    let mut wire = Wire::new();
    (wire.second, wire.is_split) = (Some(4 * MS), is_split);
    for connection in 0..3 {
        wire.sent = [1_000 + connection * 100_000, 5_000 + connection * 100_000];
        wire.handshake_between(7 * MS, 3 * MS);
        for _ in 0..10 {
            wire.data(10 * MS, End::Client, 100);
            wire.ack(7 * MS, End::Server);
            wire.data(30 * MS, End::Server, 200);
            wire.ack(3 * MS, End::Client);
        }
        wire.packet(MS, End::Client, wire.sent[0], "FA", 1_000, 0);
        wire.sent[0] += 1;
        wire.packet(7 * MS, End::Server, wire.sent[1], "FA", 1_000, 0);
        wire.sent[1] += 1;
        wire.ack(3 * MS, End::Client);
    }
    wire.verdict()
}

#[test]
fn a_connection_that_passes_two_interfaces_waits_once() {
    for is_split in [false, true] {
        let verdict = routed(is_split);
        assert!(matches!(cause(&verdict), Some(Cause::SlowAnswer | Cause::SlowService)), "{verdict:?}");
        assert_eq!(verdict.ranked.len(), 1, "{verdict:?}");
        let value_of = |what: &str| verdict.facts.iter().find(|fact| fact.what.contains(what)).unwrap().value;
        assert_eq!(value_of("several interfaces"), Some(Value::Count(3)));
        let all_ns: f64 = verdict.parts.iter().map(|(_, ns)| ns).sum();
        assert!(all_ns < 3.0 * 600.0 * MS as f64, "{verdict:?}");
    }
}
