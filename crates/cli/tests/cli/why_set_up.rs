//! `dwell why` where connections cannot be opened, and where names are not found.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use dwell_testbed::Namespace;
use serde_json::Value;

use crate::{
    records::{objects, text},
    support::{DWELL, Pair, dwell, ip, skipped},
};

/// Tries to open connections, one after the other, until it is dropped.
struct Attempts(Arc<AtomicBool>);

impl Attempts {
    fn start(server: SocketAddr) -> Attempts {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let _ = TcpStream::connect(server);
                thread::sleep(Duration::from_millis(5));
            }
        });
        Attempts(is_over)
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn of_a_server_that_refuses_connections_the_failed_attempts_are_told() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _attempts = Attempts::start(server);
    let run = dwell(&["why", "--format", "jsonl", &server.to_string(), "--duration", "1s"]);
    let verdict = objects(&run.stdout).pop().unwrap_or_else(|| panic!("{run}"));
    assert_eq!((run.status, text(&verdict, "outcome")), (Some(4), "no-traffic"), "{run}");
    assert!(text(&verdict, "sentence").contains("refused"), "{verdict:#}");
    let remedy = text(&verdict["unseen"][0], "remedy");
    assert!(remedy.contains(&format!("nc -vz 127.0.0.1 {}", server.port())), "{verdict:#}");
}

/// Has the right host drop what the left one sends to 10.99.0.1, and say nothing.
fn drops(pair: &Pair) {
    ip(&pair.left, "route add 10.99.0.1 via 10.78.0.2\n");
    ip(&pair.right, "route add blackhole 10.99.0.1\n");
}

/// Opens a connection, and waits for that for longer than dwell looks.
const CONNECTS: &str = "import socket; socket.create_connection(('10.99.0.1', 8443), 100)";

/// Asks at a host.
fn why(host: &Namespace, arguments: &[&str]) -> Value {
    let output = host.command(DWELL).args(["why", "--format", "jsonl"]).args(arguments).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    objects(&said).pop().unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn root_a_target_whose_packets_a_peer_drops_is_named_with_what_to_do_at_it() {
    if skipped() {
        return;
    }
    let pair = Pair::start("why-dropped");
    drops(&pair);
    let connects = |command: &mut Command| {
        command.args(["-c", CONNECTS]);
    };
    let client = pair.left.spawn("python3", connects).unwrap();
    for target in ["10.99.0.1:8443".to_owned(), ":8443".to_owned(), client.0.id().to_string()] {
        let verdict = why(&pair.left, &[&target, "--duration", "4s"]);
        assert_eq!(verdict["cause"], "slow-set-up", "{verdict:#}");
        let sentence = text(&verdict, "sentence");
        assert!(
            sentence.starts_with("A connection to 10.99.0.1:8443 cannot be opened: nothing answered"),
            "{sentence}"
        );
        let remedies = verdict["remedies"].to_string();
        assert!(remedies.contains("mtr --tcp --port 8443 -rwc 5 10.99.0.1"), "{remedies}");
        assert!(remedies.contains("ssh 10.99.0.1 ss -ltn sport = :8443"), "{remedies}");
    }
}

/// Looks a name up once.
const LOOKS_UP: &str = "\
import socket
try:
    socket.getaddrinfo('service.test', 80, socket.AF_INET, socket.SOCK_STREAM)
except socket.gaierror:
    pass
";

#[test]
fn root_a_name_server_that_is_dead_is_named_before_the_program_gives_up() {
    if skipped() {
        return;
    }
    let pair = Pair::start("why-dead-names");
    drops(&pair);
    let folder = tempfile::tempdir().unwrap();
    let resolver = folder.path().join("resolv.conf");
    fs::write(&resolver, "nameserver 10.99.0.1\noptions timeout:8 attempts:1\n").unwrap();
    // The program waits for longer than dwell looks.
    let script = format!(
        "mount --bind '{}' /etc/resolv.conf && exec '{DWELL}' why --format jsonl --duration 3s -- python3 -c \"$1\"",
        resolver.display()
    );
    let output = pair.left.command("unshare").args(["-m", "sh", "-c", &script, "sh", LOOKS_UP]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let verdict = objects(&said).pop().unwrap_or_else(|| panic!("{said}"));
    assert_eq!(verdict["cause"], "slow-names", "{verdict:#}");
    let facts = verdict["facts"].as_array().unwrap();
    assert!(facts.iter().any(|fact| fact["what"] == "of them without an answer at the end"), "{verdict:#}");
}
