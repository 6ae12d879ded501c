//! The application of a setting: a client and a server, until they are stopped.

use std::{
    fs::File,
    io::{Read, Result, Seek, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use dwell_testbed::{Error, Guarded, Lab, Namespace, Role};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::socket::{setsockopt, shutdown, sockopt},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use tempfile::TempDir;

use super::{
    crowd::{connect, send_in_bursts, serve_one_at_a_time},
    names::{self, NAMES},
    secure,
    setting::{Pattern, Setting, WRITE},
};

/// The port of the server.
pub const PORT: u16 = 5201;
/// The port of the service behind it.
const BEHIND: u16 = 5202;
/// The port to which others transfer.
const OTHERS: u16 = 5203;
/// How many others transfer at the same time.
const OTHER_TRANSFERS: usize = 2;
/// The length of a request and of its answer.
pub(super) const MESSAGE: usize = 100;
/// The longest time that a request on a connection of its own may take.
pub(super) const LONGEST_REQUEST: Duration = Duration::from_secs(5);
/// Bytes per read of a server that reads slowly.
const READ: usize = 4096;

/// A running application. It ends when it is dropped.
pub struct Application {
    ends: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// The server's port has a listener, as that of any server.
    listener: TcpListener,
    neighbours: Vec<Guarded>,
    /// A client that is a program, with the folder of its files.
    client: Option<(Guarded, TempDir)>,
}

impl Application {
    /// Connects the ends, and starts to exchange data.
    pub fn start(lab: &Lab, setting: &Setting) -> dwell_testbed::Result<Application> {
        let address = SocketAddr::from((Lab::address_v4(Role::Server), PORT));
        let io = |what: &str| Error::io(format!("{what} {address}"));
        let os = |what: &str| Error::os(format!("set the {what} of a socket"));
        let listener = lab.server().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
        if let Some(bytes) = setting.receive_buffer {
            // Accepted connections inherit it before their window is announced.
            setsockopt(&listener.as_fd(), sockopt::RcvBuf, &bytes).map_err(os("receive buffer"))?;
        }
        let client = lab.client().enter(|| TcpStream::connect(address))?.map_err(io("connect to"))?;
        let (server, _) = listener.accept().map_err(io("accept at"))?;
        for end in [&client, &server] {
            setsockopt(&end.as_fd(), sockopt::TcpCongestion, &"cubic".into()).map_err(os("congestion control"))?;
            let is_prompt = !matches!(setting.pattern, Pattern::Pieces { .. });
            end.set_nodelay(is_prompt).map_err(io("set TCP_NODELAY at"))?;
        }
        if let Some(bytes) = setting.send_buffer {
            setsockopt(&client.as_fd(), sockopt::SndBuf, &bytes).map_err(os("send buffer"))?;
        }
        let mut ends = vec![client, server];
        let [own_client, own_server] = [duplicate(&ends[0])?, duplicate(&ends[1])?];
        let (pattern, read_pause) = (setting.pattern, setting.read_pause);
        let is_over = Arc::new(AtomicBool::new(false));
        let file = (setting.syncs > 0).then(tempfile::tempfile).transpose();
        let file = file.map_err(io("make a file for the server at"))?.map(|file| (file, setting.syncs));
        let mut program = None;
        let mut threads = match pattern {
            Pattern::Send { bytes, pause } => vec![
                thread::spawn(move || drop(send(own_client, bytes, pause))),
                thread::spawn(move || drop(receive(own_server, read_pause, file))),
            ],
            Pattern::Push { bytes, pause } => vec![
                thread::spawn(move || drop(subscribe(own_client))),
                thread::spawn(move || drop(push(own_server, bytes, pause))),
            ],
            Pattern::Ask { work, pause } => vec![
                thread::spawn(move || drop(ask(own_client, &[MESSAGE], pause))),
                thread::spawn(move || drop(answer(own_server, MESSAGE, work))),
            ],
            Pattern::Compute { work, pause } => vec![
                thread::spawn(move || drop(ask(own_client, &[MESSAGE], pause))),
                thread::spawn(move || drop(compute(own_server, work))),
            ],
            Pattern::Pieces { pause } => vec![
                thread::spawn(move || drop(ask(own_client, &[MESSAGE / 5, MESSAGE - MESSAGE / 5], pause))),
                thread::spawn(move || drop(answer(own_server, MESSAGE, Duration::ZERO))),
            ],
            Pattern::Burst { bytes, work, pause } => vec![
                thread::spawn(move || drop(ask(own_client, &[bytes], pause))),
                thread::spawn(move || drop(answer(own_server, bytes, work))),
            ],
            Pattern::Connect { work, pause } => {
                let (server_over, client_over) = (Arc::clone(&is_over), Arc::clone(&is_over));
                let accepting = listener.try_clone().map_err(io("accept at"))?;
                // A thread stays in the namespace in which it was started.
                let asking =
                    lab.client().enter(|| thread::spawn(move || connect_each(address, pause, &client_over)))?;
                vec![thread::spawn(move || serve_each(&accepting, work, &server_over)), asking]
            }
            Pattern::Names { late } => {
                let folder = tempfile::tempdir().map_err(io("make a folder for the client of"))?;
                let names = SocketAddr::from((address.ip(), NAMES));
                let socket = lab.server().enter(|| UdpSocket::bind(names))?.map_err(io("answer for names at"))?;
                let (names_over, server_over) = (Arc::clone(&is_over), Arc::clone(&is_over));
                let accepting = listener.try_clone().map_err(io("accept at"))?;
                program = Some((names::start_client(lab, folder.path())?, folder));
                vec![
                    thread::spawn(move || drop(names::answer_late(&socket, late, &names_over))),
                    thread::spawn(move || names::serve_pages(&accepting, &server_over)),
                ]
            }
            Pattern::Secure { late, pause } => {
                let (serves, asks) = secure::configure(late)?;
                let (server_over, client_over) = (Arc::clone(&is_over), Arc::clone(&is_over));
                let accepting = listener.try_clone().map_err(io("accept at"))?;
                let asking = move || secure::ask_each(address, &asks, pause, &client_over);
                let asking = lab.client().enter(|| thread::spawn(asking))?;
                vec![thread::spawn(move || secure::serve(&accepting, &serves, &server_over)), asking]
            }
            Pattern::Crowd { clients, work, pause } => {
                let (mut threads, mut served) = (Vec::new(), Vec::new());
                for [client, server] in connect(lab, &listener, address, clients)? {
                    let own = duplicate(&client)?;
                    threads.push(thread::spawn(move || drop(ask(own, &[MESSAGE], pause))));
                    served.push(duplicate(&server)?);
                    ends.extend([client, server]);
                }
                threads.push(thread::spawn(move || drop(serve_one_at_a_time(served, work))));
                threads
            }
            Pattern::Proxy { work, behind, pause } => {
                let address = SocketAddr::from((Lab::address_v4(Role::Client), BEHIND));
                let accepting = lab.client().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
                let asking = lab.server().enter(|| TcpStream::connect(address))?.map_err(io("connect to"))?;
                let (serving, _) = accepting.accept().map_err(io("accept at"))?;
                for end in [&asking, &serving] {
                    end.set_nodelay(true).map_err(io("set TCP_NODELAY at"))?;
                }
                vec![
                    thread::spawn(move || drop(ask(own_client, &[MESSAGE], pause))),
                    thread::spawn(move || drop(pass_on(own_server, asking, work))),
                    thread::spawn(move || drop(answer(serving, MESSAGE, behind))),
                ]
            }
        };
        if let Some((burst, rest)) = setting.others {
            let address = SocketAddr::from((Lab::address_v4(Role::Server), OTHERS));
            let listener = lab.server().enter(|| TcpListener::bind(address))?.map_err(io("listen at"))?;
            for [client, server] in connect(lab, &listener, address, OTHER_TRANSFERS)? {
                let (from, to) = (duplicate(&client)?, duplicate(&server)?);
                threads.push(thread::spawn(move || drop(send_in_bursts(from, burst, rest))));
                threads.push(thread::spawn(move || drop(receive(to, Duration::ZERO, None))));
                ends.extend([client, server]);
            }
        }
        let neighbours = start_neighbours(setting.neighbours, lab.server())?;
        Ok(Application { ends, threads, is_over, listener, neighbours, client: program })
    }

    /// Whom a user would ask about: the server's port, or the process of a client that is a program.
    pub fn target(&self) -> String {
        self.client.as_ref().map_or_else(|| format!(":{PORT}"), |(client, _)| client.id().to_string())
    }

    /// The same in a capture at the client, which has no processes: all connections, with the questions to name servers.
    pub fn target_in_captures(&self) -> String {
        if self.client.is_some() { String::new() } else { format!(":{PORT}") }
    }
}

fn duplicate(socket: &TcpStream) -> dwell_testbed::Result<TcpStream> {
    socket.try_clone().map_err(Error::io("duplicate an end of a connection"))
}

impl Drop for Application {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.client = None;
        self.neighbours.clear();
        // Ends a thread that accepts.
        let _ = shutdown(self.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        for end in &self.ends {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn send(mut socket: TcpStream, bytes: usize, pause: Duration) -> Result<()> {
    let data = vec![1; WRITE];
    loop {
        let mut left = bytes;
        while left > 0 {
            left -= socket.write(&data[..left.min(WRITE)])?;
        }
        thread::sleep(pause);
    }
}

fn subscribe(mut socket: TcpStream) -> Result<()> {
    socket.write_all(&[1; MESSAGE])?;
    receive(socket, Duration::ZERO, None)
}

fn push(mut socket: TcpStream, bytes: usize, pause: Duration) -> Result<()> {
    socket.read_exact(&mut [0; MESSAGE])?;
    send(socket, bytes, pause)
}

fn receive(mut socket: TcpStream, pause: Duration, mut file: Option<(File, usize)>) -> Result<()> {
    let is_slow = !pause.is_zero() || file.is_some();
    let mut buffer = vec![0; if is_slow { READ } else { 1 << 20 }];
    loop {
        let bytes = socket.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        if let Some((file, syncs)) = &mut file {
            for _ in 0..*syncs {
                file.rewind()?;
                file.write_all(&buffer[..bytes])?;
                file.sync_all()?;
            }
        }
        thread::sleep(pause);
    }
}

/// Writes requests in pieces of these lengths.
fn ask(mut socket: TcpStream, pieces: &[usize], pause: Duration) -> Result<()> {
    let data = vec![1; pieces.iter().copied().max().unwrap_or(0)];
    let mut message = [0; MESSAGE];
    loop {
        for length in pieces {
            socket.write_all(&data[..*length])?;
        }
        socket.read_exact(&mut message)?;
        thread::sleep(pause);
    }
}

fn answer(mut socket: TcpStream, request: usize, work: Duration) -> Result<()> {
    let mut data = vec![0; request];
    loop {
        socket.read_exact(&mut data)?;
        thread::sleep(work);
        socket.write_all(&[1; MESSAGE])?;
    }
}

/// Asks another server before it answers.
fn pass_on(mut socket: TcpStream, mut behind: TcpStream, work: Duration) -> Result<()> {
    let mut message = [0; MESSAGE];
    loop {
        socket.read_exact(&mut message)?;
        behind.write_all(&message)?;
        behind.read_exact(&mut message)?;
        thread::sleep(work);
        socket.write_all(&message)?;
    }
}

/// The processor on which a server and its neighbours compute.
const PROCESSOR: usize = 0;

/// Answers after this much time on the processor.
fn compute(mut socket: TcpStream, work: Duration) -> Result<()> {
    pin(0)?;
    let mut request = [0; MESSAGE];
    let used = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    loop {
        socket.read_exact(&mut request)?;
        let begun = used()?;
        while used()? < begun + work {}
        socket.write_all(&request)?;
    }
}

/// Keeps a thread, or the calling one if it is 0, on the processor of the server.
fn pin(thread: i32) -> Result<()> {
    let mut processors = CpuSet::new();
    processors.set(PROCESSOR)?;
    Ok(sched_setaffinity(Pid::from_raw(thread), &processors)?)
}

/// Starts programs that compute on the processor of the server, until they are dropped.
fn start_neighbours(count: usize, host: &Namespace) -> dwell_testbed::Result<Vec<Guarded>> {
    let mut neighbours = Vec::new();
    for _ in 0..count {
        let started = host.spawn("sh", |command| {
            command.args(["-c", "while :; do :; done"]);
        })?;
        pin(started.0.id() as i32).map_err(Error::io("keep a program on one processor"))?;
        neighbours.push(started);
    }
    Ok(neighbours)
}

/// Connects for each request.
fn connect_each(address: SocketAddr, pause: Duration, is_over: &AtomicBool) {
    let mut message = [0; MESSAGE];
    while !is_over.load(Ordering::Relaxed) {
        let asked = TcpStream::connect_timeout(&address, LONGEST_REQUEST).and_then(|mut socket| {
            socket.set_read_timeout(Some(LONGEST_REQUEST))?;
            socket.write_all(&message)?;
            socket.read_exact(&mut message)
        });
        // One that fails is followed by another.
        drop(asked);
        thread::sleep(pause);
    }
}

/// Answers one request on each connection.
fn serve_each(listener: &TcpListener, work: Duration, is_over: &AtomicBool) {
    let mut message = [0; MESSAGE];
    while let Ok((mut socket, _)) = listener.accept() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let _ = socket.set_read_timeout(Some(LONGEST_REQUEST));
        if socket.read_exact(&mut message).is_ok() {
            thread::sleep(work);
            let _ = socket.write_all(&message);
        }
    }
}
