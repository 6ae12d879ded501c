//! `dwell-lab quic`: QUIC through a balancer.

use serde_json::Value;

use crate::support::{lab, objects, skipped};

fn told(arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let run = lab(&[&["quic"], arguments, &["--format", "jsonl"]].concat());
    (run.status, objects(&run))
}

#[test]
fn root_0rtt_is_kept_by_zero_rtt_and_the_source_address_and_lost_by_the_5_tuple() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().to_str().unwrap();
    // The load is low and the margin high, so that no server is overloaded on any machine.
    let few = ["--clients", "60", "--rate", "90", "--duration", "4s"];
    let light = ["--work", "100us", "--margin", "30s"];
    let (status, runs) = told(&[&["policies", "--keep-in", keep], &few[..], &light].concat());
    let policies: Vec<_> = runs.iter().map(|run| run["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["zero-rtt", "5-tuple", "source", "least-loaded"]);
    assert_eq!(status, Some(0), "{runs:?}");
    let of = |index: usize, key: &str| runs[index][key].as_u64().unwrap();
    for index in 0..4 {
        assert_eq!((of(index, "broken"), of(index, "repeated")), (0, 0), "{runs:?}");
        assert!(of(index, "eligible") > 60, "{runs:?}");
    }
    for index in [0, 2] {
        assert_eq!(of(index, "early"), of(index, "eligible"), "{runs:?}");
    }
    // One in four reaches its server, by chance.
    assert!(of(1, "early") * 2 < of(1, "eligible"), "{runs:?}");
    // The emulated 20 ms pass once with 0-RTT, and twice without.
    assert!(of(0, "first_byte_p50_ns") >= 20_000_000, "{runs:?}");
    assert!(of(1, "first_byte_p90_ns") >= 40_000_000, "{runs:?}");
    assert!(folder.path().join("policies.svg").exists());
}

#[test]
fn root_tokens_keep_0rtt_where_every_connection_has_a_new_address() {
    if skipped() {
        return;
    }
    let few = ["--clients", "60", "--rate", "90", "--duration", "4s", "--new-addresses"];
    let light = ["--work", "100us", "--margin", "30s", "--policies", "zero-rtt,source"];
    let (status, runs) = told(&[&["policies"], &few[..], &light].concat());
    assert_eq!(status, Some(0), "{runs:?}");
    let of = |index: usize, key: &str| runs[index][key].as_u64().unwrap();
    assert!(of(0, "eligible") > 60, "{runs:?}");
    assert_eq!(of(0, "early"), of(0, "eligible"), "{runs:?}");
    // The balancer counts at the end of each interval, so that the last ones may be missing.
    assert!(of(0, "by_token") > 0, "{runs:?}");
    // One in four reaches its server, by chance.
    assert!(of(1, "early") * 2 < of(1, "eligible"), "{runs:?}");
}

#[test]
fn root_connections_survive_moves_by_connection_ids_only() {
    if skipped() {
        return;
    }
    let (status, runs) = told(&["moves", "--connections", "10", "--moves", "5"]);
    assert_eq!(status, Some(0), "{runs:?}");
    assert_eq!(runs[0]["survived"], 50);
}

#[test]
fn root_replayed_requests_are_not_executed_again() {
    if skipped() {
        return;
    }
    let (status, runs) = told(&["replay", "--requests", "10", "--times", "5"]);
    assert_eq!(status, Some(0), "{runs:?}");
    assert_eq!((&runs[0]["tries"], &runs[0]["repeated"]), (&50.into(), &0.into()));
    let thefts: Vec<_> =
        runs[1..].iter().map(|theft| ["requests", "found", "read"].map(|key| theft[key].as_u64().unwrap())).collect();
    // The first has an earlier copy; the others have what each of four servers holds at the end.
    assert_eq!(thefts[0], [10, 10, 10], "{runs:?}");
    assert_eq!(thefts[1..], [[10, 0, 0]; 4], "{runs:?}");
    let left = runs[2..].iter().map(|theft| theft["sessions"].as_u64());
    assert!(left.max() > Some(Some(0)), "{runs:?}");
}

#[test]
fn root_nothing_breaks_while_keys_and_servers_change() {
    if skipped() {
        return;
    }
    let few = ["--lasting", "10", "--returning", "4", "--pause", "2s"];
    let (status, runs) = told(&[&["changes"], &few[..]].concat());
    assert_eq!(status, Some(0), "{runs:?}");
    let changes: Vec<_> = runs.iter().map(|run| run["change"].as_str().unwrap()).collect();
    assert_eq!(changes[1..4], ["key rotated", "old key gone", "server removed"]);
    // Each lasting connection was answered after each change.
    for run in &runs {
        assert!(run["lasting_requests"].as_u64() >= Some(10), "{runs:?}");
    }
}

#[test]
fn root_another_program_gets_its_environment() {
    if skipped() {
        return;
    }
    let is_told = "test -r \"$DWELL_QUIC_CERTIFICATE\" && test \"$DWELL_QUIC_SERVER\" = 10.79.0.100:443 \
                   && test \"$DWELL_QUIC_OWN\" = 10.80.0.1,10.80.0.2,10.80.0.3";
    let run = |script: &str| lab(&["quic", "client", "--policy", "source", "--", "sh", "-c", script]).status;
    assert_eq!(run(is_told), Some(0));
    assert_eq!(run("exit 3"), Some(1));
}
