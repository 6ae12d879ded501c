//! `--resolve`: reverse look-ups at a real name server, counted by its own log.

use std::{fs, path::PathBuf};

use dwell_testbed::{Namespace, skip::lacks_program};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    records::{number, of_type},
    support::{DWELL, Pair, Process, Run, dwell, eventually, ip, skipped, spawn, tool},
};

/// A name server on the right, which knows 10.78.0.2 and says that 10.78.0.3 has no name.
struct Server {
    pair: Pair,
    folder: tempfile::TempDir,
    process: Option<Process>,
}

impl Server {
    fn start(name: &str) -> Option<Server> {
        if skipped() || lacks_program("dnsmasq") {
            return None;
        }
        let pair = Pair::start(name);
        for host in [&pair.left, &pair.right] {
            ip(host, "link set lo up\n");
        }
        ip(&pair.right, "address add 10.78.0.3/24 dev right0\n");
        let folder = tempfile::tempdir().unwrap();
        // The server gives up root, and opens its log before it does.
        let log = folder.path().join("log").display().to_string();
        let arguments = format!(
            "--keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --except-interface=lo \
             --user=root --pid-file= --listen-address=10.78.0.2 --bogus-priv --log-queries --log-facility={log} \
             --host-record=db.example,10.78.0.2"
        );
        let process = spawn(&pair.right, "dnsmasq", &arguments.split_whitespace().collect::<Vec<_>>());
        eventually("a name server", || tool(&pair.right, "ss", &["-uln"]).contains(":53"));
        fs::write(folder.path().join("resolv.conf"), "nameserver 10.78.0.2\noptions timeout:2 attempts:1\n").unwrap();
        Some(Server { pair, folder, process: Some(process) })
    }

    /// Starts dwell on the left, where this name server is that of the host.
    fn dwell(&self, arguments: &[&str]) -> Process {
        let resolver: PathBuf = self.folder.path().join("resolv.conf");
        let script = format!("mount --bind '{}' /etc/resolv.conf && exec '{DWELL}' \"$@\"", resolver.display());
        spawn(&self.pair.left, "unshare", &[&["-m", "sh", "-c", &script, "sh"], arguments].concat())
    }

    /// How often the name of an address was asked for.
    fn queries(&self, address: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains("query[PTR]") && line.contains(&arpa(address))).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = self.process.take().unwrap();
        process.signal(Signal::SIGKILL);
        process.end();
    }
}

fn arpa(address: &str) -> String {
    let octets: Vec<&str> = address.split('.').rev().collect();
    format!("{}.in-addr.arpa", octets.join("."))
}

/// The names of an address that the round trips of pings to it have.
fn names(lines: &str, address: &str) -> Vec<Value> {
    let samples = of_type(lines, "rtt.sample");
    let to = samples.iter().filter(|sample| sample["flow"]["dst"] == address);
    to.map(|sample| sample["flow"]["names"]["dst"]["host"].clone()).collect()
}

/// Pings an address until something is so.
fn ping_until(from: &Namespace, address: &str, is_so: impl Fn() -> bool) {
    eventually(address, || {
        tool(from, "ping", &["-c", "1", "-W", "5", address]);
        is_so()
    });
}

