//! The balancer's end of the socket.

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use nix::sys::stat::{Mode, umask};
use serde_json::{Value, json};

use super::{MOST_REQUEST_BYTES, Request};

/// What a request came to: a value, or what is wrong with it.
pub type Answer = Result<Value, String>;

/// A request, and who waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Where its answer goes.
    pub answer: SyncSender<Answer>,
}

/// Why no requests can be taken.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else answers there.
    #[error("a balancer answers at '{}' already: end it, or write another api.socket", .0.display())]
    Taken(PathBuf),
    /// What is there is no socket.
    #[error("'{}' is there, and no socket: write another api.socket", .0.display())]
    NoSocket(PathBuf),
    /// The system refused.
    #[error("cannot take requests at '{}': {io}; write an api.socket in a folder that may be written to", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        io: io::Error,
    },
}

/// Takes requests while it lives.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    listener: UnixListener,
}

/// Connections at once; more are told to come again.
const MOST_CONNECTIONS: usize = 32;
/// A connection that says nothing for so long is closed.
const PATIENCE: Duration = Duration::from_secs(60);

impl Listener {
    /// Makes the socket, for its owner alone (mode 0600). To be called while there is one thread, as
    /// the mode of new files is the process's.
    ///
    /// # Errors
    ///
    /// If somebody answers there, or it cannot be made.
    pub fn bind(path: &Path) -> Result<Listener, ListenError> {
        let failed = |io| ListenError::Io { path: path.into(), io };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        clear(path)?;
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        Ok(Listener { path: path.into(), listener: bound.map_err(failed)? })
    }

    /// Hands requests to whoever answers them, from a thread of its own.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub fn serve(&self, asked: Sender<Asked>) -> Result<(), ListenError> {
        let failed = |io| ListenError::Io { path: self.path.clone(), io };
        let listener = self.listener.try_clone().map_err(failed)?;
        let open = Arc::new(AtomicUsize::new(0));
        thread::Builder::new()
            .name("api".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    match stream {
                        Ok(stream) => begin(stream, &asked, &open),
                        // No descriptor, perhaps: others may go.
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
        // If it is gone already, so much the better.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes what a balancer that is gone has left.
fn clear(path: &Path) -> Result<(), ListenError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(ListenError::Taken(path.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(_) => {
            use std::os::unix::fs::FileTypeExt;
            let failed = |io| ListenError::Io { path: path.into(), io };
            let kind = fs::symlink_metadata(path).map_err(failed)?.file_type();
            match kind.is_socket() {
                true => fs::remove_file(path).map_err(failed),
                false => Err(ListenError::NoSocket(path.into())),
            }
        }
    }
}

fn begin(mut stream: UnixStream, asked: &Sender<Asked>, open: &Arc<AtomicUsize>) {
    if open.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
        open.fetch_sub(1, Ordering::SeqCst);
        let _ = say(&mut stream, &Err(format!("there are {MOST_CONNECTIONS} connections already: come again")));
        return;
    }
    let (asked, for_thread) = (asked.clone(), Arc::clone(open));
    let started = thread::Builder::new().name("request".into()).spawn(move || {
        // Whoever asked may be gone.
        let _ = converse(stream, &asked);
        for_thread.fetch_sub(1, Ordering::SeqCst);
    });
    if started.is_err() {
        open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn converse(mut stream: UnixStream, asked: &Sender<Asked>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(MOST_REQUEST_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 == MOST_REQUEST_BYTES && !line.ends_with(b"\n") {
            say(&mut stream, &Err(format!("a request has at most {MOST_REQUEST_BYTES} bytes")))?;
            return Ok(());
        }
        let answer = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => put(request, asked),
            Err(error) => Err(format!("this is no request: {error}; write a line such as {{\"do\":\"status\"}}")),
        };
        say(&mut stream, &answer)?;
    }
}

fn put(request: Request, asked: &Sender<Asked>) -> Answer {
    let (answer, came) = sync_channel(1);
    let ending = |_| "the balancer is about to end".to_owned();
    asked.send(Asked { request, answer }).map_err(|_| ending(()))?;
    came.recv().map_err(|_| ending(()))?
}

fn say(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let value = match answer {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "error": error }),
    };
    stream.write_all(format!("{value}\n").as_bytes())
}
