//! Runs of a scenario side by side.

use std::{collections::BTreeMap, time::Duration};

use crate::lb::{Bar, Outcome, Policy, Scenario};
use crate::{goal::Goal, print::mean};

/// Percentiles in milliseconds of each run, by load and policy.
#[derive(Debug, Default)]
pub struct Figures {
    runs: BTreeMap<(u64, &'static str), Vec<Run>>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    /// p50, p90, p99, in milliseconds.
    ms: [Option<f64>; 3],
    broken: usize,
}

const SHARES: [f64; 3] = [0.5, 0.9, 0.99];
/// What the paper cuts from p99.
const CUT: f64 = 0.37;
/// No load shall be worse by more, and no p50.
const WORSE: f64 = 0.05;

impl Figures {
    /// Adds a run.
    pub fn add(&mut self, load: f64, policy: Policy, outcome: &Outcome) {
        let ms = SHARES.map(|share| {
            let latency = outcome.quantile(share, Duration::ZERO, Duration::MAX);
            latency.map(|latency| latency.as_secs_f64() * 1e3)
        });
        let run = Run { ms, broken: outcome.seen.broken.len() };
        let key = (load.to_bits(), policy.name());
        self.runs.entry(key).or_default().push(run);
    }

    /// Whether there is something to draw over loads.
    pub fn has_loads(&self) -> bool {
        self.loads().len() > 1
    }

    fn loads(&self) -> Vec<f64> {
        let mut loads: Vec<u64> = self.runs.keys().map(|(load, _)| *load).collect();
        loads.dedup();
        loads.into_iter().map(f64::from_bits).collect()
    }

    fn of(&self, load: f64, policy: Policy) -> &[Run] {
        let runs = self.runs.get(&(load.to_bits(), policy.name()));
        runs.map_or(&[], Vec::as_slice)
    }

    /// Mean over runs of a percentile, by its place in [`SHARES`].
    fn mean(&self, load: f64, policy: Policy, share: usize) -> Option<f64> {
        mean(self.of(load, policy).iter().map(|run| run.ms[share]))
    }

    /// By how much a percentile is less with steering, over what it is without. Below 0 it is more.
    fn cut(&self, load: f64, share: usize) -> Option<f64> {
        let with = self.mean(load, Policy::Latency, share)?;
        let without = self.mean(load, Policy::Maglev, share)?;
        Some(1.0 - with / without)
    }

    /// Of all loads.
    fn mean_cut(&self, share: usize) -> Option<f64> {
        mean(self.loads().into_iter().map(|load| self.cut(load, share)))
    }

    /// What is drawn.
    pub fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        for load in self.loads() {
            for policy in Policy::ALL {
                for (at, share) in SHARES.into_iter().enumerate() {
                    bars.extend(self.mean(load, policy, at).map(|latency_ms| Bar { policy, load, share, latency_ms }));
                }
            }
        }
        bars
    }

    /// Means with the least and the greatest of runs, and what steering cuts.
    pub fn table(&self) -> String {
        let mut lines = vec![format!(
            "{:>5}{:>26}{:>26}{:>9}{:>9}{:>9}",
            "load", "p99 maglev, ms", "p99 latency, ms", "p50 cut", "p90 cut", "p99 cut"
        )];
        for load in self.loads() {
            let spread = |policy| spread(self.of(load, policy).iter().map(|run| run.ms[2]));
            let cut = |share| percent(self.cut(load, share));
            lines.push(format!(
                "{load:>5}{:>26}{:>26}{:>9}{:>9}{:>9}",
                spread(Policy::Maglev),
                spread(Policy::Latency),
                cut(0),
                cut(1),
                cut(2)
            ));
        }
        if self.has_loads() {
            let all = |share| percent(self.mean_cut(share));
            lines.push(format!("{:>5}{:>52}{:>9}{:>9}{:>9}", "mean", "", all(0), all(1), all(2)));
        }
        lines.join("\n")
    }

