//! Options of live runs, each compared with a run without it that sees the same packets.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use dwell_testbed::workload::Dns;
use serde_json::Value;

use crate::{
    live_traffic::{GO_ON, ping, ping_pong},
    records::{counters, counts, number, of_type, round_trips, text},
    response_live::respond,
    support::{Pair, skipped, watch},
};

const JSONL: [&str; 4] = ["-i", "left0", "--format", "jsonl"];

fn with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&JSONL[..], options].concat()
}

/// Methods that leave time to print each sample of a loop that takes microseconds.
const FEW: [&str; 2] = ["--methods", "tcp-timestamp,icmp,dns"];

fn traffic(pair: &Pair) {
    ping_pong(500).run(pair.ends(), &GO_ON).unwrap();
    ping(20).run(pair.ends(), &GO_ON).unwrap();
    let dns = Dns { queries: 20, seed: 1 };
    dns.run(pair.ends(), &GO_ON).unwrap();
}

#[test]
fn root_filters_choose_flows() {
    if skipped() {
        return;
    }
    let pair = Pair::start("filter");
    let watchers =
        [&[][..], &["--filter", "10.78.0.0/24:53"], &["--filter", "!10.78.0.0/24:53"], &["--filter", "10.79.0.0/16"]]
            .map(|options| watch(&pair.left, &with(&[&FEW[..], options].concat())));
    traffic(&pair);
    let [all, only, but, none] = watchers.map(|dwell| {
        let run = dwell.interrupt();
        let trips = round_trips(&of_type(&run.stdout, "rtt.sample"));
        (counts(&trips), counters(&run.stderr))
    });
    let is_dns = |key: &(String, String)| key.0 == "dns";
    let part = |wanted: bool| {
        let mut part = all.0.clone();
        part.retain(|key, _| is_dns(key) == wanted);
        part
    };
    assert_eq!(only.0, part(true));
    assert_eq!(but.0, part(false));
    assert_eq!(none.0, BTreeMap::new());
    assert!(all.0.values().sum::<usize>() > 60, "{all:?}");
    assert!(none.1["filtered"] > only.1["filtered"], "{none:?}");
    assert!(!all.1.contains_key("filtered"), "{all:?}");
}

#[test]
fn root_a_rate_limit_keeps_stamps_apart() {
    if skipped() {
        return;
    }
    let pair = Pair::start("rate");
    let every = watch(&pair.left, &JSONL);
    let some = watch(&pair.left, &with(&["--rate-limit", "100ms"]));
    ping_pong(1_000).run(pair.ends(), &GO_ON).unwrap();
    let every = of_type(&every.interrupt().stdout, "rtt.sample");
    let some = of_type(&some.interrupt().stdout, "rtt.sample");
    let mut stamps = BTreeMap::<String, Vec<i64>>::new();
    for sample in &some {
        let stamped = nanos_of_day(text(sample, "time")) - number(sample, "rtt_ns") as i64;
        stamps.entry(text(sample, "dst").to_owned()).or_default().push(stamped);
    }
    assert_eq!(stamps.len(), 2, "both sides: {stamps:?}");
    for side in stamps.values() {
        assert!((4..=12).contains(&side.len()), "{side:?}");
        for pair in side.windows(2) {
            assert!(pair[1] - pair[0] >= 100_000_000, "{side:?}");
        }
    }
    assert!(every.len() > 3 * some.len(), "{} {}", every.len(), some.len());
}

/// Of "2026-01-02T03:04:05.123456789Z"; a test that runs over midnight sees one step too large.
fn nanos_of_day(time: &str) -> i64 {
    let part = |from: usize, to: usize| time[from..to].parse::<i64>().unwrap();
    ((part(8, 10) * 24 + part(11, 13)) * 3600 + part(14, 16) * 60 + part(17, 19)) * 1_000_000_000 + part(20, 29)
}

