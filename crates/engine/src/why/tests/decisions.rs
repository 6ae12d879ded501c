//! What tells each cause from the others, and each threshold.

use super::*;
use crate::{measure::Endpoint, why::figures::ConnectionFigures};

#[test]
fn each_part_of_the_time_has_its_cause() {
    let with = |part, change: fn(&mut Evidence)| {
        let mut evidence = evidence(&[(part, 0.7), (Part::Transfer, 0.3)]);
        change(&mut evidence);
        cause(&evidence)
    };
    let found = |part, change| with(part, change).unwrap();
    assert_eq!(found(Part::Application, |it| it.sums.pause = silences(100, 20)), Cause::SlowApplication);
    let far = |it: &mut Evidence| it.sums.transfers = RoundTrip::new(1e9, 50.0 * MS, 49.0 * MS);
    assert_eq!(found(Part::SendBuffer, far), Cause::SmallSendBuffer);
    assert_eq!(found(Part::ReceiverWindow, |_| {}), Cause::ReceiverWindow);
    assert_eq!(found(Part::Reader, |it| it.receive_buffer = wait(50)), Cause::SlowReader);
    assert_eq!(
        found(Part::RemoteQueue, |it| it.sums.transfers = RoundTrip::new(1e9, 200.0 * MS, 20.0 * MS)),
        Cause::PathQueue
    );
    assert_eq!(
        found(Part::Distance, |it| it.sums.messages = RoundTrip::new(1e9, 101.0 * MS, 100.0 * MS)),
        Cause::Distance
    );
    assert_eq!(found(Part::Loss, |it| it.sums.segments_sent_again = 140), Cause::Loss);
    assert_eq!(found(Part::Service, |it| it.sums.service = silences(50, 100)), Cause::SlowService);
    assert_eq!(found(Part::Answer, |it| it.sums.answer = silences(50, 100)), Cause::SlowAnswer);
    assert_eq!(found(Part::Timeout, |it| it.sums.timeouts = silences(5, 200)), Cause::TailLoss);
    assert_eq!(found(Part::Held, |it| it.sums.held = silences(50, 40)), Cause::Nagle);
    assert_eq!(found(Part::SetUp, |it| it.sums.set_ups = silences(5, 1_000)), Cause::SlowSetUp);
    assert_eq!(found(Part::Names, |it| it.names = silences(5, 400)), Cause::SlowNames);
    let start = |it: &mut Evidence| {
        (it.sums.slow_starts, it.sums.transfers) = (silences(4, 300), RoundTrip::new(1e9, 61.0 * MS, 60.0 * MS));
    };
    assert_eq!(found(Part::SlowStart, start), Cause::SlowStart);
    assert_eq!(found(Part::Loss, |it| it.sums.stalled_ns = 3_000_000_000), Cause::StalledPeer);
    assert_eq!(found(Part::Pacing, |it| it.send_buffer = wait(800)), Cause::Pacing);
}

#[test]
fn overtaken_packets_are_no_losses() {
    let mut evidence = evidence(&[(Part::Loss, 0.4), (Part::Transfer, 0.6)]);
    (evidence.sums.segments_sent_again, evidence.sums.segments_sent_needlessly) = (140, 120);
    assert_eq!(cause(&evidence), Some(Cause::Reordering));
    evidence.sums.segments_sent_needlessly = 10;
    assert_eq!(cause(&evidence), Some(Cause::Loss));
}

#[test]
fn a_program_that_waits_for_a_disk_or_a_processor_is_slow_because_of_that() {
    let mut evidence = evidence(&[(Part::Service, 0.9), (Part::Distance, 0.1)]);
    evidence.sums.service = silences(50, 100);
    evidence.process = Some(Process { busiest_thread: 0.1, disk: 0.1, ..Process::default() });
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
    evidence.process = Some(Process { disk: 0.8, ..Process::default() });
    assert_eq!(cause(&evidence), Some(Cause::Disk));
    assert_eq!(decide(&evidence).certainty, Some(Certainty::Sure));
    evidence.process = Some(Process { waiting_thread: 0.8, may_be_background: true, ..Process::default() });
    let doubtful = decide(&evidence);
    assert_ne!(doubtful.outcome, Outcome::Slow(Cause::Starved), "it may compute something that nobody waits for");
    assert_eq!(doubtful.certainty, Some(Certainty::Possible));
    evidence.process = Some(Process { waiting_thread: 0.8, ..Process::default() });
    assert_eq!(cause(&evidence), Some(Cause::Starved));
    assert_eq!(decide(&evidence).certainty, Some(Certainty::Sure));
    evidence.process = Some(Process { waiting_thread: 0.4, ..Process::default() });
    assert_eq!(decide(&evidence).certainty, Some(Certainty::Possible), "it slept for more than half of the waits");
    // Two looks at once at one program found either.
    for (disk, slow) in [(0.44, Cause::Disk), (0.3, Cause::Starved)] {
        evidence.process = Some(Process { waiting_thread: 0.42, disk, ..Process::default() });
        assert_eq!((cause(&evidence), decide(&evidence).certainty), (Some(slow), Some(Certainty::Possible)));
    }
}

