//! A server with one worker. Its work is to wait, so that requests queue and use no CPU time, or to compute, in a
//! control group with a limit of CPU time.

use std::{
    collections::{HashMap, VecDeque},
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dwell_testbed::{CpuGroup, Error, Namespace, Result, become_realtime};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use super::{
    scenario::{PROCESSOR_SHARE, Scenario, Slowdown, Work},
    star::PORT,
};
use crate::{
    loads::{random::generator, web::follow},
    usage::compute,
};

/// Length of a request in bytes.
pub(super) const REQUEST: usize = 100;
/// Length of a response in bytes.
pub(super) const RESPONSE: usize = 1_000;
/// Interval at which a server checks whether to stop, and whether it is up, in milliseconds.
const CHECK_INTERVAL_MS: u16 = 50;

/// Configuration of a server.
#[derive(Debug, Clone)]
pub(super) struct ServerPlan {
    pub(super) scenario: Scenario,
    /// The position of the server.
    pub(super) number: usize,
    pub(super) work: Work,
    pub(super) slowdown: Slowdown,
    pub(super) seed: u64,
    /// The start, once it is known; until then servers behave as at the start.
    pub(super) start: Arc<OnceLock<Instant>>,
    /// Where the server computes, and what slows it down there; `None` if it waits.
    pub(super) processor: Option<Processor>,
}

/// A limited part of a processor.
#[derive(Debug, Clone)]
pub(super) struct Processor {
    pub(super) group: CpuGroup,
    /// Whether a neighbour spins in the group while the server is to be slow. Otherwise the limit is lowered.
    pub(super) has_neighbour: bool,
}

impl ServerPlan {
    fn since_start(&self, time: Instant) -> Duration {
        let start = self.start.get();
        start.map_or(Duration::ZERO, |start| time.saturating_duration_since(*start))
    }

    /// Whether only the first byte of an answer is sent now.
    fn is_halted(&self) -> bool {
        self.scenario.halts(self.number, self.since_start(Instant::now()))
    }

    /// Slows the server's processor down as the plan says.
    fn keep_slow(&self, processor: &Processor, stop: &AtomicBool) -> Result<()> {
        const STEP: Duration = Duration::from_millis(20);
        let times = || self.slowdown.at(self.since_start(Instant::now())).unwrap_or(1.0);
        if !processor.has_neighbour {
            return follow(&processor.group, stop, || PROCESSOR_SHARE / times());
        }
        processor.group.join()?;
        while !stop.load(Ordering::Relaxed) {
            match times() > 1.0 {
                true => compute(STEP),
                false => std::thread::sleep(STEP),
            }
        }
        Ok(())
    }
}

/// A running server. It ends when this is dropped.
pub(super) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Result<ServerResult>>>>,
    keeper: Option<JoinHandle<Result<()>>>,
}

