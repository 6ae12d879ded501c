//! Estimates of `dwell response` compared with what a third-party client reports.

use crate::print::SCHEMA;
use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use dwell_engine::stats;
use dwell_testbed::{Error, Nanos, Result, signals::Signals};
use serde::{Deserialize, Serialize};

use super::{
    super::watch::{Watch, replay},
    ThirdPartyOptions, ThirdPartyReport, load_observed,
};

/// What the client measured, and what each estimator found.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The report of the client.
    pub load: ThirdPartyReport,
    /// One result per estimator, in the order of the request.
    pub results: Vec<EstimatorResult>,
}

/// What an estimator found over all connections and epochs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimatorResult {
    /// The name of the estimator, with its options.
    pub estimator: String,
    /// Epochs of connections.
    pub epochs: usize,
    /// Epochs with a valid estimate.
    pub estimates: usize,
    /// The mean of valid estimates, weighted by their batches: the mean over single batches, if each estimate is right.
    pub mean_ns: Option<Nanos>,
    /// Relative error of that mean, compared with the client's.
    pub error: Option<f64>,
    /// Median of the estimates. Each is the mean of an epoch, so this is not the median of single batches.
    pub p50_ns: Option<Nanos>,
    /// 95th percentile of the estimates.
    pub p95_ns: Option<Nanos>,
    /// 99th percentile of the estimates.
    pub p99_ns: Option<Nanos>,
    /// Estimates by method.
    pub methods: BTreeMap<String, usize>,
    /// Epochs without estimate, by reason.
    pub reasons: BTreeMap<String, usize>,
}

/// Runs the load while `dwell response` watches with the first estimator, then the other estimators over the capture.
pub fn respond(
    options: &ThirdPartyOptions,
    estimators: &[String],
    epoch: Duration,
    folder: &Path,
) -> Result<Comparison> {
    let signals = Signals::watch()?;
    let (first, others) = estimators.split_first().ok_or_else(|| Error::invalid("estimators", "none is named"))?;
    let arguments = |estimator: &str| -> Vec<String> {
        let epoch = format!("{}ns", epoch.as_nanos());
        // A name, and options of its own.
        ["--interval", &epoch, "--estimator"]
            .into_iter()
            .chain(estimator.split_whitespace())
            .map(str::to_owned)
            .collect()
    };
    let records = |name: &str| -> PathBuf { folder.join(name) };
    let mut asked = options.clone();
    if !others.is_empty() {
        asked.pcap.get_or_insert_with(|| records("vantage.pcap"));
    }
    let live = records("response.jsonl");
    let load = load_observed(
        &asked,
        &signals,
        |lab| Watch::start(lab.vantage(), &asked.programs.dwell, &arguments(first), &live, &signals),
        |watch| watch.finish(&signals).map(drop),
    )?;
    let truth_ns = load.latency.mean_ns;
    let mut results = vec![EstimatorResult::read(first, &live, truth_ns)?];
    if let Some(pcap) = &asked.pcap {
        for other in others {
            let file = records("replay.jsonl");
            replay(&asked.programs.dwell, "response", pcap, &arguments(other), &file, &signals)?;
            results.push(EstimatorResult::read(other, &file, truth_ns)?);
        }
    }
    Ok(Comparison { load, results })
}

#[derive(Deserialize)]
struct Epoch {
    latency: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean_ns: Option<u64>,
    count: u64,
    method: Option<String>,
    reason: Option<String>,
    valid: bool,
}

impl EstimatorResult {
    fn read(estimator: &str, records: &Path, truth_ns: Nanos) -> Result<Self> {
        let text = fs::read_to_string(records).map_err(Error::file("read", records))?;
        Self::new(estimator, &text, truth_ns)
    }

