//! The report as a person reads it.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use dwell_engine::stats::quantile;
use dwell_testbed::Nanos;

use super::{
    Ablations, Causes, Latencies, Report,
    compare::{Comparison, Errors, Truth},
    distribution::{Distributions, SHARES},
};
use crate::print::percent_to;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.load)?;
        if let Some(cost) = self.cost {
            let share = percent_to(2, self.processor_share());
            let run_ns = cost.run_ns();
            writeln!(f, "dwell response: {run_ns:.0} ns per packet, {share} % of a processor")?;
        }
        writeln!(f)?;
        for comparison in &self.comparisons {
            let (estimates, reasons) = (comparison.methods(), comparison.reasons());
            write!(
                f,
                "{}: of {} epochs with answers {} have an estimate{}",
                comparison.estimator,
                comparison.epochs(Truth::All),
                estimates.values().sum::<usize>(),
                counts(&estimates),
            )?;
            match reasons.values().sum::<usize>() {
                0 => writeln!(f)?,
                without => writeln!(f, ", {without} have none{}", counts(&reasons))?,
            }
        }
        errors(f, &self.comparisons)?;
        distributions(f, &self.comparisons)?;
        round_trips(f, &self.round_trips)?;
        match &self.ablations {
            Some(found) => ablations(f, found),
            None => Ok(()),
        }
    }
}

/// In brackets, where there are any.
fn counts(named: &BTreeMap<&str, usize>) -> String {
    let counts: Vec<String> = named.iter().map(|(name, count)| format!("{name} {count}")).collect();
    match counts.is_empty() {
        true => String::new(),
        false => format!(" ({})", counts.join(", ")),
    }
}

fn errors(f: &mut fmt::Formatter<'_>, comparisons: &[Comparison]) -> fmt::Result {
    let labels = comparisons.iter().map(|comparison| &comparison.estimator);
    let width = width(labels);
    writeln!(
        f,
        "\nerror relative to the mean over these answers, in %; the last two columns in ms\n{:<width$} {:<12}{:>6}{:>7}{ERROR_FIGURES}",
        "estimator", "truth", "n", "epochs"
    )?;
    for comparison in comparisons {
        for (truth, label) in rows(comparison) {
            let errors = comparison.errors(truth);
            let share = match (truth, comparison.epochs(truth)) {
                // Which answers an estimate would have been of is not known where there is none.
                (Truth::Own, _) | (_, 0) => None,
                (_, epochs) => Some(errors.relative.len() as f64 / epochs as f64),
            };
            let (count, share) = (errors.relative.len(), percent_to(0, share));
            write!(f, "{:<width$} {label:<12}", comparison.estimator)?;
            writeln!(f, "{count:>6}{share:>7}{}", ErrorCells(&errors))?;
        }
    }
    Ok(())
}

/// The truths beside which estimates stand, with their own marked. It is a row apart only where estimates differ in it.
fn rows(comparison: &Comparison) -> Vec<(Truth, &'static str)> {
    match comparison.own() {
        Some(Truth::All) => vec![(Truth::All, "all (own)"), (Truth::Causal, "causal")],
        Some(Truth::Causal) => vec![(Truth::All, "all"), (Truth::Causal, "causal (own)")],
        _ if comparison.methods().is_empty() => {
            vec![(Truth::All, "all"), (Truth::Causal, "causal")]
        }
        _ => Truth::EACH.map(|truth| (truth, truth.name())).into(),
    }
}

const ERROR_FIGURES: &str = "      p5     p10     p50     p90     p95    |p50| ≤ 5 % ≤ 10 % ≤ 15 %    |p50|    |p95|";

struct ErrorCells<'a>(&'a Errors);

impl fmt::Display for ErrorCells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(errors) = self;
        for share in [0.05, 0.1, 0.5, 0.9, 0.95] {
            write!(f, "{:>8}", percent_to(1, errors.relative(share)))?;
        }
        write!(f, "{:>9}", percent_to(2, errors.relative_size(0.5)))?;
        for (within, width) in [(0.05, 6), (0.1, 7), (0.15, 7)] {
            write!(f, "{:>width$}", percent_to(0, errors.within(within)))?;
        }
        for share in [0.5, 0.95] {
            write!(f, "{:>9}", millis(errors.absolute_size_ns(share), 3))?;
        }
        Ok(())
    }
}

