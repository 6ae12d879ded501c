//! `dwell run --pid`: a process that runs already.

use std::{
    fs,
    io::{Read, Write},
    process::Command,
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{
    run::{of_port, serve, talk},
    support::{DWELL, Pair, dwell, eventually, skipped, spawn, start},
};

#[test]
fn a_program_that_runs_already_is_measured_until_it_ends() {
    let folder = TempDir::new().unwrap();
    let (port, server) = serve(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        for _ in 0..60 {
            stream.write_all(&[0; 1000]).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut program = Command::new(talk(&folder, &[]));
    program.args(["127.0.0.1", &port.to_string(), "1", "1"]);
    let program = start(&mut program);
    let figures = folder.path().join("figures");
    let mut command = Command::new(DWELL);
    command.args(["run", "--format", "jsonl", "--interval", "100ms", "--write"]);
    command.arg(&figures).args(["--pid", &program.id().to_string()]);
    let watcher = start(&mut command);
    server.join().unwrap();
    assert_eq!(program.end().status, Some(0));
    let run = watcher.end();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let records = of_port(&figures, "run.socket", port);
    let received = records.iter().filter_map(|record| record["receive_throughput_bps"].as_u64());
    assert!(received.max() > Some(0), "{records:#?}");
}

#[test]
fn a_process_that_is_not_there_cannot_be_looked_at() {
    let process = start(&mut Command::new("true"));
    let pid = process.id().to_string();
    process.end();
    let run = dwell(&["run", "--pid", &pid]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains(&format!("no process {pid}")), "{run}");
}

#[test]
fn an_attached_run_ends_after_its_time() {
    let process = start(Command::new("sleep").arg("600"));
    let pid = process.id().to_string();
    let run = dwell(&["run", "--pid", &pid, "--duration", "200ms"]);
    assert_eq!(
        (run.status, run.stderr.as_str()),
        (Some(0), "No TCP connections were seen; those shorter than 50 ms may be missed.\n")
    );
    process.signal(Signal::SIGKILL);
    process.end();
}

#[test]
fn root_a_process_of_another_namespace_is_not_looked_at_from_here() {
    if skipped() {
        return;
    }
    let pair = Pair::start("run-there");
    let process = spawn(&pair.left, "sleep", &["600"]);
    let pid = child_of(process.id()).to_string();
    let run = dwell(&["run", "--pid", &pid]);
    assert_eq!(run.status, Some(3), "{run}");
    assert!(run.stderr.contains(&format!("nsenter -t {pid} -n")), "{run}");
    process.signal(Signal::SIGKILL);
    process.end();
}

/// What the namespace's guard runs.
fn child_of(guard: u32) -> u32 {
    let mut pid = guard;
    eventually("the program runs", || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        if name.is_ok_and(|name| name.trim() == "sleep") {
            return true;
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let child = children.ok().and_then(|list| list.split(' ').next()?.parse().ok());
        pid = child.unwrap_or(pid);
        false
    });
    pid
}
