//! `dwell why` on programs that people run, in a network namespace of their own: a proxy, stores, a
//! database, servers of several languages, name servers, TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use dwell_testbed::{
    Guarded, Namespace,
    skip::{lacks_program, skip},
};
use serde_json::Value;

use crate::{
    records::objects,
    support::{DWELL, eventually, skipped},
};

/// An HTTP server at port 8090 that takes 60 ms for each answer, or 300 ms, on connections that it keeps.
const SLOW: &str = "\
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        time.sleep(0.3 if self.path == '/long' else 0.06)
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8090), Handler).serve_forever()
";

/// A network namespace with programs, which end with it.
struct Host {
    // Before the namespace, which is removed when nothing runs in it.
    programs: Vec<Guarded>,
    namespace: Namespace,
}

impl Host {
    fn new(test: &str) -> Host {
        let namespace = Namespace::create(test).unwrap();
        Host { programs: Vec::new(), namespace }
    }

    /// Starts a program that listens at a port.
    fn serve(&mut self, program: &str, arguments: &[&str], port: u16) -> u32 {
        let started = self
            .namespace
            .spawn(program, |command| {
                // Node makes the pipes that it is given non-blocking, also for all others that write to them.
                command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            })
            .unwrap();
        let pid = started.0.id();
        self.programs.push(started);
        eventually("the program listens", || self.connect(port).is_some());
        pid
    }

    fn connect(&self, port: u16) -> Option<TcpStream> {
        self.namespace.enter(|| TcpStream::connect(("127.0.0.1", port)).ok()).unwrap()
    }

    /// Sends the same request again and again, with pauses, until the connection breaks.
    fn ask(&self, port: u16, request: &'static [u8], pause: Duration) {
        let mut stream = self.connect(port).unwrap();
        stream.set_nodelay(true).unwrap();
        thread::spawn(move || {
            let mut answer = [0; 4096];
            while stream.write_all(request).is_ok() && stream.read(&mut answer).is_ok_and(|bytes| bytes > 0) {
                thread::sleep(pause);
            }
        });
    }

    /// Asks why a target is slow, until the verdict is as wanted: other work may be the cause for once.
    fn why(&self, target: &str, wanted: impl Fn(&Value) -> bool) {
        let mut last = Value::Null;
        // Whose sockets there are is searched for seldom on a busy machine, so that a longer look finds more of them.
        for duration in ["3s", "3s", "6s", "10s", "10s"] {
            let arguments = ["why", target, "--duration", duration, "--format", "jsonl"];
            let output = self.namespace.command(DWELL).args(arguments).output().unwrap();
            last = objects(&String::from_utf8(output.stdout).unwrap()).pop().unwrap();
            if wanted(&last) {
                return;
            }
        }
        panic!("{last:#}");
    }
}

/// Starts nginx before a slow server, to which it keeps connections of port 8080, and opens one for each request of port 8081.
fn start_proxy(host: &mut Host, folder: &Path) -> u32 {
    host.serve("python3", &["-c", SLOW], 8090);
    let here = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind}; "))
        .concat();
    let config = format!(
        "user root; daemon off; worker_processes 2; pid {here}/nginx.pid; events {{ worker_connections 100; }}\n\
         http {{ access_log off; {temporary}\n\
         upstream slow {{ server 127.0.0.1:8090; keepalive 8; }}\n\
         server {{ listen 127.0.0.1:8080; location / {{ proxy_pass http://slow;\n\
         proxy_http_version 1.1; proxy_set_header Connection ''; }} }}\n\
         server {{ listen 127.0.0.1:8081; location / {{ proxy_pass http://127.0.0.1:8090; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config).unwrap();
    host.serve("nginx", &["-e", "/dev/null", "-c", file.to_str().unwrap()], 8080)
}

