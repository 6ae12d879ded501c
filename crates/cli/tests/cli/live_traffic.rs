//! Real programs over links of known delay: what is measured is the delay and what hosts add, the
//! same by every way of looking.

use std::{collections::BTreeMap, fs, sync::atomic::AtomicBool, thread, time::Duration};

use dwell_testbed::{
    Bytes, Emulation, Lab, LabOptions, Namespace, Nanos, Role, Topology,
    workload::{Dns, Ends, Ping, PingPong},
};

use crate::{
    records::{Key, counters, counts, median, of_type, round_trips},
    support::{CLIENT_RTT, Pair, Process, Run, SERVER_RTT, dwell, eventually, line, skipped, spawn, watch},
};

pub static GO_ON: AtomicBool = AtomicBool::new(false);

/// What hosts, the emulator and a busy machine may add to a delay. Less than the two sides differ.
const GENEROUS: Nanos = Nanos(12_000_000);

pub fn ping_pong(millis: u64) -> PingPong {
    PingPong { duration: Duration::from_millis(millis), longest: Bytes(1_000), seed: 1 }
}

pub fn ping(count: u32) -> Ping {
    Ping { count, interval: Duration::from_millis(20) }
}

/// TCP, ping and DNS, one after the other.
fn everyday_traffic(lab: &Lab) {
    ping_pong(1_000).run(Ends::v4(lab), &GO_ON).unwrap();
    ping(20).run(Ends::v4(lab), &GO_ON).unwrap();
    ping(20).run(Ends::v6(lab), &GO_ON).unwrap();
    let dns = Dns { queries: 20, seed: 1 };
    dns.run(Ends::v4(lab), &GO_ON).unwrap();
}

fn trips(run: &Run) -> BTreeMap<Key, Vec<u64>> {
    assert_eq!(run.status, Some(0), "{run}");
    assert_eq!(counters(&run.stderr)["events lost"], 0);
    round_trips(&of_type(&run.stdout, "rtt.sample"))
}

fn key(method: &str, role: Role) -> Key {
    let address = match method {
        "icmpv6" => Lab::address_v6(role).to_string(),
        _ => Lab::address_v4(role).to_string(),
    };
    (method.to_owned(), address)
}

/// The medians are those of the emulated links.
#[track_caller]
pub fn check_sides(trips: &BTreeMap<Key, Vec<u64>>, methods: &[(&str, Role)], least: usize) {
    for (method, role) in methods {
        let values = trips.get(&key(method, *role));
        let values = values.unwrap_or_else(|| panic!("no {method} to {role:?} in {trips:?}"));
        assert!(values.len() >= least, "{method} to {role:?}: {values:?}");
        let truth = match role {
            Role::Client => CLIENT_RTT,
            _ => SERVER_RTT,
        };
        let median = median(values);
        assert!(median >= truth && median < truth + GENEROUS, "{method} to {role:?}: {median}");
    }
}

/// With one method for TCP.
const METHODS: &str = "tcp-timestamp,icmp,icmpv6,dns,quic-spin,quic-handshake";

const EVERYDAY: [(&str, Role); 5] = [
    ("tcp-timestamp", Role::Client),
    ("tcp-timestamp", Role::Server),
    ("icmp", Role::Server),
    ("icmpv6", Role::Server),
    ("dns", Role::Server),
];

#[test]
fn root_both_sides_are_as_far_away_as_the_links_are_long() {
    if skipped() {
        return;
    }
    let lab = line("sides");
    let dwell = watch(lab.vantage(), &["-i", "server0", "--format", "jsonl", "--methods", METHODS]);
    everyday_traffic(&lab);
    let trips = trips(&dwell.interrupt());
    check_sides(&trips, &EVERYDAY, 15);
    // Of pings and queries only the side that answers, and nobody else.
    let mut keys = EVERYDAY.map(|(method, role)| key(method, role));
    keys.sort_unstable();
    assert!(trips.keys().eq(&keys), "{trips:?}");
    assert_eq!(trips[&key("icmp", Role::Server)].len(), 20);
    assert_eq!(trips[&key("dns", Role::Server)].len(), 20);
}

#[test]
fn root_connections_without_timestamps_are_measured_by_sequence_number() {
    if skipped() {
        return;
    }
    let lab = line("sequence");
    lab.client().set(&[("ipv4/tcp_timestamps", "0")]).unwrap();
    let dwell = watch(lab.vantage(), &["-i", "client0", "--format", "jsonl"]);
    ping_pong(1_000).run(Ends::v4(&lab), &GO_ON).unwrap();
    let trips = trips(&dwell.interrupt());
    check_sides(&trips, &[("tcp-seq", Role::Client), ("tcp-seq", Role::Server)], 15);
    assert_eq!(trips.len(), 2, "{trips:?}");
}

