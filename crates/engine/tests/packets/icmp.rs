//! icmp and icmpv6: echo request and reply.

use dwell_engine::rtt::{Config, Counter, RateLimit};
use etherparse::PacketBuilder;

use crate::wire::{ETHERNET, Frame, Side, ethernet, frame, run, small};

pub fn echo(at_ms: f64, from: Side, to: Side, id: u16, seq: u16, reply: bool) -> Frame {
    let builder = PacketBuilder::ipv4(from.address(), to.address(), 64);
    let builder = if reply { builder.icmpv4_echo_reply(id, seq) } else { builder.icmpv4_echo_request(id, seq) };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &[7; 56]).unwrap();
    frame(at_ms, ETHERNET, ethernet(&bytes))
}

fn ask(at_ms: f64, seq: u16) -> Frame {
    echo(at_ms, Side::Client, Side::Server, 77, seq, false)
}

fn reply(at_ms: f64, seq: u16) -> Frame {
    echo(at_ms, Side::Server, Side::Client, 77, seq, true)
}

fn measured(scene: impl IntoIterator<Item = Frame>) -> Vec<String> {
    run(&small(), scene).lines()
}

#[test]
fn a_reply_gives_the_time_since_its_request() {
    assert_eq!(
        measured([ask(0.0, 1), reply(20.0, 1), ask(1000.0, 2), reply(1025.5, 2)]),
        ["icmp to server: 20 ms at 20", "icmp to server: 25.5 ms at 1025.5",]
    );
}

#[test]
fn ports_of_a_sample_are_the_identifier() {
    let run = run(&small(), [ask(0.0, 1), reply(20.0, 1)]);
    assert_eq!((run.samples[0].src.port, run.samples[0].dst.port), (77, 77));
}

#[test]
fn many_in_flight_are_distinguished() {
    assert_eq!(
        measured([ask(0.0, 1), ask(10.0, 2), ask(20.0, 3), reply(50.0, 3), reply(51.0, 1), reply(52.0, 2),]),
        ["icmp to server: 30 ms at 50", "icmp to server: 51 ms at 51", "icmp to server: 42 ms at 52",]
    );
}

#[test]
fn both_hosts_may_ping_each_other_with_one_identifier() {
    assert_eq!(
        measured([
            ask(0.0, 1),
            echo(1.0, Side::Server, Side::Client, 77, 1, false),
            echo(2.0, Side::Client, Side::Server, 77, 1, true),
            reply(20.0, 1),
        ]),
        ["icmp to client: 1 ms at 2", "icmp to server: 20 ms at 20",]
    );
}

#[test]
fn another_identifier_is_another_flow() {
    let other = |at_ms, reply| {
        let (from, to) = if reply { (Side::Server, Side::Client) } else { (Side::Client, Side::Server) };
        echo(at_ms, from, to, 78, 1, reply)
    };
    assert_eq!(measured([ask(0.0, 1), other(5.0, false), other(20.0, true)]), ["icmp to server: 15 ms at 20"]);
}

#[test]
fn a_reply_without_a_request_is_nothing() {
    let run = run(&small(), [reply(20.0, 1), reply(30.0, 2)]);
    assert!(run.samples.is_empty());
    assert_eq!(run.count(Counter::FlowsOpened), 0);
    assert!(measured([ask(0.0, 1), reply(20.0, 2)]).is_empty());
}

#[test]
fn duplicates_change_nothing() {
    // As on a loopback device, which shows each packet twice.
    assert_eq!(measured([ask(0.0, 1), ask(0.5, 1), reply(20.0, 1), reply(20.5, 1)]), ["icmp to server: 20 ms at 20"]);
}

#[test]
fn a_number_that_was_answered_may_be_used_again() {
    for (interval_ms, rtt_ms) in [(1000.0, 20.0), (100.0, 99.0), (5.0, 0.25)] {
        let at = |n: u32| f64::from(n) * interval_ms;
        let scene = (0..60).flat_map(|n| [ask(at(n), 1), reply(at(n) + rtt_ms, 1)]);
        let run = run(&small(), scene);
        assert_eq!(run.samples.len(), 60, "{interval_ms} {rtt_ms}");
        assert!(run.samples.iter().all(|sample| sample.rtt_ns == (rtt_ms * 1e6) as u64));
    }
}

#[test]
fn a_number_that_is_used_again_before_its_reply_makes_that_unclear() {
    let scene = [ask(0.0, 1), ask(1000.0, 1), reply(1020.0, 1), ask(2000.0, 1), reply(2020.0, 1)];
    let run = run(&small(), scene);
    assert_eq!(run.lines(), ["icmp to server: 20 ms at 2020"]);
    assert_eq!(run.count(Counter::Ambiguous), 1);
}

#[test]
fn a_sequence_that_comes_round_again_takes_the_new_request() {
    assert_eq!(
        measured([ask(0.0, 1), ask(1000.0, 2), ask(65_536_000.0, 1), reply(65_536_020.0, 1),]),
        ["icmp to server: 20 ms at 65536020"]
    );
}

#[test]
fn a_sequence_that_comes_round_under_a_rate_limit_is_not_taken_for_the_old_one() {
    let config = Config { rate_limit: RateLimit::Interval(1_000_000_000), ..small() };
    let scene = [
        // never answered
        ask(0.0, 1),
        // The rate limit prevents a stamp for request 1 of this round.
        ask(59_900.0, 0),
        ask(60_000.0, 1),
        reply(60_020.0, 1),
    ];
    assert!(run(&config, scene).samples.is_empty());
}

#[test]
fn a_host_can_ping_itself() {
    let own = |at_ms, reply| echo(at_ms, Side::Server, Side::Server, 9, 1, reply);
    assert_eq!(measured([own(0.0, false), own(0.25, true)]), ["icmp to server: 0.25 ms at 0.25"]);
}

#[test]
fn icmpv6_is_measured_under_its_own_name() {
    let v6 = |at_ms, reply: bool| {
        let (from, to) = if reply { (Side::Server, Side::Client) } else { (Side::Client, Side::Server) };
        let builder = PacketBuilder::ipv6(from.address6(), to.address6(), 64);
        let builder = if reply { builder.icmpv6_echo_reply(5, 1) } else { builder.icmpv6_echo_request(5, 1) };
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[7; 56]).unwrap();
        frame(at_ms, ETHERNET, ethernet(&bytes))
    };
    assert_eq!(measured([v6(0.0, false), v6(20.0, true)]), ["icmpv6 to server: 20 ms at 20"]);
}

#[test]
fn other_kinds_of_icmp_are_counted_and_passed_over() {
    let mut unreachable = ask(0.0, 1);
    unreachable.data[34] = 3;
    let run = run(&small(), [unreachable]);
    assert_eq!(run.count(Counter::OtherProtocol), 1);
}