#[test]
fn a_share_alone_makes_no_cause_where_the_figure_is_small() {
    let healthy = |part, change: fn(&mut Evidence)| {
        let mut evidence = evidence(&[(part, 0.9), (Part::Transfer, 0.1)]);
        change(&mut evidence);
        assert_eq!(decide(&evidence).outcome, Outcome::Healthy, "{part:?}");
    };
    healthy(Part::Application, |it| it.sums.pause.count = 10);
    healthy(Part::Reader, |it| it.receive_buffer = wait(1));
    healthy(Part::RemoteQueue, |it| it.sums.transfers = RoundTrip::new(1e9, 0.5 * MS, 0.1 * MS));
    healthy(Part::Distance, |it| it.sums.messages = RoundTrip::new(1e9, 0.2 * MS, 0.2 * MS));
    healthy(Part::Service, |it| it.sums.service = silences(1000, 1));
    healthy(Part::Answer, |it| it.sums.answer = silences(1000, 1));
    healthy(Part::Transfer, |it| it.sums.segments_sent_again = 7);
    healthy(Part::Timeout, |it| it.sums.timeouts = silences(1, 200));
    healthy(Part::Held, |it| it.sums.held = silences(100, 1));
    healthy(Part::SlowStart, |it| it.sums.slow_starts = silences(4, 1));
    healthy(Part::SetUp, |it| it.sums.set_ups = silences(100, 1));
    healthy(Part::Names, |it| it.names = silences(100, 1));
    healthy(Part::Pacing, |it| it.send_buffer = wait(1));
}

#[test]
fn waits_that_are_hardly_longer_than_the_time_between_two_searches_or_looks_accuse_nobody() {
    let found = |part, interval_ms: f64, change: fn(&mut Evidence)| {
        let mut evidence = evidence(&[(part, 0.9), (Part::Transfer, 0.1)]);
        (evidence.search_interval_ns, evidence.look_interval_ns) = (interval_ms * MS, interval_ms * MS);
        change(&mut evidence);
        cause(&evidence)
    };
    let handshakes = |it: &mut Evidence| it.sums.set_ups = silences(100, 40);
    assert_eq!(found(Part::SetUp, 15.0, handshakes), Some(Cause::SlowSetUp));
    assert_eq!(found(Part::SetUp, 25.0, handshakes), None);
    let secured = |it: &mut Evidence| (it.sums.set_ups, it.sums.secured) = (silences(100, 2), silences(100, 40));
    assert_eq!(found(Part::SetUp, 25.0, secured), Some(Cause::SlowSetUp), "polls find it, each 2 ms");
    let questions = |it: &mut Evidence| it.names = silences(100, 40);
    assert_eq!(found(Part::Names, 15.0, questions), Some(Cause::SlowNames));
    assert_eq!(found(Part::Names, 25.0, questions), None);
    let window = |polls| {
        let mut evidence = evidence(&[(Part::ReceiverWindow, 0.9), (Part::Transfer, 0.1)]);
        (evidence.sums.polls, evidence.send_buffer) = (polls, wait(30));
        cause(&evidence)
    };
    assert_eq!(window(1_000), Some(Cause::ReceiverWindow), "a poll each 10 ms");
    assert_eq!(window(500), None, "a poll each 20 ms");
}

#[test]
fn waits_that_are_long_by_the_number_of_segments_are_found_however_far_apart_polls_are() {
    let mut evidence = evidence(&[(Part::Service, 0.99), (Part::Distance, 0.01)]);
    (evidence.sums.polls, evidence.sums.service) = (417, silences(200, 43));
    // Polls are 24 ms apart.
    evidence.answer_segments = 400;
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
    // Most answers were so short that no poll fell into their time.
    evidence.answer_segments = 10_000;
    assert_eq!(cause(&evidence), None);
    let mut held = self::evidence(&[(Part::Held, 0.9), (Part::Transfer, 0.1)]);
    (held.sums.polls, held.sums.held, held.sums.segments_sent) = (417, silences(100, 40), 300);
    assert_eq!(cause(&held), Some(Cause::Nagle));
    held.sums.segments_sent = 7_000;
    assert_eq!(cause(&held), None);
    let mut paused = self::evidence(&[(Part::Application, 0.95), (Part::Transfer, 0.05)]);
    (paused.sums.polls, paused.sums.pause, paused.sums.segments_sent) = (417, silences(200, 47), 400);
    assert_eq!(cause(&paused), Some(Cause::SlowApplication));
    paused.sums.segments_sent = 10_000;
    assert_eq!(cause(&paused), None);
    let mut asked = self::evidence(&[(Part::Answer, 0.99), (Part::Distance, 0.01)]);
    (asked.sums.polls, asked.sums.answer, asked.awaited_segments) = (417, silences(200, 43), 400);
    assert_eq!(cause(&asked), Some(Cause::SlowAnswer));
    asked.awaited_segments = 10_000;
    assert_eq!(cause(&asked), None);
    // The kernel's own round trips of requests, whose acknowledgements come with the answers, are of no poll.
    asked.sums.messages = RoundTrip::new(1e9, 21.0 * MS, MS);
    assert_eq!(cause(&asked), Some(Cause::SlowAnswer));
    // A few waits may be chance.
    (evidence.answer_segments, evidence.sums.service) = (8, silences(8, 43));
    assert_eq!(cause(&evidence), None);
}

