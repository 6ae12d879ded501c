use std::path::Path;

use dwell_engine::{
    histogram::Histogram,
    layers::{Segment, SegmentFigures, SegmentHooks},
};
use dwell_fleet::wire::{Batch, Content, IntervalReport, SegmentReport, Version};
use dwell_probes::clock::ClockMode;

use super::*;

/// Opens a collector of this store alone.
fn open(path: &Path) -> Collector {
    let clocks = Clocks::new(Duration::from_secs(64), "ours".into(), ClockMode::Socket);
    let gate = Arc::new(Gate::new(1));
    Collector::open(Store::open(path).unwrap(), None, &Config::default(), clocks, None, None, gate).unwrap()
}

/// The time of that boot was ahead of ours.
#[test]
fn what_waited_before_a_reboot_is_given_up_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let ahead_ns = 1 << 62;
    let put_aside = |boot: &str| {
        let mut store = Store::open(&path).unwrap();
        let aside: Aside = (ahead_ns, ByteTraces(vec![passage()]), vec![(ahead_ns, 1)]);
        let body = wire::encode(Version::NEWEST, &aside).unwrap();
        let written = store.write(|to| {
            to.put_aside("web", ahead_ns, &body)?;
            to.progress(&Progress { boot: boot.into(), offset_ns: 0, told_at_ns: ahead_ns, told_until_ns: ahead_ns })
        });
        written.unwrap();
    };
    let open = || open(&path);
    let pending = |collector: &Collector| {
        let mut rows = 0;
        collector.store.pending(|_, _| rows += 1).unwrap();
        rows
    };
    put_aside("another boot");
    let collector = open();
    assert_eq!((collector.outlived, pending(&collector)), (1, 0));
    drop(collector);
    put_aside(&dwell_socket::clock::boot_id().unwrap());
    let collector = open();
    assert_eq!((collector.outlived, pending(&collector)), (0, 1));
}

#[test]
fn rows_that_are_too_old_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = open(&folder.path().join("store"));
    let now_ns = collector.time.now_ns();
    let unix_ns = unix(now_ns, collector.time.to_unix_ns());
    let hour = std::time::Duration::from_secs(3_600);
    let written = collector.store.write(|to| {
        to.counter(unix_ns - 2 * 3_600_000_000_000, None, "old", 1)?;
        to.counter(unix_ns, None, "new", 1)
    });
    written.unwrap();
    collector.delete_oldest().unwrap();
    let retain = Retain { age: Some(hour), bytes: None };
    collector.set_retain(Some(retain)).unwrap();
    collector.deleted_ns = 0;
    collector.delete_oldest().unwrap();
    assert_eq!(collector.store.retain(&retain, Origin::Live, unix_ns).unwrap(), 0);
    let all = Retain { age: Some(std::time::Duration::from_nanos(1)), bytes: None };
    assert_eq!(collector.store.retain(&all, Origin::Live, unix_ns + 10).unwrap(), 1, "the new one was kept");
}

/// The names stay in the store, so that what an agent may bring does not begin anew with its connection.
#[test]
fn an_agent_that_names_other_hooks_in_each_connection_does_not_fill_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let open = || open(&path);
    let mut collector = open();
    for run in 1..=4 {
        let agent = agent(run);
        collector.hello(&agent).unwrap().unwrap();
        let batches = (1..=200).map(|number| (agent.clone(), batch_with_hook(number, &format!("hook {run} {number}"))));
        collector.store(&batches.collect::<Vec<_>>(), &[]).unwrap();
        collector.leave(&agent, "it left").unwrap();
    }
    assert_eq!((collector.store.hooks().unwrap().len(), collector.left_out.hooks), (256, 4 * 200 - 256));
    drop(collector);
    let mut collector = open();
    collector.store(&[(agent(5), batch_with_hook(1, "hook 1 1"))], &[]).unwrap();
    assert_eq!((collector.store.hooks().unwrap().len(), collector.left_out.hooks), (256, 0));
}

