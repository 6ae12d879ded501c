//! What samples say of the path: queueing over the flow's base, retransmission, loss and congestion marks.

use dwell_engine::{
    measure::{Method, PathCounts, Sample},
    rtt::{Aggregate, Config, Groups},
};

use crate::wire::{Frame, START_NS, Segment, Side, client, ethernet, frame, run, server, small};

/// A segment of the client and its ACK, `rtt_ms` later.
fn exchange(at_ms: f64, seq: u32, rtt_ms: f64) -> [Segment; 2] {
    [client(at_ms).data(seq, 100).ack(500), server(at_ms + rtt_ms).ack(seq + 100)]
}

fn opened() -> Vec<Segment> {
    vec![client(0.0).syn(99), server(1.0).syn(499).ack(100), client(1.1).seq(100).ack(500)]
}

fn to_server(scene: Vec<Segment>) -> Vec<Sample> {
    run(&small(), scene).samples.into_iter().filter(|sample| sample.dst.port == 80).collect()
}

fn total(samples: &[Sample]) -> PathCounts {
    samples.iter().fold(PathCounts::default(), |mut sum, sample| {
        sum += sample.path;
        sum
    })
}

#[test]
fn queueing_is_what_a_round_trip_is_longer_than_the_least_of_its_window() {
    let mut scene = opened();
    for (n, rtt_ms) in (0u32..).zip([20.0, 25.0, 18.0, 30.0]) {
        scene.extend(exchange(f64::from(n) * 100.0 + 10.0, 100 + n * 100, rtt_ms));
    }
    let queue: Vec<_> = to_server(scene).iter().map(|sample| sample.queue_ns() / 1_000_000).collect();
    assert_eq!(queue, [0, 5, 0, 12]);
}

#[test]
fn a_path_that_becomes_longer_has_a_new_base_after_two_windows() {
    let mut scene = opened();
    for n in 0..40u32 {
        let rtt_ms = if n < 10 { 20.0 } else { 50.0 };
        scene.extend(exchange(f64::from(n) * 1000.0 + 10.0, 100 + n * 100, rtt_ms));
    }
    let samples = to_server(scene);
    let queue: Vec<_> = samples.iter().map(|sample| sample.queue_ns() / 1_000_000).collect();
    assert_eq!(queue[..10], [0; 10]);
    assert_eq!(queue[10..17], [30; 7], "the base lasts 8.6 s at least");
    assert_eq!(queue[29..], [0; 11], "and 17.2 s at most");
    assert!(samples.iter().all(|sample| sample.min_rtt_ns == 20_000_000));
}

#[test]
fn packets_out_of_order_at_the_end_of_a_window_leave_the_base() {
    // milliseconds until the first window of the scene ends
    let end_ms = ((1u64 << 33) - START_NS % (1 << 33)) as f64 / 1e6;
    let mut scene = opened();
    for (n, (from_end_ms, rtt_ms)) in (0u32..).zip([(-500.0, 20.0), (10.0, 50.0), (-60.0, 50.0), (100.0, 50.0)]) {
        scene.extend(exchange(end_ms + from_end_ms, 100 + n * 100, rtt_ms));
    }
    let queue: Vec<_> = to_server(scene).iter().map(|sample| sample.queue_ns() / 1_000_000).collect();
    assert_eq!(queue, [0, 30, 30, 30]);
}

#[test]
fn round_trips_too_long_for_the_base_have_no_queueing() {
    let mut scene = vec![client(0.0).seq(100).ack(500)];
    for n in 0..3 {
        scene.extend(exchange(f64::from(n) * 10_000.0 + 10.0, 100 + n * 100, 6000.0));
    }
    let samples = to_server(scene);
    let figures: Vec<_> = samples.iter().map(|sample| (sample.rtt_ns / 1_000_000, sample.queue_ns())).collect();
    assert_eq!(figures, [(6000, 0); 2]);
}

#[test]
fn segments_that_passed_before_are_retransmissions() {
    let mut scene = opened();
    scene.extend(exchange(10.0, 100, 20.0));
    scene.extend([client(40.0).data(200, 100).ack(500), client(240.0).data(200, 100).ack(500)]);
    scene.push(server(260.0).ack(300));
    scene.extend(exchange(300.0, 300, 20.0));
    let samples = to_server(scene);
    let want = PathCounts { sent: 4, retransmitted: 1, received: 4, late: 0, ce: 0 };
    assert_eq!(total(&samples), want);
    assert_eq!(samples.last().unwrap().path.retransmitted, 1);
}

#[test]
fn segments_that_fill_a_hole_were_lost_or_late_before_the_vantage_point() {
    let mut scene = opened();
    scene.push(client(10.0).data(100, 50).ack(500));
    scene.push(server(10.1).data(500, 100).ack(150));
    // 600 to 700 is missing
    scene.extend([server(10.2).data(700, 100).ack(150), client(30.0).ack(600).seq(150).sack(700, 800)]);
    scene.extend([server(50.0).data(600, 100).ack(150), client(70.0).ack(800).seq(150)]);
    scene.extend([client(100.0).data(150, 50).ack(800), server(100.1).data(800, 10).ack(200)]);
    // from the server's side, and counted for it
    let want = PathCounts { sent: 2, retransmitted: 0, received: 5, late: 1, ce: 0 };
    assert_eq!(total(&to_server(scene)), want);
}

