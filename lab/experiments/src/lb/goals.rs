//! Goals of the experiments with `dwell lb`.

use super::{Scenario, verb::Figures};
use crate::{goal::Goal, print::percent_to};

/// The least share by which steering by latency must cut p99. In the paper it is 37 %.
pub const MIN_P99_CUT: f64 = 0.4;
/// The most by which steering may worsen p50, or p99 at a single load.
const MAX_WORSENING: f64 = 0.05;

/// The goals of a scenario: latencies with steering compared with those without, and connections that stay.
pub(super) fn judge(scenario: Scenario, figures: &Figures) -> Vec<Goal> {
    let name = scenario.name();
    let percent = |share| percent_to(0, share);
    let mut goals = Vec::new();
    let mut cut = |percentile: &str, cut: Option<f64>, least: f64| {
        goals.push(Goal {
            holds: cut.map(|cut| cut >= least),
            what: format!(
                "{name}: {percentile} is cut by {} %, wanted: at least {} %",
                percent(cut),
                percent(Some(least))
            ),
        });
    };
    if scenario.has_slow_servers() {
        cut("p99", figures.mean_cut(0.99), MIN_P99_CUT);
        cut("p50", figures.mean_cut(0.5), -MAX_WORSENING);
    }
    // When the balancer restarts, latency is not the question.
    if scenario != Scenario::Open {
        cut("p99 at the worst load", figures.worst_cut(0.99), -MAX_WORSENING);
    }
    // With that much loss, TCP alone may take longer than clients wait.
    if !matches!(scenario, Scenario::Killed | Scenario::Lossy) {
        let broken = figures.broken();
        goals.push(Goal::decided(broken == 0, format!("{name}: {broken} connections broke, wanted: none")));
    }
    goals
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lb::{ClientResult, Outcome, Policy};

    fn outcome(ms: u64, broken: usize) -> Outcome {
        let answer = (Duration::ZERO, Duration::from_millis(ms));
        Outcome {
            clients: ClientResult {
                answers: vec![answer; 1000],
                broken: vec![Duration::ZERO; broken],
                connections: 250,
            },
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
        judge(Scenario::Tail, figures).into_iter().map(|goal| goal.holds).collect()
    }

    #[test]
    fn a_cut_is_of_means_over_runs_and_loads() {
        let all = figures(&[(0.3, 100, 60), (0.3, 200, 60), (0.5, 100, 50)]);
        assert!((all.mean_cut(0.99).unwrap() - 0.55).abs() < 1e-9);
        assert!((all.worst_cut(0.99).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(holds(&all), [Some(true); 4]);
        assert!(all.table().contains("150.0 (100.0 to 200.0)"));
        assert_eq!(all.percentiles().len(), 2 * 2 * 3);
    }

    #[test]
    fn a_load_that_is_worse_fails_though_the_mean_is_good() {
        let all = figures(&[(0.3, 100, 10), (0.5, 100, 106)]);
        let expected = [Some(true), Some(true), Some(false), Some(true)];
        assert_eq!(holds(&all), expected);
        assert_eq!(holds(&Figures::default())[0], None);
    }

    #[test]
    fn broken_connections_are_the_longest_and_miss_the_goal() {
        let mut all = figures(&[(0.3, 100, 10)]);
        all.add(0.3, Policy::Latency, &outcome(10, 50));
        assert_eq!(holds(&all)[3], Some(false));
        // 50 of 1050 are more than 1 %.
        assert!(all.table().contains("5005.0 (10.0 to 10000.0)"));
    }
}
