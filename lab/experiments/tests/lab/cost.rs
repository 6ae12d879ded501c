//! `dwell-lab cost`: what one can measure in a moment.

use std::{
    io::{BufRead, BufReader, Read},
    process::Command,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{LAB, lab, prepare, skipped};

#[test]
fn root_the_control_plane_is_measured_and_a_quick_run_decides_no_goal() {
    if skipped() {
        return;
    }
    let figures = |row: &str| {
        let run = lab(&["cost", "control", "--quick", "--row", row]);
        assert_eq!(run.status, Some(4), "{run}");
        let rows = run.stdout.lines().filter(|line| line.ends_with(" ms"));
        let figures = rows.map(|line| line.split_whitespace().rev().nth(1).unwrap_or_default().parse().unwrap());
        let figures: Vec<f64> = figures.collect();
        assert!(figures.iter().all(|ms| *ms > 0.0), "{run}");
        figures.len()
    };
    assert_eq!(figures("a reload of 30 VIPs with 10 backends"), 1);
    assert_eq!(figures("first sample"), 1);
}

#[test]
fn root_ctrl_c_ends_all_benchmarks_but_not_the_table_of_their_limits() {
    if skipped() {
        return;
    }
    let mut child = prepare(Command::new(LAB).args(["cost", "--quick", "--row", "ARP"])).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut told = String::new();
    while !told.ends_with("=== kernel\n") {
        assert!(stdout.read_line(&mut told).unwrap() > 0, "{told}");
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    stdout.read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{told}");
    let table = told.split_once("limit").unwrap().1;
    assert!(table.lines().skip(1).all(|row| row.ends_with("not decided: interrupted")), "{told}");
    assert!(table.contains("build: the product from clean"), "{told}");
}
