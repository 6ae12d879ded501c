//! Loads by clients of others. Such a client tells the distribution of its latencies, and not which request had which.

mod estimators;
mod redis;
mod wrk;

use std::{fmt, path::PathBuf, time::Duration};

use crate::Programs;
use dwell_testbed::{Lab, Nanos, Result, signals::Signals};
use serde::Serialize;

use super::{
    CaptureReport, Network,
    stage::{Stage, StageOptions, Watchers},
};

pub use estimators::{Comparison, EstimatorResult, respond};

/// Client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// wrk, and nginx with one static object.
    Wrk,
    /// redis-benchmark, which reads one value of redis-server.
    Redis,
}

impl Program {
    /// What the client is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Redis => "redis-benchmark",
        }
    }

    /// What it takes the time of. It starts the clock once a batch, before the first write.
    fn measures(self) -> &'static str {
        match self {
            Self::Wrk => "from the write of a batch to its last answer",
            Self::Redis => "from the write of a batch to the first bytes of its answers",
        }
    }
}

/// What load to make. As fast as it goes: neither client knows a rate.
#[derive(Debug, Clone)]
pub struct ThirdPartyOptions {
    /// The dwell executable, for its link emulator and `dwell response`.
    pub programs: Programs,
    /// Client and server.
    pub program: Program,
    /// Requests that a connection writes together, as often as all are answered.
    pub depth: usize,
    /// Threads of the client.
    pub threads: usize,
    /// Connections.
    pub connections: usize,
    /// Bytes of the object or value.
    pub size: u64,
    /// About how long; wrk counts in seconds, redis-benchmark in requests.
    pub duration: Duration,
    /// Seed of the network.
    pub seed: u64,
    /// What lies between client and server.
    pub network: Network,
    /// File for the capture.
    pub pcap: Option<PathBuf>,
}

/// What the client said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThirdPartyReport {
    /// Who said it.
    pub program: Program,
    /// Requests that a batch is of.
    pub depth: usize,
    /// Requests that were answered.
    pub requests: u64,
    /// For how long it measured.
    pub lasted_ns: Nanos,
    /// Of batches.
    pub latency: Distribution,
    /// About the capture, if there was one.
    #[serde(skip)]
    pub capture: Option<CaptureReport>,
}

/// Latencies as a client tells them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Distribution {
    /// How many batches.
    pub batches: u64,
    /// Their mean.
    pub mean_ns: Nanos,
    /// Standard deviation; redis-benchmark does not tell it.
    pub deviation_ns: Option<Nanos>,
    /// Median.
    pub p50_ns: Nanos,
    /// 95th percentile.
    pub p95_ns: Nanos,
    /// 99th percentile.
    pub p99_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
}

/// Makes a triangle, runs the load in it, and removes it; on SIGINT and SIGTERM too.
pub fn load(options: &ThirdPartyOptions) -> Result<ThirdPartyReport> {
    let signals = Signals::watch()?;
    load_observed(options, &signals, |_| Ok(()), |()| Ok(()))
}

/// The same with something that observes: started before the load, finished after it, while the triangle is there.
fn load_observed<T>(
    options: &ThirdPartyOptions,
    signals: &Signals,
    start: impl FnOnce(&Lab) -> Result<T>,
    finish: impl FnOnce(T) -> Result<()>,
) -> Result<ThirdPartyReport> {
    let stage = Stage::start(
        signals,
        StageOptions {
            lab: &options.programs.lab,
            network: &options.network,
            seed: options.seed,
            pcap: options.pcap.as_deref(),
        },
    )?;
    // After what is no part of the load.
    let begin = || Ok((stage.watch()?, start(&stage.lab)?));
    let (mut report, (watchers, observer)): (_, (Watchers, T)) = match options.program {
        Program::Wrk => wrk::run(&stage, options, begin)?,
        Program::Redis => redis::run(&stage, options, begin)?,
    };
    report.capture = stage.finish(watchers)?;
    finish(observer)?;
    stage.check_that_answers_went_around(report.requests)?;
    Ok(report)
}

impl fmt::Display for ThirdPartyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::from(self.lasted_ns).as_secs_f64();
        let latency = &self.latency;
        writeln!(
            f,
            "{} requests in {seconds:.1} s, {:.0} per second, in {} batches of {}",
            self.requests,
            self.requests as f64 / seconds,
            latency.batches,
            self.depth,
        )?;
        writeln!(f, "latency as reported by {}, {}:", self.program.name(), self.program.measures())?;
        write!(
            f,
            "mean {}, median {}, 95th percentile {}, 99th {}, longest {}",
            latency.mean_ns, latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.max_ns
        )?;
        if let Some(CaptureReport { missed: 1.. }) = self.capture {
            let missed = self.capture.map_or(0, |capture| capture.missed);
            write!(f, "\ncapture: {missed} packets missed")?;
        }
        Ok(())
    }
}