#[test]
fn root_a_proxy_before_a_slow_service_is_not_called_slow_itself() {
    if skipped() || lacks_program("nginx") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::new("why-proxy");
    let pid = start_proxy(&mut host, folder.path());
    let ask = |port, request| (0..3).for_each(|_| host.ask(port, request, Duration::from_millis(10)));
    let is_upstream = |verdict: &Value| {
        verdict["cause"] == "slow-answer" && verdict["remedies"].to_string().contains("dwell why :8090")
    };
    ask(8080, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    // The user asks about the port; whom the proxy asks is found.
    host.why(":8080", is_upstream);
    ask(8081, b"GET /long HTTP/1.1\r\nHost: test\r\n\r\n");
    host.why(&pid.to_string(), is_upstream);
    host.why(":8081", is_upstream);
    // It also writes its header and its body apart, which Nagle's algorithm holds back.
    host.why(":8090", |verdict| verdict["cause"] == "slow-service" && verdict["causes"].to_string().contains("nagle"));
}

#[test]
fn root_a_store_that_is_blocked_is_slow_and_one_whose_clients_wait_for_messages_may_be() {
    if skipped() || lacks_program("redis-server") {
        return;
    }
    let mut host = Host::new("why-redis");
    let arguments = ["--port", "7379", "--save", "", "--enable-debug-command", "yes", "--bind", "127.0.0.1"];
    let pid = host.serve("redis-server", &arguments, 7379).to_string();
    let ms = Duration::from_millis;
    host.ask(7379, b"*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n$4\r\n0.05\r\n", ms(20));
    host.ask(7379, b"*1\r\n$4\r\nPING\r\n", ms(5));
    host.why(&pid, |verdict| verdict["cause"] == "slow-service");
    drop(host);
    let mut host = Host::new("why-redis");
    let pid = host.serve("redis-server", &arguments, 7379).to_string();
    // A consumer that waits for messages, of which there is one each 300 ms.
    host.ask(7379, b"*3\r\n$5\r\nBLPOP\r\n$4\r\nlist\r\n$1\r\n0\r\n", ms(0));
    host.ask(7379, b"*3\r\n$5\r\nLPUSH\r\n$4\r\nlist\r\n$1\r\nx\r\n", ms(300));
    host.why(&pid, |verdict| verdict["outcome"] == "healthy" || verdict["certainty"] == "possible");
}

/// A message of PostgreSQL's protocol: a kind, the length, and the text.
fn postgres_query(text: &str) -> Vec<u8> {
    let length = (text.len() as u32 + 5).to_be_bytes();
    [b"Q".as_slice(), &length, text.as_bytes(), b"\0"].concat()
}

/// Reads up to the end of an answer of PostgreSQL, which is ReadyForQuery. Returns false if there is none.
fn is_ready(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 8192];
    while let Ok(bytes) = stream.read(&mut answer) {
        if bytes == 0 {
            return false;
        }
        if bytes >= 6 && answer[bytes - 6..bytes - 1] == *b"Z\0\0\0\x05" {
            return true;
        }
    }
    false
}

/// Asks a PostgreSQL server the same again and again: each of these queries, and then a pause in milliseconds.
fn ask_postgres(host: &Host, queries: &'static [(&'static str, u64)]) {
    const PARAMETERS: &[u8] = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let length = (PARAMETERS.len() as u32 + 4).to_be_bytes();
    let mut opened = None;
    eventually("the database takes connections", || {
        let mut stream = host.connect(5432).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&[&length, PARAMETERS].concat()).unwrap();
        // It listens before it is ready.
        opened = is_ready(&mut stream).then_some(stream);
        opened.is_some()
    });
    let mut stream = opened.unwrap();
    thread::spawn(move || {
        for (query, pause) in queries.iter().cycle() {
            if stream.write_all(&postgres_query(query)).is_err() || !is_ready(&mut stream) {
                return;
            }
            thread::sleep(Duration::from_millis(*pause));
        }
    });
}

