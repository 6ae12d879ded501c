//! `dwell response` at the vantage point of a load, beside what the load's client knows.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use super::compare::{Comparison, Epoch, Request};
use crate::signals::Signals;
use crate::workload::PATIENCE;
use crate::{Error, Guarded, Namespace, Result};

/// Time for the programs to attach before packets pass.
const ATTACHES: Duration = Duration::from_millis(1_000);

/// A running `dwell response`.
pub(super) struct Watch {
    process: Guarded,
    records: PathBuf,
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
        signals.pause(ATTACHES)?;
        Ok(Self {
            process,
            records: records.to_owned(),
        })
    }

    /// Ends it, and compares what it found with the truth in this log.
    pub(super) fn finish(mut self, signals: &Signals, truth: &Path) -> Result<Comparison> {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        // Not collected yet, so the number is still that of the child.
        kill(pid, Signal::SIGINT).map_err(Error::os("interrupt dwell response"))?;
        let begun = Instant::now();
        loop {
            let ended = self.process.try_wait();
            match ended.map_err(Error::io("wait for dwell response"))? {
                Some(status) if status.success() => break,
                Some(status) => {
                    return Err(Error::Command {
                        command: "dwell response".to_owned(),
                        status: status.to_string(),
                        stderr: String::new(),
                    });
                }
                None if begun.elapsed() > PATIENCE => {
                    return Err(Error::Timeout("the end of dwell response".to_owned()));
                }
                None => signals.pause(Duration::from_millis(5))?,
            }
        }
        compare(&self.records, truth)
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Clock {
        realtime_minus_monotonic_ns: i64,
    },
    Request {
        sport: u16,
        sent_ns: u64,
        done_ns: u64,
        triggers: Option<u64>,
    },
    Response {
        time: String,
        sport: Option<u16>,
        epoch_ns: u64,
        response_ns: Option<u64>,
        method: Option<String>,
        truth: Option<String>,
        valid: bool,
    },
}

/// Aligns the records of epochs with the requests of the truth log, by connection and time.
pub(super) fn compare(records: &Path, truth: &Path) -> Result<Comparison> {
    let mut offset_ns = 0;
    let mut requests: HashMap<u16, Vec<Request>> = HashMap::new();
    for line in lines(truth)? {
        match line {
            Line::Clock {
                realtime_minus_monotonic_ns,
            } => offset_ns = realtime_minus_monotonic_ns,
            Line::Request {
                sport,
                sent_ns,
                done_ns,
                triggers,
            } => requests.entry(sport).or_default().push(Request {
                sent_ns,
                done_ns,
                causal: triggers.is_some(),
            }),
            Line::Response { .. } => {}
        }
    }
    let mut epochs = Vec::new();
    for line in lines(records)? {
        if let Line::Response {
            time,
            sport: Some(sport),
            epoch_ns,
            response_ns,
            method,
            truth,
            valid,
        } = line
        {
            let end_ns = monotonic_ns(&time, offset_ns)?;
            epochs.push(Epoch {
                connection: sport,
                start_ns: end_ns.saturating_sub(epoch_ns),
                end_ns,
                estimate_ns: response_ns.filter(|_| valid),
                method: method.unwrap_or_default(),
                of_causal: truth.as_deref() == Some("causal"),
            });
        }
    }
    Ok(Comparison::new(&requests, &epochs))
}

fn lines(file: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(file).map_err(Error::file("read", file))?;
    text.lines()
        .map(|line| {
            serde_json::from_str(line)
                .map_err(|why| Error::invalid(file.display().to_string(), format!("{why}: {line}")))
        })
        .collect()
}

fn monotonic_ns(time: &str, offset_ns: i64) -> Result<u64> {
    let time: jiff::Timestamp = time
        .parse()
        .map_err(|why| Error::invalid("time of a record", why))?;
    let ns = time.as_nanosecond() - i128::from(offset_ns);
    u64::try_from(ns).map_err(|why| Error::invalid("time of a record", why))
}
