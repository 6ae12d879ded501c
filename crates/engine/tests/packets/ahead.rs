//! Packets that are read before their turn are measured as others are.

use dwell_engine::{
    measure::Event,
    rtt::{Config, Counters, Tracker},
};

use crate::{
    icmp::echo,
    wire::{Frame, Side, client, frame, observation, server},
};

/// More connections than the table has room for, half of them with timestamps, each with a request and its answer per
/// round; and packets that are of no use.
fn scene() -> Vec<Frame> {
    let mut packets = Vec::new();
    for round in 0..4 {
        for flow in 0..300_u16 {
            let at_ms = f64::from(round) * 1000.0 + f64::from(flow) * 3.0;
            let (seq, value, port) = (100 + 50 * round, 1000 + 100 * round, 40_000 + flow);
            let mut pair =
                [client(at_ms).port(port).data(seq, 50).ack(1), server(at_ms + 1.0).port(port).seq(1).ack(seq + 50)];
            if flow % 2 == 0 {
                pair = [pair[0].ts(value, 1), pair[1].ts(value, value)];
            }
            packets.extend(pair.map(Frame::from));
            if flow % 7 == 0 {
                packets.push(frame(at_ms + 2.0, 1, vec![0x08; 20]));
            }
        }
        packets.push(echo(f64::from(round) * 1000.0 + 950.0, Side::Client, Side::Server, 77, 1, false));
    }
    packets
}

/// Measures all packets but those that are `left_out`, preparing those that are `prepared`, each `ahead` packets before its
/// turn.
fn measure(ahead: u64, prepared: impl Fn(u64) -> bool, left_out: impl Fn(u64) -> bool) -> (Vec<Event>, Counters) {
    let config = Config { max_flows: 200, idle_timeout_ns: 2_000_000_000, flow_events: true, ..Config::default() };
    let (mut tracker, scene, mut events) = (Tracker::new(&config), scene(), Vec::new());
    let at = |number: u64| scene.get(number as usize - 1);
    for number in 1..=scene.len() as u64 {
        let next = number + ahead;
        if let Some(packet) = at(next).filter(|_| ahead > 0 && prepared(next)) {
            tracker.prepare(next, &observation(packet));
        }
        if let Some(packet) = at(number).filter(|_| !left_out(number)) {
            tracker.observe_prepared(number, &observation(packet), |event| events.push(event));
        }
    }
    (events, tracker.counters())
}

#[test]
fn what_is_prepared_changes_no_event_and_no_count() {
    for left_out in [|_: u64| false, |number: u64| number.is_multiple_of(5)] {
        let plain = measure(0, |_| false, left_out);
        assert!(plain.0.len() > 1000, "{}", plain.0.len());
        for ahead in [1, 5, Tracker::AHEAD - 1, Tracker::AHEAD, 3 * Tracker::AHEAD] {
            assert_eq!(measure(ahead, |_| true, left_out), plain, "{ahead} packets ahead");
            assert_eq!(
                measure(ahead, |number| number % 3 != 1, left_out),
                plain,
                "two of three, {ahead} packets ahead"
            );
        }
    }
}
