//! The runs of a scenario, with and without steering.

use std::{collections::BTreeMap, time::Duration};

use dwell_engine::stats;
use dwell_sim::report::table;

use crate::{
    lb::{Outcome, Percentile, Policy},
    print::percent_to,
};

/// Percentiles of each run, by load and policy.
#[derive(Debug, Default)]
pub struct Figures {
    runs: BTreeMap<(u64, &'static str), Vec<Run>>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// Latencies at [`SHARES`] in milliseconds.
    ms: [Option<f64>; 3],
    broken: usize,
}

/// The quantiles that are compared.
const SHARES: [f64; 3] = [0.5, 0.9, 0.99];

impl Figures {
    /// Adds a run.
    pub fn add(&mut self, load: f64, policy: Policy, outcome: &Outcome) {
        let ms = SHARES.map(|share| {
            let latency = outcome.quantile(share, Duration::ZERO, Duration::MAX);
            latency.map(|latency| latency.as_secs_f64() * 1e3)
        });
        let run = Run { ms, broken: outcome.clients.broken.len() };
        self.runs.entry((load.to_bits(), policy.name())).or_default().push(run);
    }

    /// Whether there are several loads, which a chart needs.
    pub fn has_loads(&self) -> bool {
        self.loads().len() > 1
    }

    fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<u64> = self.runs.keys().map(|(load, _)| *load).collect();
        loads.dedup();
        loads.into_iter().map(f64::from_bits).collect()
    }

    /// The latencies at a quantile of all runs at a load.
    fn ms(&self, load: f64, policy: Policy, share: f64) -> Vec<f64> {
        let index = SHARES.iter().position(|known| *known == share);
        let runs = self.runs.get(&(load.to_bits(), policy.name())).into_iter().flatten();
        runs.filter_map(|run| run.ms[index?]).collect()
    }

    fn mean(&self, load: f64, policy: Policy, share: f64) -> Option<f64> {
        stats::mean(self.ms(load, policy, share))
    }

    /// The share by which steering cuts a quantile at a load; negative if steering worsens it.
    fn cut(&self, load: f64, share: f64) -> Option<f64> {
        let (with, without) = (self.mean(load, Policy::Latency, share)?, self.mean(load, Policy::Maglev, share)?);
        Some(1.0 - with / without)
    }

    /// The mean cut of a quantile over all loads.
    pub fn mean_cut(&self, share: f64) -> Option<f64> {
        stats::mean(self.loads().into_iter().filter_map(|load| self.cut(load, share)))
    }

    /// The least cut of a quantile over all loads; unknown if it is unknown at one of them.
    pub fn worst_cut(&self, share: f64) -> Option<f64> {
        let cuts = self.loads().into_iter().map(|load| self.cut(load, share)).collect::<Option<Vec<f64>>>()?;
        Some(cuts.into_iter().fold(f64::INFINITY, f64::min))
    }

    /// The number of connections that broke in all runs.
    pub fn broken(&self) -> usize {
        self.runs.values().flatten().map(|run| run.broken).sum()
    }

    /// The mean percentiles, for a chart.
    pub fn percentiles(&self) -> Vec<Percentile> {
        let mut all = Vec::new();
        for load in self.loads() {
            for policy in Policy::ALL {
                for share in SHARES {
                    let latency_ms = self.mean(load, policy, share);
                    all.extend(latency_ms.map(|latency_ms| Percentile { policy, load, share, latency_ms }));
                }
            }
        }
        all
    }

    /// A table of the mean p99 with the range of runs, and of what steering cuts.
    pub fn table(&self) -> String {
        let percent = |cut| format!("{} %", percent_to(0, cut));
        let mut rows: Vec<Vec<String>> = Vec::new();
        for load in self.loads() {
            let spread = |policy| spread(&self.ms(load, policy, 0.99));
            let mut row = vec![load.to_string(), spread(Policy::Maglev), spread(Policy::Latency)];
            row.extend(SHARES.map(|share| percent(self.cut(load, share))));
            rows.push(row);
        }
        if self.has_loads() {
            let mut row = vec!["mean".to_owned(), String::new(), String::new()];
            row.extend(SHARES.map(|share| percent(self.mean_cut(share))));
            rows.push(row);
        }
        let heading = ["load", "p99 maglev, ms", "p99 latency, ms", "p50 cut", "p90 cut", "p99 cut"];
        table(&heading, &rows).trim_end().to_owned()
    }
}

/// The mean, and the range if there are several values; `-` if there are none.
fn spread(values: &[f64]) -> String {
    let Some(mean) = stats::mean(values.iter().copied()) else {
        return "-".to_owned();
    };
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(0.0, f64::max);
    match values.len() {
        1 => format!("{mean:.1}"),
        _ => format!("{mean:.1} ({min:.1} to {max:.1})"),
    }
}
