//! What must not be said for sure, and what must be said with it.

use super::*;

fn says(verdict: &Verdict, what: &str) -> bool {
    verdict.unseen.iter().any(|unseen| unseen.what.contains(what))
}

/// As of a program that sets SO_RCVBUF to 4 KB: each byte is read at once, and the peer waits for room.
#[test]
fn bytes_that_wait_to_be_read_most_of_the_time_are_not_surely_healthy() {
    let mut small = evidence(&[(Part::Reader, 0.99), (Part::PeerPause, 0.01)]);
    (small.receive_buffer, small.target.port, small.target.role) = (wait(0), Some(9000), Some(Role::Server));
    small.sums.polls = 5_000;
    let verdict = decide(&small);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.contains("bytes waited to be read 99 % of the time"), "{}", verdict.sentence);
    assert!(verdict.unseen[0].remedy.contains("ss -tmin"), "{:?}", verdict.unseen);
    // Next to nothing of the look.
    let mut quiet = evidence(&[(Part::Reader, 0.02)]);
    (quiet.receive_buffer, quiet.sums.idle_ns) = (wait(0), 9.8e9);
    assert_eq!(decide(&quiet).certainty, Some(Certainty::Sure));
}

#[test]
fn a_reader_of_connections_that_are_nearly_idle_is_not_surely_slow() {
    let mut idle = evidence(&[(Part::Reader, 0.01)]);
    idle.sums.idle_ns = 9.9e9;
    assert_eq!((cause(&idle), decide(&idle).certainty), (Some(Cause::SlowReader), Some(Certainty::Possible)));
    // One that is stopped reads nothing, however little there is.
    idle.process = Some(Process { stopped: 1.0, ..Process::default() });
    assert_eq!(decide(&idle).certainty, Some(Certainty::Sure));
}

/// A server sends the head of each answer at once and the rest after its work, which is longer than any pause within a transfer.
#[test]
fn a_server_that_speaks_on_after_pauses_is_not_healthy_for_sure() {
    let mut certainties = Vec::new();
    for rest_ms in [120, 0] {
        let mut socket = Socket::new(Role::Server);
        let said = |bytes: u64| {
            move |info: &mut TcpInfo| {
                (info.bytes_sent, info.last_data_sent_ms) = (info.bytes_sent.map(|b| b + bytes), 0);
            }
        };
        let silence = |info: &mut TcpInfo| info.last_data_sent_ms += 1;
        for _ in 0..50 {
            socket.request();
            socket.polls(1, said(200));
            if rest_ms > 0 {
                socket.polls(rest_ms - 1, silence);
                socket.polls(1, said(800));
            }
            socket.polls(40, silence);
        }
        let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
        evidence.add(&socket.connection, key(Role::Server, 80), CountKind::Whole);
        let verdict = decide(&evidence);
        assert_eq!(verdict.outcome, Outcome::Healthy, "{verdict:?}");
        certainties.push(verdict.certainty);
    }
    assert_eq!(certainties, [Some(Certainty::Possible), Some(Certainty::Sure)]);
}

/// Events are pushed when they happen. On a busy host the program waits for a processor each time that it wakes up.
#[test]
fn messages_that_are_pushed_may_be_meant_on_a_busy_host_and_in_a_capture() {
    let mut pushed = with(&[(Part::Application, 0.1)], |sums| {
        (sums.pause, sums.segments_sent, sums.sent_bytes, sums.idle_ns) = (silences(30, 33), 80, 12_000, 9e9);
    });
    pushed.process = Some(Process { busiest_thread: 0.01, waiting_thread: 0.12, ..Process::default() });
    let verdict = decide(&pushed);
    assert_eq!(
        (cause(&pushed), verdict.certainty),
        (Some(Cause::SlowApplication), Some(Certainty::Possible)),
        "{verdict:?}"
    );
    let captured = Evidence { source: Source::Capture, process: None, ..pushed.clone() };
    let verdict = decide(&captured);
    assert_eq!(
        (cause(&captured), verdict.certainty),
        (Some(Cause::SlowApplication), Some(Certainty::Possible)),
        "{verdict:?}"
    );
    // One that writes a transfer in pieces is known to have more to say.
    let long = Evidence { sums: Sums { segments_sent: 3_000, sent_bytes: 4_000_000, ..captured.sums }, ..captured };
    assert!(decide(&long).certainty >= Some(Certainty::Likely));
}