/// A busy machine's polls, 32 ms apart, found a few of thousands of requests waiting.
#[test]
fn waits_that_are_next_to_nothing_in_the_mean_over_all_answers_are_no_cause() {
    for (part, slow) in [(Part::Service, Cause::SlowService), (Part::Answer, Cause::SlowAnswer)] {
        let mut busy = evidence(&[]);
        (busy.sums.polls, busy.sums.polled_ns, busy.sums.idle_ns, busy.connections) = (1_000, 3.2e10, 3.14e10, 4);
        busy.sums.times.add(part, 0.55e9);
        busy.sums.times.add(Part::Distance, 0.09e9);
        let of_role = usize::from(part == Part::Answer);
        let waits = if of_role == 0 { &mut busy.sums.service } else { &mut busy.sums.answer };
        *waits = silences(25, 22);
        busy.answered_polls[of_role] = 950;
        assert_eq!(decide(&busy).outcome, Outcome::Healthy, "{part:?}");
        // Those of 200 requests, all of which the polls found.
        busy.answered_polls[of_role] = 30;
        assert_eq!((cause(&busy), decide(&busy).certainty), (Some(slow), Some(Certainty::Sure)), "{part:?}");
        // They add up, but hardly any of the answers was seen to take long.
        (busy.answered_polls[of_role], busy.sums.idle_ns) = (950, 2.6e10);
        busy.sums.times.add(part, 5.4e9);
        assert_eq!((cause(&busy), decide(&busy).certainty), (Some(slow), Some(Certainty::Possible)), "{part:?}");
    }
}

/// A program asks a cache all the time and a database now and then.
#[test]
fn many_quick_answers_do_not_make_up_for_the_slow_ones_of_another_peer() {
    let mut asks = evidence(&[(Part::Answer, 0.95)]);
    (asks.sums.answer, asks.answered_polls) = (silences(100, 95), [0, 8_100]);
    for (peer, share, answers) in [("192.0.2.1", 0.90, 100), ("192.0.2.2", 0.05, 8_000)] {
        let mut times = Times::default();
        times.add(Part::Answer, share * 1e10);
        let key = Key { peer: peer.parse().unwrap(), ..key(Role::Client, 80) };
        asks.groups.push(group(key, times, answers));
    }
    let verdict = decide(&asks);
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::SlowAnswer), "{verdict:?}");
    assert_eq!(verdict.about.peer, Some("192.0.2.1".parse().unwrap()));
}

/// pgbouncer, nginx and haproxy before servers on loopback: the few polls that find a request under way find slow ones.
#[test]
fn round_trips_of_the_few_requests_that_polls_find_under_way_accuse_no_peer() {
    let mut proxy = evidence(&[]);
    (proxy.sums.polls, proxy.sums.polled_ns, proxy.sums.idle_ns, proxy.connections) = (864, 6.4e10, 6.27e10, 8);
    for (part, ns) in [(Part::Reader, 0.42e9), (Part::Distance, 0.06e9), (Part::Answer, 0.72e9)] {
        proxy.sums.times.add(part, ns);
    }
    (proxy.sums.messages, proxy.awaited_segments) = (RoundTrip::new(0.8e9, 5.3 * MS, 0.01 * MS), 5_500);
    (proxy.answered_polls, proxy.receive_buffer) = ([400, 430], wait(0));
    assert_eq!(cause(&proxy), None);
    // Slow it is if they are all as long.
    (proxy.answered_polls[1], proxy.asked_segments) = (100, 5_500);
    assert_eq!(cause(&proxy), None, "several between two polls");
    proxy.sums.times.add(Part::Answer, 40e9);
    proxy.target.peer = Some("192.0.2.1".parse().unwrap());
    let key = Key { peer: "127.0.0.1".parse().unwrap(), ..key(Role::Client, 80) };
    proxy.groups.push(Group { connections: 8, ..group(key, proxy.sums.times, 430) });
    let verdict = decide(&proxy);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::SlowAnswer), Some(Certainty::Possible)));
    assert!(!verdict.sentence.contains("queue on the path"), "{}", verdict.sentence);
    assert!(verdict.facts.iter().all(|fact| fact.value.is_some()), "{:?}", verdict.facts);
}

