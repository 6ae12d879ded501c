//! Labels of requests that real programs send, held against what tshark reads.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use dwell_testbed::skip::lacks_program;
use serde_json::Value;

use crate::{
    records::{objects, of_type},
    response_live::respond,
    support::{DWELL, Pair, Process, Run, dwell, eventually, ip, skipped, spawn, tool, watch},
};

/// Answers HTTP at 8080, /slow after 60 ms and /slower after 600; plays PostgreSQL at 5432; answers names at 53 with nothing;
/// reads all else and answers nothing.
const SERVER: &str = r#"
import http.server, socket, socketserver, struct, threading, time
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep({"/slow": 0.06, "/slower": 0.6}.get(self.path.split("?")[0], 0.005))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")
    do_POST = do_DELETE = do_GET
    def log_message(self, *_): pass
class Database(socketserver.BaseRequestHandler):
    def handle(self):
        size, = struct.unpack("!I", self.request.recv(4))
        self.request.recv(size - 4)
        ready = b"Z\0\0\0\x05I"
        self.request.sendall(b"R\0\0\0\x08\0\0\0\0" + ready)
        while self.request.recv(65536)[:1] == b"Q":
            self.request.sendall(b"C\0\0\0\x0bDELETE\0"[:-1] + b"\0" + ready)
class Sink(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(65536): pass
class Names(socketserver.BaseRequestHandler):
    def handle(self):
        data, socket = self.request
        socket.sendto(data[:2] + b"\x81\x83" + data[4:], self.client_address)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
def start(server): threading.Thread(target=server.serve_forever, daemon=True).start()
start(http.server.ThreadingHTTPServer(("10.78.0.2", 8080), Page))
start(Server(("10.78.0.2", 5432), Database))
for port in (6379, 3306, 8443, 50051): start(Server(("10.78.0.2", port), Sink))
socketserver.ThreadingUDPServer(("10.78.0.2", 53), Names).serve_forever()
"#;

/// What clients of Redis and MySQL send, which are rarely installed: GET of a key, an answer that looks like a command, and a
/// query with its attributes.
const CLIENT: &str = r#"
import socket, time
def say(port, *parts):
    with socket.create_connection(("10.78.0.2", port)) as one:
        for part in parts:
            one.sendall(part)
            time.sleep(0.05)
say(6379, b"*2\r\n$3\r\nget\r\n$10\r\nsecret-key\r\n")
say(6379, b"*1\r\n$6\r\nsecret\r\n")
query = b"\x03\0\x01insert into secrets values (1)"
say(3306, len(query).to_bytes(3, "little") + b"\0" + query)
"#;

/// What is asked, and how it must be called.
const LABELS: [&str; 11] = [
    "DELETE /items/7",
    "DNS www.example.org",
    "GET /fast",
    "GET /h2",
    "GET /slow",
    "MySQL INSERT",
    "POST /login",
    "PostgreSQL DELETE",
    "PostgreSQL SELECT",
    "Redis GET",
    "TLS www.example.org",
];

fn record(pair: &Pair, path: &str) {
    let client = |program: &str, arguments: &[&str]| {
        spawn(&pair.left, "timeout", &[&["2", program], arguments].concat()).end();
    };
    let tcpdump = spawn(&pair.left, "tcpdump", &["-i", "left0", "-U", "--immediate-mode", "-w", path]);
    eventually("a capture", || std::fs::metadata(path).is_ok_and(|file| file.len() > 0));
    let curl = |arguments: &[&str]| client("curl", &[&["-s", "--max-time", "1"], arguments].concat());
    let page = |path: &str| format!("http://10.78.0.2:8080{path}");
    for _ in 0..5 {
        curl(&[&page("/fast?token=secret"), &page("/slow#secret"), &page("/fast;jsessionid=secret")]);
    }
    curl(&["-d", "user=secret", &page("/login?secret")]);
    curl(&["-X", "DELETE", "-u", "user:secret", &page("/items/7")]);
    curl(&["--http2-prior-knowledge", "http://10.78.0.2:50051/h2?secret"]);
    curl(&["-k", "--resolve", "www.example.org:8443:10.78.0.2", "https://www.example.org:8443/secret"]);
    client("openssl", &["s_client", "-connect", "10.78.0.2:8443", "-servername", "www.example.org"]);
    client(
        "psql",
        &["postgresql://user@10.78.0.2/db?sslmode=disable", "-c", "select secret", "-c", "delete from secret"],
    );
    client("python3", &["-c", CLIENT]);
    client("dig", &["+tries=1", "@10.78.0.2", "WWW.example.org"]);
    thread::sleep(Duration::from_millis(200));
    tcpdump.interrupt();
}

/// Labels of all flows with one, and how often each stands in records.
fn labels(objects: &[Value]) -> BTreeMap<String, usize> {
    let mut labels = BTreeMap::new();
    for label in objects.iter().filter_map(|object| object["flow"]["label"].as_str()) {
        *labels.entry(label.to_owned()).or_default() += 1;
    }
    labels
}

fn jsonl(arguments: &[&str]) -> Vec<Value> {
    objects(&dwell(&[arguments, &["--format", "jsonl"]].concat()).stdout)
}

/// What tshark reads in a capture, called as dwell does.
fn tshark(path: &str) -> BTreeSet<String> {
    const FIELDS: [&str; 7] = [
        "http.request.method",
        "http.request.uri",
        "http2.headers.method",
        "http2.headers.path",
        "tls.handshake.extensions_server_name",
        "dns.qry.name",
        "pgsql.query",
    ];
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", path, "-d", "tcp.port==50051,http2", "-T", "fields", "-E", "separator=/t"]).args(fields);
    let output = tshark.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let without_query = |path: &str| path.split(['?', '#', ';']).next().unwrap_or_default().to_owned();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let values: Vec<&str> = line.split('\t').collect();
        for (method, path) in [(values[0], values[1]), (values[2], values[3])] {
            if !method.is_empty() {
                found.insert(format!("{method} {}", without_query(path)));
            }
        }
        let of = |kind: &str, name: &str| format!("{kind} {}", name.to_lowercase());
        found.extend(Some(values[4]).filter(|name| !name.is_empty()).map(|name| of("TLS", name)));
        found.extend(Some(values[5]).filter(|name| !name.is_empty()).map(|name| of("DNS", name)));
        let word = values[6].split(' ').next().unwrap_or_default().to_uppercase();
        found.extend(Some(word).filter(|word| !word.is_empty()).map(|word| format!("PostgreSQL {word}")));
    }
    found
}

