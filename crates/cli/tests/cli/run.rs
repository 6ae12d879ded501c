//! `dwell run`: programs behave as without it, and their connections are reported.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    metrics::{are_documented, get_here, value},
    records::{object, objects},
    support::{DWELL, Pair, Run, dwell, eventually, run, skipped, spawn, start},
};

const MS: u64 = 1_000_000;

/// More than the buffers of both ends hold.
pub const MUCH: usize = 24 << 20;

#[test]
fn output_input_and_exit_status_pass_through() {
    let script = "cat; echo whispered >&2; exit 7";
    let mut command = Command::new(DWELL);
    command.args(["run", "--outside", "--write", "/dev/null", "--", "sh", "-c", script]);
    let run = run(&mut command, b"spoken");
    assert_eq!(run, Run { status: Some(7), stdout: "spoken".into(), stderr: "whispered\n".into() });
    // Root's programs inherit a descriptor, with a large number where they may have that.
    let few = "ulimit -n 100; exec \"$0\" run --summary -- sh -c 'exit 7'";
    let few = crate::support::run(Command::new("sh").args(["-c", few, DWELL]), b"");
    assert_eq!(few.status, Some(7), "{few}");
}

#[test]
fn without_connections_it_says_so_and_nothing_else() {
    let run = dwell(&["run", "--outside", "true"]);
    assert_eq!(run.status, Some(0));
    assert_eq!(
        (run.stdout.as_str(), run.stderr.as_str()),
        ("", "No TCP connections were seen; those shorter than 50 ms may be missed.\n")
    );
}

#[test]
fn a_program_that_a_signal_ends_is_told_as_shells_do() {
    for (signal, status) in [("KILL", 137), ("SEGV", 139), ("TERM", 143)] {
        let script = format!("kill -{signal} $$");
        let run = dwell(&["run", "--outside", "--summary", "--", "sh", "-c", &script]);
        assert_eq!(run.status, Some(status), "{run}");
    }
}

#[test]
fn what_cannot_be_run_is_named_and_nothing_starts() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, content: &[u8], mode| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let folder_name = folder.path().to_str().unwrap().to_owned();
    for (program, said) in [
        ("no-such-program".to_owned(), "no such program in PATH"),
        ("/no/such/program".to_owned(), "No such file"),
        (folder_name, "it is a folder"),
        (file("plain", b"#!/bin/sh\n", 0o644), "chmod +x"),
        (file("letter", b"Dear", 0o644), "it is not a program"),
        (file("noise", b"\x00\x01\x02", 0o755), "neither a program of this host"),
        (file("cut", b"\x7fELF", 0o755), "neither a program of this host"),
        (file("orphan", b"#!/no/such/shell\n", 0o755), "No such file"),
    ] {
        let run = dwell(&["run", "--outside", "--", &program]);
        assert_eq!(run.status, Some(2), "{program}: {run}");
        assert!(run.stderr.contains(said), "{program}: {run}");
        assert_eq!(run.stderr.lines().count(), 1, "{run}");
    }
}

#[test]
fn where_figures_cannot_be_written_nothing_starts() {
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let touch = format!("touch {}", trace.display());
    let run = dwell(&["run", "--write", "/no/such/folder/x", "--", "sh", "-c", &touch]);
    assert_eq!(run.status, Some(2), "{run}");
    assert!(run.stderr.contains("nothing was started"), "{run}");
    assert!(!trace.exists());
}

#[test]
fn a_full_disk_ends_the_telling_and_not_the_program() {
    let arguments = ["run", "--outside", "--format", "jsonl", "--write", "/dev/full"];
    for (exit, status) in [("exit 5", 5), ("exit 0", 4)] {
        let run = dwell(&[&arguments[..], &["--", "sh", "-c", &format!("sleep 0.1; echo done; {exit}")]].concat());
        assert_eq!((run.status, run.stdout.as_str()), (Some(status), "done\n"), "{run}");
        assert!(run.stderr.contains("cannot write to /dev/full"), "{run}");
    }
}

