//! `GET /metrics`, and nothing else of HTTP.
//!
//! A library for this would be welcome, but the small one, tiny_http, has had no
//! release since October 2022, and the living ones bring an async runtime.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dwell_socket::{acceptor, deadline::DeadlineStream, privilege};

use crate::{
    Registry,
    protobuf::{self, protobuf},
};

/// A request and its response have this long together, so that a peer who
/// dawdles holds up scrapes no longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request's line and headers.
const MAX_HEAD_BYTES: usize = 8 * 1024;
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
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopping: AtomicBool,
    /// Of the connection being served, so that stopping need not wait for it.
    connection: Mutex<Option<TcpStream>>,
}

impl Shared {
    fn connection(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves `metrics` at `/metrics` of `address`, one connection at a time.
///
/// # Errors
///
/// If the address cannot be listened on; the message says what to do.
pub fn serve(address: SocketAddr, metrics: Arc<Registry>) -> Result<Server, ServeError> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        Ok((listener.local_addr()?, listener))
    };
    let (address, listener) =
        bind().map_err(|io: io::Error| ServeError::Bind { address, remedy: remedy(address, &io), io })?;
    let shared = Arc::new(Shared::default());
    let for_thread = Arc::clone(&shared);
    let thread = thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            // Whoever can reach it can send it anything.
            let _ = privilege::keep(&[]);
            accept(&listener, &metrics, &for_thread);
        })
        .map_err(ServeError::Thread)?;
    Ok(Server { address, shared, thread: Some(thread) })
}

impl Server {
    /// Where it listens: with port 0 asked for, the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some(connection) = &*self.shared.connection() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if acceptor::wake(self.address)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn remedy(address: SocketAddr, io: &io::Error) -> String {
    let port = address.port();
    match io.kind() {
        ErrorKind::AddrInUse => {
            format!(": choose another port; `ss -ltnp sport = :{port}` tells who has this one")
        }
        ErrorKind::PermissionDenied => ": choose a port from 1024 on, or grant CAP_NET_BIND_SERVICE".into(),
        ErrorKind::AddrNotAvailable => ": no interface has this address; `ip address` lists those there are".into(),
        _ => String::new(),
    }
}

fn accept(listener: &TcpListener, metrics: &Registry, shared: &Shared) {
    loop {
        let connection = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match connection {
            Ok((connection, _)) => {
                *shared.connection() = connection.try_clone().ok();
                // Stopping may have begun before the line above.
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                // A client that disconnects or is slow does not matter.
                let _ = Exchange::new(connection).answer(metrics);
                *shared.connection() = None;
            }
            // Out of descriptors, as a rule: do not spin.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// One request and its response.
struct Exchange {
    connection: DeadlineStream,
}

impl Exchange {
    fn new(connection: TcpStream) -> Exchange {
        Exchange { connection: DeadlineStream::new(connection, Instant::now() + PATIENCE) }
    }

    fn answer(&mut self, metrics: &Registry) -> io::Result<()> {
        let Some(head) = self.read_head()? else {
            self.refuse("431 Request Header Fields Too Large")?;
            return self.read_rest();
        };
        let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, version] = words[..] else {
            return self.refuse("400 Bad Request");
        };
        if !version.starts_with("HTTP/1.") {
            return self.refuse("505 HTTP Version Not Supported");
        }
        let body = method != "HEAD";
        match (method, target.split('?').next()) {
            ("GET" | "HEAD", Some("/metrics")) if wants_protobuf(&head) => {
                let [proto, encoding] = protobuf::PARAMETERS.map(|(name, value)| format!("; {name}={value}"));
                let content_type = format!("{}{proto}{encoding}", protobuf::MEDIA_TYPE);
                self.respond("200 OK", &content_type, &protobuf(&metrics.snapshot()), body)
            }
            ("GET" | "HEAD", Some("/metrics")) => self.respond("200 OK", TEXT, metrics.render().as_bytes(), body),
            (_, Some("/metrics")) => self.refuse("405 Method Not Allowed"),
            _ => self.respond("404 Not Found", TEXT, b"Metrics are at /metrics\n", body),
        }
    }

    /// The request line and headers; `None` if they are too long.
    fn read_head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            let count = self.connection.read(&mut chunk)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            head.extend_from_slice(&chunk[..count]);
            let ended = |end: &[u8]| head.windows(end.len()).any(|window| window == end);
            if head.len() > MAX_HEAD_BYTES {
                return Ok(None);
            }
            if ended(b"\r\n\r\n") || ended(b"\n\n") {
                return Ok(Some(head));
            }
        }
    }

    /// Closing with input unread would reset the connection, and the response
    /// might be lost with it.
    fn read_rest(&mut self) -> io::Result<()> {
        self.connection.get_ref().shutdown(Shutdown::Write)?;
        let mut chunk = [0; 1024];
        for _ in 0..64 {
            if self.connection.read(&mut chunk)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn refuse(&mut self, status: &str) -> io::Result<()> {
        self.respond(status, TEXT, b"", true)
    }

    fn respond(&mut self, status: &str, content_type: &str, body: &[u8], with_body: bool) -> io::Result<()> {
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
        self.connection.write_all(&response)
    }
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
        let metrics = Arc::new(Registry::new("0.1.0"));
        serve("127.0.0.1:0".parse().unwrap(), metrics).unwrap()
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
    fn stopping_does_not_wait_for_a_silent_peer() {
        let server = server();
        let silent = TcpStream::connect(server.address()).unwrap();
        // It is being served once it is not in the queue: what comes behind is.
        while server.shared.connection().is_none() {
            thread::yield_now();
        }
        let address = server.address();
        let start = Instant::now();
        drop(server);
        assert!(start.elapsed() < Duration::from_secs(2));
        assert!(TcpStream::connect(address).is_err());
        drop(silent);
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
                 another port; `ss -ltnp sport = :{}` tells who has this one",
                address.port()
            )
        );
    }
}
