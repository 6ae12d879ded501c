//! Clients that open connections whether or not answers come, and know how long these took.

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
    server::{REQUEST, RESPONSE, wake_at},
};
use crate::loads::random::{exponential, generator};

/// What a client is to do.
#[derive(Debug, Clone)]
pub(super) struct ClientPlan {
    pub(super) to: SocketAddrV4,
    /// Connections a second, on average, opened as a Poisson process.
    pub(super) rate: f64,
    /// Of each connection, one after the other.
    pub(super) requests: u32,
    /// The time from an answer to the next request; none if there is none.
    pub(super) think: Option<Work>,
    /// Opens from then on.
    pub(super) begin: Instant,
    /// For so long.
    pub(super) time: Duration,
    /// The other ends of its connections are files of this process too: of more than may be in one table. A copy
    /// keeps open what others close, so that nothing else may go on in this process.
    pub(super) has_own_files: bool,
    pub(super) seed: u64,
    pub(super) number: u64,
}

/// What clients saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// When each request that was answered was sent, since the beginning, and how long its answer took.
    pub answers: Vec<(Duration, Duration)>,
    /// Connections that were refused, broke, or waited longer than [`PATIENCE`], and since when.
    pub broken: Vec<Duration>,
    /// Connections in all.
    pub connections: u64,
}

/// An answer that takes longer does not come.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How often broken ones are looked for, in milliseconds.
const LOOKS: u16 = 50;

struct Connection {
    stream: TcpStream,
    is_connected: bool,
    left: u32,
    /// Of the newest request, or of the attempt to connect.
    sent: Instant,
    is_waiting: bool,
    got: usize,
}

struct Client {
    plan: ClientPlan,
    random: rand::rngs::Xoshiro256PlusPlus,
    epoll: Epoll,
    timer: TimerFd,
    connections: HashMap<u64, Connection>,
    thinking: BinaryHeap<Reverse<(Instant, u64)>>,
    next_open: Instant,
    next_look: Instant,
    seen: Seen,
}

const TIMER: u64 = 0;

/// Runs until all connections have ended.
pub(super) fn run_client(plan: ClientPlan) -> Result<Seen> {
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
        next_open: plan.begin,
        next_look: plan.begin,
        seen: Seen::default(),
        plan,
    };
    client.run()
}

impl Client {
    fn run(mut self) -> Result<Seen> {
        let end = self.plan.begin + self.plan.time;
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
                    self.ask(number);
                }
            }
            if now >= self.next_look {
                self.give_up(now);
                self.next_look = now + Duration::from_millis(LOOKS.into());
            }
            if self.next_open >= end && self.connections.is_empty() {
                return Ok(self.seen);
            }
            let thought = self.thinking.peek().map(|Reverse((at, _))| *at);
            let open = (self.next_open < end).then_some(self.next_open);
            if let Some(at) = thought.into_iter().chain(open).min() {
                wake_at(&self.timer, at)?;
            }
            let count = match self.epoll.wait(&mut events, LOOKS) {
                Err(nix::Error::EINTR) => 0,
                other => other.map_err(Error::os("wait for answers"))?,
            };
            for event in &events[..count] {
                if event.data() != TIMER {
                    self.step(event.data());
                }
            }
        }
    }

    fn open(&mut self) -> Result<()> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket =
            socket(AddressFamily::Inet, SockType::Stream, flags, None).map_err(Error::os("make a client's socket"))?;
        self.seen.connections += 1;
        let number = self.seen.connections;
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
            left: self.plan.requests,
            sent: Instant::now(),
            is_waiting: false,
            got: 0,
        };
        self.connections.insert(number, connection);
        Ok(())
    }

    fn step(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if !connection.is_connected {
            match connection.stream.take_error() {
                Ok(None) if connection.stream.peer_addr().is_ok() => {
                    connection.is_connected = true;
                    self.ask(number);
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.broke(number),
            }
            return;
        }
        let mut bytes = [0; 2 * RESPONSE];
        loop {
            match connection.stream.read(&mut bytes) {
                Ok(0) => return self.broke(number),
                Ok(count) => connection.got += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return self.broke(number),
            }
        }
        if connection.is_waiting && connection.got >= RESPONSE {
            self.answered(number);
        }
    }

    fn ask(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.left -= 1;
        connection.sent = Instant::now();
        connection.is_waiting = true;
        connection.got = 0;
        if connection.stream.write_all(&[b'q'; REQUEST]).is_err() {
            self.broke(number);
        }
    }

    fn answered(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let since = connection.sent.saturating_duration_since(self.plan.begin);
        self.seen.answers.push((since, connection.sent.elapsed()));
        connection.is_waiting = false;
        if connection.left == 0 {
            self.connections.remove(&number);
        } else if let Some(work) = self.plan.think {
            let think = work.draw(&mut self.random);
            self.thinking.push(Reverse((Instant::now() + think, number)));
        } else {
            self.ask(number);
        }
    }

    fn broke(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            let since = connection.sent.saturating_duration_since(self.plan.begin);
            self.seen.broken.push(since);
        }
    }

    fn give_up(&mut self, now: Instant) {
        let is_late = |connection: &Connection| {
            let waits = connection.is_waiting || !connection.is_connected;
            waits && now.saturating_duration_since(connection.sent) > PATIENCE
        };
        let late = self.connections.iter().filter(|(_, c)| is_late(c));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            self.broke(number);
        }
    }
}