/// Others may have filled a queue before the connections began, and then the shortest round trip has it too.
#[test]
fn a_distance_that_varies_is_not_sure_to_be_one() {
    let mut far = evidence(&[(Part::Distance, 0.8), (Part::Service, 0.2)]);
    far.sums.messages = RoundTrip::new(1e9, 101.0 * MS, 100.0 * MS);
    assert_eq!(decide(&far).certainty, Some(Certainty::Sure));
    far.sums.messages = RoundTrip::new(1e9, 61.0 * MS, 42.0 * MS);
    let verdict = decide(&far);
    assert_eq!((cause(&far), verdict.certainty), (Some(Cause::Distance), Some(Certainty::Likely)));
    assert!(verdict.unseen[0].what.contains("45 % longer than the shortest"), "{:?}", verdict.unseen);
}

/// Each acknowledgement came with the answer, 33 ms beyond the shortest round trip: a queue on the path does the same.
#[test]
fn an_answer_whose_request_no_acknowledgement_shows_to_have_arrived_is_not_surely_the_peers() {
    let mut late = evidence(&[(Part::Answer, 0.8), (Part::Distance, 0.2)]);
    late.sums.messages = RoundTrip::new(1e9, 49.0 * MS, 16.0 * MS);
    let verdict = decide(&late);
    assert_eq!((cause(&late), verdict.certainty), (Some(Cause::SlowAnswer), Some(Certainty::Likely)));
    assert!(verdict.sentence.contains("or a queue on the path"), "{}", verdict.sentence);
    assert!(verdict.unseen[0].what.contains("requests had arrived"), "{:?}", verdict.unseen);
    // Where acknowledgements come alone, they show it.
    late.sums.answer = silences(100, 40);
    let verdict = decide(&late);
    assert_eq!(verdict.certainty, Some(Certainty::Sure));
    assert!(verdict.sentence.contains("had arrived there"), "{}", verdict.sentence);
}

#[test]
fn what_polls_are_too_far_apart_for_is_not_surely_healthy() {
    let mut evidence = evidence(&[(Part::Service, 0.99), (Part::Distance, 0.01)]);
    (evidence.sums.polls, evidence.sums.service, evidence.answer_segments) = (417, silences(8, 43), 8);
    let verdict = decide(&evidence);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.contains("48 ms"), "{}", verdict.sentence);
    assert!(verdict.unseen[0].what.contains("24 ms apart"), "{:?}", verdict.unseen);
    evidence.sums.polls = 10_000;
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
}

/// 10,000 connections, of which 4096 are followed and polled every 2.5 s. What happened between two polls is unexplained, and next
/// to nothing of the time.
#[test]
fn what_is_seen_of_thousands_of_connections_is_not_called_healthy_without_saying_what_is_not() {
    let mut evidence = evidence(&[(Part::Unexplained, 1.0)]);
    (evidence.connections, evidence.omitted, evidence.sums.polls) = (4_096, 5_904, 4 * 4_096);
    (evidence.sums.polled_ns, evidence.sums.idle_ns) = (4_096.0 * 1e10, 4_095.0 * 1e10);
    let verdict = decide(&evidence);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    for wanted in ["5000 ms", "5904 of 10000 connections were not looked at"] {
        assert!(verdict.sentence.contains(wanted), "{}", verdict.sentence);
    }
    assert!(verdict.unseen[0].what.contains("2500 ms apart"), "{:?}", verdict.unseen);
    // The same waits of a few that are polled often.
    (evidence.connections, evidence.omitted, evidence.sums.polls) = (4_096, 0, 4_096 * 1_000);
    assert_eq!(decide(&evidence).certainty, Some(Certainty::Sure));
}

#[test]
fn connections_that_were_not_looked_at_say_nothing_of_how_far_apart_polls_were() {
    let mut evidence = evidence(&[(Part::Transfer, 1.0)]);
    evidence.omitted = 50;
    let verdict = decide(&evidence);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.contains("50 of "), "{}", verdict.sentence);
    assert!(!verdict.sentence.contains("apart"), "{}", verdict.sentence);
}

#[test]
fn nothing_is_said_of_connections_that_were_not_looked_at_where_others_were_idle() {
    let mut idle = with(&[], |sums| (sums.sent_bytes, sums.idle_ns) = (0, 1e13));
    (idle.connections, idle.omitted) = (4_096, 5_904);
    let verdict = decide(&idle);
    assert_eq!(verdict.outcome, Outcome::NoTraffic);
    assert!(verdict.sentence.contains("4096 connections that were looked at; 5904 others"), "{}", verdict.sentence);
}

