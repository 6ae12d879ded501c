use std::net::IpAddr;

use super::*;
use crate::{
    measure::{CloseReason, Endpoint, FlowChange, FlowEvent, Method, PathCounts, Sample, Tunnel},
    roles::Role,
    socket::{Reading, TcpInfo},
};

const SECOND: u64 = 1_000_000_000;
const SETTINGS: Settings =
    Settings { max_flows: 100, idle_ns: 5 * SECOND, is_capture: false, prefix4: 24, prefix6: 48 };

fn end(address: &str, port: u16) -> Endpoint {
    Endpoint { address: address.parse().unwrap(), port }
}

fn to(address: &str, port: u16) -> Ends {
    Ends { src: end("192.0.2.1", 443), dst: end(address, port) }
}

fn tcp(ends: Ends) -> RowKey {
    RowKey::Flow(FlowKey { ends, protocol: Protocol::TCP })
}

/// A socket that has sent this many bytes in segments of 1000, and now holds some that wait.
fn reading(time_ns: u64, sent: u64, waiting: u32, rtt_us: u32) -> Reading {
    let info = TcpInfo {
        rtt_us,
        bytes_acked: Some(sent + 1),
        bytes_received: Some(0),
        bytes_sent: Some(sent),
        bytes_retransmitted: Some(0),
        notsent_bytes: Some(waiting),
        data_segments_out: Some((sent / 1000) as u32),
        busy_us: Some(time_ns / 2000),
        receiver_limited_us: Some(time_ns / 8000),
        buffer_limited_us: Some(0),
        last_data_sent_ms: 700,
        ..TcpInfo::default()
    };
    Reading { time_ns, info, ..Reading::default() }
}

fn poll(table: &mut Table, ends: Ends, pid: u32, reading: &Reading) {
    let cookie = u64::from(ends.dst.port) + 1;
    table.socket(&SocketReading { ends, cookie, pid: Some(pid), unit: Some(pid / 100), reading });
}

fn sample(src: Endpoint, dst: Endpoint, time_ns: u64, rtt_ns: u64, bytes: u64) -> Sample {
    Sample {
        time_ns,
        rtt_ns,
        min_rtt_ns: rtt_ns,
        base_ns: rtt_ns,
        method: Method::TcpTimestamp,
        handshake: false,
        src_role: None,
        src,
        dst,
        protocol: Protocol::TCP,
        interface: 1,
        tunnel: Tunnel(0),
        path: PathCounts { sent: 10, retransmitted: 1, ..PathCounts::default() },
        packets: 1,
        bytes,
    }
}

fn flow(src: Endpoint, dst: Endpoint, protocol: u8) -> FlowKey {
    FlowKey { ends: Ends { src, dst }, protocol: Protocol(protocol) }
}

fn figures(table: &Table, key: &RowKey) -> Figures {
    table.row(key).unwrap().figures
}

#[test]
fn a_flow_whose_response_comes_before_its_first_round_trip_is_shown_from_its_client() {
    let (client, server) = (end("192.0.2.1", 1024), end("192.0.2.2", 50_051));
    let mut table = Table::new(SETTINGS);
    table.response(SECOND, flow(client, server, 6), Role::Client, Response::Believed(3_000_000));
    table.end_interval(2 * SECOND);
    assert!(table.row(&tcp(Ends { src: client, dst: server })).is_some());
    // Also if its client has the greater port.
    table.response(SECOND, flow(server, client, 17), Role::Client, Response::Believed(3_000_000));
    table.end_interval(2 * SECOND);
    assert!(table.row(&RowKey::Flow(flow(server, client, 17))).is_some());
}

#[test]
fn the_response_of_a_server_of_this_host_makes_it_no_client() {
    let ends = to("198.51.100.7", 40_000);
    let mut table = Table::new(SETTINGS);
    poll(&mut table, ends, 9, &reading(SECOND, 1_000, 0, 20_000));
    table.response(SECOND, flow(ends.src, ends.dst, 6), Role::Server, Response::Believed(3_000_000));
    poll(&mut table, ends, 9, &reading(2 * SECOND, 2_000, 0, 20_000));
    table.end_interval(2 * SECOND);
    let row = table.row(&tcp(ends)).unwrap();
    assert_eq!((row.role, row.figures.response_ns), (Some(Role::Server), Some(3_000_000)));
}

