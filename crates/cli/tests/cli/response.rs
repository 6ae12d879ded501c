//! `dwell response`: on captures, and compared with the log of a load's client.

use std::path::Path;

use serde_json::Value;

use crate::{records::of_type, support::dwell};

fn capture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    folder.join(name).display().to_string()
}

fn records(arguments: &[&str]) -> Vec<Value> {
    let run = dwell(&[&["response", "--format", "jsonl"], arguments].concat());
    assert_eq!(run.status, Some(0), "{run}");
    epochs_of(&run.stdout)
}

pub fn epochs_of(text: &str) -> Vec<Value> {
    of_type(text, "response.epoch")
}

#[test]
fn an_epoch_is_an_object_with_all_its_fields() {
    let records = records(&["-r", &capture("one-direction.pcap.gz")]);
    assert!(records.len() > 3, "{records:?}");
    for record in &records {
        assert_eq!(record["type"], "response.epoch");
        assert_eq!(record["schema"], "dwell/2");
        assert_eq!(record["interval_ns"], 1_000_000_000);
        // epochs end with the seconds of the clock
        assert!(record["time"].as_str().unwrap().ends_with(".000000000Z"));
        assert!(record["packets"].as_u64().unwrap() > 0);
        // a figure that may be believed, or a reason
        let valid = record["latency"]["valid"].as_bool().unwrap();
        assert_eq!(valid, record["latency"]["reason"].is_null() && !record["latency"]["mean_ns"].is_null());
        let confidence = record["latency"]["confidence"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&confidence));
    }
    let tcp = records.iter().filter(|record| record["flow"]["proto"] == "TCP");
    for record in tcp {
        assert_eq!(record["key"], "5tuple");
        assert_eq!(record["flow"]["dport"], 5201);
        assert_eq!(record["flow"]["src"], "10.77.1.1");
    }
}

#[test]
fn the_modes_are_shown_on_request() {
    let with = ["-r", &capture("line.pcap.gz"), "--estimator", "pirate", "--set", "show-modes=true"];
    let shown = records(&with);
    let modes = |record: &Value| record["modes"].as_array().unwrap().len();
    assert!(shown.iter().any(|record| modes(record) > 1), "{shown:?}");
    let without = records(&with[..4]);
    assert!(without.iter().all(|record| record["modes"].is_null()));
}

#[test]
fn each_heuristic_can_be_left_out() {
    let gaps = |heuristics: &str, marked: bool| -> u64 {
        let shown = records(&[
            "-r",
            &capture("one-direction.pcap.gz"),
            "--estimator",
            "pirate",
            "--set",
            "show-modes=true",
            "--set",
            &format!("heuristics={heuristics}"),
        ]);
        let modes = shown.iter().flat_map(|r| r["modes"].as_array().unwrap());
        modes.filter(|mode| !marked || mode["marked"] == true).map(|mode| mode["count"].as_u64().unwrap()).sum()
    };
    // with ACKs there are more gaps, without the MTU nothing is marked
    assert!(gaps("mtu", false) > gaps("acks,mtu", false));
    assert_eq!(gaps("none", false), gaps("mtu", false));
    assert!(gaps("mtu", true) > 0);
    assert_eq!(gaps("acks", true), 0);
}

#[test]
fn servers_are_told_by_rule() {
    let of = |server| {
        let mut clients: Vec<String> = records(&["-r", &capture("line.pcap.gz"), "--server", server])
            .iter()
            .filter(|record| record["flow"]["proto"] == "TCP")
            .map(|record| record["flow"]["src"].as_str().unwrap().to_owned())
            .collect();
        clients.dedup();
        clients
    };
    assert_eq!(of("10.77.4.2"), ["10.77.1.1"]);
    assert_eq!(of("10.77.1.1"), ["10.77.4.2"]);
}

