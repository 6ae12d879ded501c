//! `dwell top` on connections of this test: in a terminal (tmux), and as one table.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Namespace, skip::lacks_program};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    records::{objects, of_type},
    support::{DWELL, dwell, eventually, has_owners_noted, ip, links, skipped, spawn},
    why::Service,
};

/// Round trips and requests over a line of two links.
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/line.pcap.gz");

/// Connections of which one has small requests, and one sends as much as it can. They end with the test.
struct Traffic {
    port: u16,
    _listener: TcpListener,
}

impl Traffic {
    fn start() -> Traffic {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            let client = TcpStream::connect(address).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let (mut client, mut server) = connect();
        thread::spawn(move || {
            let mut request = [0; 100];
            while server.read_exact(&mut request).is_ok() && server.write_all(&request).is_ok() {}
        });
        thread::spawn(move || {
            let mut answer = [0; 100];
            while client.write_all(&answer).is_ok() && client.read_exact(&mut answer).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let (mut sender, mut reader) = connect();
        thread::spawn(move || while sender.write_all(&[0; 65536]).is_ok() {});
        thread::spawn(move || {
            while reader.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        Traffic { port: address.port(), _listener: listener }
    }
}

/// A server that takes 50 ms for each answer, and its client.
const SLOW: &str = r#"
import socket, threading, time
listener = socket.create_server(("127.0.0.1", 8080))
def serve():
    one = listener.accept()[0]
    while one.recv(100):
        time.sleep(0.05)
        one.sendall(b"y" * 200000)
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(("127.0.0.1", 8080))
while True:
    client.sendall(b"x" * 50)
    client.recv(200000, socket.MSG_WAITALL)
"#;

/// A terminal with a program in it, and its end.
pub struct Terminal {
    folder: TempDir,
}

impl Terminal {
    pub fn start(width: u16, height: u16, command: &str) -> Terminal {
        let terminal = Terminal { folder: tempfile::tempdir().unwrap() };
        // What is printed after the screen shows that the terminal is as it was.
        let command = format!("cd {}; {command}; echo \"status=$?\"; stty -a; cat", terminal.folder.path().display());
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "sh", "-c", &command]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let socket = self.folder.path().join("tmux");
        let run = Command::new("tmux").arg("-S").arg(socket).args(["-u"]).args(arguments).output().unwrap();
        assert!(run.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    }

    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as it must be.
    pub fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "never {what}:\n{screen}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub fn shows(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.folder.path().join("tmux");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

fn top(port: u16, options: &str) -> String {
    // Nothing is attached to this host's own interfaces.
    format!("{DWELL} top --no-response --port {port} --interval 500ms {options}")
}

#[test]
fn a_table_for_scripts_has_the_processes_and_figures_of_connections() {
    let traffic = Traffic::start();
    let port = traffic.port.to_string();
    let arguments = ["top", "--no-response", "--once", "--port", &port, "--by", "rate", "--format", "jsonl"];
    let run = dwell(&arguments);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let rows = objects(&run.stdout);
    assert_eq!(rows.len(), 5, "both ends of two connections, and a status: {run}");
    for (rank, row) in (1..=4).zip(&rows) {
        assert_eq!((&row["type"], &row["rank"]), (&"top.row".into(), &Value::from(rank)), "{row}");
        assert_eq!(row["pid"], std::process::id(), "{row}");
        assert!(row["process"].is_string() && row["rate_bps"].as_u64().is_some_and(|bps| bps > 0), "{row}");
    }
    let rates: Vec<_> = rows[..4].iter().map(|row| row["rate_bps"].as_u64().unwrap()).collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
    // The sender's buffer is full, and the reader is slow.
    assert!(rows[..4].iter().any(|row| row["send_buffer_ns"].as_u64().is_some_and(|ns| ns > 1_000_000)), "{run}");
    assert_eq!(rows[4]["type"], "top.status");
    assert_eq!(rows[4]["counters"]["flows"], 4);

    let run = dwell(&[
        "top",
        "--no-response",
        "--once",
        "--port",
        &port,
        "--view",
        "processes",
        "--no-names",
        "--format",
        "jsonl",
    ]);
    let row = &objects(&run.stdout)[0];
    assert_eq!((&row["flows"], &row["pid"]), (&4.into(), &Value::from(std::process::id())), "{run}");
    assert_eq!((&row["process"], &row["flow"]), (&Value::Null, &Value::Null), "{run}");

    let run = dwell(&["top", "--no-response", "--once", "--port", &port, "--top", "1"]);
    assert!(run.stdout.contains("3 rows not shown"), "{run}");
}

/// Means in nanoseconds of what lines say by flow and by another key.
fn means(values: impl Iterator<Item = (String, String, u64)>) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut sums = BTreeMap::<String, BTreeMap<String, (u64, u64)>>::new();
    for (flow, key, ns) in values {
        let sum = sums.entry(flow).or_default().entry(key).or_default();
        *sum = (sum.0 + ns, sum.1 + 1);
    }
    let mean = |(key, (sum, count))| (key, sum / count);
    sums.into_iter().map(|(flow, keys)| (flow, keys.into_iter().map(mean).collect())).collect()
}

#[test]
fn a_capture_has_of_each_flow_what_rtt_and_response_say_of_it() {
    let lines = |verb: &str| {
        let run = dwell(&[verb, "-r", CAPTURE, "--format", "jsonl"]);
        assert_eq!(run.status, Some(0), "{run}");
        objects(&run.stdout)
    };
    let id = |line: &Value| line["flow"]["id"].as_str().unwrap_or_default().to_owned();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // The loop of the spin bit is what its two sides add up to.
    let is_side = |line: &Value| line["type"] == "rtt.sample" && line["method"] != "quic-spin-loop";
    let samples = lines("rtt").into_iter().filter(is_side);
    let trips = means(samples.map(|line| (id(&line), text(&line["flow"]["dst"]), line["rtt_ns"].as_u64().unwrap())));
    let epochs = lines("response").into_iter().filter(|line| line["latency"]["valid"] == true);
    let responses = means(epochs.map(|line| (id(&line), String::new(), line["latency"]["mean_ns"].as_u64().unwrap())));
    let run = dwell(&["top", "-r", CAPTURE, "--once", "--format", "jsonl"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
    let rows: Vec<_> = objects(&run.stdout).into_iter().filter(|line| line["type"] == "top.row").collect();
    let measured: Vec<_> = rows.iter().filter(|row| !row["rtt_ns"].is_null()).collect();
    assert!(measured.len() >= 50 && measured.len() == trips.len(), "{} of {} flows", measured.len(), trips.len());
    // All that passed, also after the last round trip and of flows without one.
    let closes = dwell(&["rtt", "-r", CAPTURE, "--flow-events", "--format", "jsonl"]);
    let closes: Vec<_> = objects(&closes.stdout).into_iter().filter(|line| line["event"] == "close").collect();
    let data: u64 = closes.iter().map(|line| line["data_segments"].as_u64().unwrap_or(0)).sum();
    assert_eq!(rows.iter().map(|row| row["segments_sent"].as_u64().unwrap()).sum::<u64>(), data);
    for close in closes.iter().filter(|close| !close["flow"]["client"].is_null()) {
        let row = rows.iter().find(|row| id(row) == id(close)).unwrap();
        let client = |line: &Value| line["flow"][line["flow"]["client"].as_str().unwrap()].clone();
        assert_eq!(client(row), client(close), "{row} {close}");
    }
    for row in measured {
        // To one side and back, and to the other.
        let trip: u64 = trips[&id(row)].values().sum();
        assert_eq!(row["rtt_ns"], trip, "{row}");
        let response = responses.get(&id(row)).map(|one| one[""]);
        assert_eq!(row["response_ns"].as_u64(), response, "{row}");
        assert_eq!((&row["host"], &row["pid"]), (&Value::Null, &Value::Null), "{row}");
    }
    assert!(rows.iter().any(|row| row["response_ns"].is_u64()) && rows.iter().any(|row| row["rate_bps"] != 0));
    // Played in intervals, only what was there in the last is known.
    let run = dwell(&["top", "-r", CAPTURE, "--once", "--interval", "1s", "--format", "jsonl"]);
    let played: Vec<_> = objects(&run.stdout).into_iter().filter(|line| line["type"] == "top.row").collect();
    assert!(played.iter().any(|row| row["rtt_ns"].is_null() && row["last_rtt_ns"].is_u64()), "{run}");
    let missing = dwell(&["top", "-r", "/nonexistent.pcap", "--once"]);
    assert!(missing.status == Some(2) && missing.stderr.contains("/nonexistent.pcap"), "{missing}");
}

#[test]
fn a_table_fails_if_a_condition_holds_for_its_rows_or_is_about_nothing() {
    let table = |conditions: &[&str]| {
        let always = ["top", "-r", CAPTURE, "--once", "--format", "jsonl", "--top", "1"];
        dwell(&[&always[..], conditions].concat())
    };
    for (condition, status, words) in [
        ("rtt max>1us", 1, "holds, so this run has failed"),
        ("max>1000s or count<1", 0, "does not hold"),
        ("send-buffer max>1s", 1, "there are no rows of send-buffer"),
    ] {
        let run = table(&["--fail-if", condition]);
        assert!(run.status == Some(status) && run.stderr.contains(words), "{condition}: {run}");
        let last = objects(&run.stdout).pop().unwrap();
        assert_eq!(
            (&last["type"], &last["fail_if"]["failed"]),
            (&"top.status".into(), &(status == 1).into()),
            "{last}"
        );
    }
    assert_eq!(table(&[]).status, Some(0));
    let run = dwell(&["top", "-r", CAPTURE, "--once", "--format", "none", "--fail-if", "rtt max>1us"]);
    assert!(run.status == Some(1) && run.stdout.is_empty(), "{run}");
    for (arguments, words) in [
        (&["--fail-if", "rate max>1s"][..], "'rate' is not a metric"),
        (&["--once", "--view", "backends", "--fail-if", "max>1s"], "choose another --view"),
    ] {
        let run = dwell(&[&["top"], arguments].concat());
        assert!(run.status == Some(2) && run.stderr.contains(words), "{run}");
    }
}

#[test]
fn the_flows_of_a_capture_are_on_the_screen_with_the_same_keys() {
    if lacks_program("tmux") {
        return;
    }
    let terminal = Terminal::start(80, 24, &format!("{DWELL} top -r {CAPTURE}"));
    let screen = terminal.shows("55 flows");
    assert!(screen.contains("dwell top  capture") && screen.contains("▼RTT"), "{screen}");
    terminal.keys(&["2"]);
    terminal.shows("PEER");
    terminal.keys(&["1", "f", ":53", "Enter"]);
    terminal.wait("a filter", |screen| screen.contains("of :53") && !screen.contains("55 flows"));
    terminal.keys(&["2"]);
    terminal.wait("its peer", |screen| screen.contains("10.77.4.2") && !screen.contains("10.77.1.1"));
    terminal.keys(&["f", "BSpace", "BSpace", "BSpace", "Enter", "1"]);
    terminal.shows("55 flows");
    terminal.tmux(&["resize-window", "-x", "40", "-y", "24"]);
    terminal.wait("a narrow screen", |screen| screen.contains("▼RTT") && !screen.contains("TREND"));
    terminal.keys(&["2", "Enter"]);
    terminal.wait("what dwell why says", |screen| screen.contains("dwell why -r") && screen.contains("Seen from"));
    terminal.keys(&["NPage"]);
    terminal.shows("Evidence");
    terminal.keys(&["q"]);
    terminal.shows("status=0");
}

#[test]
fn without_a_terminal_it_names_the_option_for_scripts() {
    for arguments in [&["top"][..], &["top", "-r", CAPTURE]] {
        let run = dwell(arguments);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run}");
        assert!(run.stderr.contains("--once"), "{run}");
    }
}

#[test]
fn keys_do_what_the_page_of_keys_says_and_the_terminal_is_as_it_was_after_it() {
    if lacks_program("tmux") {
        return;
    }
    let traffic = Traffic::start();
    let terminal = Terminal::start(80, 24, &top(traffic.port, ""));
    let screen = terminal.shows("4 flows");
    assert!(screen.contains("▼RTT") && screen.contains("TREND"), "{screen}");
    // Names of processes are cut by the kernel.
    let own = fs::read_to_string("/proc/self/comm").unwrap();
    assert!(screen.contains(own.trim()), "{screen}");

    terminal.keys(&["?"]);
    terminal.shows("dwell top: keys");
    terminal.keys(&["Escape"]);
    terminal.shows("▼RTT");
    terminal.keys(&["2"]);
    terminal.wait("the view of peers", |screen| screen.contains("PEER") && screen.contains("localhost"));
    terminal.keys(&["n"]);
    terminal.shows("127.0.0.1");
    terminal.keys(&["1", "Right"]);
    terminal.shows("▼RESP");
    terminal.keys(&["Left", "Left"]);
    terminal.shows("▼BIT/S");
    terminal.keys(&["f", ":1", "Enter"]);
    terminal.shows("0 flows");
    terminal.keys(&["f", "BSpace", "BSpace", "x", "Enter"]);
    terminal.shows("filter 'x'");
    terminal.keys(&["f", "BSpace", "BSpace", "Enter"]);
    terminal.shows("4 flows");
    // There is no trend before an interval has figures.
    terminal.wait("figures", |screen| screen.matches('█').count() >= 4);
    terminal.keys(&["s"]);
    terminal.shows("flows are in dwell-top-");
    let saved = fs::read_dir(terminal.folder.path()).unwrap().flatten().map(|entry| entry.path());
    let saved: Vec<_> = saved.filter(|path| path.extension().is_some_and(|extension| extension == "db")).collect();
    let [saved] = saved.as_slice() else { panic!("{saved:?}") };
    let run = dwell(&["top", "--once", "--format", "jsonl", "--read", saved.to_str().unwrap()]);
    let rows = of_type(&run.stdout, "top.row");
    // Names are off.
    assert!(!rows.is_empty() && rows.iter().all(|row| row["pid"] == std::process::id()), "{run}");
    assert!(rows.iter().any(|row| row["rtt_ns"].is_u64()), "{run}");
    let run = dwell(&["report", "--read", saved.to_str().unwrap()]);
    assert!(run.status == Some(0) && run.stdout.contains("\"top.row\""), "{run}");

    terminal.keys(&["p"]);
    terminal.shows("FROZEN");
    let time = |screen: &str| screen.lines().next().unwrap().to_owned();
    let frozen = time(&terminal.screen());
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(time(&terminal.screen()), frozen);
    terminal.keys(&["p"]);
    terminal.wait("going on", |screen| time(screen) != frozen);

    terminal.keys(&["Enter"]);
    terminal.shows("Where its time went");
    let screen =
        terminal.wait("an answer of dwell why", |screen| screen.contains("\ndwell why") && screen.contains("  █"));
    assert!(screen.contains("send-buffer"), "{screen}");
    terminal.keys(&["Escape"]);
    terminal.shows("▼BIT/S");
    terminal.keys(&["q"]);
    let screen = terminal.shows("status=0");
    assert!(!screen.contains("BIT/S"), "the screen is gone: {screen}");
    let screen = terminal.shows("isig");
    assert!(screen.contains(" icanon") && screen.contains(" echo ") && !screen.contains("-isig"), "{screen}");
}

#[test]
fn why_is_asked_without_labels_where_none_are_shown() {
    if lacks_program("tmux") {
        return;
    }
    let traffic = Traffic::start();
    for (option, key, has_labels) in [("--no-labels", None, false), ("", Some("n"), false), ("", None, true)] {
        let command = format!("sh -c 'echo $$ > pid; exec {}'", top(traffic.port, option));
        let terminal = Terminal::start(80, 24, &command);
        terminal.shows("4 flows");
        key.into_iter().for_each(|key| terminal.keys(&[key]));
        terminal.keys(&["Enter"]);
        let pid = fs::read_to_string(terminal.folder.path().join("pid")).unwrap();
        let pid = pid.trim();
        let mut arguments = String::new();
        eventually("dwell why is asked", || {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let child = children.split_whitespace().next().unwrap_or("none");
            arguments = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            arguments.contains("why\0--duration")
        });
        assert_eq!(!arguments.contains("\0--no-labels"), has_labels, "{option} {key:?}: {arguments}");
    }
}

#[test]
fn a_narrow_screen_that_changes_its_size_is_drawn_anew() {
    if lacks_program("tmux") {
        return;
    }
    let traffic = Traffic::start();
    let terminal = Terminal::start(40, 12, &top(traffic.port, ""));
    let screen = terminal.shows("▼RTT");
    assert!(!screen.contains("TREND") && screen.contains("BIT/S"), "{screen}");
    for (width, height, wanted) in [("120", "30", "TREND"), ("20", "5", "▼RTT"), ("100", "24", "TREND")] {
        terminal.tmux(&["resize-window", "-x", width, "-y", height]);
        terminal.shows(wanted);
    }
    terminal.keys(&["C-c"]);
    terminal.shows("status=0");
}

#[test]
fn signals_end_it_and_restore_the_terminal() {
    if lacks_program("tmux") {
        return;
    }
    let traffic = Traffic::start();
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let command = format!("sh -c 'echo $$ > pid; exec {}'", top(traffic.port, ""));
        let terminal = Terminal::start(80, 24, &command);
        terminal.shows("▼RTT");
        let pid = fs::read_to_string(terminal.folder.path().join("pid")).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), signal).unwrap();
        let screen = terminal.shows("status=0");
        assert!(!screen.contains("▼RTT"), "{screen}");
    }
}

/// With SIGHUP ignored, as under nohup, only the terminal itself tells that it is gone.
#[test]
fn a_terminal_that_is_closed_ends_it() {
    if lacks_program("tmux") {
        return;
    }
    let traffic = Traffic::start();
    for ignored in ["", "trap \"\" HUP; "] {
        let command = format!("sh -c '{ignored}echo $$ > pid; exec {}'", top(traffic.port, ""));
        let terminal = Terminal::start(80, 24, &command);
        terminal.shows("▼RTT");
        let pid = fs::read_to_string(terminal.folder.path().join("pid")).unwrap();
        terminal.tmux(&["kill-server"]);
        let begun = Instant::now();
        let is_there = || fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| !line.is_empty());
        while is_there() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it goes on without its terminal");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn root_a_unit_is_a_row_and_why_is_asked_of_it() {
    if skipped() || lacks_program("tmux") {
        return;
    }
    let unit = format!("dwell-top-{}.service", std::process::id());
    let Some(service) = Service::start("top-unit", &unit) else {
        return;
    };
    let run = service.namespace.command(DWELL).args(["top", "--once", "--view", "units", "--format", "jsonl"]).output();
    let row = &objects(&String::from_utf8(run.unwrap().stdout).unwrap())[0];
    assert_eq!((&row["view"], &row["unit"]), (&"units".into(), &Value::from(unit.as_str())), "{row}");
    assert_eq!((&row["flows"], &row["pid"]), (&2.into(), &Value::Null), "{row}");
    let command = format!("nsenter --net=/run/netns/{} {DWELL} top --interval 500ms", service.namespace.name());
    let terminal = Terminal::start(80, 24, &command);
    terminal.shows("2 flows");
    terminal.keys(&["5"]);
    terminal.wait("the view of units", |screen| screen.contains("UNIT ") && screen.contains(&unit));
    terminal.keys(&["Enter"]);
    terminal.shows(&format!("dwell why {unit}"));
    terminal.wait("an answer of dwell why", |screen| screen.contains("service on this host takes long"));
    terminal.keys(&["q"]);
    terminal.shows("status=0");
}

#[test]
fn root_a_slow_server_has_its_response_latency_live_where_packets_may_be_watched() {
    if skipped() || lacks_program("python3") {
        return;
    }
    let namespace = Namespace::create("top-response").unwrap();
    ip(&namespace, "link set lo up\n");
    let _slow = spawn(&namespace, "python3", &["-c", SLOW]);
    let table = ["top", "--once", "--interval", "1s", "--format", "jsonl"];
    let responses = |program: &str, options: &[&str]| {
        let run = spawn(&namespace, program, &[options, &table].concat()).end();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run}");
        let rows = of_type(&run.stdout, "top.row");
        rows.iter().map(|row| row["response_ns"].as_u64()).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    eventually("responses of both ends", || {
        found = responses("env", &[DWELL]);
        found.iter().flatten().count() == 2
    });
    // What the server takes, but for the width of a bucket.
    assert!(found.iter().flatten().all(|ns| *ns > 45_000_000), "{found:?}");
    assert_eq!(responses("setpriv", &["--bounding-set=-all", "--inh-caps=-all", DWELL]), [None, None]);
    let screen = spawn(&namespace, DWELL, &["top", "--once", "--interval", "60s", "--no-response"]);
    eventually("it has owners noted", || has_owners_noted(screen.id()));
    assert_eq!(links(screen.id()), 0);
}
