//! `--write`: what the verbs that write records have in common.

use std::{
    fs::File,
    io::{self, ErrorKind, Write, stderr},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::anyhow;
use dwell_records::{Entry, Flush, Output, RecordFile, Rotation, Sink, Source, entry};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::{
    args::bytes,
    exit::{Exit, Failure},
    log::log,
    stop::{Stop, hangups},
};

/// Where records go.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct WriteArgs {
    /// Write records to this file instead of printing them. --format none, where a verb has it, writes jsonl. An
    /// existing file is appended to; SIGHUP reopens it, after logrotate has moved it
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,

    /// With --write, begin a new file before this one exceeds SIZE bytes, as in 500k, 100M or 2G; it becomes FILE.1
    #[arg(long, value_name = "SIZE", requires = "write", value_parser = bytes)]
    rotate: Option<u64>,

    /// With --rotate, the number of old files to keep: FILE.1 is the newest
    #[arg(long, value_name = "N", requires = "rotate", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    keep: u32,
}

impl WriteArgs {
    /// Returns the format of the records; `None` if nothing is to be written. The format `none` is about standard output:
    /// a file that was asked for is to have records, so it gets JSON Lines.
    pub fn format(&self, name: &str) -> Option<&'static Entry> {
        match (&self.write, name) {
            (Some(_), "none") => entry("jsonl"),
            _ => entry(name),
        }
    }

    /// Opens the file; `None` if there is to be none. Where it cannot be written any more, the verb goes on, and lines are counted.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or rotated.
    pub fn file(&self) -> Result<Option<Sink>, Failure> {
        Ok(self.open_as(Sink::file)?.map(|sink| sink.lasting(|sentence| log(sentence))))
    }

    /// The same for a verb that goes on where the file cannot be written any more.
    pub fn lasting_file(&self) -> Result<Option<RecordFile>, Failure> {
        self.open_as(RecordFile::open)
    }

    fn open_as<T>(
        &self,
        open: impl FnOnce(&Path, Option<Rotation>, Arc<AtomicBool>) -> io::Result<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(path) = &self.write else { return Ok(None) };
        let rotation = self.rotate.map(|size_bytes| Rotation { size_bytes, keep: self.keep });
        let file = open(path, rotation, hangups()?).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::InvalidInput => "leave out --rotate",
                _ => "name a writable file",
            };
            Failure::usage(anyhow!("cannot write to {}: {error}; nothing was started: {remedy}", path.display()))
        })?;
        Ok(Some(file))
    }

    /// Opens the output of a verb: records of `source` in the format of this name, to the file or else to standard output.
    /// With the format `none` and no file, nothing is written.
    pub fn output(&self, format: &str, source: Source) -> Result<Output, Failure> {
        match self.format(format) {
            Some(format) => Ok(Output::new((format.new)(), self.open()?, source)),
            None => Ok(Output::nothing(source)),
        }
    }

    /// The same for a verb that starts a program, to which standard output belongs: to the file or else to standard error.
    pub fn output_beside_program(&self, format: &str, source: Source) -> Result<Output, Failure> {
        match self.format(format) {
            Some(format) => Ok(Output::new((format.new)(), self.open_beside_program()?, source)),
            None => Ok(Output::nothing(source)),
        }
    }

    /// Opens the file, or else standard output.
    pub fn open(&self) -> Result<Sink, Failure> {
        match self.file()? {
            Some(sink) => Ok(sink),
            None => Ok(Sink::stdout()?),
        }
    }

    /// Opens the file, or else standard error: standard output belongs to a program that dwell has started.
    pub fn open_beside_program(&self) -> Result<Sink, Failure> {
        match self.file()? {
            Some(sink) => Ok(sink),
            None => standard_error(),
        }
    }

    /// Listens for signals that end the run: not for SIGHUP where that opens the file anew.
    pub fn listen(&self, duration: Option<Duration>) -> Result<Stop, Failure> {
        Ok(match self.write {
            Some(_) => Stop::listen_but_for_hangup(duration)?,
            None => Stop::listen(duration)?,
        })
    }
}

fn standard_error() -> Result<Sink, Failure> {
    let own = stderr().as_fd().try_clone_to_owned();
    let own = own.map_err(|error| Failure::new(Exit::Incomplete, error))?;
    let write = Box::new(WaitingFile(File::from(own)));
    Ok(Sink::new("standard error", write, Flush::Full).shown_on(&stderr()))
}

/// A file that the program shares and may have set to non-blocking: writes wait until it is ready.
struct WaitingFile(File);

impl Write for WaitingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut wanted = [PollFd::new(self.0.as_fd(), PollFlags::POLLOUT)];
                    match poll(&mut wanted, PollTimeout::NONE) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, pipe},
        os::fd::OwnedFd,
        thread,
    };

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_full_pipe_that_does_not_block_is_waited_for() {
        let (mut reader, writer) = pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let sent = vec![7; 1 << 20];
        let reading = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        let mut file = WaitingFile(File::from(OwnedFd::from(writer)));
        file.write_all(&sent).unwrap();
        drop(file);
        assert_eq!(reading.join().unwrap().unwrap(), sent);
    }
}