/// The connections of three servers, the first of which is quick; `src` is the server.
fn of_three_servers() -> (Table, [Ends; 3]) {
    let ends = [5001, 5002, 5003].map(|port| to("198.51.100.7", port));
    let mut table = Table::new(SETTINGS);
    for second in 1..=2 {
        for ends in ends {
            let mut reading = reading(second * SECOND, second * 1_000, 0, 20_000);
            // Nothing is owed.
            reading.info.last_data_received_ms = 900;
            poll(&mut table, ends, 9, &reading);
        }
        if second == 1 {
            table.end_interval(SECOND);
        }
    }
    table.response(2 * SECOND, flow(ends[0].src, ends[0].dst, 6), Role::Server, Response::Believed(8_000_000));
    (table, ends)
}

fn order(table: &Table) -> Vec<(RowKey, Option<u64>, Option<u64>)> {
    let rows = table.rows(View::Flows, Metric::Response).into_iter();
    rows.map(|row| (row.key, row.figures.response_ns, row.figures.doubted_response_ns)).collect()
}

#[test]
fn a_server_whose_response_is_in_doubt_stands_where_it_would_if_it_were_not() {
    let (mut table, [quick, slow, unknown]) = of_three_servers();
    let key = flow(slow.src, slow.dst, 6);
    table.response(2 * SECOND, key, Role::Server, Response::Doubted(300_000_000));
    table.response(2 * SECOND, key, Role::Server, Response::Doubted(320_000_000));
    table.response(2 * SECOND, flow(unknown.src, unknown.dst, 6), Role::Server, Response::Unknown);
    table.end_interval(2 * SECOND);
    let expected =
        [(tcp(slow), None, Some(310_000_000)), (tcp(quick), Some(8_000_000), None), (tcp(unknown), None, None)];
    assert_eq!(order(&table), expected);
    // A mean of several is that of those which are believed.
    let peer = figures(&table, &RowKey::Peer(slow.dst.address));
    assert_eq!((peer.response_ns, peer.doubted_response_ns), (Some(8_000_000), None));
}

#[test]
fn a_server_that_owes_an_answer_has_taken_as_long_as_that_at_least() {
    let (mut table, [quick, slow, chat]) = of_three_servers();
    for ends in [slow, chat] {
        table.response(2 * SECOND, flow(ends.src, ends.dst, 6), Role::Server, Response::Believed(400_000_000));
    }
    table.end_interval(2 * SECOND);
    // Who waits for whom in the last one is no longer known.
    table.response(3 * SECOND, flow(chat.src, chat.dst, 6), Role::Server, Response::Unknown);
    let asked_ms_ago = |table: &mut Table, second: u64, ms: u32| {
        for ends in [quick, slow, chat] {
            let mut reading = reading(second * SECOND, 2_000, 0, 20_000);
            (reading.info.last_data_sent_ms, reading.info.last_data_received_ms) = (ms + 400, ms);
            if ends == quick {
                reading.info.last_data_received_ms = ms + 500;
            }
            poll(table, ends, 9, &reading);
        }
        table.end_interval(second * SECOND);
    };
    asked_ms_ago(&mut table, 3, 950);
    let [first, ..] = order(&table)[..] else { panic!() };
    assert_eq!(first, (tcp(slow), None, Some(950_000_000)));
    assert!(order(&table)[1..].iter().all(|(_, believed, doubted)| (believed, doubted) == (&None, &None)));
    // It asks for nothing any more.
    asked_ms_ago(&mut table, 4, 31_000);
    assert!(order(&table).iter().all(|(_, _, doubted)| doubted.is_none()));
}

#[test]
fn an_interval_has_what_changed_between_two_polls() {
    let mut table = Table::new(SETTINGS);
    let ends = to("198.51.100.7", 5000);
    poll(&mut table, ends, 9, &reading(SECOND, 1_000_000, 50_000, 20_000));
    table.end_interval(SECOND);
    let first = figures(&table, &tcp(ends));
    assert_eq!(first, Figures::default(), "one poll shows no change");
    assert_eq!(table.row(&tcp(ends)).unwrap().last_rtt_ns, Some(20_000_000));

    let mut second = reading(2 * SECOND, 1_500_000, 150_000, 25_000);
    second.info.retransmissions = 7;
    poll(&mut table, ends, 9, &second);
    table.end_interval(2 * SECOND);
    let now = figures(&table, &tcp(ends));
    assert_eq!(now.rtt_ns, Some(25_000_000));
    assert_eq!((now.segments_sent, now.retransmissions), (Some(500), Some(7)));
    assert_eq!((now.sent_bps, now.received_bps, now.rate_bps), (Some(4_000_000), Some(0), Some(4_000_000)));
    // 100 KB wait on average, and 500 KB leave in a second.
    assert_eq!(now.send_buffer_ns, Some(200_000_000));
    let limits = table.limits(&FlowKey { ends, protocol: Protocol::TCP }).unwrap();
    assert!((limits.network - 0.375).abs() < 1e-6 && (limits.receiver - 0.125).abs() < 1e-6, "{limits:?}");
}