/// Writes the distributions of each estimator and of the truth that it estimates.
fn distributions(f: &mut fmt::Formatter<'_>, comparisons: &[Comparison]) -> fmt::Result {
    let labels = comparisons.iter().map(|comparison| &comparison.estimator);
    let width = width(labels);
    let mut head = String::new();
    for (name, _) in SHARES {
        write!(head, "{name:>9}")?;
    }
    writeln!(f, "\nlatencies of epochs in ms, truth over estimate\n{:width$} {head}  greatest difference", "")?;
    for comparison in comparisons.iter().filter(|of| of.pairs(Truth::Own).count() > 0) {
        let distributions = Distributions::new(comparison, Truth::Own);
        write!(f, "{:<width$} ", "truth")?;
        line(f, &distributions.truth)?;
        write!(f, "\n{:<width$} ", comparison.estimator)?;
        line(f, &distributions.estimate)?;
        match distributions.greatest_difference() {
            Some((difference, at)) => writeln!(f, "  {:+.1} % at {at}", difference * 100.0)?,
            None => writeln!(f, "  -")?,
        }
    }
    Ok(())
}

fn line(f: &mut fmt::Formatter<'_>, values: &[f64]) -> fmt::Result {
    for (_, share) in SHARES {
        write!(f, "{:>9}", millis(quantile(values, share), 3))?;
    }
    Ok(())
}

fn round_trips(f: &mut fmt::Formatter<'_>, found: &[Latencies]) -> fmt::Result {
    if found.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{:<44}{:>8}{:>10}{:>10}", "what round trips say", "samples", "mean ms", "p50 ms")?;
    let ns_millis = |ns: Option<Nanos>| millis(ns.map(|ns| ns.0 as f64), 3);
    for latencies in found {
        let of = match latencies.of {
            "truth" => "truth: request to answer",
            "syn-ack" => "handshakes at the vantage point (syn-ack)",
            "smoothed-rtt" => "TCP at the client, smoothed, each second",
            "tcptrace" => "tcptrace, both ways at the client",
            "dwell-rtt" => "dwell rtt at the vantage point, one way",
            other => other,
        };
        let (mean, p50) = (ns_millis(latencies.mean_ns), ns_millis(latencies.p50_ns));
        writeln!(f, "{of:<44}{:>8}{mean:>10}{p50:>10}", latencies.samples)?;
    }
    Ok(())
}

fn ablations(f: &mut fmt::Formatter<'_>, found: &Ablations) -> fmt::Result {
    writeln!(f, "\nwhere errors of causal latencies come from, in %, at last in ms")?;
    writeln!(f, "{:<48}{:>6}{ERROR_FIGURES}", "", "n")?;
    let steps = found.steps.iter().map(|step| (&step.name, step.errors.clone()));
    let heuristics = found.heuristics.iter();
    let heuristics = heuristics.map(|with| (&with.estimator, with.errors(Truth::Causal)));
    for (name, errors) in steps.chain(heuristics) {
        writeln!(f, "{name:<48}{:>6}{}", errors.relative.len(), ErrorCells(&errors))?;
    }
    writeln!(f)?;
    for causes in &found.causes {
        let Causes { estimator, epochs, large, late, staggered, both, neither } = causes;
        writeln!(
            f,
            "{estimator}: {large} of {epochs} epochs are off by more than 10 %: late or joined requests {late}, \
             staggered answers {staggered}, both {both}, neither {neither}",
        )?;
    }
    Ok(())
}

/// Wide enough for all of them, and for the head of their column.
pub(super) fn width<'a>(labels: impl Iterator<Item = &'a String>) -> usize {
    labels.map(String::len).fold("estimator".len(), usize::max)
}

/// Nanoseconds in milliseconds, `-` where there are none.
pub(super) fn millis(ns: Option<f64>, digits: usize) -> String {
    ns.map_or("-".to_owned(), |ns| format!("{:.digits$}", ns / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_and_unknown_ones_are_a_dash() {
        assert_eq!(percent_to(1, Some(0.01234)), "1.2");
        assert_eq!(percent_to(1, Some(-0.0001)), "0.0");
        assert_eq!(percent_to(1, Some(-0.01)), "-1.0");
        assert_eq!(percent_to(1, None), "-");
        assert_eq!(millis(Some(1_234_567.0), 2), "1.23");
    }
}