/// The panel stands for all connections, and is polled as often as it is.
#[test]
fn polls_of_a_panel_are_as_far_apart_whatever_it_stands_for() {
    let mut evidence = evidence(&[(Part::Service, 1.0)]);
    (evidence.sums.polls, evidence.first_polls, evidence.sums.polled_ns) = (8_008, 8, 8e10);
    evidence.connections = 8;
    let of_panel = evidence.poll_interval_ns();
    evidence.connections = 10_000;
    assert_eq!((of_panel, evidence.poll_interval_ns()), (1e7, 1e7));
}

#[test]
fn stamps_tell_waits_that_are_shorter_than_the_time_between_two_polls() {
    let mut evidence = evidence(&[(Part::Reader, 0.9), (Part::Transfer, 0.1)]);
    (evidence.sums.polls, evidence.receive_buffer) = (1_000, wait(3));
    assert_eq!(cause(&evidence), None, "a poll each 10 ms");
    evidence.set_layers(Layers { application_ns: Some(3_000_000), ..Layers::default() });
    assert_eq!(cause(&evidence), Some(Cause::SlowReader));
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
    overflow.sums.transfers = RoundTrip::new(1e9, 200.0 * MS, 20.0 * MS);
    overflow.sums.segments_sent_again = 140;
    assert_eq!(cause(&overflow), Some(Cause::PathQueue));
    let mut random = evidence(&[(Part::RemoteQueue, 0.1), (Part::Transfer, 0.7), (Part::Loss, 0.2)]);
    random.sums.transfers = RoundTrip::new(1e9, 22.0 * MS, 20.0 * MS);
    random.sums.segments_sent_again = 140;
    assert_eq!(cause(&random), Some(Cause::Loss));
}

#[test]
fn with_both_ends_on_this_host_the_nearer_cause_is_named() {
    let mut both = evidence(&[(Part::ReceiverWindow, 0.55), (Part::Reader, 0.45)]);
    both.receive_buffer = wait(50);
    assert_eq!(cause(&both), Some(Cause::SlowReader));
    // What a service waits for is taken out of its own time: then the larger part is the verdict.
    let mut both = evidence(&[(Part::Answer, 0.6), (Part::Service, 0.4)]);
    (both.sums.answer, both.sums.service) = (silences(50, 60), silences(50, 40));
    assert_eq!(cause(&both), Some(Cause::SlowAnswer));
}

#[test]
fn a_queue_of_this_host_is_taken_out_of_those_of_the_path() {
    let mut evidence = evidence(&[(Part::RemoteQueue, 0.8), (Part::Transfer, 0.2)]);
    evidence.sums.transfers = RoundTrip::new(1e9, 110.0 * MS, 10.0 * MS);
    evidence.set_layers(Layers { queueing_ns: Some(90_000_000), ..Layers::default() });
    assert_eq!(cause(&evidence), Some(Cause::LocalQueue));
    assert!((evidence.sums.times.share(Part::LocalQueue) - 0.72).abs() < 1e-9);
    assert!((evidence.sums.times.share(Part::RemoteQueue) - 0.08).abs() < 1e-9);
}

/// The programs that stamp were loaded, and no byte of the target passed them.
#[test]
fn a_queue_that_may_be_of_this_host_is_not_surely_one_of_the_path() {
    let mut evidence = evidence(&[(Part::RemoteQueue, 1.0)]);
    evidence.sums.transfers = RoundTrip::new(1e9, 110.0 * MS, 10.0 * MS);
    evidence.set_layers(Layers::default());
    let verdict = decide(&evidence);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::PathQueue), Some(Certainty::Likely)));
    assert!(verdict.unseen[0].remedy.contains("dwell stack"), "{:?}", verdict.unseen);
}

#[test]
fn the_queue_of_this_host_is_on_the_way_to_the_peer_whose_packets_waited() {
    let mut socket = Socket::new(Role::Server);
    socket.polls(1_000, |info| {
        (info.unacked, info.notsent_bytes) = (40, Some(100_000));
        (info.rtt_us, info.min_rtt_us) = (110_000, Some(10_000));
        info.busy_us = info.busy_us.map(|us| us + 1_000);
    });
    let mut evidence = socket.evidence();
    evidence.set_layers(Layers { queueing_ns: Some(90_000_000), ..Layers::default() });
    let verdict = decide(&evidence);
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::LocalQueue));
    assert_eq!(verdict.remedies[0].command, "ip route get 192.0.2.1");
}

