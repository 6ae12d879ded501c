//! `dwell response`: from captures, and beside what a load's client knows.

use std::path::Path;

use serde_json::Value;

use crate::support::{dwell, skipped};

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
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_epoch_is_an_object_with_all_its_fields() {
    let records = records(&["-r", &capture("one-direction.pcap.gz")]);
    assert!(records.len() > 3, "{records:?}");
    for record in &records {
        assert_eq!(record["type"], "response");
        assert_eq!(record["schema"], "dwell.response/1");
        assert_eq!(record["epoch_ns"], 1_000_000_000);
        // epochs end with the seconds of the clock
        assert!(record["time"].as_str().unwrap().ends_with(".000000000Z"));
        assert!(record["packets"].as_u64().unwrap() > 0);
        // a figure that may be believed, or a reason
        let valid = record["valid"].as_bool().unwrap();
        assert_eq!(valid, record["reason"].is_null() && !record["response_ns"].is_null());
        let confidence = record["confidence"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&confidence));
    }
    let tcp = records.iter().filter(|record| record["proto"] == "TCP");
    for record in tcp {
        assert_eq!(record["key"], "5tuple");
        assert_eq!(record["dport"], 5201);
        assert_eq!(record["src"], "10.77.1.1");
    }
}

#[test]
fn the_modes_are_shown_on_request() {
    let with = ["-r", &capture("line.pcap.gz"), "--estimator", "pirate", "--show-modes"];
    let shown = records(&with);
    let modes = |record: &Value| record["modes"].as_array().unwrap().len();
    assert!(shown.iter().any(|record| modes(record) > 1), "{shown:?}");
    let without = records(&with[..4]);
    assert!(without.iter().all(|record| record.get("modes").is_none()));
}

