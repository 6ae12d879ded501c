//! Servers that say who they are, and connections that notice when they are told something else.

use std::{
    collections::{BTreeMap, HashMap},
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use dwell_testbed::{Error, Namespace, Result};
use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
        socket::{Backlog, listen},
    },
};

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
    /// How many connections ended in which way, though nobody had ended them.
    pub(super) broken: BTreeMap<String, u64>,
}

impl Found {
    fn broke(&mut self, how: String) {
        *self.broken.entry(how).or_default() += 1;
    }
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
        let start = |thread: usize| {
            let share = (connections + thread) / THREADS;
            let (stop, opened) = (Arc::clone(&stop), Arc::clone(&opened));
            client.spawn_thread(move || {
                let mut held = Held { streams: Vec::new(), found: Found::default(), opened };
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
            for (how, count) in found.broken {
                *all.broken.entry(how).or_default() += count;
            }
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

/// The connections of one thread, the oldest first, each with the server that it has.
struct Held {
    streams: Vec<(TcpStream, Option<u8>)>,
    found: Found,
    opened: Arc<AtomicU64>,
}

impl Held {
    /// Opens so many connections as are missing to this number. One that cannot be opened is as broken as one that ends.
    fn fill(&mut self, connections: usize) {
        for _ in self.streams.len()..connections {
            let opened = TcpStream::connect_timeout(&Star::vip().into(), PATIENCE).and_then(|stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => self.streams.push((stream, None)),
                Err(error) => self.found.broke(format!("opening: {error}")),
            }
            self.found.opened += 1;
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends one in a hundred connections, the oldest, and opens others.
    fn renew(&mut self, connections: usize) {
        self.streams.drain(..self.streams.len().div_ceil(100));
        self.fill(connections);
    }

    /// Sends a request on each connection, then waits for all answers, unless it is to stop.
    fn ask_all(&mut self, stop: &AtomicBool) {
        let sent: Vec<_> = self.streams.iter_mut().map(|(stream, _)| stream.write_all(b"?")).collect();
        let mut sent = sent.into_iter();
        let Held { streams, found, .. } = self;
        streams.retain_mut(|(stream, server)| {
            if stop.load(Ordering::Relaxed) {
                return true;
            }
            let mut byte = [0];
            let answered = sent.next().unwrap_or(Ok(())).and_then(|()| stream.read_exact(&mut byte));
            let how = match answered {
                Ok(()) if *server.get_or_insert(byte[0]) == byte[0] => {
                    found.requests += 1;
                    return true;
                }
                Ok(()) => "another server answered".to_owned(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => format!("no answer in {PATIENCE:?}"),
                Err(error) => error.to_string(),
            };
            found.broke(how);
            false
        });
    }
}
