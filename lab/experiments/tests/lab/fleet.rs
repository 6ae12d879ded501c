//! `dwell-lab fleet`: whether a collector has what its agents have sent.

use serde_json::Value;

use crate::support::{lab, skipped};

#[test]
fn root_all_rows_of_agents_are_in_the_store_once() {
    if skipped() {
        return;
    }
    let run = lab(&[
        "fleet",
        "--agents",
        "1,6",
        "--flows",
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
    let objects: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
fn loads_that_make_no_sense_are_refused() {
    for wrong in [["--agents", "0"], ["--agents", "20001"], ["--flows", "1025"], ["--interval", "10ms"]] {
        let run = lab(&[&["fleet"][..], &wrong].concat());
        assert_eq!(run.status, Some(2), "{run}");
    }
}
