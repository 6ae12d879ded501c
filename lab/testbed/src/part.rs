//! Programs that run in a lab for a while.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{Error, Guarded, Namespace, Result};

/// How long something may take to come up or to end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A program, and files of what it says. It is killed when this is dropped.
#[derive(Debug)]
pub struct Part {
    name: String,
    process: Guarded,
    out: PathBuf,
    err: PathBuf,
}

impl Part {
    /// Starts it; what it says is in `folder`, in NAME.out and NAME.err.
    pub fn start(
        name: impl Into<String>,
        namespace: &Namespace,
        program: &Path,
        folder: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<Part> {
        let name = name.into();
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let (out, err) = (file("out"), file("err"));
        let create = |path: &Path| File::create(path).map_err(Error::file("write", path));
        let (stdout, stderr) = (create(&out)?, create(&err)?);
        let process = namespace.spawn(program, |command| {
            command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        })?;
        Ok(Part { name, process, out, err })
    }

    /// Where its standard output goes.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// What it has said on standard error.
    pub fn said(&self) -> Result<String> {
        fs::read_to_string(&self.err).map_err(Error::file("read", &self.err))
    }

    /// Until it has said something on standard error so many times.
    pub fn wait_for(&mut self, what: &str, times: usize, patience: Duration) -> Result<()> {
        let wanted = format!("\"{what}\" of");
        self.wait_until(&wanted, patience, |part| Ok(part.said()?.matches(what).count() >= times))
    }

    /// Until there is something on its standard output.
    pub fn wait_for_output(&mut self, patience: Duration) -> Result<()> {
        self.wait_until("output of", patience, |part| {
            let meta = fs::metadata(&part.out).map_err(Error::file("read", &part.out))?;
            Ok(meta.len() > 0)
        })
    }

    fn wait_until(&mut self, wanted: &str, patience: Duration, holds: impl Fn(&Part) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !holds(self)? {
            let ended = self.process.try_wait();
            if ended.is_ok_and(|status| status.is_some()) || begun.elapsed() > patience {
                let fact = format!("{} says: {}", self.name, self.said()?.trim());
                return Err(Error::Timeout(format!("{wanted} the {fact}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether it has ended by itself. An error if it ended badly.
    pub fn has_ended(&mut self) -> Result<bool> {
        match self.try_wait()? {
            None => Ok(false),
            Some(status) => self.check(status).map(|()| true),
        }
    }

    /// As Ctrl-C does. Returns what it said.
    pub fn end(mut self) -> Result<Vec<String>> {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        kill(pid, Signal::SIGINT).map_err(Error::os(format!("end the {}", self.name)))?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.try_wait()? {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::Timeout(format!("the end of the {}", self.name)));
            }
            thread::sleep(Duration::from_millis(10));
        };
        self.check(status)?;
        self.lines()
    }

    /// What it said on standard error, each line after its name.
    pub fn lines(&self) -> Result<Vec<String>> {
        let said = self.said()?;
        let lines = said.lines().map(|line| format!("{}: {line}", self.name));
        Ok(lines.collect())
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let waited = self.process.try_wait();
        waited.map_err(Error::io(format!("wait for the {}", self.name)))
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        match status.success() {
            true => Ok(()),
            false => Err(Error::Command {
                command: format!("the {}", self.name),
                status: status.to_string(),
                stderr: self.said()?.trim().to_owned(),
            }),
        }
    }
}
