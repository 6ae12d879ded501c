//! The balancer's end of the API.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::Shutdown,
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use nix::sys::{
    socket::{getsockopt, sockopt},
    stat::{Mode, umask},
};
use serde_json::json;

use super::{MAX_REQUEST_BYTES, Request};

/// The answer to a request: JSON on one line, or why it was refused.
pub type Answer = Result<String, String>;

/// A request that waits for its answer.
#[derive(Debug)]
pub struct PendingRequest {
    /// The request.
    pub request: Request,
    /// Who asks; none if the kernel does not tell.
    pub by: Option<Requester>,
    /// The channel for the answer.
    pub answer: SyncSender<Answer>,
}

/// The process at the other end of a connection, as it was when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// Its user.
    pub uid: u32,
    /// Its number. `None` if it is of another PID namespace.
    pub pid: Option<i32>,
}

/// Why a socket cannot accept requests.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another balancer uses the socket.
    #[error("a balancer already answers at '{}': stop it, or write another api.socket", .0.display())]
    InUse(PathBuf),
    /// The path belongs to something that is not a socket.
    #[error("'{}' exists and is not a socket: write another api.socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused to create it.
    #[error("cannot accept requests at '{}': {io}; write an api.socket in a writable folder, or run as root", path.display())]
    Io {
        /// The path of the socket.
        path: PathBuf,
        /// The cause.
        io: io::Error,
    },
}

impl ListenError {
    /// True if the configuration is at fault, not the rights of this process.
    pub fn is_usage(&self) -> bool {
        !matches!(self, ListenError::Io { io, .. } if io.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Accepts requests until it is dropped.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    listener: UnixListener,
}

/// The greatest number of connections at once.
const MAX_CONNECTIONS: usize = 32;
/// A connection without a request for this time is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes that are read of what follows a request that is too long.
const MAX_IGNORED_BYTES: u64 = 64 * MAX_REQUEST_BYTES;

impl Listener {
    /// Creates the socket for its owner alone (mode 0600). Must be called before other threads start, since the mode of
    /// new files belongs to the process.
    ///
    /// # Errors
    ///
    /// If a balancer already answers there, or the socket cannot be created.
    pub fn bind(path: &Path) -> Result<Listener, ListenError> {
        let failed = |io| ListenError::Io { path: path.into(), io };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        remove_stale(path)?;
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        Ok(Listener { path: path.into(), listener: bound.map_err(failed)? })
    }

    /// Starts a thread that accepts connections and sends their requests to a channel.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn serve(&self, requests: Sender<PendingRequest>) -> Result<(), ListenError> {
        let failed = |io| ListenError::Io { path: self.path.clone(), io };
        let listener = self.listener.try_clone().map_err(failed)?;
        let open = Arc::new(AtomicUsize::new(0));
        thread::Builder::new()
            .name("api".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    match stream {
                        Ok(stream) => accept(stream, &requests, &open),
                        // There may be no free file descriptor: connections may close meanwhile.
                        Err(_) => thread::sleep(Duration::from_millis(100)),
                    }
                }
            })
            .map_err(failed)?;
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A socket that is already gone needs no removal.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the socket that a balancer left behind when it died: nobody listens there. One that cannot be asked, such as
/// that of another user's balancer, stays.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |io| ListenError::Io { path: path.into(), io };
    match UnixStream::connect(path) {
        Ok(_) => Err(ListenError::InUse(path.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            match fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket() {
                true => fs::remove_file(path).map_err(failed),
                false => Err(ListenError::NotASocket(path.into())),
            }
        }
        Err(error) => Err(failed(error)),
    }
}

fn accept(mut stream: UnixStream, requests: &Sender<PendingRequest>, open: &Arc<AtomicUsize>) {
    if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
        open.fetch_sub(1, Ordering::SeqCst);
        let _ =
            send_answer(&mut stream, &Err(format!("there are already {MAX_CONNECTIONS} connections: try again later")));
        return;
    }
    let (requests, for_thread) = (requests.clone(), Arc::clone(open));
    let started = thread::Builder::new().name("request".into()).spawn(move || {
        // The client may be gone.
        let _ = serve_connection(stream, &requests);
        for_thread.fetch_sub(1, Ordering::SeqCst);
    });
    if started.is_err() {
        open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve_connection(mut stream: UnixStream, requests: &Sender<PendingRequest>) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials);
    let by = peer.ok().map(|peer| Requester { uid: peer.uid(), pid: Some(peer.pid()).filter(|pid| *pid != 0) });
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(MAX_REQUEST_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 == MAX_REQUEST_BYTES && !line.ends_with(b"\n") {
            send_answer(&mut stream, &Err(format!("a request has at most {MAX_REQUEST_BYTES} bytes")))?;
            stream.shutdown(Shutdown::Write)?;
            // If bytes were left unread, the end would be a reset, and the answer lost.
            return io::copy(&mut reader.take(MAX_IGNORED_BYTES), &mut io::sink()).map(drop);
        }
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => submit(request, by, requests),
            Err(error) => Err(format!("this is not a request: {error}; write a line such as {{\"do\":\"status\"}}")),
        };
        send_answer(&mut stream, &answer)?;
    }
}

fn submit(request: Request, by: Option<Requester>, requests: &Sender<PendingRequest>) -> Answer {
    const SHUTTING_DOWN: &str = "the balancer is shutting down";
    let (answer, answers) = sync_channel(1);
    requests.send(PendingRequest { request, by, answer }).map_err(|_| SHUTTING_DOWN)?;
    answers.recv().map_err(|_| SHUTTING_DOWN)?
}

fn send_answer(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let line = match answer {
        Ok(json) => format!("{{\"ok\":{json}}}\n"),
        Err(error) => format!("{}\n", json!({ "error": error })),
    };
    stream.write_all(line.as_bytes())
}
