//! `dwell why` on programs that people run, in a network namespace of their own: a proxy, a store, consumers.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    thread,
    time::Duration,
};

use dwell_testbed::{Guarded, Namespace, skip::lacks_program};
use serde_json::Value;

use crate::{
    records::objects,
    support::{DWELL, eventually, skipped},
};

/// An HTTP server at port 8090 that takes 60 ms for each answer, on connections that it keeps.
const SLOW: &str = "\
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        time.sleep(0.06)
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
                command.args(arguments);
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
        for _ in 0..5 {
            let arguments = ["why", target, "--duration", "3s", "--format", "jsonl"];
            let output = self.namespace.command(DWELL).args(arguments).output().unwrap();
            last = objects(&String::from_utf8(output.stdout).unwrap()).pop().unwrap();
            if wanted(&last) {
                return;
            }
        }
        panic!("{last:#}");
    }
}

/// Starts nginx before a slow server, to which it keeps connections.
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
         proxy_http_version 1.1; proxy_set_header Connection ''; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config).unwrap();
    host.serve("nginx", &["-e", "stderr", "-c", file.to_str().unwrap()], 8080)
}

#[test]
fn root_a_proxy_before_a_slow_service_is_not_called_slow_itself() {
    if skipped() || lacks_program("nginx") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut host = Host::new("why-proxy");
    let pid = start_proxy(&mut host, folder.path());
    for _ in 0..3 {
        host.ask(8080, b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", Duration::from_millis(10));
    }
    let is_upstream = |verdict: &Value| {
        verdict["cause"] == "slow-answer" && verdict["remedies"].to_string().contains("dwell why :8090")
    };
    host.why(&pid.to_string(), is_upstream);
    // The user asks about the port; whom the proxy asks is found.
    host.why(":8080", is_upstream);
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
