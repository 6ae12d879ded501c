//! Servers that say who they are, and connections that notice when they are told something else.

use std::{
    collections::{HashMap, HashSet},
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use dwell_testbed::{Error, Namespace, Result};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
        socket::{Backlog, listen},
    },
};

use super::breaks::{Broken, How};
use crate::lb::star::{PORT, Star};

/// How long a slow server waits before it answers what has come.
const SLOW: Duration = Duration::from_millis(20);
/// How long a connection waits for an answer until it counts as broken.
const PATIENCE: Duration = Duration::from_secs(30);
/// Threads of the client.
const THREADS: usize = 4;

/// Servers that answer each byte with their number.
pub(super) struct Servers {
    stop: Arc<AtomicBool>,
    /// The one that is slow.
    slow: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Result<Result<()>>>>,
}

impl Servers {
    pub(super) fn start(namespaces: &[Namespace]) -> Servers {
        let (stop, slow) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let start = |(number, namespace): (usize, &Namespace)| {
            let (stop, slow) = (Arc::clone(&stop), Arc::clone(&slow));
            namespace.spawn_thread(move || serve(number, &stop, &slow))
        };
        let threads = namespaces.iter().enumerate().map(start).collect();
        Servers { stop, slow, threads }
    }

    /// Makes one server slow, and no other.
    pub(super) fn slow_down(&self, server: usize) {
        self.slow.store(server, Ordering::Relaxed);
    }

    /// Ends them all.
    pub(super) fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Errors are returned by `stop` only.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Answers until it is to stop.
fn serve(number: usize, stop: &AtomicBool, slow: &AtomicUsize) -> Result<()> {
    const LISTENER: u64 = 0;
    let failed = |what: &str| Error::os(format!("{what} for a server"));
    // The client's ends of connections are files of this process too, and one table may have no room for all.
    unshare(CloneFlags::CLONE_FILES).map_err(failed("make a table of files"))?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(Error::io("listen"))?;
    listener.set_nonblocking(true).map_err(Error::io("set up a listener"))?;
    // Connections that open at the same time all find room.
    Backlog::new(4096).and_then(|backlog| listen(&listener, backlog)).map_err(failed("make room for connections"))?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("poll"))?;
    let watch = |number| EpollEvent::new(EpollFlags::EPOLLIN, number);
    epoll.add(&listener, watch(LISTENER)).map_err(failed("poll a listener"))?;
    let mut connections: HashMap<u64, TcpStream> = HashMap::new();
    let mut next = LISTENER;
    let mut events = [EpollEvent::empty(); 256];
    while !stop.load(Ordering::Relaxed) {
        let count = match epoll.wait(&mut events, 50u16) {
            Err(nix::Error::EINTR) => 0,
            other => other.map_err(failed("wait"))?,
        };
        if count > 0 && slow.load(Ordering::Relaxed) == number {
            thread::sleep(SLOW);
        }
        for event in &events[..count] {
            if event.data() != LISTENER {
                if !connections.get_mut(&event.data()).is_some_and(|stream| answer(stream, number)) {
                    connections.remove(&event.data());
                }
                continue;
            }
            while let Ok((stream, _)) = listener.accept() {
                next += 1;
                stream.set_nonblocking(true).map_err(Error::io("set up a connection"))?;
                epoll.add(&stream, watch(next)).map_err(failed("poll a connection"))?;
                connections.insert(next, stream);
            }
        }
    }
    Ok(())
}

