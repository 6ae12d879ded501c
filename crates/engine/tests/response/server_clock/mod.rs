//! Turns of a client whose ACKs echo the server's clock, with loads on which no threshold was chosen.

mod requests;

use dwell_engine::{
    abi::{self, dwell_arrival},
    response::{Config, Estimate, Flow, Method, Reason, estimate},
};

use crate::support::{MS, SECOND, START, US, epochs, syn, tcp};

/// A connection to a server whose clock has this tick.
struct Path {
    packets: Vec<dwell_arrival>,
    now_ns: u64,
    seq: u32,
    ack: u32,
    /// When the newest answer came.
    came_ns: u64,
    tick_ns: u64,
    /// How much faster the server's clock runs, in parts per million.
    ppm: u64,
}

impl Path {
    fn new(tick_ns: u64, ppm: u64) -> Path {
        let mut path = Path { packets: Vec::new(), now_ns: START, seq: 1, ack: 1, came_ns: START, tick_ns, ppm };
        path.packets.push(syn(START, 0));
        path.now_ns += 21 * MS;
        path.came_ns = path.now_ns;
        path.send(0);
        path.now_ns += 3 * MS;
        path
    }

    /// Sends a packet that acknowledges the newest answer, and echoes when that left, 10 ms before it came.
    fn send(&mut self, payload: u32) {
        let left_ns = self.came_ns - 10 * MS - START;
        let tsecr = 70_000 + ((left_ns + left_ns / 1_000_000 * self.ppm) / self.tick_ns) as u32;
        self.packets.push(dwell_arrival { tsecr, ..tcp(self.now_ns, self.seq, payload, self.ack) });
        self.seq += payload;
    }

    /// Sends a request in packets of these sizes, whose answer of `bytes` comes after `latency_ns`, and pauses. A lone
    /// segment is acknowledged after 40 ms, or by the next request.
    fn turn(&mut self, sizes: &[u32], latency_ns: u64, bytes: u32, pause_ns: u64) {
        let began_ns = self.now_ns;
        for size in sizes {
            self.send(*size);
            self.now_ns += 10 * US;
        }
        self.now_ns = began_ns + latency_ns;
        self.came_ns = self.now_ns;
        self.ack += bytes;
        if bytes > 1448 {
            self.send(0);
        } else if pause_ns > 40 * MS {
            self.now_ns += 40 * MS;
            self.send(0);
        }
        self.now_ns = self.came_ns + pause_ns;
    }

    fn estimates(&self) -> Vec<Estimate> {
        let config = Config::default();
        let mut ended = epochs(&config, &self.packets);
        ended.pop(); // cut short
        ended.iter().map(|epoch| estimate(&config, epoch)).collect()
    }
}

/// Asserts that all estimates are believed and within a twentieth, and a tick for a single answer, of the truth.
#[track_caller]
fn assert_right(path: &Path, truth_ns: u64) {
    let made = path.estimates();
    assert!(made.len() >= 8, "{}", made.len());
    for (epoch, made) in made.iter().enumerate() {
        let ns = made.response_ns.unwrap();
        assert!(made.is_valid() && made.confidence >= 0.7 && made.method == Method::Turns, "epoch {epoch}: {made:?}");
        assert!(ns.abs_diff(truth_ns) < truth_ns / 20 + path.tick_ns / 10, "epoch {epoch}: {made:?}");
    }
}

#[test]
fn an_ack_that_a_request_carries_or_a_timer_delays_does_not_end_the_answer() {
    for pause_ns in [5 * MS, 13 * MS, 37 * MS, 90 * MS, 310 * MS] {
        let mut path = Path::new(MS, 0);
        for i in 0..u64::MAX {
            if path.now_ns > START + 10 * SECOND {
                break;
            }
            path.turn(&[211], 26 * MS + i * 7919 % 997 * US, 120, pause_ns + i * 104_729 % 991 * US);
        }
        assert_right(&path, 26 * MS + 500 * US);
    }
}

