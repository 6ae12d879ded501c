//! Sockets are watched, whatever the program does with them.

use std::collections::BTreeMap;

use dwell_engine::socket::Account;
use dwell_socket::table::{Config, ControllerKind};

use super::{
    harness::{library, program, run, run_until, run_with},
    skip::{required, skip},
};

fn left(account: &Account) -> u64 {
    let info = &account.reading.info;
    info.bytes_sent.unwrap() - info.bytes_retransmitted.unwrap()
}

#[test]
fn bytes_count_whatever_call_wrote_them() {
    let outcome = run("ways", &[], &Config::default()).succeeded();
    let total = outcome.numbers("total")[0];
    assert_eq!(left(outcome.socket("sender")), total);
    assert_eq!(outcome.socket("sender").totals.written_bytes, total);
}

#[test]
fn what_is_written_before_the_first_look_counts() {
    let config = Config { poll: std::time::Duration::from_millis(100), ..Config::default() };
    let outcome = run("at_once", &[], &config).succeeded();
    let (sender, silent) = (outcome.socket("sender"), outcome.socket("silent"));
    assert_eq!(sender.totals.written_bytes, 40_000);
    assert_eq!(sender.totals.acked_bytes, 40_000);
    assert_eq!(outcome.socket("receiver").totals.received_bytes, 40_000);
    assert_eq!(outcome.socket("receiver").totals.written_bytes, 0);
    assert_eq!(silent.totals.written_bytes, 0);
    assert_eq!(silent.totals.acked_bytes, 0);
    assert_eq!(outcome.socket("twice").totals.written_bytes, 3000);
    assert_eq!(outcome.counts.too_short, 0, "a call again is no connection");
}

#[test]
fn what_shuts_itself_in_is_left_alone() {
    let outcome = run("shut_in", &[], &Config::default()).succeeded();
    assert_eq!(outcome.counts.no_poller, 1);
    assert!(outcome.accounts.is_empty());
}

/// A filter that comes when the poller runs must not kill the program for what the poller does.
#[test]
fn what_shuts_itself_in_while_it_has_connections_lives_on() {
    for how in [&[][..], &["prctl"]] {
        let outcome = run("shut_in_later", how, &Config::default()).succeeded();
        assert_eq!(outcome.counts.no_poller, 1);
        assert_eq!(outcome.socket("before").totals.written_bytes, 1000, "what was seen before is kept");
    }
    // Its writes are cut no more.
    let config = Config { controller: Some(ControllerKind::Lowat), ..Config::default() };
    let library = library("libdwell_calls.so").display().to_string();
    run_with(&program("shut_in_later"), &[], &config, &library).succeeded();
}

#[test]
fn a_poller_does_not_outlive_the_user_that_it_was_begun_by() {
    let outcome = run("user", &[], &Config::default()).succeeded();
    if outcome.output.starts_with("unavailable") {
        required("this process is not root, so it cannot become another user");
        return;
    }
    assert_eq!(left(outcome.socket("before")), 2000);
    assert_eq!(left(outcome.socket("after")), 2000);
}

#[test]
fn bytes_that_go_by_io_uring_count() {
    let outcome = run("uring", &[], &Config::default()).succeeded();
    if outcome.output.starts_with("unavailable") {
        skip("this kernel has no io_uring");
        return;
    }
    assert_eq!(left(outcome.socket("sender")), outcome.numbers("total")[0]);
}

#[test]
fn an_event_loop_with_partial_writes_is_measured() {
    let outcome = run("events", &[], &Config::default()).succeeded();
    assert!(outcome.numbers("short")[0] > 0);
    let sender = outcome.socket("sender");
    assert_eq!(left(sender), outcome.numbers("total")[0]);
    assert!(sender.totals.sender.samples > 0);
}

#[test]
fn a_socket_keeps_its_figures_when_its_descriptor_changes() {
    let outcome = run("descriptors", &[], &Config::default()).succeeded();
    let (moved, taken) = (outcome.socket("moved"), outcome.socket("taken"));
    assert_eq!((left(moved), left(taken)), (11_114, 22_226));
    assert_eq!(moved.fd, Some(700), "it was found at its last descriptor");
    assert_eq!(taken.fd, Some(outcome.numbers("taken")[1] as i32));
    assert!(outcome.counts.too_short > 0, "{:?}", outcome.counts);
}

#[test]
fn no_descriptor_is_taken_from_the_program() {
    let outcome = run("close_all", &[], &Config::default()).succeeded();
    assert_eq!(left(outcome.socket("sender")), 1234);
}

#[test]
fn threads_that_hammer_do_not_disturb_a_connection() {
    let outcome = run("threads", &[], &Config::default()).succeeded();
    assert_eq!(left(outcome.socket("sender")), outcome.numbers("total")[0]);
    assert!(outcome.counts.too_short > 0, "{:?}", outcome.counts);
}

#[test]
fn ten_thousand_connections_fit() {
    let whole = |accounts: &BTreeMap<u64, Account>| {
        let is_whole = |account: &&Account| {
            let info = &account.reading.info;
            info.bytes_received == Some(1000) || info.bytes_sent.is_some() && left(account) == 1000
        };
        accounts.values().filter(is_whole).count()
    };
    let outcome = run_until("many", &["5000"], &Config::default(), |accounts| whole(accounts) == 10_000).succeeded();
    assert_eq!(outcome.numbers("made"), [10_000]);
    assert_eq!(outcome.counts.no_slot, 0);
    assert_eq!(whole(&outcome.accounts), 10_000);
}

#[test]
fn what_a_program_sets_itself_is_left_alone() {
    let config = Config { controller: Some(ControllerKind::Lowat), ..Config::default() };
    let outcome = run("lowat", &[], &config).succeeded();
    assert_eq!(outcome.numbers("before"), [77_777]);
    assert_eq!(outcome.numbers("after"), [88_888]);
    let set = outcome.numbers("never")[0];
    assert_ne!(set, 0, "dwell sets what nobody has set");
    assert_ne!(outcome.numbers("after_before")[0], 0);
    assert!(outcome.socket("sender").setting.notsent_lowat.is_some());
    assert!(outcome.counts.hands_off >= 1);
}

#[test]
fn without_a_controller_nothing_is_set() {
    let outcome = run("lowat", &[], &Config::default()).succeeded();
    assert_eq!(outcome.numbers("never"), [0]);
}

#[test]
fn an_unknown_congestion_control_is_reported() {
    let config = Config { congestion: Some("no_such_control".to_owned()), ..Config::default() };
    let outcome = run("ways", &[], &config).succeeded();
    let refused = outcome.counts.refused.first().expect("it was refused");
    assert!([libc::ENOENT, libc::EPERM].contains(&refused.errno));
    assert!(refused.times >= 2, "of both ends");
}
