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
    assert_eq!(found(Part::Timeout, |it| it.timeouts = silences(5, 200)), Cause::TailLoss);
    assert_eq!(found(Part::Held, |it| it.held = silences(50, 40)), Cause::Nagle);
    assert_eq!(found(Part::SetUp, |it| it.set_ups = silences(5, 1_000)), Cause::SlowSetUp);
    assert_eq!(found(Part::Names, |it| it.names = silences(5, 400)), Cause::SlowNames);
    let start = |it: &mut Evidence| {
        (it.slow_starts, it.transfers) = (silences(4, 300), RoundTrip::new(1e9, 61.0 * MS, 60.0 * MS));
    };
    assert_eq!(found(Part::SlowStart, start), Cause::SlowStart);
    assert_eq!(found(Part::Loss, |it| it.stalled_ns = 3_000_000_000), Cause::StalledPeer);
}

#[test]
fn overtaken_packets_are_no_losses() {
    let mut evidence = evidence(&[(Part::Loss, 0.4), (Part::Transfer, 0.6)]);
    (evidence.segments_sent_again, evidence.segments_sent_needlessly) = (140, 120);
    assert_eq!(cause(&evidence), Some(Cause::Reordering));
    evidence.segments_sent_needlessly = 10;
    assert_eq!(cause(&evidence), Some(Cause::Loss));
}

#[test]
fn a_program_that_waits_for_a_disk_is_slow_because_of_the_disk() {
    let mut evidence = evidence(&[(Part::Service, 0.9), (Part::Distance, 0.1)]);
    evidence.service = silences(50, 100);
    evidence.process = Some(Process { busiest_thread: 0.1, waiting_thread: 0.0, disk: 0.1 });
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
    evidence.process = Some(Process { disk: 0.8, ..Process::default() });
    assert_eq!(cause(&evidence), Some(Cause::Disk));
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
    healthy(Part::Timeout, |it| it.timeouts = silences(1, 200));
    healthy(Part::Held, |it| it.held = silences(100, 1));
    healthy(Part::SlowStart, |it| it.slow_starts = silences(4, 1));
    healthy(Part::SetUp, |it| it.set_ups = silences(100, 1));
    healthy(Part::Names, |it| it.names = silences(100, 1));
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
fn of_udp_drops_are_a_cause_and_nothing_else_is_guessed() {
    let mut udp = Evidence {
        observed_ns: 10_000_000_000,
        datagrams: Some(Datagrams { sockets: 1, dropped: 0, longest_queue_bytes: 0, waiting: 0.1 }),
        ..Evidence::default()
    };
    let quiet = decide(&udp);
    assert_eq!(quiet.outcome, Outcome::NoTraffic);
    assert!(quiet.sentence.contains("UDP") && quiet.unseen[0].remedy.contains("dwell rtt"), "{quiet:?}");
    udp.datagrams = Some(Datagrams { sockets: 1, dropped: 40, longest_queue_bytes: 212_992, waiting: 0.9 });
    let dropping = decide(&udp);
    assert_eq!(dropping.outcome, Outcome::Slow(Cause::DatagramDrops));
    assert!(dropping.sentence.contains("90 %") && dropping.facts[1].value == Some(Value::Count(40)), "{dropping:?}");
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
            segments_in: Some(0),
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
fn a_client_that_asks_again_at_once_waits_for_the_service_all_the_time() {
    let mut socket = Socket::new(Role::Server);
    for _ in 0..20 {
        socket.polls(49, |_| {});
        // The answer, and the next request, which acknowledges it.
        socket.polls(1, |info| {
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100);
            info.bytes_received = info.bytes_received.map(|bytes| bytes + 100);
            info.segments_in = info.segments_in.map(|segments| segments + 1);
            info.data_segments_in = info.data_segments_in.map(|segments| segments + 1);
        });
    }
    let evidence = socket.evidence();
    assert!(evidence.service.count >= 18, "{:?}", evidence.service);
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
fn a_message_that_is_sent_again_after_silence_waited_for_a_timeout() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..5 {
        let busy = |info: &mut TcpInfo| info.busy_us = info.busy_us.map(|us| us + 1_000);
        socket.polls(1, |info| {
            info.unacked = 1;
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100);
        });
        socket.polls(200, busy);
        socket.polls(1, |info| info.retransmissions += 1);
        socket.polls(2, busy);
        socket.polls(1, |info| {
            info.unacked = 0;
            info.bytes_acked = info.bytes_acked.map(|bytes| bytes + 100);
            info.bytes_received = info.bytes_received.map(|bytes| bytes + 100);
        });
        socket.polls(20, |_| {});
    }
    let mut evidence = socket.evidence();
    evidence.segments_sent = 10;
    assert_eq!(evidence.timeouts.count, 5);
    assert_eq!(cause(&evidence), Some(Cause::TailLoss), "{:?}", evidence.times);
}

#[test]
fn less_than_a_segment_that_waits_with_room_is_held_back() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..10 {
        socket.polls(40, |info| {
            (info.unacked, info.cwnd, info.send_window) = (1, 10, Some(60_000));
            info.notsent_bytes = Some(80);
            info.busy_us = info.busy_us.map(|us| us + 1_000);
        });
        socket.polls(5, |info| (info.unacked, info.notsent_bytes) = (0, Some(0)));
    }
    let evidence = socket.evidence();
    assert_eq!(evidence.held.count, 10);
    assert_eq!(cause(&evidence), Some(Cause::Nagle), "{:?}", evidence.times);
}

#[test]
fn a_burst_that_begins_with_a_smaller_window_than_before_starts_slowly() {
    let mut socket = Socket::new(Role::Client);
    for burst in 0..4 {
        for cwnd in [10, 20, 40, 80, 160] {
            let cwnd = if burst == 0 { 160 } else { cwnd };
            socket.polls(60, |info| {
                (info.rtt_us, info.min_rtt_us) = (60_000, Some(60_000));
                (info.unacked, info.cwnd, info.notsent_bytes) = (cwnd, cwnd, Some(100_000));
                info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 1_000);
                info.busy_us = info.busy_us.map(|us| us + 1_000);
            });
        }
        socket.polls(1_500, |info| (info.unacked, info.notsent_bytes) = (0, Some(0)));
    }
    let evidence = socket.evidence();
    assert!(evidence.slow_starts.count >= 3, "{:?}", evidence.slow_starts);
    assert_eq!(cause(&evidence), Some(Cause::SlowStart), "{:?}", evidence.times);
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
