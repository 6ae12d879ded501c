//! `dwell-lab`: networks that stay until they are taken down, and the demonstration.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::support::{LAB, Run, eventually, lab, prepare, run, skipped};

/// Takes a lab down, should the test not get so far.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        let _ = Command::new(LAB).args(["down", &self.0]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The namespaces whose names begin so.
fn namespaces(beginning: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(beginning)).collect()
}

fn ping(from: &str, to: &str) -> Run {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", from, "ping", "-c", "3", "-i", "0.2", "-W", "2", to]);
    run(&mut command, b"")
}

#[test]
fn root_a_lab_is_up_until_it_is_taken_down() {
    if skipped() {
        return;
    }
    let name = format!("e2e-{}", std::process::id());
    let _down = Down(name.clone());
    let own = format!("dwell-{name}-");
    let up = lab(&["up", &name, "--client-rtt", "8ms", "--server-rtt", "2ms"]);
    assert_eq!((up.status, up.stderr.as_str()), (Some(0), ""), "{up}");
    assert!(
        up.stdout
            .starts_with(&format!("lab {name}: client -- 8.000 ms -- vantage -- 2.000 ms -- server (round trips)\n")),
        "{up}"
    );
    assert!(up.stdout.contains(&format!("ip netns exec {own}client ...")), "{up}");
    assert!(up.stdout.contains(&format!("remove with: dwell-lab down {name}")), "{up}");
    assert_eq!(namespaces(&own).len(), 5);

    let again = lab(&["up", &name]);
    assert_eq!((again.status, again.stdout.as_str()), (Some(2), ""), "{again}");
    assert_eq!(again.stderr, format!("dwell-lab: a lab named {name} exists; `dwell-lab down {name}` removes it\n"));
    let list = lab(&["list"]);
    assert!(list.stdout.contains(up.stdout.trim_end()), "{list}");

    // It works without whoever made it.
    let pings = ping(&format!("{own}client"), "10.77.4.2");
    assert_eq!(pings.status, Some(0), "{pings}");
    let least = pings.stdout.lines().last().unwrap().split(['=', '/']).nth(4);
    let least: f64 = least.unwrap().trim().parse().unwrap();
    assert!((10.0..30.0).contains(&least), "{pings}");

    let down = lab(&["down", &name]);
    assert_eq!((down.status, down.stderr.as_str()), (Some(0), ""), "{down}");
    let gone = format!("lab {name} is gone; its link emulator:\n");
    assert!(down.stdout.starts_with(&gone), "{down}");
    let passed = down.stdout.lines().filter(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(3..5) == Some(&["3", "packets,"])
    });
    assert_eq!(passed.count(), 4, "each way of each link: {down}");
    assert_eq!(namespaces(&own), Vec::<String>::new());
    assert!(!lab(&["list"]).stdout.contains(&name));
    let again = lab(&["down", &name]);
    assert_eq!((again.status, again.stderr), (Some(2), format!("dwell-lab: no lab named {name}\n")));
}

/// In a mount namespace of its own, so that other tests see none of it.
#[test]
fn root_labs_that_cannot_be_read_or_removed_hinder_no_other() {
    if skipped() {
        return;
    }
    let name = format!("e2e-beside-{}", std::process::id());
    // The namespace of `stuck` is a folder, which `ip netns delete` refuses.
    let script = r#"
        mkdir -p /run/dwell/lab /run/netns
        mount -t tmpfs none /run/dwell/lab && mount -t tmpfs none /run/netns || exit 99
        cd /run/dwell/lab
        mkdir /run/netns/dwell-stuck-only
        printf '{"schema":"dwell.lab/1","name":"trunc' > trunc.json
        state() {
            printf '{"schema":"dwell.lab/1","name":"%s","topology":null,"owner":{"pid":1,"start_ticks":0},"namespaces":{%s},"emulator":null}' "$1" "$2"
        }
        state other '' > misnamed.json
        state stuck '"only":"dwell-stuck-only"' > stuck.json
        state zombie '' > zombie.json
        "$LAB" up "$NAME" > /dev/null || exit 98
        "$LAB" list
        echo "list: $?"
        "$LAB" down "$NAME"
        echo "down: $?"
        "$LAB" down trunc
        echo "down trunc: $?"
        ls
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.env("LAB", LAB).env("NAME", &name);
    let run = run(&mut command, b"");
    assert_eq!(run.status, Some(0), "{run}");
    let told = |beginning: &str| run.stderr.matches(beginning).count();
    assert_eq!(told("dwell-lab: /run/dwell/lab/trunc.json: EOF"), 2, "{run}");
    let misnamed = "dwell-lab: /run/dwell/lab/misnamed.json: it is of a lab named \"other\"";
    assert_eq!(told(misnamed), 1, "{run}");
    assert_eq!(told("dwell-lab: `ip netns delete dwell-stuck-only`"), 1, "{run}");
    assert_eq!(run.stderr.lines().count(), 4, "{run}");
    let lines: Vec<_> = run.stdout.lines().collect();
    let listed = |name: &str| lines.iter().any(|line| *line == name || line.starts_with(&format!("{name}:")));
    assert!(listed(&format!("lab {name}")), "{run}");
    assert!(listed("lab stuck"), "{run}");
    let ends = ["list: 4", "down: 0", "down trunc: 2"];
    for end in ends {
        assert!(lines.contains(&end), "{end}: {run}");
    }
    let left = lines.rsplit(|line| *line == ends[2]).next().unwrap();
    assert_eq!(left, ["lock", "misnamed.json", "stuck.json", "trunc.json"]);
}