#[test]
fn a_hole_is_not_prolonged_to_bytes_far_behind_it() {
    const STEP: u32 = 5 << 28;
    let mut scene = opened();
    // two holes are filled; after two steps of 1.25 GiB there is a third, which is filled too, and a retransmission
    let last = 600 + 2 * STEP;
    let seqs = [100, 300, 500, 200, 400, 600 + STEP, last, last + 200, last + 100, last];
    scene.extend((0..).zip(seqs).map(|(n, seq)| client(10.0 + f64::from(n)).data(seq, 100).ack(500)));
    scene.insert(scene.len() - 4, server(15.5).ack(600 + STEP));
    scene.push(server(30.0).data(500, 100).ack(last + 300));
    scene.push(client(31.0).seq(last + 300).ack(600));
    scene.extend([client(50.0).data(last + 300, 100).ack(600), server(70.0).ack(last + 400)]);
    let samples = run(&small(), scene).samples;
    let (answers, questions): (Vec<_>, Vec<_>) = samples.into_iter().partition(|sample| sample.dst.port == 80);
    assert_eq!((total(&questions).late, total(&answers).retransmitted), (3, 1));
}

#[test]
fn keepalives_and_window_probes_are_no_retransmissions() {
    let mut scene = opened();
    scene.extend(exchange(10.0, 100, 20.0));
    scene.extend([client(5000.0).data(199, 1).ack(500), server(5020.0).ack(200)]);
    scene.extend([client(9000.0).seq(199).ack(500), server(9020.0).ack(200)]);
    scene.extend(exchange(9500.0, 200, 20.0));
    assert_eq!(total(&to_server(scene)).retransmitted, 0);
}

#[test]
fn each_method_counts_the_same() {
    let mut scene = opened();
    for n in 0..21u32 {
        let [ask, answer] = exchange(f64::from(n) * 100.0 + 10.0, 100 + n * 100, 20.0);
        let again = (n % 5 == 4).then_some(Segment { at_ms: ask.at_ms + 5.0, ..ask });
        scene.extend([Some(ask), again, Some(answer)].into_iter().flatten());
    }
    let ticked = |segment: &Segment| {
        let tick = 1000 + segment.at_ms as u32;
        let echo = if segment.from == Side::Client { 1 } else { tick - 20 };
        segment.ts(tick, echo)
    };
    let scene: Vec<_> = scene.iter().map(ticked).collect();
    // 21 segments and 4 retransmissions; SYN-ACK and 21 answers
    let want = PathCounts { sent: 25, retransmitted: 4, received: 22, late: 0, ce: 0 };
    for methods in [vec![Method::TcpSeq], vec![Method::TcpTimestamp]] {
        let config = Config { methods: methods.clone(), ..small() };
        let mut samples = run(&config, scene.iter().cloned()).samples;
        samples.retain(|sample| sample.dst.port == 80);
        assert_eq!(total(&samples), want, "{methods:?}");
    }
}

/// A frame whose IP header carries this ECN field.
fn with_ecn(segment: Segment, ecn: u8) -> Frame {
    let mut ip = segment.ip_packet();
    if ip[0] >> 4 == 4 {
        ip[1] |= ecn;
    } else {
        ip[1] |= ecn << 4;
    }
    frame(segment.at_ms, 1, ethernet(&ip))
}

#[test]
fn packets_with_the_mark_of_congestion_are_counted_for_their_sender() {
    for ipv6 in [false, true] {
        let mut frames: Vec<Frame> = Vec::new();
        let version = |segment: Segment| Segment { ipv6, ..segment };
        frames.extend(opened().into_iter().map(|segment| Frame::from(version(segment))));
        for (n, ecn) in (0u32..).zip([0, 1, 2, 3, 3]) {
            let [ask, answer] = exchange(f64::from(n) * 100.0 + 10.0, 100 + n * 100, 20.0).map(version);
            frames.extend([with_ecn(ask, 2), with_ecn(answer, ecn)]);
        }
        let samples = run(&small(), frames).samples;
        let want = PathCounts { sent: 5, received: 6, ce: 2, ..PathCounts::default() };
        assert_eq!(total(&samples), want, "IPv6: {ipv6}");
    }
}

#[test]
fn groups_add_up_what_their_samples_say() {
    let mut scene = opened();
    for n in 0..10u32 {
        scene.extend(exchange(f64::from(n) * 100.0 + 10.0, 100 + n * 100, 20.0 + f64::from(n)));
    }
    let samples = to_server(scene);
    let mut groups = Groups::new(Aggregate { max_groups: 4, ..Aggregate::default() });
    samples.iter().for_each(|sample| groups.add(sample));
    let taken = groups.take(0);
    let figures = &taken[0].figures;
    assert_eq!(figures.queue_mean_ns(), Some(4_500_000));
    assert_eq!(figures.queue_max_ns, 9_000_000);
    assert_eq!(figures.path, total(&samples));
}