/// Returns the estimate of the only answer of a connection: it comes 40 ms after its request, is acknowledged at once together with
/// tickets of TLS that came after 21 ms, and has this many bytes with them.
fn after_tickets(bytes: u32) -> Estimate {
    let mut path = Path::new(MS, 0);
    for payload in [517, 80] {
        path.send(payload);
        path.packets.last_mut().unwrap().content = abi::DWELL_CONTENT_TLS_HANDSHAKE as u8;
        if payload == 517 {
            path.now_ns += 21 * MS;
            path.came_ns = path.now_ns;
            path.ack += 700;
        }
    }
    path.send(117);
    path.came_ns = path.now_ns + 21 * MS;
    path.now_ns += 40 * MS;
    path.ack += bytes;
    path.send(0);
    path.now_ns += MS;
    path.send(117);
    let [epoch] = epochs(&Config::default(), &path.packets)[..] else { panic!("one epoch") };
    assert_eq!(epoch.answered, 1);
    estimate(&Config::default(), &epoch)
}

#[test]
fn a_ticket_of_tls_that_comes_before_the_first_answer_is_not_taken_for_it() {
    let [short, long] = [687, 5588].map(after_tickets);
    assert!(!short.is_valid() || short.response_ns.unwrap().abs_diff(40 * MS) < 10 * MS, "{short:?}");
    assert!(long.is_valid() && long.response_ns.unwrap().abs_diff(40 * MS) < MS, "{long:?}");
}

#[test]
fn the_end_of_a_connection_carries_an_ack_as_a_request_does() {
    for (answers, pause_ms) in [(1, 9), (3, 4), (3, 23), (3, 60)] {
        let mut path = Path::new(MS, 0);
        for _ in 0..answers {
            path.turn(&[211], 26 * MS + 300 * US, 120, pause_ms * MS);
        }
        path.send(0);
        path.packets.last_mut().unwrap().tcp_flags |= 1; // FIN
        let config = Config::default();
        let [epoch] = epochs(&config, &path.packets)[..] else { panic!("one epoch") };
        let made = estimate(&config, &epoch);
        let error_ns = made.response_ns.unwrap().abs_diff(26 * MS + 300 * US);
        assert!(made.is_valid() && error_ns < MS, "{answers} answers, {pause_ms} ms: {made:?}");
    }
}

#[test]
fn an_ack_that_is_taken_for_the_soonest_though_it_is_later_in_its_tick_does_not_bias_the_others() {
    let mut path = Path::new(MS, 0);
    for i in 0..2_000 {
        let bytes = if i % 50 == 0 { 2896 } else { 120 }; // seldom an ACK at once
        path.turn(&[211], 14 * MS + i * 7919 % 997 * US, bytes, 5 * MS + i * 104_729 % 991 * US);
    }
    let errors: Vec<f64> = path.estimates().iter().map(|made| made.response_ns.unwrap() as f64 / 1e6 - 14.5).collect();
    let late = &errors[errors.len() / 2..];
    let bias = late.iter().sum::<f64>() / late.len() as f64;
    assert!(late.len() > 15 && bias.abs() < 0.2, "{bias} ms: {errors:?}");
}

#[test]
fn a_timer_that_was_set_for_an_earlier_segment_delays_acks_by_any_time() {
    let mut path = Path::new(MS, 0);
    for i in 0..100 {
        path.send(211);
        path.now_ns += 26 * MS + i * 7919 % 997 * US;
        path.came_ns = path.now_ns;
        path.ack += 120;
        path.now_ns += i * 17 % 40 * MS;
        path.send(0);
        path.now_ns = path.came_ns + 70 * MS;
    }
    // a queue on the path may look the same
    for made in path.estimates() {
        let is_right = made.response_ns.unwrap().abs_diff(26 * MS + 500 * US) < MS;
        assert!(if made.is_valid() { is_right } else { made.reason == Some(Reason::DelayedAck) }, "{made:?}");
    }
}

#[test]
fn ticks_of_other_servers_are_measured() {
    for tick_ns in [US, 3_333_333, 4 * MS, 10 * MS] {
        let mut path = Path::new(tick_ns, 0);
        for i in 0..u64::MAX {
            if path.now_ns > START + 12 * SECOND {
                break;
            }
            path.turn(&[300], 33 * MS + i * 7919 % 9973 * US, 200, 23 * MS + i * 104_729 % 9001 * US);
        }
        let made = path.estimates();
        for made in &made[3..] {
            let error = made.response_ns.unwrap() as f64 / 38e6 - 1.0;
            // one ACK that was not late does not show where in its tick the server sent
            let allowed = 0.03 + 0.5 * tick_ns as f64 / 38e6;
            assert!(made.is_valid() && error.abs() < allowed, "tick {tick_ns}: {made:?}");
        }
    }
}