/// The server takes 2 s, and clients give up after 0.5 s: the end of their data asks for nothing.
#[test]
fn a_client_that_gives_up_was_kept_waiting_by_the_service() {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    for _ in 0..80 {
        let mut socket = Socket::new(Role::Server);
        socket.request();
        socket.polls(500, |_| {});
        // The kernel counts the end of its data as a byte.
        socket.polls(1, |info| (info.state, info.bytes_received) = (8, Some(101)));
        socket.polls(1500, |_| {});
        socket.connection.end();
        evidence.add(&socket.connection, key(Role::Server, 80), CountKind::Whole);
    }
    assert_eq!(evidence.sums.times.get(Part::PeerPause), 0.0, "{:?}", evidence.sums.times);
    assert_eq!((cause(&evidence), evidence.sums.service.count), (Some(Cause::SlowService), 80));
    assert!(decide(&evidence).certainty >= Some(Certainty::Likely), "{:?}", decide(&evidence));
    // One that has its answer and closes the connection later waits for nothing.
    let mut kept = Socket::new(Role::Server);
    kept.request();
    kept.answer();
    kept.polls(300, |_| {});
    kept.polls(1, |info| (info.state, info.bytes_received) = (8, Some(101)));
    kept.polls(300, |_| {});
    kept.connection.end();
    assert!(kept.evidence().sums.times.get(Part::Service) < 2.0 * MS, "{:?}", kept.evidence().sums.times);
    // Nor does one that has never asked.
    let mut silent = Socket::new(Role::Server);
    silent.polls(1, |info| (info.state, info.bytes_received) = (8, Some(1)));
    silent.polls(300, |_| {});
    silent.connection.end();
    assert_eq!(silent.evidence().sums.times.get(Part::Service), 0.0);
}

#[test]
fn a_client_that_sees_losses_names_those_of_answers_too() {
    let mut lossy = with(&[(Part::Answer, 0.44), (Part::Timeout, 0.29), (Part::Reader, 0.2)], |sums| {
        sums.answer = silences(150, 27);
        sums.timeouts = silences(14, 210);
        (sums.segments_sent, sums.segments_sent_again) = (1_000, 30);
    });
    let verdict = decide(&lossy);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::SlowAnswer), Some(Certainty::Possible)));
    assert!(verdict.sentence.contains("or packets are lost on the path"), "{}", verdict.sentence);
    assert!(says(&verdict, "answers were lost"), "{:?}", verdict.unseen);
    (lossy.sums.segments_sent_again, lossy.sums.timeouts) = (0, Silences::default());
    lossy.sums.times.remove(Part::Timeout);
    let verdict = decide(&lossy);
    assert!(verdict.certainty >= Some(Certainty::Likely) && !says(&verdict, "answers were lost"), "{verdict:?}");
}

