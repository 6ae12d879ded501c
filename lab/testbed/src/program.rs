//! Programs that run in the background in a lab.

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

/// The time that a program may take to start or to end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running program with the files of its output. It is killed when this is dropped.
#[derive(Debug)]
pub struct RunningProgram {
    name: String,
    process: Guarded,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl RunningProgram {
    /// Starts a program in a namespace. Its output goes to NAME.out and NAME.err in `folder`.
    pub fn start(
        name: impl Into<String>,
        namespace: &Namespace,
        program: &Path,
        folder: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<RunningProgram> {
        let name = name.into();
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let (stdout, stderr) = (file("out"), file("err"));
        let create = |path: &Path| File::create(path).map_err(Error::file("write", path));
        let (out, err) = (create(&stdout)?, create(&stderr)?);
        let process = namespace.spawn(program, |command| {
            command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
        })?;
        Ok(RunningProgram { name, process, stdout, stderr })
    }

    /// Returns the number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the file of its standard output.
    pub fn stdout_file(&self) -> &Path {
        &self.stdout
    }

    /// Returns its standard error so far.
    pub fn stderr(&self) -> Result<String> {
        fs::read_to_string(&self.stderr).map_err(Error::file("read", &self.stderr))
    }

    /// Waits until a text occurs `times` times in its standard error.
    pub fn wait_for(&mut self, text: &str, times: usize, patience: Duration) -> Result<()> {
        let wanted = format!("\"{text}\" of");
        self.wait_until(&wanted, patience, |program| Ok(program.stderr()?.matches(text).count() >= times))
    }

    /// Waits until there is something on its standard output.
    pub fn wait_for_output(&mut self, patience: Duration) -> Result<()> {
        self.wait_until("output of", patience, |program| {
            let meta = fs::metadata(&program.stdout).map_err(Error::file("read", &program.stdout))?;
            Ok(meta.len() > 0)
        })
    }

    fn wait_until(&mut self, wanted: &str, patience: Duration, holds: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds(self)? {
            let ended = self.process.try_wait();
            if ended.is_ok_and(|status| status.is_some()) || started.elapsed() > patience {
                let stderr = self.stderr()?;
                return Err(Error::Timeout(format!("{wanted} the {}, which printed: {}", self.name, stderr.trim())));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns whether the program has ended by itself. Fails if its exit status is not 0.
    pub fn has_ended(&mut self) -> Result<bool> {
        match self.try_wait()? {
            None => Ok(false),
            Some(status) => self.check(status).map(|()| true),
        }
    }

    /// Ends the program with SIGINT and returns the lines of its standard error.
    pub fn interrupt(self) -> Result<Vec<String>> {
        self.end_by_interrupt(false)
    }

    /// Does the same with a program of dwell that may end with status 4: then its output says how much is missing.
    pub fn interrupt_incomplete(self) -> Result<Vec<String>> {
        self.end_by_interrupt(true)
    }

    fn end_by_interrupt(mut self, may_be_incomplete: bool) -> Result<Vec<String>> {
        const INCOMPLETE: Option<i32> = Some(4);
        let pid = Pid::from_raw(self.process.id().cast_signed());
        kill(pid, Signal::SIGINT).map_err(Error::os(format!("end the {}", self.name)))?;
        let interrupted = Instant::now();
        let status = loop {
            if let Some(status) = self.try_wait()? {
                break status;
            }
            if interrupted.elapsed() > PATIENCE {
                return Err(Error::Timeout(format!("the end of the {}", self.name)));
            }
            thread::sleep(Duration::from_millis(10));
        };
        if !(may_be_incomplete && status.code() == INCOMPLETE) {
            self.check(status)?;
        }
        self.stderr_lines()
    }

    /// Returns the lines of its standard error without the program's name.
    pub fn stderr_lines(&self) -> Result<Vec<String>> {
        Ok(self.stderr()?.lines().map(|line| format!("{}: {line}", self.name)).collect())
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
                stderr: self.stderr()?.trim().to_owned(),
            }),
        }
    }
}
