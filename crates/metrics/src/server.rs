//! `GET /metrics`, and nothing else of HTTP.
//!
//! A library for this would be welcome, but the small one, tiny_http, has had no
//! release since October 2022, and the living ones bring an async runtime.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_socket::{acceptor, privilege};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{
    Registry,
    protobuf::{self, protobuf},
};

/// Connections that are served at once; later ones wait until one of these is over.
const MAX_CONNECTIONS: usize = 16;
/// A request and its response have this long together, so that a peer who dawdles occupies a connection no longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request's line and headers.
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// Most bytes that are read of a request that is too long, after its refusal.
const MAX_REST_BYTES: usize = 64 * 1024;
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address could not be listened on.
    #[error("cannot serve metrics on {address}: {io}{remedy}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        io: io::Error,
        /// What to do.
        remedy: String,
    },
    /// No thread could be started.
    #[error("cannot serve metrics: starting a thread: {0}")]
    Thread(io::Error),
}

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    /// The end of a pair of sockets, at whose close the thread ends.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `metrics` at `/metrics` of `address`, to several connections at once.
///
/// # Errors
///
/// If the address cannot be listened on; the message says what to do.
pub fn serve(address: SocketAddr, metrics: Arc<Registry>) -> Result<Server, ServeError> {
    start(address, metrics, PATIENCE)
}

fn start(address: SocketAddr, metrics: Arc<Registry>, patience: Duration) -> Result<Server, ServeError> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    };
    let (address, listener) =
        bind().map_err(|io: io::Error| ServeError::Bind { address, remedy: acceptor::remedy(address, &io), io })?;
    let (stop, stopped) = UnixStream::pair().map_err(ServeError::Thread)?;
    let thread = thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            // Whoever can reach it can send it anything.
            let _ = privilege::keep(&[]);
            run(&listener, &stopped, &metrics, patience);
        })
        .map_err(ServeError::Thread)?;
    Ok(Server { address, stop: Some(stop), thread: Some(thread) })
}