/// Answers the bytes that have come. Returns whether the connection goes on.
fn answer(stream: &mut TcpStream, number: usize) -> bool {
    let mut bytes = [0; 64];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(count) => {
            bytes[..count].fill(number as u8);
            stream.write_all(&bytes[..count]).is_ok()
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// What connections found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) opened: u64,
    pub(super) requests: u64,
    /// The connections that ended though nobody had ended them.
    pub(super) broken: Vec<Broken>,
}

/// Connections that send requests all the time.
pub(super) struct Connections {
    stop: Arc<AtomicBool>,
    pub(super) opened: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<Found>>>,
}

impl Connections {
    /// Opens so many connections, on several threads. With each round of requests one in a hundred ends, and another one is
    /// opened for it.
    pub(super) fn open(client: &Namespace, connections: usize) -> Connections {
        let stop = Arc::new(AtomicBool::new(false));
        let opened = Arc::new(AtomicU64::new(0));
        let ports = Arc::new(Mutex::new(HashSet::new()));
        let start = |thread: usize| {
            let share = (connections + thread) / THREADS;
            let (stop, opened, ports) = (Arc::clone(&stop), Arc::clone(&opened), Arc::clone(&ports));
            client.spawn_thread(move || {
                let mut held = Held { connections: Vec::new(), found: Found::default(), opened, ports };
                held.fill(share);
                while !stop.load(Ordering::Relaxed) {
                    held.ask_all(&stop);
                    held.renew(share);
                }
                held.found
            })
        };
        let threads = (0..THREADS).map(start).collect();
        Connections { stop, opened, threads }
    }

    /// Ends them, and returns what they found.
    pub(super) fn end(mut self) -> Result<Found> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Found::default();
        for thread in self.threads.drain(..) {
            let found = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.opened += found.opened;
            all.requests += found.requests;
            all.broken.extend(found.broken);
        }
        Ok(all)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Errors are returned by `end` only.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The connections of one thread, the oldest first.
struct Held {
    connections: Vec<Connection>,
    found: Found,
    opened: Arc<AtomicU64>,
    /// The ports that connections of all threads have had.
    ports: Arc<Mutex<HashSet<u16>>>,
}

struct Connection {
    stream: TcpStream,
    port: u16,
    is_port_used_again: bool,
    opened: SystemTime,
    /// The server that answers, and how often it has.
    server: Option<u8>,
    answers: u64,
}

impl Connection {
    fn open(ports: &Mutex<HashSet<u16>>) -> io::Result<Connection> {
        let opened = SystemTime::now();
        let stream = TcpStream::connect_timeout(&Star::vip().into(), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let port = stream.local_addr()?.port();
        let is_port_used_again = !ports.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        Ok(Connection { stream, port, is_port_used_again, opened, server: None, answers: 0 })
    }

    /// Waits for the answer to a request.
    fn wait(&mut self) -> std::result::Result<(), How> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).map_err(|error| How::of(&error))?;
        if *self.server.get_or_insert(byte[0]) != byte[0] {
            return Err(How::AnotherServer(byte[0]));
        }
        self.answers += 1;
        Ok(())
    }

    fn broken(&self, how: How) -> Broken {
        Broken {
            how,
            port: Some(self.port),
            server: self.server,
            answers: self.answers,
            is_port_used_again: self.is_port_used_again,
            opened: self.opened,
            noticed: SystemTime::now(),
        }
    }
}

impl How {
    fn of(error: &io::Error) -> How {
        match error.kind() {
            ErrorKind::ConnectionReset => How::Reset,
            ErrorKind::WouldBlock => How::Silence(PATIENCE),
            _ => How::Other(error.to_string()),
        }
    }
}

impl Held {
    /// Opens so many connections as are missing to this number. One that cannot be opened is as broken as one that ends.
    fn fill(&mut self, connections: usize) {
        for _ in self.connections.len()..connections {
            let opened = SystemTime::now();
            match Connection::open(&self.ports) {
                Ok(connection) => self.connections.push(connection),
                Err(error) => self.found.broken.push(Broken {
                    how: How::Other(format!("opening: {error}")),
                    port: None,
                    server: None,
                    answers: 0,
                    is_port_used_again: false,
                    opened,
                    noticed: SystemTime::now(),
                }),
            }
            self.found.opened += 1;
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends one in a hundred connections, the oldest, and opens others.
    fn renew(&mut self, connections: usize) {
        self.connections.drain(..self.connections.len().div_ceil(100));
        self.fill(connections);
    }

    /// Sends a request on each connection, then waits for all answers, unless it is to stop.
    fn ask_all(&mut self, stop: &AtomicBool) {
        let sent: Vec<_> = self.connections.iter_mut().map(|connection| connection.stream.write_all(b"?")).collect();
        let mut sent = sent.into_iter();
        let Held { connections, found, .. } = self;
        connections.retain_mut(|connection| {
            if stop.load(Ordering::Relaxed) {
                return true;
            }
            let sent = sent.next().unwrap_or(Ok(())).map_err(|error| How::of(&error));
            match sent.and_then(|()| connection.wait()) {
                Ok(()) => found.requests += 1,
                Err(how) => {
                    found.broken.push(connection.broken(how));
                    return false;
                }
            }
            true
        });
    }
}
