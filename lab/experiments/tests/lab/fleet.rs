//! `dwell-lab fleet`: whether a collector has what its agents have sent.

use std::process::Command;

use dwell_testbed::skip::skip;
use serde_json::Value;

use crate::support::{lab, objects, skipped};

#[test]
fn root_all_rows_of_agents_are_in_the_store_once() {
    if skipped() {
        return;
    }
    let run = lab(&[
        "fleet",
        "--hosts",
        "1,6",
        "--host-flows",
        "12",
        "--interval",
        "2s",
        "--duration",
        "7s",
        "--format",
        "jsonl",
    ]);
    // A busy machine may miss goals.
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let objects = objects(&run);
    let number = |object: &Value, key: &str| object[key].as_u64().unwrap();
    // 13 sums and, of each flow, 5 segments where it is sent and 6 where it is received; a single agent sends all of its own.
    for (object, (agents, rows)) in objects.iter().zip([(1, 13 + 12 * 5), (6, 13 + 6 * 5 + 6 * 6)]) {
        assert_eq!(number(object, "agents"), agents);
        let intervals = number(object, "rows_wanted") / rows;
        assert_eq!(number(object, "rows_wanted"), intervals * rows, "{object}");
        assert!((3 * agents..=4 * agents).contains(&intervals), "{object}");
        assert_eq!((number(object, "rows_missing"), number(object, "rows_doubled")), (0, 0), "{object}");
        assert_eq!(number(object, "clocks"), agents, "{object}");
        assert!(number(object, "delay_max_ns") >= number(object, "delay_p50_ns"), "{object}");
        assert!(object["cpu_ns_per_row"].as_f64() > Some(0.0), "{object}");
    }
    assert_eq!(objects.len(), 2);
    assert!(number(&objects[1], "path_rows") > 0, "flows between agents have paths: {run}");
}

#[test]
fn root_all_rows_of_agents_are_on_a_clickhouse_server_once() {
    if skipped() {
        return;
    }
    if Command::new("clickhouse-server").arg("--version").output().is_err() {
        return skip("there is no clickhouse-server, which Debian's package of that name has");
    }
    let load = ["--hosts", "3", "--host-flows", "8", "--interval", "1s", "--duration", "4s"];
    let run = lab(&[&["fleet", "--clickhouse", "--format", "jsonl"][..], &load].concat());
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let object: Value = serde_json::from_str(run.stdout.trim()).unwrap();
    assert_eq!(object["store"], "clickhouse", "{object}");
    assert!(object["rows_wanted"].as_u64() >= Some(3 * 3 * (13 + 4 * 5 + 4 * 6)), "{object}");
    assert_eq!((&object["rows_missing"], &object["rows_doubled"]), (&0.into(), &0.into()), "{object}");
    assert!(object["delay_max_ns"].is_u64(), "{object}");
}

#[test]
fn root_a_collector_that_is_killed_at_any_moment_loses_nothing_and_doubles_nothing() {
    if skipped() {
        return;
    }
    let load = ["--hosts", "6", "--host-flows", "40", "--interval", "1s", "--duration", "12s"];
    let run = lab(&[&["fleet", "--kill", "8", "--format", "jsonl"][..], &load].concat());
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let object: Value = serde_json::from_str(run.stdout.trim()).unwrap();
    assert_eq!(object["kills"], 8, "{object}");
    assert!(object["disconnected"].as_u64() >= Some(8), "agents notice it: {object}");
    assert!(object["rows_wanted"].as_u64() > Some(10_000), "{object}");
    assert_eq!((&object["rows_missing"], &object["rows_doubled"]), (&0.into(), &0.into()), "{object}");
}

/// The first of three is away for 20 s, of which agents do without it for some 10 s.
#[test]
fn root_one_of_three_collectors_that_is_killed_under_load_loses_nothing_and_doubles_nothing() {
    if skipped() {
        return;
    }
    let load = ["--hosts", "6", "--host-flows", "40", "--interval", "1s", "--duration", "40s", "--collectors", "3"];
    let run = lab(&[&["fleet", "--kill", "1", "--format", "jsonl"][..], &load].concat());
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let object: Value = serde_json::from_str(run.stdout.trim()).unwrap();
    assert_eq!((&object["collectors"], &object["kills"]), (&3.into(), &1.into()), "{object}");
    assert!(object["down_max_ns"].as_u64() >= Some(20_000_000_000), "{object}");
    assert!(object["path_rows"].as_u64() > Some(0), "both ends of a flow are at one collector: {object}");
    assert_eq!((&object["rows_missing"], &object["rows_doubled"]), (&0.into(), &0.into()), "{object}");
}

/// Each from another host, and again as soon as it is turned out.
#[test]
fn root_connections_that_never_speak_do_not_keep_agents_out() {
    if skipped() {
        return;
    }
    let load = ["--hosts", "5", "--host-flows", "10", "--interval", "1s", "--duration", "5s"];
    let run = lab(&[&["fleet", "--strangers", "2000", "--format", "jsonl"][..], &load].concat());
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let object: Value = serde_json::from_str(run.stdout.trim()).unwrap();
    assert!(object["strange_connections"].as_u64() >= Some(2000), "{object}");
    assert!(object["connected_ns"].as_u64() < Some(30_000_000_000), "{object}");
    assert!(object["delay_max_ns"].as_u64() < Some(30_000_000_000), "{object}");
    assert_eq!((&object["rows_missing"], &object["rows_doubled"]), (&0.into(), &0.into()), "{object}");
}

#[test]
fn loads_that_make_no_sense_are_refused() {
    for wrong in
        [["--hosts", "0"], ["--hosts", "20001"], ["--host-flows", "1025"], ["--interval", "10ms"], ["--strangers", "x"]]
    {
        let run = lab(&[&["fleet"][..], &wrong].concat());
        assert_eq!(run.status, Some(2), "{run}");
    }
}