/// Starts PostgreSQL as a user without privilege, which it asks for. Returns its process.
fn start_postgres(host: &mut Host, folder: &Path) -> String {
    let (data, root) = (folder.join("data"), folder.join("root"));
    for folder in [&data, &root] {
        fs::create_dir(folder).unwrap();
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    nix::unistd::chown(&data, Some(nobody.uid), Some(nobody.gid)).unwrap();
    let (data, root) = (data.to_str().unwrap(), root.to_str().unwrap());
    // It may have been unpacked where only root may look, and is seen elsewhere then.
    let found = host.namespace.command("sh").args(["-c", "dirname $(realpath $(command -v initdb))"]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let (unpacked, below) = found.trim().split_at(found.find("/usr/lib/").unwrap());
    let (unpacked, bin) = (format!("{unpacked}/"), format!("{root}{below}"));
    let reach =
        "mount --bind \"$0\" \"$1\" && shift && exec setpriv --reuid=nobody --regid=nogroup --clear-groups \"$@\"";
    let run = ["--mount", "sh", "-c", reach, &unpacked, root];
    let initdb = format!("{bin}/initdb");
    let initdb = [&initdb, "-D", data, "-A", "trust", "-U", "postgres", "--no-sync"];
    let made = host.namespace.command("unshare").args(run).args(initdb).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let postgres = format!("{bin}/postgres");
    let postgres = [&postgres, "-D", data, "-k", data, "-h", "127.0.0.1", "-c", "fsync=off"];
    host.serve("unshare", &[&run[..], &postgres].concat(), 5432).to_string()
}

#[test]
fn root_a_database_is_slow_for_slow_queries_and_not_for_clients_that_idle_in_transactions() {
    if skipped() || lacks_program("initdb") || lacks_program("postgres") || lacks_program("setpriv") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::new("why-postgres");
    let pid = start_postgres(&mut host, folder.path());
    ask_postgres(&host, &[("SELECT 1", 5)]);
    // Transactions that stay open while their client does something else.
    ask_postgres(&host, &[("BEGIN", 0), ("SELECT 1", 700), ("COMMIT", 300)]);
    host.why(&pid, is_healthy);
    host.why(":5432", is_healthy);
    ask_postgres(&host, &[("SELECT pg_sleep(0.08)", 10)]);
    host.why(&pid, |verdict| verdict["cause"] == "slow-service");
}

/// Whether nothing is slow; or on a busy machine, whose polls are far apart, that cannot be told.
fn is_healthy(verdict: &Value) -> bool {
    let is_far = verdict["poll_interval_ns"].as_u64() >= Some(15_000_000);
    verdict["outcome"] == "healthy" || (is_far && verdict["outcome"] == "not-enough")
}

#[test]
fn root_a_cache_that_answers_at_once_is_healthy() {
    if skipped() || lacks_program("memcached") {
        return;
    }
    let mut host = Host::new("why-memcached");
    let pid = host.serve("memcached", &["-u", "root", "-l", "127.0.0.1", "-p", "11211", "-U", "0"], 11211).to_string();
    for pause in [2, 20, 200] {
        host.ask(11211, b"get x\r\n", Duration::from_millis(pause));
    }
    host.why(&pid, is_healthy);
    host.why(":11211", is_healthy);
}

/// HTTP servers at port 8091, which answer /slow after 60 ms and everything else at once.
const NODE: &str = "\
require('http').createServer((request, response) => {
	setTimeout(() => response.end('ok'), request.url === '/slow' ? 60 : 0);
}).listen(8091, '127.0.0.1');
";
const JAVA: &str = "\
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Slow {
	public static void main(String[] arguments) throws Exception {
		HttpServer server = HttpServer.create(new InetSocketAddress(\"127.0.0.1\", 8091), 0);
		server.setExecutor(Executors.newCachedThreadPool());
		server.createContext(\"/\", exchange -> {
			if (exchange.getRequestURI().getPath().equals(\"/slow\")) {
				try {
					Thread.sleep(60);
				} catch (InterruptedException error) {
					throw new java.io.IOException(error);
				}
			}
			exchange.getRequestBody().readAllBytes();
			exchange.sendResponseHeaders(204, -1);
			exchange.close();
		});
		server.start();
	}
}
";

const GO: &str = "\
package main

import (
	\"net/http\"
	\"time\"
)

func main() {
	http.HandleFunc(\"/\", func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == \"/slow\" {
			time.Sleep(60 * time.Millisecond)
		}
		writer.Write([]byte(\"ok\"))
	})
	http.ListenAndServe(\"127.0.0.1:8091\", nil)
}
";

/// Checks that a server at port 8091 is healthy while it answers at once, and slow when it does not.
fn judges_http(host: &Host, pid: u32) {
    host.ask(8091, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", Duration::from_millis(20));
    host.why(&pid.to_string(), is_healthy);
    for _ in 0..2 {
        host.ask(8091, b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n", Duration::from_millis(10));
    }
    host.why(&pid.to_string(), |verdict| verdict["cause"] == "slow-service");
}

#[test]
fn root_a_server_of_go_is_judged_by_what_it_does() {
    if skipped() {
        return;
    }
    if Command::new("go").arg("version").output().is_err() {
        return skip("there is no go, which tests/quic/setup fetches");
    }
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["slow.go", "slow"].map(|name| folder.path().join(name));
    fs::write(&source, GO).unwrap();
    let mut host = Host::new("why-go");
    // Its caches are in the folder of the test, which is removed.
    let mut build = host.namespace.command("go");
    build.args(["build", "-o", program.to_str().unwrap(), source.to_str().unwrap()]);
    for (variable, value) in [("HOME", "home"), ("GOCACHE", "cache"), ("GOPATH", "path")] {
        build.env(variable, folder.path().join(value));
    }
    let built = build.env("GO111MODULE", "off").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let pid = host.serve(program.to_str().unwrap(), &[], 8091);
    judges_http(&host, pid);
    // Its name and its port are told with the verdict.
    host.why(":8091", |verdict| verdict["about"]["process"] == "slow" && verdict["about"]["pid"] == pid);
}

#[test]
fn root_servers_of_node_and_java_are_judged_by_what_they_do() {
    if skipped() {
        return;
    }
    if !lacks_program("node") {
        let mut host = Host::new("why-node");
        let pid = host.serve("node", &["-e", NODE], 8091);
        judges_http(&host, pid);
    }
    if !lacks_program("java") {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("Slow.java");
        fs::write(&source, JAVA).unwrap();
        let mut host = Host::new("why-java");
        let pid = host.serve("java", &["-Xmx128m", source.to_str().unwrap()], 8091);
        judges_http(&host, pid);
    }
}

/// A name server that answers each question with 127.0.0.1, after 400 ms: several times the time between two looks
/// at sockets of UDP on a slow host.
const NAMES: &str = "\
import socket, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('127.0.0.1', 53))
listener = socket.create_server(('127.0.0.1', 8092))
while True:
    question, client = server.recvfrom(512)
    time.sleep(0.4)
    answer = b'\\xc0\\x0c\\x00\\x01\\x00\\x01\\x00\\x00\\x00\\x3c\\x00\\x04\\x7f\\x00\\x00\\x01'
    end = question.index(b'\\x00', 12) + 5
    is_v4 = question[end - 4:end - 2] == b'\\x00\\x01'
    header = question[:2] + b'\\x81\\x80\\x00\\x01' + (b'\\x00\\x01' if is_v4 else b'\\x00\\x00') + b'\\x00\\x00\\x00\\x00'
    server.sendto(header + question[12:end] + (answer if is_v4 else b''), client)
";
/// A program that looks a name up each time, as most do.
const LOOKS_UP: &str = "\
import socket, time
for _ in range(6):
    socket.getaddrinfo('service.test', 80, socket.AF_INET, socket.SOCK_STREAM)
    time.sleep(0.02)
";

#[test]
fn root_a_program_whose_name_server_answers_late_waits_for_names() {
    if skipped() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let resolver = folder.path().join("resolv.conf");
    fs::write(&resolver, "nameserver 127.0.0.1\n").unwrap();
    let mut host = Host::new("why-names");
    host.serve("python3", &["-c", NAMES], 8092);
    let script = format!(
        "mount --bind '{}' /etc/resolv.conf && exec '{DWELL}' why --format jsonl -- python3 -c \"$1\"",
        resolver.display()
    );
    let arguments = ["-m", "sh", "-c", &script, "sh", LOOKS_UP];
    let output = host.namespace.command("unshare").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let verdict = objects(&said).pop().unwrap_or_else(|| panic!("{said}"));
    assert_eq!(verdict["cause"], "slow-names", "{verdict:#}");
    // That the program ends is what it was started for.
    assert!(!verdict["unseen"].to_string().contains("then ended"), "{verdict:#}");
}

/// A server of TLS at port 8443 that answers the first message of each handshake after 150 ms.
const TLS: &str = "\
import socket, ssl, sys, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(('127.0.0.1', 8443))
while True:
    client, _ = listener.accept()
    try:
        time.sleep(0.15)
        with context.wrap_socket(client, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok')
    except OSError:
        pass
";

#[test]
fn root_in_a_capture_a_handshake_of_tls_that_takes_long_is_a_slow_set_up() {
    if skipped() || lacks_program("curl") || lacks_program("openssl") || lacks_program("tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [key, certificate, capture] = ["key.pem", "cert.pem", "tls.pcap"].map(|name| folder.path().join(name));
    let paths = [&key, &certificate, &capture].map(|path| path.to_str().unwrap());
    let mut host = Host::new("why-tls");
    let request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"];
    let made = host.namespace.command("openssl").args(request).args(["-keyout", paths[0], "-out", paths[1]]).output();
    assert!(made.unwrap().status.success());
    host.serve("python3", &["-c", TLS, paths[1], paths[0]], 8443);
    // The capture begins before the requests, as it usually does.
    let arguments = ["-i", "lo", "-U", "-Z", "root", "-w", paths[2], "tcp port 8443"];
    let capturing = host.namespace.spawn("tcpdump", |command| {
        command.args(arguments).stderr(Stdio::null());
    });
    let capturing = capturing.unwrap();
    eventually("tcpdump captures", || fs::metadata(&capture).is_ok_and(|file| file.len() > 0));
    let curl = ["-sk", "-o", "/dev/null", "--retry", "0", "https://127.0.0.1:8443/"];
    for _ in 0..3 {
        assert!(host.namespace.command("curl").args(curl).status().unwrap().success());
    }
    thread::sleep(Duration::from_millis(500));
    drop(capturing);
    let arguments = ["why", "-r", paths[2], ":8443", "--format", "jsonl"];
    let output = host.namespace.command(DWELL).args(arguments).output().unwrap();
    let verdict = objects(&String::from_utf8(output.stdout).unwrap()).pop().unwrap();
    assert_eq!(verdict["cause"], "slow-set-up", "{verdict:#}");
}
