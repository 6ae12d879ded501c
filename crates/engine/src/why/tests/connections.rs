//! How polls divide the time of connections.

use super::*;

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
    assert_eq!((evidence.sums.service.count, evidence.sums.service.mean_ns()), (10, Some(30.0 * MS)));
    assert_eq!(evidence.sums.times.get(Part::Service), 300.0 * MS);
    assert_eq!(evidence.sums.times.total() + evidence.sums.idle_ns, 1_000.0 * MS);
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
}

#[test]
fn a_client_that_asks_again_at_once_waits_for_the_service_all_the_time() {
    let mut socket = Socket::new(Role::Server);
    for _ in 0..20 {
        socket.polls(49, |_| {});
        // The answer, and the next request, which acknowledges it.
        socket.both(100, 0);
    }
    let evidence = socket.evidence();
    assert!(evidence.sums.service.count >= 18, "{:?}", evidence.sums.service);
    assert_eq!(cause(&evidence), Some(Cause::SlowService));
}

/// As those of a panel, which connections join and leave whenever there is room.
#[test]
fn waits_that_a_look_cuts_at_its_beginning_and_at_its_end_are_one_in_the_mean() {
    let mut socket = Socket::new(Role::Server);
    socket.request();
    socket.polls(29, |_| {});
    socket.reading.info.last_data_sent_ms = 1_000;
    socket.connection = Connection::new(Role::Server, &socket.reading);
    for _ in 0..4 {
        socket.polls(19, |_| {});
        socket.answer();
        socket.polls(49, |_| {});
        socket.request();
        socket.polls(30, |_| {});
    }
    let evidence = socket.evidence();
    assert_eq!((evidence.sums.service.count, evidence.sums.service.mean_ns()), (4, Some(50.0 * MS)));
}

#[test]
fn polls_of_a_client_whose_server_is_here_too_are_as_far_apart_as_they_are() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..10 {
        socket.request();
        socket.polls(99, |_| {});
        socket.answer();
    }
    let mut evidence = Evidence { observed_ns: 1_000_000_000, ..Evidence::default() };
    evidence.add(&socket.connection, key(Role::Client, 80), CountKind::WithPeer);
    assert!((0.9 * MS..1.1 * MS).contains(&evidence.poll_interval_ns()), "{}", evidence.poll_interval_ns());
}

/// Each turn is over between two polls, and the first poll comes after one, within a tick of the kernel.
#[test]
fn the_pause_of_a_client_that_is_answered_at_once_accuses_nobody() {
    for role in [Role::Client, Role::Server] {
        let mut socket = Socket::new(role);
        socket.reading.info.bytes_received = Some(100);
        socket.connection = Connection::new(role, &socket.reading);
        for _ in 0..10 {
            socket.polls(49, |_| {});
            socket.both(100, 1);
        }
        let evidence = socket.evidence();
        assert_eq!((evidence.sums.answer.count, evidence.sums.service.count), (0, 0), "{role:?}");
        assert_eq!(cause(&evidence), None, "{role:?}");
    }
}

/// An answer of several segments is acknowledged at once, so that not all acknowledgements tell who spoke last, and the
/// kernel's times are a tick coarse.
#[test]
fn whoever_asks_again_between_two_polls_waits_for_the_service_though_no_time_tells() {
    let mut socket = Socket::new(Role::Server);
    socket.request();
    for _ in 0..20 {
        socket.polls(59, |_| {});
        socket.both(3_000, 1);
    }
    let evidence = socket.evidence();
    assert!(evidence.sums.times.get(Part::Service) > 1_150.0 * MS, "{:?}", evidence.sums.times);
    assert_eq!(evidence.sums.service.count, 20);
}

/// An answer that comes in two pieces, of which the second comes between the same two polls as the next request.
#[test]
fn a_client_waits_for_the_first_piece_of_an_answer_though_no_time_tells_who_spoke_last() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..20 {
        socket.polls(59, |_| {});
        socket.request();
        socket.polls(39, |_| {});
        socket.both(100, 1);
    }
    let evidence = socket.evidence();
    assert!(evidence.sums.times.get(Part::Answer) > 1_100.0 * MS, "{:?}", evidence.sums.times);
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
    assert_eq!((evidence.sums.answer.count, evidence.sums.service.count), (10, 0));
    assert_eq!(evidence.sums.times.get(Part::Answer), 300.0 * MS);
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
    evidence.sums.segments_sent = 10;
    assert_eq!(evidence.sums.timeouts.count, 5);
    assert_eq!(cause(&evidence), Some(Cause::TailLoss), "{:?}", evidence.sums.times);
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
    assert_eq!(evidence.sums.held.count, 10);
    assert_eq!(cause(&evidence), Some(Cause::Nagle), "{:?}", evidence.sums.times);
}