#[test]
fn root_flow_events_tell_the_life_of_a_connection() {
    if skipped() {
        return;
    }
    let pair = Pair::start("flows");
    let options = ["--flow-events", "--include-handshake", "--methods", "tcp-timestamp"];
    let dwell = watch(&pair.left, &with(&options));
    ping_pong(300).run(pair.ends(), &GO_ON).unwrap();
    let run = dwell.interrupt();
    let flows = of_type(&run.stdout, "rtt.flow");
    let events: Vec<_> = flows.iter().map(|flow| text(flow, "event")).collect();
    assert_eq!(events, ["open", "first-rtt", "close"], "{run}");
    assert_eq!(flows[2]["reason"], "fin");
    let samples = of_type(&run.stdout, "rtt.sample");
    let handshakes = samples.iter().filter(|sample| sample["handshake"] == true);
    assert_eq!(handshakes.count(), 2, "SYN and SYN-ACK: {run}");
    assert_eq!(number(&flows[1], "rtt_ns"), number(&samples[0], "rtt_ns"));
    let early = |sample: &&Value| text(sample, "time") <= text(&flows[2], "time");
    let told = samples.iter().filter(early).count() as u64;
    assert_eq!(number(&flows[2], "samples"), told, "{run}");
    for flow in &flows {
        assert_eq!((&flow["flow"]["src"], &flow["flow"]["dst"]), (&"10.78.0.1".into(), &"10.78.0.2".into()));
        assert_eq!(flow["first_time"], flows[0]["time"]);
    }
}

#[test]
fn root_a_flow_that_falls_silent_is_closed_as_idle() {
    if skipped() {
        return;
    }
    let pair = Pair::start("idle");
    let options = ["--flow-events", "--idle-timeout", "300ms", "--interval", "100ms"];
    let dwell = watch(&pair.left, &with(&[&options[..], &["--duration", "2500ms"]].concat()));
    ping(5).run(pair.ends(), &GO_ON).unwrap();
    let run = dwell.end();
    let flows = of_type(&run.stdout, "rtt.flow");
    let icmp: Vec<_> = flows.iter().filter(|flow| flow["flow"]["proto"] == "ICMP").collect();
    assert_eq!(icmp.last().unwrap()["reason"], "idle", "{run}");
    assert_eq!(number(icmp.last().unwrap(), "samples"), 5, "{run}");
}

#[test]
fn root_aggregates_add_up_to_the_samples_of_a_run_beside() {
    if skipped() {
        return;
    }
    let pair = Pair::start("aggregate");
    let single = watch(&pair.left, &with(&FEW));
    let options = ["--aggregate", "--prefix4", "32", "--interval", "300ms"];
    let groups = watch(&pair.left, &with(&[&FEW[..], &options].concat()));
    traffic(&pair);
    let (single, groups) = (single.interrupt(), groups.interrupt());
    let trips = round_trips(&of_type(&single.stdout, "rtt.sample"));
    let mut sums = BTreeMap::new();
    for group in of_type(&groups.stdout, "rtt.aggregate") {
        let address = text(&group, "prefix").strip_suffix("/32").unwrap();
        let key = (text(&group, "method").to_owned(), address.to_owned());
        *sums.entry(key).or_insert(0) += number(&group, "count") as usize;
        assert!(number(&group, "min_ns") <= number(&group, "p50_ns"), "{group}");
        assert!(number(&group, "p50_ns") <= number(&group, "p99_ns"), "{group}");
        assert!(number(&group, "p99_ns") <= number(&group, "max_ns"), "{group}");
    }
    assert_eq!(sums, counts(&trips));
    // Each of the two counts what it counts itself.
    assert_eq!(counters(&single.stderr)["samples"], counters(&groups.stderr)["samples"]);
    assert_eq!(of_type(&groups.stdout, "rtt.sample"), Vec::<Value>::new());
}

