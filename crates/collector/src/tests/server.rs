//! What a collector does while its server is away, refuses rows, or is slow.

use std::{
    fs::File,
    sync::atomic::{AtomicUsize, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use dwell_engine::{
    histogram::Histogram,
    layers::{Segment, SegmentFigures, SegmentHooks},
};
use dwell_fleet::{
    Event,
    wire::{Content, IntervalReport, SegmentReport},
};
use dwell_records::{Flush, Jsonl, Output, Sink, Source};
use dwell_testbed::harness::eventually;

use super::{Agent, ClickHouse, Print, Running, counters};

/// Names of the counters that have arrived, with their values, without those of the collector itself.
fn arrived(server: &ClickHouse) -> Vec<(String, u64)> {
    let rows = server.rows("counter");
    let rows = rows.iter().map(|line| line.split('\t').collect::<Vec<_>>());
    let of_agents = rows.filter(|cells| cells[1] != "\\N");
    let mut all: Vec<_> = of_agents.map(|cells| (cells[2].to_owned(), cells[3].parse().unwrap())).collect();
    all.sort();
    all
}

/// What batches of so many rows, with the values up to `values`, become.
fn expected(rows: usize, values: u64) -> Vec<(String, u64)> {
    let of = |row| (1..=values).map(move |value| (format!("counter_{row}"), value));
    let mut all: Vec<_> = (0..rows).flat_map(of).collect();
    all.sort();
    all
}

#[test]
fn a_full_spool_takes_hellos_and_drains_by_itself() {
    let server = ClickHouse::start();
    let collector = Running::start(&server, 50_000);
    // One agent alone may not fill it.
    let agents: Vec<_> = (1..=12).map(|run| collector.agent(&format!("agent-{run}"), run)).collect();
    agents.iter().for_each(Agent::wait_until_connected);
    server.set_away(true);
    for value in 1..=10 {
        agents.iter().for_each(|agent| agent.push(20, value));
    }
    let is_full = |event: Event| matches!(event, Event::Busy { reason, .. } if reason.contains("spool is full"));
    eventually("the spool is full", || agents.iter().any(|agent| agent.events.try_iter().any(is_full)));
    let late = collector.agent("late", 99);
    late.wait_until_connected();
    late.push(20, 1);
    while !is_full(late.event()) {}
    let waiting = collector.number("SELECT sum(length(line)) FROM waiting");
    assert!(waiting < 100_000, "{waiting}");
    server.set_away(false);
    eventually("all is stored", || agents.iter().chain([&late]).all(|agent| agent.uplink.backlog().batches == 0));
    let mut all: Vec<_> = agents.iter().flat_map(|_| expected(20, 10)).collect();
    all.extend(expected(20, 1));
    all.sort();
    eventually("all has arrived", || arrived(&server) == all);
    for agent in agents.iter().chain([&late]) {
        let is_lost = |event: Event| matches!(event, Event::Disconnected { .. });
        assert!(!agent.events.try_iter().any(is_lost), "waiting costs no connection");
    }
    collector.end().1.unwrap();
}

#[test]
fn lines_that_are_missing_are_named_also_where_rows_wait() {
    let server = ClickHouse::start();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let sink = Sink::new("paths.jsonl", Box::new(full), Flush::Record).lasting(|_| {});
    let print = Print { output: Output::new(Box::new(Jsonl::default()), sink, Source::default()), flows: false };
    let collector = Running::start_printing(tempfile::tempdir().unwrap(), &server, 50_000, Some(print));
    let agent = collector.agent("web", 1);
    agent.wait_until_connected();
    server.set_away(true);
    agent.push(1, 1);
    eventually("it is acknowledged", || agent.uplink.backlog().batches == 0);
    drop(agent);
    let ended = collector.end().1.unwrap_err().to_string();
    for part in ["could not be written to paths.jsonl; ", "wait in the spool"] {
        assert!(ended.contains(part), "{ended}");
    }
}

/// A server whose profile says otherwise would answer before the rows are anywhere but in its memory, or on one server of many.
#[test]
fn an_insert_asks_to_be_answered_when_its_rows_are_safe_by_what_the_server_knows() {
    for (has, wanted) in [
        (&["async_insert"][..], &[][..]),
        (&["insert_distributed_sync"], &["insert_distributed_sync=1"]),
        (
            &["wait_for_async_insert", "insert_distributed_sync", "distributed_foreground_insert"],
            &["wait_for_async_insert=1", "insert_distributed_sync=1", "distributed_foreground_insert=1"],
        ),
    ] {
        let server = ClickHouse::start();
        server.set_settings(has);
        let collector = Running::start(&server, 1 << 30);
        let agent = collector.agent("a", 1);
        agent.push(3, 1);
        eventually("the rows have arrived", || arrived(&server) == expected(3, 1));
        assert!(server.insert_settings().iter().all(|settings| settings == wanted), "{:?}", server.insert_settings());
        collector.end().1.unwrap();
    }
}

#[test]
fn one_refused_row_does_not_hold_up_the_others() {
    let server = ClickHouse::start();
    let bad = |line: &&str| line.contains("counter_7\t3");
    let partitions = "Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100)";
    server.refuse(move |_, lines| {
        if lines.iter().any(bad) {
            return Some("Code: 27. DB::Exception: Cannot parse input: expected '\\t' before: 'x'".into());
        }
        (lines.len() > 100).then(|| partitions.into())
    });
    let collector = Running::start(&server, 1 << 30);
    let agent = collector.agent("a", 1);
    (1..=20).for_each(|value| agent.push(20, value));
    let mut rest = expected(20, 20);
    rest.retain(|row| *row != ("counter_7".into(), 3));
    eventually("the others have arrived", || arrived(&server) == rest);
    let aside = "SELECT count(*) FROM refused WHERE name = 'counter' AND reason LIKE '%Cannot parse input%'
        AND CAST(line AS TEXT) LIKE '%counter_7	3'";
    eventually("the refused row is kept", || collector.number(aside) == 1);
    assert_eq!(collector.number("SELECT count(*) FROM refused"), 1);
    let metric = |name| collector.metric(name);
    eventually("it is counted", || metric("dwell_collect_refused_rows_total") == Some(1.0));
    assert_eq!(metric("dwell_collect_refused_rows_kept"), Some(1.0));
    assert!(metric("dwell_collect_inserts_failed_total{reason=\"refused\"}") > Some(1.0));
    assert!(server.inserts() < 200, "{} inserts", server.inserts());
    collector.end().1.unwrap();
}

/// Servers send the head of an answer before all is done.
#[test]
fn an_exception_after_the_head_of_an_answer_is_one() {
    let server = ClickHouse::start();
    let attempts = AtomicUsize::new(0);
    let full = "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space";
    server.refuse(move |table, _| {
        let is_refused = table == "counter" && attempts.fetch_add(1, Ordering::SeqCst) < 2;
        is_refused.then(|| full.into())
    });
    server.set_late();
    let collector = Running::start(&server, 1 << 30);
    let agent = collector.agent("a", 1);
    agent.push(3, 1);
    eventually("the rows have arrived", || arrived(&server) == expected(3, 1));
    collector.end().1.unwrap();
}

#[test]
fn times_and_names_that_an_agent_makes_up_are_bounded_and_counted() {
    let server = ClickHouse::start();
    let collector = Running::start(&server, 1 << 30);
    let agent = collector.agent("a", 1);
    let mut histogram = Histogram::default();
    histogram.record(5);
    let segments = |hook: usize| {
        let hooks = SegmentHooks { from: Some(format!("hook_{hook}")), ..SegmentHooks::default() };
        let first = SegmentFigures { segment: Segment::Queueing, histogram: histogram.clone() };
        vec![SegmentReport { first, again: Histogram::default(), hooks }]
    };
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let report = |end_unix_ns, segments| IntervalReport {
        end_ns: 5,
        end_unix_ns,
        length_ns: 1_000,
        sample_bytes: 64,
        segments,
        flows: Vec::new(),
        rtts: Vec::new(),
    };
    // A century from now, long ago, now; and a hook more than an agent may name.
    for (hook, end_unix_ns) in [now_ns + (1 << 61), 0, now_ns].into_iter().chain([now_ns; 254]).enumerate() {
        let intervals = vec![report(end_unix_ns, segments(hook))];
        agent.uplink.push(Content { intervals, ..Content::default() });
    }
    // More counters than an agent may name, in two batches.
    for start in [0, 200] {
        let counters = (start..start + 200).map(|number| (format!("counter_{number}"), 1)).collect();
        agent.uplink.push(Content { counters, ..Content::default() });
    }
    eventually("the intervals have arrived", || server.rows("intervals").len() == 257);
    eventually("the counters have arrived", || arrived(&server).len() >= 256);
    let left_out = |kind: &str| collector.metric(&format!("dwell_collect_left_out_total{{kind=\"{kind}\"}}"));
    eventually("they are counted", || left_out("counters_omitted") == Some(144.0));
    assert_eq!((left_out("times_clamped"), left_out("hooks_omitted")), (Some(2.0), Some(1.0)));
    assert_eq!(arrived(&server).len(), 256);
    let rows = server.rows("intervals");
    let rows = rows.iter().map(|line| line.split('\t').collect::<Vec<_>>());
    let day_ns = 24 * 3_600 * 1_000_000_000;
    let flags: Vec<_> = rows
        .map(|cells| {
            let off_ns = cells[0].parse::<i64>().unwrap() - now_ns;
            assert!((-day_ns - day_ns / 24..day_ns / 24).contains(&off_ns), "{off_ns}");
            // Before the columns of the spool.
            cells[cells.len() - 3].to_owned()
        })
        .collect();
    assert_eq!(flags.iter().filter(|flag| *flag == "1").count(), 2);
    collector.end().1.unwrap();
}

#[test]
fn an_agent_that_has_its_share_of_the_spool_leaves_room_for_others() {
    let server = ClickHouse::start();
    let collector = Running::start(&server, 100_000);
    let greedy = collector.agent("greedy", 1);
    greedy.wait_until_connected();
    server.set_away(true);
    (1..=60).for_each(|value| greedy.push(20, value));
    while !matches!(greedy.event(), Event::Busy { reason, .. } if reason.contains("has its share")) {}
    let modest = collector.agent("modest", 2);
    modest.push(20, 1);
    eventually("the other's batch is stored", || modest.uplink.backlog().batches == 0);
    assert!(greedy.uplink.backlog().batches > 0);
    server.set_away(false);
    eventually("all is stored", || greedy.uplink.backlog().batches == 0);
    collector.end().1.unwrap();
}

#[test]
fn a_collector_that_starts_with_a_full_spool_takes_hellos_and_drains_it() {
    let server = ClickHouse::start();
    let collector = Running::start(&server, 50_000);
    let agent = collector.agent("a", 1);
    agent.wait_until_connected();
    server.refuse(|_, _| Some("Code: 252. DB::Exception: Too many parts (300)".into()));
    (1..=40).for_each(|value| agent.push(20, value));
    while !matches!(agent.event(), Event::Busy { .. }) {}
    let (folder, ended) = collector.end();
    assert!(ended.unwrap_err().to_string().contains("wait in the spool"));
    let collector = Running::start_in(folder, &server, 50_000);
    let again = collector.agent("b", 2);
    again.wait_until_connected();
    assert_eq!(collector.number("SELECT count(*) FROM refused"), 0, "a server that is busy refuses no row");
    server.refuse(|_, _| None);
    eventually("nothing waits", || collector.number("SELECT count(*) FROM waiting") == 0);
    collector.end().1.unwrap();
}

/// Both may have lost their power.
#[test]
fn a_collector_that_starts_while_its_server_is_away_stores_in_its_spool_what_comes() {
    let server = ClickHouse::start();
    let (folder, ended) = Running::start(&server, 1 << 30).end();
    ended.unwrap();
    let before = server.insert_settings().len();
    server.set_away(true);
    let collector = Running::start_in(folder, &server, 1 << 30);
    let agent = collector.agent("a", 1);
    agent.push(3, 1);
    eventually("it is acknowledged", || agent.uplink.backlog().batches == 0);
    server.set_settings(&["wait_for_async_insert"]);
    server.set_away(false);
    eventually("the rows have arrived", || arrived(&server) == expected(3, 1));
    assert!(server.insert_settings()[before..].iter().all(|settings| settings == &["wait_for_async_insert=1"]));
    collector.end().1.unwrap();
}

/// Every number that an agent gave to a batch is stored, or a row says what became of it.
#[test]
fn batches_that_are_lost_have_a_row_that_says_why() {
    let server = ClickHouse::start();
    let collector = Running::start(&server, 1 << 30);
    let full = collector.agent_with("full", 1, 3_000, 0, |outbox| {
        (1..=20).for_each(|value| outbox.push(counters(20, value)));
    });
    eventually("the rest is stored", || full.uplink.backlog().batches == 0);
    let moved = collector.agent_with("moved", 2, 64_000_000, 7, |_| {});
    moved.wait_until_connected();
    let killed = collector.agent("killed", 3);
    killed.push(1, 1);
    eventually("it is stored", || killed.uplink.backlog().batches == 0);
    drop(killed);
    let next = collector.agent("killed", 4);
    next.wait_until_connected();
    eventually("the losses have arrived", || server.rows("lost").len() == 3);
    let rows = server.rows("lost");
    let rows: Vec<_> = rows.iter().map(|line| line.split('\t').collect::<Vec<_>>()).collect();
    let digits = |run: u8| format!("{run:02x}").repeat(16);
    let of_full = rows.iter().find(|row| row[1] == "full").unwrap();
    let dropped: u64 = of_full[4].parse().unwrap();
    assert!((1..20).contains(&dropped), "{dropped}");
    // Each batch is there, or lost; and the one of the agent that was killed.
    eventually("the others have arrived", || arrived(&server).len() as u64 == (20 - dropped) * 20 + 1);
    for (host, run, from, to, why) in [
        ("full", 1, 1, dropped.to_string(), "buffer-full"),
        ("moved", 2, 1, "7".into(), "elsewhere"),
        ("killed", 3, 2, "\\N".into(), "killed"),
    ] {
        let row = rows.iter().find(|row| row[1] == host).unwrap();
        assert_eq!(
            (row[2], row[3], row[4], row[7]),
            (digits(run).as_str(), from.to_string().as_str(), to.as_str(), why)
        );
    }
    let lost = |why: &str| collector.metric(&format!("dwell_collect_lost_batches_total{{why=\"{why}\"}}"));
    eventually("they are counted", || lost("buffer-full") == Some(dropped as f64));
    assert_eq!((lost("elsewhere"), lost("gap")), (Some(7.0), Some(0.0)));
    assert_eq!(collector.metric("dwell_collect_killed_runs_total"), Some(1.0));
    drop(next);
    collector.end().1.unwrap();
}
