//! `dwell-lab socket`: its truth is true, and what it says of a run follows from it.

use std::{collections::BTreeSet, path::Path, time::Duration};

use dwell_experiments::socket::{Offload, Options, Outcome, Scenario, Setting, Watch};
use dwell_testbed::{
    LinkBox,
    skip::{required, skip},
};

use crate::support::{LAB, lab, objects, programs, skipped};

const TIME: Duration = Duration::from_secs(5);

fn outcome(name: &str, setting: Setting, watch: Option<Watch>, time: Duration) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        scenario: Scenario::find(name, None).unwrap(),
        setting,
        watch,
        time,
        offload: Offload::On,
        programs: programs(),
        folder: folder.path().to_owned(),
    };
    dwell_experiments::socket::run(&options).unwrap()
}

/// Whether the calling test is skipped because this host has no link box.
fn without_box() -> bool {
    let lack = LinkBox::missing_requirement();
    if let Some(lack) = &lack {
        skip(lack);
    }
    lack.is_some()
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
        let left = flow.sent.partition_point(|other| other.left_ns <= byte.written_ns);
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
    assert!((0.85..1.15).contains(&ratio), "{mean} ms, {ratio} of what the link takes");
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
    let arguments = ["socket", "slow-reader", "--accuracy"];
    let more = ["--duration", "5s", "--format", "jsonl"];
    let run = lab(&[&arguments[..], &more].concat());
    let lines = objects(&run);
    assert_eq!(lines.len(), 6, "three ways, two sides: {run}");
    for line in &lines {
        assert_eq!(line["type"], "lab.accuracy", "{run}");
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
    let folder = Path::new(LAB).parent().unwrap();
    let places = [folder.to_owned(), folder.join("deps")];
    if !places.iter().any(|place| place.join("libdwell_calls.so").is_file()) {
        required("libdwell_calls.so is not built: cargo build -p libdwell-calls -p libdwell-preload");
        return;
    }
    let watch = Watch { estimator: "exact", outside: false, interval_ms: 100 };
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
fn root_a_bottleneck_that_marks_drops_nothing() {
    if skipped() || without_box() {
        return;
    }
    let outcome = outcome("codel-ecn", Setting::Plain, None, Duration::from_secs(4));
    let queue = outcome.queues.unwrap().to_right.unwrap();
    assert!(queue.packets > 100, "{queue:?}");
    assert!(queue.marked.is_some_and(|marked| marked > 0), "{queue:?}");
    assert_eq!(queue.dropped, 0, "{queue:?}");
    assert!(outcome.flow(0).is_some_and(|flow| !flow.sent.is_empty()));
}

/// Each frame that was sent arrives, and by none of the servers before it can.
fn film(bottleneck: &str) {
    let arguments = ["socket", "video", bottleneck];
    let run = lab(&[&arguments[..], &["--duration", "2s", "--format", "jsonl"]].concat());
    let lines = objects(&run);
    let servers: Vec<_> = lines.iter().map(|line| &line["server"]).collect();
    assert_eq!(servers, ["by throughput", "by waits", "by libdwell"], "{run}");
    for line in &lines {
        assert_eq!(line["type"], "lab.video", "{run}");
        assert_eq!(line["bottleneck"], bottleneck, "{run}");
        let number = |key: &str| line[key].as_u64().unwrap();
        assert_eq!(number("captured"), 60, "{run}");
        assert_eq!(number("sent") + number("skipped"), 60, "{run}");
        assert!(number("bytes") > 100_000, "{run}");
        assert!(number("delay_p50_ns") > 25_000_000, "{run}");
    }
    // By libdwell too many may be late on a busy machine.
    let late = lines[2]["late_share"].as_f64().unwrap() >= 0.01;
    assert_eq!(run.status, Some(i32::from(late)), "{run}");
}

#[test]
fn root_a_video_goes_through_a_fifo() {
    if !skipped() {
        film("fifo");
    }
}

#[test]
fn root_a_video_goes_through_codel() {
    if !skipped() && !without_box() {
        film("codel");
    }
}

#[test]
fn root_tools_tell_of_the_network_and_not_of_the_send_buffer() {
    if skipped() {
        return;
    }
    let run = lab(&["socket", "tools", "--duration", "4s", "--format", "jsonl"]);
    if run.status == Some(3) && run.stderr.contains("there is no program") {
        required(run.stderr.trim());
        return;
    }
    assert_eq!(run.status, Some(0), "{run}");
    let lines = objects(&run);
    assert_eq!(lines.len(), 7, "{run}");
    for line in &lines {
        assert_eq!(line["type"], "lab.tools", "{run}");
        let share = line["share"].as_f64().unwrap();
        match line["tool"].as_str().unwrap() {
            "dwell run" | "libdwell" => assert!((0.6..1.4).contains(&share), "{run}"),
            // Each of its requests is two round trips.
            "httping" => assert!(share < 1.6, "{run}"),
            _ => assert!(share < 0.8, "{run}"),
        }
    }
}

#[test]
fn a_video_behind_an_unknown_bottleneck_or_without_a_frame_is_refused() {
    let unknown = lab(&["socket", "video", "nothing"]);
    assert_eq!(unknown.status, Some(2), "{unknown}");
    let short = lab(&["socket", "video", "--duration", "1ms"]);
    assert_eq!(short.status, Some(2), "{short}");
    assert!(short.stderr.contains("too short"), "{short}");
}

#[test]
fn a_scenario_that_cannot_be_run_is_refused_with_what_to_do() {
    let unknown = lab(&["socket", "nothing"]);
    assert_eq!(unknown.status, Some(2), "{unknown}");
    assert!(unknown.stderr.contains("nothing"), "{unknown}");
    let untraced = lab(&["socket", "10m-50ms", "lte"]);
    assert_eq!(untraced.status, Some(2), "{untraced}");
    assert!(untraced.stderr.contains("--trace FILE"), "{untraced}");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    std::fs::write(&trace, "5\n3\n").unwrap();
    let trace = trace.to_str().unwrap();
    let falling = lab(&["socket", "lte", "--trace", trace]);
    assert_eq!(falling.status, Some(2), "{falling}");
    assert!(falling.stderr.contains("must not decrease"), "{falling}");
}
