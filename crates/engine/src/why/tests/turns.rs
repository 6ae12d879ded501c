//! What polls make of turns that they do not see one by one, of pieces, and of who passes them on.

use super::*;

/// The rest of the request, and the answer to it, come between the same two polls.
#[test]
fn a_request_that_a_client_sends_in_two_pieces_is_no_wait_for_the_service() {
    let mut socket = Socket::new(Role::Server);
    for turn in 0..20 {
        socket.request();
        socket.polls(40, |info| info.data_segments_out = Some(turn));
        let info = &mut socket.reading.info;
        (info.data_segments_out, info.last_data_sent_ms, info.last_data_received_ms) = (Some(turn + 1), 0, 5);
        socket.both(100, 1);
        socket.polls(10, |_| {});
    }
    let evidence = socket.evidence();
    assert_eq!(evidence.sums.times.get(Part::Service), 0.0, "{:?}", evidence.sums.times);
    assert!(evidence.sums.times.get(Part::PeerPause) > 700.0 * MS, "{:?}", evidence.sums.times);
}

/// The client asks again at once: Nagle's algorithm may have held back the rest of the request before. A service that was slow has
/// acknowledged the request before.
#[test]
fn a_service_is_not_surely_slow_whose_client_may_have_held_back_the_rest_of_its_request() {
    for (acknowledged, certainty) in [(0, Certainty::Possible), (1, Certainty::Sure)] {
        let mut socket = Socket::new(Role::Server);
        socket.request();
        let more = |of: &mut Option<u32>, count| *of = of.map(|segments| segments + count);
        for _ in 0..20 {
            socket.polls(20, |_| {});
            socket.polls(1, |info| more(&mut info.segments_out, acknowledged));
            socket.polls(19, |_| {});
            socket.polls(1, |info| {
                more(&mut info.segments_out, 2 - acknowledged);
                more(&mut info.data_segments_out, 1);
                more(&mut info.segments_in, 2);
                more(&mut info.data_segments_in, 2);
                info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 100);
                info.bytes_received = info.bytes_received.map(|bytes| bytes + 200);
            });
        }
        let evidence = socket.evidence();
        assert_eq!(evidence.sums.times.get(Part::Service), 41.0 * 20.0 * MS, "{:?}", evidence.sums.times);
        assert_eq!((cause(&evidence), decide(&evidence).certainty), (Some(Cause::SlowService), Some(certainty)));
    }
}

/// Both have sent before, within a tick of the kernel, and then a request comes and is answered between two polls.
#[test]
fn whoever_is_answered_at_once_after_a_pause_paused() {
    let mut socket = Socket::new(Role::Server);
    socket.request();
    for turn in 1..20 {
        socket.both(100, 1);
        socket.polls(40, |info| info.data_segments_out = Some(turn));
        socket.reading.info.data_segments_out = Some(turn + 1);
        socket.reading.info.unacked = 1;
        socket.both(100, 1);
        socket.reading.info.unacked = 0;
    }
    let times = socket.evidence().sums.times;
    assert!(times.get(Part::Service) < 40.0 * MS, "{times:?}");
}

/// Polls are 20 ms apart, of which one in twenty finds a request that is answered within a millisecond.
#[test]
fn a_service_that_answers_at_once_is_healthy_however_far_apart_polls_are() {
    let mut socket = Socket::new(Role::Server);
    for turn in 0..400 {
        socket.reading.time_ns += 19_000_000;
        if turn % 20 == 19 {
            socket.request();
            socket.reading.time_ns += 19_000_000;
            socket.reading.info.last_data_sent_ms = 19;
            socket.answer();
            socket.reading.info.last_data_sent_ms = 0;
        } else {
            socket.reading.info.unacked = 1;
            socket.both(100, 1);
            socket.reading.info.unacked = 0;
        }
    }
    let verdict = decide(&socket.evidence());
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Healthy, Some(Certainty::Sure)), "{verdict:?}");
}