#[test]
fn root_a_summary_tells_the_samples_of_a_run_beside() {
    if skipped() {
        return;
    }
    let pair = Pair::start("summary");
    let single = watch(&pair.left, &with(&FEW));
    let summary = watch(&pair.left, &with(&[&FEW[..], &["--summary"]].concat()));
    traffic(&pair);
    let (single, summary) = (single.interrupt(), summary.interrupt());
    let trips = round_trips(&of_type(&single.stdout, "rtt.sample"));
    let mut sums = BTreeMap::new();
    for line in of_type(&summary.stdout, "rtt.summary") {
        let key = (text(&line, "method").to_owned(), text(&line, "dst").to_owned());
        *sums.entry(key).or_insert(0) += number(&line, "count") as usize;
    }
    assert_eq!(sums, counts(&trips));
}

/// `count` connections over loopback, all open at once, each with `laps` requests and responses. Returns both ends of each.
fn connections(count: usize, laps: usize) -> Vec<TcpStream> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut streams: Vec<_> = (0..count).map(|_| listener.accept().unwrap().0).collect();
        for _ in 0..laps {
            for stream in &mut streams {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                stream.write_all(&byte).unwrap();
            }
        }
        streams
    });
    let mut streams: Vec<_> = (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..laps {
        for stream in &mut streams {
            let mut byte = [1];
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
        }
    }
    streams.extend(server.join().unwrap());
    streams
}

#[test]
fn root_idle_flows_make_room_long_before_an_interval_ends() {
    if skipped() {
        return;
    }
    let options = ["-i", "lo", "--idle-timeout", "1s", "--max-flows", "32", "--interval"];
    let check = |number: usize, verb: &str, more: &[&str]| {
        let namespace = dwell_testbed::Namespace::create(&format!("room{number}")).unwrap();
        let arguments = [&options[..], more].concat();
        // A busy machine takes longer. Epochs of 60 s are looked at each 15 s.
        let is_made = |seconds| {
            let dwell = match verb {
                "rtt" => watch(&namespace, &arguments),
                _ => respond(&namespace, "lo", &arguments),
            };
            // More than there are slots, and nothing comes after them.
            let idle = namespace.enter(|| connections(60, 3)).unwrap();
            thread::sleep(Duration::from_secs(seconds));
            let run = dwell.interrupt();
            drop(idle);
            assert_eq!(run.status, Some(0), "{run}");
            counters(&run.stderr).contains_key("flows expired")
        };
        assert!([3, 8].into_iter().any(is_made), "dwell {verb} {more:?}");
    };
    let runs = [("rtt", &["10m"][..]), ("rtt", &["10m", "--flow-events"]), ("response", &["60s"])];
    thread::scope(|scope| {
        for (number, (verb, more)) in runs.into_iter().enumerate() {
            scope.spawn(move || check(number, verb, more));
        }
    });
}

#[test]
fn root_more_flows_than_there_is_room_for_are_counted_and_the_rest_is_measured() {
    if skipped() {
        return;
    }
    let namespace = dwell_testbed::Namespace::create("many").unwrap();
    let arguments = ["-i", "lo", "--format", "jsonl", "--methods", "tcp-timestamp"];
    let dwell = watch(&namespace, &[&arguments[..], &["--max-flows", "8"]].concat());
    let all = watch(&namespace, &arguments);
    namespace.enter(|| connections(100, 5)).unwrap();
    let (run, all) = (dwell.interrupt(), all.interrupt());
    assert_eq!(run.status, Some(0), "{run}");
    let flows = |run: &crate::support::Run| {
        let mut ports: Vec<_> = of_type(&run.stdout, "rtt.sample")
            .iter()
            .map(|sample| {
                let (sport, dport) = (number(sample, "sport"), number(sample, "dport"));
                (sport.min(dport), sport.max(dport))
            })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports.len()
    };
    // Eight at once; one that nobody answered may have made room for another.
    assert!((1..=50).contains(&flows(&run)), "{}", flows(&run));
    assert!(flows(&all) > 80, "{}", flows(&all));
    let said = counters(&run.stderr);
    assert!(said["untracked"] > 100, "{said:?}");
    assert!(!counters(&all.stderr).contains_key("untracked"));
}
