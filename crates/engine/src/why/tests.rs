//! Decisions from evidence that is computed by hand: what tells each cause from the others, and each threshold.

use super::*;
use crate::socket::{Reading, Sum, TcpInfo};

const MS: f64 = 1e6;

/// Ten seconds of one connection, of which each part took this share.
fn evidence(parts: &[(Part, f64)]) -> Evidence {
    let mut evidence = Evidence {
        observed_ns: 10_000_000_000,
        polls: 5_000,
        connections: 1,
        sent_bytes: 10_000_000,
        segments_sent: 7_000,
        ..Evidence::default()
    };
    for (part, share) in parts {
        evidence.times.add(*part, share * 1e10);
    }
    evidence
}

fn cause(evidence: &Evidence) -> Option<Cause> {
    match decide(evidence).outcome {
        Outcome::Slow(cause) => Some(cause),
        _ => None,
    }
}

fn silences(count: u64, mean_ms: u64) -> Silences {
    Silences { count, sum_ns: count * mean_ms * 1_000_000, longest_ns: mean_ms * 1_000_000 }
}

fn wait(mean_ms: u64) -> Sum {
    Sum { samples: 10, bytes: 1000, ns_bytes: 1000.0 * mean_ms as f64 * MS }
}

#[test]
fn each_part_of_the_time_has_its_cause() {
    let with = |part, change: fn(&mut Evidence)| {
        let mut evidence = evidence(&[(part, 0.7), (Part::Transfer, 0.3)]);
        change(&mut evidence);
        cause(&evidence)
    };
    let found = |part, change| with(part, change).unwrap();
    assert_eq!(found(Part::Application, |it| it.pause = silences(100, 20)), Cause::SlowApplication);
    assert_eq!(found(Part::SendBuffer, |_| {}), Cause::SmallSendBuffer);
    assert_eq!(found(Part::ReceiverWindow, |_| {}), Cause::ReceiverWindow);
    assert_eq!(found(Part::Reader, |it| it.receive_buffer = wait(50)), Cause::SlowReader);
    assert_eq!(
        found(Part::RemoteQueue, |it| it.transfers = RoundTrip::new(1e9, 200.0 * MS, 20.0 * MS)),
        Cause::PathQueue
    );
    assert_eq!(found(Part::Distance, |it| it.messages = RoundTrip::new(1e9, 101.0 * MS, 100.0 * MS)), Cause::Distance);
    assert_eq!(found(Part::Loss, |it| it.segments_sent_again = 140), Cause::Loss);
    assert_eq!(found(Part::Service, |it| it.service = silences(50, 100)), Cause::SlowService);
    assert_eq!(found(Part::Answer, |it| it.answer = silences(50, 100)), Cause::SlowAnswer);
}

#[test]
fn a_share_alone_makes_no_cause_where_the_figure_is_small() {
    let healthy = |part, change: fn(&mut Evidence)| {
        let mut evidence = evidence(&[(part, 0.9), (Part::Transfer, 0.1)]);
        change(&mut evidence);
        assert_eq!(decide(&evidence).outcome, Outcome::Healthy, "{part:?}");
    };
    healthy(Part::Application, |it| it.pause.count = 10);
    healthy(Part::Reader, |it| it.receive_buffer = wait(1));
    healthy(Part::RemoteQueue, |it| it.transfers = RoundTrip::new(1e9, 0.5 * MS, 0.1 * MS));
    healthy(Part::Distance, |it| it.messages = RoundTrip::new(1e9, 0.2 * MS, 0.2 * MS));
    healthy(Part::Service, |it| it.service = silences(1000, 1));
    healthy(Part::Answer, |it| it.answer = silences(1000, 1));
    healthy(Part::Transfer, |it| it.segments_sent_again = 7);
}

#[test]
fn nobody_reading_at_all_is_a_slow_reader() {
    let found = cause(&Evidence { receive_buffer: Sum::default(), ..evidence(&[(Part::Reader, 1.0)]) });
    assert_eq!(found, Some(Cause::SlowReader));
}

#[test]
fn data_that_the_peer_sends_slowly_is_for_the_peer_to_explain() {
    let verdict = decide(&evidence(&[(Part::PeerPause, 0.8), (Part::Reader, 0.2)]));
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.unseen[0].remedy.contains("dwell why"), "{:?}", verdict.unseen);
}