fn start(name: &str) -> Option<(Pair, Process)> {
    if skipped() || ["python3", "tcpdump", "curl", "openssl", "psql", "dig"].into_iter().any(lacks_program) {
        return None;
    }
    let pair = Pair::start(name);
    ip(&pair.right, "link set lo up\n");
    let server = spawn(&pair.right, "python3", &["-c", SERVER]);
    eventually("servers", || tool(&pair.right, "ss", &["-uln"]).contains(":53"));
    Some((pair, server))
}

#[test]
fn root_requests_of_real_programs_have_the_labels_that_tshark_reads() {
    let Some((pair, _server)) = start("labels") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("requests.pcap");
    let capture = capture.to_str().unwrap();
    record(&pair, capture);
    check(capture);
    if !lacks_program("tshark") {
        let theirs = tshark(capture);
        let ours: BTreeSet<String> = labels(&jsonl(&["rtt", "-r", capture])).into_keys().collect();
        assert!(theirs.is_subset(&ours), "{theirs:?} and {ours:?}");
        let others: Vec<_> = ours.difference(&theirs).collect();
        assert_eq!(others, ["MySQL INSERT", "Redis GET"], "tshark shows these in other fields");
    }
}

#[test]
fn root_live_flows_have_the_labels_of_requests_that_pass() {
    let Some((pair, _server)) = start("labels-live") else {
        return;
    };
    let rtt = ["-i", "left0", "--summary", "--format", "jsonl"];
    let at_client = watch(&pair.left, &rtt);
    let without = watch(&pair.left, &[&rtt[..], &["--no-labels"]].concat());
    let at_server = watch(&pair.right, &["-i", "right0", "--summary", "--format", "jsonl"]);
    let response = respond(&pair.left, "left0", &["-i", "left0", "--format", "jsonl"]);
    let curl = |path: &str| spawn(&pair.left, "curl", &["-s", &format!("http://10.78.0.2:8080{path}")]).end();
    for _ in 0..5 {
        curl("/slow?secret");
    }
    spawn(&pair.left, "timeout", &["1", "python3", "-c", CLIENT]).end();
    let h2 = ["1", "curl", "-s", "--http2-prior-knowledge", "http://10.78.0.2:50051/h2?secret"];
    spawn(&pair.left, "timeout", &h2).end();
    thread::sleep(Duration::from_millis(500));
    for _ in 0..40 {
        curl("/fast");
    }
    for run in [at_client, at_server].map(Process::interrupt) {
        assert!(!run.stdout.contains("secret"), "{run}");
        let found = labels(&objects(&run.stdout));
        for label in ["GET /slow", "GET /fast", "GET /h2", "Redis GET", "MySQL INSERT"] {
            assert!(found.contains_key(label), "{label}: {found:?} {run}");
        }
        let status = of_type(&run.stdout, "rtt.status").pop().unwrap();
        assert!(status["counters"]["labelled_requests"].as_u64().unwrap() >= 48, "{status}");
        assert!(status["counters"]["labels_lost"].is_null(), "{status}");
    }
    let run = without.interrupt();
    assert!(!run.stdout.contains("label"), "{run}");
    let run = response.interrupt();
    assert!(labels(&objects(&run.stdout)).contains_key("GET /slow"), "{run}");
}

