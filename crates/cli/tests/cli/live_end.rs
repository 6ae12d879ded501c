//! The end of a live run: its last output, and that it leaves nothing behind.

use std::{
    fs::File,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::{
    live_traffic::{GO_ON, ping, ping_pong},
    records::{counters, number, of_type},
    support::{DWELL, Pair, eventually, filters, ip, links, prepare, programs, run, skipped, spawn, tool, watch},
};

#[test]
fn root_a_run_of_a_given_length_ends_by_itself() {
    if skipped() {
        return;
    }
    let pair = Pair::start("duration");
    let begun = Instant::now();
    let dwell = watch(&pair.left, &["-i", "left0", "--duration", "2s"]);
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let run = dwell.end();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(run.status, Some(0), "{run}");
    assert_eq!(run.stdout.lines().count(), 10, "{run}");
    assert_eq!(counters(&run.stderr)["samples"], 10);
    assert_eq!(run.stderr.lines().count(), 1, "{run}");
    assert_eq!(programs(&pair.left, "left0"), [0, 0, 0]);
}

#[test]
fn root_interrupted_or_terminated_it_tells_the_last_interval_and_leaves_nothing() {
    if skipped() {
        return;
    }
    let pair = Pair::start("signals");
    for (signal, hook, attached) in [(Signal::SIGINT, "tc", [0, 1, 1]), (Signal::SIGTERM, "xdp", [1, 0, 1])] {
        let dwell = watch(&pair.left, &["-i", "left0", "--aggregate", "--interval", "1h", "--hook", hook]);
        assert_eq!(programs(&pair.left, "left0"), attached);
        ping(10).run(pair.ends(), &GO_ON).unwrap();
        dwell.signal(signal);
        let run = dwell.end();
        assert_eq!(run.status, Some(0), "{signal}: {run}");
        assert!(run.stdout.contains("  10 samples in "), "{signal}: {run}");
        let row = ["left0", "icmp", "10.78.0.0/24", "10"];
        let is_row = |line: &str| line.split_whitespace().take(4).eq(row);
        assert!(run.stdout.lines().any(is_row), "{signal}: {run}");
        assert_eq!(counters(&run.stderr)["samples"], 10);
        assert_eq!(programs(&pair.left, "left0"), [0, 0, 0], "{signal}");
    }
}

#[test]
fn root_killed_it_leaves_nothing() {
    if skipped() {
        return;
    }
    let pair = Pair::start("killed");
    for (hook, attached) in [("tc", [0, 1, 1]), ("xdp", [1, 0, 1])] {
        let dwell = watch(&pair.left, &["-i", "left0", "--hook", hook]);
        assert_eq!(programs(&pair.left, "left0"), attached);
        dwell.signal(Signal::SIGKILL);
        assert_eq!(dwell.end().status, None);
        // Links go with the last descriptor, which the kernel may close a little later.
        eventually("the end of its links", || programs(&pair.left, "left0") == [0, 0, 0]);
    }
    assert!(!tool(&pair.left, "ip", &["-d", "link", "show", "left0"]).contains("xdp"));
}

#[test]
fn root_clsact_filters_are_removed_and_those_of_others_stay() {
    if skipped() {
        return;
    }
    let pair = Pair::start("clsact");
    let arguments = ["-i", "left0", "--attach", "clsact", "--format", "jsonl", "--methods", "tcp-timestamp,icmp"];
    let dwell = watch(&pair.left, &arguments);
    assert_eq!(programs(&pair.left, "left0"), [0, 0, 0], "no tcx");
    // Somebody else's filter, behind it.
    let other = "filter add dev left0 ingress protocol ip prio 50000 u32 match u32 0 0 flowid 1:1";
    let other: Vec<_> = other.split(' ').collect();
    tool(&pair.left, "tc", &other);
    ping_pong(300).run(pair.ends(), &GO_ON).unwrap();
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    let samples = of_type(&run.stdout, "rtt.sample");
    let by = |method: &str| samples.iter().filter(|sample| sample["method"] == method).count();
    assert_eq!(by("icmp"), 10);
    assert!(by("tcp-timestamp") > 10, "{run}");
    assert_eq!(filters(&pair.left, "left0"), Vec::<String>::new());
    let left = tool(&pair.left, "tc", &["filter", "show", "dev", "left0", "ingress"]);
    assert!(left.contains(" u32 "), "{left}");
}

#[test]
fn root_two_by_clsact_on_one_interface() {
    if skipped() {
        return;
    }
    let pair = Pair::start("clsact-two");
    let arguments = ["-i", "left0", "--attach", "clsact", "--format", "jsonl"];
    let first = watch(&pair.left, &arguments);
    let second = spawn(&pair.left, DWELL, &[&["rtt"], &arguments[..]].concat());
    eventually("four filters", || filters(&pair.left, "left0").len() == 4);
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    for dwell in [first, second] {
        let run = dwell.interrupt();
        assert_eq!(of_type(&run.stdout, "rtt.sample").len(), 10, "{run}");
    }
    assert_eq!(filters(&pair.left, "left0"), Vec::<String>::new());
}

#[test]
fn root_a_taken_xdp_hook_is_left_to_its_owner() {
    if skipped() {
        return;
    }
    let pair = Pair::start("taken");
    let arguments = ["-i", "left0", "--hook", "xdp"];
    let first = watch(&pair.left, &arguments);
    let second = spawn(&pair.left, DWELL, &[&["rtt"], &arguments[..]].concat()).end();
    assert_eq!(second.status, Some(3), "{second}");
    assert!(second.stderr.contains("cannot attach to xdp of 'left0'"), "{second}");
    assert!(second.stderr.contains("--hook tc"), "{second}");
    assert_eq!(programs(&pair.left, "left0"), [1, 0, 1], "nothing of the second");
    ping(5).run(pair.ends(), &GO_ON).unwrap();
    assert_eq!(first.interrupt().stdout.lines().count(), 5);
}

#[test]
fn root_an_interface_that_goes_away_ends_the_run() {
    if skipped() {
        return;
    }
    let pair = Pair::start("gone");
    let dwell = watch(&pair.left, &["-i", "left0", "--format", "jsonl"]);
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    ip(&pair.left, "link delete left0\n");
    let run = dwell.end();
    assert_eq!(run.status, Some(4), "{run}");
    assert!(run.stderr.contains("dwell: interface 'left0' is gone\n"), "{run}");
    assert_eq!(of_type(&run.stdout, "rtt.sample").len(), 10);
    assert_eq!(counters(&run.stderr)["samples"], 10);
}

#[test]
fn root_when_one_of_two_interfaces_goes_the_other_is_still_watched() {
    if skipped() {
        return;
    }
    let pair = Pair::start("one-gone");
    ip(&pair.left, "link add spare0 type veth peer name spare1\nlink set spare0 up\n");
    let dwell = watch(&pair.left, &["-i", "spare0", "-i", "left0", "--interval", "100ms"]);
    ip(&pair.left, "link delete spare0\n");
    // Longer than an interval: it has noticed.
    thread::sleep(Duration::from_millis(500));
    ping(10).run(pair.ends(), &GO_ON).unwrap();
    let run = dwell.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    let told = "dwell: interface 'spare0' is gone; the others are still watched\n";
    assert!(run.stderr.contains(told), "{run}");
    assert_eq!(run.stdout.lines().count(), 10, "{run}");
}

#[test]
fn root_a_reader_that_has_seen_enough_ends_a_live_run() {
    if skipped() {
        return;
    }
    let pair = Pair::start("enough");
    let script = format!("{DWELL} rtt -i left0 2>said | head -1; echo ${{PIPESTATUS[0]}}; cat said");
    let folder = tempfile::tempdir().unwrap();
    let child = pair.left.spawn("bash", |command| {
        prepare(command.args(["-c", &script])).current_dir(folder.path());
    });
    let mut child = child.unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
        ping(5).run(pair.ends(), &GO_ON).unwrap();
    }
    let mut told = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut told).unwrap();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].contains("  icmp  "), "{told}");
    assert_eq!(lines[1], "0", "{told}");
    assert_eq!(programs(&pair.left, "left0"), [0, 0, 0]);
}

