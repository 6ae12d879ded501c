//! The figures of round trips, and what it took to read them.

use dwell_engine::stats;
use dwell_testbed::Nanos;

use crate::demo::Scope;

/// The round trips that a program reports for a part of the path.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// The program, with what it measures.
    pub(super) tool: String,
    pub(super) scope: Scope,
    pub(super) samples: usize,
    pub(super) min: Option<Nanos>,
    pub(super) p50: Option<Nanos>,
    pub(super) mean: Option<Nanos>,
    pub(super) p99: Option<Nanos>,
}

impl Row {
    /// The figures of round trips in any order.
    pub(super) fn of(tool: impl Into<String>, scope: Scope, mut round_trips: Vec<Nanos>) -> Row {
        round_trips.sort_unstable();
        let mean = stats::mean(round_trips.iter().map(|rtt| rtt.0 as f64));
        Row {
            tool: tool.into(),
            scope,
            samples: round_trips.len(),
            min: round_trips.first().copied(),
            p50: stats::quantile(&round_trips, 0.5),
            mean: mean.map(|mean| Nanos(mean.round() as u64)),
            p99: stats::quantile(&round_trips, 0.99),
        }
    }

    /// A figure minus the truth, in nanoseconds.
    pub(super) fn error_ns(figure: Option<Nanos>, truth: Nanos) -> Option<f64> {
        figure.map(|figure| figure.0 as f64 - truth.0 as f64)
    }
}

#[cfg(test)]
mod tests {
    use dwell_testbed::Side;

    use super::*;

    #[test]
    fn figures_are_of_sorted_round_trips_and_unknown_without_any() {
        let row = Row::of("a", Scope::Side(Side::Server), [5, 1, 3, 4, 2].map(Nanos).to_vec());
        assert_eq!(
            (row.samples, row.min, row.p50, row.mean, row.p99),
            (5, Some(Nanos(1)), Some(Nanos(3)), Some(Nanos(3)), Some(Nanos(5)))
        );
        assert_eq!(Row::error_ns(row.p50, Nanos(4)), Some(-1.0));
        let none = Row::of("a", Scope::EndToEnd, Vec::new());
        assert_eq!((none.samples, none.p50, Row::error_ns(none.mean, Nanos(4))), (0, None, None));
    }
}