/// The last interval of an agent that was killed comes when the next agent does, which may be hours later.
#[test]
fn what_a_killed_agent_has_lost_begins_where_its_last_interval_ended_and_not_when_that_arrived() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut collector = open(&path);
    let ended_ns = unix(collector.time.now_ns(), collector.time.to_unix_ns()) - 3_600_000_000_000;
    let left = Agent { is_past: true, ..agent(1) };
    let mut batch = batch_with_hook(1, "hook");
    batch.content.intervals[0].end_unix_ns = ended_ns;
    // Bytes that were stamped since then say nothing of the interval in which they were.
    let stamped = Batch { number: 2, content: Content { traces: ByteTraces(vec![passage()]), ..Content::default() } };
    collector.hello(&left).unwrap().unwrap();
    collector.store(&[(left.clone(), batch), (left.clone(), stamped)], &[]).unwrap();
    collector.leave(&left, "it left").unwrap();
    collector.hello(&agent(2)).unwrap().unwrap();
    let store = rusqlite::Connection::open(&path).unwrap();
    let lost = || {
        let mut lost = store.prepare("SELECT why, from_batch, from_ns FROM lost").unwrap();
        let rows =
            lost.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        rows.unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    let killed = ("killed".to_owned(), 3, ended_ns);
    assert_eq!(lost(), std::slice::from_ref(&killed));
    collector.leave(&agent(2), "it left").unwrap();
    // It was frozen, or cut off, and has lost nothing; until the next one comes again.
    assert_eq!(collector.hello(&agent(1)).unwrap().unwrap(), 2);
    assert_eq!(lost(), []);
    collector.leave(&agent(1), "it left").unwrap();
    collector.hello(&agent(3)).unwrap().unwrap();
    assert_eq!(lost(), [killed]);
}

/// The collector was away while agents were killed one after the other: what each had measured is stored before the last one comes.
#[test]
fn what_a_killed_agent_has_lost_ends_where_the_next_one_begins_to_measure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut collector = open(&path);
    let second_ns = 1_000_000_000;
    let now_ns = unix(collector.time.now_ns(), collector.time.to_unix_ns());
    let ended_ns = [100, 50, 10].map(|seconds| now_ns - seconds * second_ns);
    let batch = |number: u64, end_ns: i64| {
        let mut batch = batch_with_hook(number, "hook");
        (batch.content.intervals[0].end_unix_ns, batch.content.intervals[0].length_ns) = (end_ns, 1_000_000_000);
        batch
    };
    for run in [1, 2] {
        let left = Agent { is_past: true, ..agent(run) };
        collector.hello(&left).unwrap().unwrap();
        collector.store(&[(left.clone(), batch(1, ended_ns[usize::from(run) - 1]))], &[]).unwrap();
        collector.leave(&left, "it left").unwrap();
    }
    collector.hello(&agent(3)).unwrap().unwrap();
    let lost = || {
        let store = rusqlite::Connection::open(&path).unwrap();
        let mut lost = store.prepare("SELECT from_ns, to_ns FROM lost WHERE why = 'killed' ORDER BY from_ns").unwrap();
        let rows = lost.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
        rows.unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    let first = (ended_ns[0], ended_ns[1] - second_ns);
    assert_eq!((lost()[0], lost()[1].0), (first, ended_ns[1]));
    assert!(lost()[1].1 >= now_ns, "the next one has told nothing yet");
    collector.store(&[(agent(3), batch(1, ended_ns[2])), (agent(3), batch(2, now_ns))], &[]).unwrap();
    assert_eq!(lost(), [first, (ended_ns[1], ended_ns[2] - second_ns)]);
}

/// The store may be slower than the patience of whoever asks.
#[test]
fn an_agent_whose_hello_is_answered_too_late_does_not_count_as_connected() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = open(&folder.path().join("store"));
    let gate = Gate::new(1);
    let mut hello = |is_awaited: bool| {
        let (to_answer, answered) = std::sync::mpsc::sync_channel(0);
        let awaited = is_awaited.then(|| std::thread::spawn(move || answered.recv().unwrap()));
        crate::serve(&mut collector, &gate, vec![crate::queue::Job::Hello(agent(1), to_answer)]).unwrap();
        assert!(awaited.is_none_or(|awaited| awaited.join().unwrap() == Ok(0)));
        collector.hosts.is_connected(agent(1).name.as_str())
    };
    assert!(!hello(false));
    assert!(hello(true));
}