#[test]
fn several_requests_at_once_on_a_connection_are_not_told_apart() {
    for (part, role) in [(Part::Answer, Role::Client), (Part::Service, Role::Server)] {
        let mut several = with(&[(part, 0.9), (Part::Transfer, 0.1)], |sums| {
            let answers = if role == Role::Client { &mut sums.answer } else { &mut sums.service };
            *answers = silences(225, 40);
        });
        assert!(!says(&decide(&several), "at the same time"), "{role:?}");
        several.requests.add(&"gRPC /Search/Find".into(), 40_000_000);
        let verdict = decide(&several);
        assert_eq!(verdict.certainty, Some(Certainty::Likely), "{role:?}");
        assert!(says(&verdict, "at the same time"), "{:?}", verdict.unseen);
        // Whatever they are called, clients ask again before they are answered.
        several.requests = Requests::default();
        several.sums.went_on = 30;
        assert!(says(&decide(&several), "at the same time"), "{role:?}");
    }
    // What seems quick may be the answer to another request.
    let mut healthy = evidence(&[(Part::Service, 1.0)]);
    (healthy.sums.service, healthy.answered_polls) = (silences(100, 2), [100, 0]);
    assert_eq!(decide(&healthy).certainty, Some(Certainty::Sure));
    healthy.requests.add(&"gRPC /Search/Find".into(), 2_000_000);
    let verdict = decide(&healthy);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(says(&verdict, "at the same time"), "{:?}", verdict.unseen);
}

/// Each request opens a connection, and searches find it when TLS's handshake is over.
#[test]
fn a_peer_is_not_surely_slow_where_handshakes_passed_before_connections_were_found() {
    let mut late = with(&[(Part::Answer, 0.76), (Part::Reader, 0.12)], |sums| sums.answer = silences(81, 82));
    (late.connections, late.target.port, late.target.peer) = (81, Some(8443), Some("192.0.2.1".parse().unwrap()));
    late.target.role = Some(Role::Client);
    assert!(decide(&late).certainty >= Some(Certainty::Likely));
    late.missed_handshakes = 70;
    let verdict = decide(&late);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::SlowAnswer), Some(Certainty::Possible)));
    assert!(says(&verdict, "TLS's handshake took on 70 connections"), "{:?}", verdict.unseen);
    let curl = verdict.remedies.iter().find(|remedy| remedy.command.contains("time_appconnect"));
    assert!(curl.is_some_and(|remedy| remedy.command.contains("https://192.0.2.1:8443/")), "{:?}", verdict.remedies);
    let mut healthy = evidence(&[(Part::Service, 1.0)]);
    (healthy.sums.service, healthy.answered_polls, healthy.missed_handshakes) = (silences(100, 2), [100, 0], 1);
    assert_eq!((decide(&healthy).outcome, decide(&healthy).certainty), (Outcome::Healthy, Some(Certainty::Likely)));
    // A few of many change nothing.
    late.missed_handshakes = 7;
    assert!(decide(&late).certainty >= Some(Certainty::Likely));
}

#[test]
fn nothing_is_said_of_a_process_that_nobody_looked_at() {
    let mut unknown = with(&[(Part::Service, 1.0)], |sums| sums.service = silences(40, 200));
    let effects = |evidence: &Evidence| {
        decide(evidence).remedies.iter().map(|remedy| remedy.effect.to_owned()).collect::<Vec<_>>().join(", ")
    };
    assert!(!effects(&unknown).contains("it neither computes"), "{}", effects(&unknown));
    unknown.process = Some(Process::default());
    assert!(effects(&unknown).contains("it neither computes"), "{}", effects(&unknown));
}

#[test]
fn connections_that_were_reset_were_hardly_answered() {
    let mut reset = with(&[(Part::Service, 1.0)], |sums| (sums.service, sums.ended) = (silences(48, 724), [45, 0]));
    reset.connections = 50;
    assert!(!says(&decide(&reset), "reset"));
    reset.established_resets = Some(133);
    let verdict = decide(&reset);
    assert_eq!(verdict.certainty, Some(Certainty::Likely));
    assert!(says(&verdict, "133 connections were reset"), "{:?}", verdict.unseen);
    assert!(verdict.sentence.contains("or resets connections instead"), "{}", verdict.sentence);
    // Those of others, while the target's stay open.
    reset.sums.ended = [0, 45];
    assert!(!says(&decide(&reset), "reset"));
}

