//! The report as JSON Lines: an object an estimator and truth, and one for each row of the other tables.

use crate::print::SCHEMA;
use std::collections::BTreeMap;

use dwell_engine::stats::quantile;
use dwell_testbed::{Error, Nanos, Result};
use serde::Serialize;

use super::{
    super::Cost,
    Report,
    compare::{Comparison, Errors, Truth},
    distribution::{Distributions, SHARES},
};

/// What all lines of a run begin with.
#[derive(Serialize)]
struct Line<'a, T> {
    r#type: &'static str,
    schema: &'static str,
    time: String,
    load: &'static str,
    connections: usize,
    depth: usize,
    /// Requests a second; None for as many as it goes.
    rate: Option<f64>,
    seed: u64,
    requests: u64,
    lasted_ns: Nanos,
    #[serde(flatten)]
    row: &'a T,
}

/// About the run as a whole.
#[derive(Serialize)]
struct Run<'a> {
    latency: &'a super::Latencies,
    /// Of the BPF programs: runs, time, and share of a processor; unknown where the kernel does not count.
    programs: Option<Cost>,
    processor_share: Option<f64>,
}

#[derive(Serialize)]
struct Row<'a> {
    estimator: &'a str,
    truth: &'static str,
    /// Unknown for `own`: which answers an estimate would have been of cannot be told where there is none.
    epochs: Option<usize>,
    estimates: usize,
    methods: BTreeMap<&'a str, usize>,
    reasons: BTreeMap<&'a str, usize>,
    error: Relative,
    error_ns: Absolute,
    truth_ns: Latencies,
    estimate_ns: Latencies,
    greatest_difference: Option<f64>,
    greatest_difference_at: Option<&'static str>,
}

#[derive(Serialize)]
struct Step<'a> {
    step: &'a str,
    epochs: usize,
    error: Relative,
}

/// 0.01 is one percent. `size`: without sign.
#[derive(Serialize)]
struct Relative {
    p5: Option<f64>,
    p10: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    size_p50: Option<f64>,
    size_p90: Option<f64>,
    size_p95: Option<f64>,
    within_5: Option<f64>,
    within_10: Option<f64>,
    within_15: Option<f64>,
}

#[derive(Serialize)]
struct Absolute {
    size_p50: Option<i64>,
    size_p90: Option<i64>,
    size_p95: Option<i64>,
}

#[derive(Serialize)]
struct Latencies {
    mean: Option<i64>,
    #[serde(flatten)]
    percentiles: BTreeMap<&'static str, Option<i64>>,
}

impl Report {
    /// An object a line, in the order of the tables.
    pub fn lines(&self) -> Result<Vec<String>> {
        let rows = self.comparisons.iter().flat_map(|comparison| Truth::EACH.map(|truth| Row::new(comparison, truth)));
        let mut lines = vec![self.line("lab.run", &Run::new(self))];
        lines.extend(rows.map(|row| self.line("lab.response", &row)));
        let round_trips = self.round_trips.iter();
        lines.extend(round_trips.map(|row| self.line("lab.round-trips", row)));
        if let Some(ablations) = &self.ablations {
            let steps = ablations.steps.iter().map(|step| Step {
                step: &step.name,
                epochs: step.errors.relative.len(),
                error: Relative::new(&step.errors),
            });
            lines.extend(steps.map(|step| self.line("lab.step", &step)));
            let heuristics = ablations.heuristics.iter();
            let heuristics = heuristics.map(|with| Row::new(with, Truth::Causal));
            lines.extend(heuristics.map(|row| self.line("lab.heuristics", &row)));
            lines.extend(ablations.causes.iter().map(|row| self.line("lab.causes", row)));
        }
        lines.into_iter().collect()
    }

    fn line(&self, r#type: &'static str, row: &impl Serialize) -> Result<String> {
        let options = &self.options;
        let line = Line {
            r#type,
            schema: SCHEMA,
            time: self.ended.to_string(),
            load: options.kind.name(),
            connections: options.connections,
            depth: options.depth,
            rate: options.rate,
            seed: options.seed,
            requests: self.load.requests,
            lasted_ns: self.load.lasted_ns,
            row,
        };
        serde_json::to_string(&line).map_err(|why| Error::invalid("report", why))
    }
}

impl<'a> Run<'a> {
    fn new(report: &'a Report) -> Self {
        Self { latency: &report.truth, programs: report.cost, processor_share: report.processor_share() }
    }
}

impl<'a> Row<'a> {
    fn new(comparison: &'a Comparison, truth: Truth) -> Self {
        let errors = comparison.errors(truth);
        let distributions = Distributions::new(comparison, truth);
        let means = distributions.means();
        let difference = distributions.greatest_difference();
        Self {
            estimator: &comparison.estimator,
            truth: truth.name(),
            epochs: (truth != Truth::Own).then(|| comparison.epochs(truth)),
            estimates: errors.relative.len(),
            methods: comparison.methods(),
            reasons: comparison.reasons(),
            error: Relative::new(&errors),
            error_ns: Absolute {
                size_p50: whole(errors.absolute_size_ns(0.5)),
                size_p90: whole(errors.absolute_size_ns(0.9)),
                size_p95: whole(errors.absolute_size_ns(0.95)),
            },
            truth_ns: Latencies::new(means.map(|(truth, _)| truth), &distributions.truth),
            estimate_ns: Latencies::new(means.map(|(_, estimate)| estimate), &distributions.estimate),
            greatest_difference: difference.map(|(difference, _)| difference),
            greatest_difference_at: difference.map(|(_, at)| at),
        }
    }
}

impl Relative {
    fn new(errors: &Errors) -> Self {
        Self {
            p5: errors.relative(0.05),
            p10: errors.relative(0.1),
            p50: errors.relative(0.5),
            p90: errors.relative(0.9),
            p95: errors.relative(0.95),
            size_p50: errors.relative_size(0.5),
            size_p90: errors.relative_size(0.9),
            size_p95: errors.relative_size(0.95),
            within_5: errors.within(0.05),
            within_10: errors.within(0.1),
            within_15: errors.within(0.15),
        }
    }
}

impl Latencies {
    fn new(mean: Option<f64>, values: &[f64]) -> Self {
        let percentiles = SHARES.iter();
        Self {
            mean: whole(mean),
            percentiles: percentiles.map(|&(name, share)| (name, whole(quantile(values, share)))).collect(),
        }
    }
}

fn whole(ns: Option<f64>) -> Option<i64> {
    ns.map(|ns| ns.round() as i64)
}