#[test]
fn a_clock_that_drifts_costs_confidence() {
    let mut path = Path::new(MS, 30);
    for i in 0..12_000 {
        path.turn(&[211], 32 * MS + i * 7919 % 997 * US, 120, 25 * MS + i * 104_729 % 991 * US);
    }
    let made = path.estimates();
    for (second, made) in made.iter().enumerate() {
        let error = made.response_ns.unwrap() as f64 / 32.5e6 - 1.0;
        assert!(error.abs() < 0.1 || made.confidence < 0.9, "{second}: {made:?}");
        assert!(error.abs() < 0.2 || made.confidence < 0.7, "{second}: {made:?}");
    }
    assert!(made[..60].iter().all(|made| made.confidence >= 0.7));
}

#[test]
fn a_longer_path_is_noticed_by_acks_that_are_not_late() {
    let mut path = Path::new(MS, 0);
    for i in 0..400_u64 {
        // after half of the time, segments take 15 ms longer
        let longer_ns = if i >= 200 { 15 * MS } else { 0 };
        path.turn(&[300], 20 * MS + longer_ns + i * 7919 % 997 * US, 9000, 6 * MS);
        for packet in path.packets.iter_mut().rev().take(1) {
            packet.tsecr -= (longer_ns / MS) as u32;
        }
    }
    let made = path.estimates();
    for (made, truth_ns) in [(&made[2], 20 * MS + 500 * US), (&made[made.len() - 2], 35 * MS + 500 * US)] {
        assert!(made.is_valid() && made.response_ns.unwrap().abs_diff(truth_ns) < MS, "{made:?}");
    }
}

#[test]
fn answers_in_pieces_of_which_the_clock_shows_the_first_are_not_believed() {
    // Of five answers the third comes in two pieces 10 ms apart that are acknowledged at once, and so do the others, but
    // the next request acknowledges both, 25 ms later.
    let mut path = Path::new(MS, 0);
    for i in 0..400 {
        path.send(211);
        path.now_ns += 20 * MS;
        path.came_ns = path.now_ns;
        path.ack += 60;
        if i % 5 == 2 {
            path.send(0);
            path.now_ns += 10 * MS;
            path.came_ns = path.now_ns;
            path.ack += 60;
            path.send(0);
            path.now_ns += 25 * MS;
        } else {
            path.ack += 60;
            path.now_ns += 35 * MS;
        }
    }
    for (epoch, made) in path.estimates().iter().enumerate() {
        let is_right = made.response_ns.is_some_and(|ns| ns.abs_diff(30 * MS) < 30 * MS / 5);
        assert!(is_right || !made.is_valid() || made.confidence < 0.7, "epoch {epoch}: {made:?}");
    }
}

#[test]
fn echoes_that_are_no_clock_are_not_believed() {
    // A middlebox that echoes numbers of its own, and servers that tick twice a second.
    for echo in [|i: u32| i * 7_919, |i: u32| 1 + i / 10, |_| 77] {
        let mut path = Path::new(MS, 0);
        for i in 0..300 {
            path.turn(&[211], 26 * MS + i % 7 * MS, 120, 25 * MS);
        }
        for (i, packet) in path.packets.iter_mut().enumerate().skip(1) {
            packet.tsecr = echo(i as u32);
        }
        for (second, made) in path.estimates().iter().enumerate().skip(1) {
            let ns = made.response_ns.unwrap_or(0);
            let is_right = ns.abs_diff(29 * MS) < 29 * MS / 5;
            assert!(is_right || !made.is_valid() || made.confidence < 0.7, "{second}: {made:?}");
        }
    }
}

