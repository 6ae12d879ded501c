//! `dwell-lab stack`: its own checks hold on real traffic, and what it keeps can be read.

use std::process::Command;

use dwell_testbed::{Guest, skip::skip};

use crate::support::{LAB, lab, run, skipped};

#[test]
fn root_a_scenario_adds_up_agrees_with_the_application_and_is_kept() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().join("kept");
    let keep = keep.to_str().unwrap();
    let arguments = ["stack", "buffers", "--duration", "3s", "--keep-in", keep];
    let run = run(Command::new(LAB).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let checks: Vec<_> = run.stdout.lines().filter(|line| line.starts_with("ok ")).collect();
    assert_eq!(checks.len(), 3, "the sum, and two flows: {run}");
    assert!(!run.stdout.contains("FAILS"), "{run}");
    // 10 Mbit/s behind 100 packets: the link emulator's delay, and its queue's.
    let network = run.stdout.lines().find(|line| line.starts_with("network "));
    let mean = network.and_then(|line| line.split_whitespace().nth(2)?.parse::<f64>().ok());
    assert!(mean.is_some_and(|ms| (10.0..140.0).contains(&ms)), "{run}");
    let page = std::fs::read_to_string(format!("{keep}/buffers.html")).unwrap();
    assert!(page.to_lowercase().starts_with("<!doctype html>"));
    let again = lab(&arguments);
    assert_eq!(again.status, Some(2), "what is kept is not written over: {again}");
}

/// A packet that is late by 5 ms is overtaken by those that leave the bottleneck 1.2 ms apart: the first waits for 3.8 ms.
#[test]
fn root_bytes_that_overtake_others_wait_for_them() {
    if skipped() {
        return;
    }
    let run = run(Command::new(LAB).args(["stack", "reordering", "--duration", "3s"]), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let waits = run.stdout.lines().find(|line| line.trim_start().starts_with("rx   reordering")).unwrap_or_default();
    let p90: Vec<&str> = waits.split_whitespace().skip(7).take(2).collect();
    let ms: f64 = p90.first().and_then(|ms| ms.parse().ok()).unwrap_or(0.0);
    assert!(p90.last() == Some(&"ms") && ms > 2.4, "a tenth waits for more than two packets: {run}");
}

#[test]
fn root_rare_samples_cost_less() {
    if skipped() {
        return;
    }
    let arguments = ["stack", "--sampling", "--duration", "500ms"];
    let run = run(Command::new(LAB).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let rows: Vec<Vec<f64>> = run
        .stdout
        .lines()
        .skip(1)
        .map(|line| {
            // Of looks at the sockets in place of stamps.
            let line = line.trim_start().trim_start_matches("dwell run");
            let words = line.split_whitespace().filter(|word| *word != "%");
            words.map(|word| word.parse().unwrap()).collect()
        })
        .collect();
    assert_eq!(rows.len(), 8, "{run}");
    let [dense, rare, looks] = [&rows[0], &rows[6], &rows[7]];
    assert!(looks[0] > 0.0 && looks[1] > 0.0, "delays a second: {run}");
    assert!(dense[1] > 50.0 * rare[1].max(1.0), "samples of the sender: {run}");
    assert!(dense[2] > 50.0 * rare[2].max(1.0), "samples of the receiver: {run}");
}

/// What a run says of another clock is only right if the clocks are compared: the machine's began when it booted.
#[test]
fn root_a_virtual_machine_s_bytes_are_followed_although_its_clock_is_another() {
    let kernels = std::env::var_os("DWELL_KERNELS");
    if skipped() {
        return;
    }
    if let Some(lack) = Guest::missing_requirement() {
        skip(lack);
        return;
    }
    if kernels.is_none() {
        skip("DWELL_KERNELS names no folder with kernels: `make vm`");
        return;
    }
    let arguments = ["stack", "vm", "--duration", "3s"];
    let run = run(Command::new(LAB).args(arguments), b"");
    assert_eq!(run.status, Some(0), "{run}");
    let has = |text: &str| assert!(run.stdout.contains(text), "{text}: {run}");
    has("\nemulated: ");
    has("  emulated-sender → receiver: ");
    has("\nok    segments add up");
    has("the application's clock cannot judge");
    let network = run.stdout.lines().find(|line| line.starts_with("network "));
    let words: Vec<_> = network.unwrap_or_default().split_whitespace().collect();
    // 3 s at 10 Mbit/s are 900 of 4096 bytes.
    let count = words[1].parse::<u64>().unwrap();
    assert!(count > 100, "{run}");
    // Not less than the delay, and not by the hours or the minutes that lie between the clocks.
    let mean = words[2].parse::<f64>().unwrap();
    let mean_ms = match words[3] {
        "ms" => mean,
        "s" => mean * 1e3,
        unit => panic!("{unit}: {run}"),
    };
    assert!((10.0..5000.0).contains(&mean_ms), "{run}");
}

#[test]
fn a_virtual_machine_that_cannot_be_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(LAB);
    command.args(["stack", "vm"]);
    command.env("DWELL_KERNELS", folder.path());
    let refused = run(&mut command, b"");
    assert_eq!(refused.status, Some(3), "{refused}");
    let remedies = ["`make vm` fetches some", "Install the package"];
    assert!(remedies.iter().any(|remedy| refused.stderr.contains(remedy)), "{refused}");
}
