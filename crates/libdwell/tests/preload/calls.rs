//! libdwell_calls.so: the times of calls, and calls that are delayed.

use std::collections::BTreeMap;

use dwell_engine::socket::{Account, Estimator};
use dwell_socket::table::{Config, ControllerKind};

use super::harness::{Outcome, library, program, run_with, watch};

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
    for controller in [None, Some(ControllerKind::Lowat), Some(ControllerKind::Element)] {
        for estimator in [Estimator::Exact, Estimator::Paper] {
            let config = Config { controller, estimator, ..Config::default() };
            for name in ["ways", "events", "errors", "reset", "reuse"] {
                run(name, &[], &config);
            }
        }
    }
}

#[test]
fn messages_of_threads_that_share_a_connection_stay_whole() {
    let config = Config { controller: Some(ControllerKind::Lowat), ..Config::default() };
    let outcome = run("writers", &[], &config).succeeded();
    assert!(outcome.numbers("messages")[0] > 0);
    assert!(outcome.socket("sender").setting.piece_bytes.is_some(), "its writes were not cut");
}

#[test]
fn signals_and_timeouts_end_a_write_in_pieces_as_they_end_a_whole_one() {
    let config = Config { controller: Some(ControllerKind::Lowat), ..Config::default() };
    let outcome = run("limits", &[], &config);
    assert!(outcome.socket("second").setting.piece_bytes.is_some(), "its writes were not cut");
}

#[test]
fn a_connection_that_replaces_another_at_its_socket_has_delays_of_its_own() {
    let config = Config { estimator: Estimator::Paper, ..Config::default() };
    let library = library("libdwell_calls.so").display().to_string();
    // The first connection carries 4 MB in 64 writes, each of which has one delay at most. The second carries 1000 bytes
    // in each write, and never as many in all.
    let is_seen = |accounts: &BTreeMap<u64, Account>| {
        let mut totals = accounts.values().map(|account| account.totals);
        totals.clone().any(|it| it.sender.samples >= 64 + 20) && totals.any(|it| it.receiver.samples > 0)
    };
    let outcome = watch(&program("reconnect"), &[], &config, &library, is_seen).succeeded();
    let sender = outcome.socket("sender");
    let [first, second] = [outcome.numbers("first")[0], outcome.numbers("second")[0]];
    let samples = sender.totals.sender.samples;
    assert!((first + 20..=first + second).contains(&samples), "{first}, {second}: {sender:?}");
    let receiver = outcome.socket("receiver");
    assert!(receiver.totals.receiver.samples > 0, "reads are part of Algorithm 2: {receiver:?}");
}

#[test]
fn element_sets_how_calls_are_held_back() {
    let config = Config { controller: Some(ControllerKind::Element), ..Config::default() };
    let outcome = run("waits", &["300"], &config);
    let hold = outcome.socket("sender").setting.hold_above;
    assert!(hold.is_some());
}
