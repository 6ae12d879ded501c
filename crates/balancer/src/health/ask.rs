//! One question to one backend.

use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use super::{Target, ping::ping};
use crate::config::Kind;

/// Why a backend is not well.
#[derive(Debug)]
pub enum Failed {
    /// The system said so.
    Io(io::Error),
    /// Nothing came in time.
    Silent(Duration),
    /// It answered otherwise.
    Status {
        /// As it was wanted.
        wanted: u16,
        /// As it came.
        came: u16,
    },
    /// It does not speak HTTP.
    NoHttp,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Io(io) => write!(f, "{io}"),
            Failed::Silent(timeout) => write!(f, "no answer within {timeout:?}"),
            Failed::Status { wanted, came } => write!(f, "status {came}, not {wanted}"),
            Failed::NoHttp => f.write_str("what it answers is no HTTP"),
        }
    }
}

/// Asks, and waits for the answer, no longer than the check's timeout.
///
/// # Errors
///
/// What was not as wanted.
pub fn ask(target: &Target) -> Result<(), Failed> {
    let timeout = target.check.timeout;
    let deadline = Instant::now() + timeout;
    asked(target, deadline).map_err(|failed| match failed {
        Failed::Io(io) if matches!(io.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => Failed::Silent(timeout),
        failed => failed,
    })
}

fn asked(target: &Target, deadline: Instant) -> Result<(), Failed> {
    let address = SocketAddr::new(target.address, target.check.port);
    match &target.check.kind {
        Kind::Tcp => connect(address, deadline).map(drop),
        Kind::Icmp => ping(target.address, deadline).map_err(Failed::Io),
        Kind::Udp { send } => datagram(address, send.as_bytes(), deadline).map_err(Failed::Io),
        Kind::Http { path, host, status, .. } => {
            let host = host.clone().unwrap_or_else(|| bracketed(target.address));
            let question = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: dwell\r\nAccept: */*\r\nConnection: close\r\n\r\n"
            );
            let stream = connect(address, deadline)?;
            let came = match &target.client {
                Some(client) => status_of(client.wrap(target.address, stream).map_err(Failed::Io)?, &question)?,
                None => status_of(stream, &question)?,
            };
            match came {
                came if came == *status => Ok(()),
                came => Err(Failed::Status { wanted: *status, came }),
            }
        }
    }
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

/// A connection whose reads and writes all end in time, however little comes at once.
pub(super) struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        left(self.deadline)
    }
}

pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(to)
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn connect(address: SocketAddr, deadline: Instant) -> Result<Timed, Failed> {
    let wait = left(deadline).map_err(Failed::Io)?;
    let stream = TcpStream::connect_timeout(&address, wait).map_err(Failed::Io)?;
    Ok(Timed { stream, deadline })
}

/// The longest line of a status that is read.
const MOST_BYTES: usize = 256;

fn status_of(mut stream: impl Read + Write, question: &str) -> Result<u16, Failed> {
    stream.write_all(question.as_bytes()).map_err(Failed::Io)?;
    stream.flush().map_err(Failed::Io)?;
    let mut line = Vec::new();
    let mut piece = [0; MOST_BYTES];
    // "HTTP/1.1 200" is all that is needed.
    while line.len() < 12 {
        match stream.read(&mut piece).map_err(Failed::Io)? {
            0 => return Err(Failed::NoHttp),
            count => line.extend_from_slice(&piece[..count]),
        }
    }
    let text = line.get(..12).and_then(|head| std::str::from_utf8(head).ok());
    let digits = text
        .filter(|text| text.starts_with("HTTP/1."))
        .and_then(|text| text.get(9..))
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Failed::NoHttp)
}

fn datagram(to: SocketAddr, send: &[u8], deadline: Instant) -> io::Result<()> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // So that a refusal is heard of, and no answer of others.
    socket.connect(to)?;
    socket.send(send)?;
    socket.set_read_timeout(Some(left(deadline)?))?;
    socket.recv(&mut [0; 1]).map(drop)
}
