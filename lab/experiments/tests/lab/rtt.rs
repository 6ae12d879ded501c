//! `dwell-lab rtt`: round trips that several programs read from one capture.

use serde_json::Value;

use crate::support::{lab, objects, skipped};

#[test]
fn root_each_program_reads_the_round_trips_of_one_capture() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().to_str().unwrap();
    let run =
        lab(&["rtt", "--loss", "0.02", "--duration", "1s", "--rounds", "1", "--keep-in", keep, "--format", "jsonl"]);
    // A busy machine may miss goals, and programs that are not installed leave some undecided.
    assert!(matches!(run.status, Some(0 | 1 | 4)), "{run}");
    assert!(folder.path().join("loss-0.02.pcap").is_file());
    let objects = objects(&run);
    let rows = |tool: &str, side: &str| {
        let of = |row: &&Value| row["type"] == "lab.rtt" && row["tool"] == tool && row["side"] == side;
        objects.iter().find(of).cloned()
    };
    for (side, delay_ns) in [("client", 20_000_000), ("server", 5_000_000)] {
        for tool in
            ["dwell rtt, live", "dwell rtt", "dwell rtt, tcp-timestamp", "dwell rtt, tcp-seq", "dwell rtt, handshakes"]
        {
            let row = rows(tool, side).unwrap_or_else(|| panic!("{tool}, {side}: {run}"));
            assert!(row["samples"].as_u64() > Some(10), "{row}");
            assert!(row["min_ns"].as_u64() >= Some(delay_ns), "{row}");
        }
        // tcptrace has tenths of milliseconds.
        if let Some(row) = rows("tcptrace", side) {
            assert!(row["min_ns"].as_u64() >= Some(delay_ns) && row["p50_ns"].as_u64() >= Some(delay_ns), "{row}");
        }
        if let Some(row) = rows("tshark, ack_rtt", side) {
            assert!(row["p50_ns"].as_u64() >= Some(delay_ns), "{row}");
        }
    }
    let live = objects.iter().find(|object| object["type"] == "lab.rtt-live").unwrap();
    assert!(live["paired"].as_f64() >= Some(0.9), "{live}");
    let costs = objects.iter().filter(|object| object["type"] == "lab.rtt-cost");
    assert!(costs.clone().count() >= 6, "{run}");
    for cost in costs {
        assert!(cost["cpu_ns"].as_u64() > Some(0) && cost["memory_bytes"].as_u64() > Some(0), "{cost}");
    }
}