#[test]
fn root_a_triangle_whose_links_lose_everything() {
    if skipped() {
        return;
    }
    let name = format!("e2e-lossy-{}", std::process::id());
    let _down = Down(name.clone());
    let arguments = ["--topology", "triangle", "--loss", "1", "--bottleneck", "10M"];
    let up = lab(&[&["up", &name], &arguments[..]].concat());
    assert_eq!(up.status, Some(0), "{up}");
    let pings = ping(&format!("dwell-{name}-client"), "10.77.4.2");
    assert!(pings.stdout.contains("100% packet loss"), "{pings}");
    let down = lab(&["down", &name]);
    assert!(down.stdout.contains("3 packets, 3 lost"), "{down}");
}

/// A demonstration that has made its lab.
fn start_demo() -> (Child, String) {
    let mut command = Command::new(LAB);
    let command = prepare(&mut command).args(["demo"]).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let progress = BufReader::new(child.stderr.take().unwrap());
    let mut lines = progress.lines().map_while(Result::ok);
    let traffic = lines.find(|line| line.starts_with("traffic: "));
    assert!(traffic.is_some(), "the demonstration ended early: {:?}", child.wait());
    std::thread::spawn(move || lines.for_each(drop));
    let own = format!("dwell-demo-{}-", child.id());
    (child, own)
}

#[test]
fn root_what_a_killed_demonstration_left_is_removed_by_the_next_command() {
    if skipped() {
        return;
    }
    let (mut demo, own) = start_demo();
    let watcher = {
        let children = format!("/proc/{0}/task/{0}/children", demo.id());
        fs::read_to_string(children).unwrap_or_default()
    };
    assert_eq!(namespaces(&own).len(), 5);
    demo.kill().unwrap();
    demo.wait().unwrap();
    // Its programs end with it, and what they had attached.
    for process in watcher.split_whitespace() {
        eventually("the end of its programs", || !Path::new("/proc").join(process).exists());
    }
    let list = lab(&["list"]);
    assert_eq!(list.status, Some(0), "{list}");
    assert_eq!(namespaces(&own), Vec::<String>::new());
    assert!(!list.stdout.contains(&own["dwell-".len()..]), "{list}");
}

#[test]
fn root_an_interrupted_demonstration_leaves_nothing() {
    if skipped() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (mut demo, own) = start_demo();
        kill(Pid::from_raw(demo.id() as i32), signal).unwrap();
        assert_eq!(demo.wait().unwrap().code(), Some(4), "{signal}");
        assert_eq!(namespaces(&own), Vec::<String>::new());
    }
}

/// The longest test here: about fifteen seconds.
#[test]
fn root_the_demonstration_ends_by_itself_with_every_row() {
    if skipped() {
        return;
    }
    let begun = Instant::now();
    let mut command = Command::new(LAB);
    let child = prepare(&mut command).args(["demo"]).spawn().unwrap();
    let own = format!("dwell-demo-{}-", child.id());
    let output = child.wait_with_output().unwrap();
    let took = begun.elapsed();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(namespaces(&own), Vec::<String>::new());

    let rows: Vec<Vec<&str>> = stdout
        .lines()
        .skip_while(|line| !line.starts_with("method "))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (method, side, least_ms) in [
        ("tcp-timestamp", "client", 20.0),
        ("tcp-timestamp", "server", 5.0),
        ("icmp", "server", 5.0),
        ("icmpv6", "server", 5.0),
        ("dns", "server", 5.0),
        ("quic-handshake", "server", 5.0),
        ("quic-spin", "client", 20.0),
        ("quic-spin", "server", 5.0),
        ("quic-spin-loop", "both", 25.0),
    ] {
        let row = rows.iter().find(|row| row[..2] == [method, side]);
        let row = row.unwrap_or_else(|| panic!("no {method} {side} in {stdout}"));
        let number = |column: usize| row[column].parse::<f64>().unwrap();
        let (samples, p50, truth) = (number(2), number(3), number(5));
        assert!(samples >= 8.0, "{row:?}");
        // The emulator's own error is in the truth.
        assert!(truth >= least_ms && truth < least_ms + 5.0, "{row:?}");
        assert!(p50 >= least_ms && p50 < least_ms + 12.0, "{row:?}");
    }
    assert!(stdout.contains("emulator error p50"), "{stdout}");
    assert!(!stdout.contains("unreadable lines"), "{stdout}");
    assert!(!stdout.contains("skipped"), "{stdout}");
}