#[test]
fn losses_of_a_full_queue_are_the_queue() {
    let mut overflow = evidence(&[(Part::RemoteQueue, 0.6), (Part::Transfer, 0.2), (Part::Loss, 0.2)]);
    overflow.transfers = RoundTrip::new(1e9, 200.0 * MS, 20.0 * MS);
    overflow.segments_sent_again = 140;
    assert_eq!(cause(&overflow), Some(Cause::PathQueue));
    let mut random = evidence(&[(Part::RemoteQueue, 0.1), (Part::Transfer, 0.7), (Part::Loss, 0.2)]);
    random.transfers = RoundTrip::new(1e9, 22.0 * MS, 20.0 * MS);
    random.segments_sent_again = 140;
    assert_eq!(cause(&random), Some(Cause::Loss));
}

#[test]
fn with_both_ends_on_this_host_the_nearer_cause_is_named() {
    let mut both = evidence(&[(Part::ReceiverWindow, 0.55), (Part::Reader, 0.45)]);
    both.receive_buffer = wait(50);
    assert_eq!(cause(&both), Some(Cause::SlowReader));
    let mut both = evidence(&[(Part::Answer, 0.55), (Part::Service, 0.45)]);
    (both.answer, both.service) = (silences(50, 100), silences(50, 99));
    assert_eq!(cause(&both), Some(Cause::SlowService));
}

#[test]
fn a_queue_of_this_host_is_taken_out_of_those_of_the_path() {
    let mut evidence = evidence(&[(Part::RemoteQueue, 0.8), (Part::Transfer, 0.2)]);
    evidence.transfers = RoundTrip::new(1e9, 110.0 * MS, 10.0 * MS);
    evidence.set_layers(Layers { queueing_ns: Some(90_000_000), ..Layers::default() });
    assert_eq!(cause(&evidence), Some(Cause::LocalQueue));
    assert!((evidence.times.share(Part::LocalQueue) - 0.72).abs() < 1e-9);
    assert!((evidence.times.share(Part::RemoteQueue) - 0.08).abs() < 1e-9);
}

#[test]
fn without_traffic_or_evidence_there_is_no_verdict() {
    assert_eq!(decide(&Evidence::default()).outcome, Outcome::NoTraffic);
    let idle = Evidence { sent_bytes: 0, idle_ns: 1e10, ..evidence(&[]) };
    assert_eq!(decide(&idle).outcome, Outcome::NoTraffic);
    for brief in [
        Evidence { polls: 5, ..evidence(&[(Part::SendBuffer, 1.0)]) },
        Evidence { observed_ns: 10_000_000, ..evidence(&[(Part::SendBuffer, 1.0)]) },
        evidence(&[(Part::SendBuffer, 0.4), (Part::Unexplained, 0.6)]),
    ] {
        let verdict = decide(&brief);
        assert_eq!((verdict.outcome, verdict.certainty), (Outcome::NotEnough, None));
        assert!(!verdict.unseen.is_empty(), "it says what is missing");
    }
}

#[test]
fn a_rival_makes_a_verdict_only_possible() {
    let certainty = |parts: &[(Part, f64)]| decide(&evidence(parts)).certainty;
    let with = |window, buffer| {
        certainty(&[
            (Part::ReceiverWindow, window),
            (Part::SendBuffer, buffer),
            (Part::Transfer, 1.0 - window - buffer),
        ])
    };
    assert_eq!(with(0.9, 0.0), Some(Certainty::Sure));
    assert_eq!(with(0.4, 0.0), Some(Certainty::Likely));
    assert_eq!(with(0.5, 0.45), Some(Certainty::Possible));
}

#[test]
fn a_cause_has_a_name_a_sentence_and_a_remedy() {
    let evidence = evidence(&[]);
    for cause in Cause::ALL {
        assert!(!cause.name().is_empty() && cause.sentence(0.5).ends_with("50 % of the time."));
        let remedies = cause.remedies(&evidence);
        assert!(!remedies.is_empty() && remedies.iter().all(|remedy| !remedy.effect.is_empty()), "{}", cause.name());
    }
}

/// A connection that is polled each millisecond; `step` changes what the kernel reports.
struct Socket {
    reading: Reading,
    connection: Connection,
}

impl Socket {
    fn new(role: Role) -> Socket {
        let info = TcpInfo {
            state: 1,
            send_mss: 1_000,
            rtt_us: 100,
            min_rtt_us: Some(100),
            bytes_acked: Some(1),
            bytes_received: Some(0),
            notsent_bytes: Some(0),
            bytes_sent: Some(0),
            bytes_retransmitted: Some(0),
            busy_us: Some(0),
            receiver_limited_us: Some(0),
            buffer_limited_us: Some(0),
            data_segments_in: Some(0),
            data_segments_out: Some(0),
            out_of_order: Some(0),
            ..TcpInfo::default()
        };
        let reading = Reading { time_ns: 1_000_000, info, unacknowledged: Some(0), readable: Some(0) };
        Socket { reading, connection: Connection::new(role, &reading) }
    }

