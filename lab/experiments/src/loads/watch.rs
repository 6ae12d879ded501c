//! `dwell response` at the vantage point of a load, and over what was captured there.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use dwell_testbed::{Error, Guarded, Namespace, Result, signals::Signals, workload::PATIENCE};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::cost::Cost;
use crate::usage::attaches;

/// How long the programs may take to attach. Packets pass only then, as XDP that is attached amid traffic costs packets.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);

/// A running `dwell response`.
pub(super) struct Watch {
    process: Guarded,
}

impl Watch {
    /// Starts it on the client's side; `arguments` come after those that it needs.
    pub(super) fn start(
        vantage: &Namespace,
        exe: &Path,
        arguments: &[String],
        records: &Path,
        signals: &Signals,
    ) -> Result<Self> {
        let out = File::create(records).map_err(Error::file("write", records))?;
        let process = vantage.spawn(exe, |command| {
            command
                .args(["response", "-i", "client0", "--format", "jsonl"])
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(out)
                .stderr(Stdio::inherit());
        })?;
        let mut watch = Self { process };
        let process = watch.process.id();
        let check = || match watch.process.try_wait().map_err(Error::io("wait for dwell"))? {
            Some(status) => Err(failed("dwell response", status, "")),
            None => Ok(()),
        };
        if !attaches(process, ATTACH_TIMEOUT, signals, check)? {
            return Err(Error::Timeout("dwell response to attach".to_owned()));
        }
        Ok(watch)
    }

    /// Ends it when it has told what it found. Gives what its programs cost, where that is known.
    pub(super) fn finish(mut self, signals: &Signals) -> Result<Option<Cost>> {
        let cost = Cost::of(self.process.id());
        let pid = Pid::from_raw(self.process.id().cast_signed());
        // Not collected yet, so the number is still that of the child.
        kill(pid, Signal::SIGINT).map_err(Error::os("interrupt dwell response"))?;
        match wait(&mut self.process, Some(PATIENCE), signals)? {
            status if status.success() => Ok(cost),
            status => Err(failed("dwell response", status, "")),
        }
    }
}

/// Runs a verb over a capture; `arguments` come after those that it needs.
pub(crate) fn replay(
    exe: &Path,
    verb: &str,
    capture: &Path,
    arguments: &[String],
    records: &Path,
    signals: &Signals,
) -> Result<()> {
    let said = records.with_extension("said");
    let create = |file: &Path| File::create(file).map_err(Error::file("write", file));
    let child = Command::new(exe)
        .args([verb, "--format", "jsonl", "-r"])
        .arg(capture)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(create(records)?)
        .stderr(create(&said)?)
        .process_group(0)
        .spawn();
    let mut process = Guarded(child.map_err(Error::io(format!("run {}", exe.display())))?);
    match wait(&mut process, None, signals)? {
        status if status.success() => Ok(()),
        status => {
            let said = fs::read_to_string(&said).unwrap_or_default();
            let command = format!("dwell {verb} -r {}", capture.display());
            Err(failed(&command, status, &said))
        }
    }
}

fn wait(process: &mut Guarded, patience: Option<Duration>, signals: &Signals) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        let ended = process.try_wait();
        match ended.map_err(Error::io("wait for dwell"))? {
            Some(status) => return Ok(status),
            None if patience.is_some_and(|patience| begun.elapsed() > patience) => {
                return Err(Error::Timeout("the end of dwell".to_owned()));
            }
            None => signals.pause(Duration::from_millis(5))?,
        }
    }
}

fn failed(command: &str, status: ExitStatus, said: &str) -> Error {
    Error::Command { command: command.to_owned(), status: status.to_string(), stderr: said.trim().to_owned() }
}
