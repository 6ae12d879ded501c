//! Clocks that step back, or far ahead.

use dwell_engine::rtt::{Config, Counter};
use etherparse::PacketBuilder;

use crate::wire::{ETHERNET, Frame, Run, Side, client, ethernet, frame, run, server, small};

fn echo(at_ms: f64, reply: bool) -> Frame {
    let from = if reply { Side::Server } else { Side::Client };
    let builder = PacketBuilder::ipv4(from.address(), from.peer().address(), 64);
    let builder = if reply { builder.icmpv4_echo_reply(7, 1) } else { builder.icmpv4_echo_request(7, 1) };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &[]).unwrap();
    frame(at_ms, ETHERNET, ethernet(&bytes))
}

#[track_caller]
fn assert_rejected(run: &Run) {
    assert!(run.samples.is_empty(), "{:?}", run.lines());
    assert_eq!(run.count(Counter::Backwards), 1);
}

#[test]
fn an_answer_before_its_packet_is_rejected_and_counted() {
    assert_rejected(&run(&small(), [client(50.0).data(100, 50).ack(1).ts(5, 1), server(30.0).ack(150).ts(9, 5)]));
    assert_rejected(&run(&small(), [echo(50.0, false), echo(30.0, true)]));
    // by number: of the segment itself, and of the oldest that waits
    for ack in [150, 120] {
        assert_rejected(&run(
            &small(),
            [
                client(0.0).syn(49),
                server(1.0).syn(499).ack(50),
                client(48.0).data(50, 50).ack(500),
                client(50.0).data(100, 50).ack(500),
                server(30.0).ack(ack),
            ],
        ));
    }
}

#[test]
fn what_comes_after_a_step_back_is_measured_again() {
    assert_eq!(
        run(
            &small(),
            [
                client(50.0).data(100, 50).ack(1).ts(5, 1),
                server(30.0).ack(150).ts(9, 5),
                client(31.0).data(150, 50).ack(1).ts(6, 9),
                server(51.0).ack(200).ts(10, 6),
            ]
        )
        .lines(),
        ["tcp-timestamp to server: 20 ms at 51"]
    );
}

#[test]
fn an_answer_at_the_same_instant_took_no_time() {
    let run = run(&small(), [echo(50.0, false), echo(50.0, true)]);
    assert_eq!(run.lines(), ["icmp to server: 0 ms at 50"]);
}

#[test]
fn flows_seen_by_a_clock_that_was_ahead_are_not_idle() {
    let config = Config { max_flows: 4, ..Config::default() };
    let ahead = client(3_600_000.0).data(100, 50).ack(1).ts(5, 1);
    let newcomers = (0..100).map(|n| client(f64::from(n) * 100.0).port(2000 + n).syn(1));
    let answer = server(3_600_020.0).ack(150).ts(9, 5);
    let scene = [ahead].into_iter().chain(newcomers).chain([answer]);
    let run = run(&config, scene);
    assert_eq!(run.count(Counter::FlowsExpired), 0);
    assert_eq!(run.lines(), ["tcp-timestamp to server: 20 ms at 3600020"]);
}
