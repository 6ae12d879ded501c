//! A capture to read. One that comes through a pipe may fall silent, for good too: what is known is
//! shown then, and signals are heard.

use std::{
    cell::Cell,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, stdin},
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

/// Longest wait between two looks at the clock and at signals: one may come just before the wait.
const LOOK_MS: u8 = 100;
/// After a signal, time for the other end of a pipe to write what it holds and to end: Ctrl-C goes
/// to both.
const GRACE: Duration = Duration::from_millis(500);

/// What is read, and whether to its end.
pub struct Input {
    pub reader: Reader,
    /// A file is left at once when asked to stop, a pipe half a second later.
    pub is_file: bool,
    cut: Rc<Cell<bool>>,
}

/// Nothing can be read.
pub enum NoInput {
    /// Asked to stop before the first bytes came.
    Stopped,
    /// It is no capture.
    Failed(Error),
}

impl Input {
    /// Opens a file, a pipe, or with "-" standard input. `quiet` is called each time that a pipe
    /// has nothing to read; it returns false where reading on is of no use.
    pub fn open(path: &Path, stop: &Stop, quiet: impl FnMut() -> bool + 'static) -> Result<Input, NoInput> {
        let cut = Rc::new(Cell::new(false));
        let (name, file) = match open_pipe(path) {
            Ok(Some(pipe)) => pipe,
            Ok(None) => {
                let reader = Reader::open(path).map_err(NoInput::Failed)?;
                let is_file = true;
                return Ok(Input { reader, is_file, cut });
            }
            Err(error) => return Err(NoInput::Failed(error)),
        };
        let patient = Patient { file, stop: stop.clone(), stopped: None, quiet, cut: Rc::clone(&cut) };
        match Reader::from_read(&name, Box::new(patient)) {
            Ok(reader) => Ok(Input { reader, is_file: false, cut }),
            Err(_) if cut.get() => Err(NoInput::Stopped),
            Err(error) => Err(NoInput::Failed(error)),
        }
    }

    /// True if reading ended before the capture did, as was asked.
    pub fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Ends reading here.
    pub fn cut(&self) {
        self.cut.set(true);
    }
}

/// The name and file of an input that may have to be waited for; None for a file.
fn open_pipe(path: &Path) -> Result<Option<(String, File)>, Error> {
    if path.as_os_str() == "-" {
        let name = "standard input".to_owned();
        return match stdin().as_fd().try_clone_to_owned() {
            Ok(fd) => Ok(Some((name, File::from(fd)))),
            Err(io) => Err(Error::Open { path: name, io }),
        };
    }
    // What is wrong with a path is found out, and told, when it is opened as a file.
    let Ok(metadata) = fs::metadata(path) else {
        return Ok(None);
    };
    if metadata.is_file() || metadata.is_dir() {
        return Ok(None);
    }
    let name = path.display().to_string();
    // Opening a named pipe waits for its writer otherwise, and no signal ends that.
    let flags = OFlag::O_NONBLOCK.bits();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some((name, file))),
        Err(io) => Err(Error::Open { path: name, io }),
    }
}

/// Ends when asked to stop, as if the file had ended.
struct Patient<F> {
    file: File,
    stop: Stop,
    /// When it was first seen that the run should end.
    stopped: Option<Instant>,
    quiet: F,
    cut: Rc<Cell<bool>>,
}

impl<F: FnMut() -> bool> Read for Patient<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut waited = false;
        loop {
            if self.is_over() {
                self.cut.set(true);
                return Ok(0);
            }
            let ready = is_ready(self.file.as_fd(), if waited { LOOK_MS } else { 0 })?;
            if ready {
                match self.file.read(into) {
                    // Somebody else has read it.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
            if !waited && !(self.quiet)() {
                return Ok(0);
            }
            waited = true;
        }
    }
}

impl<F> Patient<F> {
    fn is_over(&mut self) -> bool {
        if self.stopped.is_none() && self.stop.is_asked() {
            self.stopped = Some(Instant::now());
        }
        self.stopped.is_some_and(|since| since.elapsed() >= GRACE)
    }
}

/// True if a read would not wait; false too if a signal came meanwhile.
fn is_ready(file: BorrowedFd<'_>, wait_ms: u8) -> io::Result<bool> {
    let mut files = [PollFd::new(file, PollFlags::POLLIN)];
    match poll(&mut files, PollTimeout::from(wait_ms)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
