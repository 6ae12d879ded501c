//! Workloads know the true answer.

use std::{sync::atomic::AtomicBool, time::Duration};

use dwell_testbed::{
    BitsPerSecond, Bytes, Emulation, Error, Lab, LabOptions, Nanos, Result, Topology,
    skip::required,
    workload::{Bulk, Dns, Ends, PingPong, RoundTrips},
};

use crate::support::skipped;

/// `None`, and the calling test is skipped, where a program is missing.
fn unless_missing<T>(outcome: Result<T>) -> Option<T> {
    match outcome {
        Err(error @ Error::Host { .. }) => {
            required(&error.to_string());
            None
        }
        other => Some(other.unwrap()),
    }
}

#[test]
fn root_no_workload_is_faster_than_the_network() {
    if skipped() {
        return;
    }
    let topology = Topology::line(Nanos::from_millis(8), Nanos::from_millis(4));
    let rtt = topology.end_to_end_rtt();
    let lab = Lab::start(&LabOptions { name: "traffic".to_owned(), topology, emulation: Emulation::Thread }).unwrap();
    let stop = AtomicBool::new(false);
    let check = |name: &str, trips: RoundTrips, at_least: usize| {
        assert!(trips.0.len() >= at_least, "{name}: {} round trips", trips.0.len());
        assert!(trips.quantile(0.0).unwrap() >= rtt, "{name}: {:?}", trips.quantile(0.0));
        assert!(trips.quantile(0.5).unwrap() < Nanos(rtt.0 * 10), "{name}: {:?}", trips.quantile(0.5));
    };
    for ends in [Ends::v4(&lab), Ends::v6(&lab)] {
        let ping_pong = PingPong { duration: Duration::from_millis(500), longest: Bytes(3_000), seed: 3 };
        check("TCP", ping_pong.run(ends, &stop).unwrap(), 5);
        if let Some(trips) = unless_missing(Dns { queries: 10, seed: 3 }.run(ends, &stop)) {
            check("DNS", trips, 10);
        }
        let bulk = Bulk { seconds: 1, rate: BitsPerSecond::new(5_000_000), download: true, congestion: None };
        if let Some(bulk) = unless_missing(bulk.run(ends, &stop)) {
            assert!((100_000..2_000_000).contains(&bulk.received.0), "{bulk:?}");
        }
    }
}

#[test]
fn root_a_workload_ends_when_it_is_told_to() {
    if skipped() {
        return;
    }
    let topology = Topology::line(Nanos::ZERO, Nanos::ZERO);
    let lab = Lab::start(&LabOptions { name: "told".to_owned(), topology, emulation: Emulation::None }).unwrap();
    let stop = AtomicBool::new(true);
    let duration = Duration::from_secs(60);
    let tcp = PingPong { duration, longest: Bytes(10), seed: 1 }.run(Ends::v4(&lab), &stop);
    assert!(matches!(tcp, Err(Error::Interrupted)), "{tcp:?}");
    let bulk = Bulk { seconds: 60, rate: None, download: false, congestion: None }.run(Ends::v4(&lab), &stop);
    assert!(matches!(bulk, Err(Error::Interrupted | Error::Host { .. })), "{bulk:?}");
}
