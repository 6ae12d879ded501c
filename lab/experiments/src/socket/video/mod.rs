//! A video of 360 degrees over TCP: a server that sends frames of a live camera, each with a deadline of 200 ms from its
//! capture to its complete arrival. It chooses which frames it sends and at what quality, by what libdwell says of its
//! socket or by what its writes show.

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
use dwell_socket::{Session, Socket, clock::monotonic_ns, table::Config};
use dwell_testbed::{
    BitsPerSecond, BoxLink, Discipline, Error, LinkSpec, Nanos, QueueLimit, QueueStatistics, Result, part::PATIENCE,
    signals::Signals,
};
use figures::figures;
use nix::sys::socket::{setsockopt, sockopt};
use policy::{Cautious, DEADLINE_NS, Decision, FRAME_NS, Informed, Naive, Policy};

use super::{net::Net, scenario::Bottleneck};

/// How to run it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The way from the server to the client.
    pub bottleneck: Bottleneck,
    /// What comes back takes so long.
    pub back: Nanos,
    /// How the server decides.
    pub server: Server,
    /// Congestion control of its connection.
    pub congestion: String,
    /// For how long the camera films.
    pub time: Duration,
    /// The `dwell` that emulates links.
    pub programs: Programs,
}

/// How a server decides what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// By the throughput that its writes show: [`Naive`].
    Naive,
    /// By whether its writes wait: [`Cautious`].
    Cautious,
    /// By what libdwell says: [`Informed`].
    Informed,
}

impl Server {
    /// All.
    pub const ALL: [Server; 3] = [Server::Naive, Server::Cautious, Server::Informed];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Server::Naive => "by throughput",
            Server::Cautious => "by waits",
            Server::Informed => "by libdwell",
        }
    }
}

/// What became of the frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames of the camera.
    pub captured: u64,
    /// Frames that were sent. All of them arrived.
    pub sent: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// For how long the camera filmed.
    pub lasted: Nanos,
    /// From capture to complete arrival, of those that arrived, sorted.
    pub delays: Vec<Nanos>,
    /// What the queue of a link box did.
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

    /// The share of those sent that were late. None if none was sent.
    pub fn late_share(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.late() as f64 / self.sent as f64)
    }

    /// The share of those captured that arrived in time. None if there were none.
    pub fn in_time_share(&self) -> Option<f64> {
        let in_time = self.delays.len() as u64 - self.late();
        (self.captured > 0).then(|| in_time as f64 / self.captured as f64)
    }

    /// Of what was sent, in bits a second.
    pub fn bits_per_second(&self) -> Option<f64> {
        (self.lasted > Nanos::ZERO).then(|| self.bytes as f64 * 8e9 / self.lasted.0 as f64)
    }

    /// The delay below or at which that share of frames lies (nearest rank). None if none arrived.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let rank = (self.delays.len() as f64 * share).ceil() as usize;
        self.delays.get(rank.saturating_sub(1)).copied()
    }
}

/// What stands before a bottleneck of 10 Mbit/s, with round trips of 50 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// 400 ms, first in, first out.
    Fifo,
    /// The kernel's CoDel, in a link box.
    Codel,
}

const RATE: u64 = 10_000_000;
const ONE_WAY: Nanos = Nanos::from_millis(25);
/// 400 ms at that rate.
const QUEUE_PACKETS: usize = 333;

impl Queue {
    /// All.
    pub const ALL: [Queue; 2] = [Queue::Fifo, Queue::Codel];

    /// Its name as an argument, and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Fifo => "fifo",
            Queue::Codel => Discipline::Codel.name(),
        }
    }

    /// The way there.
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
    /// A connection of cubic's behind a queue.
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

/// Films, sends and watches for a time. SIGINT and SIGTERM end it early.
///
/// # Errors
///
/// If the network cannot be made or the connection breaks.
pub fn run(options: &Options) -> Result<Outcome> {
    let signals = Signals::watch()?;
    let net = Net::start(&options.bottleneck, options.back, &options.programs.lab)?;
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
    // The client has seen all when nothing more can come, however this ended.
    server.shutdown(Shutdown::Write).map_err(io("close"))?;
    let delays = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let mut outcome = sent?;
    outcome.delays = delays.map_err(io("read at"))?;
    outcome.delays.sort_unstable();
    outcome.queue = net.statistics()?.and_then(|queues| queues.to_right);
    net.stop()?;
    Ok(outcome)
}

/// libdwell, as a program has it that asks for nothing else: it looks each 10 ms and changes nothing.
pub(super) fn watch_sockets() -> Result<Session> {
    Session::start(&Config::default()).map_err(libdwell)
}

pub(super) fn libdwell(why: dwell_socket::Error) -> Error {
    Error::invalid("libdwell", why)
}

/// Before each frame: when it was captured, and how long it is, in bytes with this.
const HEAD: usize = 16;
/// The server. What is captured while a write waits is not sent, but for the newest.
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
        let mut frame = vec![0x5a; (bytes.0 as usize).max(HEAD)];
        frame[..8].copy_from_slice(&captured.to_ne_bytes());
        frame[8..HEAD].copy_from_slice(&bytes.0.to_ne_bytes());
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

/// The client: what each frame took.
fn watch(mut socket: TcpStream) -> std::io::Result<Vec<Nanos>> {
    let mut delays = Vec::new();
    let mut frame = Vec::new();
    let mut head = [0; HEAD];
    // The connection ends between two frames.
    while socket.read(&mut head[..1])? > 0 {
        socket.read_exact(&mut head[1..])?;
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let (captured, length) = (number(&head[..8]), number(&head[8..]));
        frame.resize((length as usize).saturating_sub(HEAD), 0);
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