#[test]
fn a_small_write_is_held_back_on_loopback_too_where_a_segment_fills_the_window() {
    let mut socket = Socket::new(Role::Server);
    for _ in 0..10 {
        socket.reading.unacknowledged = Some(182);
        socket.polls(40, |info| {
            (info.unacked, info.cwnd, info.send_window, info.send_mss) = (1, 10, Some(65_536), 65_483);
            (info.notsent_bytes, info.rtt_us) = (Some(2), 40_000);
            info.busy_us = info.busy_us.map(|us| us + 1_000);
        });
        socket.reading.unacknowledged = Some(0);
        socket.polls(5, |info| (info.unacked, info.notsent_bytes) = (0, Some(0)));
    }
    assert_eq!(cause(&socket.evidence()), Some(Cause::Nagle), "{:?}", socket.evidence().sums.times);
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
    assert!(evidence.sums.slow_starts.count >= 3, "{:?}", evidence.sums.slow_starts);
    assert_eq!(cause(&evidence), Some(Cause::SlowStart), "{:?}", evidence.sums.times);
}

/// A sender writes as much as its buffer takes; the limit is 2 MB/s.
#[test]
fn data_that_waits_for_the_limit_of_the_rate_and_for_no_window_is_paced() {
    let polled = |unacked, rate, limit| {
        let mut socket = Socket::new(Role::Server);
        socket.polls(1_000, |info| {
            (info.unacked, info.cwnd, info.notsent_bytes) = (unacked, 100, Some(1_700_000));
            (info.pacing_rate, info.max_pacing_rate) = (Some(rate), limit);
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 2_000);
            info.bytes_acked = info.bytes_acked.map(|bytes| bytes + 2_000);
            info.busy_us = info.busy_us.map(|us| us + 1_000);
        });
        socket.evidence()
    };
    let paced = polled(2, 2_000_000, Some(2_000_000));
    assert_eq!(cause(&paced), Some(Cause::Pacing), "{:?}", paced.sums.times);
    assert!(paced.sums.times.share(Part::Pacing) > 0.99, "{:?}", paced.sums.times);
    assert_eq!(paced.sums.unsent.limit, Some(2_000_000));
    let verdict = decide(&paced);
    assert_eq!((verdict.certainty, verdict.facts[1].value), (Some(Certainty::Sure), Some(Value::Bytes(2_000_000))));
    // Either the window is what it waits for, or a rate that TCP has chosen by itself.
    for (unacked, rate, limit) in
        [(100, 2_000_000, Some(2_000_000)), (2, 1_900_000, Some(2_000_000)), (2, 2_000_000, None)]
    {
        let other = polled(unacked, rate, limit);
        assert_eq!((other.sums.times.get(Part::Pacing), other.sums.unsent.limit), (0.0, None));
        assert_eq!(decide(&other).certainty, Some(Certainty::Possible), "it waits all the same");
    }
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
    assert_eq!(evidence.sums.pause.count, 4);
    assert_eq!(evidence.sums.times.get(Part::Application), 151.0 * MS);
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
    let times = socket.evidence().sums.times;
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
    client.request();
    assert_eq!(server.evidence().sums.times.get(Part::Answer), 0.0);
    assert!(server.evidence().sums.idle_ns > 90.0 * MS);
    assert!(client.evidence().sums.times.get(Part::Answer) > 90.0 * MS);
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
    evidence.add(&socket.connection, key(Role::Client, 80), CountKind::WithPeer);
    assert_eq!((evidence.sums.times.get(Part::Answer), evidence.connections), (0.0, 1));
}

#[test]
fn messages_now_and_then_are_no_transfer_that_pauses() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..20 {
        socket.answer();
        socket.polls(99, |_| {});
    }
    assert_eq!(cause(&socket.evidence()), None, "a sender of messages of 100 bytes each 100 ms");
}

#[test]
fn a_pause_of_which_dwell_saw_the_end_alone_is_as_long_as_it_was() {
    let mut first = Socket::new(Role::Client).reading;
    (first.info.last_data_sent_ms, first.info.last_data_received_ms) = (170, 1_000_000);
    let mut socket = Socket { reading: first, connection: Connection::new(Role::Client, &first) };
    for _ in 0..10 {
        socket.polls(30, |_| {});
        socket.answer();
        socket.polls(169, |_| {});
    }
    assert_eq!(socket.evidence().sums.pause.count, 0, "200 ms between two messages keep nobody waiting");
    assert_eq!(cause(&socket.evidence()), None);
}

