//! `dwell-lab response`: estimates next to what the clients of a load know.

use std::{fs, path::Path};

use dwell_testbed::skip::lacks_program;
use serde_json::Value;

use crate::support::{lab, objects, skipped};

#[test]
fn wrong_options_of_the_lab_are_refused_before_it_begins() {
    for (arguments, words) in [
        (["--plot", "picture.png"], ".svg or .html"),
        (["--estimator", "auto,guess"], "auto, pirate, gap or syn-ack"),
        (["--interval", "1ms"], "at least 10ms"),
        (["--plot-connection", "5"], "--plot <FILE>"),
    ] {
        let run = lab(&[&["response", "web"], &arguments[..]].concat());
        assert_eq!(run.status, Some(2), "{run}");
        assert!(run.stderr.contains(words), "{run}");
    }
    let run = lab(&["response", "wrk", "--ablations"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("--ablations needs a log of each request"), "{run}");
}

#[test]
fn root_the_papers_experiments_stand_next_to_its_words() {
    if skipped() {
        return;
    }
    let run = lab(&["response", "paper", "12", "--duration", "2s", "--format", "jsonl"]);
    assert_eq!(run.status, Some(0), "{run}");
    let lines = objects(&run);
    let of = |kind| lines.iter().filter(move |line| line["type"] == kind);
    // A run per rate: the more requests a server has to compute, the longer each waits.
    let means: Vec<f64> = of("lab.run").map(|run| run["latency"]["mean_ns"].as_f64().unwrap()).collect();
    assert_eq!(means.len(), 4);
    assert!(means[0] > 250_000.0 && means[3] > means[0], "{means:?}");
    let rows: Vec<&Value> = of("lab.paper").collect();
    assert_eq!(rows.len(), 2, "{run}");
    assert!(rows.iter().all(|row| row["paper"] == "strong agreement" && row["here"].is_f64()), "{run}");
}

/// One connection at a time asks, so that all answers are causal, and estimators find them.
#[test]
fn root_estimates_are_near_what_the_clients_know() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("picture.html");
    let run = lab(&"response web --connections 4 --rate 300 --depth 1 --duration 4s --round-trips --ablations \
          --format jsonl"
        .split_whitespace()
        .chain(["--estimator", "auto,pirate,gap --set threshold=1h"])
        .chain(["--plot", picture.to_str().unwrap()])
        .collect::<Vec<_>>());
    assert_eq!(run.status, Some(0), "{run}");
    let lines = objects(&run);
    for line in &lines {
        assert_eq!(line["schema"], "dwell-lab/2");
        assert_eq!((&line["load"], &line["connections"]), (&"web".into(), &4.into()));
    }
    let of = |kind| lines.iter().filter(move |line| line["type"] == kind);

    let named: Vec<(&str, &str)> =
        of("lab.response").map(|row| (row["estimator"].as_str().unwrap(), row["truth"].as_str().unwrap())).collect();
    let estimators = ["auto", "pirate", "gap --set threshold=1h"];
    let expected = estimators.map(|estimator| ["own", "all", "causal"].map(|truth| (estimator, truth)));
    assert_eq!(named, expected.concat(), "{run}");
    for row in of("lab.response") {
        let figure = |one: &str, two: &str| row[one][two].as_f64().unwrap();
        if row["estimator"] == "gap --set threshold=1h" {
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

    let run_line = of("lab.run").next().unwrap();
    let answered = run_line["latency"]["samples"].as_u64().unwrap();
    assert_eq!(run_line["requests"], answered);
    // a packet a request at least passes the programs
    if let Some(packets) = run_line["programs"]["runs"].as_u64() {
        assert!(packets > answered, "{run_line}");
    }

    // no answer passes the vantage point, and the kernel answers sooner than the server
    let mean_ns = |kind| {
        let row = of("lab.round-trips").find(|row| row["of"] == kind);
        row.unwrap_or_else(|| panic!("{run}"))["mean_ns"].as_f64()
    };
    assert_eq!(mean_ns("dwell-rtt"), None);
    let truth_ns = mean_ns("truth").unwrap();
    assert!(mean_ns("syn-ack").unwrap() < truth_ns, "{run}");
    assert!(mean_ns("smoothed-rtt").unwrap() < truth_ns, "{run}");

    let step = |name: &str| {
        let row = of("lab.step").find(|row| row["step"].as_str().unwrap().starts_with(name));
        row.unwrap()["error"]["p50"].as_f64().unwrap()
    };
    // the client sends the next request at once
    assert!((0.0..0.2).contains(&step("request to request")), "{run}");
    // latencies differ too much for a threshold of that kind to find all
    assert!(step("threshold") > 0.05, "{run}");
    assert_eq!(of("lab.heuristics").count(), 4, "{run}");
    for causes in of("lab.causes") {
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
    let arguments = "response memcached --connections 2,4 --rate 200 --duration 1s";
    let run = lab(&arguments.split_whitespace().collect::<Vec<_>>());
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

#[test]
fn a_zoo_lists_its_behaviours_and_knows_no_others() {
    let run = lab(&["response", "zoo", "--list", "http.client get, pause"]);
    assert_eq!(run.status, Some(0), "{run}");
    assert!(run.stdout.lines().any(|line| line == "http.client get, pause 20 ms, far"), "{run}");
    let run = lab(&["response", "zoo", "--list", "unicorn"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("no behaviour has a name that contains unicorn; --list prints them"), "{run}");
    let run = lab(&["response", "zoo", "--round-trips"]);
    assert_eq!(run.status, Some(2), "{run}");
}

/// The verdict on the estimators is left to longer runs; here the truth, the counts and the replay are right.
#[test]
fn root_behaviours_are_scored_by_what_their_clients_know() {
    if skipped() || lacks_program("python3") || lacks_program("tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let words = ["http.client get, pause 0 ms", "bursts of 4 in one packet"];
    let zoo = |more: &[&str]| {
        let run = lab(&[&["response", "zoo", "--format", "jsonl"], &words[..], more].concat());
        assert!(matches!(run.status, Some(0 | 1)), "{run}");
        objects(&run)
    };
    let lines = zoo(&["--duration", "3s", "--keep-in", folder]);

    let scores = |subject: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["type"] == "lab.zoo" && line["of"][subject].is_string()).collect()
    };
    // Four behaviours, three estimators.
    let behaviours = scores("behaviour");
    assert_eq!(behaviours.len(), 12, "{lines:#?}");
    for score in &behaviours {
        let count = |name: &str| score[name].as_u64().unwrap();
        assert!(count("epochs") >= 4, "{score}");
        assert!(count("far_off") <= count("wrong") && count("wrong") <= count("believed"), "{score}");
        assert!(count("serial_believed") <= count("serial") && count("serial") <= count("epochs"), "{score}");
        let is_serial = !score["of"]["behaviour"].as_str().unwrap().starts_with("bursts");
        assert_eq!(count("serial") > 0, is_serial, "{score}");
    }
    let sum = |name: &str| behaviours.iter().map(|score| score[name].as_u64().unwrap()).sum::<u64>();
    let all: Vec<&Value> = lines.iter().filter(|line| line["of"] == "all").collect();
    let estimators: Vec<&str> = all.iter().map(|line| line["estimator"].as_str().unwrap()).collect();
    assert_eq!(estimators, ["auto", "pirate", "gap"]);
    assert_eq!(scores("group").len(), 3);
    for name in ["epochs", "believed", "wrong"] {
        assert_eq!(all.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>(), sum(name), "{name}");
    }
    assert_eq!(lines.iter().filter(|line| line["type"] == "lab.zoo-reliability").count(), 15);

    // The server works 10 to 30 ms on a request, and the far path adds 20 ms.
    for (file, least_ms) in [("http.client-get-pause-0-ms", 10), ("http.client-get-pause-0-ms-far", 30)] {
        let answers = answers(&Path::new(folder).join(format!("{file}.truth.jsonl")));
        assert!(answers.len() > 40, "{file}: {}", answers.len());
        for (start_ns, end_ns) in answers {
            assert!(end_ns - start_ns >= least_ms * 1_000_000, "{file}: {start_ns} to {end_ns}");
        }
    }

    // What was kept gives the same.
    assert_eq!(zoo(&["--replay", folder]), lines);
}

fn answers(file: &Path) -> Vec<(u64, u64)> {
    let text = fs::read_to_string(file).unwrap();
    let times = |line: &str| {
        let answer: Value = serde_json::from_str(line).unwrap();
        (answer["start_ns"].as_u64().unwrap(), answer["end_ns"].as_u64().unwrap())
    };
    text.lines().map(times).collect()
}
