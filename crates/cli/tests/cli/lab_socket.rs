//! `dwell lab socket`: its truth is true, and what it says of a run follows from it.

use std::{collections::BTreeSet, path::Path, time::Duration};

use dwell_lab::socket::{Options, Outcome, Scenario, Setting, Watch};

use serde_json::Value;

use crate::support::{DWELL, dwell, skipped};

const TIME: Duration = Duration::from_secs(5);

fn outcome(name: &str, setting: Setting, watch: Option<Watch>, time: Duration) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        scenario: Scenario::find(name, None).unwrap(),
        setting,
        watch,
        time,
        exe: DWELL.into(),
        folder: folder.path().to_owned(),
    };
    dwell_lab::socket::run(&options).unwrap()
}

/// While more is written than leaves, a byte waits until what is before it has left: it waits as long as the link
/// takes for what was unsent as it was written.
#[test]
fn root_bytes_wait_as_long_as_the_link_takes_for_those_before_them() {
    if skipped() {
        return;
    }
    let outcome = outcome("10m-50ms", Setting::Plain, None, TIME);
    assert_eq!(outcome.truth.lost, 0);
    assert!(outcome.sender.is_empty(), "nobody watched");
    let flow = outcome.flow(0).unwrap();
    // Of 10 Mbit/s, headers leave 9.65 for data.
    let goodput = flow.goodput_bps(outcome.span).unwrap();
    assert!((9e6..9.7e6).contains(&goodput), "{goodput}");
    let (from, to) = outcome.span;
    let within = |at: u64| (from..to).contains(&at);
    let (mut waited, mut unsent_for) = (0.0, 0.0);
    let mut bytes = 0;
    for byte in flow.sent.iter().filter(|byte| within(byte.written_ns)) {
        let left = flow
            .sent
            .partition_point(|other| other.left_ns <= byte.written_ns);
        let Some(last) = left.checked_sub(1).map(|last| flow.sent[last]) else {
            continue;
        };
        let unsent = byte.seq.wrapping_sub(last.seq);
        waited += (byte.left_ns - byte.written_ns) as f64;
        unsent_for += f64::from(unsent) * 8e9 / goodput;
        bytes += 1;
    }
    assert!(bytes > 1000, "{bytes}");
    let mean = waited / f64::from(bytes) / 1e6;
    assert!(mean > 50.0, "a send buffer waits: {mean} ms");
    let ratio = waited / unsent_for;
    assert!(
        (0.85..1.15).contains(&ratio),
        "{mean} ms, {ratio} of what the link takes"
    );
    // And nothing arrives before it can.
    let least = flow.end_to_end().points().iter().map(|(_, ns)| *ns).min();
    assert!(least.is_some_and(|ns| ns >= 25_000_000), "{least:?}");
}

/// Both sides of a flow whose receiver is slow have something to estimate. What is asked for is far below what a quiet
/// machine gives.
#[test]
fn root_what_is_said_of_a_slow_reader_is_near_the_truth() {
    if skipped() {
        return;
    }
    let arguments = ["lab", "socket", "slow-reader", "--accuracy"];
    let more = ["--time", "5s", "--format", "jsonl"];
    let run = dwell(&[&arguments[..], &more].concat());
    let lines: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "three ways, two sides: {run}");
    for line in &lines {
        assert_eq!(line["type"], "lab_accuracy", "{run}");
    }
    for line in lines.iter().filter(|line| line["estimator"] == "exact") {
        assert!(line["looks"].as_u64().unwrap() >= 20, "{run}");
        assert!(line["truth_ns"].as_f64().unwrap() > 20e6, "{run}");
        assert!(line["accuracy"].as_f64().unwrap() >= 0.8, "{run}");
    }
    assert!(matches!(run.status, Some(0 | 1)), "{run}");
}

/// Far from the goals, which only a quiet machine can show.
#[test]
fn root_what_is_minimised_waits_less_and_gets_through() {
    if skipped() {
        return;
    }
    let folder = Path::new(DWELL).parent().unwrap();
    let places = [folder.to_owned(), folder.join("deps")];
    if !places
        .iter()
        .any(|place| place.join("libdwell.so").is_file())
    {
        eprintln!("skipped: libdwell.so is not built: cargo build -p libdwell");
        return;
    }
    let watch = Watch {
        estimator: "exact",
        outside: false,
        interval_ms: 100,
    };
    let [plain, short] = [Setting::Plain, Setting::Lowat].map(|setting| {
        let outcome = outcome("10m-50ms", setting, Some(watch), TIME);
        let ways = outcome.sender.iter().map(|look| look.way.as_str());
        assert_eq!(ways.collect::<BTreeSet<_>>(), BTreeSet::from(["inside"]));
        let flow = outcome.flow(0).unwrap();
        let delays = flow.sending().delays(outcome.span).unwrap();
        (delays.mean_ns, flow.goodput_bps(outcome.span).unwrap())
    });
    assert!(short.0 < plain.0 / 2.0, "delays: {plain:?}, {short:?}");
    assert!(short.1 > plain.1 * 0.8, "goodput: {plain:?}, {short:?}");
}

#[test]
fn a_scenario_that_cannot_be_run_is_refused_with_what_to_do() {
    let unknown = dwell(&["lab", "socket", "nothing"]);
    assert_eq!(unknown.status, Some(2), "{unknown}");
    assert!(unknown.stderr.contains("nothing"), "{unknown}");
    let untraced = dwell(&["lab", "socket", "10m-50ms", "lte"]);
    assert_eq!(untraced.status, Some(2), "{untraced}");
    assert!(untraced.stderr.contains("--trace FILE"), "{untraced}");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    std::fs::write(&trace, "5\n3\n").unwrap();
    let trace = trace.to_str().unwrap();
    let falling = dwell(&["lab", "socket", "lte", "--trace", trace]);
    assert_eq!(falling.status, Some(2), "{falling}");
    assert!(falling.stderr.contains("must not decrease"), "{falling}");
}
