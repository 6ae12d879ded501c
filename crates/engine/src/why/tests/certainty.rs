//! What speaks against a verdict, and what it leaves open.

use super::*;

#[test]
fn heartbeats_on_idle_connections_are_not_surely_slowed_down_by_the_distance() {
    let mut far = evidence(&[(Part::Distance, 0.03)]);
    far.sums.messages = RoundTrip::new(1e9, 36.0 * MS, 35.0 * MS);
    assert_eq!((cause(&far), decide(&far).certainty), (Some(Cause::Distance), Some(Certainty::Sure)));
    far.sums.idle_ns = 9.7e9;
    assert_eq!((cause(&far), decide(&far).certainty), (Some(Cause::Distance), Some(Certainty::Possible)));
}

#[test]
fn a_program_that_sends_at_a_pace_and_does_nothing_else_may_do_so_on_purpose() {
    let mut paced = evidence(&[(Part::Application, 0.9), (Part::Transfer, 0.1)]);
    (paced.sums.pause, paced.process) = (silences(20, 450), Some(Process::default()));
    assert_eq!((cause(&paced), decide(&paced).certainty), (Some(Cause::SlowApplication), Some(Certainty::Possible)));
    paced.process = Some(Process { busiest_thread: 0.9, ..Process::default() });
    assert_eq!(decide(&paced).certainty, Some(Certainty::Sure));
    // Fifty events per second, of a segment each.
    (paced.sums.pause, paced.sums.segments_sent) = (silences(450, 20), 450);
    assert_eq!(decide(&paced).certainty, Some(Certainty::Sure));
    paced.process = Some(Process::default());
    assert_eq!((cause(&paced), decide(&paced).certainty), (Some(Cause::SlowApplication), Some(Certainty::Possible)));
    // What goes on from segment to segment is a transfer.
    paced.sums.segments_sent = 9_000;
    assert_eq!(decide(&paced).certainty, Some(Certainty::Sure));
}

#[test]
fn ends_that_do_not_take_turns_may_not_answer_each_other() {
    for (part, role) in [(Part::Answer, Role::Client), (Part::Service, Role::Server)] {
        let mut chat = evidence(&[(part, 0.8), (Part::Transfer, 0.2)]);
        let answers = if role == Role::Client { &mut chat.sums.answer } else { &mut chat.sums.service };
        *answers = silences(100, 40);
        assert_eq!(decide(&chat).certainty, Some(Certainty::Sure));
        chat.sums.pause = silences(60, 100);
        assert_eq!(decide(&chat).certainty, Some(Certainty::Possible), "{role:?}");
    }
    // At random times, ten times per second each.
    for role in [Role::Client, Role::Server] {
        let (mut socket, mut random) = (Socket::new(role), 1);
        for _ in 0..400 {
            random = crate::hash::split_mix(random);
            if random % 2 == 0 {
                socket.answer();
            } else {
                socket.request();
            };
            socket.polls(1 + (random >> 8) % 100, |_| {});
        }
        let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
        evidence.add(&socket.connection, key(role, 80), CountKind::Whole);
        assert_eq!(decide(&evidence).certainty, Some(Certainty::Possible), "{role:?} {:?}", decide(&evidence));
    }
}

/// The client takes a connection for open whose last packet of the handshake its server has dropped.
#[test]
fn a_server_that_answers_others_and_takes_nothing_of_new_connections_may_not_accept_them() {
    for is_answered in [false, true] {
        let (mut stalled, mut answered) = (Socket::new(Role::Client), Socket::new(Role::Client));
        stalled.polls(4_000, |info| {
            (info.unacked, info.bytes_acked, info.congestion_state, info.lost) = (1, Some(1), 4, 1);
            info.busy_us = info.busy_us.map(|us| us + 1_000);
            info.retransmissions += u32::from(info.busy_us.is_some_and(|us| us % 400_000 == 0));
        });
        answered.turns(10, 20);
        let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
        evidence.add(&stalled.connection, key(Role::Client, 80), CountKind::Whole);
        if is_answered {
            evidence.add(&answered.connection, key(Role::Client, 80), CountKind::Whole);
        }
        let verdict = decide(&evidence);
        assert_eq!(verdict.outcome, Outcome::Slow(Cause::StalledPeer), "{verdict:?}");
        let names_queue = verdict.remedies[0].command.contains("TcpExtListenOverflows");
        assert_eq!((names_queue, verdict.certainty == Some(Certainty::Possible)), (is_answered, is_answered));
    }
}

