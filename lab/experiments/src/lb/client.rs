//! Clients that open connections whether or not answers come, and measure the latency of each request.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io::{ErrorKind, Read, Write},
    net::{SocketAddrV4, TcpStream},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Result, become_realtime};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
        socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket},
        timerfd::{ClockId, TimerFd, TimerFlags},
    },
};

use super::{
    scenario::Work,
    server::{REQUEST, RESPONSE, set_timer},
};
use crate::loads::random::{exponential, generator};

/// Configuration of a client.
#[derive(Debug, Clone)]
pub(super) struct ClientPlan {
    pub(super) to: SocketAddrV4,
    /// Mean rate of the Poisson process of new connections, per second.
    pub(super) rate: f64,
    /// Requests per connection, sent one after another.
    pub(super) requests: u32,
    /// Time from an answer to the next request; `None`: the next request follows at once.
    pub(super) think: Option<Work>,
    /// When the client starts to open connections.
    pub(super) start: Instant,
    /// Time for which the client opens connections.
    pub(super) time: Duration,
    /// Whether the client has a file table of its own. The servers' ends of connections are files of this process too,
    /// and one table has no room for all. A copied table keeps open what other threads close, so that nothing else
    /// may happen in this process.
    pub(super) has_own_files: bool,
    pub(super) seed: u64,
    pub(super) number: u64,
}

/// What a client measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientResult {
    /// The time since the start and the latency of each answered request.
    pub answers: Vec<(Duration, Duration)>,
    /// The time since the start of each request whose connection was refused or broke, or that waited longer than
    /// [`ANSWER_TIMEOUT`].
    pub broken: Vec<Duration>,
    /// Number of connections.
    pub connections: u64,
}

/// Longest wait for an answer, after which its connection counts as broken.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of checks for late answers, in milliseconds.
const CHECK_INTERVAL_MS: u16 = 50;

struct Connection {
    stream: TcpStream,
    is_connected: bool,
    requests_left: u32,
    /// When the latest request, or the attempt to connect, was sent.
    sent: Instant,
    is_waiting: bool,
    received: usize,
}

struct Client {
    plan: ClientPlan,
    random: rand::rngs::Xoshiro256PlusPlus,
    epoll: Epoll,
    timer: TimerFd,
    connections: HashMap<u64, Connection>,
    thinking: BinaryHeap<Reverse<(Instant, u64)>>,
    next_open: Instant,
    next_check: Instant,
    result: ClientResult,
}

const TIMER: u64 = 0;

/// Runs a client until all its connections have ended.
pub(super) fn run_client(plan: ClientPlan) -> Result<ClientResult> {
    become_realtime();
    let failed = |what: &str| Error::os(format!("{what} for a client"));
    if plan.has_own_files {
        unshare(CloneFlags::CLONE_FILES).map_err(failed("make a table of files"))?;
    }
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("poll"))?;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).map_err(failed("make a timer"))?;
    let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER);
    epoll.add(&timer, event).map_err(failed("poll a timer"))?;
    let client = Client {
        random: generator(plan.seed, 12, plan.number),
        epoll,
        timer,
        connections: HashMap::new(),
        thinking: BinaryHeap::new(),
        next_open: plan.start,
        next_check: plan.start,
        result: ClientResult::default(),
        plan,
    };
    client.run()
}

impl Client {
    fn run(mut self) -> Result<ClientResult> {
        let end = self.plan.start + self.plan.time;
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let now = Instant::now();
            while self.next_open <= now && self.next_open < end {
                self.open()?;
                let gap = exponential(&mut self.random, 1.0 / self.plan.rate);
                self.next_open += Duration::from_secs_f64(gap);
            }
            while self.thinking.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                if let Some(Reverse((_, number))) = self.thinking.pop() {
                    self.send_request(number);
                }
            }
            if now >= self.next_check {
                self.drop_late(now);
                self.next_check = now + Duration::from_millis(CHECK_INTERVAL_MS.into());
            }
            if self.next_open >= end && self.connections.is_empty() {
                return Ok(self.result);
            }
            let think_end = self.thinking.peek().map(|Reverse((at, _))| *at);
            let open = (self.next_open < end).then_some(self.next_open);
            if let Some(at) = think_end.into_iter().chain(open).min() {
                set_timer(&self.timer, at)?;
            }
            let count = match self.epoll.wait(&mut events, CHECK_INTERVAL_MS) {
                Err(nix::Error::EINTR) => 0,
                other => other.map_err(Error::os("wait for answers"))?,
            };
            for event in &events[..count] {
                if event.data() != TIMER {
                    self.on_ready(event.data());
                }
            }
        }
    }

    fn open(&mut self) -> Result<()> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket =
            socket(AddressFamily::Inet, SockType::Stream, flags, None).map_err(Error::os("make a client's socket"))?;
        self.result.connections += 1;
        let number = self.result.connections;
        let event = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        self.epoll.add(&socket, EpollEvent::new(event, number)).map_err(Error::os("poll a client's socket"))?;
        match connect(socket.as_raw_fd(), &SockaddrIn::from(self.plan.to)) {
            Ok(()) | Err(nix::Error::EINPROGRESS) => {}
            Err(error) => return Err(Error::os(format!("connect to {}", self.plan.to))(error)),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).map_err(Error::io("set up a client's socket"))?;
        let connection = Connection {
            stream,
            is_connected: false,
            requests_left: self.plan.requests,
            sent: Instant::now(),
            is_waiting: false,
            received: 0,
        };
        self.connections.insert(number, connection);
        Ok(())
    }

    fn on_ready(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if !connection.is_connected {
            match connection.stream.take_error() {
                Ok(None) if connection.stream.peer_addr().is_ok() => {
                    connection.is_connected = true;
                    self.send_request(number);
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.record_broken(number),
            }
            return;
        }
        let mut bytes = [0; 2 * RESPONSE];
        loop {
            match connection.stream.read(&mut bytes) {
                Ok(0) => return self.record_broken(number),
                Ok(count) => connection.received += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.record_broken(number),
            }
        }
        if connection.is_waiting && connection.received >= RESPONSE {
            self.record_answer(number);
        }
    }

    fn send_request(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.requests_left -= 1;
        connection.sent = Instant::now();
        connection.is_waiting = true;
        connection.received = 0;
        if connection.stream.write_all(&[b'q'; REQUEST]).is_err() {
            self.record_broken(number);
        }
    }

    fn record_answer(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let since = connection.sent.saturating_duration_since(self.plan.start);
        self.result.answers.push((since, connection.sent.elapsed()));
        connection.is_waiting = false;
        if connection.requests_left == 0 {
            self.connections.remove(&number);
        } else if let Some(work) = self.plan.think {
            let think = work.draw(&mut self.random);
            self.thinking.push(Reverse((Instant::now() + think, number)));
        } else {
            self.send_request(number);
        }
    }

    fn record_broken(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            let since = connection.sent.saturating_duration_since(self.plan.start);
            self.result.broken.push(since);
        }
    }

    fn drop_late(&mut self, now: Instant) {
        let is_late = |connection: &Connection| {
            let waits = connection.is_waiting || !connection.is_connected;
            waits && now.saturating_duration_since(connection.sent) > ANSWER_TIMEOUT
        };
        let late = self.connections.iter().filter(|(_, c)| is_late(c));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            self.record_broken(number);
        }
    }
}