/// A holder of a shared key may have any name, and as many as it likes.
#[test]
fn hosts_of_a_store_have_a_bound_and_those_of_which_nothing_is_left_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let open = || open(&path);
    let mut collector = open();
    let hello = |collector: &mut Collector, name: &str| {
        collector.hello(&Agent { name: name.to_owned().try_into().unwrap(), ..agent(1) }).unwrap()
    };
    // Who says no more than that leaves nothing.
    hello(&mut collector, "talker").unwrap();
    assert_eq!(collector.store.hosts().unwrap(), 0);
    let now_ns = unix(collector.time.now_ns(), collector.time.to_unix_ns());
    drop(collector);
    let (day_ns, store) = (KEEP_HOST_NS, rusqlite::Connection::open(&path).unwrap());
    let add = |first: u64, hosts: u64, last_ns: i64| {
        let numbers = "WITH RECURSIVE n (n) AS (SELECT ?1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1 + ?2 - 1)";
        let hosts = [first.cast_signed(), hosts.cast_signed()];
        store.execute(&format!("{numbers} INSERT INTO host SELECT n, 'host-' || n FROM n"), hosts).unwrap();
        let runs = format!(
            "{numbers} INSERT INTO run (host_id, run, begun_ns, last_batch, last_ns)
                SELECT n, x'01', {last_ns}, 1, {last_ns} FROM n"
        );
        store.execute(&runs, hosts).unwrap();
    };
    add(1, MAX_STORED_HOSTS, now_ns);
    let mut collector = open();
    assert!(hello(&mut collector, "one-more").unwrap_err().contains("as many hosts"));
    assert_eq!(hello(&mut collector, "host-7"), Ok(0), "those that are there");
    assert_eq!(collector.left_out().last(), Some(&("hosts_refused", 1)));
    // Three that were last heard of two days ago: of one a row is left, and one is here.
    store
        .execute_batch(&format!("UPDATE run SET last_ns = {} WHERE host_id IN (3, 4, 5)", now_ns - 2 * day_ns))
        .unwrap();
    store.execute("INSERT INTO counter VALUES (?1, 4, 'count', 1)", [now_ns]).unwrap();
    hello(&mut collector, "host-5").unwrap();
    assert!(hello(&mut collector, "one-more").is_err(), "it has looked just now");
    collector.looked_ns = None;
    hello(&mut collector, "one-more").unwrap();
    let is_there = |collector: &Collector, name| collector.store.has_host(name).unwrap();
    let there = ["host-3", "host-4", "host-5"].map(|name| is_there(&collector, name));
    assert_eq!((there, collector.store.hosts().unwrap()), ([false, true, true], MAX_STORED_HOSTS - 1));
    // Rows of the time of a host that has left may be its own.
    let old_ns = now_ns - 3 * day_ns;
    store.execute_batch(&format!("UPDATE run SET last_ns = {} WHERE host_id = 9", now_ns - 2 * day_ns)).unwrap();
    let row = format!(
        "INSERT INTO interval (time_ns, interval_ns, host_id, segment, direction, retransmitted, count, sum_ns, histogram,
            time_clamped) VALUES ({old_ns}, 1, 9, 'total', 'tx', 0, 0, 0, x'', 0)"
    );
    store.execute_batch(&row).unwrap();
    add(100_000, 1, now_ns);
    collector.looked_ns = None;
    assert!(hello(&mut collector, "another").is_err());
}

fn agent(run: u8) -> Agent {
    Agent {
        name: "web".to_owned().try_into().unwrap(),
        run: [run; 16],
        boot: "boot".into(),
        address: ([192, 0, 2, 1], 4790).into(),
        own: [192, 0, 2, 9].into(),
        sync_port: None,
        secret: [run; 32],
        is_past: false,
        confirmed: 0,
    }
}

