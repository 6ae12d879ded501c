//! Processes start and end, and a socket belongs to the process that holds it.

use std::collections::BTreeMap;

use dwell_engine::socket::Account;
use dwell_socket::table::Config;

use super::harness::{Outcome, run, run_until};

fn pids(outcome: &Outcome, name: &str) -> Vec<u32> {
    outcome.pids[&outcome.numbers(name)[0]].iter().copied().collect()
}

#[test]
fn a_forked_child_is_measured_by_itself() {
    let outcome = run("fork_server", &[], &Config::default()).succeeded();
    for child in ["child0", "child1", "child2", "child3", "child4"] {
        let numbers = outcome.numbers(child);
        let account = outcome.socket(child);
        assert_eq!(account.reading.info.bytes_sent, Some(200_000));
        assert_eq!(account.pid, Some(numbers[1] as u32));
    }
    assert_eq!(outcome.counts.no_poller, 0);
}

#[test]
fn a_daemon_goes_on_with_what_its_parent_had() {
    let outcome = run("daemon", &[], &Config::default()).succeeded();
    let daemon = outcome.numbers("daemon")[0] as u32;
    let account = outcome.socket("sender");
    assert_eq!(account.pid, Some(daemon));
    assert_eq!(account.reading.info.bytes_sent, Some(outcome.numbers("total")[0]));
    assert!(pids(&outcome, "sender").len() >= 2, "first it was the parent's");
}

#[test]
fn the_next_program_goes_on_with_what_it_inherits() {
    let outcome = run("exec", &[], &Config::default()).succeeded();
    let account = outcome.socket("sender");
    assert_eq!(account.reading.info.bytes_sent, Some(8000));
    assert_eq!(account.totals.written_bytes, 8000, "of both programs");
    assert_eq!(pids(&outcome, "sender"), [outcome.numbers("pid")[0] as u32]);
    assert_eq!(outcome.counts.processes, 2);
}

#[test]
fn a_storm_of_children_leaves_no_slot_behind() {
    let mut outcome = run("storm", &[], &Config::default()).succeeded();
    let account = outcome.socket("sender");
    assert_eq!(account.reading.info.bytes_sent, Some(outcome.numbers("total")[0]));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let mut sockets = 0;
        let Ok(()) = dwell_socket::Watch::visit(&mut outcome.table, &mut |_| sockets += 1);
        if sockets == 0 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{sockets} stay");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn children_that_share_memory_leave_their_parent_a_poller() {
    let sent = |accounts: &BTreeMap<u64, Account>, bytes| {
        accounts.values().any(|account| account.reading.info.bytes_sent == Some(bytes))
    };
    let is_seen = |accounts: &BTreeMap<u64, Account>| sent(accounts, 1000) && sent(accounts, 77);
    let outcome = run_until("spawn", &[], &Config::default(), is_seen).succeeded();
    assert_eq!(outcome.socket("sender").reading.info.bytes_sent, Some(1000));
    assert_eq!(outcome.socket("later").reading.info.bytes_sent, Some(77));
}

#[test]
fn a_process_has_one_thread_when_it_leaves_its_user_namespace() {
    run("alone", &[], &Config::default()).succeeded();
}

#[test]
fn a_process_ends_when_its_own_threads_have() {
    run("main_exits", &[], &Config::default()).succeeded();
}

#[test]
fn signals_come_to_the_program_and_to_nobody_else() {
    use std::os::unix::process::ExitStatusExt;
    let outcome = run("signals", &[], &Config::default());
    assert!(outcome.numbers("alarms")[0] > 10);
    assert_eq!(outcome.status.signal(), Some(libc::SIGTERM));
}
