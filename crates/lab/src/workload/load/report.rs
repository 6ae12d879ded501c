//! How near `dwell response` comes to what a load's client knows: estimators side by side, on the same traffic.

mod compare;
mod distribution;
mod json;
mod log;
mod quantile;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::watch::replay;
use super::{LoadOptions, LoadReport, ResponseOptions, load};
use crate::signals::Signals;
use crate::{Error, Result};
pub use compare::{Comparison, Errors, Truth};
use log::Log;

/// What to run and to compare.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// The load. Its truth log and capture are kept where it says so.
    pub load: LoadOptions,
    /// As `dwell response` calls them. The first runs at the vantage point, the others over a capture taken there.
    pub estimators: Vec<String>,
    /// Length of an epoch.
    pub epoch: Duration,
    /// For files that nobody asked for.
    pub folder: PathBuf,
}

/// How near the estimators came.
#[derive(Debug, Clone)]
pub struct Report {
    /// What the client measured.
    pub load: LoadReport,
    /// In the order asked for.
    pub comparisons: Vec<Comparison>,
    options: LoadOptions,
    ended: jiff::Timestamp,
}

/// Runs a load with `dwell response` beside it, then more estimators over the capture.
pub fn respond(options: &ReportOptions) -> Result<Report> {
    let signals = Signals::watch()?;
    let in_folder = |name: &str| options.folder.join(name);
    let (first, others) = options
        .estimators
        .split_first()
        .ok_or_else(|| Error::invalid("estimators", "none is named"))?;
    let records = in_folder("response.jsonl");
    let truth = options.load.truth.clone();
    let truth = truth.unwrap_or_else(|| in_folder("truth.jsonl"));
    let mut asked = options.load.clone();
    asked.truth = Some(truth.clone());
    asked.response = Some(ResponseOptions {
        arguments: options.arguments(first),
        records: records.clone(),
    });
    if !others.is_empty() {
        asked.pcap.get_or_insert_with(|| in_folder("vantage.pcap"));
    }
    let report = load(&asked)?;

    let log = Log::read(&truth)?;
    let compare = |estimator: &str, records: &Path| {
        let epochs = log.epochs(records)?;
        Ok(Comparison::new(estimator, &log, &epochs, options.epoch))
    };
    let mut comparisons = vec![compare(first, &records)?];
    if let Some(pcap) = &asked.pcap {
        for other in others {
            let records = in_folder("replay.jsonl");
            replay(
                &asked.exe,
                pcap,
                &options.arguments(other),
                &records,
                &signals,
            )?;
            comparisons.push(compare(other, &records)?);
        }
    }
    Ok(Report {
        load: report,
        comparisons,
        options: asked,
        ended: jiff::Timestamp::now(),
    })
}

impl ReportOptions {
    fn arguments(&self, estimator: &str) -> Vec<String> {
        let epoch = format!("{}ns", self.epoch.as_nanos());
        ["--estimator", estimator, "--epoch", &epoch]
            .map(str::to_owned)
            .into()
    }
}