#[test]
fn root_a_remote_address_is_looked_up_once_and_only_if_it_is_asked_for() {
    let Some(server) = Server::start("reverse") else {
        return;
    };
    let output = server.folder.path().join("lines");
    let path = output.to_str().unwrap();
    // Without a line of which the end is still to come.
    let read = || {
        let text = fs::read_to_string(&output).unwrap_or_default();
        text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
    };
    let left = &server.pair.left;

    let silent = server.dwell(&["rtt", "-i", "left0", "--format", "jsonl", "--write", path]);
    ping_until(left, "10.78.0.2", || names(&read(), "10.78.0.2").len() >= 3);
    let run = silent.interrupt();
    assert_eq!((run.status, server.queries("10.78.0.2")), (Some(0), 0), "nothing is sent by itself: {run}");
    assert!(names(&read(), "10.78.0.2").iter().all(Value::is_null), "{}", read());
    fs::remove_file(&output).unwrap();

    let asking = server.dwell(&["rtt", "-i", "left0", "--resolve", "--format", "jsonl", "--write", path]);
    ping_until(left, "10.78.0.3", || server.queries("10.78.0.3") > 0);
    ping_until(left, "10.78.0.2", || names(&read(), "10.78.0.2").last().is_some_and(|name| !name.is_null()));
    for _ in 0..3 {
        for address in ["10.78.0.2", "10.78.0.3"] {
            tool(left, "ping", &["-c", "1", "-W", "5", address]);
        }
    }
    let run = asking.interrupt();
    assert_eq!(run.status, Some(0), "{run}");
    assert_eq!(names(&read(), "10.78.0.2").last(), Some(&"db.example".into()), "{}", read());
    assert!(names(&read(), "10.78.0.3").iter().all(Value::is_null), "{}", read());
    assert_eq!(["10.78.0.2", "10.78.0.3"].map(|address| server.queries(address)), [1, 1], "answers are kept");
    assert_eq!(server.queries("10.78.0.1"), 0, "an address of this host has no remote name");
    let lines = read();
    let status = of_type(&lines, "rtt.status").pop().unwrap();
    assert_eq!((number(&status, "reverse_lookups"), number(&status, "reverse_unnamed")), (2, 1), "{status}");
}

#[test]
fn root_peers_in_a_table_of_top_and_of_a_target_of_why_are_looked_up() {
    let Some(server) = Server::start("reverse-peers") else {
        return;
    };
    // The name server takes connections too.
    let client = spawn(&server.pair.left, "bash", &["-c", "exec 3<>/dev/tcp/10.78.0.2/53; sleep 600"]);
    eventually("a connection", || tool(&server.pair.left, "ss", &["-tn"]).contains("10.78.0.2:53"));
    let table = ["top", "--once", "--view", "peers", "--interval", "500ms", "--format", "jsonl"];
    let run = server.dwell(&table).end();
    let peers =
        |lines: &str| of_type(lines, "top.row").into_iter().map(|row| row["peer_name"].clone()).collect::<Vec<_>>();
    assert_eq!((peers(&run.stdout), server.queries("10.78.0.2")), (vec![Value::Null], 0), "{run}");
    let run = server.dwell(&[&table[..], &["--resolve", "--filter", "192.0.2.0/24"]].concat()).end();
    assert_eq!((peers(&run.stdout), server.queries("10.78.0.2")), (Vec::new(), 0), "what is not shown: {run}");
    eventually("the name of a peer", || {
        let run = server.dwell(&[&table[..], &["--resolve"]].concat()).end();
        peers(&run.stdout) == ["db.example"]
    });
    let why = ["why", "10.78.0.2", "--duration", "1s", "--format", "jsonl"];
    let verdict = |run: &Run| of_type(&run.stdout, "why.verdict").pop().unwrap();
    let run = server.dwell(&why).end();
    assert_eq!(verdict(&run)["about"]["peer_name"], Value::Null, "{run}");
    eventually("the name of the target", || {
        let run = server.dwell(&[&why[..], &["--resolve"]].concat()).end();
        verdict(&run)["about"]["peer_name"] == "db.example"
    });
    client.signal(Signal::SIGKILL);
    client.end();
}

#[test]
fn a_capture_is_not_looked_up_and_no_names_excludes_it() {
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/requests.pcap.gz");
    for verb in [&["rtt"][..], &["response"], &["top", "--once"], &["why"]] {
        let run = dwell(&[verb, &["-r", capture, "--resolve"]].concat());
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{verb:?}: {run}");
        assert!(run.stderr.contains("--resolve is for live flows"), "{verb:?}: {run}");
    }
    let run = dwell(&["rtt", "-i", "lo", "--resolve", "--no-names"]);
    assert_eq!(run.status, Some(2), "{run}");
}