#[test]
fn options_that_mean_nothing_together_are_refused() {
    for (arguments, said) in [
        (&["run"][..], "PROGRAM"),
        (&["run", "--outside", "--minimize", "true"], "--minimize"),
        (&["run", "--set", "wireless=true", "true"], "--minimize"),
        (&["run", "--minimize", "--set", "wireless=true", "true"], "--set controller=element"),
        (&["run", "--minimize", "--set", "controller=element", "--set", "estimator=exact", "true"], "estimator=paper"),
        (&["run", "--set", "estimator=papers", "true"], "exact | paper"),
        (&["run", "--set", "wireles=true", "true"], "the keys are: controller, wireless, estimator"),
        (&["run", "--poll", "1us", "true"], "at least 1ms"),
        (&["run", "-p", "443", "--", "true"], "`dwell run` has no option -p"),
        (&["run", "--library", "/no/such/library", "true"], "no such file"),
        (&["run", "--congestion", "renoo", "true"], "no congestion control 'renoo': it has "),
    ] {
        let run = dwell(arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {run}");
        assert!(run.stderr.contains(said), "{arguments:?}: {run}");
    }
    assert_eq!(dwell(&["run", "--congestion", "reno", "true"]).status, Some(0));
}

#[test]
fn a_signal_that_dwell_gets_the_program_gets() {
    let folder = TempDir::new().unwrap();
    let ready = folder.path().join("ready");
    for (signal, name) in [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT")] {
        let script =
            format!("trap 'echo heard {name}; exit 3' {name}; touch {}; while :; do sleep 0.05; done", ready.display());
        let mut command = Command::new(DWELL);
        command.args(["run", "--outside", "--summary", "--", "sh", "-c", &script]);
        let process = start(&mut command);
        eventually("the script runs", || ready.exists());
        process.signal(signal);
        let run = process.end();
        assert_eq!(run.status, Some(3), "{run}");
        assert_eq!(run.stdout, format!("heard {name}\n"), "{run}");
        fs::remove_file(&ready).unwrap();
    }
}

#[test]
fn what_is_ignored_stays_ignored() {
    let mut command = Command::new("sh");
    let script =
        r#"trap '' HUP; exec "$0" run --outside --summary -- sh -c 'kill -HUP $$ $PPID; sleep 0.1; echo lives'"#;
    let run = run(command.args(["-c", script, DWELL]), b"");
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "lives\n"), "{run}");
}

