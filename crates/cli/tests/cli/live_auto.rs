//! The choice of a method for each flow, on real traffic.

use std::collections::BTreeMap;

use dwell_testbed::{Role, workload::Ends};

use crate::{
    live_traffic::{GO_ON, check_sides, ping_pong},
    records::{Key, median, of_type, round_trips},
    support::{Pair, Run, line, skipped, watch},
};

fn trips(run: &Run) -> BTreeMap<Key, Vec<u64>> {
    assert_eq!(run.status, Some(0), "{run}");
    round_trips(&of_type(&run.stdout, "rtt.sample"))
}

#[test]
fn root_on_a_fast_network_each_request_of_short_connections_is_measured() {
    if skipped() {
        return;
    }
    let pair = Pair::start("auto");
    let watchers = ["tcp", "tcp-seq"]
        .map(|methods| watch(&pair.left, &["-i", "left0", "--format", "jsonl", "--methods", methods]));
    // few enough for the ring buffers, however slowly dwell prints
    for _ in 0..30 {
        ping_pong(2).run(pair.ends(), &GO_ON).unwrap();
    }
    ping_pong(30).run(pair.ends(), &GO_ON).unwrap();
    let [chosen, by_seq] = watchers.map(|dwell| trips(&dwell.interrupt()));
    for ((_, address), all) in &by_seq {
        if median(all).0 >= 500_000 {
            continue; // half a tick or more: on a busy host timestamps may do as well
        }
        let count = |trips: &BTreeMap<Key, Vec<u64>>| -> usize {
            trips.iter().filter(|((_, other), _)| other == address).map(|(_, trips)| trips.len()).sum()
        };
        assert!(count(&chosen) * 100 >= all.len() * 95, "{address}: {} of {}", count(&chosen), all.len());
        let alike = &chosen[&("tcp-seq".to_owned(), address.clone())];
        assert!(alike.len() * 100 >= all.len() * 80, "{address}: {} of {}", alike.len(), all.len());
        let (want, found) = (median(all).0 as f64, median(alike).0 as f64);
        assert!((found - want).abs() <= 0.1 * want, "{address}: {found} ns, not {want} ns");
    }
}

#[test]
fn root_where_the_path_is_long_timestamps_take_over() {
    if skipped() {
        return;
    }
    let lab = line("auto");
    let dwell = watch(lab.vantage(), &["-i", "server0", "--format", "jsonl", "--methods", "tcp"]);
    ping_pong(2_000).run(Ends::v4(&lab), &GO_ON).unwrap();
    let trips = trips(&dwell.interrupt());
    let sides = [Role::Client, Role::Server];
    let methods = sides.map(|side| [("tcp-seq", side), ("tcp-timestamp", side)]).concat();
    check_sides(&trips, &methods, 15);
}
