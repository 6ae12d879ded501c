//! `dwell stack --baseline` on a real connection that goes on as it was, whose device becomes
//! slower, and whose application reads later.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;

use crate::{
    records::text,
    stack::{PORT, connect, listen, objects_of, stamp},
    support::{DWELL, Pair, Run, ip, run, skipped, spawn, tool},
};

const MESSAGE: usize = 16 << 10;

/// Messages one way, an answer of one byte the other.
struct Traffic {
    ends: Arc<AtomicBool>,
    nap_us: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start((mut client, mut server): (TcpStream, TcpStream)) -> Traffic {
        let ends = Arc::new(AtomicBool::new(false));
        let nap_us = Arc::new(AtomicU64::new(0));
        let (asked, nap) = (Arc::clone(&ends), Arc::clone(&nap_us));
        let sender = thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                client.write_all(&[1; MESSAGE]).unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
        });
        let reader = thread::spawn(move || {
            loop {
                let mut head = [0; MESSAGE];
                // The first byte, so that the rest waits for the nap.
                match server.read_exact(&mut head[..1]) {
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return,
                    read => read.unwrap(),
                }
                thread::sleep(Duration::from_micros(nap.load(Ordering::Relaxed)));
                server.read_exact(&mut head[1..]).unwrap();
                server.write_all(&[1]).unwrap();
            }
        });
        Traffic { ends, nap_us, threads: vec![sender, reader] }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn shape(pair: &Pair, verb: &str, rate: &str) {
    let shape = format!("qdisc {verb} dev left0 root tbf rate {rate} burst 3000 limit 200000");
    tool(&pair.left, "tc", &shape.split(' ').collect::<Vec<_>>());
}

/// What both hosts say, over a longer time while it is not enough: a busy machine stops them now
/// and then, for seconds.
fn watch(pair: &Pair, folder: &Path, more: &[&str], is_enough: impl Fn(&[Run; 2]) -> bool) -> [Run; 2] {
    let side = |namespace, side: &str, duration| {
        let file = folder.join(side).to_str().unwrap().to_owned();
        let mut arguments = vec!["--interval", "100ms", "--sample-bytes", "1024"];
        arguments.extend(["--duration", duration, "--baseline", &file]);
        arguments.extend(more);
        stamp(namespace, &arguments)
    };
    let run = |duration| {
        let left = side(&pair.left, "left", duration);
        let right = side(&pair.right, "right", duration);
        [left.end(), right.end()]
    };
    let tries = ["4s", "8s"].into_iter().map(run);
    let mut enough = tries.filter(|runs| is_enough(runs));
    enough.next().unwrap_or_else(|| run("16s"))
}

/// What is said of all of them.
fn are(run: &Run, segments: &[(&str, &str)], shifted: bool) -> bool {
    let last = |direction: &str, segment: &str| {
        objects_of(run, "stack.shift")
            .into_iter()
            .rfind(|one| text(one, "direction") == direction && text(one, "segment") == segment)
    };
    segments.iter().all(|(direction, segment)| last(direction, segment).is_some_and(|one| one["shifted"] == shifted))
}

/// Of the last comparison.
fn of(run: &Run, direction: &str, segment: &str) -> Value {
    let found = objects_of(run, "stack.shift")
        .into_iter()
        .rfind(|object| text(object, "direction") == direction && text(object, "segment") == segment);
    found.unwrap_or_else(|| panic!("{direction} {segment} is not compared: {run}"))
}

fn assert_shifted(run: &Run, segments: [(&str, &str); 3], ratio: std::ops::Range<f64>) {
    assert_eq!(run.status, Some(1), "{run}");
    for (direction, segment) in segments {
        let found = of(run, direction, segment);
        assert_eq!(found["shifted"], true, "{found}: {run}");
        assert!(found["chance"].as_f64().unwrap() <= 0.01, "{found}");
        assert!(ratio.contains(&found["ratio"].as_f64().unwrap()), "{found}");
    }
    // Others may have shifted too, on a busy machine, but none by as much.
    let compared = objects_of(run, "stack.shift");
    let shifted = compared.iter().rev().take(12);
    let shifted = shifted.filter(|one| one["shifted"] == true);
    let change = |one: &&Value| {
        let median = |side: usize| one["p50_ns"][side].as_u64().unwrap();
        median(0).abs_diff(median(1))
    };
    let most = shifted.max_by_key(change).unwrap();
    let most = (text(most, "direction"), text(most, "segment"));
    assert!(segments.contains(&most), "{most:?}: {run}");
}

const SENDER: [(&str, &str); 3] = [("tx", "queueing"), ("tx", "ip-driver"), ("tx", "total")];
const READER: [(&str, &str); 3] = [("rx", "application"), ("rx", "tcp-socket"), ("rx", "total")];