impl Server {
    /// Where it listens: with port 0 asked for, the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves connections until the other end of `stopped` is closed.
fn run(listener: &TcpListener, stopped: &UnixStream, metrics: &Registry, patience: Duration) {
    let mut exchanges: Vec<Exchange> = Vec::new();
    loop {
        let mut files = vec![PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
        files.extend(exchanges.iter().map(|exchange| PollFd::new(exchange.connection.as_fd(), exchange.awaits())));
        if exchanges.len() < MAX_CONNECTIONS {
            files.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
        let deadline = exchanges.iter().map(|exchange| exchange.deadline).min();
        match poll(&mut files, deadline.map_or(PollTimeout::NONE, time_until)) {
            Ok(_) if files[0].any() != Some(false) => return,
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(_) => thread::sleep(PAUSE),
        }
        let now = Instant::now();
        exchanges.retain_mut(|exchange| exchange.deadline > now && exchange.advance(metrics).is_none());
        accept(listener, &mut exchanges, patience);
    }
}

/// How long to wait where the system lacks descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts the connections that wait, as far as there is room.
fn accept(listener: &TcpListener, exchanges: &mut Vec<Exchange>, patience: Duration) {
    while exchanges.len() < MAX_CONNECTIONS {
        match listener.accept().and_then(|(connection, _)| Exchange::new(connection, patience)) {
            Ok(exchange) => exchanges.push(exchange),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // Out of descriptors, as a rule: do not spin.
            Err(_) => return thread::sleep(PAUSE),
        }
    }
}

/// The time until a deadline, rounded up so that it has passed when the time is over.
fn time_until(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

/// One request and its response. Neither reads nor writes block.
struct Exchange {
    connection: TcpStream,
    deadline: Instant,
    head: Vec<u8>,
    /// Empty until the request is complete.
    response: Vec<u8>,
    sent_bytes: usize,
    /// The bytes that are still read of a request that was refused as too long.
    rest_bytes: usize,
}

impl Exchange {
    fn new(connection: TcpStream, patience: Duration) -> io::Result<Exchange> {
        connection.set_nonblocking(true)?;
        let deadline = Instant::now() + patience;
        Ok(Exchange { connection, deadline, head: Vec::new(), response: Vec::new(), sent_bytes: 0, rest_bytes: 0 })
    }

    fn awaits(&self) -> PollFlags {
        match self.sent_bytes < self.response.len() {
            true => PollFlags::POLLOUT,
            false => PollFlags::POLLIN,
        }
    }

    /// Goes on as far as the peer lets it. Returns `None` while it waits for the peer, and the result once the exchange is
    /// over: a client that disconnects does not matter.
    fn advance(&mut self, metrics: &Registry) -> Option<io::Result<()>> {
        match self.try_advance(metrics) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            result => Some(result),
        }
    }

    fn try_advance(&mut self, metrics: &Registry) -> io::Result<()> {
        while self.response.is_empty() {
            self.read_head(metrics)?;
        }
        while self.sent_bytes < self.response.len() {
            self.sent_bytes += self.connection.write(&self.response[self.sent_bytes..])?;
        }
        if self.rest_bytes == 0 {
            return Ok(());
        }
        // Closing with input unread would reset the connection, and the response might be lost with it.
        self.connection.shutdown(Shutdown::Write)?;
        let mut chunk = [0; 1024];
        while self.rest_bytes > 0 {
            match self.connection.read(&mut chunk)? {
                0 => break,
                bytes => self.rest_bytes = self.rest_bytes.saturating_sub(bytes),
            }
        }
        Ok(())
    }

    /// Reads what is there of the request line and headers, and makes the response once they are complete or too long.
    fn read_head(&mut self, metrics: &Registry) -> io::Result<()> {
        let mut chunk = [0; 1024];
        let count = self.connection.read(&mut chunk)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.head.extend_from_slice(&chunk[..count]);
        let ended = |end: &[u8]| self.head.windows(end.len()).any(|window| window == end);
        if self.head.len() > MAX_HEAD_BYTES {
            self.rest_bytes = MAX_REST_BYTES;
            self.response = refuse("431 Request Header Fields Too Large");
        } else if ended(b"\r\n\r\n") || ended(b"\n\n") {
            self.response = answer(&self.head, metrics);
        }
        Ok(())
    }
}

/// The response to a request with this line and headers.
fn answer(head: &[u8], metrics: &Registry) -> Vec<u8> {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return refuse("400 Bad Request");
    };
    if !version.starts_with("HTTP/1.") {
        return refuse("505 HTTP Version Not Supported");
    }
    let body = method != "HEAD";
    match (method, target.split('?').next()) {
        ("GET" | "HEAD", Some("/metrics")) if wants_protobuf(head) => {
            let [proto, encoding] = protobuf::PARAMETERS.map(|(name, value)| format!("; {name}={value}"));
            let content_type = format!("{}{proto}{encoding}", protobuf::MEDIA_TYPE);
            respond("200 OK", &content_type, &protobuf(&metrics.snapshot()), body)
        }
        ("GET" | "HEAD", Some("/metrics")) => respond("200 OK", TEXT, metrics.render().as_bytes(), body),
        (_, Some("/metrics")) => refuse("405 Method Not Allowed"),
        _ => respond("404 Not Found", TEXT, b"Metrics are at /metrics\n", body),
    }
}

fn refuse(status: &str) -> Vec<u8> {
    respond(status, TEXT, b"", true)
}

fn respond(status: &str, content_type: &str, body: &[u8], with_body: bool) -> Vec<u8> {
    let allow = match status.starts_with("405") {
        true => "Allow: GET, HEAD\r\n",
        false => "",
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if with_body {
        response.extend_from_slice(body);
    }
    response
}

/// Whether a scraper prefers protobuf to text, as Prometheus does where it wants native histograms.
fn wants_protobuf(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let (mut protobuf, mut text) = (0.0, 0.0);
    for offer in head.lines().filter_map(|line| line.strip_prefix("accept:")).flat_map(|offers| offers.split(',')) {
        let mut parts = offer.split(';').map(str::trim);
        let media_type = parts.next();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let has = |(name, value): &(&str, &str)| parameters.contains(&(name, &*value.to_ascii_lowercase()));
        let weight = parameters.iter().find(|(name, _)| *name == "q").map_or(Some(1.0), |(_, q)| q.parse::<f64>().ok());
        let weight = weight.unwrap_or_default();
        match media_type {
            Some(protobuf::MEDIA_TYPE) if protobuf::PARAMETERS.iter().all(has) => protobuf = weight,
            Some("text/plain") => text = weight.max(text),
            _ => {}
        }
    }
    protobuf > 0.0 && protobuf >= text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        patient(PATIENCE)
    }

    fn patient(patience: Duration) -> Server {
        let metrics = Arc::new(Registry::new("0.1.0"));
        start("127.0.0.1:0".parse().unwrap(), metrics, patience).unwrap()
    }

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut connection = TcpStream::connect(server.address()).unwrap();
        connection.write_all(request).unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn metrics_are_served_in_text_format_0_0_4() {
        let server = server();
        for target in ["/metrics", "/metrics?name[]=x"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
            let response = ask(&server, request.as_bytes());
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
            assert!(head.contains(&format!("Content-Length: {}", body.len())));
            assert!(body.contains("dwell_build_info{version=\"0.1.0\"} 1\n"));
        }
        let head = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"));
    }

    #[test]
    fn protobuf_is_for_those_who_prefer_it() {
        const PROTOBUF: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let wants =
            |accept: &str| wants_protobuf(format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n").as_bytes());
        // What Prometheus 2.42 and 3 send where they want native histograms, and where they do not.
        assert!(wants(&format!(
            "{PROTOBUF},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        )));
        assert!(wants(&format!("{PROTOBUF};q=0.6,application/openmetrics-text;q=0.5,text/plain;version=1.0.0;q=0.3")));
        assert!(!wants("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
        assert!(!wants(&format!("text/plain;version=0.0.4;q=0.6,{PROTOBUF};q=0.4")));
        for none in
            ["", "*/*", "application/vnd.google.protobuf", &format!("{PROTOBUF};q=0"), &format!("{PROTOBUF};q=x")]
        {
            assert!(!wants(none), "{none}");
        }
        let server = server();
        let mut connection = TcpStream::connect(server.address()).unwrap();
        write!(connection, "GET /metrics HTTP/1.1\r\nAccept: {PROTOBUF}\r\n\r\n").unwrap();
        let mut response = Vec::new();
        connection.read_to_end(&mut response).unwrap();
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&response[..end]);
        let content_type = PROTOBUF.replace(';', "; ");
        assert!(head.contains(&format!("\r\nContent-Type: {content_type}\r\n")), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", response.len() - end - 4)), "{head}");
        let first = &response[end + 4..];
        // A length, and field 1 of the first family: its name.
        assert_eq!((first[1], &first[3..19]), (0x0a, &b"dwell_build_info"[..]));
    }

    #[test]
    fn everything_else_is_refused_and_the_next_scrape_works() {
        let server = server();
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/ HTTP/1.0\n\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/2.0\r\n\r\n", "505"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400"),
        ] {
            let response = ask(&server, request.as_bytes());
            let want = format!("HTTP/1.1 {status} ");
            assert!(response.starts_with(&want), "{request:?}: {response}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9_000));
        assert!(ask(&server, long.as_bytes()).starts_with("HTTP/1.1 431 "));
        drop(TcpStream::connect(server.address()).unwrap());
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn silent_peers_keep_no_scrape_waiting_until_there_are_sixteen_of_them() {
        const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";
        const NEVER: Duration = Duration::from_secs(3_600);
        let server = patient(NEVER);
        let connect = || TcpStream::connect(server.address()).unwrap();
        let mut silent: Vec<_> = (1..MAX_CONNECTIONS).map(|_| connect()).collect();
        silent[0].write_all(b"GET /met").unwrap();
        for _ in 0..3 {
            assert!(ask(&server, SCRAPE).starts_with("HTTP/1.1 200 "));
        }
        silent.push(connect());
        thread::scope(|scope| {
            let waits = scope.spawn(|| ask(&server, SCRAPE));
            // One of them goes on as if nothing had happened, and makes room.
            silent[0].write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
            let mut response = String::new();
            silent[0].read_to_string(&mut response).unwrap();
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
            assert!(waits.join().unwrap().starts_with("HTTP/1.1 200 "));
        });
        // Stopping waits for none of them.
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
        assert_eq!(silent.pop().unwrap().read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_seventeenth_connection_waits_until_another_one_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let peers: Vec<_> =
            (0..=MAX_CONNECTIONS).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
        let mut exchanges = Vec::new();
        for _ in 0..2 {
            accept(&listener, &mut exchanges, PATIENCE);
            assert_eq!(exchanges.len(), MAX_CONNECTIONS);
        }
        drop(exchanges.pop());
        accept(&listener, &mut exchanges, PATIENCE);
        let last = exchanges.last().unwrap().connection.peer_addr().unwrap();
        assert_eq!(last, peers[MAX_CONNECTIONS].local_addr().unwrap());
    }

    #[test]
    fn peers_that_dawdle_are_dropped() {
        let server = patient(Duration::from_millis(50));
        let mut slow = TcpStream::connect(server.address()).unwrap();
        slow.write_all(b"GET").unwrap();
        assert!(matches!(slow.read(&mut [0]), Ok(0) | Err(_)));
    }

    #[test]
    fn a_busy_port_is_named_with_a_remedy() {
        let server = server();
        let metrics = Arc::new(Registry::new(""));
        let error = serve(server.address(), metrics).unwrap_err().to_string();
        let address = server.address();
        assert_eq!(
            error,
            format!(
                "cannot serve metrics on {address}: Address already in use (os error 98): choose \
                 another port; `ss -ltnp sport = :{}` shows which process has this one",
                address.port()
            )
        );
    }
}
