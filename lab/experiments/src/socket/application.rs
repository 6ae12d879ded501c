//! The applications at both ends, as programs that `dwell run` can run.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Result};
use nix::{
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    setsockopt_impl, sockopt_impl,
    sys::socket::{setsockopt, sockopt},
};
use serde::{Deserialize, Serialize};

/// One end of a flow, as JSON on the command line of `dwell-lab socket-end`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum End {
    /// Connects, sends for a time, and waits until the peer has read everything.
    Send {
        /// Address of the peer.
        to: SocketAddr,
        /// Time before it connects.
        after: Duration,
        /// How long it sends.
        time: Duration,
        /// The pattern of its writes.
        writes: Writes,
        /// Options of its socket.
        options: SocketOptions,
    },
    /// Accepts one connection and reads until its end.
    Receive {
        /// Address at which it listens.
        at: SocketAddr,
        /// The pattern of its reads.
        reads: Reads,
    },
}

/// How an application writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Writes {
    /// Writes without a pause; a write blocks until all of it is in the socket.
    Waiting {
        /// Bytes per write.
        bytes: u32,
    },
    /// Writes when poll reports that the socket is writable, without blocking.
    Ready {
        /// Bytes per write.
        bytes: u32,
    },
    /// Writes frames at a rate; a late frame is written as soon as the earlier ones are.
    Frames {
        /// Bytes per frame.
        bytes: u32,
        /// Frames per second.
        #[serde(rename = "a_second")]
        per_second: u32,
    },
}

/// How an application reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reads {
    /// Most bytes per read.
    pub bytes: u32,
    /// Pause after each read.
    pub every: Duration,
}

impl Reads {
    /// Reads as soon as there is something.
    pub const AT_ONCE: Reads = Reads { bytes: 128 << 10, every: Duration::ZERO };

    /// Whether there is no pause between reads.
    pub fn are_at_once(&self) -> bool {
        self.every.is_zero()
    }
}

/// Options that the application sets by itself. `None` keeps the kernel's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketOptions {
    /// TCP_CONGESTION.
    pub congestion: Option<String>,
    /// TCP_NOTSENT_LOWAT in bytes.
    pub notsent_lowat: Option<u32>,
    /// SO_SNDBUF in bytes, before the kernel doubles it.
    pub send_buffer: Option<u32>,
}

impl FromStr for End {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|why| Error::invalid("end of a flow", why))
    }
}

/// Runs an end until it is done.
///
/// # Errors
///
/// If it cannot connect or listen, an option cannot be set, or the connection breaks.
pub fn run_end(end: &End) -> Result<()> {
    match end {
        End::Send { to, after, time, writes, options } => {
            thread::sleep(*after);
            let socket = TcpStream::connect(to).map_err(Error::io(format!("connect to {to}")))?;
            options.set(&socket)?;
            let until = Instant::now() + *time;
            writes
                .write(&socket, until)
                .and_then(|()| wait_for_end(&socket))
                .map_err(Error::io(format!("send to {to}")))
        }
        End::Receive { at, reads } => {
            let listener = TcpListener::bind(at).map_err(Error::io(format!("listen at {at}")))?;
            let (socket, _) = listener.accept().map_err(Error::io(format!("accept at {at}")))?;
            reads.read(socket).map_err(Error::io(format!("read at {at}")))
        }
    }
}

impl SocketOptions {
    fn set(&self, socket: &TcpStream) -> Result<()> {
        let os = |what: &str| Error::os(format!("set the {what} of a socket"));
        if let Some(name) = &self.congestion {
            setsockopt(socket, sockopt::TcpCongestion, &name.into()).map_err(os("congestion control"))?;
        }
        if let Some(bytes) = self.notsent_lowat {
            setsockopt(socket, NotsentLowat, &bytes).map_err(os("unsent bytes"))?;
        }
        if let Some(bytes) = self.send_buffer {
            setsockopt(socket, sockopt::SndBuf, &(bytes as usize)).map_err(os("send buffer"))?;
        }
        Ok(())
    }
}

sockopt_impl!(NotsentLowat, SetOnly, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, u32);

impl Writes {
    fn write(self, mut socket: &TcpStream, until: Instant) -> std::io::Result<()> {
        match self {
            Writes::Waiting { bytes } => {
                let data = vec![1; bytes as usize];
                while Instant::now() < until {
                    socket.write_all(&data)?;
                }
                Ok(())
            }
            Writes::Ready { bytes } => write_when_ready(socket, bytes, until),
            Writes::Frames { bytes, per_second } => {
                let frame = vec![1; bytes as usize];
                let begun = Instant::now();
                for number in 0.. {
                    let due = begun + Duration::from_secs(1) * number / per_second.max(1);
                    if due >= until || Instant::now() >= until {
                        break;
                    }
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    socket.write_all(&frame)?;
                }
                Ok(())
            }
        }
    }
}

fn write_when_ready(mut socket: &TcpStream, bytes: u32, until: Instant) -> std::io::Result<()> {
    let data = vec![1; bytes as usize];
    socket.set_nonblocking(true)?;
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        let patience = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], patience)?;
        match socket.write(&data) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    socket.set_nonblocking(false)
}

/// Waits until the peer, which sends nothing, has read everything and closed.
fn wait_for_end(mut socket: &TcpStream) -> std::io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    socket.read(&mut [0]).map(drop)
}

impl Reads {
    fn read(self, mut socket: TcpStream) -> std::io::Result<()> {
        let mut buffer = vec![0; self.bytes as usize];
        while socket.read(&mut buffer)? > 0 {
            if !self.are_at_once() {
                thread::sleep(self.every);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_survives_its_json() {
        let ends = [
            End::Send {
                to: "10.0.0.1:5".parse().unwrap(),
                after: Duration::from_millis(3),
                time: Duration::from_secs(1),
                writes: Writes::Frames { bytes: 7, per_second: 30 },
                options: SocketOptions {
                    congestion: Some("reno".to_owned()),
                    notsent_lowat: Some(16384),
                    send_buffer: None,
                },
            },
            End::Receive { at: "[::1]:6".parse().unwrap(), reads: Reads::AT_ONCE },
        ];
        for end in ends {
            let json = serde_json::to_string(&end).unwrap();
            assert_eq!(json.parse::<End>().unwrap(), end);
        }
        assert!(r#"{"send":{}}"#.parse::<End>().is_err());
    }

    #[test]
    fn each_pattern_of_writes_is_read_to_its_end() {
        let all = [
            Writes::Waiting { bytes: 1 << 17 },
            Writes::Ready { bytes: 1 << 13 },
            Writes::Frames { bytes: 1000, per_second: 100 },
        ];
        for writes in all {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let to = listener.local_addr().unwrap();
            let reader = thread::spawn(move || {
                let (socket, _) = listener.accept().unwrap();
                Reads::AT_ONCE.read(socket)
            });
            let end = End::Send {
                to,
                after: Duration::ZERO,
                time: Duration::from_millis(30),
                writes,
                options: SocketOptions { notsent_lowat: Some(4096), send_buffer: Some(65536), congestion: None },
            };
            run_end(&end).unwrap();
            reader.join().unwrap().unwrap();
        }
    }
}
