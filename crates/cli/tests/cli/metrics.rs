//! `--metrics`: what Prometheus reads.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
};

use dwell_testbed::Namespace;

use crate::{
    live_traffic::{GO_ON, ping, ping_pong},
    records::{counters, number, of_type},
    support::{DWELL, Pair, eventually, skipped, spawn, watch},
};

const ADDRESS: &str = "127.0.0.1:9469";

pub fn get(namespace: &Namespace, path: &str) -> String {
    namespace.enter(|| get_here(ADDRESS, path)).unwrap()
}

/// The same in this network namespace.
pub fn get_here(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The names of the metrics of a page.
fn names(page: &str) -> BTreeSet<String> {
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    families.map(|family| family.split(' ').next().unwrap().to_owned()).collect()
}

/// The value of a series by its whole name; None if it is not there.
pub fn value(page: &str, series: &str) -> Option<f64> {
    let mut values = page.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == series).then(|| value.parse().unwrap())
    });
    let first = values.next();
    assert!(values.next().is_none(), "{series} stands there twice");
    first
}

const PINGS: &str = r#"dwell_rtt_seconds_count{interface="left0",method="icmp",prefix="10.78.0.0/24"}"#;

#[test]
fn root_metrics_tell_what_the_samples_say() {
    if skipped() {
        return;
    }
    let pair = Pair::start("metrics");
    let arguments = ["-i", "left0", "--format", "jsonl", "--interval", "100ms", "--methods", "tcp-timestamp,icmp"];
    let dwell = watch(&pair.left, &[&arguments[..], &["--metrics", ADDRESS]].concat());
    ping(20).run(pair.ends(), &GO_ON).unwrap();
    ping_pong(300).run(pair.ends(), &GO_ON).unwrap();
    let mut page = String::new();
    eventually("20 pings in the metrics", || {
        page = get(&pair.left, "/metrics");
        value(&page, PINGS) == Some(20.0)
    });
    // The interval of the last segments may have begun after that of the last ping.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let page = get(&pair.left, "/metrics");
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    assert!(run.stderr.contains(&format!("dwell: metrics at http://{ADDRESS}/metrics\n")));

    let samples = of_type(&run.stdout, "rtt.sample");
    let of = |method: &str| {
        let trips = samples.iter().filter(|sample| sample["method"] == method);
        trips.map(|sample| number(sample, "rtt_ns")).collect::<Vec<_>>()
    };
    for method in ["icmp", "tcp-timestamp"] {
        let labels = format!(r#"interface="left0",method="{method}",prefix="10.78.0.0/24""#);
        let trips = of(method);
        let count = value(&page, &format!("dwell_rtt_seconds_count{{{labels}}}"));
        assert_eq!(count, Some(trips.len() as f64), "{method}");
        let all = value(&page, &format!("dwell_rtt_seconds_bucket{{{labels},le=\"+Inf\"}}"));
        assert_eq!(all, count);
        let sum = value(&page, &format!("dwell_rtt_seconds_sum{{{labels}}}")).unwrap();
        let want = trips.iter().sum::<u64>() as f64 / 1e9;
        assert!((sum - want).abs() <= 0.01 * want, "{method}: {sum}, not {want}");
    }
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("Content-Type: text/plain; version=0.0.4"), "{page}");
    // dwell's own metrics are there, and no client address.
    let told = counters(&run.stderr)["samples"] as f64;
    assert_eq!(value(&page, "dwell_rtt_samples_total"), Some(told), "{page}");
    for series in [
        "dwell_rtt_packets_total",
        "dwell_rtt_events_lost_total",
        r#"dwell_rtt_skipped_packets_total{reason="malformed"}"#,
        r#"dwell_rtt_map_entries{map="flows"}"#,
    ] {
        assert!(value(&page, series).is_some(), "no {series} in {page}");
    }
    assert!(!page.contains("10.78.0.1"), "{page}");
    assert!(!page.contains("10.78.0.2"), "{page}");
}

#[test]
fn root_another_path_is_not_found_and_the_run_goes_on() {
    if skipped() {
        return;
    }
    let pair = Pair::start("paths");
    let dwell = watch(&pair.left, &["-i", "left0", "--metrics", ADDRESS]);
    assert!(get(&pair.left, "/").starts_with("HTTP/1.1 404 "));
    assert!(get(&pair.left, &"/x".repeat(10_000)).starts_with("HTTP/1.1 4"));
    ping(5).run(pair.ends(), &GO_ON).unwrap();
    assert_eq!(dwell.interrupt().stdout.lines().count(), 5);
}

#[test]
fn root_a_taken_address_is_told_before_anything_is_attached() {
    if skipped() {
        return;
    }
    let pair = Pair::start("taken-address");
    let arguments = ["-i", "left0", "--metrics", ADDRESS];
    let first = watch(&pair.left, &arguments);
    let second = spawn(&pair.left, DWELL, &[&["rtt"], &arguments[..]].concat()).end();
    assert_eq!((second.status, second.stdout.as_str()), (Some(2), ""), "{second}");
    assert!(second.stderr.contains("cannot serve metrics on 127.0.0.1:9469"), "{second}");
    assert_eq!(first.interrupt().status, Some(0));
}

/// Fails unless each metric of a page is in the guide of its verb.
pub fn are_documented(page: &str, verb: &str) {
    let guide = read(&format!("docs/guide/{verb}.md"));
    for name in names(page).into_iter().filter(|name| name.starts_with(&format!("dwell_{verb}_"))) {
        assert!(guide.contains(&format!("`{name}`")), "docs/guide/{verb}.md has no {name}");
    }
}

fn read(file: &str) -> String {
    std::fs::read_to_string(dwell_testbed::pages::root().join(file)).unwrap()
}