#[test]
fn without_traffic_or_evidence_there_is_no_verdict() {
    assert_eq!(decide(&Evidence::default()).outcome, Outcome::NoTraffic);
    let idle = with(&[], |sums| (sums.sent_bytes, sums.idle_ns) = (0, 1e10));
    assert_eq!(decide(&idle).outcome, Outcome::NoTraffic);
    for brief in [
        with(&[(Part::SendBuffer, 1.0)], |sums| sums.polls = 5),
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
    // As of a program that controls its datagrams over TCP.
    udp.connections = 1;
    let beside = decide(&udp);
    assert_eq!(beside.outcome, Outcome::NoTraffic);
    assert!(beside.sentence.contains("UDP") && beside.unseen[0].remedy.contains("dwell rtt"), "{beside:?}");
    udp.connections = 0;
    udp.datagrams = Some(Datagrams { sockets: 1, dropped: 40, longest_queue_bytes: 212_992, waiting: 0.9 });
    let dropping = decide(&udp);
    assert_eq!(dropping.outcome, Outcome::Slow(Cause::DatagramDrops));
    assert!(dropping.sentence.contains("90 %") && dropping.facts[1].value == Some(Value::Count(40)), "{dropping:?}");
    udp.connections = 1;
    assert_eq!(decide(&udp).outcome, Outcome::Slow(Cause::DatagramDrops));
}

#[test]
fn a_rival_makes_a_verdict_only_possible() {
    let held = silences(50, 40);
    let certainty = |parts: &[(Part, f64)]| decide(&with(parts, |sums| sums.held = held)).certainty;
    let shared = |window, buffer| {
        certainty(&[(Part::ReceiverWindow, window), (Part::Held, buffer), (Part::Transfer, 1.0 - window - buffer)])
    };
    assert_eq!(shared(0.9, 0.0), Some(Certainty::Sure));
    assert_eq!(shared(0.4, 0.0), Some(Certainty::Likely));
    assert_eq!(shared(0.5, 0.45), Some(Certainty::Possible));
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

#[test]
fn waits_that_are_shorter_than_is_known_are_none() {
    let slow = |mean_ms, polled_ms: f64| {
        cause(&with(&[(Part::Service, 1.0)], |sums| {
            sums.polls = (1e10 / (polled_ms * MS)) as u64;
            sums.service = silences(100, mean_ms);
        }))
    };
    assert_eq!(slow(60, 1.0), Some(Cause::SlowService));
    // Polls that are far apart go by the kernel's times of the last data, which have a tick.
    for (apart_ms, known_ms, unknown_ms) in [(20.0, 40, 39), (50.0, 20, 19)] {
        let [known, unknown] = [known_ms, unknown_ms].map(|mean_ms| slow(mean_ms, apart_ms));
        assert_eq!((known, unknown), (Some(Cause::SlowService), None), "{apart_ms}");
    }
}

#[test]
fn packets_that_tcp_saw_overtake_each_other_are_neither_lost_nor_queued() {
    let mut evidence = evidence(&[(Part::RemoteQueue, 0.6), (Part::Transfer, 0.3), (Part::Loss, 0.1)]);
    evidence.sums.transfers = RoundTrip::new(1e9, 60.0 * MS, 20.0 * MS);
    (evidence.sums.segments_sent_again, evidence.sums.segments_sent_needlessly) = (10, 1);
    assert_eq!(cause(&evidence), Some(Cause::PathQueue));
    evidence.sums.overtaken = 100;
    assert_eq!(cause(&evidence), Some(Cause::Reordering));
}

#[test]
fn a_window_without_waits_and_a_buffer_without_a_path_are_large_enough() {
    let mut window = evidence(&[(Part::ReceiverWindow, 0.6), (Part::Transfer, 0.4)]);
    assert_eq!(cause(&window), Some(Cause::ReceiverWindow));
    window.send_buffer = wait(1);
    assert_eq!(cause(&window), None);
    let mut buffer = evidence(&[(Part::SendBuffer, 0.6), (Part::Transfer, 0.4)]);
    buffer.sums.transfers = RoundTrip::new(1e9, 50.0 * MS, 49.0 * MS);
    assert_eq!(cause(&buffer), Some(Cause::SmallSendBuffer));
    buffer.sums.transfers = RoundTrip::new(1e9, 0.2 * MS, 0.1 * MS);
    assert_eq!(cause(&buffer), None);
}

#[test]
fn what_holds_of_the_rest_is_next() {
    let mut both = evidence(&[(Part::Distance, 0.75), (Part::Timeout, 0.2), (Part::Transfer, 0.05)]);
    (both.sums.messages, both.sums.timeouts) = (RoundTrip::new(1e9, 101.0 * MS, 100.0 * MS), silences(5, 200));
    let named =
        |evidence: &Evidence| -> Vec<Cause> { decide(evidence).ranked.iter().map(|ranked| ranked.cause).collect() };
    assert_eq!(named(&both), [Cause::Distance, Cause::TailLoss]);
    // A tenth of the time is too little, whatever else there is.
    let mut little = evidence(&[(Part::Distance, 0.95), (Part::Timeout, 0.05)]);
    (little.sums.messages, little.sums.timeouts) = (both.sums.messages, both.sums.timeouts);
    assert_eq!(named(&little), [Cause::Distance]);
    // A queue that is full loses packets.
    let mut overflow = evidence(&[(Part::RemoteQueue, 0.7), (Part::Transfer, 0.2), (Part::Loss, 0.1)]);
    overflow.sums.transfers = RoundTrip::new(1e9, 200.0 * MS, 20.0 * MS);
    overflow.sums.segments_sent_again = 140;
    assert_eq!(named(&overflow), [Cause::PathQueue]);
}

/// Connections for one request each are over before they are polled often.
#[test]
fn what_no_poll_has_measured_needs_none() {
    for (part, expected) in [(Part::Names, Cause::SlowNames), (Part::SetUp, Cause::SlowSetUp)] {
        let mut evidence = evidence(&[(part, 0.98), (Part::Answer, 0.02)]);
        (evidence.names, evidence.sums.set_ups) = (silences(12, 400), silences(12, 400));
        evidence.sums.polls = 5;
        assert_eq!(cause(&evidence), Some(expected));
        evidence.sums.times.add(Part::Answer, 2e10);
        assert_eq!(decide(&evidence).outcome, Outcome::NotEnough);
    }
}

#[test]
fn one_connection_that_is_being_opened_beside_healthy_traffic_is_no_cause() {
    let mut evidence = evidence(&[(Part::Transfer, 1.0)]);
    evidence.add_set_up(400_000_000, 0, Some(server()));
    assert_eq!(decide(&evidence).outcome, Outcome::Healthy);
}

fn server() -> Endpoint {
    Endpoint { address: "192.0.2.1".parse().unwrap(), port: 443 }
}

/// A firewall drops SYNs, and the target has no connection.
#[test]
fn of_connections_that_nothing_answers_the_server_is_named_with_what_to_do_about_it() {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, search_interval_ns: 10.0 * MS, ..Evidence::default() };
    for wait_ns in [9_200_000_000, 3_000_000_000] {
        evidence.add_set_up(wait_ns, 3, Some(server()));
    }
    let verdict = decide(&evidence);
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::SlowSetUp));
    for wanted in ["192.0.2.1:443 cannot be opened", "of 2 of them", "9.2 s"] {
        assert!(verdict.sentence.contains(wanted), "{}", verdict.sentence);
    }
    assert!(verdict.remedies[0].command.contains("--port 443 -rwc 5 192.0.2.1"), "{:?}", verdict.remedies);
    assert!(verdict.remedies.iter().all(|remedy| remedy.command.contains("192.0.2.1")), "{:?}", verdict.remedies);
    // If others of the target are answered, late, that is what the verdict is about.
    (0..20).for_each(|_| evidence.add_set_up(1_000_000_000, 1, None));
    let verdict = decide(&evidence);
    assert!(verdict.sentence.starts_with("Opening connections takes long"), "{}", verdict.sentence);
}