#[test]
fn the_segment_is_what_the_client_accepts() {
    // 2600 bytes are two segments, so that they are acknowledged at once, if the client accepts 1200; otherwise the ACK
    // is late by 40 ms.
    for (mss, moved) in [(1200, 0), (1460, 8)] {
        let mut path = Path::new(MS, 0);
        path.packets[0].tsecr = mss;
        for _ in 0..8 {
            path.send(300);
            path.now_ns += 30 * MS;
            path.came_ns = path.now_ns;
            path.ack += 2600;
            path.now_ns += 40 * MS;
            path.send(0);
            path.now_ns += 20 * MS;
        }
        let epoch = &epochs(&Config::default(), &path.packets)[0];
        assert_eq!((epoch.answered, epoch.moved), (8, moved), "mss {mss}");
    }
}

/// Returns a connection whose SYN accepts `mss`, with answers of 5000 bytes after 26 ms that are acknowledged 40 ms late.
fn late_acks(mss: u32) -> Path {
    let mut path = Path::new(MS, 0);
    path.packets[0].tsecr = mss;
    for i in 0..150 {
        path.send(300);
        path.now_ns += 26 * MS + i * 7919 % 997 * US;
        path.came_ns = path.now_ns;
        path.ack += 5000;
        path.now_ns += 40 * MS;
        path.send(0);
        path.now_ns += 9 * MS;
    }
    path
}

#[test]
fn an_answer_that_may_be_one_jumbo_segment_may_be_acknowledged_late() {
    for mss in [8961, 65_495] {
        assert_right(&late_acks(mss), 26 * MS + 500 * US);
    }
    // Without a clock nobody knows; nor without a SYN, if the client's own segments are larger than the path's were taken
    // for.
    let [mut silent, mut large] = [late_acks(8961), late_acks(0)];
    silent.packets.iter_mut().skip(1).for_each(|packet| packet.tsecr = 0);
    large.packets.remove(0);
    for (i, packet) in large.packets.iter_mut().enumerate() {
        (packet.tsecr, packet.seq) = (0, i as u32 / 2 * 6000);
        if packet.payload_bytes > 0 {
            packet.payload_bytes = 6000;
            packet.bytes = 6052;
        }
    }
    for path in [silent, large] {
        let made = path.estimates();
        assert!(made.len() >= 8, "{}", made.len());
        for made in made {
            assert_eq!(made.reason, Some(Reason::DelayedAck), "{made:?}");
        }
    }
}

/// Asserts that epochs without any clock are believed, and off by at most a fifth.
#[track_caller]
fn assert_bounded(mut path: Path, truth_ns: u64) {
    path.packets.iter_mut().skip(1).for_each(|packet| packet.tsecr = 0);
    let made = path.estimates();
    assert!(made.len() >= 8, "{}", made.len());
    for (epoch, made) in made.iter().enumerate() {
        assert!(made.is_valid() && made.confidence >= 0.7, "epoch {epoch}: {made:?}");
        assert!(made.response_ns.unwrap().abs_diff(truth_ns) < truth_ns / 5, "epoch {epoch}: {made:?}");
    }
}

#[test]
fn an_answer_cannot_have_come_before_a_round_trip_nor_after_its_ack() {
    // The handshake's round trip is 21 ms, and the next request carries the ACK 5 ms after the answer.
    let mut path = Path::new(MS, 0);
    for i in 0..500 {
        path.turn(&[211], 23 * MS + i * 7919 % 997 * US, 120, 3 * MS);
    }
    assert_bounded(path, 23 * MS + 500 * US);
}

#[test]
fn the_end_of_an_answer_lies_between_its_last_two_acks() {
    // Two segments are acknowledged at once, and the third by the next request.
    let mut path = Path::new(MS, 0);
    for i in 0..150 {
        path.turn(&[211], 60 * MS + i * 7919 % 997 * US, 2 * 1460, 20 * MS);
        path.ack += 700;
    }
    assert_bounded(path, 60 * MS + 500 * US);
}

#[test]
fn acks_that_a_timer_delays_alike_tie_no_clocks_without_a_handshake() {
    let joined = |first_bytes: u32| {
        let mut path = Path::new(MS, 0);
        for i in 0..400 {
            path.turn(&[211], 26 * MS + i * 7919 % 997 * US, if i == 0 { first_bytes } else { 120 }, 90 * MS);
        }
        path.packets.drain(..2);
        path
    };
    let made = joined(120).estimates();
    assert!(made.len() >= 8, "{}", made.len());
    made.iter().for_each(|made| assert_eq!(made.reason, Some(Reason::DelayedAck), "{made:?}"));
    // One answer of several segments ties them.
    assert_right(&joined(2896), 26 * MS + 500 * US);
}