#[test]
fn the_last_frame_of_an_idle_connection_asks_for_nothing() {
    let ends_with = |bytes: u64| {
        let mut socket = Socket::new(Role::Client);
        socket.turns(10, 20);
        socket.polls(1, |info| info.bytes_sent = info.bytes_sent.map(|sent| sent + bytes));
        socket.polls(5_000, |_| {});
        socket.evidence()
    };
    let idle = ends_with(30);
    assert!(idle.sums.answer.longest_ns < 100_000_000 && idle.sums.unanswered.count == 1, "{:?}", idle.sums.answer);
    let waits = ends_with(100);
    assert!(waits.sums.answer.longest_ns > 4_900_000_000, "a whole request was sent: {:?}", waits.sums.answer);
    assert_eq!(cause(&waits), Some(Cause::SlowAnswer));
}

#[test]
fn late_acknowledgements_keep_a_sender_without_answers_waiting_for_nobody() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..20 {
        socket.polls(40, |info| {
            (info.unacked, info.rtt_us, info.min_rtt_us) = (1, 40_000, Some(1_000));
            info.busy_us = info.busy_us.map(|us| us + 1_000);
        });
        socket.polls(1, |info| {
            info.unacked = 0;
            info.bytes_sent = info.bytes_sent.map(|bytes| bytes + 200);
        });
        socket.polls(60, |_| {});
    }
    assert_eq!(cause(&socket.evidence()), None, "{:?}", socket.evidence().sums.times);
}

#[test]
fn a_client_that_spoke_last_before_dwell_looked_may_wait() {
    let mut socket = Socket::new(Role::Client);
    socket.polls(3_000, |info| info.last_data_sent_ms += 1);
    let verdict = decide(&socket.evidence());
    assert_eq!(verdict.outcome, Outcome::NoTraffic);
    assert!(verdict.sentence.contains("owed an answer"), "{}", verdict.sentence);
    assert!(verdict.facts.iter().any(|fact| fact.value == Some(Value::Time(3e9))), "{:?}", verdict.facts);
}

/// A service that answers after 30 ms, 28 of which it waits for another one at port 5432. It also waits for messages, at
/// another port or at the same.
fn proxy(is_of_processes: bool, port_of_messages: u16) -> Evidence {
    let (mut front, mut back, mut consumer) =
        (Socket::new(Role::Server), Socket::new(Role::Client), Socket::new(Role::Client));
    for _ in 0..50 {
        front.request();
        front.polls(29, |_| {});
        front.answer();
        front.polls(69, |_| {});
        back.answer();
        back.polls(27, |_| {});
        back.request();
        back.polls(71, |_| {});
    }
    consumer.turns(3, 2_400);
    let mut evidence = Evidence { observed_ns: 10_000_000_000, is_of_processes, ..Evidence::default() };
    let counted = if is_of_processes { CountKind::Whole } else { CountKind::Upstream };
    evidence.add(&front.connection, key(Role::Server, 80), CountKind::Whole);
    evidence.add(&back.connection, key(Role::Client, 5432), counted);
    evidence.add(&consumer.connection, key(Role::Client, port_of_messages), counted);
    evidence
}

#[test]
fn a_service_that_waits_for_another_is_not_the_slow_one() {
    for (is_of_processes, port_of_messages) in [(true, 6379), (false, 6379), (true, 5432), (false, 5432)] {
        let mut evidence = proxy(is_of_processes, port_of_messages);
        assert_eq!(evidence.about(&[Part::Service]).target.port, Some(80));
        evidence.take_out_upstream();
        assert_eq!(evidence.sums.service.mean_ns(), Some(2.0 * MS), "its own time");
        let answer = evidence.sums.times.get(Part::Answer);
        assert_eq!(answer.round(), 50.0 * 28.0 * MS, "what it waits for messages is not what its clients wait for");
        let verdict = decide(&evidence);
        assert_eq!(verdict.outcome, Outcome::Slow(Cause::SlowAnswer));
        assert!(verdict.remedies[0].command.contains("dwell why :5432"), "{:?}", verdict.remedies);
        assert_eq!(verdict.common.map(|common| common.what), Some(Shared::Port(5432)));
    }
}

#[test]
fn a_program_that_is_hardly_asked_waits_for_whom_it_asks() {
    let (mut metrics, mut back) = (Socket::new(Role::Server), Socket::new(Role::Client));
    metrics.request();
    metrics.polls(2, |_| {});
    metrics.answer();
    back.turns(5, 900);
    let mut evidence = Evidence { observed_ns: 10_000_000_000, is_of_processes: true, ..Evidence::default() };
    evidence.add(&metrics.connection, key(Role::Server, 9100), CountKind::Whole);
    evidence.add(&back.connection, key(Role::Client, 5432), CountKind::Whole);
    evidence.take_out_upstream();
    assert_eq!(cause(&evidence), Some(Cause::SlowAnswer));
}