#[test]
fn root_a_full_disk_ends_a_live_run() {
    if skipped() {
        return;
    }
    let pair = Pair::start("full");
    let mut child = pair
        .left
        .spawn(DWELL, |command| {
            let full = File::options().write(true).open("/dev/full").unwrap();
            prepare(command.args(["rtt", "-i", "left0"])).stdout(Stdio::from(full));
        })
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(begun.elapsed() < Duration::from_secs(30), "it goes on"),
        }
        ping(5).run(pair.ends(), &GO_ON).unwrap();
    };
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert_eq!(status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("cannot write to standard output: No space left"), "{stderr}");
    // The counters are still reported.
    assert!(counters(&stderr)["samples"] >= 1, "{stderr}");
}

#[test]
fn root_a_last_interval_that_cannot_be_written_leaves_the_counters() {
    if skipped() {
        return;
    }
    let pair = Pair::start("last");
    let script = format!("exec {DWELL} rtt -i left0 --aggregate --interval 1h --duration 2s");
    let mut child = pair
        .left
        .spawn("sh", |command| {
            prepare(command.args(["-c", &format!("{script} >/dev/full")]));
        })
        .unwrap();
    // it ends by itself: what asks it takes as long, on a busy machine
    eventually("two programs", || links(child.id()) == 2);
    ping(5).run(pair.ends(), &GO_ON).unwrap();
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(4), "{stderr}");
    assert_eq!(counters(&stderr)["samples"], 5);
    assert!(stderr.contains("No space left on device"), "{stderr}");
}

