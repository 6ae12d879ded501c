//! The report as a picture: distributions of latency and error, and one connection over time.

use std::collections::BTreeMap;

use dwell_chart::{Axis, Chart, Line, Scale, drawing, round_step};
use dwell_engine::stats::{quantile, sorted};
use dwell_testbed::{Error, Result};

use super::{
    Report,
    compare::{Compared, Comparison, Truth},
};

/// Told apart by people with any kind of sight for colours (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const TRUTH: &str = "#999999";
const CAUSAL: &str = "#000000";

impl Report {
    /// An SVG picture. The connection over time is the one with this port at the client, or that with most epochs.
    pub fn svg(&self, connection: Option<u16>) -> Result<String> {
        let [load, connections, requests] =
            [self.options.kind.name().to_owned(), self.options.connections.to_string(), self.load.requests.to_string()];
        let heading = format!(
            "dwell-lab response {load}: {requests} requests on {connections} connections, up to {} outstanding on each",
            self.options.depth
        );
        let charts =
            [latencies(&self.comparisons), errors(&self.comparisons), one_connection(&self.comparisons, connection)?];
        Ok(drawing(&heading, &charts))
    }
}

fn estimates(comparisons: &[Comparison]) -> impl Iterator<Item = (&Comparison, &'static str)> {
    comparisons.iter().zip(COLOURS.into_iter().cycle())
}

fn latencies(comparisons: &[Comparison]) -> Chart {
    let truth = |truth: Truth| -> Vec<f64> {
        let epochs = comparisons.first().map_or(&[][..], |first| &first.epochs);
        sorted(epochs.iter().filter_map(|epoch| epoch.truth_ns(truth)).map(millis))
    };
    let mut distributions = vec![
        ("truth: all answers".to_owned(), TRUTH, false, truth(Truth::All)),
        ("truth: causal answers".to_owned(), CAUSAL, true, truth(Truth::Causal)),
    ];
    for (comparison, colour) in estimates(comparisons) {
        let found = comparison.epochs.iter().filter_map(|epoch| epoch.estimate.as_ref());
        let found = sorted(found.map(|estimate| millis(estimate.ns as f64)));
        distributions.push((comparison.estimator.clone(), colour, false, found));
    }
    let ends = distributions.iter().flat_map(|(.., values)| [0.01, 0.99].map(|share| quantile(values, share)));
    let ends = sorted(ends.flatten());
    let (low, high) = (ends.first().copied().unwrap_or(0.0), ends.last().copied().unwrap_or(1.0));
    // Where estimates are wide of the mark, a linear axis would show nothing else.
    let (scale, range) = match low > 0.0 && high / low > 8.0 {
        true => (Scale::Log, (low * 0.9, high * 1.1)),
        false => (Scale::Linear, around(low, high)),
    };
    Chart {
        title: "Latency of epochs".to_owned(),
        x: Axis { label: "mean latency of an epoch and connection, ms".to_owned(), scale, range },
        y: share_of_epochs(),
        lines: distributions
            .into_iter()
            .map(|(label, colour, dashed, values)| Line {
                label,
                colour,
                broad: colour == TRUTH && !dashed,
                dashed,
                dotted: false,
                pieces: vec![cumulative(&values)],
            })
            .collect(),
    }
}

fn errors(comparisons: &[Comparison]) -> Chart {
    const PERCENT: (f64, f64) = (0.01, 1000.0);
    let line = |(comparison, colour): (&Comparison, &'static str)| {
        let errors = comparison.errors(Truth::Own).relative;
        let sizes = errors.iter().map(|error| (error.abs() * 100.0).max(PERCENT.0));
        Line {
            label: match comparison.own() {
                Some(own) => format!("{}, of {}", comparison.estimator, own.name()),
                None => comparison.estimator.clone(),
            },
            colour,
            broad: false,
            dashed: false,
            dotted: false,
            pieces: vec![cumulative(&sorted(sizes))],
        }
    };
    Chart {
        title: "Error relative to the mean over the answers that each estimates".to_owned(),
        x: Axis { label: "size of the relative error, %".to_owned(), scale: Scale::Log, range: PERCENT },
        y: share_of_epochs(),
        lines: estimates(comparisons).map(line).collect(),
    }
}

