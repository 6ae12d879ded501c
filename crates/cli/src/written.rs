//! `--write`: what the verbs that write records have in common.

use std::{io, path::PathBuf, time::Duration};

use anyhow::anyhow;
use dwell_records::{Rotation, Sink};

use crate::{
    args::bytes,
    exit::Failure,
    stop::{Stop, hangups},
};

/// Where records go.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct WriteArgs {
    /// Write records to this file instead of printing them. An existing file is continued; SIGHUP opens it anew, after
    /// logrotate has moved it
    #[arg(short, long, value_name = "FILE", alias = "output")]
    pub write: Option<PathBuf>,

    /// With --write, begin a new file before this one exceeds SIZE bytes, as in 500k, 100M or 2G; it becomes FILE.1
    #[arg(long, value_name = "SIZE", requires = "write", value_parser = bytes)]
    rotate: Option<u64>,

    /// With --rotate, the number of old files to keep: FILE.1 is the newest
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    keep: u32,
}

impl WriteArgs {
    /// Opens the file; `None` if there is to be none.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or rotated.
    pub fn file(&self) -> Result<Option<Sink>, Failure> {
        let Some(path) = &self.write else { return Ok(None) };
        let rotation = self.rotate.map(|size_bytes| Rotation { size_bytes, keep: self.keep });
        let sink = Sink::file(path, rotation, hangups()?).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::InvalidInput => "leave out --rotate",
                _ => "name a writable file",
            };
            Failure::usage(anyhow!("cannot write to {}: {error}; nothing was started: {remedy}", path.display()))
        })?;
        Ok(Some(sink))
    }

    /// Opens the file, or else standard output.
    pub fn open(&self) -> Result<Sink, Failure> {
        match self.file()? {
            Some(sink) => Ok(sink),
            None => Ok(Sink::stdout()?),
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