#[test]
fn each_heuristic_can_be_left_out() {
    let gaps = |heuristics: &str, marked: bool| -> u64 {
        let shown = records(&[
            "-r",
            &capture("one-direction.pcap.gz"),
            "--estimator",
            "pirate",
            "--show-modes",
            "--heuristics",
            heuristics,
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
            .filter(|record| record["proto"] == "TCP")
            .map(|record| record["src"].as_str().unwrap().to_owned())
            .collect();
        clients.dedup();
        clients
    };
    assert_eq!(of("10.77.4.2"), ["10.77.1.1"]);
    assert_eq!(of("10.77.1.1"), ["10.77.4.2"]);
}

#[test]
fn a_summary_has_a_line_a_flow() {
    let run = dwell(&["response", "-r", &capture("one-direction.pcap.gz"), "--summary"]);
    assert_eq!(run.status, Some(0), "{run}");
    assert!(run.stdout.starts_with("epochs  valid"), "{run}");
    assert!(run.stdout.contains("TCP 10.77.1.1:58338 → 10.77.4.2:5201"), "{run}");
}

#[test]
fn wrong_options_are_refused() {
    for (arguments, words) in [
        (&["--epoch", "1ms"][..], "at least 10ms"),
        (&["--epoch", "2m"], "at most 60s"),
        (&["--estimator", "pirate", "--modes", "11"], "1..=10"),
        (&["--modes", "9"], "--modes is for --estimator pirate"),
        (&["--estimator", "pirate", "--threshold", "1ms"], "for --estimator gap"),
        (&["--show-modes"], "for --estimator pirate"),
        (&["--estimator", "syn-ack", "--heuristics", "acks"], "for --estimator pirate or gap"),
        (&["--server", "!10.0.0.1"], "without !"),
        (&["--metrics", "127.0.0.1:1"], "cannot be used with"),
        (&["--server", "nowhere"], "no IP address"),
        (&["--summary", "--format", "jsonl"], "--summary is text"),
        (&["--estimator", "pirate", "--merge-distance", "near"], "a number and a unit"),
        (&["--estimator", "pirate", "--heuristics", "none,acks"], "goes with no other"),
        (&["--estimator", "pirate", "--floor", "1"], "from 0 to below 1"),
        (&["--mtu", "67"], "68..=65535"),
    ] {
        let capture = capture("line.pcap.gz");
        let run = dwell(&[&["response", "-r", &capture], arguments].concat());
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(words), "{arguments:?}: {run}");
    }
}

#[test]
fn wrong_options_of_the_lab_are_refused_before_it_begins() {
    for (arguments, words) in [
        (["--plot", "picture.png"], ".svg or .html"),
        (["--estimator", "auto,guess"], "auto, pirate, gap or syn-ack"),
        (["--epoch", "1ms"], "at least 10ms"),
        (["--plot-connection", "5"], "--plot <FILE>"),
    ] {
        let run = dwell(&[&["lab", "response", "web"], &arguments[..]].concat());
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(words), "{run}");
    }
    let run = dwell(&["lab", "response", "wrk", "--ablations"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("--ablations needs a log of each request"), "{run}");
}

/// One connection at a time asks, so that all answers are causal, and estimators find them.
#[test]
fn root_estimates_are_near_what_the_clients_know() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("picture.html");
    let run = dwell(
        &"lab response web --connections 4 --rate 300 --depth 1 --duration 4s --round-trips --ablations \
          --format jsonl"
            .split_whitespace()
            .chain(["--estimator", "auto,pirate,gap --threshold 1h"])
            .chain(["--plot", picture.to_str().unwrap()])
            .collect::<Vec<_>>(),
    );
    assert_eq!(run.status, Some(0), "{run}");
    let lines: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_eq!(line["schema"], "dwell.lab_response/1");
        assert_eq!((&line["load"], &line["connections"]), (&"web".into(), &4.into()));
    }
    let of = |kind| lines.iter().filter(move |line| line["type"] == kind);

    let named: Vec<(&str, &str)> =
        of("lab_response").map(|row| (row["estimator"].as_str().unwrap(), row["truth"].as_str().unwrap())).collect();
    let estimators = ["auto", "pirate", "gap --threshold 1h"];
    let expected = estimators.map(|estimator| ["own", "all", "causal"].map(|truth| (estimator, truth)));
    assert_eq!(named, expected.concat(), "{run}");
    for row in of("lab_response") {
        let figure = |one: &str, two: &str| row[one][two].as_f64().unwrap();
        if row["estimator"] == "gap --threshold 1h" {
            // an option that leaves nothing to find
            assert_eq!((&row["estimates"], &row["error"]["p50"]), (&0.into(), &Value::Null));
            continue;
        }
        assert!(row["estimates"].as_u64().unwrap() >= 8, "{row}");
        assert!(figure("error", "size_p50") < 0.2, "{row}");
        assert!(figure("error", "p5") <= figure("error", "p95"), "{row}");
        assert!(figure("error", "within_5") <= figure("error", "within_15"), "{row}");
        // a server that takes 1 to 20 ms
        assert!((5e6..100e6).contains(&figure("truth_ns", "mean")), "{row}");
        let ratio = figure("estimate_ns", "p50") / figure("truth_ns", "p50");
        assert!((0.8..1.2).contains(&ratio), "{row}");
    }

    let run_line = of("lab_run").next().unwrap();
    let answered = run_line["latency"]["samples"].as_u64().unwrap();
    assert_eq!(run_line["requests"], answered);
    // a packet a request at least passes the programs
    if let Some(packets) = run_line["programs"]["runs"].as_u64() {
        assert!(packets > answered, "{run_line}");
    }

    // no answer passes the vantage point, and the kernel answers sooner than the server
    let mean_ns = |kind| {
        let row = of("lab_round_trips").find(|row| row["of"] == kind);
        row.unwrap_or_else(|| panic!("{run}"))["mean_ns"].as_f64()
    };
    assert_eq!(mean_ns("dwell-rtt"), None);
    let truth_ns = mean_ns("truth").unwrap();
    assert!(mean_ns("syn-ack").unwrap() < truth_ns, "{run}");
    assert!(mean_ns("smoothed-rtt").unwrap() < truth_ns, "{run}");

    let step = |name: &str| {
        let row = of("lab_step").find(|row| row["step"].as_str().unwrap().starts_with(name));
        row.unwrap()["error"]["p50"].as_f64().unwrap()
    };
    // the client sends the next request at once
    assert!((0.0..0.2).contains(&step("request to request")), "{run}");
    // latencies differ too much for a threshold of that kind to find all
    assert!(step("threshold") > 0.05, "{run}");
    assert_eq!(of("lab_heuristics").count(), 4, "{run}");
    for causes in of("lab_causes") {
        let count = |name: &str| causes[name].as_u64().unwrap();
        let each = ["late", "staggered", "both", "neither"].map(count);
        assert_eq!(each.iter().sum::<u64>(), count("large"), "{causes}");
    }

    let html = std::fs::read_to_string(picture).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>"), "{html}");
    assert_eq!(html.matches("<clipPath").count(), 3, "{html}");
    for name in [">auto</text>", ">pirate</text>", ">truth: all answers</text>"] {
        assert_eq!(html.matches(name).count(), 2, "{name}: {html}");
    }
}

#[test]
fn root_a_sweep_ends_with_a_line_a_run() {
    if skipped() {
        return;
    }
    let arguments = "lab response memcached --connections 2,4 --rate 200 --duration 1s";
    let run = dwell(&arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(run.status, Some(0), "{run}");
    let rows: Vec<Vec<&str>> = run
        .stdout
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("connections    asked"))
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .filter(|row: &Vec<&str>| !row.is_empty())
        .collect();
    assert_eq!(rows.len(), 2, "{run}");
    for (row, connections) in rows.iter().zip(["2", "4"]) {
        assert_eq!((row[0], row[1], row[6]), (connections, "200", "auto"), "{run}");
        let figure = |column: usize| row[column].parse::<f64>().unwrap();
        assert!((50.0..400.0).contains(&figure(2)), "{run}");
        // median and 99th percentile
        assert!(figure(4) <= figure(5), "{run}");
        assert!(run.stdout.contains(&format!("connections {connections}\n")), "{run}");
    }
}
