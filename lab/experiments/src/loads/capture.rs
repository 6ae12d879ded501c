//! tcpdump at the vantage point.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{ChildStderr, Stdio},
    time::{Duration, Instant},
};

use dwell_testbed::{
    Error, Guarded, Namespace, Result,
    error::find_program,
    signals::Signals,
    workload::{PATIENCE, require},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::usage::Usage;

/// How long tcpdump may keep packets before it sees them, and a little more.
const SETTLES: Duration = Duration::from_millis(1_300);

/// A running capture.
pub(crate) struct Capture {
    process: Guarded,
    said: BufReader<ChildStderr>,
}

impl Capture {
    /// Of what comes from the client at the vantage point.
    pub(super) fn at_vantage(vantage: &Namespace, file: &Path) -> Result<Self> {
        Self::start(vantage, &["-i", "client0"], file)
    }

    /// Of both directions at the client, where they take two interfaces.
    pub(super) fn at_client(client: &Namespace, file: &Path) -> Result<Self> {
        Self::start(client, &["-i", "any", "-y", "LINUX_SLL"], file)
    }

    /// Of both directions at a device.
    pub(crate) fn of_device(namespace: &Namespace, device: &str, file: &Path) -> Result<Self> {
        Self::start(namespace, &["-i", device], file)
    }

    /// Starts it, and waits until it captures: 320 bytes of each packet, which hold the head of a request, and times in
    /// nanoseconds.
    fn start(namespace: &Namespace, interface: &[&str], file: &Path) -> Result<Self> {
        require("tcpdump")?;
        let program = find_program("tcpdump").unwrap_or_else(|| "tcpdump".into());
        let mut process = namespace.spawn(program, |command| {
            // The buffer is in KiB. As root, so that it may write where root may.
            command
                .args(interface)
                .args(["-n", "-B", "65536", "-s", "320", "-Z", "root"])
                .args(["--time-stamp-precision=nano", "-w"])
                .arg(file)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
        })?;
        let stderr = process.stderr.take();
        let stderr = stderr.ok_or_else(|| Error::invalid("tcpdump", "it has no standard error"))?;
        let mut capture = Self { process, said: BufReader::new(stderr) };
        let mut said = String::new();
        while !said.contains("listening on") {
            if capture.read_line(&mut said)? == 0 {
                return Err(Error::Command {
                    command: "tcpdump".to_owned(),
                    status: "it ended before it captured".to_owned(),
                    stderr: said.trim().to_owned(),
                });
            }
        }
        Ok(capture)
    }

    fn read_line(&mut self, said: &mut String) -> Result<usize> {
        self.said.read_line(said).map_err(Error::io("read what tcpdump says"))
    }

    /// What tcpdump has used so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(self.process.id())
    }

    /// Ends it when it has written what came, and gives the number of packets that it missed.
    pub(crate) fn finish(mut self, signals: &Signals) -> Result<u64> {
        signals.pause(SETTLES)?;
        let pid = Pid::from_raw(self.process.id().cast_signed());
        // Not collected yet, so the number is still that of the child.
        kill(pid, Signal::SIGINT).map_err(Error::os("interrupt tcpdump"))?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let ended = self.process.try_wait();
            if ended.map_err(Error::io("wait for tcpdump"))?.is_some() {
                let mut said = String::new();
                while self.read_line(&mut said)? > 0 {}
                return missed(&said);
            }
            signals.pause(Duration::from_millis(5))?;
        }
        Err(Error::Timeout("the end of tcpdump".to_owned()))
    }
}

fn missed(said: &str) -> Result<u64> {
    let count = said.lines().find_map(|line| {
        let (count, rest) = line.split_once(' ')?;
        rest.contains("dropped by kernel").then(|| count.parse().ok())?
    });
    count.ok_or_else(|| Error::invalid("what tcpdump says", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_packets_are_those_the_kernel_dropped() {
        let said = "120 packets captured\n123 packets received by filter\n3 packets dropped by kernel\n";
        assert_eq!(missed(said).unwrap(), 3);
        assert!(missed("tcpdump: cannot write\n").is_err());
    }
}