#[test]
fn root_an_interval_that_ends_with_the_run_is_the_last() {
    if skipped() {
        return;
    }
    let pair = Pair::start("round");
    let arguments = ["rtt", "-i", "left0", "--format", "jsonl", "--interval", "200ms", "--duration", "400ms"];
    let run = run(pair.left.command(DWELL).args(arguments), b"");
    let statuses = of_type(&run.stdout, "rtt.status");
    assert!((1..=2).contains(&statuses.len()), "{run}");
}

#[test]
fn root_intervals_are_told_while_it_runs() {
    if skipped() {
        return;
    }
    let pair = Pair::start("intervals");
    let arguments = ["-i", "left0", "--aggregate", "--format", "jsonl", "--interval", "200ms"];
    let dwell = watch(&pair.left, &arguments);
    ping(30).run(pair.ends(), &GO_ON).unwrap();
    let run = dwell.interrupt();
    let groups = of_type(&run.stdout, "rtt.aggregate");
    assert!(groups.len() >= 2, "{run}");
    let statuses = of_type(&run.stdout, "rtt.status");
    let (last, earlier) = statuses.split_last().unwrap();
    assert_eq!((&last["last"], number(last, "samples")), (&true.into(), 30));
    assert!(earlier.len() >= 2, "{run}");
    assert!(earlier.iter().all(|status| status["last"] == false));
    assert!(statuses.is_sorted_by_key(|status| number(status, "samples")));
    let total: u64 = groups.iter().map(|group| number(group, "count")).sum();
    assert_eq!(total, 30);
    for group in &groups {
        assert!(number(group, "interval_ns") > 0, "{group}");
        assert_eq!(group["interface"], "left0");
    }
}

#[test]
fn root_on_a_terminal_a_long_run_shows_life() {
    if skipped() {
        return;
    }
    let pair = Pair::start("terminal");
    let command = format!("{DWELL} rtt -i left0 --duration 2500ms >/dev/null");
    // Part of every Debian: gives a program a terminal, and prints what it writes there.
    let shown = tool(&pair.left, "script", &["-qec", &command, "/dev/null"]);
    assert!(shown.contains("\r\u{1b}[K1 s, "), "{shown:?}");
    assert!(shown.contains("\r\u{1b}[K2 s, "), "{shown:?}");
    // The counter line stands on a line of its own.
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("dwell: "), "{shown:?}");
    assert!(counters(last)["packets"] < 1_000, "{shown:?}");
}