#[test]
fn a_connection_without_traffic_has_an_old_round_trip_and_one_that_is_stuck_waits() {
    let mut table = Table::new(SETTINGS);
    let ends = to("198.51.100.7", 5000);
    for second in 1..=2 {
        poll(&mut table, ends, 9, &reading(second * SECOND, 1_000, 800, 20_000));
        table.end_interval(second * SECOND);
    }
    let row = table.row(&tcp(ends)).unwrap();
    assert_eq!((row.figures.rtt_ns, row.last_rtt_ns), (None, Some(20_000_000)));
    assert_eq!(row.figures.send_buffer_ns, Some(700_000_000), "since the last byte was sent");
    assert_eq!(row.figures.rate_bps, Some(0));
}

#[test]
fn a_socket_that_is_not_polled_again_has_ended_and_one_with_its_ends_is_another() {
    let mut table = Table::new(SETTINGS);
    let ends = to("198.51.100.7", 5000);
    for second in 1..=2 {
        poll(&mut table, ends, 9, &reading(second * SECOND, second * 1_000_000, 0, 20_000));
        table.end_interval(second * SECOND);
    }
    let other = reading(3 * SECOND, 10, 0, 1_000);
    table.socket(&SocketReading { ends, cookie: 77, pid: None, unit: None, reading: &other });
    table.end_interval(3 * SECOND);
    assert_eq!(figures(&table, &tcp(ends)), Figures::default(), "nothing is known of its past");
    assert_eq!(table.row(&tcp(ends)).unwrap().pid, None, "the process may be another one");
    assert_eq!(table.past(&tcp(ends)).unwrap().of(Metric::Rate).flatten().count(), 0, "nor are its rates");
    table.end_interval(4 * SECOND);
    assert_eq!(table.flows(), 0);
    assert!(table.rows(View::Peers, Metric::Rtt).is_empty());
}

#[test]
fn rows_are_grouped_and_the_worst_is_first() {
    let mut table = Table::new(SETTINGS);
    let flows = [
        (to("198.51.100.7", 5000), 9, 20_000),
        (to("198.51.100.7", 5001), 10, 40_000),
        (to("198.51.100.9", 5002), 9, 90_000),
        (to("2001:db8::1", 5003), 9, 1_000),
    ];
    for second in 1..=2 {
        for (ends, pid, rtt_us) in flows {
            poll(&mut table, ends, pid, &reading(second * SECOND, second * 1_000, 0, rtt_us));
        }
        // It stays idle, so that its round trip is not known.
        poll(&mut table, to("203.0.113.1", 5004), 9, &reading(second * SECOND, 1, 0, 900_000));
        table.end_interval(second * SECOND);
    }
    let rtts = |view| {
        let rows = table.rows(view, Metric::Rtt);
        rows.iter().map(|row| (row.flows, row.figures.rtt_ns.map(|ns| ns / 1_000_000))).collect::<Vec<_>>()
    };
    assert_eq!(rtts(View::Flows), [(1, Some(90)), (1, Some(40)), (1, Some(20)), (1, Some(1)), (1, None)]);
    assert_eq!(rtts(View::Peers), [(1, Some(90)), (2, Some(30)), (1, Some(1)), (1, None)]);
    assert_eq!(rtts(View::Prefixes), [(3, Some(50)), (1, Some(1)), (1, None)]);
    assert_eq!(rtts(View::Processes), [(1, Some(40)), (4, Some(37))]);
    assert_eq!(rtts(View::Units), [(5, Some(37))], "of two processes");
    let peer: IpAddr = "198.51.100.7".parse().unwrap();
    assert_eq!(figures(&table, &RowKey::Peer(peer)).rate_bps, Some(16_000));
}