#[test]
fn a_summary_has_a_line_for_each_flow_server_or_prefix() {
    let summary = |by: &[&str]| {
        let run = dwell(&[&["response", "-r", &capture("get-loop.pcap.gz")], by].concat());
        assert_eq!(run.status, Some(0), "{run}");
        let lines: Vec<Vec<String>> =
            run.stdout.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        assert_eq!(lines[0][..3], ["epochs", "valid", "responses"], "{run}");
        lines[1].clone()
    };
    let flow = summary(&["--summary"]);
    // Each response takes 20 ms: mean, percentiles, and the bounds of the last one.
    assert_eq!(flow[4..12], ["20.0", "ms", "20.0", "ms", "20.0", "ms", "20.0", "ms"]);
    let [from, to] = [&flow[12], &flow[14]].map(|bound| bound.parse::<f64>().unwrap());
    assert!(from <= 20.0 && 20.0 <= to && to <= 1.25 * from, "{flow:?}");
    assert_eq!(flow[16..], ["TCP", "10.0.0.1:40000", "→", "10.0.0.2:80"]);
    assert_eq!(summary(&["--summary=server"])[16..], ["TCP", "10.0.0.2:80"]);
    assert_eq!(summary(&["--summary=prefix", "--prefix4", "16"])[16..], ["10.0.0.0/16"]);
}

#[test]
fn a_summary_is_also_data() {
    let summary = |by: &str| {
        let run = dwell(&["response", "--format", "jsonl", "-r", &capture("get-loop.pcap.gz"), by]);
        of_type(&run.stdout, "response.summary").remove(0)
    };
    let flow = summary("--summary");
    assert_eq!((&flow["flow"]["sport"], &flow["flow"]["client"]), (&40000.into(), &"src".into()), "{flow}");
    let latency = &flow["latency"];
    assert_eq!(latency["valid"], true, "{flow}");
    let [low, p99, high] = ["p99_low_ns", "p99_ns", "p99_high_ns"].map(|key| latency[key].as_u64().unwrap());
    assert!(low <= 20_000_000 && 20_000_000 <= high && (19_900_000..20_200_000).contains(&p99), "{flow}");
    let server = summary("--summary=server");
    assert_eq!((&server["server"], &server["port"]), (&"10.0.0.2".into(), &80.into()), "{server}");
    assert!(server["flow"].is_null() && server["latency"]["count"] == latency["count"], "{server}");
    assert_eq!(summary("--summary=prefix")["prefix"], "10.0.0.0/24");
}

#[test]
fn wrong_options_are_refused() {
    for (arguments, words) in [
        (&["--interval", "1ms"][..], "at least 10ms"),
        (&["--interval", "2m"], "at most 60s"),
        (&["--estimator", "pirate", "--set", "modes=11"], "from 1 to 10"),
        (&["--set", "modes=9"], "--set modes is for --estimator pirate"),
        (&["--estimator", "pirate", "--set", "threshold=1ms"], "for --estimator gap"),
        (&["--set", "show-modes=true"], "for --estimator pirate"),
        (&["--estimator", "syn-ack", "--set", "heuristics=acks"], "for --estimator pirate or gap"),
        (&["--server", "!10.0.0.1"], "without !"),
        (&["--metrics", "127.0.0.1:1"], "cannot be used with"),
        (&["--server", "nowhere"], "not an IP address"),
        (&["--summary", "--prefix4", "16"], "for --metrics, --otlp and --summary=prefix"),
        (&["--estimator", "pirate", "--set", "merge-distance=near"], "a number and a unit"),
        (&["--estimator", "pirate", "--set", "heuristics=none,acks"], "acks,mtu"),
        (&["--estimator", "pirate", "--set", "floor=1"], "from 0 to below 1"),
        (
            &["--set", "mods=4"],
            "the keys are: threshold, modes, merge-distance, rto, floor, heuristics, idle-gap, show-modes",
        ),
        (&["--set", "idle-gap=2m"], "at most 60s"),
        (&["--mtu", "67"], "68..=65535"),
    ] {
        let capture = capture("line.pcap.gz");
        let run = dwell(&[&["response", "-r", &capture], arguments].concat());
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(words), "{arguments:?}: {run}");
    }
}