#[test]
fn a_few_long_waits_for_what_was_lost_are_no_cause_and_are_not_called_healthy_for_sure() {
    let mut lossy = evidence(&[(Part::Transfer, 0.8), (Part::Timeout, 0.2)]);
    (lossy.sums.timeouts, lossy.sums.segments_sent_again) = (silences(9, 200), 20);
    let verdict = decide(&lossy);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.ends_with("packets were lost: 20 % of the time."), "{}", verdict.sentence);
    assert!(!verdict.remedies.is_empty());
}

/// Names were looked up within 70 ms, looks were 50 ms apart, and connections were over before they were found.
#[test]
fn nothing_is_called_healthy_for_sure_where_looks_were_too_far_apart_or_no_connection_was_seen() {
    let mut names = Evidence { observed_ns: 2_000_000_000, look_interval_ns: 50.0 * MS, ..Evidence::default() };
    (names.search_interval_ns, names.target.port) = (20.0 * MS, Some(7080));
    (0..20).for_each(|_| names.add_name(70_000_000));
    let verdict = decide(&names);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.contains("exceeds 100 ms"), "{}", verdict.sentence);
    let has = |what: &str, ms: f64| {
        verdict.facts.iter().any(|fact| fact.what.starts_with(what) && fact.value == Some(Value::Time(ms * MS)))
    };
    assert!(has("mean wait for a name server", 70.0) && has("time between two looks", 50.0), "{:?}", verdict.facts);
    assert!(verdict.unseen.iter().any(|unseen| unseen.what.contains("searches for them, 20 ms apart")), "{verdict:?}");
    names.look_interval_ns = 20.0 * MS;
    assert_eq!(cause(&names), Some(Cause::SlowNames));
    (names.names, names.look_interval_ns) = (silences(20, 2), 0.5 * MS);
    let verdict = decide(&names);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.starts_with("No TCP connection of the target was seen"), "{}", verdict.sentence);
    let mut opened = evidence(&[(Part::SetUp, 0.9), (Part::Transfer, 0.1)]);
    (opened.sums.set_ups, opened.search_interval_ns) = (silences(100, 40), 25.0 * MS);
    assert_eq!(decide(&opened).certainty, Some(Certainty::Possible));
}

#[test]
fn a_target_none_of_whose_connections_was_seen_may_have_had_short_ones() {
    let mut none = Evidence { observed_ns: 10_000_000_000, search_interval_ns: 50.0 * MS, ..Evidence::default() };
    none.target.port = Some(7080);
    let short = |evidence: &Evidence| {
        let unseen = decide(evidence).unseen;
        unseen
            .iter()
            .any(|it| it.what.contains("50 ms apart") && it.remedy.contains("-w FILE tcp port 7080 or port 53`"))
    };
    assert!(short(&none));
    assert!(!short(&Evidence { source: Source::Capture, ..none }));
}

#[test]
fn an_answer_that_takes_long_may_do_so_on_purpose_unless_a_request_waits_for_it() {
    let mut consumer = with(&[(Part::Answer, 0.95), (Part::Transfer, 0.05)], |sums| sums.answer = silences(14, 700));
    let verdict = decide(&consumer);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::SlowAnswer), Some(Certainty::Likely)));
    assert!(verdict.unseen[0].what.contains("on purpose"), "{:?}", verdict.unseen);
    consumer.sums.service = silences(14, 2);
    assert_eq!(decide(&consumer).certainty, Some(Certainty::Sure));
    (consumer.sums.service, consumer.sums.answer) = (Silences::default(), silences(200, 30));
    assert_eq!(decide(&consumer).certainty, Some(Certainty::Sure));
}