#[test]
fn root_why_names_the_slowest_requests_of_live_connections() {
    let Some((pair, _server)) = start("labels-why") else {
        return;
    };
    // Each request follows the answer to the one before at once.
    let pages: Vec<String> = (0..200)
        .map(|n| format!("http://10.78.0.2:8080/{}?secret", if n % 3 == 0 { "slower" } else { "fast" }))
        .collect();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let client = spawn(&pair.left, "curl", &[&["-s"][..], &pages].concat());
    let why = |host, options: &[&str]| {
        spawn(host, DWELL, &[&["why", ":8080", "--duration", "3s", "--format", "jsonl"], options].concat())
    };
    let looks = [why(&pair.left, &[]), why(&pair.right, &[])];
    let rows = spawn(&pair.left, DWELL, &["top", "--once", "--format", "jsonl"]);
    let without = why(&pair.right, &["--no-labels"]).end();
    for run in looks.map(Process::end) {
        let verdict = objects(&run.stdout).pop().unwrap();
        let requests: Vec<(&str, u64)> = verdict["requests"].as_array().unwrap().iter().map(mean_ms).collect();
        // Whether fast ones show depends on the time between polls.
        let [("GET /slower", slow_ms), ref others @ ..] = requests[..] else { panic!("{run}") };
        assert!(slow_ms >= 590 && matches!(others, [] | [("GET /fast", _)]), "{requests:?}");
        assert!(!run.stdout.contains("secret"), "{run}");
    }
    let rows = labels(&objects(&rows.end().stdout));
    assert!(rows.contains_key("GET /slower") || rows.contains_key("GET /fast"), "{rows:?}");
    let verdict = objects(&without.stdout).pop().unwrap();
    assert_eq!(verdict["requests"], Value::Array(Vec::new()), "{without}");
    drop(client);
}

/// A server at 8443 that lets each client wait for 600 ms for the answer to its ClientHello, and clients that try again: searches
/// for connections are rare on a host with many.
const HANDSHAKES: &str = r#"
import socket, socketserver, ssl, sys, threading, time
class Server(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(65536)
        time.sleep(0.6)
        self.request.sendall(b"\x15\x03\x03\0\x02\x02\x28")
        self.request.recv(100)
socketserver.ThreadingTCPServer.allow_reuse_address = True
if sys.argv[1] == "server":
    socketserver.ThreadingTCPServer(("10.78.0.2", 8443), Server).serve_forever()
hello = ssl.MemoryBIO()
client = ssl._create_unverified_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="www.example.org")
try: client.do_handshake()
except ssl.SSLWantReadError: hello = hello.read()
def ask():
    while True:
        with socket.create_connection(("10.78.0.2", 8443)) as one:
            one.sendall(hello)
            one.recv(100)
            time.sleep(0.3)
for _ in range(4): threading.Thread(target=ask).start()
"#;