#[test]
fn a_peer_that_acknowledges_nothing_of_a_transfer_is_stalled() {
    let mut socket = Socket::new(Role::Client);
    socket.polls(4_000, |info| {
        (info.unacked, info.notsent_bytes, info.congestion_state) = (100, Some(100_000), 4);
        info.busy_us = info.busy_us.map(|us| us + 1_000);
        info.retransmissions += u32::from(info.busy_us.is_some_and(|us| us % 400_000 == 0));
    });
    assert!(socket.evidence().sums.stalled_ns > 3_500_000_000, "{}", socket.evidence().sums.stalled_ns);
    assert_eq!(cause(&socket.evidence()), Some(Cause::StalledPeer));
}

#[test]
fn messages_to_a_peer_that_says_nothing_keep_nobody_waiting_and_are_traffic() {
    let mut socket = Socket::new(Role::Client);
    for _ in 0..20 {
        socket.answer();
        socket.polls(300, |info| info.bytes_acked = info.bytes_acked.map(|bytes| bytes + 1));
    }
    assert_eq!(decide(&socket.evidence()).outcome, Outcome::Healthy);
}

#[test]
fn stamps_are_called_for_where_segments_queue_or_bytes_wait_to_be_read() {
    let called_for = |step: fn(&mut TcpInfo), readable| {
        let mut socket = Socket::new(Role::Client);
        socket.reading.readable = Some(readable);
        socket.polls(20, step);
        socket.connection.calls_for_stamps()
    };
    let transfer = |info: &mut TcpInfo| (info.unacked, info.rtt_us, info.min_rtt_us) = (20, 11_000, Some(10_000));
    assert!(!called_for(transfer, 0), "a millisecond is no queue");
    let queue = |info: &mut TcpInfo| (info.unacked, info.rtt_us, info.min_rtt_us) = (20, 50_000, Some(10_000));
    assert!(called_for(queue, 0));
    assert!(called_for(|_| {}, 4_096) && !called_for(|_| {}, 0));
}

#[test]
fn a_request_waits_from_when_it_was_sent_though_it_is_acknowledged_late() {
    let mut socket = Socket::new(Role::Client);
    let pass = |info: &mut TcpInfo| {
        info.last_data_sent_ms += 1;
        info.last_data_received_ms += 1;
    };
    for wait_ms in [60, 5, 60] {
        let asked = socket.polls(1, |info| {
            (info.bytes_sent, info.last_data_sent_ms) = (info.bytes_sent.map(|bytes| bytes + 100), 0);
            (info.last_data_received_ms, info.unacked) = (info.last_data_received_ms + 1, 1);
        });
        assert_eq!(asked, None);
        let waited = socket.polls(wait_ms - 1, |info| {
            pass(info);
            info.unacked = u32::from(info.last_data_sent_ms < 40);
        });
        assert_eq!(waited, None);
        let answered = socket.polls(1, |info| {
            pass(info);
            (info.bytes_received, info.last_data_received_ms) = (info.bytes_received.map(|bytes| bytes + 100), 0);
        });
        assert_eq!(answered, Some(wait_ms * 1_000_000));
        assert_eq!(socket.polls(7, pass), None);
    }
}

/// Of several turns between two polls, the last answer is not that of the first request.
#[test]
fn answers_that_take_less_than_the_time_between_polls_are_not_counted_as_waits() {
    /// Polls 300 ms apart of turns that begin each 25 ms and are answered after 5 ms, and then of one that takes 700 ms.
    fn waits(role: Role) -> Vec<Option<u64>> {
        let mut socket = Socket::new(role);
        let mut poll = |asked: u64, answered: u64, (asked_ms, answered_ms)| {
            let now = &mut socket.reading;
            now.time_ns += 300_000_000;
            let more = |bytes: Option<u64>, turns| bytes.map(|bytes| bytes + 100 * turns);
            let info = &mut now.info;
            let (sent, received) = if role == Role::Client { (asked, answered) } else { (answered, asked) };
            (info.bytes_sent, info.bytes_received) = (more(info.bytes_sent, sent), more(info.bytes_received, received));
            (info.last_data_sent_ms, info.last_data_received_ms) =
                if role == Role::Client { (asked_ms, answered_ms) } else { (answered_ms, asked_ms) };
            socket.connection.observe(now)
        };
        vec![
            poll(12, 11, (2, 22)),
            poll(12, 12, (2, 22)),
            poll(12, 12, (2, 22)),
            poll(0, 1, (302, 297)),
            poll(1, 0, (90, 597)),
            poll(0, 0, (390, 897)),
            poll(0, 0, (690, 1197)),
            poll(0, 1, (990, 290)),
        ]
    }
    for role in [Role::Client, Role::Server] {
        let waits = waits(role);
        assert_eq!(waits[..7], [None; 7], "{role:?}");
        assert_eq!(waits[7], Some(700_000_000), "{role:?}");
    }
}