#[test]
fn root_the_segment_that_became_slower_is_named() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair::start("stack-base");
    ip(&pair.left, "route replace 10.78.0.0/24 dev left0 initcwnd 60 congctl cubic\n");
    shape(&pair, "add", "20mbit");
    let traffic = Traffic::start(connect(&pair, &listen(&pair)));
    traffic.nap_us.store(6_000, Ordering::Relaxed);
    let is_recorded = |runs: &[Run; 2]| runs.iter().all(|run| run.status == Some(0));
    for run in watch(&pair, folder.path(), &["--baseline-record"], is_recorded) {
        assert_eq!(run.status, Some(0), "{run}");
        assert!(run.stderr.contains("recorded a baseline of"), "{run}");
        assert!(objects_of(&run, "stack.shift").is_empty(), "{run}");
    }

    // A busy machine may well make microseconds longer; not the rate, nor the nap.
    let is_same = |[left, right]: &[Run; 2]| are(left, &SENDER, false) && are(right, &READER, false);
    let [left, right] = watch(&pair, folder.path(), &[], is_same);
    for (run, segments) in [(&left, SENDER), (&right, READER)] {
        for (direction, segment) in segments {
            let found = of(run, direction, segment);
            eprintln!("unchanged: {found}");
            assert_eq!(found["shifted"], false, "{found}");
        }
        let last = objects_of(run, "stack.shift");
        let last: Vec<_> = last.iter().filter(|one| one["time"] == last[last.len() - 1]["time"]).collect();
        let is_shifted = last.iter().any(|one| one["shifted"] == true);
        assert_eq!(run.status, Some(i32::from(is_shifted)), "{run}");
    }

    shape(&pair, "change", "2mbit");
    // Less arrives while the reader naps, so that its time shifts as well.
    let is_slower = |[left, _]: &[Run; 2]| are(left, &SENDER, true);
    let [left, _] = watch(&pair, folder.path(), &[], is_slower);
    assert_shifted(&left, SENDER, 4.0..25.0);
    eprintln!("a slower device: {}", of(&left, "tx", "queueing"));

    shape(&pair, "change", "20mbit");
    traffic.nap_us.store(60_000, Ordering::Relaxed);
    // A sender that waits longer in between sends another way, so that it shifts as well.
    let is_later = |[_, right]: &[Run; 2]| are(right, &READER, true);
    let [_, right] = watch(&pair, folder.path(), &[], is_later);
    assert_shifted(&right, READER, 5.0..80.0);
    eprintln!("a later reader: {}", of(&right, "rx", "application"));
}

#[test]
fn root_a_baseline_of_another_kind_or_of_too_little_is_refused() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let pair = Pair::start("stack-unlike");
    let stack = |interval: &str, arguments: &[&str]| {
        let port = PORT.to_string();
        let always = ["stack", "--port", &port, "--interval", interval];
        spawn(&pair.left, DWELL, &[&always[..], arguments].concat()).end()
    };
    let silent = stack("20ms", &["--duration", "1s", "--baseline", &path("none")]);
    assert_eq!(silent.status, Some(4), "{silent}");
    assert!(silent.stderr.contains("no baseline was recorded"), "{silent}");
    assert!(silent.stderr.contains("there were 0"), "{silent}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "it left a file");

    let _traffic = Traffic::start(connect(&pair, &listen(&pair)));
    let kept = path("kept");
    let record = |sample_bytes: &str, more: &[&str]| {
        let always = ["--sample-bytes", sample_bytes, "--baseline", &kept];
        let run = |time| stack("20ms", &[&always[..], more, &["--duration", time]].concat());
        let tries = ["1500ms", "6s"].into_iter().map(run);
        let mut enough = tries.filter(|run| run.status == Some(0));
        enough.next().unwrap_or_else(|| run("15s"))
    };
    let recorded = record("1024", &[]);
    assert_eq!(recorded.status, Some(0), "{recorded}");
    let before = std::fs::read(&kept).unwrap();
    for (interval, arguments, says) in [
        ("20ms", &["--sample-bytes", "2048"][..], "--sample-bytes was 1024 and is 2048"),
        ("20ms", &["--sample-bytes", "1024", "--filter", ":1-6000"], "--filter was none and is :1-6000"),
        ("30ms", &["--sample-bytes", "1024"], "--interval was 20ms and is 30ms"),
    ] {
        let refused = stack(interval, &[arguments, &["--baseline", &kept]].concat());
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains(says), "{refused}");
        assert!(refused.stderr.contains("--baseline-record"), "{refused}");
    }
    let other = String::from_utf8(before.clone()).unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let ours = format!("\"host\":\"{}\"", host.trim());
    assert!(other.contains(&ours));
    for (name, content, says) in [
        ("host", other.replace(&ours, "\"host\":\"elsewhere\""), "the host was elsewhere"),
        ("hook", other.replace("tp_btf/tcp_probe", "kprobe/x"), "the hook of rx-tcp was kprobe/x"),
        ("later", other.replace("baseline/1", "baseline/2"), "its schema is"),
        ("garbage", "{]".to_owned(), "is not a baseline"),
    ] {
        std::fs::write(path(name), content).unwrap();
        let refused = stack("20ms", &["--sample-bytes", "1024", "--baseline", &path(name)]);
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains(says), "{name}: {refused}");
    }
    assert_eq!(std::fs::read(&kept).unwrap(), before);
    let anew = record("2048", &["--baseline-record"]);
    assert_eq!(anew.status, Some(0), "{anew}");
    assert_ne!(std::fs::read(&kept).unwrap(), before);
    let nowhere = stack("20ms", &["--baseline", &path("no/such/folder")]);
    assert_eq!(nowhere.status, Some(2), "{nowhere}");

    let run = run(std::process::Command::new(DWELL).args(["stack", "--baseline-record"]), b"");
    assert_eq!(run.status, Some(2), "{run}");
}