#[test]
fn few_connections_that_change_fast_are_to_be_captured() {
    let mut fast = with(&[(Part::Service, 0.45), (Part::Unexplained, 0.55)], |sums| sums.polls = 270);
    fast.target.port = Some(80);
    let remedy = |evidence: &Evidence| decide(evidence).unseen[0].remedy.clone();
    assert!(remedy(&fast).contains("tcpdump") && !remedy(&fast).contains("name fewer"), "{}", remedy(&fast));
    fast.connections = 300;
    assert!(remedy(&fast).contains("name fewer"), "{}", remedy(&fast));
}

#[test]
fn a_quota_that_keeps_a_program_from_running_is_named_first() {
    let mut starved = evidence(&[(Part::Service, 1.0)]);
    starved.sums.service = silences(40, 200);
    starved.process = Some(Process { busiest_thread: 0.15, waiting_thread: 0.85, ..Process::default() });
    let has_quota = |evidence: &Evidence| decide(evidence).remedies.iter().any(|it| it.command.contains("cpu."));
    assert_eq!(cause(&starved), Some(Cause::Starved));
    assert!(!has_quota(&starved), "{:?}", decide(&starved).remedies);
    starved.quota = Some(Quota { throttled: 0.0, limit: "/sys/fs/cgroup/web/cpu.max".into() });
    assert!(!has_quota(&starved), "it has never been in the way");
    starved.quota = Some(Quota { throttled: 0.9, limit: "/sys/fs/cgroup/web/cpu.max".into() });
    let verdict = decide(&starved);
    assert_eq!(verdict.remedies[0].command, "cat /sys/fs/cgroup/web/cpu.max");
    assert!(verdict.facts.iter().any(|fact| fact.method.contains("nr_throttled")), "{:?}", verdict.facts);
}

#[test]
fn a_program_that_is_stopped_is_called_so() {
    let mut stopped = evidence(&[(Part::Reader, 1.0)]);
    stopped.process = Some(Process { stopped: 0.6, ..Process::default() });
    let sentence = decide(&stopped).sentence;
    assert!(sentence.starts_with("The local program was stopped"), "{sentence}");
}

#[test]
fn a_command_stands_once_and_no_more_is_sent_again_than_was_sent() {
    let target = Target { peer: Some("192.0.2.1".parse().unwrap()), port: Some(9090), ..Target::default() };
    let mut two = with(&[(Part::Answer, 0.5), (Part::ReceiverWindow, 0.5)], |sums| sums.answer = silences(40, 50));
    (two.target, two.send_buffer) = (target, wait(50));
    let commands: Vec<_> = decide(&two).remedies.into_iter().map(|remedy| remedy.command).collect();
    let asks = commands.iter().filter(|command| command.contains("dwell why :9090")).count();
    assert_eq!(asks, 1, "{commands:?}");
    (two.sums.segments_sent, two.sums.segments_sent_again) = (4, 8);
    assert_eq!(two.loss(), Some(1.0));
}

/// Four clients that ask again as soon as they are answered, by polls that are 25 ms apart.
#[test]
fn no_mean_is_longer_than_the_longest() {
    let (mut random, mut evidence) = (1_u64, Evidence { observed_ns: 10_000_000_000, ..Evidence::default() });
    let mut within = |least: u64, most: u64| {
        random = crate::hash::split_mix(random);
        least + random % (most - least)
    };
    for _ in 0..4 {
        let mut thinks = within(1, 2000);
        let apart: Vec<u64> = (0..2000).map(|_| within(1, 45)).collect();
        let mut apart = apart.into_iter();
        let connection = far::polled(
            Role::Server,
            || apart.next().unwrap(),
            (2050, 2),
            || std::mem::replace(&mut thinks, 5),
            10_000,
        );
        evidence.add(&connection, key(Role::Server, 80), CountKind::Whole);
    }
    let service = evidence.sums.service;
    assert!(service.mean_ns() <= Some(service.longest_ns as f64), "{service:?}");
    assert!((14..=20).contains(&service.count), "{service:?}");
}
