//! `--baseline` of `dwell rtt` and `dwell response`: captures whose round trips take as long as before or longer, and a real
//! connection whose link gets slower.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use dwell_testbed::Namespace;
use serde_json::Value;

use crate::{
    live_traffic::ping_pong,
    records::{of_type, text},
    support::{DWELL, Pair, Run, dwell_reading, run, skipped, spawn, tool},
    wire::{Packet, Sender, capture, echo},
};

/// Pings each 5 ms for a time, each answered after the same time, give or take a tenth.
fn pings(seconds: u16, answered_after_ms: f64) -> Vec<Packet> {
    let ping = |seq: u16| {
        let at_ms = f64::from(seq) * 5.0;
        let jitter = f64::from(u32::from(seq) * 7919 % 100) / 1000.0 - 0.05;
        let answer = echo(at_ms + answered_after_ms * (1.0 + jitter), Sender::Server, 7, seq);
        [echo(at_ms, Sender::Client, 7, seq), answer]
    };
    let mut packets: Vec<_> = (0..seconds * 200).flat_map(ping).collect();
    packets.sort_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
    packets
}

fn replay(folder: &Path, packets: &[Packet], more: &[&str]) -> Run {
    let file = folder.join("baseline").to_str().unwrap().to_owned();
    let always = ["rtt", "-r", "-", "--interval", "200ms", "--baseline", &file];
    dwell_reading(&[&always[..], more].concat(), &capture(packets))
}

/// The last comparison of each group.
fn last_of(run: &Run, kind: &str) -> Vec<Value> {
    let shifts = of_type(&run.stdout, kind);
    let last = shifts.last().unwrap_or_else(|| panic!("nothing is compared: {run}"));
    shifts.iter().filter(|one| one["time"] == last["time"]).cloned().collect()
}

#[test]
fn a_group_of_round_trips_that_take_longer_is_named_and_no_other_run() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = replay(folder.path(), &pings(8, 10.0), &["--format", "jsonl", "--aggregate"]);
    assert_eq!(recorded.status, Some(0), "{recorded}");
    assert!(recorded.stderr.contains("recorded a baseline of 40 intervals into"), "{recorded}");
    assert!(of_type(&recorded.stdout, "rtt.shift").is_empty(), "{recorded}");

    let same = replay(folder.path(), &pings(4, 10.2), &["--format", "jsonl", "--aggregate"]);
    assert_eq!(same.status, Some(0), "{same}");
    let [group] = &last_of(&same, "rtt.shift")[..] else { panic!("{same}") };
    assert_eq!((text(group, "prefix"), text(group, "method")), ("198.51.100.0/24", "icmp"));
    assert_eq!((&group["shifted"], &group["interface"]), (&false.into(), &Value::Null), "{group}");

    let slower = replay(folder.path(), &pings(4, 15.0), &["--format", "jsonl"]);
    assert_eq!(slower.status, Some(1), "{slower}");
    let [group] = &last_of(&slower, "rtt.shift")[..] else { panic!("{slower}") };
    assert_eq!(group["shifted"], true, "{group}");
    assert!((1.45..1.55).contains(&group["ratio"].as_f64().unwrap()), "{group}");
    assert!(group["chance"].as_f64().unwrap() <= 0.01, "{group}");
    assert!(!of_type(&slower.stdout, "rtt.sample").is_empty(), "samples are written as ever: {slower}");
    assert!(slower.stderr.contains("shifted since the baseline was recorded: 198.51.100.0/24 icmp"), "{slower}");

    // The text has a comparison after each interval, and with a summary one at the end.
    let text = replay(folder.path(), &pings(4, 15.0), &["--aggregate"]).stdout;
    assert!(text.contains("compared with the baseline: unknown before 10 intervals with round trips"), "{text}");
    assert!(text.contains("compared with the baseline: 1 of 1 group shifted"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("198.51.100.0/24 icmp")), "{text}");
    let text = replay(folder.path(), &pings(4, 15.0), &["--summary"]).stdout;
    assert_eq!(text.matches("compared with the baseline").count(), 1, "{text}");
    let silent = replay(folder.path(), &pings(4, 15.0), &["--format", "none"]);
    assert_eq!((silent.status, silent.stdout.as_str()), (Some(1), ""), "{silent}");
}

#[test]
fn a_baseline_that_cannot_be_compared_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let short = replay(folder.path(), &pings(2, 10.0), &["--format", "none"]);
    assert_eq!(short.status, Some(4), "{short}");
    assert!(short.stderr.contains("30 intervals of the whole length with 10 or more round trips"), "{short}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "it left a file");

    let recorded = replay(folder.path(), &pings(8, 10.0), &["--format", "none"]);
    assert_eq!(recorded.status, Some(0), "{recorded}");
    for (more, says) in [
        (&["--prefix4", "32"][..], "--prefix4 was 24 and is 32"),
        (&["--methods", "icmp"], "--methods was auto and is icmp"),
        (&["--port", "53"], "--port was none and is 53"),
        (&["--format", "ppviz"], "the format ppviz has samples only"),
    ] {
        let refused = replay(folder.path(), &pings(4, 10.0), more);
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains(says), "{refused}");
    }
    let file = folder.path().join("baseline");
    let other = ["response", "-r", "-", "--interval", "200ms", "--baseline", file.to_str().unwrap()];
    let refused = dwell_reading(&other, &capture(&pings(1, 10.0)));
    assert_eq!(refused.status, Some(2), "{refused}");
    assert!(refused.stderr.contains("the verb was rtt and is response"), "{refused}");

    // Nobody whom the baseline knows answers.
    let strangers = replay(folder.path(), &pings(4, 10.0)[..4], &["--format", "none"]);
    assert_eq!(strangers.status, Some(4), "{strangers}");
    assert!(strangers.stderr.contains("too few intervals had round trips there: 198.51.100.0/24 icmp"), "{strangers}");
    let alone = run(std::process::Command::new(DWELL).args(["response", "-i", "lo", "--baseline-record"]), b"");
    assert_eq!(alone.status, Some(2), "{alone}");
}

