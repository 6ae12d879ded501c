//! A single health check of a single backend.

use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use dwell_socket::deadline::{DeadlineStream, time_left};

use super::{Target, ping::ping, tunnel::syn_probe};
use crate::config::CheckKind;

/// Why a health check failed.
#[derive(Debug)]
pub enum CheckFailure {
    /// The system reported an error.
    Io(io::Error),
    /// No answer arrived within this time.
    Timeout(Duration),
    /// The HTTP status was not the expected one.
    Status {
        /// The status that was expected.
        expected: u16,
        /// The status that was received.
        received: u16,
    },
    /// The answer was not HTTP.
    NotHttp,
    /// The backend passed its check, but no SYN to the VIP can be sent through the tunnel.
    Tunnel(io::Error),
    /// The backend passed its check, but a SYN to the VIP through the tunnel was not answered within this time.
    TunnelSilent(Duration),
    /// The backend passed its check, but refused a SYN to the VIP through the tunnel.
    TunnelRefused,
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckFailure::Io(io) => write!(f, "{io}"),
            CheckFailure::Timeout(timeout) => write!(f, "no answer within {timeout:?}"),
            CheckFailure::Status { expected, received } => write!(f, "status {received}, not {expected}"),
            CheckFailure::NotHttp => f.write_str("the answer is not HTTP"),
            CheckFailure::Tunnel(io) => {
                write!(f, "it answers at its own address, but the tunnel cannot be checked: {io}")
            }
            CheckFailure::TunnelSilent(wait) => write!(
                f,
                "it answers at its own address, but no SYN to the VIP through the tunnel within {wait:?}: \
                 does it take the outer header off, and has it the VIP?"
            ),
            CheckFailure::TunnelRefused => {
                f.write_str("it answers at its own address, but refuses connections to the VIP through the tunnel")
            }
        }
    }
}

impl From<io::Error> for CheckFailure {
    fn from(io: io::Error) -> CheckFailure {
        CheckFailure::Io(io)
    }
}

/// Checks a backend once, for at most the timeout of its check.
///
/// # Errors
///
/// Why the backend is not healthy.
pub fn probe(target: &Target) -> Result<(), CheckFailure> {
    let timeout = target.check.timeout;
    let deadline = Instant::now() + timeout;
    let is_late = |io: &io::Error| matches!(io.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
    probe_until(target, deadline).map_err(|failure| match failure {
        CheckFailure::Io(io) if is_late(&io) => CheckFailure::Timeout(timeout),
        failure => failure,
    })?;
    let Some(probe) = &target.syn_probe else { return Ok(()) };
    let left = Duration::from_millis(deadline.saturating_duration_since(Instant::now()).as_millis() as u64);
    match syn_probe(probe, target.address, deadline) {
        Ok(true) => Ok(()),
        Ok(false) => Err(CheckFailure::TunnelRefused),
        Err(io) if is_late(&io) => Err(CheckFailure::TunnelSilent(left)),
        Err(io) => Err(CheckFailure::Tunnel(io)),
    }
}

fn probe_until(target: &Target, deadline: Instant) -> Result<(), CheckFailure> {
    let address = SocketAddr::new(target.address, target.check.port);
    match &target.check.kind {
        CheckKind::Tcp => DeadlineStream::connect(address, deadline).map(drop)?,
        CheckKind::Icmp => ping(target.address, deadline)?,
        CheckKind::Udp { send } => exchange_datagrams(address, send.as_bytes(), deadline)?,
        CheckKind::Http { path, host, status, .. } => {
            let host = host.clone().unwrap_or_else(|| bracketed(target.address));
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: dwell\r\nAccept: */*\r\nConnection: close\r\n\r\n"
            );
            let stream = DeadlineStream::connect(address, deadline)?;
            let received = match &target.client {
                Some(client) => http_status(client.wrap(target.address, stream)?, &request)?,
                None => http_status(stream, &request)?,
            };
            if received != *status {
                return Err(CheckFailure::Status { expected: *status, received });
            }
        }
    }
    Ok(())
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// Bytes of an answer that are read at once.
const READ_BYTES: usize = 256;
/// Bytes of a status line up to the status and what ends it, as in "HTTP/1.1 200 ".
const STATUS_BYTES: usize = 13;

/// Sends an HTTP request, and returns the status of the answer.
fn http_status(mut stream: impl Read + Write, request: &str) -> Result<u16, CheckFailure> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut line = Vec::new();
    let mut buffer = [0; READ_BYTES];
    while line.len() < STATUS_BYTES {
        match stream.read(&mut buffer)? {
            0 => return Err(CheckFailure::NotHttp),
            count => line.extend_from_slice(&buffer[..count]),
        }
    }
    let text = line.get(..STATUS_BYTES).and_then(|head| std::str::from_utf8(head).ok());
    let digits = text
        .and_then(|text| text.strip_prefix("HTTP/1."))
        .and_then(|text| text.trim_start_matches(|minor: char| minor.is_ascii_digit()).strip_prefix(' '))
        .and_then(|text| text.strip_suffix([' ', '\r', '\n']))
        .filter(|digits| digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(CheckFailure::NotHttp)
}

/// Sends a datagram, and waits for one in return.
fn exchange_datagrams(to: SocketAddr, payload: &[u8], deadline: Instant) -> io::Result<()> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // A connected socket receives ICMP errors, and no datagrams of other hosts.
    socket.connect(to)?;
    socket.send(payload)?;
    socket.set_read_timeout(Some(time_left(deadline)?))?;
    socket.recv(&mut [0; 1]).map(drop)
}
