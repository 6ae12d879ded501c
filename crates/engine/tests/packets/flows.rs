//! `--flow-events`: changes of flows.

use dwell_engine::{
    measure::Method,
    roles::Role,
    rtt::{Config, Counter, Tracker},
};

use crate::wire::{START_NS, Segment, client, observe, run, server, small};

fn watching() -> Config {
    Config { flow_events: true, include_handshake: true, ..small() }
}

fn connection() -> Vec<Segment> {
    vec![
        client(0.0).syn(99),
        server(20.0).syn(499).ack(100),
        client(21.0).data(100, 50).ack(500),
        server(42.0).ack(150),
    ]
}

#[test]
fn no_event_is_reported_unless_requested() {
    assert!(run(&small(), connection()).flows.is_empty());
}

#[test]
fn a_flow_opens_has_its_first_round_trip_and_closes_with_the_second_fin() {
    let mut scene = connection();
    scene.extend([client(50.0).fin(150).ack(500), server(70.0).fin(500).ack(151), client(71.0).seq(151).ack(501)]);
    let run = run(&watching(), scene);
    assert_eq!(run.flow_lines(), ["open at 0", "first-rtt 20 ms by tcp-seq at 20", "close fin at 70"]);
    let close = run.flows.last().unwrap();
    assert_eq!((close.packets, close.samples), (6, 3));
    assert_eq!((close.src.port, close.dst.port), (40_000, 80));
    assert_eq!(close.first_ns, START_NS);
}

#[test]
fn the_first_packet_determines_the_source() {
    let scene = [server(0.0).data(500, 10).ack(100), client(5.0).seq(100).ack(510)];
    let run = run(&watching(), scene);
    assert_eq!((run.flows[0].src.port, run.flows[0].dst.port), (80, 40_000));
}

/// What the ends are by their ports, as samples and changes of flows show them.
fn roles(scene: Vec<Segment>) -> Vec<(u16, Option<Role>)> {
    let run = run(&watching(), scene);
    let samples = run.samples.iter().map(|sample| (sample.src.port, sample.src_role));
    samples.chain(run.flows.iter().map(|flow| (flow.src.port, flow.src_role))).collect()
}

#[test]
fn the_client_is_the_end_that_sent_the_syn_or_got_the_answer_to_it() {
    for seen in [0, 1] {
        let roles = roles(connection().split_off(seen));
        assert!(roles.len() > 2, "{roles:?}");
        for (port, role) in roles {
            assert_eq!(role, Some(if port == 80 { Role::Server } else { Role::Client }), "from packet {seen}");
        }
    }
    assert!(roles(connection().split_off(2)).iter().all(|(_, role)| role.is_none()), "ports are judged elsewhere");
}

#[test]
fn the_client_stays_until_the_connection_is_over_and_another_begins() {
    let mut scene = connection();
    scene.extend([server(50.0).syn(7), client(51.0).data(150, 50).ack(500), server(71.0).ack(200)]);
    assert_eq!(roles(scene.clone()).iter().filter(|role| **role == (80, Some(Role::Client))).count(), 0);
    scene.extend([client(80.0).rst().seq(200), server(5000.0).syn(9), client(5020.0).syn(80_499).ack(10)]);
    assert!(roles(scene).contains(&(80, Some(Role::Client))));
}

#[test]
fn a_fin_sent_twice_by_one_side_closes_nothing() {
    let mut scene = connection();
    scene.extend([client(50.0).fin(150).ack(500), client(250.0).fin(150).ack(500)]);
    assert_eq!(run(&watching(), scene).flow_lines(), ["open at 0", "first-rtt 20 ms by tcp-seq at 20"]);
}

#[test]
fn a_reset_closes_the_flow_once() {
    for methods in [Method::ALL.to_vec(), vec![Method::TcpSeq], vec![Method::TcpTimestamp]] {
        let config = Config { methods, ..watching() };
        let scene =
            [client(0.0).data(100, 50).ack(500).ts(5, 1), client(50.0).rst().seq(150), client(51.0).rst().seq(150)];
        assert_eq!(run(&config, scene).flow_lines(), ["open at 0", "close rst at 50"], "{:?}", config.methods);
    }
}

#[test]
fn a_reset_opens_nothing() {
    let run = run(&watching(), [client(0.0).rst().seq(150)]);
    assert!(run.flows.is_empty());
    assert_eq!(run.count(Counter::FlowsOpened), 0);
}

