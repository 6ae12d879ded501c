//! The server: a thread a connection, which waits as long as the service of each request takes.

use std::{
    collections::VecDeque,
    io::{ErrorKind, IoSlice, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::Arc,
    thread,
};

use clap::ValueEnum;
use dwell_socket::clock::monotonic_ns;
use dwell_testbed::{CpuGroup, Error, Nanos, Result};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl::set_timerslack, time::TimeSpec},
};
use serde::{Deserialize, Serialize};

use super::{
    http::{Request, answer_head, take_requests},
    service::{Service, ServiceModel},
};

/// How a connection's requests are worked on. Answers always go in the order of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// One at a time: the next is begun when the answer before it has been written
    InOrder,
    /// All at the same time, each from when it was read
    Concurrent,
}

/// What the server is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerConfig {
    pub(crate) address: SocketAddr,
    pub(crate) discipline: Discipline,
    pub(crate) service: ServiceModel,
    pub(crate) seed: u64,
    /// Where the server's threads run, if their processor time is limited.
    pub(crate) group: Option<CpuGroup>,
}

impl ServerConfig {
    /// Moves this thread, and those that it will start, to where the server is to run.
    pub(crate) fn join_group(&self) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), CpuGroup::join)
    }
}

/// Requests of a connection that are read ahead. More wait in the socket.
const MOST_WAITING: usize = 256;
/// A piece of body.
static BODY: [u8; 256 << 10] = [b'x'; 256 << 10];
/// Its threads need little.
const STACK: usize = 128 << 10;

/// Serves until the process is killed.
pub(crate) fn serve(config: &ServerConfig) -> Result<()> {
    config.join_group()?;
    let listener = TcpListener::bind(config.address).map_err(Error::io(format!("listen at {}", config.address)))?;
    let service = Arc::new(Service::new(config.service, config.seed));
    let begun_ns = monotonic_ns();
    loop {
        let (stream, _) = listener.accept().map_err(Error::io("accept"))?;
        let connection = Connection::new(stream, config.discipline, Arc::clone(&service), begun_ns)?;
        thread::Builder::new()
            .stack_size(STACK)
            // A client that goes away ends its connection and nothing else.
            .spawn(move || connection.run())
            .map_err(Error::io("start a thread"))?;
    }
}

struct Connection {
    stream: TcpStream,
    discipline: Discipline,
    service: Arc<Service>,
    begun_ns: u64,
    read: Vec<u8>,
    waiting: VecDeque<Waiting>,
    /// What has not been written of an answer.
    answer: Option<Answer>,
}

struct Waiting {
    request: Request,
    /// When its answer is ready; None while its service has not begun.
    ready_ns: Option<u64>,
}

struct Answer {
    head: Vec<u8>,
    head_written: usize,
    body_left: u64,
}

impl Connection {
    fn new(stream: TcpStream, discipline: Discipline, service: Arc<Service>, begun_ns: u64) -> Result<Self> {
        let prepare = || {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)
        };
        prepare().map_err(Error::io("prepare a connection"))?;
        Ok(Self { stream, discipline, service, begun_ns, read: Vec::new(), waiting: VecDeque::new(), answer: None })
    }

    fn run(mut self) -> Result<()> {
        let _ = set_timerslack(1);
        loop {
            self.answer_what_is_ready()?;
            self.wait()?;
            if self.waiting.len() < MOST_WAITING && !self.read()? {
                return Ok(());
            }
        }
    }

    fn answer_what_is_ready(&mut self) -> Result<()> {
        loop {
            if let Some(answer) = &mut self.answer {
                if !answer.write(&mut self.stream)? {
                    return Ok(());
                }
                self.answer = None;
            }
            let Some(head) = self.waiting.front_mut() else {
                return Ok(());
            };
            let now = monotonic_ns();
            let ready = *head
                .ready_ns
                .get_or_insert_with(|| now + service_ns(&self.service, head.request, now - self.begun_ns));
            if ready > now {
                return Ok(());
            }
            self.answer =
                Some(Answer { head: answer_head(head.request.bytes), head_written: 0, body_left: head.request.bytes });
            self.waiting.pop_front();
        }
    }

    /// Until something can be read or written, or the next answer is ready.
    fn wait(&mut self) -> Result<()> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, self.waiting.len() < MOST_WAITING);
        events.set(PollFlags::POLLOUT, self.answer.is_some());
        let ready_ns = match self.answer {
            Some(_) => None,
            None => self.waiting.front().and_then(|head| head.ready_ns),
        };
        let timeout = ready_ns.map(|ready| Nanos(ready).since(Nanos(monotonic_ns())));
        let timeout = timeout.map(|left| TimeSpec::from_duration(left.into()));
        let mut watched = [PollFd::new(self.stream.as_fd(), events)];
        match ppoll(&mut watched, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Error::os("wait for requests")(errno)),
        }
    }

    /// False once the client has finished.
    fn read(&mut self) -> Result<bool> {
        let mut piece = [0; 16 << 10];
        let length = match self.stream.read(&mut piece) {
            Ok(0) => return Ok(false),
            Ok(length) => length,
            Err(error) if is_not_yet(&error) => return Ok(true),
            Err(error) => return Err(Error::io("read requests")(error)),
        };
        self.read.extend_from_slice(&piece[..length]);
        let now = monotonic_ns();
        for request in take_requests(&mut self.read)? {
            let ready_ns = match self.discipline {
                Discipline::InOrder => None,
                Discipline::Concurrent => Some(now + service_ns(&self.service, request, now - self.begun_ns)),
            };
            self.waiting.push_back(Waiting { request, ready_ns });
        }
        Ok(true)
    }
}

fn service_ns(service: &Service, request: Request, elapsed_ns: u64) -> u64 {
    service.time(request.id, Nanos(elapsed_ns)).0
}

impl Answer {
    /// Writes what the socket takes. True when nothing is left.
    fn write(&mut self, stream: &mut TcpStream) -> Result<bool> {
        while self.head_written < self.head.len() || self.body_left > 0 {
            let body = self.body_left.min(BODY.len() as u64) as usize;
            let pieces = [IoSlice::new(&self.head[self.head_written..]), IoSlice::new(&BODY[..body])];
            let written = match stream.write_vectored(&pieces) {
                Ok(written) => written,
                Err(error) if is_not_yet(&error) => return Ok(false),
                Err(error) => return Err(Error::io("answer")(error)),
            };
            let of_head = written.min(self.head.len() - self.head_written);
            self.head_written += of_head;
            self.body_left -= (written - of_head) as u64;
        }
        Ok(true)
    }
}

fn is_not_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
