//! The input of a replay. A pipe may fall silent, even for good: results so far are shown then, and signals are
//! handled.

use std::{
    cell::Cell,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write, stdin},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use dwell_capture::{Error, Reader};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::stop::Stop;

/// Longest wait before the clock and signals are checked again, because a signal may arrive just before the wait.
const POLL_MS: u8 = 100;
/// Time after a signal for the other end of a pipe to write what it holds and end: Ctrl-C goes to both.
const GRACE: Duration = Duration::from_millis(500);

/// A capture, and whether it was read to its end.
pub struct Input {
    pub reader: Reader,
    /// Whether the capture is a file. Reading a file stops at once on a signal, a pipe half a second later.
    pub is_file: bool,
    cut: Rc<Cell<bool>>,
}

/// Why a capture could not be opened.
pub enum NoInput {
    /// A signal arrived before the first bytes.
    Stopped,
    /// The input is not a capture, or cannot be read.
    Failed(Error),
}

impl Input {
    /// Opens a file, a pipe, or with "-" standard input. `on_idle` is called whenever a pipe has nothing to read; it
    /// returns false to stop reading. The capture is copied to `copy`, if there is one.
    pub fn open(
        path: &Path,
        stop: &Stop,
        copy: Option<Box<dyn Write>>,
        on_idle: impl FnMut() -> bool + 'static,
    ) -> Result<Input, NoInput> {
        let cut = Rc::new(Cell::new(false));
        let (name, file) = match open_pipe(path) {
            Ok(Some(pipe)) => pipe,
            Ok(None) => {
                let reader = match copy {
                    None => Reader::open(path),
                    Some(copy) => Reader::open_copying(path, copy),
                };
                let reader = reader.map_err(NoInput::Failed)?;
                let is_file = true;
                return Ok(Input { reader, is_file, cut });
            }
            Err(error) => return Err(NoInput::Failed(error)),
        };
        let reader = PipeReader { file, stop: stop.clone(), stopped: None, on_idle, cut: Rc::clone(&cut) };
        let reader = match copy {
            None => Reader::from_read(&name, Box::new(reader)),
            Some(copy) => Reader::from_read_copying(&name, Box::new(reader), copy),
        };
        match reader {
            Ok(reader) => Ok(Input { reader, is_file: false, cut }),
            Err(_) if cut.get() => Err(NoInput::Stopped),
            Err(error) => Err(NoInput::Failed(error)),
        }
    }

    /// Returns true if a signal ended reading before the end of the capture.
    pub fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Marks the capture as not read to its end.
    pub fn cut(&self) {
        self.cut.set(true);
    }
}

/// Opens a pipe or standard input, with its name for messages; `None` for a file.
fn open_pipe(path: &Path) -> Result<Option<(String, File)>, Error> {
    if path.as_os_str() == "-" {
        let name = "standard input".to_owned();
        return match stdin().as_fd().try_clone_to_owned() {
            Ok(fd) => Ok(Some((name, File::from(fd)))),
            Err(io) => Err(Error::Open { path: name, io }),
        };
    }
    // Opening it as a file reports what is wrong with a path.
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(None);
    };
    if metadata.is_file() || metadata.is_dir() {
        return Ok(None);
    }
    let name = path.display().to_string();
    // Without O_NONBLOCK, opening a named pipe waits for its writer, and no signal ends that.
    let flags = OFlag::O_NONBLOCK.bits();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some((name, file))),
        Err(io) => Err(Error::Open { path: name, io }),
    }
}

/// A reader of a pipe that ends after a signal as if the pipe had ended.
struct PipeReader<F> {
    file: File,
    stop: Stop,
    /// When a signal was first noticed.
    stopped: Option<Instant>,
    on_idle: F,
    cut: Rc<Cell<bool>>,
}

impl<F: FnMut() -> bool> Read for PipeReader<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut waited = false;
        loop {
            if self.is_over() {
                self.cut.set(true);
                return Ok(0);
            }
            let ready = is_ready(self.file.as_fd(), if waited { POLL_MS } else { 0 })?;
            if ready {
                match self.file.read(into) {
                    // Another process has read it.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
            if !waited && !(self.on_idle)() {
                return Ok(0);
            }
            waited = true;
        }
    }
}

impl<F> PipeReader<F> {
    fn is_over(&mut self) -> bool {
        if self.stopped.is_none() && self.stop.is_asked() {
            self.stopped = Some(Instant::now());
        }
        self.stopped.is_some_and(|since| since.elapsed() >= GRACE)
    }
}

/// Returns true if a read would not block; false also if a signal arrived while waiting.
fn is_ready(file: BorrowedFd<'_>, wait_ms: u8) -> io::Result<bool> {
    let mut files = [PollFd::new(file, PollFlags::POLLIN)];
    match poll(&mut files, PollTimeout::from(wait_ms)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