/// Some SYNs are lost, and others are answered.
#[test]
fn a_server_to_which_connections_open_is_not_dead() {
    let mut lossy = evidence(&[]);
    (lossy.sums.sent_bytes, lossy.sums.received_bytes, lossy.search_interval_ns) = (1_000, 1_000, 20.0 * MS);
    (0..4).for_each(|_| lossy.add_set_up(1_100_000_000, 1, Some(server())));
    assert!(decide(&lossy).sentence.contains("cannot be opened"), "{}", decide(&lossy).sentence);
    // They are used for so short a time that none is followed.
    let mut brief = Evidence { connections: 0, ..lossy.clone() };
    assert_ne!(decide(&brief).certainty, Some(Certainty::Possible));
    brief.add_set_up(20_000_000, 0, None);
    assert_eq!(decide(&brief).certainty, Some(Certainty::Possible));
    brief.add_set_up(20_000_000, 0, None);
    assert!(!decide(&brief).sentence.contains("cannot be opened"), "{}", decide(&brief).sentence);
    let key = Key { peer: server().address, ..key(Role::Client, server().port) };
    let (counted, times, answers) = (CountKind::Whole, Times::default(), ByLength::default());
    lossy.groups.push(Group { key, counted, connections: 8, brief: 8, refused: 0, times, answers, answered_polls: 8 });
    let verdict = decide(&lossy);
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::SlowSetUp));
    assert!(!verdict.sentence.contains("cannot be opened"), "{}", verdict.sentence);
}

#[test]
fn attempts_that_were_refused_are_told_and_are_no_slow_set_ups() {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, failed_attempts: Some(12), ..Evidence::default() };
    evidence.target = Target { peer: Some(server().address), port: Some(443), ..Target::default() };
    // Over a far path they take a round trip.
    evidence.add_set_up(100_000_000, 0, Some(server()));
    let verdict = decide(&evidence);
    assert_eq!(verdict.outcome, Outcome::NoTraffic);
    assert!(verdict.sentence.contains("12 attempts") && verdict.sentence.contains("refused"), "{}", verdict.sentence);
    assert!(verdict.unseen[0].remedy.contains("nc -vz 192.0.2.1 443"), "{:?}", verdict.unseen);
    evidence.failed_attempts = Some(1);
    assert!(decide(&evidence).sentence.contains("an attempt to open one failed on this host: that"));
}