#[test]
fn a_process_that_is_stopped_does_nothing_on_purpose_and_is_let_go_on() {
    for part in [Part::Reader, Part::Service, Part::Application] {
        let mut stopped = evidence(&[(part, 0.9), (Part::Transfer, 0.1)]);
        match part {
            Part::Service => (stopped.sums.service, stopped.sums.unread) = (silences(4, 600), silences(4, 600)),
            _ => stopped.sums.pause = silences(4, 600),
        }
        stopped.target.pid = Some(7);
        stopped.process = Some(Process { stopped: 1.0, ..Process::default() });
        let verdict = decide(&stopped);
        assert_eq!(verdict.certainty, Some(Certainty::Sure), "{part:?}");
        assert_eq!(verdict.remedies[0].command, "kill -CONT 7");
        let told = verdict.facts.iter().find(|fact| fact.what == "its threads were stopped");
        assert_eq!(told.and_then(|fact| fact.value), Some(Value::Share(1.0)));
    }
}

#[test]
fn a_service_that_takes_long_and_does_nothing_may_do_so_on_purpose() {
    let mut evidence = with(&[(Part::Service, 1.0)], |sums| sums.service = silences(40, 200));
    let certainty = |evidence: &Evidence| decide(evidence).certainty;
    assert_eq!(certainty(&evidence), Some(Certainty::Sure));
    evidence.process = Some(Process::default());
    assert_eq!(certainty(&evidence), Some(Certainty::Possible));
    // Who waits for messages asks again at once.
    evidence.paused_ns = 3e9;
    assert_eq!(certainty(&evidence), Some(Certainty::Likely));
    evidence.process = Some(Process { busiest_thread: 0.9, ..Process::default() });
    assert_eq!(certainty(&evidence), Some(Certainty::Sure));
    evidence.unseen.push(Unseen { what: "layers".into(), remedy: "run dwell as root".into() });
    assert_eq!(certainty(&evidence), Some(Certainty::Likely), "not everything was seen");
}

#[test]
fn a_long_wait_in_the_send_buffer_is_not_called_healthy_for_sure() {
    let mut evidence = evidence(&[(Part::Transfer, 1.0)]);
    evidence.sums.unsent = Unsent { polls: 4_000, full_polls: 3_000, limit: None };
    evidence.send_buffer = wait(4);
    let verdict = decide(&evidence);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Sure)));
    let full = verdict.facts.iter().find(|fact| fact.what.contains("congestion window was full"));
    assert_eq!(full.and_then(|fact| fact.value), Some(Value::Share(0.75)));
    evidence.send_buffer = wait(863);
    let verdict = decide(&evidence);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Possible)));
    assert!(verdict.sentence.contains("863 ms in the send buffer"), "{}", verdict.sentence);
    assert!(verdict.unseen[0].what.contains("congestion window"), "{:?}", verdict.unseen);
    assert!(verdict.remedies[0].command.contains("dwell run --minimize"), "{:?}", verdict.remedies);
    // Polls that are far apart take nothing of that back.
    (evidence.connections, evidence.omitted, evidence.sums.polls) = (100, 50, 100);
    let verdict = decide(&evidence);
    assert!(verdict.sentence.contains("863 ms in the send buffer"), "{}", verdict.sentence);
}

#[test]
fn commands_have_brackets_around_addresses_of_ipv6_where_a_port_may_follow() {
    let target = Target {
        peer: Some("2001:db8::1".parse().unwrap()),
        port: Some(80),
        role: Some(Role::Client),
        ..Target::default()
    };
    let evidence = Evidence { target, ..Evidence::default() };
    let mut commands: Vec<String> =
        Cause::ALL.iter().flat_map(|cause| cause.remedies(&evidence)).map(|remedy| remedy.command).collect();
    commands.push(unseen::window(&evidence).remedy);
    assert!(commands.iter().any(|command| command.contains("http://'[2001:db8::1]':80/")), "{commands:?}");
    for command in commands {
        assert!(!command.contains("ss -tin dst 2001:") && !command.contains("://2001:"), "{command}");
    }
}
