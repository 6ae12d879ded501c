//! libdwell_calls.so: times of calls, and calls that are held back.

use dwell_engine::socket::Estimator;
use dwell_socket::table::{Config, ControllerKind};

use super::harness::{Outcome, library, program, run_with};

fn run(name: &str, arguments: &[&str], config: &Config) -> Outcome {
    let library = library("libdwell_calls.so").display().to_string();
    run_with(&program(name), arguments, config, &library).succeeded()
}

#[test]
fn the_papers_estimator_knows_of_each_write() {
    let config = Config { estimator: Estimator::Paper, ..Config::default() };
    let outcome = run("waits", &["500"], &config);
    let sender = outcome.socket("sender");
    assert_eq!(sender.estimator, Estimator::Paper);
    let peak = outcome.sender_peaks[&sender.cookie];
    let most = outcome.numbers("waited")[0] + 300_000_000;
    assert!((400_000_000..most).contains(&peak), "{peak}");
}

#[test]
fn what_calls_return_is_what_they_return_without_the_library() {
    for controller in [None, Some(ControllerKind::Element)] {
        for estimator in [Estimator::Exact, Estimator::Paper] {
            let config = Config { controller, estimator, ..Config::default() };
            for name in ["ways", "events", "errors", "reset"] {
                run(name, &[], &config);
            }
        }
    }
}

#[test]
fn element_sets_how_calls_are_held_back() {
    let config = Config { controller: Some(ControllerKind::Element), ..Config::default() };
    let outcome = run("waits", &["300"], &config);
    let hold = outcome.socket("sender").setting.hold_above;
    assert!(hold.is_some_and(|hold| hold.times == 8));
}