#[test]
fn root_where_one_direction_passes_there_is_nothing_to_measure() {
    if skipped() {
        return;
    }
    let lab = Lab::start(&LabOptions {
        name: "triangle".to_owned(),
        topology: Topology::triangle(Nanos::from_millis(1), Nanos::from_millis(1), Nanos::from_millis(1)),
        emulation: Emulation::Thread,
    })
    .unwrap();
    let dwell = watch(lab.vantage(), &["-i", "server0", "--format", "jsonl"]);
    ping_pong(300).run(Ends::v4(&lab), &GO_ON).unwrap();
    ping(10).run(Ends::v4(&lab), &GO_ON).unwrap();
    let run = dwell.interrupt();
    assert!(counters(&run.stderr)["packets"] > 20, "{run}");
    // Neighbour discovery passes both ways, but asks for no echo.
    assert_eq!(trips(&run), BTreeMap::new());
}

/// tcpdump in the vantage point's namespace, from before the traffic until after it.
fn record(namespace: &Namespace, interface: &str, file: &std::path::Path) -> Process {
    let said = file.with_extension("said");
    let script = format!(
        "exec tcpdump -i {interface} -Z root --immediate-mode -U -B 8192 -w {} 2>{}",
        file.display(),
        said.display()
    );
    let tcpdump = spawn(namespace, "sh", &["-c", &script]);
    eventually("the start of tcpdump", || fs::read_to_string(&said).is_ok_and(|said| said.contains("listening on")));
    tcpdump
}

#[test]
fn root_a_capture_taken_beside_a_live_run_gives_the_same_samples() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("beside.pcap");
    let lab = line("beside");
    let recorder = record(lab.vantage(), "server0", &file);
    let watcher = watch(lab.vantage(), &["-i", "server0", "--format", "jsonl"]);
    everyday_traffic(&lab);
    // What is still in tcpdump's buffer is written when it ends.
    thread::sleep(Duration::from_millis(200));
    let live = trips(&watcher.interrupt());
    assert_eq!(recorder.interrupt().status, Some(0));

    let file = file.to_str().unwrap();
    let replayed = trips(&dwell(&["rtt", "-r", file, "--format", "jsonl"]));
    assert_eq!(counts(&live), counts(&replayed));
    let mut apart: Vec<u64> = Vec::new();
    for (key, values) in &live {
        let others = &replayed[key];
        let difference = median(values).0.abs_diff(median(others).0);
        assert!(difference < 1_000_000, "{key:?}: {difference} ns");
        apart.extend(values.iter().zip(others).map(|(a, b)| a.abs_diff(*b)));
    }
    // Sample by sample: two clocks read at two places of the same path through the kernel,
    // between which a busy machine may do other work.
    assert!(median(&apart).0 < 1_000_000, "{apart:?}");
}

#[test]
fn root_xdp_sees_what_tc_sees() {
    if skipped() {
        return;
    }
    let lab = line("xdp");
    let options = ["-i", "server0", "--format", "jsonl", "--methods", METHODS];
    let xdp = watch(lab.vantage(), &[&options[..], &["--hook", "xdp"]].concat());
    let tc = watch(lab.vantage(), &options);
    everyday_traffic(&lab);
    let (xdp, tc) = (trips(&xdp.interrupt()), trips(&tc.interrupt()));
    check_sides(&xdp, &EVERYDAY, 15);
    assert_eq!(counts(&xdp), counts(&tc));
    for (key, values) in &xdp {
        let difference = median(values).0.abs_diff(median(&tc[key]).0);
        assert!(difference < 1_000_000, "{key:?}: {difference} ns");
    }
}

#[test]
fn root_two_on_one_interface_do_not_disturb_each_other() {
    if skipped() {
        return;
    }
    let pair = Pair::start("two");
    let options = ["-i", "left0", "--format", "jsonl"];
    let first = watch(&pair.left, &options);
    let second = watch(&pair.left, &options);
    ping_pong(300).run(pair.ends(), &GO_ON).unwrap();
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let first = trips(&first.interrupt());
    // The other still works.
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let mut second = trips(&second.interrupt());
    let pings = second.get_mut(&("icmp".into(), "10.78.0.2".into())).unwrap();
    assert_eq!(pings.len(), 20);
    pings.truncate(10);
    assert_eq!(counts(&first), counts(&second));
}

#[test]
fn root_two_interfaces_are_told_apart() {
    if skipped() {
        return;
    }
    let lab = line("interfaces");
    let watcher = watch(lab.vantage(), &["-i", "client0", "-i", "server0", "--format", "jsonl"]);
    let as_text = watch(lab.vantage(), &["-i", "client0", "-i", "server0"]);
    ping(10).run(Ends::v4(&lab), &GO_ON).unwrap();
    let samples = of_type(&watcher.interrupt().stdout, "rtt.sample");
    for interface in ["client0", "server0"] {
        let on = samples.iter().filter(|sample| sample["interface"] == interface);
        assert_eq!(on.count(), 10, "{interface}");
    }
    let text = as_text.interrupt().stdout;
    for interface in ["client0", "server0"] {
        let ending = format!("  on {interface}");
        let on = text.lines().filter(|line| line.ends_with(&ending));
        assert_eq!(on.count(), 10, "{text}");
    }
}