    /// What shall hold.
    pub fn checks(&self, scenario: Scenario) -> Vec<Goal> {
        let name = scenario.name();
        let mut checks = Vec::new();
        let worst = |share: usize| {
            let cuts = self.loads().into_iter().map(|load| self.cut(load, share));
            cuts.collect::<Option<Vec<f64>>>().map(|cuts| cuts.into_iter().fold(f64::INFINITY, f64::min))
        };
        if scenario == Scenario::Tail {
            let cut = self.mean_cut(2);
            checks.push(Goal {
                holds: cut.map(|cut| cut >= CUT),
                what: format!("{name}: p99 is cut by {}, wanted: 37 %", percent(cut)),
            });
            let cut = self.mean_cut(0);
            checks.push(Goal {
                holds: cut.map(|cut| cut >= -WORSE),
                what: format!("{name}: p50 is cut by {}, wanted: no worse", percent(cut)),
            });
        }
        // where a balancer restarts, who is slow is not what is asked
        if scenario != Scenario::Open {
            let cut = worst(2);
            checks.push(Goal {
                holds: cut.map(|cut| cut >= -WORSE),
                what: format!("{name}: at the worst load p99 is cut by {}, wanted: -5 % or more", percent(cut)),
            });
        }
        if scenario != Scenario::Killed {
            let broken: usize = self.runs.values().flatten().map(|run| run.broken).sum();
            checks.push(Goal {
                holds: Some(broken == 0),
                what: format!("{name}: {broken} connections broke, wanted: none"),
            });
        }
        checks
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// The mean, and the least and the greatest.
fn spread(values: impl Iterator<Item = Option<f64>> + Clone) -> String {
    let Some(mean) = mean(values.clone()) else {
        return "-".to_owned();
    };
    let known: Vec<f64> = values.flatten().collect();
    let least = known.iter().copied().fold(f64::INFINITY, f64::min);
    let most = known.iter().copied().fold(0.0, f64::max);
    match known.len() {
        1 => format!("{mean:.1}"),
        _ => format!("{mean:.1} ({least:.1} to {most:.1})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lb::Seen;

    fn outcome(ms: u64, broken: usize) -> Outcome {
        let answer = (Duration::ZERO, Duration::from_millis(ms));
        Outcome {
            seen: Seen { answers: vec![answer; 1000], broken: vec![Duration::ZERO; broken], connections: 250 },
            ..Outcome::default()
        }
    }

    fn figures(all: &[(f64, u64, u64)]) -> Figures {
        let mut figures = Figures::default();
        for (load, maglev, latency) in all {
            figures.add(*load, Policy::Maglev, &outcome(*maglev, 0));
            figures.add(*load, Policy::Latency, &outcome(*latency, 0));
        }
        figures
    }

    fn holds(figures: &Figures) -> Vec<Option<bool>> {
        let checks = figures.checks(Scenario::Tail);
        checks.into_iter().map(|check| check.holds).collect()
    }

    #[test]
    fn a_cut_is_of_means_over_runs_and_loads() {
        let all = figures(&[(0.3, 100, 60), (0.3, 200, 60), (0.5, 100, 50)]);
        assert!((all.cut(0.3, 2).unwrap() - 0.6).abs() < 1e-9);
        assert!((all.mean_cut(2).unwrap() - 0.55).abs() < 1e-9);
        assert_eq!(holds(&all), [Some(true); 4]);
        assert!(all.table().contains("150.0 (100.0 to 200.0)"));
        assert_eq!(all.bars().len(), 2 * 2 * 3);
    }

    #[test]
    fn a_load_that_is_worse_fails_though_the_mean_is_well() {
        let all = figures(&[(0.3, 100, 10), (0.5, 100, 106)]);
        let expected = [Some(true), Some(true), Some(false), Some(true)];
        assert_eq!(holds(&all), expected);
        assert_eq!(holds(&Figures::default())[0], None);
    }

    #[test]
    fn broken_connections_are_the_longest_and_told() {
        let mut all = figures(&[(0.3, 100, 10)]);
        all.add(0.3, Policy::Latency, &outcome(10, 50));
        assert_eq!(holds(&all)[3], Some(false));
        // 50 of 1050 are more than 1 %
        assert!(all.table().contains("5005.0 (10.0 to 10000.0)"));
    }
}
