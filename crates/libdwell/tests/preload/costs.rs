//! The cost of the library. These print figures, and are run by hand:
//! `cargo test --release -p libdwell costs -- --ignored --nocapture`.

use std::{path::Path, process::Command, time::Instant};

use dwell_engine::socket::Estimator;
use dwell_socket::table::{Config, ControllerKind};

use super::harness::{library, program, run, run_with};

/// Returns the minimum over this many runs.
const RUNS: usize = 5;

fn least(preload: Option<&str>, config: &Config) -> [u64; 2] {
    let library = preload.map_or_else(String::new, |name| library(name).display().to_string());
    let run = || {
        let outcome = run_with(&program("cost"), &[], config, &library).succeeded();
        [outcome.numbers("connection")[0], outcome.numbers("write")[0]]
    };
    (0..RUNS).map(|_| run()).reduce(|least, now| [least[0].min(now[0]), least[1].min(now[1])]).unwrap()
}

#[test]
#[ignore = "a figure"]
fn hooks() {
    let config = Config::default();
    let paper = Config { estimator: Estimator::Paper, ..Config::default() };
    let lowat = Config { controller: Some(ControllerKind::Lowat), ..Config::default() };
    for (name, library, config) in [
        ("no library", None, &config),
        ("libdwell", Some("libdwell_preload.so"), &config),
        ("libdwell, lowat", Some("libdwell_preload.so"), &lowat),
        ("libdwell_calls", Some("libdwell_calls.so"), &config),
        ("libdwell_calls, paper", Some("libdwell_calls.so"), &paper),
    ] {
        let [connection, write] = least(library, config);
        eprintln!("{name}: a connection, both ends: {connection} ns; a write: {write} ns");
    }
}

#[test]
#[ignore = "a figure"]
fn poller() {
    for (sockets, budget) in [(2, 0.02), (100, 0.02), (1000, 0.02), (10_000, 0.02), (10_000, 1.0)] {
        let config = Config { budget, ..Config::default() };
        let count = (sockets / 2).to_string();
        let outcome = run("many", &[&count, "5000"], &config).succeeded();
        let permille = outcome.numbers("cpu_permille")[0];
        eprintln!("{sockets} sockets, budget {budget}: {permille} permille of a core");
    }
}

#[test]
#[ignore = "a figure"]
fn start() {
    for name in [None, Some("libdwell_preload.so")] {
        let run = || {
            let mut command = Command::new(Path::new("/bin/true"));
            if let Some(name) = name {
                command.env("LD_PRELOAD", library(name));
            }
            let began = Instant::now();
            command.status().unwrap();
            began.elapsed()
        };
        let least = (0..300).map(|_| run()).min().unwrap();
        eprintln!("{}: {least:?} to run true", name.unwrap_or("no library"));
    }
}