fn batch_with_hook(number: u64, hook: &str) -> Batch {
    let figures = SegmentFigures { segment: Segment::Queueing, histogram: Histogram::default() };
    let hooks = SegmentHooks { from: Some(hook.into()), ..SegmentHooks::default() };
    let interval = IntervalReport {
        end_ns: 1,
        end_unix_ns: 1,
        length_ns: 1,
        sample_bytes: 64,
        segments: vec![SegmentReport { first: figures, again: Histogram::default(), hooks }],
        flows: Vec::new(),
        rtts: Vec::new(),
    };
    Batch { number, content: Content { intervals: vec![interval], ..Content::default() } }
}

fn passage() -> dwell_engine::layers::ByteTrace {
    use dwell_engine::{
        layers::{ByteTrace, Direction, Layer},
        measure::Endpoint,
    };
    let end = |port| Endpoint { address: [192, 0, 2, 1].into(), port };
    let mut stamps = [None; Layer::ALL.len()];
    stamps[Layer::TxDriver as usize] = std::num::NonZeroU64::new(5);
    ByteTrace {
        ends: Ends { src: end(1), dst: end(2) },
        namespace: 0,
        seq: 0,
        isns: None,
        direction: Direction::Tx,
        sent: 1,
        again: false,
        stamps,
    }
}

/// A collector with four hosts, of which it gets intervals of one second each, of the last minutes.
struct Four {
    collector: Collector,
    agents: [Agent; 4],
    begin_ns: u64,
    second: u64,
    /// By how many seconds what the third one reports comes later than what the others do.
    lag: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Four {
    fn open(path: &std::path::Path) -> Four {
        let mut collector = open(path);
        let begin_ns = (collector.time.now_ns() / SECOND_NS - 180) * SECOND_NS;
        let config = dwell_engine::gray::Config { interval_ns: SECOND_NS, budget: 1.0 };
        collector.gray = Some(Gray::new(config, begin_ns));
        let address = [192, 0, 2, 9];
        let agents = ["a", "b", "c", "d"].map(|name| Agent {
            name: name.to_owned().try_into().unwrap(),
            boot: "ours".into(),
            address: (address, 4790).into(),
            ..agent(1)
        });
        for agent in &agents {
            collector.clocks.watch(agent, |_| {});
            collector.hello(agent).unwrap().unwrap();
        }
        Four { collector, agents, begin_ns, second: 0, lag: 0 }
    }

    /// So many seconds, in which the third host is slower by a factor. Returns what metrics named after each.
    fn run(&mut self, seconds: u64, slower: u64) -> Vec<[String; 3]> {
        let mut named = Vec::new();
        for _ in 0..seconds {
            self.second += 1;
            let Four { collector, agents, begin_ns, second, lag } = self;
            let now_ns = *begin_ns + *second * SECOND_NS;
            let batches = agents.iter().enumerate().filter_map(|(number, agent)| {
                let second = second.checked_sub(if number == 2 { *lag } else { 0 }).filter(|second| *second > 0)?;
                let end_ns = *begin_ns + second * SECOND_NS;
                let usual_ns = 300_000 + second * 7_919 % 97 * 100 + number as u64;
                let ns = if number == 2 { slower * usual_ns } else { usual_ns };
                let mut batch = batch_with_hook(second, "hook");
                let interval = &mut batch.content.intervals[0];
                interval.end_ns = end_ns.checked_add_signed(-collector.time.offset_ns).unwrap();
                interval.end_unix_ns = unix(end_ns, collector.time.to_unix_ns());
                interval.length_ns = SECOND_NS;
                interval.segments[0].first.histogram.record_many(ns, 50);
                Some((agent.clone(), batch))
            });
            let batches: Vec<_> = batches.collect();
            collector.store(&batches, &[]).unwrap();
            collector.report_until(now_ns + GRACE_NS, now_ns).unwrap();
            let counts = collector.gray.as_ref().unwrap().counts(&collector.hosts);
            named.extend(counts.open.into_iter().map(|(named, _)| named));
        }
        named
    }

    fn left_out(&self, name: &str) -> u64 {
        self.collector.left_out().into_iter().find(|(of, _)| *of == name).unwrap().1
    }
}

#[test]
fn a_host_that_becomes_slower_than_its_peers_is_in_the_store_and_in_the_metrics_until_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut four = Four::open(&path);
    let mut open = four.run(64, 1);
    four.lag = 5;
    open.extend(four.run(40, 20));
    open.extend(four.run(24, 1));
    assert_eq!(four.left_out("gray_late") + four.left_out("gray_unwaited"), 0);
    // One that reports no more is waited for once.
    four.lag = u64::MAX;
    open.extend(four.run(40, 1));
    assert_eq!((four.left_out("gray_late"), four.left_out("gray_unwaited")), (0, 1));
    let Four { mut collector, agents, begin_ns, .. } = four;
    // An interval that comes once it was judged is in no judgement, nor one of an agent that reports too rarely.
    let mut late = batch_with_hook(169, "hook");
    late.content.intervals[0].end_ns = begin_ns.checked_add_signed(-collector.time.offset_ns).unwrap();
    late.content.intervals[0].length_ns = SECOND_NS;
    let mut rare = batch_with_hook(170, "hook");
    rare.content.intervals[0].length_ns = 4 * SECOND_NS;
    collector.store(&[(agents[0].clone(), late), (agents[0].clone(), rare)], &[]).unwrap();
    assert_eq!(collector.left_out()[7..10], [("gray_late", 1), ("gray_omitted", 0), ("gray_rare", 1)]);
    assert!(
        open.len() > 5 && open.len() < 70 && open.iter().all(|named| *named == ["host", "c", "queueing"]),
        "{open:?}"
    );
    let counts = collector.gray.as_ref().unwrap().counts(&collector.hosts);
    assert_eq!((counts.open, counts.begun), (Vec::new(), vec![("host", 1), ("path", 0), ("service", 0)]));
    let store = rusqlite::Connection::open(&path).unwrap();
    let mut rows = store
        .prepare("SELECT event, host, component, figure, value_ns > 10 * expected_ns, peers FROM gray ORDER BY time_ns")
        .unwrap();
    let rows = rows.query_map([], |row| {
        let texts = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
        Ok((texts, row.get(4)?, row.get(5)?))
    });
    let rows: Vec<([String; 4], bool, u32)> = rows.unwrap().map(Result::unwrap).collect();
    let row = |event: &str, is_slow| ([event, "c", "queueing", "p50"].map(str::to_owned), is_slow, 3);
    assert_eq!(rows, [row("begin", true), row("end", false)]);
}