#[test]
fn a_far_peer_to_whom_each_request_opens_a_connection_is_asked_on_one() {
    let mut far = evidence(&[(Part::Distance, 0.66), (Part::SetUp, 0.34)]);
    (far.sums.messages, far.connections) = (RoundTrip::new(1e9, 60.0 * MS, 60.0 * MS), 100);
    let advice = |far: &Evidence| decide(far).remedies[0].effect;
    assert!(advice(&far).contains("several requests at once"), "{}", advice(&far));
    far.sums.set_ups = silences(90, 40);
    assert!(advice(&far).contains("keep connections open"), "{}", advice(&far));
}

/// The kernel asks for the address of its device, and says after 3 s that there is no way to it.
#[test]
fn a_host_that_is_down_does_not_refuse_connections() {
    let mut evidence = Evidence { observed_ns: 3_100_000_000, failed_attempts: Some(1), ..Evidence::default() };
    evidence.add_set_up(3_080_000_000, 0, Some(server()));
    let verdict = decide(&evidence);
    assert_eq!(verdict.outcome, Outcome::Slow(Cause::SlowSetUp));
    assert!(verdict.sentence.contains("nothing answered its SYN for 3.1 s"), "{}", verdict.sentence);
}

/// glibc waits 5 s for each answer, twice.
#[test]
fn a_dead_name_server_is_named_and_a_socket_that_a_busy_program_keeps_may_be_none() {
    let mut dead = Evidence { observed_ns: 10_000_000_000, open_names: 1, ..Evidence::default() };
    dead.add_name(9_800_000_000);
    let verdict = decide(&dead);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::SlowNames), Some(Certainty::Sure)));
    let mut busy = Evidence { open_names: 1, ..evidence(&[(Part::Transfer, 1.0)]) };
    busy.add_name(9_800_000_000);
    assert_eq!(decide(&busy).certainty, Some(Certainty::Possible));
}

#[test]
fn bbr_is_not_slowed_down_by_losses_and_nobody_is_told_to_use_it_who_does() {
    let mut lossy = evidence(&[(Part::Loss, 0.9), (Part::Transfer, 0.1)]);
    lossy.sums.segments_sent_again = 140;
    let has_bbr = |verdict: &Verdict| verdict.remedies.iter().any(|remedy| remedy.command.contains("bbr"));
    let verdict = decide(&lossy);
    assert!(verdict.certainty == Some(Certainty::Sure) && has_bbr(&verdict), "{verdict:?}");
    lossy.with_bbr = 1;
    let verdict = decide(&lossy);
    assert!(verdict.certainty == Some(Certainty::Possible) && !has_bbr(&verdict), "{verdict:?}");
    let mut queued = evidence(&[(Part::RemoteQueue, 0.9), (Part::Transfer, 0.1)]);
    (queued.sums.transfers, queued.with_bbr) = (RoundTrip::new(1e9, 200.0 * MS, 20.0 * MS), 1);
    assert!(!has_bbr(&decide(&queued)));
}

#[test]
fn what_a_client_should_do_is_not_asked_of_a_server() {
    let remedies = |role, port| {
        let mut slow = evidence(&[(Part::SetUp, 0.9), (Part::Transfer, 0.1)]);
        slow.sums.set_ups = silences(5, 1_000);
        let sums = Sums { polls: 2, times: slow.sums.times, ..Sums::default() };
        let figures = ConnectionFigures { role, sums, ..ConnectionFigures::default() };
        slow.add_figures(&figures, key(role, port), CountKind::Whole);
        decide(&slow).remedies
    };
    let curl = |remedies: &[Remedy]| {
        let found = remedies.iter().find(|remedy| remedy.command.starts_with("curl"));
        found.and_then(|remedy| remedy.command.split(' ').next_back().map(str::to_owned))
    };
    assert_eq!(curl(&remedies(Role::Client, 8080)).as_deref(), Some("http://192.0.2.1:8080/"));
    assert_eq!(curl(&remedies(Role::Client, 443)).as_deref(), Some("https://192.0.2.1:443/"));
    let at_server = remedies(Role::Server, 443);
    assert_eq!(curl(&at_server), None);
    assert!(at_server.iter().any(|remedy| remedy.command.starts_with("nstat")), "{at_server:?}");
}

#[test]
fn a_command_is_quoted_for_each_shell_that_reads_it() {
    let grow = |peer: &str| {
        let mut window = evidence(&[(Part::ReceiverWindow, 0.9), (Part::Transfer, 0.1)]);
        window.target.peer = Some(peer.parse().unwrap());
        decide(&window).remedies.into_iter().map(|it| it.command).find(|it| it.contains("tcp_rmem")).unwrap()
    };
    let command = "sudo sysctl -w net.ipv4.tcp_rmem=\"4096 131072 16777216\"";
    assert_eq!(grow("127.0.0.1"), command);
    assert_eq!(grow("192.0.2.1"), format!("ssh 192.0.2.1 '{command}'"));
}
