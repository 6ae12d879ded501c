//! `dwell-lab fleet faults`: what is stored while something goes wrong. Times are goals of the verb, and not of these tests.

use std::thread;

use dwell_testbed::{error::find_program, skip::skip};
use serde_json::Value;

use crate::support::{lab, objects, skipped};

/// Makes faults at the same time, each in a fleet of its own: most of it is waiting.
fn faults(names: &[&str], duration: &str) -> Vec<Value> {
    thread::scope(|scope| {
        let made: Vec<_> = names.iter().map(|name| scope.spawn(move || in_turn(&[*name], duration))).collect();
        made.into_iter().flat_map(|made| made.join().unwrap()).collect()
    })
}

/// Makes faults, one after the other, and checks what holds for all: nothing that was acknowledged is lost, nothing is there
/// twice, a row says what is lost, and the collector's memory is bounded.
fn in_turn(names: &[&str], duration: &str) -> Vec<Value> {
    let run = lab(&["fleet", "faults", "--fault", &names.join(","), "--duration", duration, "--format", "jsonl"]);
    // A busy machine may miss goals.
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
    let objects = objects(&run);
    assert_eq!(objects.iter().map(|object| &object["fault"]).collect::<Vec<_>>(), names, "{run}");
    for object in &objects {
        let number = |key: &str| object[key].as_u64().unwrap_or_else(|| panic!("{key}: {object}"));
        assert!(number("times") > 0 && object["type"] == "lab.fleet-fault", "{object}");
        // Four agents with ten flows each.
        assert!(number("rows_acknowledged") > 4 * 10 * (13 + 5 * 5 + 5 * 6), "{object}");
        assert!(number("rows_stored") >= number("rows_acknowledged"), "{object}");
        for none in ["rows_lost_without", "rows_doubled", "rows_foreign", "batches_left"] {
            assert_eq!(number(none), 0, "{none}: {object}");
        }
        assert!(number("memory_bytes") <= 512 << 20, "{object}");
    }
    objects
}

/// How often a fault was made.
fn times(object: &Value) -> u64 {
    object["times"].as_u64().unwrap()
}

/// No row says that something is lost.
#[track_caller]
fn assert_nothing_is_lost(objects: &[Value]) {
    assert!(objects.iter().all(|object| object["rows_lost_with_a_row"] == 0), "{objects:?}");
}

#[test]
fn root_collector_and_agents_that_are_killed_at_random_moments_lose_nothing_that_is_not_told() {
    if skipped() {
        return;
    }
    let objects = faults(&["collector-killed", "agents-killed"], "25s");
    assert!(objects.iter().all(|object| times(object) == 12), "{objects:?}");
}

#[test]
fn root_disks_of_agents_and_store_that_are_full_for_a_while_lose_nothing() {
    if skipped() {
        return;
    }
    let objects = faults(&["agent-disk-full", "store-disk-full"], "30s");
    assert_nothing_is_lost(&objects);
}

#[test]
fn root_a_clickhouse_server_that_is_killed_and_a_spool_whose_disk_is_full_lose_nothing() {
    if skipped() {
        return;
    }
    if find_program("clickhouse-server").is_none() {
        return skip("there is no clickhouse-server, which Debian's package of that name has");
    }
    let objects = faults(&["server-killed", "spool-disk-full"], "40s");
    assert_nothing_is_lost(&objects);
}

#[test]
fn root_a_network_that_is_cut_loses_only_what_no_buffer_holds_and_a_row_says_so() {
    if skipped() {
        return;
    }
    let objects = faults(&["network-cut", "network-cut-long"], "45s");
    assert_nothing_is_lost(&objects[..1]);
    assert!(objects[1]["rows_lost_with_a_row"].as_u64() > Some(0), "{objects:?}");
}

#[test]
fn root_clocks_that_are_off_by_an_hour_at_agents_or_at_the_collector_lose_nothing() {
    if skipped() {
        return;
    }
    let objects = in_turn(&["agent-clock", "collector-clock"], "24s");
    assert_nothing_is_lost(&objects);
}

#[test]
fn root_certificates_that_expire_under_load_stop_agents_until_they_are_renewed_and_nothing_is_lost() {
    if skipped() {
        return;
    }
    let objects = faults(&["certificates-expire"], "60s");
    assert!(times(&objects[0]) >= 4, "each agent has lost its connection: {objects:?}");
    assert_nothing_is_lost(&objects);
}

#[test]
fn root_garbage_unknown_versions_and_connections_that_never_speak_do_not_keep_agents_out() {
    if skipped() {
        return;
    }
    let objects = faults(&["garbage", "versions", "silence"], "20s");
    assert!(objects.iter().all(|object| times(object) > 50), "{objects:?}");
    assert_nothing_is_lost(&objects);
}

#[test]
fn root_batches_that_come_twice_are_stored_once_and_those_that_come_too_late_are_told_as_lost() {
    if skipped() {
        return;
    }
    let objects = faults(&["batches-twisted"], "20s");
    // Two of seven come after a later one.
    assert!(objects[0]["rows_lost_with_a_row"].as_u64() > Some(0), "{objects:?}");
}

#[test]
fn root_frames_of_8_mib_for_ever_and_one_byte_per_second_do_not_keep_agents_out() {
    if skipped() {
        return;
    }
    let objects = faults(&["long-frames", "one-byte-per-second"], "30s");
    assert_nothing_is_lost(&objects);
}

#[test]
fn faults_that_make_no_sense_are_refused() {
    for (wrong, says) in
        [(["--fault", "all"], "collector-killed, agents-killed"), (["--duration", "5s"], "20s at least")]
    {
        let run = lab(&[&["fleet", "faults"][..], &wrong].concat());
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(says), "{run}");
    }
}