/// As of a proxy that has the header of an answer, and waits for the rest of it.
#[test]
fn what_the_application_holds_back_is_in_no_queue() {
    let mut socket = Socket::new(Role::Server);
    for _ in 0..20 {
        socket.request();
        socket.polls(40, |info| {
            (info.notsent_bytes, info.send_window, info.cwnd) = (Some(200), Some(60_000), 10);
            (info.rtt_us, info.min_rtt_us) = (12_000, Some(20));
            info.busy_us = info.busy_us.map(|us| us + 1_000);
        });
        socket.polls(1, |info| {
            info.notsent_bytes = Some(0);
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 400);
        });
    }
    let evidence = socket.evidence();
    assert_eq!(evidence.sums.times.get(Part::RemoteQueue), 0.0, "{:?}", evidence.sums.times);
    assert_eq!(
        (cause(&evidence), evidence.sums.pause.count),
        (Some(Cause::SlowApplication), 20),
        "{:?}",
        evidence.sums.times
    );
}

/// A service that answers after 30 ms, for 28 of which it waits for its name server, beside others that ask one for longer.
#[test]
fn a_service_that_asks_a_slow_name_server_for_each_request_waits_for_that() {
    let mut front = Socket::new(Role::Server);
    for _ in 0..100 {
        front.request();
        front.polls(29, |_| {});
        front.answer();
        front.polls(9, |_| {});
    }
    for (is_of_processes, names_ms) in [(true, 28), (false, 28), (false, 2_800)] {
        let mut evidence = Evidence { observed_ns: 10_000_000_000, is_of_processes, ..Evidence::default() };
        evidence.are_names_of_service = !is_of_processes;
        evidence.add(&front.connection, key(Role::Server, 80), CountKind::Whole);
        (0..100).for_each(|_| evidence.add_name(names_ms * 1_000_000));
        evidence.take_out_upstream();
        let slow = if names_ms == 28 { Cause::SlowNames } else { Cause::SlowService };
        assert_eq!(cause(&evidence), Some(slow), "{names_ms}: {:?}", evidence.sums.times);
        let own_ms = evidence.sums.times.get(Part::Service) / MS;
        assert_eq!(own_ms.round(), if names_ms == 28 { 200.0 } else { 3_000.0 });
    }
    // The target may also be a name server.
    let mut asked = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    (0..100).for_each(|_| asked.add_name(28_000_000));
    asked.take_out_upstream();
    assert_eq!(cause(&asked), Some(Cause::SlowNames));
}

/// A proxy passes an answer on as it comes, in pieces.
#[test]
fn a_proxy_that_pauses_because_its_server_does_is_not_the_slow_one() {
    let (mut front, mut back) = (Socket::new(Role::Server), Socket::new(Role::Client));
    for _ in 0..50 {
        front.answer();
        front.polls(39, |_| {});
        back.request();
        back.polls(39, |_| {});
    }
    for (is_of_processes, counted) in [(true, CountKind::Whole), (false, CountKind::Upstream)] {
        let mut evidence = Evidence { observed_ns: 10_000_000_000, is_of_processes, ..Evidence::default() };
        evidence.add(&front.connection, key(Role::Server, 80), CountKind::Whole);
        assert_eq!(cause(&evidence), Some(Cause::SlowApplication));
        evidence.add(&back.connection, key(Role::Client, 5432), counted);
        evidence.take_out_upstream();
        let verdict = decide(&evidence);
        assert_eq!(verdict.outcome, Outcome::Healthy, "{verdict:?}");
        assert!(verdict.unseen[0].remedy.starts_with("run `dwell why :5432`"), "{:?}", verdict.unseen);
    }
}

/// A connection that a search has found, `found_ms` after the one before: it asked, and was answered if it has `received`.
fn found(received: u64, found_ms: u32, sent_ms: u32) -> Socket {
    let mut socket = Socket::new(Role::Client);
    let reading = &mut socket.reading;
    let before = Reading { info: TcpInfo { state: 0, ..reading.info }, ..*reading };
    socket.connection = Connection::new(Role::Client, &before);
    reading.time_ns += u64::from(found_ms) * 1_000_000;
    let info = &mut reading.info;
    (info.bytes_sent, info.bytes_received) = (Some(100), Some(received));
    (info.last_data_sent_ms, info.last_data_received_ms) = (sent_ms, if received > 0 { 0 } else { u32::MAX });
    socket.connection.observe(&socket.reading);
    socket
}

/// Where each request opens a connection of its own, most end before they are polled again.
#[test]
fn a_connection_that_was_answered_when_it_was_found_waited_for_nobody() {
    let mut evidence = found(100, 44, 1).evidence();
    (0..99).for_each(|_| evidence.add(&found(100, 44, 1).connection, key(Role::Client, 80), CountKind::Whole));
    assert_eq!((evidence.sums.times.total(), evidence.sums.answer.count), (0.0, 0), "{:?}", evidence.sums.times);
    assert_eq!(evidence.poll_interval_ns(), 44.0 * MS);
}