#[test]
fn packets_of_a_socket_s_flow_count_for_it_whichever_way_they_went() {
    let ends = to("198.51.100.7", 5000);
    let (here, there) = (ends.src, ends.dst);
    for packets_first in [false, true] {
        let mut table = Table::new(SETTINGS);
        for second in 1..=2 {
            let time_ns = second * SECOND;
            let samples = |table: &mut Table| {
                // This host is the server: it answers at once, and the client is 30 ms away.
                table.sample(&sample(there, here, time_ns, 100_000, 0));
                table.sample(&sample(here, there, time_ns, 30_000_000, 0));
            };
            if packets_first {
                samples(&mut table);
            }
            poll(&mut table, ends, 9, &reading(time_ns, second * 1_000, 0, 20_000));
            if !packets_first {
                samples(&mut table);
            }
            table.end_interval(time_ns);
        }
        assert_eq!(table.flows(), 1);
        assert_eq!(figures(&table, &tcp(ends)).rtt_ns, Some(30_000_000));
    }
}

#[test]
fn a_flow_of_others_has_the_round_trips_of_both_sides_and_is_forgotten_when_idle() {
    let mut table = Table::new(SETTINGS);
    let (client, server) = (end("10.0.0.1", 40_000), end("10.0.1.1", 80));
    for second in 1..=2 {
        table.sample(&sample(server, client, second * SECOND, 5_000_000, second * 500_000));
        table.sample(&sample(client, server, second * SECOND, 20_000_000, second * 1_000_000));
        table.response(second * SECOND, flow(client, server, 6), Role::Client, Response::Believed(3_000_000));
        table.end_interval(second * SECOND);
    }
    let key = tcp(Ends { src: client, dst: server });
    let now = figures(&table, &key);
    assert_eq!((now.rtt_ns, now.response_ns, now.rate_bps), (Some(25_000_000), Some(3_000_000), Some(8_000_000)));
    assert_eq!((now.segments_sent, now.retransmissions), (Some(20), Some(2)));
    table.end_interval(6 * SECOND);
    assert_eq!(figures(&table, &key), Figures::default());
    table.end_interval(8 * SECOND);
    assert_eq!(table.flows(), 0);
}

#[test]
fn a_flow_of_a_capture_has_a_rate_in_its_first_interval_and_groups_follow_what_is_retained() {
    let (client, server) = (end("10.0.0.1", 40_000), end("10.0.1.1", 80));
    for (is_capture, rate) in [(false, None), (true, Some(8_000_000))] {
        let mut table = Table::new(Settings { is_capture, ..SETTINGS });
        table.end_interval(SECOND);
        table.sample(&sample(client, server, 2 * SECOND, 20_000_000, 1_000_000));
        table.sample(&sample(end("10.0.0.2", 1), server, 2 * SECOND, 20_000_000, 0));
        table.end_interval(2 * SECOND);
        assert_eq!(figures(&table, &tcp(Ends { src: client, dst: server })).rate_bps, rate);
        table.retain(|flow| flow.ends.src == client);
        table.regroup();
        assert_eq!(table.rows(View::Peers, Metric::Rtt).iter().map(|row| row.flows).collect::<Vec<_>>(), [1]);
    }
}

/// A flow that is over after so many bytes, 15 segments with data, and two of them that were sent again.
fn over(src: Endpoint, dst: Endpoint, src_role: Option<Role>, bytes: u64) -> FlowEvent {
    FlowEvent {
        time_ns: 2 * SECOND,
        change: FlowChange::Close(CloseReason::End),
        first_ns: SECOND,
        src,
        dst,
        src_role,
        protocol: Protocol::TCP,
        interface: 1,
        tunnel: Tunnel(0),
        samples: 0,
        packets: 20,
        bytes,
        data: 15,
        retransmitted: 2,
        late: 0,
        ce: 0,
    }
}

#[test]
fn a_flow_that_is_over_has_what_passed_after_its_last_round_trip_and_is_seen_from_the_client_that_opened_it() {
    let (client, server) = (end("10.0.0.1", 4_000), end("10.0.1.1", 50_051));
    let mut table = Table::new(Settings { is_capture: true, idle_ns: u64::MAX, ..SETTINGS });
    table.end_interval(SECOND);
    let opened = Sample { src_role: Some(Role::Server), ..sample(server, client, 2 * SECOND, 5_000_000, 1_000) };
    table.sample(&opened);
    table.close(&over(client, server, Some(Role::Client), 1_000_000));
    // One without a round trip, whose client is not known.
    let other = end("10.0.0.2", 60_000);
    table.close(&over(server, other, None, 500_000));
    table.end_interval(2 * SECOND);
    for (client, role, rate_bps) in [(client, Some(Role::Client), 8_000_000), (other, None, 4_000_000)] {
        let row = table.row(&tcp(Ends { src: client, dst: server })).unwrap();
        assert_eq!((row.role, row.figures.rate_bps), (role, Some(rate_bps)));
        assert_eq!((row.figures.segments_sent, row.figures.retransmissions), (Some(15), Some(2)));
    }
}