/// Lets the far side send at this rate: an answer of 500 bytes takes 11 ms at 400 kbit/s, and twice as long at 200.
fn shape(pair: &Pair, verb: &str, rate: &str) {
    let shape = format!("qdisc {verb} dev right0 root tbf rate {rate} burst 1600 limit 200000");
    tool(&pair.right, "tc", &shape.split(' ').collect::<Vec<_>>());
}

/// What a verb says at one end of the pair, over a longer time while it is not what it should be: a busy machine stops it now
/// and then, for seconds.
struct Watch<'a> {
    namespace: &'a Namespace,
    verb: &'a [&'a str],
    file: PathBuf,
}

impl Watch<'_> {
    fn run(&self, times: [&str; 2], more: &[&str], is_as_wanted: impl Fn(&Run) -> bool) -> Run {
        let run = |time: &str| {
            let file = self.file.to_str().unwrap();
            let always = ["--interval", "400ms", "--format", "jsonl", "--duration", time, "--baseline", file];
            spawn(self.namespace, DWELL, &[self.verb, &always, more].concat()).end()
        };
        let first = run(times[0]);
        if is_as_wanted(&first) { first } else { run(times[1]) }
    }

    /// Records, compares while nothing has changed, and once more after a change to the double. `of` finds the groups that it is
    /// about.
    fn tells(&self, change: impl FnOnce(), of: impl Fn(&Run) -> Vec<Value>) -> Vec<Value> {
        let recorded = self.run(["14s", "25s"], &["--baseline-record"], |run| run.status == Some(0));
        assert_eq!(recorded.status, Some(0), "{recorded}");
        assert!(recorded.stderr.contains("recorded a baseline of"), "{recorded}");
        let are = |run: &Run, shifted: bool| of(run).iter().all(|one| one["shifted"] == shifted);
        let same = of(&self.run(["6s", "12s"], &[], |run| are(run, false)));
        assert!(!same.is_empty() && same.iter().all(|one| one["shifted"] == false), "{same:?}");
        change();
        let run = self.run(["6s", "12s"], &[], |run| are(run, true));
        let slower = of(&run);
        for one in &slower {
            assert_eq!(one["shifted"], true, "{one}");
            assert!((1.4..3.5).contains(&one["ratio"].as_f64().unwrap()), "{one}");
            eprintln!("twice as slow: {one}");
        }
        assert_eq!(run.status, Some(1), "{run}");
        assert!(run.stderr.contains("shifted since the baseline was recorded: "), "{run}");
        slower
    }
}

#[test]
fn root_a_link_that_becomes_slower_shifts_its_round_trips() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair::start("baseline-rtt");
    shape(&pair, "add", "400kbit");
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        scope.spawn(|| ping_pong(300_000).run(pair.ends(), &ends));
        thread::sleep(Duration::from_millis(500));
        // Both ends are in one network, and only one is behind the slow side of the link.
        let verb = &["rtt", "-i", "left0", "--prefix4", "32"];
        let watch = Watch { namespace: &pair.left, verb, file: folder.path().join("file") };
        let of = |run: &Run| {
            let mut groups = last_of(run, "rtt.shift");
            groups.retain(|group| text(group, "prefix") == "10.78.0.2/32");
            groups
        };
        let groups = watch.tells(|| shape(&pair, "change", "200kbit"), of);
        assert_eq!(text(&groups[0], "interface"), "left0");
    });
}

#[test]
fn root_a_service_that_becomes_slower_shifts_its_responses() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair::start("baseline-response");
    let listener = pair.right.enter(|| TcpListener::bind("10.78.0.2:7000")).unwrap().unwrap();
    let (ends, nap_ms) = (AtomicBool::new(false), &AtomicU64::new(8));
    thread::scope(|scope| {
        let _ends = Ends(&ends);
        let mut client = pair.left.enter(|| TcpStream::connect("10.78.0.2:7000")).unwrap().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        scope.spawn(move || {
            let mut request = [0; 100];
            while server.read_exact(&mut request).is_ok() {
                thread::sleep(Duration::from_millis(nap_ms.load(Ordering::Relaxed)));
                // Of several segments, which show that the client does not pause on a connection that is older than the look.
                server.write_all(&[1; 6000]).unwrap();
            }
        });
        let asked = &ends;
        scope.spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                client.write_all(&[1; 100]).unwrap();
                client.read_exact(&mut [0; 6000]).unwrap();
            }
        });
        let verb = &["response", "-i", "right0", "--server", ":7000"];
        let watch = Watch { namespace: &pair.right, verb, file: folder.path().join("file") };
        let servers = watch.tells(|| nap_ms.store(16, Ordering::Relaxed), |run| last_of(run, "response.shift"));
        let server = &servers[0];
        assert_eq!(
            (text(server, "server"), &server["port"], &server["prefix"]),
            ("10.78.0.2", &7000.into(), &Value::Null)
        );
    });
}

/// Ends the load, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