#[test]
fn root_a_slow_handshake_is_the_cause_whether_labels_are_shown_or_not() {
    if skipped() || lacks_program("python3") {
        return;
    }
    let pair = Pair::start("labels-tls");
    ip(&pair.right, "link set lo up\n");
    let _server = spawn(&pair.right, "python3", &["-c", HANDSHAKES, "server"]);
    eventually("the server", || tool(&pair.right, "ss", &["-tln"]).contains(":8443"));
    let _client = spawn(&pair.left, "python3", &["-c", HANDSHAKES, "client"]);
    eventually("a client", || tool(&pair.left, "ss", &["-tn"]).contains(":8443"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("verdict");
    let file = file.to_str().unwrap();
    let why = |options: &[&str]| {
        spawn(&pair.left, DWELL, &[&["why", ":8443", "--duration", "4s", "--format", "jsonl"], options].concat())
    };
    let looks = [why(&[]), why(&["--no-labels"]), why(&["-w", file])].map(Process::end);
    let [shown, hidden] = [0, 1].map(|at: usize| looks[at].stdout.clone());
    let written = std::fs::read_to_string(file).unwrap();
    for (lines, has_labels) in [(shown, true), (hidden, false), (written, false)] {
        let verdict = objects(&lines).pop().unwrap();
        // A busy host may read packets too late to tell, and says so.
        let is_told = lines.contains("was TLS's handshake");
        assert!(verdict["cause"] == "slow-set-up" || is_told, "{lines}");
        assert_eq!(lines.contains("www.example.org"), has_labels, "{lines}");
    }
}

fn mean_ms(requests: &Value) -> (&str, u64) {
    (requests["label"].as_str().unwrap(), requests["mean_ns"].as_u64().unwrap() / 1_000_000)
}

/// Checks what verbs show of the capture of [`record`].
fn check(capture: &str) {
    let samples = jsonl(&["rtt", "-r", capture]);
    assert_eq!(labels(&samples).keys().collect::<Vec<_>>(), LABELS);
    let epochs = labels(&jsonl(&["response", "-r", capture]));
    assert!(epochs.contains_key("GET /fast") && epochs.contains_key("PostgreSQL DELETE"), "{epochs:?}");
    let rows = labels(&jsonl(&["top", "-r", capture, "--once"]));
    assert!(rows.contains_key("GET /fast") && rows.contains_key("TLS www.example.org"), "{rows:?}");

    let why = jsonl(&["why", "-r", capture]).pop().unwrap();
    let requests = why["requests"].as_array().unwrap();
    assert_eq!(requests[0]["label"], "GET /slow", "{why}");
    assert_eq!(requests[0]["count"], 5, "{why}");
    let mean_ms = requests[0]["mean_ns"].as_u64().unwrap() / 1_000_000;
    assert!(mean_ms >= 60, "{why}");
    let text = dwell(&["why", "-r", capture]);
    assert!(text.stdout.contains("mean wait of 5 requests GET /slow (longest "), "{text}");

    // In text, and nowhere a secret.
    for arguments in [&["rtt"][..], &["rtt", "--summary"], &["response"], &["response", "--summary"], &["why"]] {
        for format in [&[][..], &["--format", "jsonl"]] {
            let run = dwell(&[arguments, &["-r", capture], format].concat());
            assert!(!format!("{run}").contains("secret"), "{arguments:?} {run}");
        }
    }
    let line = dwell(&["rtt", "-r", capture]);
    assert!(line.stdout.contains("10.78.0.2:8080  [GET /slow]\n"), "{line}");
}

fn recorded() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/requests.pcap.gz");
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_recorded_capture_has_the_labels_of_its_requests() {
    check(&recorded());
}

#[test]
fn labels_are_left_out_when_they_are_not_wanted_and_from_files_unless_they_are() {
    let (capture, folder) = (recorded(), tempfile::tempdir().unwrap());
    let has_labels = |run: &Run| run.stdout.contains("GET /");
    for verb in [&["rtt"][..], &["response"], &["why"]] {
        let of = |options: &[&str]| dwell(&[verb, &["-r", &capture, "--format", "jsonl"], options].concat());
        assert!(has_labels(&of(&[])) && has_labels(&of(&["--no-labels", "--labels"])), "{verb:?}");
        assert!(!has_labels(&of(&["--no-labels"])), "{verb:?}");
        for (option, is_kept) in [(None, false), (Some("--labels"), true)] {
            let file = folder.path().join(format!("{}-{is_kept}", verb[0]));
            let options = [Some("-w"), file.to_str(), option];
            of(&options.into_iter().flatten().collect::<Vec<_>>());
            assert_eq!(std::fs::read_to_string(&file).unwrap().contains("GET /"), is_kept, "{verb:?} {option:?}");
        }
    }
    let run = dwell(&["rtt", "-r", &capture, "-n"]);
    assert!(!has_labels(&run), "{run}");
    let run = dwell(&["top", "-r", &capture, "--once", "--no-labels"]);
    assert!(!run.stdout.contains('['), "{run}");
}

#[test]
fn packets_that_were_cut_give_the_labels_that_fit() {
    if lacks_program("editcap") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.pcap");
    let cut = cut.to_str().unwrap();
    for (bytes, labels_that_fit) in
        [("78", &["GET /slow", "DELETE /item…", "Redis GET"][..]), ("100", &["DELETE /items/7", "HTTP/2 ?"])]
    {
        let editcap = Command::new("editcap").args(["-s", bytes, &recorded(), cut]).output().unwrap();
        assert!(editcap.status.success(), "{editcap:?}");
        let found = labels(&jsonl(&["rtt", "-r", cut]));
        for label in labels_that_fit {
            assert!(found.contains_key(*label), "{label}: {found:?}");
        }
    }
}