fn one_connection(comparisons: &[Comparison], asked: Option<u16>) -> Result<Chart> {
    let epochs = comparisons.first().map_or(&[][..], |first| &first.epochs);
    let connection = match asked {
        Some(asked) if epochs.iter().any(|epoch| epoch.connection == asked) => asked,
        Some(asked) => {
            let reason = "the client had no connection from that port with answers";
            return Err(Error::invalid(format!("connection {asked}"), reason));
        }
        None => longest(epochs),
    };
    let begin_ns = epochs.iter().map(|epoch| epoch.start_ns).min().unwrap_or(0);
    let point = |epoch: &Compared, ns: Option<f64>| {
        let middle_ns = (epoch.start_ns + epoch.end_ns) / 2;
        let s = (middle_ns as f64 - begin_ns as f64) / 1e9;
        (s, ns.map(millis))
    };
    let over_time = |comparison: &Comparison, value: &dyn Fn(&Compared) -> Option<f64>| {
        let own = comparison.epochs.iter();
        let own = own.filter(|epoch| epoch.connection == connection);
        pieces(own.map(|epoch| point(epoch, value(epoch))))
    };
    let mut lines = Vec::new();
    if let Some(first) = comparisons.first() {
        for (truth, colour, dashed) in [(Truth::All, TRUTH, false), (Truth::Causal, CAUSAL, true)] {
            lines.push(Line {
                label: format!("truth: {} answers", truth.name()),
                colour,
                broad: !dashed,
                dashed,
                dotted: false,
                pieces: over_time(first, &|epoch| epoch.truth_ns(truth)),
            });
        }
    }
    let highest = |lines: &[Line]| {
        let points = lines.iter().flat_map(|line| line.pieces.iter().flatten());
        points.map(|(_, ms)| *ms).fold(0.0, f64::max)
    };
    let truth_ms = highest(&lines);
    for (comparison, colour) in estimates(comparisons) {
        let estimate = |epoch: &Compared| Some(epoch.estimate.as_ref()?.ns as f64);
        lines.push(Line {
            label: comparison.estimator.clone(),
            colour,
            broad: false,
            dashed: false,
            dotted: true,
            pieces: over_time(comparison, &estimate),
        });
    }
    // Outliers may leave the picture; the truth must stay legible.
    let high_ms = highest(&lines).min(truth_ms * 3.0);
    let last_s = comparisons
        .iter()
        .flat_map(|comparison| &comparison.epochs)
        .map(|epoch| (epoch.end_ns as f64 - begin_ns as f64) / 1e9)
        .fold(0.0, f64::max);
    Ok(Chart {
        title: format!("Connection {connection}, epoch by epoch"),
        x: Axis { label: "time, s".to_owned(), scale: Scale::Linear, range: (0.0, last_s.max(1e-3)) },
        y: Axis { label: "latency, ms".to_owned(), scale: Scale::Linear, range: (0.0, around(0.0, high_ms).1) },
        lines,
    })
}

/// The connection with most epochs, of those the one with most estimates.
fn longest(epochs: &[Compared]) -> u16 {
    let mut counts: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
    for epoch in epochs {
        let count = counts.entry(epoch.connection).or_default();
        count.0 += 1;
        count.1 += usize::from(epoch.estimate.is_some());
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    most.map_or(0, |(connection, _)| connection)
}

/// Points that have a value, parted where one has none.
fn pieces(points: impl Iterator<Item = (f64, Option<f64>)>) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = vec![Vec::new()];
    for (x, y) in points {
        match (y, pieces.last_mut()) {
            (Some(y), Some(piece)) => piece.push((x, y)),
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// The share of values up to each of them, in steps.
fn cumulative(sorted: &[f64]) -> Vec<(f64, f64)> {
    let share = |n: usize| n as f64 / sorted.len() as f64;
    let steps = sorted.iter().enumerate();
    steps.flat_map(|(n, &value)| [(value, share(n)), (value, share(n + 1))]).collect()
}

fn share_of_epochs() -> Axis {
    Axis { label: "share of epochs".to_owned(), scale: Scale::Linear, range: (0.0, 1.0) }
}

/// Round ends that hold both.
fn around(low: f64, high: f64) -> (f64, f64) {
    let step = round_step(((high - low) / 6.0).max(high.abs() * 0.01).max(1e-6));
    let first = (low / step).floor();
    (first * step, (high / step).ceil().max(first + 1.0) * step)
}

fn millis(ns: f64) -> f64 {
    ns / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_from_nothing_to_all() {
        assert_eq!(cumulative(&[2.0, 3.0]), [(2.0, 0.0), (2.0, 0.5), (3.0, 0.5), (3.0, 1.0)]);
    }

    #[test]
    fn a_line_has_a_gap_where_there_is_no_estimate() {
        let points = [(0.0, None), (1.0, Some(5.0)), (2.0, Some(6.0)), (3.0, None), (4.0, Some(7.0))];
        let found = pieces(points.into_iter());
        assert_eq!(found, [vec![(1.0, 5.0), (2.0, 6.0)], vec![(4.0, 7.0)]]);
    }

    #[test]
    fn the_longest_connection_is_shown() {
        let epoch = |connection| Compared {
            connection,
            start_ns: 0,
            end_ns: 1,
            all_ns: 1.0,
            causal_ns: None,
            estimate: None,
            reason: None,
        };
        assert_eq!(longest(&[epoch(7), epoch(9), epoch(9), epoch(8), epoch(8)]), 8);
        assert_eq!(longest(&[]), 0);
    }

    #[test]
    fn axes_end_at_round_values() {
        assert_eq!(around(31.0, 57.0), (30.0, 60.0));
        assert_eq!(around(0.0, 0.0).0, 0.0);
        assert!(around(5.0, 5.0).1 > around(5.0, 5.0).0);
    }
}