#[test]
fn a_request_that_was_sent_before_its_connection_was_found_has_waited_since() {
    let mut socket = found(0, 44, 30);
    socket.polls(40, |_| {});
    socket.request();
    let evidence = socket.evidence();
    assert_eq!(
        (evidence.sums.times.get(Part::Answer), evidence.sums.answer.count),
        (71.0 * MS, 1),
        "{:?}",
        evidence.sums.times
    );
}

/// As of a proxy that opens a connection for each question: the answer, and the end, come between two polls.
#[test]
fn a_request_on_a_connection_that_is_over_was_answered() {
    for role in [Role::Client, Role::Server] {
        let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
        for _ in 0..20 {
            let mut socket = Socket::new(role);
            if role == Role::Client {
                socket.answer();
            } else {
                socket.request();
            };
            socket.polls(300, |_| {});
            socket.connection.end();
            evidence.add(&socket.connection, key(role, 80), CountKind::Whole);
        }
        let (waits, slow) = match role {
            Role::Client => (evidence.sums.answer, Cause::SlowAnswer),
            Role::Server => (evidence.sums.service, Cause::SlowService),
        };
        assert_eq!((waits.count, waits.mean_ns()), (20, Some(300.0 * MS)), "{role:?}");
        assert_eq!(cause(&evidence), Some(slow), "{role:?}");
    }
}

/// Of a proxy's connections that live for 100 ms, every fifth is there when they are searched for.
#[test]
fn a_connection_that_was_found_by_chance_stands_for_those_that_were_not() {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    let mut front = Socket::new(Role::Server);
    for turn in 0..50 {
        front.request();
        front.polls(101, |_| {});
        front.answer();
        let mut back = Socket::new(Role::Client);
        back.answer();
        back.polls(100, |_| {});
        back.connection.end();
        back.connection.stand_for(4.0);
        if turn % 5 == 0 {
            evidence.add(&back.connection, key(Role::Client, 5432), CountKind::Upstream);
        }
    }
    evidence.add(&front.connection, key(Role::Server, 80), CountKind::Whole);
    evidence.take_out_upstream();
    let times = [Part::Service, Part::Answer].map(|part| evidence.sums.times.get(part).round());
    assert_eq!(times, [50.0 * 2.0 * MS, 50.0 * 100.0 * MS], "{:?}", evidence.sums.times);
    assert_eq!(cause(&evidence), Some(Cause::SlowAnswer));
}

/// As nginx does before a slow service: searches find a few of these connections.
#[test]
fn a_service_that_opens_a_connection_for_each_question_is_not_surely_the_slow_one() {
    let mut proxy = with(&[(Part::Service, 1.0)], |sums| sums.service = silences(767, 31));
    assert_eq!(decide(&proxy).certainty, Some(Certainty::Sure));
    let (mut brief, key) =
        (Socket::new(Role::Client), Key { peer: "127.0.0.1".parse().unwrap(), ..key(Role::Client, 7101) });
    brief.turns(1, 20);
    brief.connection.was_brief();
    for _ in 0..4 {
        proxy.add(&brief.connection, key, CountKind::Upstream);
    }
    let verdict = decide(&proxy);
    assert_eq!((verdict.outcome, verdict.certainty), (Outcome::Slow(Cause::SlowService), Some(Certainty::Possible)));
    assert_eq!(verdict.remedies[0].command, "dwell why :7101");
    // Its own clients, whose ends are on this host too, are none that it asks.
    let mut served = with(&[(Part::Service, 1.0)], |sums| sums.service = silences(767, 31));
    for _ in 0..4 {
        served.add(&brief.connection, key, CountKind::WithPeer);
    }
    assert_eq!(decide(&served).certainty, Some(Certainty::Sure));
    assert!(verdict.unseen[0].what.contains("127.0.0.1:7101"), "{:?}", verdict.unseen);
}

