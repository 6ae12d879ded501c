//! The goals of the socket experiments: how near estimates come, what --minimize keeps and saves, and how few frames of
//! a video are late.

use super::accuracy::Accuracy;
use crate::{
    goal::Goal,
    print::{mean, percent},
};

/// Least accuracy of the estimator `exact`.
const ACCURACY: f64 = 0.95;
/// Least mean delay for which accuracy is judged.
const RELEVANT_DELAY_NS: f64 = 1e6;
/// Least share of a plain flow's throughput that --minimize keeps.
pub const THROUGHPUT: f64 = 0.97;
/// Largest share of a plain flow's delay that --minimize leaves.
const DELAY: f64 = 0.1;
/// Largest relative change of other flows' throughput.
const FAIRNESS: f64 = 0.05;
/// The share of late frames stays below this.
const LATE: f64 = 0.01;

/// The runs of one estimator on one side of one scenario. `None`: there was nothing to compare.
pub type Runs = [Option<Accuracy>];

/// Judges the accuracy of the estimator `exact` on one side. `None` where the delay is too short to matter.
pub fn accuracy(scenario: &str, side: &str, runs: &Runs) -> Option<Goal> {
    let share = share(runs);
    (share.is_none() || is_delayed(runs)).then(|| Goal {
        holds: share.map(|share| share >= ACCURACY),
        what: format!("{scenario}: {side} delay is known to {} %, goal: {} %", percent(share), ACCURACY * 100.0),
    })
}

/// The mean of the true delays.
pub fn truth(runs: &Runs) -> Option<f64> {
    mean(runs.iter().map(|run| run.map(|run| run.truth_ns)))
}

/// The mean accuracy.
pub fn share(runs: &Runs) -> Option<f64> {
    mean(runs.iter().map(|run| run.map(|run| run.share())))
}

/// Whether bytes wait long enough for accuracy to matter.
pub fn is_delayed(runs: &Runs) -> bool {
    truth(runs).is_some_and(|truth| truth >= RELEVANT_DELAY_NS)
}

/// Figures with --minimize, as shares of a plain flow's.
pub struct Minimized {
    /// Throughput of the flow.
    pub throughput: Option<f64>,
    /// Mean delay in its send buffer.
    pub delay: Option<f64>,
    /// Throughput of each other flow.
    pub others: Vec<Option<f64>>,
}

/// Judges --minimize in a scenario. `delay` is judged in `10m-50ms` alone, and the other flows in `three-flows`.
pub fn minimize(scenario: &str, minimized: &Minimized) -> Vec<Goal> {
    let Minimized { throughput, delay, others } = minimized;
    let mut goals = vec![Goal {
        holds: throughput.map(|share| share >= THROUGHPUT),
        what: format!(
            "{scenario}: --minimize keeps {} % of the throughput, goal: {} %",
            percent(*throughput),
            THROUGHPUT * 100.0
        ),
    }];
    if scenario == "10m-50ms" {
        goals.push(Goal {
            holds: delay.map(|share| share <= DELAY),
            what: format!(
                "{scenario}: it leaves {} % of the delay, goal: at most {} %",
                percent(*delay),
                DELAY * 100.0
            ),
        });
    }
    if scenario == "three-flows" {
        goals.extend(others.iter().zip(2..).map(|(share, number)| Goal {
            holds: share.map(|share| (share - 1.0).abs() <= FAIRNESS),
            what: format!(
                "{scenario}: flow {number} has {} % of its throughput, goal: within {} %",
                percent(*share),
                FAIRNESS * 100.0
            ),
        }));
    }
    goals
}

/// A setting that `dwell run` could not apply, which leaves its figures undecided.
pub fn not_applied(scenario: &str, setting: &str) -> Goal {
    Goal { holds: None, what: format!("{scenario}: {setting} was not applied: dwell run could not load its library") }
}

/// Judges the share of late frames of the server that asks libdwell.
pub fn video(bottleneck: &str, late: Option<f64>) -> Goal {
    Goal {
        holds: late.map(|late| late < LATE),
        what: format!(
            "{bottleneck}: by libdwell {} % of the frames sent are late, goal: below {} %",
            percent(late),
            LATE * 100.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_in_a_hundred_is_too_many_and_none_at_all_is_unknown() {
        let holds = |late| video("fifo", late).holds;
        assert_eq!(holds(Some(0.009)), Some(true));
        assert_eq!(holds(Some(0.01)), Some(false));
        assert_eq!(holds(None), None);
    }
}
