//! A live video over TCP. Each frame has a deadline of 200 ms from its capture to its complete arrival. The server chooses
//! the frames to send and their quality by the figures of libdwell for its socket, or by its own writes.

pub(super) mod figures;
pub mod policy;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::Programs;
use dwell_engine::stats::quantile;
use dwell_socket::{Session, Socket, clock::monotonic_ns, table::Config};
use dwell_testbed::{
    BitsPerSecond, BoxLink, Discipline, Error, LinkSpec, Nanos, QueueLimit, QueueStatistics, Result, program::PATIENCE,
    signals::Signals,
};
use figures::figures;
use nix::sys::socket::{setsockopt, sockopt};
use policy::{Cautious, DEADLINE_NS, Decision, FRAME_NS, Informed, Naive, Policy};

use super::{
    net::{Net, Offload},
    scenario::Bottleneck,
};

/// How to send a video.
#[derive(Debug, Clone)]
pub struct Options {
    /// The direction from server to client.
    pub bottleneck: Bottleneck,
    /// One-way delay from client to server.
    pub back: Nanos,
    /// The server's policy.
    pub server: Server,
    /// Congestion control of its connection.
    pub congestion: String,
    /// How long the camera films.
    pub time: Duration,
    /// The executables to start.
    pub programs: Programs,
}

/// A server by its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// Goes by the throughput of its writes: [`Naive`].
    Naive,
    /// Goes by whether its writes block: [`Cautious`].
    Cautious,
    /// Goes by the figures of libdwell: [`Informed`].
    Informed,
}

impl Server {
    /// All servers.
    pub const ALL: [Server; 3] = [Server::Naive, Server::Cautious, Server::Informed];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Server::Naive => "by throughput",
            Server::Cautious => "by waits",
            Server::Informed => "by libdwell",
        }
    }
}

/// The results of a video.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames that the camera captured.
    pub captured: u64,
    /// Frames that were sent; all of them arrived.
    pub sent: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// How long the camera filmed.
    pub lasted: Nanos,
    /// Time from capture to complete arrival of each frame sent, in ascending order.
    pub delays: Vec<Nanos>,
    /// The statistics of a link box's queue.
    pub queue: Option<QueueStatistics>,
}

impl Outcome {
    /// Frames that the server did not send.
    pub fn skipped(&self) -> u64 {
        self.captured - self.sent
    }

    /// Frames that arrived after their deadline.
    pub fn late(&self) -> u64 {
        let in_time = self.delays.partition_point(|delay| delay.0 <= DEADLINE_NS);
        (self.delays.len() - in_time) as u64
    }

    /// The share of the frames sent that were late. `None` if none was sent.
    pub fn late_share(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.late() as f64 / self.sent as f64)
    }

    /// The share of the frames captured that arrived in time. `None` if none was captured.
    pub fn in_time_share(&self) -> Option<f64> {
        let in_time = self.delays.len() as u64 - self.late();
        (self.captured > 0).then(|| in_time as f64 / self.captured as f64)
    }

    /// The rate of the frames sent.
    pub fn bits_per_second(&self) -> Option<f64> {
        (self.lasted > Nanos::ZERO).then(|| self.bytes as f64 * 8e9 / self.lasted.0 as f64)
    }

    /// The delay at quantile `share`. `None` if no frame arrived.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        quantile(&self.delays, share)
    }
}

/// The queue at a bottleneck of 10 Mbit/s, with a round trip of 50 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// A FIFO of 400 ms.
    Fifo,
    /// CoDel of the kernel, in a link box.
    Codel,
}

const RATE: u64 = 10_000_000;
const ONE_WAY: Nanos = Nanos::from_millis(25);
/// 400 ms at that rate.
const QUEUE_PACKETS: usize = 333;

impl Queue {
    /// All queues.
    pub const ALL: [Queue; 2] = [Queue::Fifo, Queue::Codel];

    /// The name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Fifo => "fifo",
            Queue::Codel => Discipline::Codel.name(),
        }
    }

    /// The bottleneck with this queue.
    pub fn bottleneck(self) -> Bottleneck {
        let rate = BitsPerSecond::new(RATE);
        match self {
            Queue::Fifo => Bottleneck::Fifo(LinkSpec {
                rate_bits_per_second: rate,
                queue: Some(QueueLimit::Packets(QUEUE_PACKETS)),
                ..LinkSpec::delay(ONE_WAY)
            }),
            Queue::Codel => {
                Bottleneck::Box(BoxLink { rate, delay: ONE_WAY, discipline: Discipline::Codel, ecn: false })
            }
        }
    }
}

impl Options {
    /// A connection with cubic behind a queue.
    pub fn behind(queue: Queue, server: Server, time: Duration, programs: &Programs) -> Options {
        Options {
            bottleneck: queue.bottleneck(),
            back: ONE_WAY,
            server,
            congestion: "cubic".to_owned(),
            time,
            programs: programs.clone(),
        }
    }
}