/// By that the report finds its beginning. The host is forgotten, and Unix time is set meanwhile.
#[test]
fn the_end_of_a_gray_failure_names_its_host_and_the_time_of_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut four = Four::open(&path);
    four.run(64, 1);
    assert!(!four.run(40, 20).is_empty());
    let Four { mut collector, begin_ns, second, .. } = four;
    let host = collector.hosts.number("c");
    collector.gray.as_mut().unwrap().forget_host(host);
    collector.hosts.rename(host, "");
    collector.time.offset_ns -= 3_600 * SECOND_NS.cast_signed();
    let end_ns = begin_ns + (second + 1) * SECOND_NS;
    collector.report_until(end_ns + GRACE_NS, end_ns).unwrap();
    let store = rusqlite::Connection::open(&path).unwrap();
    let sql = "SELECT e.reason, e.host FROM gray b JOIN gray e ON e.since_ns = b.time_ns AND e.event = 'end'
        WHERE b.event = 'begin' AND b.since_ns = b.time_ns";
    let rows: Vec<[String; 2]> = store
        .prepare(sql)
        .unwrap()
        .query_map([], |row| Ok([row.get(0)?, row.get(1)?]))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows, [["gone", "c"]]);
}

/// Intervals of paths are as long as `--interval`.
#[test]
fn gray_failures_are_searched_for_in_intervals_no_shorter_than_those_of_paths() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = open(&folder.path().join("store"));
    let window_ns = collector.config.window_ns;
    for (asked_ns, used_ns) in [(window_ns / 2, window_ns), (window_ns * 2, window_ns * 2)] {
        collector.set_gray(Some(dwell_engine::gray::Config { interval_ns: asked_ns, budget: 1.0 }));
        assert_eq!(collector.gray.as_ref().unwrap().interval_ns(), used_ns);
    }
}