#[test]
fn multiples_of_the_usual_segment_are_no_jumbo_segments() {
    // After a second, a queue of 40 ms builds up on the path, and stays.
    let mut path = Path::new(MS, 0);
    path.packets[0].tsecr = 8961;
    for i in 0..150 {
        path.send(300);
        path.now_ns += 26 * MS + i * 7919 % 997 * US;
        path.came_ns = path.now_ns;
        path.now_ns += if i > 25 { 40 * MS } else { 0 };
        for bytes in [4 * 1448, 2000] {
            path.ack += bytes;
            path.send(0);
        }
        path.now_ns += 9 * MS;
    }
    for made in &path.estimates()[2..] {
        assert!(made.is_valid() && made.response_ns.unwrap().abs_diff(66 * MS + 500 * US) < 3 * MS, "{made:?}");
    }
}

#[test]
fn a_tick_that_no_round_trip_allows_is_none() {
    // The server's tick is 10 ms. If it were 1 ms, the answers would have come a few milliseconds after their requests.
    let mut path = Path::new(10 * MS, 0);
    for _ in 0..4 {
        path.send(300);
        path.now_ns += 52 * MS;
        path.came_ns = path.now_ns;
        path.ack += 1408;
        path.send(0);
        path.now_ns += 4 * MS;
        path.ack += 883;
        path.send(0);
        path.now_ns += 9 * MS;
    }
    let made = estimate(&Config::default(), &epochs(&Config::default(), &path.packets)[0]);
    let is_right = made.response_ns.is_some_and(|ns| ns.abs_diff(56 * MS) < 6 * MS);
    assert!(is_right || made.confidence < 0.7, "{made:?}");
    assert_eq!((made.method, made.batches), (Method::Turns, 4), "{made:?}");
}

#[test]
fn segments_that_queue_on_the_path_are_not_mistaken_for_late_acks() {
    // Answers of four segments leave at once, and a narrow link spreads them.
    let mut path = Path::new(MS, 0);
    for _ in 0..200 {
        path.send(250);
        path.now_ns += 30 * MS;
        path.came_ns = path.now_ns;
        for _ in 0..4 {
            path.ack += 1448;
            path.send(0);
            path.now_ns += 25 * MS;
        }
        path.now_ns += 5 * MS;
    }
    let made = path.estimates();
    assert!(made.len() > 10, "{}", made.len());
    for made in made {
        let is_right = made.response_ns.is_some_and(|ns| ns.abs_diff(105 * MS) < 105 * MS / 5);
        assert!(is_right || made.reason == Some(Reason::DelayedAck), "{made:?}");
    }
}

#[test]
fn an_answer_of_full_segments_alone_goes_on_after_the_epoch() {
    // The server stalls for 1.2 s after three segments.
    let mut path = Path::new(MS, 0);
    path.packets[0].tsecr = 1460;
    path.send(250);
    path.now_ns += 60 * MS;
    path.came_ns = path.now_ns;
    path.ack += 3 * 1448;
    path.send(0);
    path.now_ns += 1200 * MS;
    path.came_ns = path.now_ns;
    path.ack += 2 * 1448 + 300;
    path.send(0);
    path.now_ns += 300 * MS;
    path.send(250);
    let config = Config::default();
    let mut flow = Flow::new(&config);
    let mut ended = Vec::new();
    for packet in &path.packets {
        // As a sweep of the table does soon after each epoch.
        ended.extend(flow.end(packet.time_ns - 150 * MS));
        ended.extend(flow.step(packet));
    }
    let made: Vec<Estimate> = ended.iter().map(|epoch| estimate(&config, epoch)).collect();
    let believed: Vec<u64> =
        made.iter().filter(|made| made.confidence >= 0.7).filter_map(|made| made.response_ns).collect();
    assert!(!made.is_empty());
    assert!(believed.iter().all(|ns| ns.abs_diff(1260 * MS) < 10 * MS), "{made:?}");
}
