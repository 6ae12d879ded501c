//! Replays that are waited for, or cut short by a signal.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    records::counters,
    support::{DWELL, prepare, tool_here},
    wire::{capture, pings},
};

/// What takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// A replay whose outputs are read while it runs.
struct Replay {
    child: Child,
    lines: Receiver<String>,
}

impl Replay {
    fn start(path: &Path, options: &[&str]) -> Replay {
        let mut command = Command::new(DWELL);
        prepare(&mut command).stdin(Stdio::piped());
        command.args(["rtt", "-r"]).arg(path).args(options);
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            stdout.lines().for_each(|line| drop(sender.send(line.unwrap())));
        });
        Replay { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("no line came")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// The status, the lines that were not read yet, and what it said.
    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it goes on");
            thread::sleep(Duration::from_millis(5));
        };
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        (status.code(), self.lines.iter().collect(), stderr)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.flush().unwrap();
    encoder.get_ref().clone()
}

#[test]
fn what_is_known_is_shown_while_a_pipe_is_silent_and_ctrl_c_ends_it() {
    let plain = capture(&pings(3));
    // In the middle of a packet, as a writer with a buffer leaves it.
    for bytes in [&plain[..plain.len() - 20], &gzip(&plain)[..]] {
        let mut replay = Replay::start(Path::new("-"), &[]);
        let mut pipe = replay.child.stdin.take().unwrap();
        pipe.write_all(bytes).unwrap();
        assert!(replay.line().starts_with("03:04:05.005000Z  5.00 ms"));
        assert!(replay.line().starts_with("03:04:05.015000Z  5.00 ms"));
        replay.signal(Signal::SIGINT);
        let (status, lines, stderr) = replay.end();
        assert_eq!(status, Some(4), "{stderr}");
        let packets = 5 + lines.len() as u64;
        assert_eq!(counters(&stderr)["packets"], packets);
        let told = format!("dwell: interrupted: the results cover the first {packets} packets of standard input\n");
        assert!(stderr.contains(&told), "{stderr}");
        drop(pipe);
    }
}

#[test]
fn a_pipe_whose_writer_ends_at_the_same_ctrl_c_is_read_to_its_end() {
    let bytes = capture(&pings(3));
    let (now, later) = bytes.split_at(bytes.len() - 20);
    let mut replay = Replay::start(Path::new("-"), &[]);
    let mut pipe = replay.child.stdin.take().unwrap();
    pipe.write_all(now).unwrap();
    replay.line();
    replay.signal(Signal::SIGINT);
    pipe.write_all(later).unwrap();
    drop(pipe);
    let (status, lines, stderr) = replay.end();
    assert_eq!((status, lines.len()), (Some(0), 2), "{stderr}");
    assert_eq!(counters(&stderr)["packets"], 6);
}

#[test]
fn a_named_pipe_that_nobody_writes_to_is_left_at_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    tool_here("mkfifo", &[path.to_str().unwrap()]);
    let replay = Replay::start(&path, &[]);
    thread::sleep(Duration::from_millis(300));
    replay.signal(Signal::SIGTERM);
    let (status, _, stderr) = replay.end();
    assert_eq!(status, Some(4), "{stderr}");
    assert!(stderr.contains("the first 0 packets of "), "{stderr}");
}

#[test]
fn a_named_pipe_is_read_to_its_end_by_any_number_of_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    tool_here("mkfifo", &[path.to_str().unwrap()]);
    let replay = Replay::start(&path, &[]);
    let mut pipe = File::options().write(true).open(&path).unwrap();
    for piece in capture(&pings(3)).chunks(100) {
        pipe.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    drop(pipe);
    let (status, lines, stderr) = replay.end();
    assert_eq!((status, lines.len()), (Some(0), 3), "{stderr}");
}

#[test]
fn ctrl_c_in_the_middle_of_a_file_keeps_the_results_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.pcap");
    fs::write(&path, capture(&pings(20_000))).unwrap();
    let mut command = Command::new(DWELL);
    prepare(command.args(["rtt", "-r"]).arg(&path));
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // It fills the pipe then, and waits for us.
    let mut told = String::new();
    stdout.read_line(&mut told).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    stdout.read_to_string(&mut told).unwrap();
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().unwrap();
    pipe.read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{stderr}");
    let (lines, counted) = (told.lines().count() as u64, counters(&stderr));
    assert!((1..20_000).contains(&lines), "{lines}");
    assert_eq!(counted["samples"], lines);
    let words =
        format!("interrupted: the results cover the first {} packets of {}\n", counted["packets"], path.display());
    assert!(stderr.ends_with(&words), "{stderr}");
}