#[test]
fn it_does_not_wait_for_what_the_program_leaves_behind() {
    let script = "sleep 600 >/dev/null 2>&1 & echo $!";
    let begun = Instant::now();
    let run = dwell(&["run", "--outside", "--summary", "--", "sh", "-c", script]);
    let left: i32 = run.stdout.trim().parse().unwrap();
    let lives = kill(Pid::from_raw(left), Signal::SIGKILL);
    assert!(lives.is_ok(), "it was ended too: {run}");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn libraries_that_are_loaded_already_stay() {
    let folder = TempDir::new().unwrap();
    let library = |name: &str| {
        let source = folder.path().join("empty.c");
        fs::write(&source, "").unwrap();
        let path = folder.path().join(name);
        compile(&source, &path, &["-shared", "-fPIC"]);
        path.to_str().unwrap().to_owned()
    };
    let (first, own) = (library("first.so"), library("own.so"));
    let mut command = Command::new(DWELL);
    command.env("LD_PRELOAD", &first).args(["run", "--summary", "--library", &own]);
    command.args(["--", "sh", "-c", "echo $LD_PRELOAD; echo ${DWELL_TABLE%/*}"]);
    let run = run(&mut command, b"");
    let mut lines = run.stdout.lines();
    let loaded = lines.next().and_then(|line| line.split_once(':'));
    let (before, after) = loaded.unwrap_or_else(|| panic!("{run}"));
    assert!(before == first && after.starts_with("/$ORIGIN/../") && after.ends_with(&own), "{run}");
    assert!(lines.next().is_some_and(|table| table.starts_with("/proc/")), "{run}");
}

#[test]
fn what_a_server_that_does_not_read_makes_a_program_wait_is_told() {
    const PAUSE: Duration = Duration::from_millis(300);
    let folder = TempDir::new().unwrap();
    let (port, server) = serve(move |mut stream| {
        // Until the program's buffer is full, and as long again.
        thread::sleep(3 * PAUSE);
        drain(&mut stream);
    });
    let figures = folder.path().join("figures");
    let run = measured(&figures, &talk(&folder, &[]), port, MUCH, 0);
    server.join().unwrap();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "0\n"), "{run}");
    let records = of_port(&figures, "run.socket", port);
    let longest = |key: &str| records.iter().filter_map(|record| record.pointer(key)?.as_u64()).max();
    let wanted = Some(PAUSE.as_nanos() as u64);
    assert!(longest("/sender_waiting_ns") >= wanted, "{records:#?}");
    assert!(longest("/sender_delay/max_ns") >= wanted, "{records:#?}");
    for record in &records {
        assert_eq!(record["viewpoint"], "outside");
        assert_eq!(record["sender_delay"]["method"], "exact");
        assert_eq!(record["flow"]["dst"], "127.0.0.1");
    }
    assert_eq!(records.last().unwrap()["ended"], true, "{records:#?}");
    let summary = of_port(&figures, "run.summary", port);
    assert_eq!(summary.len(), 1);
    // TCP acknowledges the FIN as a byte.
    let sent = summary[0]["sent_bytes"].as_u64().unwrap();
    assert!(sent > 0 && sent <= MUCH as u64 + 1, "{summary:#?}");
}

#[test]
fn connections_are_sorted_by_a_figure_and_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        })
        .collect();
    let own = std::process::id().to_string();
    let watch = |more: &[&str]| {
        let always = ["run", "--pid", &own, "--duration", "300ms", "--interval", "100ms"];
        let run = dwell(&[&always[..], more].concat());
        assert_eq!(run.status, Some(0), "{run}");
        run
    };
    // Those of other tests in this process are in it too.
    let run = watch(&["--format", "jsonl", "--summary", "--by", "max", "--top", "2"]);
    let lines: Vec<_> = run.stderr.lines().filter(|line| line.starts_with('{')).map(object).collect();
    let of_flows = lines.iter().filter(|line| line["type"] == "run.summary" && line["flow"].is_object());
    assert_eq!(of_flows.count(), 2, "{run}");
    let all = lines.iter().find(|line| line["type"] == "run.summary" && line["flow"].is_null()).unwrap();
    assert!(all["connections"].as_u64() >= Some(6), "{all}");
    let text = watch(&["--summary", "--top", "1"]).stderr;
    assert!(text.lines().any(|line| line.contains(" connections, ") && line.ends_with(" of them not shown")), "{text}");
    drop(pairs);
    let wrong = dwell(&["run", "--by", "p99", "--", "true"]);
    assert!(wrong.status == Some(2) && wrong.stderr.contains("bytes | count | mean | max"), "{wrong}");
}