    fn new(estimator: &str, records: &str, truth_ns: Nanos) -> Result<Self> {
        let mut result = Self {
            estimator: estimator.to_owned(),
            epochs: 0,
            estimates: 0,
            mean_ns: None,
            error: None,
            p50_ns: None,
            p95_ns: None,
            p99_ns: None,
            methods: BTreeMap::new(),
            reasons: BTreeMap::new(),
        };
        let mut estimates = Vec::new();
        let (mut sum, mut batches) = (0.0, 0.0);
        for line in records.lines().filter(|line| line.contains(r#""type":"response.epoch""#)) {
            let Epoch { latency: epoch } = serde_json::from_str(line)
                .map_err(|why| Error::invalid("record of dwell response", format!("{why}: {line}")))?;
            result.epochs += 1;
            match epoch.mean_ns.filter(|_| epoch.valid) {
                Some(ns) => {
                    estimates.push(ns);
                    sum += ns as f64 * epoch.count as f64;
                    batches += epoch.count as f64;
                    *result.methods.entry(epoch.method.unwrap_or_default()).or_default() += 1;
                }
                None => {
                    let reason = epoch.reason.unwrap_or_default();
                    *result.reasons.entry(reason).or_default() += 1;
                }
            }
        }
        estimates.sort_unstable();
        let quantile = |share: f64| stats::quantile(&estimates, share).map(Nanos);
        result.estimates = estimates.len();
        (result.p50_ns, result.p95_ns, result.p99_ns) = (quantile(0.5), quantile(0.95), quantile(0.99));
        if batches > 0.0 {
            let mean_ns = sum / batches;
            result.mean_ns = Some(Nanos(mean_ns.round() as u64));
            result.error = Some(mean_ns / truth_ns.0 as f64 - 1.0);
        }
        Ok(result)
    }
}

impl Comparison {
    /// One JSON object per estimator.
    pub fn lines(&self) -> Result<Vec<String>> {
        #[derive(Serialize)]
        struct Line<'a> {
            r#type: &'static str,
            schema: &'static str,
            load: &'a ThirdPartyReport,
            #[serde(flatten)]
            result: &'a EstimatorResult,
        }
        let line = |result| {
            let line = Line { r#type: "lab.third-party", schema: SCHEMA, load: &self.load, result };
            serde_json::to_string(&line).map_err(|why| Error::invalid("report", why))
        };
        self.results.iter().map(line).collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.load)?;
        let counts = |counts: &BTreeMap<String, usize>| {
            let each = counts.iter().map(|(name, count)| format!("{name} {count}"));
            each.collect::<Vec<_>>().join(", ")
        };
        for result in &self.results {
            write!(
                f,
                "{}: {} epochs, {} with an estimate: {}",
                result.estimator,
                result.epochs,
                result.estimates,
                counts(&result.methods)
            )?;
            match result.reasons.is_empty() {
                true => writeln!(f)?,
                false => writeln!(f, "; without: {}", counts(&result.reasons))?,
            }
        }
        writeln!(f, "\nlatency in ms     of           n     mean   error    stdev      p50      p95      p99")?;
        let latency = &self.load.latency;
        let millis = |ns: Option<Nanos>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns.0 as f64 / 1e6));
        let mut row = |name: &str, of: &str, count: u64, error: &str, figures: [Option<Nanos>; 5]| {
            let [mean, deviation, p50, p95, p99] = figures.map(millis);
            writeln!(f, "{name:<17} {of:<8}{count:>6} {mean:>8} {error:>7} {deviation:>8} {p50:>8} {p95:>8} {p99:>8}")
        };
        row(
            self.load.program.name(),
            "batches",
            latency.batches,
            "",
            [
                Some(latency.mean_ns),
                latency.deviation_ns,
                Some(latency.p50_ns),
                Some(latency.p95_ns),
                Some(latency.p99_ns),
            ],
        )?;
        for result in &self.results {
            let error = result.error.map_or("-".to_owned(), |error| format!("{:+.1} %", error * 100.0));
            row(
                &result.estimator,
                "epochs",
                result.estimates as u64,
                &error,
                [result.mean_ns, None, result.p50_ns, result.p95_ns, result.p99_ns],
            )?;
        }
        write!(
            f,
            "\nThe mean of an estimator is over batches. Its percentiles are of means, one per epoch and connection:\n\
             they are narrower than those of single batches."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_estimates_is_over_batches() {
        let epoch = |ns: &str, batches: u64, valid: bool, reason: &str| {
            format!(
                r#"{{"type":"response.epoch","latency":{{"mean_ns":{ns},"count":{batches},"method":"modes","reason":{reason},"valid":{valid}}}}}"#
            )
        };
        let records = [
            epoch("100", 30, true, "null"),
            epoch("200", 10, true, "null"),
            epoch("900", 10, false, r#""paced""#),
            epoch("null", 0, false, r#""too few""#),
        ];
        let result = EstimatorResult::new("pirate", &records.join("\n"), Nanos(100)).unwrap();
        assert_eq!((result.epochs, result.estimates), (4, 2));
        assert_eq!((result.mean_ns, result.error), (Some(Nanos(125)), Some(0.25)));
        assert_eq!((result.p50_ns, result.p99_ns), (Some(Nanos(100)), Some(Nanos(200))));
        assert_eq!(result.methods, BTreeMap::from([("modes".to_owned(), 2)]));
        assert_eq!(result.reasons["paced"], 1);
        let none = EstimatorResult::new("pirate", "", Nanos(100)).unwrap();
        assert_eq!((none.mean_ns, none.error, none.p50_ns), (None, None, None));
    }
}
