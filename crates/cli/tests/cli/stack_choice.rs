//! Which connections and bytes `dwell stack` follows, and how many.

use std::{
    io::{Read, Write},
    path::Path,
};

use crate::{
    records::number,
    stack::{connect, listen, objects, objects_of, stamp},
    support::{Cgroup, Pair, Process, Run, dwell, eventually, links, skipped},
};

/// Messages from the client, and what each run has of them; then it ends.
fn totals_of_messages(pair: &Pair, processes: Vec<Process>, messages: usize) -> Vec<(u64, Run)> {
    let (mut client, mut server) = connect(pair, &listen(pair));
    for _ in 0..messages {
        client.write_all(&[1; 640]).unwrap();
        server.read_exact(&mut [0; 640]).unwrap();
    }
    let total = |process: Process| {
        let run = process.interrupt();
        assert_eq!(run.status, Some(0), "{run}");
        let totals = objects(&run)
            .into_iter()
            .filter(|object| object["segment"] == "total" && object["direction"] == "tx" && object["flow"].is_null());
        (totals.map(|object| number(&object, "count")).sum(), run)
    };
    processes.into_iter().map(total).collect()
}

/// The client is this process, and no other.
#[test]
fn root_only_connections_of_a_process_can_be_followed() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-pid");
    let of = |pid: u32| {
        let pid = pid.to_string();
        let arguments = ["--interval", "1h", "--sample-bytes", "64", "--pid", &pid];
        stamp(&pair.left, &arguments)
    };
    let runs = vec![of(std::process::id()), of(1)];
    let runs = totals_of_messages(&pair, runs, 20);
    assert!((100..=200).contains(&runs[0].0), "{}", runs[0].1);
    assert_eq!(runs[1].0, 0, "{}", runs[1].1);
    let status = objects_of(&runs[1].1, "stack.status");
    assert_eq!(number(&status[0], "tx_unbegun"), 0, "they are not missed");

    let nobody = dwell(&["stack", "--pid", "4194305"]);
    assert_eq!(nobody.status, Some(2), "{nobody}");
    assert!(nobody.stderr.contains("no process 4194305"), "{nobody}");
}

/// A cgroup with this process below it, and one without.
#[test]
fn root_only_connections_of_a_cgroup_can_be_followed() {
    if skipped() {
        return;
    }
    let Some(empty) = Cgroup::new("stack") else {
        return;
    };
    let root = empty.0.parent().unwrap();
    let pair = Pair::start("stack-cgroup");
    let of = |path: &Path| {
        let path = path.to_str().unwrap();
        let arguments = ["--interval", "1h", "--sample-bytes", "64", "--cgroup", path];
        stamp(&pair.left, &arguments)
    };
    let runs = vec![of(root), of(&empty.0)];
    let runs = totals_of_messages(&pair, runs, 20);
    assert!((100..=200).contains(&runs[0].0), "{}", runs[0].1);
    assert_eq!(runs[1].0, 0, "{}", runs[1].1);

    let no_cgroup = dwell(&["stack", "--cgroup", "/proc"]);
    assert_eq!(no_cgroup.status, Some(2), "{no_cgroup}");
    assert!(no_cgroup.stderr.contains("cgroup v2"), "{no_cgroup}");
}

/// A byte an hour is one a flow.
#[test]
fn root_a_pace_takes_one_byte_in_its_time() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-pace");
    let arguments = ["--interval", "1h", "--sample-bytes", "64"];
    let paced = stamp(&pair.left, &[&arguments[..], &["--sample-interval", "1h"]].concat());
    let all = stamp(&pair.left, &arguments);
    let runs = totals_of_messages(&pair, vec![paced, all], 20);
    assert!(runs[0].0 <= 1, "{}", runs[0].1);
    assert!(runs[1].0 >= 100, "{}", runs[1].1);
}

/// No budget is as small: what each packet costs is more, so that most of the time nothing is
/// attached, and it is said.
#[test]
fn root_a_budget_that_packets_alone_exceed_is_kept_by_resting() {
    if skipped() {
        return;
    }
    let pair = Pair::start("stack-budget");
    let arguments = ["--interval", "1s", "--sample-bytes", "64", "--cpu-budget", "0.000001%"];
    let dwell = stamp(&pair.left, &arguments);
    let (mut client, mut server) = connect(&pair, &listen(&pair));
    eventually("it rests", || {
        client.write_all(&[1; 640]).unwrap();
        server.read_exact(&mut [0; 640]).unwrap();
        links(dwell.id()) == 0
    });
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    assert!(run.stderr.contains("for 1 % of the time"), "{run}");
}

#[test]
fn root_a_duration_of_one_interval_is_one_table() {
    if skipped() {
        return;
    }
    let run = dwell(&["stack", "--port", "1", "--format", "jsonl", "--duration", "300ms", "--interval", "300ms"]);
    assert_eq!((run.status, objects_of(&run, "stack.status").len()), (Some(0), 1), "{run}");
}
