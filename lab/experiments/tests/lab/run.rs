//! `dwell-lab run`: what iperf3, ss and `dwell run` report of one connection.

use crate::support::{lab, objects, skipped};

#[test]
fn root_three_programs_report_on_one_connection() {
    if skipped() {
        return;
    }
    let run = lab(&["run", "--duration", "4s", "--format", "jsonl"]);
    // A busy machine may miss goals.
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let objects = objects(&run);
    let tools: Vec<_> = objects.iter().map(|object| object["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["iperf3", "ss -ti", "dwell run"]);
    for object in &objects {
        assert!(object["min_rtt_ns"].as_u64() >= Some(50_000_000), "{object}");
        assert!(object["rtt_ns"].as_u64() >= object["min_rtt_ns"].as_u64(), "{object}");
        assert!(object["bytes"].as_u64() > Some(1_000_000), "{object}");
        assert!(object["retransmitted"].is_u64(), "{object}");
    }
    // Only dwell run sees the send buffer.
    assert!(objects[2]["send_buffer_ns"].as_u64() > Some(10_000_000), "{run}");
}