#[test]
fn ports_that_are_used_again_make_a_new_flow_with_new_figures() {
    let mut scene = connection();
    scene.push(client(50.0).rst().seq(150));
    scene.extend([client(5000.0).syn(70_099), server(5020.0).syn(80_499).ack(70_100)]);
    let run = run(&watching(), scene);
    assert_eq!(
        run.flow_lines(),
        [
            "open at 0",
            "first-rtt 20 ms by tcp-seq at 20",
            "close rst at 50",
            "open at 5000",
            "first-rtt 20 ms by tcp-seq at 5020",
        ]
    );
    let last = run.samples.last().unwrap();
    assert_eq!((last.packets, last.bytes), (2, 2 * (14 + 20 + 20)));
    assert_eq!(run.flows.last().unwrap().packets, 2);
}

#[test]
fn ports_that_are_used_again_without_an_end_that_passed_make_a_new_flow_too() {
    let mut scene = connection();
    scene.extend([server(90.0).data(500, 10).ack(150), client(91.0).syn(9), server(92.0).seq(510).ack(150)]);
    assert_eq!(run(&watching(), scene.clone()).flow_lines().len(), 2, "a SYN that nobody accepts");
    scene.extend([
        client(5000.0).syn(70_099),
        server(5020.0).syn(80_499).ack(70_100),
        server(5025.0).syn(80_499).ack(70_100),
        client(5026.0).data(70_100, 50).ack(80_500),
    ]);
    let run = run(&watching(), scene);
    assert_eq!(
        run.flow_lines()[2..],
        ["close reused at 5020", "open at 5020", "first-rtt 20 ms by tcp-seq at 5020"],
        "{:?}",
        run.flow_lines()
    );
    assert_eq!((run.flows[3].src.port, run.flows[3].packets, run.flows[4].packets), (40_000, 1, 1));
}

#[test]
fn figures_of_a_sample_are_those_of_the_flow_so_far() {
    let scene = [
        client(0.0).data(100, 50).ack(1).ts(5, 1),
        server(20.0).ack(150).ts(9, 5),
        client(30.0).data(150, 50).ack(1).ts(35, 9),
        server(40.0).ack(200).ts(30, 35),
        client(50.0).data(200, 50).ack(1).ts(55, 30),
        server(65.0).ack(250).ts(60, 55),
    ];
    let run = run(&small(), scene);
    let least: Vec<u64> = run.samples.iter().map(|s| s.min_rtt_ns / 1_000_000).collect();
    assert_eq!(least, [20, 10, 10]);
    let packets: Vec<u64> = run.samples.iter().map(|s| s.packets).collect();
    assert_eq!(packets, [2, 4, 6]);
    assert_eq!(run.samples[2].bytes, 6 * (14 + 20 + 32) + 3 * 50);
}

/// Sweeps every 100 ms after the last packet.
fn swept(config: &Config, scene: Vec<Segment>, until_ms: u64) -> Vec<String> {
    let mut tracker = Tracker::new(config);
    let mut lines = Vec::new();
    let mut last_ns = START_NS;
    for packet in scene {
        let frame = packet.into();
        observe(&mut tracker, &frame, |_| ());
        last_ns = frame.time_ns;
    }
    for step in 0..until_ms / 100 {
        let now_ns = last_ns + step * 100_000_000;
        tracker.sweep(now_ns, |event| {
            let dwell_engine::measure::Event::Flow(flow) = event else {
                panic!("a sweep gives no sample");
            };
            lines.push(format!("{:?} after {} s", flow.change, (now_ns - last_ns) / 1_000_000_000));
        });
    }
    lines
}

#[test]
fn a_flow_that_falls_silent_is_closed_within_two_seconds_of_its_timeout() {
    let lines = swept(&watching(), connection(), 60_000);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(["Close(Idle) after 30 s", "Close(Idle) after 31 s"].contains(&lines[0].as_str()), "{lines:?}");
}

#[test]
fn a_flow_that_is_over_is_not_closed_again() {
    let mut scene = connection();
    scene.push(client(50.0).rst().seq(150));
    assert!(swept(&watching(), scene, 60_000).is_empty());
}

#[test]
fn one_time_far_ahead_does_not_stop_the_sweeps() {
    let mut tracker = Tracker::new(&watching());
    let far = START_NS + 1_000_000_000_000_000;
    tracker.sweep(far, |_| ());
    observe(&mut tracker, &client(0.0).syn(99).into(), |_| ());
    let mut closed = 0;
    for step in 0..600 {
        tracker.sweep(START_NS + step * 100_000_000, |_| closed += 1);
    }
    assert_eq!(closed, 1);
}