impl Server {
    pub(super) fn start(namespace: &Namespace, plan: ServerPlan) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let keeper = plan.processor.clone().map(|processor| {
            let (plan, stopped) = (plan.clone(), Arc::clone(&stop));
            std::thread::spawn(move || plan.keep_slow(&processor, &stopped))
        });
        let stopped = Arc::clone(&stop);
        let thread = namespace.spawn_thread(move || Worker::new(plan)?.run(&stopped));
        Server { stop, thread: Some(thread), keeper }
    }

    /// Stops the server.
    pub(super) fn stop(mut self) -> Result<ServerResult> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(answered)) => answered?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(ServerResult::default()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Errors are returned by `stop` only.
        let _ = self.keeper.take().map(JoinHandle::join);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What a server counted.
#[derive(Debug, Default)]
pub(super) struct ServerResult {
    /// Number of answered requests.
    pub(super) answered: u64,
    /// The delay of each answer because this host was busy; empty if the server computes.
    pub(super) late: Vec<Duration>,
}

struct Job {
    service: Duration,
    /// When a server that waits answers.
    done: Instant,
    connection: u64,
}

struct Worker {
    plan: ServerPlan,
    random: rand::rngs::Xoshiro256PlusPlus,
    epoll: Epoll,
    timer: TimerFd,
    listener: Option<TcpListener>,
    connections: HashMap<u64, (TcpStream, usize)>,
    next: u64,
    /// Queued requests, in the order in which the one worker serves them.
    jobs: VecDeque<Job>,
    /// The connections whose answers have begun and are to be continued.
    halted: Vec<u64>,
    free_at: Instant,
    result: ServerResult,
}

const LISTENER: u64 = 0;
const TIMER: u64 = 1;
const FIRST: u64 = 2;

impl Worker {
    fn new(plan: ServerPlan) -> Result<Worker> {
        let failed = |what: &str| Error::os(format!("{what} for a server"));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("poll"))?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).map_err(failed("make a timer"))?;
        epoll
            .add(&timer, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER))
            .map_err(failed("poll a timer"))?;
        Ok(Worker {
            random: generator(plan.seed, 11, plan.number as u64),
            plan,
            epoll,
            timer,
            listener: None,
            connections: HashMap::new(),
            next: FIRST,
            jobs: VecDeque::new(),
            halted: Vec::new(),
            free_at: Instant::now(),
            result: ServerResult::default(),
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<ServerResult> {
        match &self.plan.processor {
            Some(processor) => processor.group.join()?,
            None => drop(become_realtime()),
        }
        let mut events = [EpollEvent::empty(); 64];
        while !stop.load(Ordering::Relaxed) {
            self.follow_availability()?;
            if !self.plan.is_halted() {
                for connection in std::mem::take(&mut self.halted) {
                    self.send(connection, RESPONSE - 1);
                }
            }
            let count = match self.epoll.wait(&mut events, CHECK_INTERVAL_MS) {
                Err(nix::Error::EINTR) => 0,
                other => other.map_err(Error::os("wait for requests"))?,
            };
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept()?,
                    TIMER => {}
                    connection => self.read(connection),
                }
            }
            match self.plan.processor.is_some() {
                true => self.compute()?,
                false => self.answer()?,
            }
        }
        Ok(self.result)
    }

    /// Opens the listening socket if the server is up, and drops it and all connections if it is down.
    fn follow_availability(&mut self) -> Result<()> {
        let is_up = self.plan.slowdown.at(self.plan.since_start(Instant::now())).is_some();
        match (is_up, &self.listener) {
            (true, None) => {
                let at = (Ipv4Addr::UNSPECIFIED, PORT);
                let listener = TcpListener::bind(at).map_err(Error::io("listen as a server"))?;
                listener.set_nonblocking(true).map_err(Error::io("listen without waiting"))?;
                self.epoll
                    .add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))
                    .map_err(Error::os("poll for connections"))?;
                self.listener = Some(listener);
            }
            (false, Some(_)) => {
                self.listener = None;
                self.connections.clear();
                self.jobs.clear();
                self.free_at = Instant::now();
            }
            _ => {}
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        while let Some(listener) = &self.listener {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The client closed it before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(Error::io("accept a connection")(error)),
            };
            let ready = stream.set_nonblocking(true).and(stream.set_nodelay(true));
            ready.map_err(Error::io("set up a connection"))?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, self.next);
            self.epoll.add(stream.as_fd(), event).map_err(Error::os("poll a connection"))?;
            self.connections.insert(self.next, (stream, 0));
            self.next += 1;
        }
        Ok(())
    }

    /// Queues the requests that have arrived on a connection, and drops the connection if it has ended.
    fn read(&mut self, number: u64) {
        let Some((stream, rest)) = self.connections.get_mut(&number) else {
            return;
        };
        let mut bytes = [0; 4 * REQUEST];
        let mut requests = 0;
        let is_closed = loop {
            match stream.read(&mut bytes) {
                Ok(0) => break true,
                Ok(count) => {
                    *rest += count;
                    requests += *rest / REQUEST;
                    *rest %= REQUEST;
                }
                Err(error) => break error.kind() != ErrorKind::WouldBlock,
            }
        };
        for _ in 0..requests {
            self.queue(number);
        }
        if is_closed {
            self.connections.remove(&number);
        }
    }

    fn queue(&mut self, connection: u64) {
        let start = self.free_at.max(Instant::now());
        let since = self.plan.since_start(start);
        let start = start + (self.plan.slowdown.begins(since) - since);
        let times = match self.plan.processor {
            // It is slowed down by its processor.
            Some(_) => 1.0,
            None => self.plan.slowdown.at(self.plan.since_start(start)).unwrap_or(1.0),
        };
        let service = self.plan.work.draw(&mut self.random).mul_f64(times);
        self.free_at = start + service;
        self.jobs.push_back(Job { service, done: self.free_at, connection });
    }

    /// Computes the answer to the oldest request, and sets the timer if there are more.
    fn compute(&mut self) -> Result<()> {
        let Some(job) = self.jobs.pop_front() else {
            return Ok(());
        };
        compute(job.service);
        self.respond(&job);
        match self.jobs.is_empty() {
            true => Ok(()),
            false => set_timer(&self.timer, Instant::now()),
        }
    }

    /// Answers a request, or begins to. True if its connection still exists.
    fn respond(&mut self, job: &Job) -> bool {
        if !self.plan.is_halted() {
            return self.send(job.connection, RESPONSE);
        }
        let begun = self.connections.get_mut(&job.connection).is_some_and(|(stream, _)| stream.write_all(b"r").is_ok());
        if begun {
            self.halted.push(job.connection);
        }
        begun
    }

    /// Sends an answer, or the rest of it. True if its connection still exists.
    fn send(&mut self, connection: u64, bytes: usize) -> bool {
        let Some((stream, _)) = self.connections.get_mut(&connection) else {
            return false;
        };
        let is_sent = stream.write_all(&[b'r'; RESPONSE][..bytes]).is_ok();
        match is_sent {
            true => self.result.answered += 1,
            // The client has closed the connection.
            false => drop(self.connections.remove(&connection)),
        }
        is_sent
    }

    /// Answers the requests that are done, and sets the timer to the end of the next one.
    fn answer(&mut self) -> Result<()> {
        while self.jobs.front().is_some_and(|job| job.done <= Instant::now()) {
            let Some(job) = self.jobs.pop_front() else {
                break;
            };
            if self.respond(&job) {
                self.result.late.push(job.done.elapsed());
            }
        }
        if let Some(job) = self.jobs.front() {
            set_timer(&self.timer, job.done)?;
        }
        Ok(())
    }
}

/// Sets a timer, which expires at once if the time has passed.
pub(super) fn set_timer(timer: &TimerFd, at: Instant) -> Result<()> {
    let left = at.saturating_duration_since(Instant::now());
    let left = left.max(Duration::from_nanos(1));
    timer
        .set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty())
        .map_err(Error::os("set a timer"))
}
