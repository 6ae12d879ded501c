//! Runs side by side: what changes with the load.

use std::fmt::Write;

use dwell_testbed::Nanos;

use super::{
    Report,
    compare::{Comparison, Truth},
    distribution::Distributions,
    text::{millis, width},
};
use crate::print::percent_to;

/// A line a run and estimator.
pub fn sweep(reports: &[Report]) -> String {
    let comparisons = reports.iter().flat_map(|report| &report.comparisons);
    let width = width(comparisons.map(|comparison| &comparison.estimator));
    let mut table = format!(
        "{:>11}{:>9}{:>9}{:>10}{:>10}{:>10}  {:<width$}{:>10}{:>8}{:>7}{:>7}{:>11}{:>7}\n",
        "connections",
        "asked",
        "reached",
        "truth ms",
        "p50",
        "p99",
        "estimator",
        "mean ms",
        "|p50|",
        "≤ 10 %",
        "epochs",
        "ns/packet",
        "CPU %",
    );
    for report in reports {
        for comparison in &report.comparisons {
            let _ = writeln!(table, "{}", row(report, comparison, width));
        }
    }
    table
}

fn row(report: &Report, comparison: &Comparison, width: usize) -> String {
    let truth = &report.truth;
    let ms = |ns: Option<Nanos>| millis(ns.map(|ns| ns.0 as f64), 3);
    let asked = report.options.rate;
    let asked = asked.map_or("max".to_owned(), |rate| format!("{rate:.0}"));
    let errors = comparison.errors(Truth::Own);
    let means = Distributions::new(comparison, Truth::Own).means();
    let told = errors.relative.len() as f64 / comparison.epochs(Truth::All) as f64;
    let cost = report.cost;
    format!(
        "{:>11}{asked:>9}{:>9.0}{:>10}{:>10}{:>10}  {:<width$}{:>10}{:>8}{:>7}{:>7}{:>11}{:>7}",
        report.options.connections,
        report.requests_a_second(),
        ms(truth.mean_ns),
        ms(truth.p50_ns),
        ms(truth.p99_ns),
        comparison.estimator,
        millis(means.map(|(_, estimate)| estimate), 3),
        percent_to(2, errors.relative_size(0.5)),
        percent_to(0, errors.within(0.1)),
        percent_to(0, Some(told).filter(|told| told.is_finite())),
        cost.map_or("-".to_owned(), |cost| format!("{:.0}", cost.run_ns())),
        percent_to(2, report.processor_share()),
    )
}
