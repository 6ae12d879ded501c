//! `dwell run --minimize` on connections that exist already.

use std::process::{Child, Command};

use dwell_testbed::harness::Process;

use crate::{
    run_cgroup::sender,
    support::{Cgroup, DWELL, Pair, dwell, eventually, skipped, start},
};

/// A program that sends as much as it can through 10 Mbit/s, since before dwell watches it.
struct Bulk {
    pair: Pair,
    process: Child,
}

/// More than the kernel keeps unsent by itself with a limit: one piece of 64 KB, and the limit.
const SHORT_BYTES: u64 = 130_000;
const LONG_BYTES: u64 = 200_000;

impl Bulk {
    /// Starts it by a shell that runs `first`, and waits until its send buffer is full.
    fn start(name: &str, first: &str) -> Bulk {
        let pair = Pair::start(name);
        let shape = "qdisc add dev left0 root tbf rate 10mbit burst 10k limit 200k";
        assert!(pair.left.command("tc").args(shape.split(' ')).status().unwrap().success());
        let process = sender(first, &pair).spawn().unwrap();
        let bulk = Bulk { pair, process };
        bulk.becomes_long();
        bulk
    }

    fn becomes_long(&self) {
        eventually("the send buffer is full", || self.unsent() > Some(LONG_BYTES));
    }

    fn becomes_short(&self) {
        eventually("the send buffer is short", || self.unsent().is_some_and(|unsent| unsent < SHORT_BYTES));
    }

    /// The unsent bytes of its connection.
    fn unsent(&self) -> Option<u64> {
        let output = self.pair.left.command("ss").args(["-tinHO"]).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let line = lines.lines().find(|line| line.starts_with("ESTAB"))?;
        line.split_once("notsent:")?.1.split(' ').next()?.parse().ok()
    }

    fn watch(&self, arguments: &[&str]) -> Process {
        let mut watch = self.pair.left.command(DWELL);
        start(watch.args(["run", "--minimize", "--summary"]).args(arguments))
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn root_a_running_program_is_kept_short_and_left_as_it_was() {
    if skipped() {
        return;
    }
    let bulk = Bulk::start("run-live", "");
    let watching = bulk.watch(&["--pid", &bulk.process.id().to_string()]);
    bulk.becomes_short();
    let ended = watching.interrupt();
    assert_eq!(ended.status, Some(0), "{ended}");
    assert!(ended.stderr.contains("the options of 1 connection were reset"), "{ended}");
    bulk.becomes_long();
}

#[test]
fn root_connections_of_a_cgroup_that_existed_before_are_kept_short_and_left_as_they_were() {
    if skipped() {
        return;
    }
    let Some(cgroup) = Cgroup::new("run-live") else {
        return;
    };
    let path = cgroup.0.to_str().unwrap();
    let bulk = Bulk::start("run-live-cgroup", &format!("echo $$ > '{path}/cgroup.procs' &&"));
    // From another network namespace.
    let mut watch = Command::new(DWELL);
    let watching = start(watch.args(["run", "--minimize", "--summary", "--cgroup", path]));
    bulk.becomes_short();
    let ended = watching.interrupt();
    assert_eq!(ended.status, Some(0), "{ended}");
    assert!(ended.stderr.contains("0 connections began"), "{ended}");
    assert!(ended.stderr.contains("the options of 1 connection were reset"), "{ended}");
    bulk.becomes_long();
}

#[test]
fn a_controller_that_needs_the_programs_calls_is_refused() {
    let pid = std::process::id().to_string();
    let run = dwell(&["run", "--pid", &pid, "--minimize", "--set", "controller=element"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("choose another controller"), "{run}");
}