#[test]
fn metrics_say_what_the_program_has_sent_and_where_it_waited() {
    let folder = TempDir::new().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let address = free.clone();
    let (port, server) = serve(move |mut stream| {
        // Until bytes wait in the program's buffer.
        thread::sleep(Duration::from_millis(600));
        let mut buffer = vec![0; 64 << 10];
        let mut left = MUCH;
        while left > 0 {
            left -= stream.read(&mut buffer).unwrap();
        }
        // The program has written all, and waits for the end.
        let mut page = String::new();
        // TCP acknowledges the FIN as a byte.
        let all = MUCH as f64..=MUCH as f64 + 1.0;
        eventually("all bytes in the metrics", || {
            page = get_here(&address, "/metrics");
            value(&page, "dwell_run_sent_bytes_total").is_some_and(|sent| all.contains(&sent))
        });
        let waited = value(&page, "dwell_run_byte_seconds_total{place=\"sender\"}").unwrap();
        let bytes = value(&page, "dwell_run_bytes_total{place=\"sender\"}").unwrap();
        assert!(bytes > 0.0 && bytes <= *all.end() && waited > 0.0, "{page}");
        assert_eq!(value(&page, "dwell_run_connections"), Some(1.0), "not those of Prometheus: {page}");
        assert_eq!(value(&page, "dwell_run_connections_total"), Some(1.0), "{page}");
        assert!(value(&page, "dwell_run_cpu_seconds_total").is_some(), "{page}");
        assert!(!page.contains("127.0.0.1"), "no connection is a label: {page}");
        are_documented(&page, "run");
        shutdown(&stream);
    });
    let mut command = Command::new(DWELL);
    command.args(["run", "--outside", "--format", "none", "--interval", "50ms", "--metrics", &free, "--"]);
    command.arg(talk(&folder, &[])).args(["127.0.0.1", &port.to_string(), &MUCH.to_string(), "0"]);
    let run = run(&mut command, b"");
    server.join().unwrap();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "0\n"), "{run}");
    assert!(run.stderr.contains(&format!("metrics at http://{free}/metrics")), "{run}");
    assert!(!run.stderr.contains("send buf"), "the format none prints nothing: {run}");
}

fn shutdown(stream: &TcpStream) {
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

#[test]
fn what_a_program_that_reads_late_makes_bytes_wait_is_told() {
    let folder = TempDir::new().unwrap();
    // It takes some reads, 100 ms apart.
    let (port, server) = serve(|mut stream| stream.write_all(&[0; 200_000]).unwrap());
    let figures = folder.path().join("figures");
    let run = measured(&figures, &talk(&folder, &[]), port, 0, 100);
    server.join().unwrap();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "200000\n"), "{run}");
    let records = of_port(&figures, "run.socket", port);
    let longest = records.iter().filter_map(|record| record["receiver_delay"]["max_ns"].as_u64());
    assert!(longest.max() >= Some(50 * MS), "{records:#?}");
}

