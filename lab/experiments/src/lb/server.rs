//! A server with one worker, whose work is a wait: requests queue, and take no processor.

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

use dwell_testbed::{Error, Namespace, Result, become_realtime};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use super::{
    scenario::{Speed, Work},
    star::PORT,
};
use crate::loads::random::generator;

/// Bytes of a request, and of a response.
pub(super) const REQUEST: usize = 100;
pub(super) const RESPONSE: usize = 1_000;
/// How often it looks whether it is to end, or its speed is another.
const LOOKS: u16 = 50;

/// What a server is to do.
#[derive(Debug, Clone)]
pub(super) struct ServerPlan {
    pub(super) work: Work,
    pub(super) speed: Speed,
    pub(super) seed: u64,
    /// Speeds are from then on; until it is known, servers are as at the beginning.
    pub(super) begin: Arc<OnceLock<Instant>>,
}

/// A running server. It ends when this is dropped.
pub(super) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Result<Served>>>>,
}

impl Server {
    pub(super) fn start(namespace: &Namespace, number: u64, plan: ServerPlan) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = namespace.spawn_thread(move || Worker::new(plan, number)?.run(&seen));
        Server { stop, thread: Some(thread) }
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> Result<Served> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(answered)) => answered?,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(Served::default()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Told by `stop`, if anybody asks.
            let _ = thread.join();
        }
    }
}

/// What a server did.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Requests that it answered.
    pub(super) answered: u64,
    /// How much later than it should each of them was, as this host had other things to do.
    pub(super) late: Vec<Duration>,
}

struct Job {
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
    /// One worker: in the order in which they will be done.
    jobs: VecDeque<Job>,
    free_at: Instant,
    served: Served,
}

const LISTENER: u64 = 0;
const TIMER: u64 = 1;
const FIRST: u64 = 2;

impl Worker {
    fn new(plan: ServerPlan, number: u64) -> Result<Worker> {
        let failed = |what: &str| Error::os(format!("{what} for a server"));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("poll"))?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).map_err(failed("make a timer"))?;
        epoll
            .add(&timer, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER))
            .map_err(failed("poll a timer"))?;
        Ok(Worker {
            random: generator(plan.seed, 11, number),
            plan,
            epoll,
            timer,
            listener: None,
            connections: HashMap::new(),
            next: FIRST,
            jobs: VecDeque::new(),
            free_at: Instant::now(),
            served: Served::default(),
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Served> {
        become_realtime();
        let mut events = [EpollEvent::empty(); 64];
        while !stop.load(Ordering::Relaxed) {
            self.be_up_or_down()?;
            let count = match self.epoll.wait(&mut events, LOOKS) {
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
            self.answer()?;
        }
        Ok(self.served)
    }

    fn since(&self, time: Instant) -> Duration {
        let begin = self.plan.begin.get();
        begin.map_or(Duration::ZERO, |begin| time.saturating_duration_since(*begin))
    }

    /// A server that is killed loses its socket and all connections.
    fn be_up_or_down(&mut self) -> Result<()> {
        let is_up = self.plan.speed.at(self.since(Instant::now())).is_some();
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
                // It went before it was taken.
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

    /// Queues what was asked. A connection that ended goes, and what it waits for with it.
    fn read(&mut self, number: u64) {
        let Some((stream, rest)) = self.connections.get_mut(&number) else {
            return;
        };
        let mut bytes = [0; 4 * REQUEST];
        let mut requests = 0;
        let is_over = loop {
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
        if is_over {
            self.connections.remove(&number);
        }
    }

    fn queue(&mut self, connection: u64) {
        let start = self.free_at.max(Instant::now());
        let times = self.plan.speed.at(self.since(start)).unwrap_or(1.0);
        let service = self.plan.work.draw(&mut self.random).mul_f64(times);
        self.free_at = start + service;
        self.jobs.push_back(Job { done: self.free_at, connection });
    }

    /// Answers what is done, and sets the timer to what will be next.
    fn answer(&mut self) -> Result<()> {
        while self.jobs.front().is_some_and(|job| job.done <= Instant::now()) {
            let Some(job) = self.jobs.pop_front() else {
                break;
            };
            if let Some((stream, _)) = self.connections.get_mut(&job.connection) {
                match stream.write_all(&[b'r'; RESPONSE]) {
                    Ok(()) => {
                        self.served.answered += 1;
                        self.served.late.push(job.done.elapsed());
                    }
                    // Who asked is gone.
                    Err(_) => drop(self.connections.remove(&job.connection)),
                }
            }
        }
        if let Some(job) = self.jobs.front() {
            wake_at(&self.timer, job.done)?;
        }
        Ok(())
    }
}

/// Sets a timer. One that is over is over at once.
pub(super) fn wake_at(timer: &TimerFd, at: Instant) -> Result<()> {
    let left = at.saturating_duration_since(Instant::now());
    let left = left.max(Duration::from_nanos(1));
    timer
        .set(Expiration::OneShot(TimeSpec::from_duration(left)), TimerSetTimeFlags::empty())
        .map_err(Error::os("set a timer"))
}