#[test]
fn a_stored_flow_has_the_means_of_its_latencies_seen_from_the_host_that_was_measured() {
    let mut table = Table::new(SETTINGS);
    let (client, server) = (end("203.0.113.9", 51_000), end("192.0.2.1", 80));
    let row = |src, dst, is_src_local, metric, mean_ns, count| StoredLatency {
        ends: Ends { src, dst },
        protocol: Protocol::TCP,
        is_src_local,
        pid: is_src_local.map(|_| 80),
        unit: None,
        is_around: false,
        metric,
        mean_ns,
        count,
        time_ns: SECOND,
    };
    // Before it is known whose socket it is, the client comes first.
    table.stored(&row(client, server, None, Metric::Response, 5_000, 1));
    table.stored(&row(client, server, Some(false), Metric::Rtt, 70, 9));
    table.stored(&row(server, client, Some(true), Metric::Rtt, 30_000, 2));
    table.stored(&row(server, client, Some(true), Metric::Rtt, 60_000, 1));
    table.stored(&row(server, client, Some(true), Metric::SendBuffer, 4_000, 1));
    // Of others' flows both sides are seen.
    let (one, other) = (end("10.0.0.1", 40_000), end("10.0.0.2", 22));
    table.stored(&row(one, other, None, Metric::Rtt, 100, 1));
    table.stored(&row(other, one, None, Metric::Rtt, 900, 1));
    // From end to end, which both sides add up to.
    let around = |src, dst| StoredLatency { is_around: true, ..row(src, dst, None, Metric::Rtt, 1_100, 1) };
    table.stored(&around(one, other));
    let lone = end("10.0.0.3", 443);
    table.stored(&around(one, lone));
    table.end_interval(SECOND);
    assert_eq!(table.flows(), 3);
    assert_eq!(figures(&table, &tcp(Ends { src: one, dst: lone })).rtt_ns, Some(1_100));
    let key = tcp(Ends { src: server, dst: client });
    let expected =
        Figures { rtt_ns: Some(40_000), response_ns: Some(5_000), send_buffer_ns: Some(4_000), ..Figures::default() };
    assert_eq!(figures(&table, &key), expected, "and what no store has is not known");
    assert_eq!(table.row(&key).and_then(|row| row.pid), Some(80));
    assert_eq!(figures(&table, &tcp(Ends { src: one, dst: other })).rtt_ns, Some(1_000));
    table.end_interval(2 * SECOND);
    assert_eq!(figures(&table, &key), Figures::default());
}

#[test]
fn both_ends_of_a_stored_flow_stay_apart_if_both_were_measured() {
    let mut table = Table::new(SETTINGS);
    let (client, server) = (end("203.0.113.9", 51_000), end("192.0.2.1", 80));
    let row = |src, dst, mean_ns| StoredLatency {
        ends: Ends { src, dst },
        protocol: Protocol::TCP,
        is_src_local: Some(true),
        pid: None,
        unit: None,
        is_around: false,
        metric: Metric::Rtt,
        mean_ns,
        count: 1,
        time_ns: SECOND,
    };
    table.stored(&row(client, server, 100));
    table.stored(&row(server, client, 300));
    table.stored(&row(client, server, 100));
    table.end_interval(SECOND);
    let rtt_ns = |src, dst| figures(&table, &tcp(Ends { src, dst })).rtt_ns;
    assert_eq!([rtt_ns(client, server), rtt_ns(server, client)], [Some(100), Some(300)]);
}

#[test]
fn flows_beyond_the_limit_are_counted() {
    let mut table = Table::new(Settings { max_flows: 2, ..SETTINGS });
    for port in 1..=5 {
        poll(&mut table, to("198.51.100.7", port), 9, &reading(SECOND, 1_000, 0, 20_000));
    }
    table.end_interval(SECOND);
    assert_eq!((table.flows(), table.omitted()), (2, 3));
}

#[test]
fn the_past_has_the_newest_value_last_and_gaps_where_nothing_was_known() {
    let mut past = Past::default();
    for rtt_ns in [None, Some(1), Some(2)].into_iter().chain((3..=30).map(Some)) {
        past.push(&Figures { rtt_ns, ..Figures::default() });
    }
    let values: Vec<_> = past.of(Metric::Rtt).collect();
    assert_eq!((values.len(), values[0], values[PAST - 1]), (PAST, Some(7.0), Some(30.0)));
    assert!(past.of(Metric::Rate).all(|value| value.is_none()));
}
