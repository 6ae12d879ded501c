//! `dwell run --cgroup`: connections of a service, in whatever network namespace.

use std::{fs, io::Read, net::TcpListener, process::Command, thread};

use serde_json::Value;

use crate::records::objects;
use crate::support::{Cgroup, DWELL, Pair, dwell, eventually, run, skipped, start};

/// A process that sends for as long as it lives, after its shell has run `first`, and another that reads all.
pub fn sender(first: &str, pair: &Pair) -> Command {
    let listening = pair.right.enter(|| TcpListener::bind((dwell_testbed::Pair::RIGHT, 0)));
    let listener = listening.unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 1 << 16];
        while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    });
    let script = format!("{first} exec cat /dev/zero > /dev/tcp/{}/{port}", dwell_testbed::Pair::RIGHT);
    let mut command = pair.left.command("bash");
    command.args(["-c", &script]);
    command
}

#[test]
fn root_connections_of_a_cgroup_are_seen_in_other_namespaces_and_kept_short() {
    if skipped() {
        return;
    }
    let Some(cgroup) = Cgroup::new("run") else {
        return;
    };
    let pair = Pair::start("run-cgroup");
    let path = cgroup.0.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("sockets.jsonl");
    let arguments = ["run", "--minimize", "--interval", "100ms", "--format", "jsonl"];
    let mut watch = Command::new(DWELL);
    watch.args(arguments).args(["--cgroup", path, "--write"]);
    let watching = start(watch.arg(&output));
    // The program is attached once the file exists and an empty interval was reported.
    eventually("dwell watches", || output.exists());
    thread::sleep(std::time::Duration::from_millis(500));
    let mut process = sender(&format!("echo $$ > '{path}/cgroup.procs' &&"), &pair).spawn().unwrap();
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&output).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        objects(whole)
    };
    let pid = process.id();
    eventually("the connection is told", || {
        lines().iter().any(|line: &Value| {
            line["type"] == "run.socket"
                && line["pid"] == pid
                && line["flow"]["dst"] == dwell_testbed::Pair::RIGHT.to_string()
                && line["throughput_bps"].as_f64() > Some(1e6)
        })
    });
    process.kill().unwrap();
    process.wait().unwrap();
    let ended = watching.interrupt();
    assert_eq!(ended.status, Some(0), "{ended}");
    assert!(ended.stderr.contains("1 connection began"), "{ended}");
}

#[test]
fn what_is_no_cgroup_is_refused_before_anything_is_watched() {
    let run = dwell(&["run", "--cgroup", "/proc"]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("cgroup v2"), "{run}");
    let both = run_usage(&["--cgroup", "/", "--minimize", "--set", "controller=element"]);
    assert!(both.contains("leave it out"), "{both}");
}

fn run_usage(arguments: &[&str]) -> String {
    let mut command = Command::new(DWELL);
    let run = run(command.arg("run").args(arguments), b"");
    assert_eq!(run.status, Some(2), "{run}");
    run.stderr
}