/// Sends a video for a time. SIGINT and SIGTERM end it early.
///
/// # Errors
///
/// If the network cannot be made or the connection breaks.
pub fn run(options: &Options) -> Result<Outcome> {
    let signals = Signals::watch()?;
    let net = Net::start(&options.bottleneck, options.back, Offload::On, &options.programs.lab)?;
    net.widen_window()?;
    let address = net.address(0);
    let io = |what: &str| Error::io(format!("{what} {address}"));
    let listener = net.receiver().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
    let server = net.sender().enter(|| TcpStream::connect(address))?.map_err(io("connect to"))?;
    let (client, _) = listener.accept().map_err(io("accept at"))?;
    let congestion = options.congestion.as_str();
    setsockopt(&server, sockopt::TcpCongestion, &congestion.into())
        .map_err(Error::os("set the congestion control of a socket"))?;
    for socket in [&server, &client] {
        socket.set_nodelay(true).map_err(io("set up"))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(io("set up"))?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(io("set up"))?;
    }
    let client = thread::spawn(move || watch(client));
    let session = watch_sockets()?;
    let watched = session.watch(&server).map_err(libdwell)?;
    let policy: Box<dyn Policy> = match options.server {
        Server::Naive => Box::new(Naive::default()),
        Server::Cautious => Box::new(Cautious::default()),
        Server::Informed => Box::new(Informed::default()),
    };
    let sent = serve(&server, &watched, policy, options.time, &signals.stop);
    // The client reads to the end of the connection, however the server ended.
    server.shutdown(Shutdown::Write).map_err(io("close"))?;
    let delays = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let mut outcome = sent?;
    outcome.delays = delays.map_err(io("read at"))?;
    outcome.delays.sort_unstable();
    outcome.queue = net.statistics()?.and_then(|queues| queues.to_right);
    net.stop()?;
    Ok(outcome)
}

/// Starts libdwell with its defaults: it polls every 10 ms and changes nothing.
pub(super) fn watch_sockets() -> Result<Session> {
    Session::start(&Config::default()).map_err(libdwell)
}

pub(super) fn libdwell(why: dwell_socket::Error) -> Error {
    Error::invalid("libdwell", why)
}

/// Bytes of a frame's header: the time of its capture, and its length with the header.
const HEADER: usize = 16;

/// The server. Of the frames that are captured while a write blocks, only the newest is sent.
fn serve(
    mut socket: &TcpStream,
    watched: &Socket<'_>,
    mut policy: Box<dyn Policy>,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let begun = monotonic_ns();
    let mut outcome = Outcome::default();
    let frames = time.as_nanos() as u64 / FRAME_NS;
    let mut next = 0;
    while next < frames {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let now = monotonic_ns();
        let due = begun + next * FRAME_NS;
        if now < due {
            thread::sleep(Duration::from_nanos(due - now));
            continue;
        }
        let newest = ((now - begun) / FRAME_NS).min(frames - 1);
        next = newest + 1;
        let captured = begun + newest * FRAME_NS;
        let Decision::Send(level) = policy.decide(now, captured, &figures(&watched.info())) else {
            continue;
        };
        let bytes = level.frame();
        let mut frame = vec![0x5a; (bytes.0 as usize).max(HEADER)];
        frame[..8].copy_from_slice(&captured.to_ne_bytes());
        frame[8..HEADER].copy_from_slice(&bytes.0.to_ne_bytes());
        let writes = monotonic_ns();
        socket.write_all(&frame).map_err(Error::io("send a frame"))?;
        policy.wrote(writes, monotonic_ns(), bytes);
        outcome.sent += 1;
        outcome.bytes += bytes.0;
    }
    outcome.captured = frames;
    outcome.lasted = Nanos(frames * FRAME_NS);
    Ok(outcome)
}

/// The client. Returns the delay of each frame.
fn watch(mut socket: TcpStream) -> std::io::Result<Vec<Nanos>> {
    let mut delays = Vec::new();
    let mut frame = Vec::new();
    let mut header = [0; HEADER];
    // The connection ends between two frames.
    while socket.read(&mut header[..1])? > 0 {
        socket.read_exact(&mut header[1..])?;
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let (captured, length) = (number(&header[..8]), number(&header[8..]));
        frame.resize((length as usize).saturating_sub(HEADER), 0);
        socket.read_exact(&mut frame)?;
        delays.push(Nanos(monotonic_ns().saturating_sub(captured)));
    }
    Ok(delays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_over_loopback_are_in_time_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (client, _) = listener.accept().unwrap();
        let client = thread::spawn(move || watch(client));
        let session = watch_sockets().unwrap();
        let watched = session.watch(&server).unwrap();
        let policy = Box::new(Informed::default());
        let (time, stop) = (Duration::from_millis(500), AtomicBool::new(false));
        let outcome = serve(&server, &watched, policy, time, &stop).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let delays = client.join().unwrap().unwrap();
        assert_eq!(outcome.captured, 15);
        assert_eq!(delays.len() as u64, outcome.sent);
        assert_eq!(outcome.skipped() + outcome.sent, 15);
        assert!(outcome.bytes >= outcome.sent * policy::Level::LOWEST.frame().0);
    }

    #[test]
    fn a_signal_ends_it_before_the_next_frame() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let session = watch_sockets().unwrap();
        let watched = session.watch(&server).unwrap();
        let policy = Box::new(Naive::default());
        let (time, stop) = (Duration::from_secs(3600), AtomicBool::new(true));
        let ended = serve(&server, &watched, policy, time, &stop);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    }

    #[test]
    fn a_frame_is_late_after_its_deadline() {
        let outcome = Outcome {
            captured: 5,
            sent: 4,
            bytes: 1000,
            lasted: Nanos::from_millis(1000),
            delays: [10, 50, 200, 201].map(Nanos::from_millis).to_vec(),
            queue: None,
        };
        assert_eq!((outcome.late(), outcome.skipped()), (1, 1));
        assert_eq!(outcome.late_share(), Some(0.25));
        assert_eq!(outcome.in_time_share(), Some(0.6));
        assert_eq!(outcome.bits_per_second(), Some(8000.0));
        assert_eq!(outcome.quantile(0.5), Some(Nanos::from_millis(50)));
        assert_eq!(Outcome::default().late_share(), None);
    }
}