/// As of a server that hangs: the request was under way at the first poll, and is acknowledged late.
#[test]
fn a_request_of_before_the_look_that_nothing_answers_is_not_healthy() {
    let mut socket = Socket::new(Role::Client);
    let reading = &mut socket.reading;
    (reading.info.bytes_sent, reading.info.bytes_acked, reading.info.unacked) = (Some(220), Some(1), 1);
    (reading.info.last_data_sent_ms, reading.info.last_data_received_ms) = (5, u32::MAX);
    socket.connection = Connection::new(Role::Client, reading);
    socket.polls(40, |info| info.busy_us = info.busy_us.map(|us| us + 1_000));
    socket.polls(7_000, |info| (info.bytes_acked, info.unacked) = (Some(221), 0));
    let verdict = decide(&socket.evidence());
    assert_eq!(verdict.outcome, Outcome::NoTraffic, "{}", verdict.sentence);
    assert!(verdict.sentence.contains("may be owed an answer"), "{}", verdict.sentence);
}

#[test]
fn a_connection_that_ends_after_messages_or_a_last_frame_was_owed_nothing() {
    let waits = |socket: &mut Socket| {
        socket.connection.end();
        let evidence = socket.evidence();
        (evidence.sums.answer.count, evidence.sums.times.get(Part::Answer))
    };
    let mut ships = Socket::new(Role::Client);
    for _ in 0..10 {
        ships.answer();
        ships.polls(100, |_| {});
    }
    assert_eq!(waits(&mut ships), (0, 0.0), "its peer says nothing, and it goes on");
    let mut framed = Socket::new(Role::Client);
    framed.turns(1, 20);
    framed.polls(1, |info| info.bytes_sent = info.bytes_sent.map(|sent| sent + 30));
    framed.polls(500, |_| {});
    assert_eq!(waits(&mut framed).0, 1, "it was answered before");
    let mut untold = found(100, 44, 0);
    untold.polls(500, |_| {});
    assert_eq!(waits(&mut untold), (0, 0.0), "it was answered, and nothing tells when it asked");
    let mut silent = Socket::new(Role::Client);
    silent.polls(500, |_| {});
    assert_eq!(waits(&mut silent), (0, 0.0), "it has asked for nothing");
}

/// As of a pool: tickets of TLS are there, or the end of the peer's data, which a program finds with its next request.
#[test]
fn what_a_connection_that_is_kept_for_later_has_not_read_keeps_nobody_waiting() {
    for (state, unread_bytes) in [(1, 510), (8, 1)] {
        let mut socket = Socket::new(Role::Client);
        socket.answer();
        socket.request();
        (socket.reading.readable, socket.reading.info.state) = (Some(unread_bytes), state);
        socket.polls(5_000, |_| {});
        if state == 1 {
            socket.answer();
            socket.reading.readable = Some(0);
            socket.polls(5, |_| {});
            socket.request();
        }
        let times = socket.evidence().sums.times;
        assert!(times.get(Part::Reader) < 10.0 * MS, "{state}: {times:?}");
    }
    // A program that reads each answer late waits with it, also if it asks again at once.
    for (late_ms, polls) in [(300, 1), (3_000, 0)] {
        let mut late = Socket::new(Role::Client);
        for _ in 0..20 {
            late.answer();
            late.reading.readable = Some(100);
            late.request();
            late.polls(late_ms, |_| {});
            late.reading.readable = Some(0);
            late.polls(polls, |_| {});
        }
        assert_eq!(cause(&late.evidence()), Some(Cause::SlowReader), "after {late_ms} ms");
    }
}

/// As of a pool that opens connections in advance. Request and answer come between two polls.
#[test]
fn a_client_has_not_waited_before_its_first_request() {
    let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    for _ in 0..20 {
        let mut socket = Socket::new(Role::Client);
        socket.reading.info.bytes_acked = Some(1);
        socket.connection = Connection::new(Role::Client, &socket.reading);
        socket.polls(2_500, |_| {});
        socket.polls(1, |info| {
            (info.bytes_sent, info.bytes_acked, info.bytes_received) = (Some(40), Some(41), Some(100));
        });
        socket.polls(500, |_| {});
        evidence.add(&socket.connection, key(Role::Client, 80), CountKind::Whole);
    }
    let Sums { answer, pause, .. } = evidence.sums;
    assert_eq!((answer, pause), (Silences::default(), Silences::default()));
    assert_eq!(cause(&evidence), None);
    // One that waits for the server to begin does.
    let mut socket = Socket::new(Role::Client);
    socket.reading.info.bytes_acked = Some(1);
    socket.connection = Connection::new(Role::Client, &socket.reading);
    socket.polls(300, |_| {});
    socket.polls(1, |info| info.bytes_received = Some(20));
    assert_eq!(socket.evidence().sums.answer.count, 1);
}
