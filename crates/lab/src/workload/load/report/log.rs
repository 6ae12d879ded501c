//! What a load's client knows, and what `dwell response` told, read back from their files.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::{Error, Result};

/// A request as its client saw it. Times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) sent_ns: u64,
    pub(super) done_ns: u64,
    /// The first request that its answer made the client send.
    pub(super) triggers: Option<u64>,
}

impl Request {
    pub(super) fn latency_ns(&self) -> f64 {
        self.done_ns.saturating_sub(self.sent_ns) as f64
    }
}

/// The truth log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) realtime_minus_monotonic_ns: i64,
    /// By the client's port, in the order of sending.
    pub(super) requests: HashMap<u16, Vec<Request>>,
}

/// An epoch as `dwell response` told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The client's port.
    pub(super) connection: u16,
    /// Where it ends, on the client's clock.
    pub(super) end_ns: u64,
    /// None where there was none, or it was not to be believed.
    pub(super) estimate: Option<Estimate>,
    /// Why there is none.
    pub(super) reason: Option<String>,
}

/// What an epoch gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) ns: u64,
    pub(super) method: String,
    /// It is the mean over causal answers, else over all.
    pub(super) of_causal: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Clock {
        realtime_minus_monotonic_ns: i64,
    },
    Request {
        sport: u16,
        id: u64,
        sent_ns: u64,
        done_ns: u64,
        triggers: Option<u64>,
    },
    Response {
        time: String,
        sport: Option<u16>,
        response_ns: Option<u64>,
        method: Option<String>,
        truth: Option<String>,
        valid: bool,
        reason: Option<String>,
    },
}

impl Log {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let mut log = Self::default();
        for line in lines(file)? {
            match line {
                Line::Clock {
                    realtime_minus_monotonic_ns,
                } => log.realtime_minus_monotonic_ns = realtime_minus_monotonic_ns,
                Line::Request {
                    sport,
                    id,
                    sent_ns,
                    done_ns,
                    triggers,
                } => log.requests.entry(sport).or_default().push(Request {
                    id,
                    sent_ns,
                    done_ns,
                    triggers,
                }),
                Line::Response { .. } => {}
            }
        }
        Ok(log)
    }

    /// The records of a run of `dwell response`, with times on the client's clock.
    pub(super) fn epochs(&self, records: &Path) -> Result<Vec<Epoch>> {
        let mut epochs = Vec::new();
        for line in lines(records)? {
            let Line::Response {
                time,
                sport: Some(connection),
                response_ns,
                method,
                truth,
                valid,
                reason,
            } = line
            else {
                continue;
            };
            let estimate = response_ns.filter(|_| valid).map(|ns| Estimate {
                ns,
                method: method.unwrap_or_default(),
                of_causal: truth.as_deref() == Some("causal"),
            });
            epochs.push(Epoch {
                connection,
                end_ns: self.monotonic_ns(&time)?,
                estimate,
                reason,
            });
        }
        Ok(epochs)
    }

    fn monotonic_ns(&self, time: &str) -> Result<u64> {
        let time: jiff::Timestamp = time
            .parse()
            .map_err(|why| Error::invalid("time of a record", why))?;
        let ns = time.as_nanosecond() - i128::from(self.realtime_minus_monotonic_ns);
        u64::try_from(ns).map_err(|why| Error::invalid("time of a record", why))
    }
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
