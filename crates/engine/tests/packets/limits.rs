//! The limits `--rate-limit` and `--rtt-rate`.

use dwell_engine::rtt::{Config, Counter, RateLimit};

use crate::wire::{Run, Segment, Side, client, run, segment, server, small};

/// Sends data from one side every millisecond, each answered after `rtt_ms`.
fn stream(from: Side, count: u32, rtt_ms: u32) -> Vec<Segment> {
    let mut scene = Vec::new();
    for n in 0..count {
        let at_ms = f64::from(n);
        scene.push(segment(from, at_ms).data(100 + 50 * n, 50).ack(1).ts(1000 + n, 1));
        let answer_ms = at_ms + f64::from(rtt_ms) + 0.25;
        scene.push(segment(from.peer(), answer_ms).seq(1).ack(150 + 50 * n).ts(5000 + n, 1000 + n));
    }
    scene.sort_by(|x, y| x.at_ms.total_cmp(&y.at_ms));
    scene
}

fn limited(rate_limit: RateLimit, scene: Vec<Segment>) -> Run {
    let config = Config { rate_limit, ..small() };
    run(&config, scene)
}

fn gaps_ms(run: &Run) -> Vec<u64> {
    let stamped: Vec<u64> = run.samples.iter().map(|sample| sample.time_ns - sample.rtt_ns).collect();
    stamped.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect()
}

#[test]
fn without_a_limit_each_packet_is_measured() {
    let run = limited(RateLimit::Interval(0), stream(Side::Client, 500, 20));
    assert_eq!(run.samples.len(), 500);
}

#[test]
fn a_limit_spaces_the_stamps_of_a_direction() {
    let run = limited(RateLimit::Interval(100_000_000), stream(Side::Client, 500, 20));
    assert_eq!(run.samples.len(), 5);
    assert!(gaps_ms(&run).iter().all(|gap| *gap == 100));
    assert_eq!(run.count(Counter::Stamps), 5);
}

#[test]
fn each_direction_and_each_flow_has_its_own_limit() {
    let mut scene = stream(Side::Client, 500, 20);
    scene.extend(stream(Side::Server, 500, 20));
    let other = scene.clone().into_iter().map(|packet| packet.port(41_000));
    scene.extend(other.collect::<Vec<_>>());
    scene.sort_by(|x, y| x.at_ms.total_cmp(&y.at_ms));
    let run = limited(RateLimit::Interval(100_000_000), scene);
    for port in [40_000, 41_000] {
        for side in [Side::Client, Side::Server] {
            let of_it = run.samples.iter().filter(|sample| {
                let ports = (sample.src.port, sample.dst.port);
                match side {
                    Side::Client => ports == (port, 80),
                    Side::Server => ports == (80, port),
                }
            });
            assert!((1..=5).contains(&of_it.count()), "{port} {side:?}");
        }
    }
}

#[test]
fn a_rate_in_round_trips_follows_the_round_trip() {
    for (rtt_ms, multiple, gap) in [(20, 1.0, 21), (20, 2.5, 51), (60, 0.5, 31)] {
        let run = limited(RateLimit::RoundTrips(multiple, 0), stream(Side::Client, 1000, rtt_ms));
        let gaps = gaps_ms(&run);
        // Until the first answer each packet is stamped.
        let steady = &gaps[rtt_ms as usize + 1..];
        assert!(steady.len() > 10, "{gaps:?}");
        assert!(steady.iter().all(|it| *it == gap), "{multiple}: {steady:?}");
    }
}

#[test]
fn a_rate_in_round_trips_begins_with_its_interval() {
    let run = limited(RateLimit::RoundTrips(1.0, 5_000_000), stream(Side::Client, 200, 20));
    assert_eq!(gaps_ms(&run)[..4], [5, 5, 5, 5]);
    assert_eq!(*gaps_ms(&run).last().unwrap(), 21);
}

#[test]
fn a_syn_waits_for_either_answer_under_a_limit_too() {
    let config = Config { include_handshake: true, rate_limit: RateLimit::Interval(100_000_000), ..small() };
    // The client offers timestamps, but the server does not support them.
    let scene = [client(0.0).syn(99).ts(7, 0), server(20.0).syn(499).ack(100)];
    assert_eq!(run(&config, scene).lines(), ["tcp-seq handshake to server: 20 ms at 20"]);
}

#[test]
fn a_clock_that_steps_back_does_not_close_the_limit_for_good() {
    let mut scene = stream(Side::Client, 50, 5);
    for packet in &mut scene {
        packet.at_ms += 1_000_000.0;
    }
    let mut later = stream(Side::Client, 300, 5);
    for packet in &mut later {
        packet.seq = packet.seq.wrapping_add(100_000);
        packet.ack = packet.ack.map(|ack| ack + 100_000);
        packet.ts = packet.ts.map(|(value, echo)| (value + 100_000, echo + 100_000));
    }
    scene.extend(later);
    let run = limited(RateLimit::Interval(100_000_000), scene);
    assert_eq!(run.samples.len(), 4);
}
