//! What the tests share: runs of `dwell-lab`.

use std::{path::Path, process::Command};

use dwell_experiments::Programs;
use serde_json::Value;

pub use dwell_testbed::harness::{Run, eventually, prepare, run, skipped};

pub const LAB: &str = env!("CARGO_BIN_EXE_dwell-lab");

/// Runs dwell-lab to its end, without anything on its input.
pub fn lab(arguments: &[&str]) -> Run {
    run(Command::new(LAB).args(arguments), b"")
}

/// The objects that a run has printed, one per line.
pub fn objects(run: &Run) -> Vec<Value> {
    let lines = run.stdout.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{run}"))).collect()
}

/// The binaries that were built together.
pub fn programs() -> Programs {
    let lab = Path::new(LAB);
    Programs { dwell: Programs::dwell_of(lab), lab: lab.to_owned() }
}
