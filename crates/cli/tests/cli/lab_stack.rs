//! `dwell lab stack`: its own checks hold on real traffic, and what it keeps can be read.

use std::process::Command;

use crate::support::{DWELL, dwell, run, skipped};

#[test]
fn root_a_scenario_adds_up_agrees_with_the_application_and_is_kept() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().join("kept");
    let keep = keep.to_str().unwrap();
    let arguments = ["lab", "stack", "buffers", "--time", "3s", "--keep", keep];
    let run = run(Command::new(DWELL).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let checks: Vec<_> = run
        .stdout
        .lines()
        .filter(|line| line.starts_with("ok "))
        .collect();
    assert_eq!(checks.len(), 3, "the sum, and two flows: {run}");
    assert!(!run.stdout.contains("FAILS"), "{run}");
    // 10 Mbit/s behind 100 packets: the link emulator's delay, and its queue's.
    let network = run.stdout.lines().find(|line| line.starts_with("network "));
    let mean = network.and_then(|line| line.split_whitespace().nth(2)?.parse::<f64>().ok());
    assert!(mean.is_some_and(|ms| (10.0..140.0).contains(&ms)), "{run}");
    let page = std::fs::read_to_string(format!("{keep}/buffers.html")).unwrap();
    assert!(page.to_lowercase().starts_with("<!doctype html>"));
    let again = dwell(&arguments);
    assert_eq!(
        again.status,
        Some(2),
        "what is kept is not written over: {again}"
    );
}

#[test]
fn root_rare_samples_cost_less() {
    if skipped() {
        return;
    }
    let arguments = ["lab", "stack", "--sampling", "--time", "500ms"];
    let run = run(Command::new(DWELL).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let rows: Vec<Vec<f64>> = run
        .stdout
        .lines()
        .skip(1)
        .map(|line| {
            let words = line.split_whitespace().filter(|word| *word != "%");
            words.map(|word| word.parse().unwrap()).collect()
        })
        .collect();
    assert_eq!(rows.len(), 7, "{run}");
    let [dense, rare] = [&rows[0], &rows[6]];
    assert!(
        dense[1] > 50.0 * rare[1].max(1.0),
        "samples of the sender: {run}"
    );
    assert!(
        dense[2] > 50.0 * rare[2].max(1.0),
        "samples of the receiver: {run}"
    );
}