#[test]
fn a_static_program_is_measured_from_outside_and_the_reason_is_told() {
    let folder = TempDir::new().unwrap();
    let program = talk(&folder, &["-static"]);
    let empty = folder.path().join("empty.c");
    fs::write(&empty, "").unwrap();
    let library = folder.path().join("library.so");
    compile(&empty, &library, &["-shared", "-fPIC"]);
    let (port, server) = serve(|mut stream| {
        thread::sleep(Duration::from_millis(300));
        drain(&mut stream);
    });
    let mut command = Command::new(DWELL);
    command.args(["run", "--format", "jsonl", "--interval", "50ms", "--library"]);
    command.arg(&library).arg("--").arg(&program);
    command.args(["127.0.0.1", &port.to_string(), &MUCH.to_string(), "0"]);
    let run = run(&mut command, b"");
    server.join().unwrap();
    assert_eq!(run.status, Some(0), "{run}");
    let notes = run.stderr.lines().filter(|line| line.starts_with("dwell: "));
    assert_eq!(notes.count(), 1, "{run}");
    assert!(run.stderr.contains("linked statically"), "{run}");
    assert!(run.stderr.contains(r#""viewpoint":"outside""#), "{run}");
}

#[test]
fn a_static_program_gets_its_options_from_outside() {
    let folder = TempDir::new().unwrap();
    let program = talk(&folder, &["-static"]);
    // By itself, and started by a program that loads the library.
    for (is_alone, note) in [(true, "options are set from outside"), (false, "their options set, from outside")] {
        let (port, server) = serve(|mut stream| {
            thread::sleep(Duration::from_millis(1500));
            drain(&mut stream);
        });
        let words = [program.to_str().unwrap(), "127.0.0.1", &port.to_string(), &MUCH.to_string(), "0"];
        let mut command = Command::new(DWELL);
        command.args(["run", "--minimize", "--format", "jsonl", "--interval", "50ms", "--"]);
        match is_alone {
            true => command.args(words),
            false => command.args(["sh", "-c", &format!("{}; true", words.join(" "))]),
        };
        let run = run(&mut command, b"");
        server.join().unwrap();
        assert_eq!(run.status, Some(0), "{run}");
        assert!(run.stderr.contains(note), "{run}");
        let records = run.stderr.lines().filter(|line| line.starts_with('{')).map(object);
        assert!(records.into_iter().any(|record| record["notsent_lowat"].as_u64() > Some(0)), "{run}");
    }
}

#[test]
fn minimize_is_advised_for_static_programs_too() {
    let folder = TempDir::new().unwrap();
    for flags in [&[][..], &["-static"]] {
        let (port, server) = serve(|mut stream| {
            // Bytes leave again and again, after a long wait.
            let mut part = vec![0; MUCH / 12];
            for _ in 0..10 {
                thread::sleep(Duration::from_millis(200));
                stream.read_exact(&mut part).unwrap();
            }
            drain(&mut stream);
        });
        let mut command = Command::new(DWELL);
        command.args(["run", "--summary", "--"]).arg(talk(&folder, flags));
        command.args(["127.0.0.1", &port.to_string(), &MUCH.to_string(), "0"]);
        let run = run(&mut command, b"");
        server.join().unwrap();
        assert!(run.stderr.trim_end().ends_with("try --minimize."), "{flags:?}: {run}");
    }
}

#[test]
fn a_program_that_uses_the_c_library_is_measured_inside() {
    let folder = TempDir::new().unwrap();
    for options in [&[][..], &["--minimize"], &["--minimize", "--set", "controller=element"]] {
        let (port, server) = serve(|mut stream| {
            thread::sleep(Duration::from_millis(300));
            drain(&mut stream);
        });
        let figures = folder.path().join("figures");
        let mut command = Command::new(DWELL);
        command.args(["run", "--format", "jsonl", "--interval", "50ms", "--write"]);
        command.arg(&figures).args(options).arg("--");
        command.arg(talk(&folder, &[])).arg("127.0.0.1");
        command.args([port.to_string(), MUCH.to_string(), "0".to_owned()]);
        let run = run(&mut command, b"");
        server.join().unwrap();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{options:?}: {run}");
        let records = of_port(&figures, "run.socket", port);
        assert!(!records.is_empty(), "{options:?}");
        assert!(records.iter().all(|record| record["viewpoint"] == "inside"), "{records:#?}");
        let sent = records.iter().filter_map(|record| record["throughput_bps"].as_u64());
        assert!(sent.max() > Some(0), "{options:?}: {records:#?}");
        let is_set = |record: &Value| record["notsent_lowat"].is_u64();
        let is_lowat = options == ["--minimize"];
        assert_eq!(records.iter().any(is_set), is_lowat, "{options:?}: {records:#?}");
    }
}

#[test]
fn a_static_program_that_another_starts_is_measured_from_outside_and_named() {
    let folder = TempDir::new().unwrap();
    let program = talk(&folder, &["-static"]);
    let (port, server) = serve(|mut stream| {
        thread::sleep(Duration::from_millis(500));
        drain(&mut stream);
    });
    let script = format!("{} 127.0.0.1 {port} {MUCH} 0; exit 9", program.display());
    let run = dwell(&["run", "--interval", "50ms", "--", "sh", "-c", &script]);
    server.join().unwrap();
    assert_eq!(run.status, Some(9), "{run}");
    let notes: Vec<_> = run.stderr.lines().filter(|line| line.starts_with("dwell: ")).collect();
    assert_eq!(notes.len(), 1, "{run}");
    assert!(notes[0].contains("connections of talk"), "{run}");
    assert!(run.stderr.contains(&format!("127.0.0.1:{port}")), "{run}");
}

#[test]
fn root_records_have_the_flows_of_dwell_stack() {
    if skipped() {
        return;
    }
    let pair = Pair::start("run-stack");
    let folder = TempDir::new().unwrap();
    let program = talk(&folder, &[]);
    let mut stack = spawn(
        &pair.left,
        DWELL,
        &["stack", "--flows", "--format", "jsonl", "--interval", "100ms", "--sample-bytes", "1024"],
    );
    let listener = pair.right.enter(|| TcpListener::bind("10.78.0.2:0").unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            drain(&mut stream.unwrap());
        }
    });
    let figures = folder.path().join("figures");
    let mut sockets = BTreeSet::new();
    // A busy machine may poll some of the connections too late.
    for _ in 0..20 {
        if sockets.len() >= 3 {
            break;
        }
        let arguments = [
            "run",
            "--outside",
            "--format",
            "jsonl",
            "--interval",
            "50ms",
            "--write",
            figures.to_str().unwrap(),
            "--",
            program.to_str().unwrap(),
            "10.78.0.2",
            &port.to_string(),
            "1000000000",
            "0",
        ];
        let run = spawn(&pair.left, DWELL, &arguments).end();
        assert_eq!(run.status, Some(0), "{run}");
        let records = of_port(&figures, "run.socket", port);
        sockets.extend(records.iter().map(flow));
    }
    assert!(!stack.has_ended());
    let stack = stack.interrupt();
    let records = objects(&stack.stdout);
    let flows: BTreeSet<_> =
        records.iter().filter(|record| record["direction"] == "tx" && !record["flow"].is_null()).map(flow).collect();
    assert!(!sockets.is_empty());
    assert!(sockets.intersection(&flows).count() > 0, "{sockets:?} {flows:?}");
}

