//! `[latency]` and `[vip.latency]`: the constants of the policy `latency`.

use dwell_engine::steer::{IntervalsConfig, LatencyConfig};

use super::{
    table::{Problem, Table},
    value::{number, whole},
};

/// Constants of the policy `latency` (Appendix C of arXiv 2505.14358).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latency {
    /// How weights follow from latencies.
    pub steering: LatencyConfig,
    /// How latencies are aggregated from the measurements of connections.
    pub intervals: IntervalsConfig,
}

impl Latency {
    /// Reads the table `latency` of `parent`. Keys that are missing keep their value of `defaults`.
    pub(super) fn read(parent: &mut Table<'_>, defaults: &Latency) -> Latency {
        let mut latency = defaults.clone();
        let Some(mut table) = parent.table("latency") else {
            return latency;
        };
        let steering = &mut latency.steering;
        for (key, to, range) in [
            ("alpha_high", &mut steering.alpha_high, 1.0..=100.0),
            ("alpha_low", &mut steering.alpha_low, 1.0..=100.0),
            ("rate", &mut steering.rate, 0.0001..=1.0),
            ("cap", &mut steering.cap, 0.0001..=10.0),
            ("floor", &mut steering.floor, 0.0001..=1.0),
            ("unchanged", &mut steering.unchanged, 0.0..=10.0),
            ("regress", &mut steering.regress, 0.0..=1.0),
            ("freshness", &mut steering.freshness, 0.0..=1.0),
            ("doubt", &mut steering.doubt, 0.0..=10.0),
        ] {
            *to = table.get(key, number(range)).unwrap_or(*to);
        }
        let intervals = &mut latency.intervals;
        for (key, to, range) in [
            ("k", &mut steering.k, 1..=1000),
            ("forget", &mut steering.forget, 0..=1_000_000),
            ("min_connections", &mut intervals.min_connections, 2..=1000),
            ("look_back", &mut intervals.look_back, 1..=1000),
            ("most_responses", &mut intervals.most_responses, 1..=1_000_000),
        ] {
            *to = table.get(key, whole(range)).unwrap_or(*to);
        }
        let (low, high) = (steering.alpha_low, steering.alpha_high);
        if low > high {
            let problem = Problem::new(
                format!("alpha_low ({low}) is above alpha_high ({high})"),
                "a backend would be both raised and lowered: write a lower alpha_low",
            );
            table.fault(problem, "alpha_low");
        } else if let Err(error) = steering.check().and_then(|()| intervals.check()) {
            table.fault(Problem::new(error.to_string(), "write another value"), error.name);
        }
        table.finish();
        latency
    }
}
