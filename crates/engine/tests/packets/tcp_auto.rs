//! The choice between tcp-seq and tcp-timestamp for each direction of a flow.

use dwell_engine::{
    measure::Method,
    rtt::{Config, Counter, RateLimit},
};

use crate::wire::{Segment, client, run, server, small};

fn auto() -> Config {
    Config { tcp_auto: true, ..small() }
}

/// The methods of the samples to the server, in order.
fn methods(config: &Config, scene: &[Segment]) -> Vec<Method> {
    let samples = run(config, scene.iter().cloned()).samples;
    samples.iter().filter(|sample| sample.dst.port == 80).map(|sample| sample.method).collect()
}

/// A connection of requests and answers with the round trips of `rtts_ms`, one request after the other with a pause of
/// `pause_ms`, by clocks of 1 kHz.
struct Requests {
    scene: Vec<Segment>,
    at_ms: f64,
    mine: u32,
    theirs: u32,
}

impl Requests {
    fn new() -> Requests {
        let scene = vec![
            client(0.0).syn(99).ts(1000, 0),
            server(0.1).syn(499).ack(100).ts(9000, 1000),
            client(0.2).seq(100).ack(500).ts(1000, 9000),
        ];
        Requests { scene, at_ms: 0.2, mine: 100, theirs: 500 }
    }

    fn tick(&self) -> u32 {
        1000 + self.at_ms as u32
    }

    fn ask(&mut self, rtt_ms: f64, pause_ms: f64) {
        self.at_ms += pause_ms;
        let sent = self.tick();
        self.scene.push(client(self.at_ms).data(self.mine, 100).ack(self.theirs).ts(sent, sent + 8000));
        self.mine += 100;
        self.at_ms += rtt_ms;
        let echo = self.tick() + 8000;
        self.scene.push(server(self.at_ms).data(self.theirs, 100).ack(self.mine).ts(echo, sent));
        self.theirs += 100;
    }

    fn many(rtt_ms: f64, pause_ms: f64, count: usize) -> Vec<Segment> {
        let mut requests = Requests::new();
        (0..count).for_each(|_| requests.ask(rtt_ms, pause_ms));
        requests.scene
    }
}

#[test]
fn round_trips_shorter_than_a_tick_are_measured_by_sequence_numbers_each() {
    let scene = Requests::many(0.05, 0.01, 1000);
    assert_eq!(methods(&auto(), &scene), [Method::TcpSeq; 1000]);
    assert!(methods(&small(), &scene).len() < 100);
}

#[test]
fn a_short_connection_is_measured_from_its_first_request() {
    for rtt_ms in [0.02, 0.4, 2.0, 30.0] {
        assert_eq!(methods(&auto(), &Requests::many(rtt_ms, 0.01, 1)), [Method::TcpSeq], "{rtt_ms}");
    }
}

#[test]
fn round_trips_longer_than_a_tick_are_handed_to_timestamps_and_none_is_lost() {
    let found = methods(&auto(), &Requests::many(2.5, 0.01, 200));
    let young = found.iter().take_while(|method| **method == Method::TcpSeq).count();
    assert!((20..=40).contains(&young), "{young}");
    assert!(found[young..].iter().all(|method| *method == Method::TcpTimestamp));
    assert_eq!(found.len(), 200);
}

#[test]
fn a_path_that_becomes_fast_goes_back_to_sequence_numbers_and_back_again() {
    let mut requests = Requests::new();
    (0..100).for_each(|_| requests.ask(2.5, 0.01));
    (0..1000).for_each(|_| requests.ask(0.05, 0.01));
    let fast = methods(&auto(), &requests.scene);
    assert_eq!(fast[99], Method::TcpTimestamp);
    assert!(fast[200..].iter().all(|method| *method == Method::TcpSeq));
    assert!(fast.len() > 1070, "{}", fast.len());
    (0..100).for_each(|_| requests.ask(2.5, 0.01));
    assert_eq!(methods(&auto(), &requests.scene).last(), Some(&Method::TcpTimestamp));
}

#[test]
fn timestamps_miss_at_most_one_request_in_seventeen() {
    for (every, wanted) in [(40, Method::TcpTimestamp), (20, Method::TcpTimestamp), (8, Method::TcpSeq)] {
        let mut requests = Requests::new();
        let mut asked = 0;
        for n in 0..2000 {
            if n % every == 0 {
                // two within one tick
                requests.at_ms = requests.at_ms.ceil() + 0.1;
                requests.ask(0.05, 0.0);
                asked += 1;
            }
            requests.ask(1.3, 0.01);
            asked += 1;
        }
        let found = methods(&auto(), &requests.scene);
        assert_eq!(found.last(), Some(&wanted), "{every}");
        assert!(found.len() * 17 >= asked * 16, "{every}: {} of {asked}", found.len());
    }
}

#[test]
fn where_loss_silences_sequence_numbers_timestamps_take_over() {
    let mut requests = Requests::new();
    for _ in 0..300 {
        requests.ask(0.05, 0.01);
        // each request passes twice, so that none of its answers is clear
        let last = requests.scene.len() - 1;
        let again = requests.scene[last - 1];
        requests.scene.insert(last, Segment { at_ms: again.at_ms + 0.01, ..again });
    }
    let found = methods(&auto(), &requests.scene);
    assert!(found.iter().all(|method| *method == Method::TcpTimestamp), "{found:?}");
    // without loss, and with one miss for each new tick
    (0..1000).for_each(|_| requests.ask(0.05, 0.45));
    assert_eq!(methods(&auto(), &requests.scene).last(), Some(&Method::TcpSeq));
}

#[test]
fn a_rate_limit_is_not_taken_for_silence() {
    let config = Config { rate_limit: RateLimit::Interval(3_000_000), ..auto() };
    let found = methods(&config, &Requests::many(0.05, 0.01, 1000));
    assert!(found.len() > 15 && found.iter().all(|method| *method == Method::TcpSeq), "{found:?}");
}

#[test]
fn each_direction_is_chosen_for_on_its_own() {
    let mut requests = Requests::new();
    for _ in 0..200 {
        requests.ask(1.3, 0.01);
        // the server's answer goes on in the same tick once the client, who is near, has acknowledged it
        let (at_ms, echo) = (requests.at_ms, requests.tick() + 8000);
        let theirs = requests.theirs;
        requests.scene.push(client(at_ms + 0.02).seq(requests.mine).ack(theirs).ts(requests.tick(), echo));
        requests.scene.push(server(at_ms + 0.03).data(theirs, 50).ack(requests.mine).ts(echo, requests.tick()));
        requests.theirs += 50;
        requests.at_ms += 0.03;
    }
    let samples = run(&auto(), requests.scene).samples;
    let last = |port| samples.iter().rfind(|sample| sample.dst.port == port).unwrap().method;
    assert_eq!((last(80), last(40_000)), (Method::TcpTimestamp, Method::TcpSeq));
}

#[test]
fn flows_without_timestamps_are_measured_as_before() {
    let scene: Vec<_> = Requests::many(0.05, 0.01, 100);
    let scene: Vec<_> = scene.into_iter().map(|segment| Segment { ts: None, ..segment }).collect();
    let (chosen, fixed) = (run(&auto(), scene.iter().cloned()), run(&small(), scene.iter().cloned()));
    assert_eq!(chosen.samples, fixed.samples);
    assert_eq!(chosen.count(Counter::Samples), 199);
}