fn flow(record: &Value) -> Vec<String> {
    let keys = ["src", "sport", "dst", "dport", "proto", "id"];
    keys.map(|key| record["flow"][key].to_string()).into()
}

/// Runs the program under dwell, from outside.
fn measured(figures: &Path, program: &Path, port: u16, bytes: usize, pause_ms: u64) -> Run {
    let mut command = Command::new(DWELL);
    command.args(["run", "--outside", "--format", "jsonl", "--interval", "50ms", "--write"]);
    command.arg(figures).arg("--").arg(program).arg("127.0.0.1");
    command.args([port.to_string(), bytes.to_string(), pause_ms.to_string()]);
    run(&mut command, b"")
}

/// Records of this type about connections to this port.
pub fn of_port(figures: &Path, kind: &str, port: u16) -> Vec<Value> {
    let text = fs::read_to_string(figures).unwrap();
    let records = objects(&text).into_iter();
    records.filter(|record| record["type"] == kind && record["flow"]["dport"] == port).collect()
}

/// A server of one connection on loopback.
pub fn serve(talk: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let thread = thread::spawn(move || {
        let mut accepted = None;
        eventually("a connection", || {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.unwrap();
        stream.set_nonblocking(false).unwrap();
        talk(stream);
    });
    (port, thread)
}

pub fn drain(stream: &mut TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
}

/// A program that connects, writes and reads.
pub fn talk(folder: &TempDir, options: &[&str]) -> PathBuf {
    let program = folder.path().join("talk");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/run/talk.c");
    compile(&source, &program, options);
    program
}

fn compile(source: &Path, target: &Path, options: &[&str]) {
    let mut command = Command::new("cc");
    command.args(options).args([OsStr::new("-o"), target.as_os_str(), source.as_os_str()]);
    let run = run(&mut command, b"");
    assert_eq!(run.status, Some(0), "cc: {run}");
}
