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

#[test]
fn a_question_to_a_name_server_that_passes_two_interfaces_waits_once() {
    let mut replay = Replay::new(Filter::default(), true);
    // An address of each family is asked for at once, from one socket.
    let packets = [(0, 0, 1), (0, 1, 1), (0, 0, 28), (0, 1, 28), (40, 1, 1), (40, 1, 28), (41, 0, 1), (41, 0, 28)];
    for (at_ms, interface, kind) in packets {
        let is_answer = at_ms > 0;
        let builder = match is_answer {
            true => PacketBuilder::ipv4(SERVER.0, CLIENT.0, 64).udp(53, 5_000),
            false => PacketBuilder::ipv4(CLIENT.0, SERVER.0, 64).udp(5_000, 53),
        };
        let head = [0, kind, if is_answer { 0x81 } else { 1 }, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let mut data = Vec::new();
        builder.write(&mut data, &[&head[..], &[1, b'a', 0, 0, kind, 0, 1]].concat()).unwrap();
        let wire_len = data.len() as u32;
        replay.observe(&Observation { time_ns: at_ms * MS, interface, link: 101, data: &data, wire_len });
    }
    let names = replay.evidence("names").names;
    assert_eq!((names.count, names.longest_ns), (2, 40 * MS), "{names:?}");
}

#[test]
fn a_look_up_lasts_until_a_server_answers_and_counts_if_none_does() {
    let mut replay = Replay::new(Filter::default(), true);
    let mut pass = |at_ms: u64, name: u8, server: u8, is_answer: bool| {
        let server = [192, 0, 2, server];
        let builder = match is_answer {
            true => PacketBuilder::ipv4(server, CLIENT.0, 64).udp(53, 5_000),
            false => PacketBuilder::ipv4(CLIENT.0, server, 64).udp(5_000, 53),
        };
        let head = [0, 7, if is_answer { 0x81 } else { 1 }, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let mut data = Vec::new();
        builder.write(&mut data, &[&head[..], &[1, name, 0, 0, 1, 0, 1]].concat()).unwrap();
        let wire_len = data.len() as u32;
        replay.observe(&Observation { time_ns: at_ms * MS, interface: 0, link: 101, data: &data, wire_len });
    };
    // The first server is dead.
    pass(0, b'a', 53, false);
    pass(5_000, b'a', 54, false);
    pass(5_010, b'A', 54, true);
    pass(6_000, b'b', 53, false);
    pass(11_000, b'b', 53, false);
    pass(20_000, b'c', 54, false);
    pass(20_010, b'c', 54, true);
    let evidence = replay.evidence("names");
    assert_eq!((evidence.names.count, evidence.open_names, evidence.names.longest_ns), (3, 1, 10_000 * MS));
    assert_eq!(evidence.names.sum_ns, 15_020 * MS);
    assert_eq!(cause(&decide(&evidence)), Some(Cause::SlowNames));
}