/// One that stands for few others is polled as often as it is.
#[test]
fn a_connection_that_counts_little_is_counted() {
    let mut socket = Socket::new(Role::Client);
    socket.polls(3, |_| {});
    let mut evidence = Evidence { observed_ns: 10_000_000_000, ..Evidence::default() };
    evidence.plus(&socket.evidence(), 0.25);
    assert_eq!((evidence.connections, evidence.groups.len(), evidence.sums.polls), (1, 1, 1));
    assert_eq!(evidence.sums.idle_ns, socket.evidence().sums.idle_ns / 4.0);
}

/// A server that serves one request at a time leaves the others unread.
#[test]
fn at_a_server_a_request_that_waits_to_be_read_waits_for_the_service_and_a_transfer_for_its_reader() {
    let mut socket = Socket::new(Role::Server);
    let waits = |socket: &mut Socket| {
        socket.reading.readable = Some(100);
        socket.request();
        socket.polls(59, |_| {});
        socket.reading.readable = Some(0);
    };
    for _ in 0..10 {
        waits(&mut socket);
        socket.polls(5, |_| {});
        socket.answer();
        socket.polls(4, |_| {});
    }
    let asked = socket.evidence();
    assert_eq!((asked.sums.service.count, asked.sums.service.mean_ns()), (10, Some(65.0 * MS)));
    assert_eq!((asked.sums.unread.count, asked.sums.unread.mean_ns()), (10, Some(60.0 * MS)));
    assert_eq!((asked.sums.times.get(Part::Service), asked.sums.times.get(Part::Reader)), (650.0 * MS, 0.0));
    assert_eq!(cause(&asked), Some(Cause::SlowService));
    let mut socket = Socket::new(Role::Server);
    (0..10).for_each(|_| waits(&mut socket));
    socket.polls(1, |_| {});
    let sent = socket.evidence();
    assert_eq!((sent.sums.times.get(Part::Service), sent.sums.times.get(Part::Reader)), (0.0, 600.0 * MS));
    assert_eq!(sent.sums.unread.count, 0);
}

#[test]
fn the_wait_for_the_first_answer_of_a_connection_of_tls_opened_it() {
    for role in [Role::Client, Role::Server] {
        let mut socket = Socket::new(role);
        let turn = |socket: &mut Socket| {
            let [asks, answers] = match role {
                Role::Client => [Socket::answer, Socket::request],
                Role::Server => [Socket::request, Socket::answer],
            };
            asks(socket);
            socket.polls(99, |_| {});
            answers(socket);
        };
        turn(&mut socket);
        assert!(socket.connection.may_have_opened_with_tls());
        socket.connection.opened_with_tls();
        turn(&mut socket);
        assert!(!socket.connection.may_have_opened_with_tls());
        socket.connection.opened_with_tls();
        let evidence = socket.evidence();
        assert_eq!((evidence.sums.secured.count, evidence.sums.times.get(Part::SetUp)), (1, 100.0 * MS), "{role:?}");
        assert_eq!(evidence.sums.answer.count + evidence.sums.service.count, 1, "{role:?}");
        assert_eq!(evidence.sums.times.sum(&[Part::Answer, Part::Service]), 100.0 * MS, "{role:?}");
    }
}

/// The mean over all bytes says little of those that were there when it stopped.
#[test]
fn a_reader_that_stops_is_slow_however_fast_it_was_before() {
    for (stop_ms, wanted) in [(4_000, Some(Cause::SlowReader)), (10, None)] {
        let mut socket = Socket::new(Role::Client);
        socket.answer();
        for _ in 0..4_000 / stop_ms {
            socket.reading.readable = Some(100_000);
            socket.polls(stop_ms / 4, |info| info.bytes_received = info.bytes_received.map(|bytes| bytes + 1_000_000));
            socket.polls(stop_ms, |_| {});
        }
        assert_eq!(cause(&socket.evidence()), wanted, "{stop_ms} ms: {:?}", socket.evidence().sums.times);
    }
}