    fn polls(&mut self, count: u64, mut step: impl FnMut(&mut TcpInfo)) {
        for _ in 0..count {
            self.reading.time_ns += 1_000_000;
            step(&mut self.reading.info);
            self.connection.observe(&self.reading);
        }
    }

    fn request(&mut self) {
        self.polls(1, |info| info.bytes_received = info.bytes_received.map(|bytes| bytes + 100));
    }

    fn answer(&mut self) {
        self.polls(1, |info| info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100));
    }

    fn evidence(&self) -> Evidence {
        let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
        evidence.add(&self.connection, false);
        evidence
    }
}

#[test]
fn at_a_server_the_time_from_request_to_answer_counts_and_the_rest_is_idle() {
    let mut socket = Socket::new(Role::Server);
    for _ in 0..10 {
        socket.request();
        socket.polls(29, |_| {});
        socket.answer();
        socket.polls(69, |_| {});
    }
    let evidence = socket.evidence();
    assert_eq!((evidence.service.count, evidence.service.mean_ns()), (10, Some(30.0 * MS)));
    assert_eq!(evidence.times.get(Part::Service), 300.0 * MS);
    assert_eq!(evidence.times.total() + evidence.idle_ns, 1_000.0 * MS);
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
}

#[test]
fn at_a_client_the_same_conversation_is_a_wait_for_answers() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..10 {
        socket.answer();
        socket.polls(29, |_| {});
        socket.request();
        socket.polls(69, |_| {});
    }
    let evidence = socket.evidence();
    assert_eq!((evidence.answer.count, evidence.service.count), (10, 0));
    assert_eq!(evidence.times.get(Part::Answer), 300.0 * MS);
    assert_eq!(cause(&evidence), Some(Cause::SlowAnswer));
}

#[test]
fn a_pause_in_a_transfer_is_the_applications_and_a_long_one_is_idle() {
    let mut socket = Socket::new(Role::Client);
    for pause in [50, 50, 1_500, 50] {
        socket.polls(1, |info| info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 1_000));
        socket.polls(pause - 1, |_| {});
    }
    socket.answer();
    let evidence = socket.evidence();
    // The first millisecond is a pause before the first write.
    assert_eq!(evidence.pause.count, 4);
    assert_eq!(evidence.times.get(Part::Application), 151.0 * MS);
    assert_eq!(cause(&evidence), Some(Cause::SlowApplication));
}

#[test]
fn the_kernels_own_times_are_kept_and_polls_divide_the_rest() {
    let mut socket = Socket::new(Role::Client);
    socket.polls(1_000, |info| {
        (info.unacked, info.notsent_bytes) = (40, Some(100_000));
        (info.rtt_us, info.min_rtt_us) = (50_000, Some(10_000));
        info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 1_000);
        info.busy_us = info.busy_us.map(|us| us + 1_000);
        info.receiver_limited_us = info.receiver_limited_us.map(|us| us + 500);
    });
    let times = socket.evidence().times;
    assert_eq!(times.get(Part::ReceiverWindow), 500.0 * MS);
    assert!((times.get(Part::Transfer) - 100.0 * MS).abs() < 1.0, "{times:?}");
    assert!((times.get(Part::RemoteQueue) - 400.0 * MS).abs() < 1.0, "{times:?}");
    assert!((times.total() - 1_000.0 * MS).abs() < 1.0, "the parts add up");
}

#[test]
fn a_late_acknowledgement_of_an_answer_keeps_nobody_waiting() {
    let message = |info: &mut TcpInfo| {
        (info.unacked, info.rtt_us, info.min_rtt_us) = (1, 40_000, Some(1_000));
        info.busy_us = info.busy_us.map(|us| us + 1_000);
    };
    let mut server = Socket::new(Role::Server);
    server.polls(100, message);
    let mut client = Socket::new(Role::Client);
    client.polls(100, message);
    assert_eq!(server.evidence().times.get(Part::Answer), 0.0);
    assert!(server.evidence().idle_ns > 90.0 * MS);
    assert!(client.evidence().times.get(Part::Answer) > 90.0 * MS);
}

#[test]
fn a_wait_for_a_peer_on_this_host_is_counted_there() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..10 {
        socket.answer();
        socket.polls(29, |_| {});
        socket.request();
    }
    let mut evidence = Evidence::default();
    evidence.add(&socket.connection, true);
    assert_eq!((evidence.times.get(Part::Answer), evidence.connections), (0.0, 1));
}
