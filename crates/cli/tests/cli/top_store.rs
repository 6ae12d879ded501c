//! `dwell top -r`: the last interval of a store, and what is written to it meanwhile.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use dwell_engine::{
    histogram::Histogram,
    layers::{Ends, Segment},
    measure::Endpoint,
};
use dwell_records::LatencyObject;
use dwell_store::{BackendRow, IntervalRow, Store};
use dwell_testbed::skip::lacks_program;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    records::of_type,
    support::{DWELL, Run, dwell},
    top::Terminal,
};

const SECOND_NS: i64 = 1_000_000_000;
/// 2026-11-21T14:00:00Z
const BEGIN_NS: i64 = 1_795_269_600 * SECOND_NS;

struct Stored(TempDir);

impl Stored {
    /// A store of a host that is a client of one peer, and a server of another.
    fn new() -> Stored {
        let stored = Stored(tempfile::tempdir().unwrap());
        drop(Store::open(&stored.path()).unwrap());
        stored.sql(
            "INSERT INTO host VALUES (1, 'web1');
            INSERT INTO flow (flow_id, src, sport, dst, dport, proto, id, last_ns) VALUES
                (1, '192.0.2.1', 40000, '198.51.100.7', 443, 'TCP', 'a', 0), (2, '192.0.2.1', 80, '203.0.113.9', 51000, 'TCP', 'b', 0),
                (3, '192.0.2.1', 40001, '198.51.100.8', 443, 'TCP', 'c', 0), (4, '192.0.2.1', 40002, '198.51.100.7', 53, 'UDP', 'd', 0);
            INSERT INTO names (names_id, src_pid, src_process, src_unit, dst_host, service, last_ns) VALUES
                (1, 4242, 'curl', 'batch.service', 'example.org', 'https', 0), (2, 80, 'nginx', 'nginx.service', NULL, 'http', 0)",
        );
        stored
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn sql(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    /// Stores the mean of some latencies of a flow.
    fn latency(&self, second: i64, kind: &str, what: &str, (flow, names): (i64, &str), (count, mean_ns): (i64, i64)) {
        self.sql(&format!(
            "INSERT INTO latency (time_ns, interval_ns, host_id, type, what, flow_id, names_id, count, mean_ns)
                VALUES ({}, {SECOND_NS}, 1, '{kind}', '{what}', {flow}, {names}, {count}, {mean_ns})",
            BEGIN_NS + second * SECOND_NS
        ));
    }

    fn top(&self, arguments: &[&str]) -> Run {
        dwell(&[&["top", "--once", "--read", self.path().to_str().unwrap()], arguments].concat())
    }

    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let run = self.top(&[&["--format", "jsonl"], arguments].concat());
        assert_eq!(run.status, Some(0), "{run}");
        of_type(&run.stdout, "top.row")
    }
}

fn file(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_last_interval_is_shown_with_the_names_that_are_stored() {
    let stored = Stored::new();
    stored.latency(5, "rtt.sample", "latency", (3, "1"), (1, 1_000_000_000));
    for (kind, what, flow, figures) in [
        ("rtt.sample", "latency", (1, "1"), (2, 30_000_000)),
        ("rtt.sample", "latency", (1, "1"), (1, 60_000_000)),
        ("response.epoch", "latency", (1, "1"), (9, 5_000_000)),
        ("run.socket", "sender_delay", (1, "1"), (3, 7_000_000)),
        ("rtt.sample", "latency", (2, "2"), (1, 90_000_000)),
    ] {
        stored.latency(10, kind, what, flow, figures);
    }
    // Neither an estimate that is not believed, nor the summary of a run.
    stored.sql(&format!(
        "INSERT INTO latency (time_ns, interval_ns, host_id, type, what, flow_id, count, mean_ns, valid) VALUES
            ({end}, 1000000000, 1, 'response.epoch', 'latency', 2, 1, 999, 0), ({end}, NULL, 1, 'rtt.summary', 'latency', 3, 1, 999, NULL)",
        end = BEGIN_NS + 10 * SECOND_NS
    ));
    // Where bytes waited in the send buffer, as `dwell stack --store` has it, in longer intervals.
    let end = |address: &str, port| Endpoint { address: address.parse::<IpAddr>().unwrap(), port };
    let flow = Ends { src: end("192.0.2.1", 40_002), dst: end("198.51.100.9", 22) };
    let mut histogram = Histogram::default();
    histogram.record(2_000_000);
    let row = IntervalRow {
        time_ns: BEGIN_NS + 9 * SECOND_NS,
        time_clamped: false,
        length_ns: 2 * SECOND_NS.cast_unsigned(),
        host: "web1",
        flow: Some(flow),
        namespace: None,
        segment: Segment::SocketTcp,
        resent: false,
        histogram: &histogram,
        hooks: None,
    };
    Store::open(&stored.path()).unwrap().write(|store| store.interval(&row)).unwrap();

    let rows = stored.rows(&[]);
    let of = |row: &Value, keys: &[&str]| keys.iter().map(|key| row[*key].clone()).collect::<Vec<_>>();
    assert_eq!(rows.len(), 3, "{rows:?}");
    let figures = ["process", "pid", "service", "rtt_ns", "response_ns", "send_buffer_ns", "retransmitted", "rate_bps"];
    let unknown = Value::Null;
    assert_eq!(
        of(&rows[0], &figures),
        [
            json!("nginx"),
            json!(80),
            json!("http"),
            json!(90_000_000),
            unknown.clone(),
            unknown.clone(),
            unknown.clone(),
            unknown.clone()
        ]
    );
    assert_eq!(
        of(&rows[1], &figures),
        [
            json!("curl"),
            json!(4242),
            json!("https"),
            json!(40_000_000),
            json!(5_000_000),
            json!(7_000_000),
            unknown.clone(),
            unknown
        ]
    );
    assert_eq!(
        (&rows[1]["unit"], &rows[1]["peer_name"]),
        (&"batch.service".into(), &"example.org".into()),
        "{}",
        rows[1]
    );
    assert_eq!((&rows[2]["flow"]["dst"], &rows[2]["send_buffer_ns"]), (&"198.51.100.9".into(), &2_000_000.into()));
    assert_eq!(
        (&rows[0]["time"], &rows[0]["interval_ns"]),
        (&"2026-11-21T14:00:10.000000000Z".into(), &(2 * SECOND_NS).into())
    );

    assert_eq!(stored.rows(&["--interval", "1s"]).len(), 2);
    assert_eq!(stored.rows(&["-p", "443"]).len(), 1);
    let units: Vec<_> = stored.rows(&["--view", "units"]).iter().map(|row| row["unit"].clone()).collect();
    assert_eq!(units, [json!("nginx.service"), json!("batch.service"), Value::Null]);
    let text = stored.top(&["--view", "processes"]).stdout;
    assert!(text.contains("nginx 80") && text.contains("curl 4242"), "{text}");
    assert_eq!(stored.top(&["--fail-if", "rtt max>80ms"]).status, Some(1));
    let without = stored.rows(&["--no-names"]);
    assert_eq!((&without[0]["process"], &without[0]["pid"]), (&Value::Null, &80.into()));
}

#[test]
fn the_containers_of_a_pod_are_one_row_of_units() {
    let stored = Stored::new();
    stored.sql(
        "UPDATE names SET src_pod = 'shop/web-0/' || src_process, src_pod_uid = '8f6a44fc-52d4-4c0a-9d7e-1a2b3c4d5e6f'",
    );
    stored.latency(10, "rtt.sample", "latency", (1, "1"), (1, 30_000_000));
    stored.latency(10, "rtt.sample", "latency", (2, "2"), (1, 90_000_000));
    let pod = |container| json!({"uid": "8f6a44fc-52d4-4c0a-9d7e-1a2b3c4d5e6f", "namespace": "shop", "name": "web-0", "container": container});
    let units = stored.rows(&["--view", "units"]);
    assert_eq!(units.len(), 1, "{units:?}");
    assert_eq!((&units[0]["pod"], &units[0]["flows"]), (&pod(Value::Null), &2.into()));
    assert_eq!(stored.rows(&[])[0]["pod"], pod("nginx".into()));
}

#[test]
fn backends_are_those_of_the_last_interval() {
    let stored = Stored::new();
    let none = stored.top(&["--view", "backends"]);
    assert_eq!((none.status, none.stdout.lines().count()), (Some(0), 1), "{none}");
    let latency = LatencyObject { count: Some(4), mean_ns: Some(3_000_000), ..LatencyObject::default() };
    let row = BackendRow {
        time_ns: BEGIN_NS,
        length_ns: 2 * SECOND_NS.cast_unsigned(),
        host: "edge",
        vip: Some("web"),
        backend: "gone",
        address: "192.0.2.7".parse().unwrap(),
        state: "up",
        why: "",
        weight: 1.0,
        share: 0.5,
        active: 7,
        tracked: None,
        pending: 2,
        pending_oldest_ns: None,
        traffic: Some([20, 600, 9_000]),
        latency: Some(&latency),
    };
    let rows = [
        row,
        BackendRow { time_ns: BEGIN_NS + 2 * SECOND_NS, backend: "a", ..row },
        BackendRow { time_ns: BEGIN_NS + 2 * SECOND_NS, backend: "b", state: "draining", latency: None, ..row },
    ];
    let mut store = Store::open(&stored.path()).unwrap();
    store.write(|store| rows.iter().try_for_each(|row| store.backend(row))).unwrap();
    drop(store);
    let run = stored.top(&["--view", "backends"]);
    let table: Vec<Vec<&str>> = run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(table[1], ["web/a", "up", "3.00", "ms", "2", "7", "10", "300", "50.0", "%"], "{run}");
    assert_eq!(table[2][..3], ["web/b", "draining", "-"], "{run}");
    assert_eq!(table.len(), 3, "{run}");
    let other = BackendRow { time_ns: BEGIN_NS + 2 * SECOND_NS, host: "core", backend: "a\u{1b}[2J", ..row };
    Store::open(&stored.path()).unwrap().write(|store| store.backend(&other)).unwrap();
    let text = stored.top(&["--view", "backends"]).stdout;
    assert!(text.contains("web/a on edge") && text.contains("web/a\u{fffd}[2J on core"), "{text}");
    let jsonl = stored.top(&["--view", "backends", "--format", "jsonl"]);
    assert_eq!(jsonl.status, Some(2), "{jsonl}");
    assert!(jsonl.stderr.contains("query its table `backends`"), "{jsonl}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let stored = Stored::new();
    let path = stored.path();
    let refused = |status: i32, reason: &str, store: &str| {
        let run = dwell(&["top", "--once", "--read", store]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(status), ""), "{run}");
        assert!(run.stderr.contains(reason), "{run}");
    };
    refused(2, "cannot open capture", "/nowhere/store");
    refused(2, "`dwell report -r clickhouse://192.0.2.1:8123/dwell`", "clickhouse://192.0.2.1:8123/dwell");
    let letter = stored.0.path().join("letter");
    std::fs::write(&letter, "Dear Sir or Madam, ".repeat(300)).unwrap();
    refused(2, "is not a capture", file(&letter));
    for second in 0..2_000 {
        stored.latency(second, "rtt.sample", "latency", (1, "1"), (1, 1_000));
        if second == 0 {
            stored.sql("PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF");
        }
    }
    let cut = stored.0.path().join("cut");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    refused(4, "damaged or cut off", file(&cut));
    stored.sql("PRAGMA user_version = 99");
    refused(2, "has tables of version 99", file(&path));
}

#[test]
fn the_screen_follows_what_another_process_writes() {
    if lacks_program("tmux") {
        return;
    }
    let stored = Stored::new();
    stored.latency(10, "rtt.sample", "latency", (1, "1"), (1, 30_000_000));
    let terminal = Terminal::start(100, 24, &format!("{DWELL} top -r {}", file(&stored.path())));
    let screen = terminal.shows("curl → example.org:https");
    assert!(screen.contains("dwell top  store  14:00:10Z  1 flow") && screen.contains("30.0 ms"), "{screen}");
    stored.latency(11, "rtt.sample", "latency", (2, "2"), (1, 90_000_000));
    terminal.wait("the next interval", |screen| screen.contains("14:00:11Z") && screen.contains("90.0 ms"));
    terminal.keys(&["f", ":", "4", "4", "3", "Enter"]);
    terminal.wait("the filter", |screen| screen.contains("of :443") && !screen.contains("nginx"));
    terminal.keys(&["f", "BSpace", "BSpace", "BSpace", "BSpace", "Enter"]);
    terminal.wait("all flows again", |screen| screen.contains("nginx") && !screen.contains("of :443"));
    terminal.keys(&["Enter"]);
    let screen = terminal
        .wait("what dwell why says", |screen| screen.contains("\ndwell why -r ") && !screen.contains("reading"));
    assert!(screen.contains("The store has no stamped bytes of the target"), "{screen}");
    terminal.keys(&["Escape", "q"]);
    terminal.shows("status=0");
}
