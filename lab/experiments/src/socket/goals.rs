//! The goals of the socket experiments: how near estimates come, what --minimize keeps and saves, and how few frames of
//! a video are late.

use super::accuracy::Accuracy;
use crate::{
    goal::Goal,
    print::{mean, millis, percent},
};

/// Least accuracy of the estimator `exact`.
const ACCURACY: f64 = 0.95;
/// Least mean delay for which accuracy is judged.
const RELEVANT_DELAY_NS: f64 = 1e6;
/// Least share of a plain flow's throughput that --minimize keeps.
pub const THROUGHPUT: f64 = 0.97;
/// Largest share of a plain flow's delay that --minimize leaves.
const DELAY: f64 = 0.1;
/// The mean delay with --minimize stays below this, in ms.
const WAIT_MS: f64 = 10.0;
/// ... and below this on links of at least [`FAST`] bits per second.
const FAST_WAIT_MS: f64 = 5.0;
const FAST: u64 = 50_000_000;
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

/// Figures with --minimize.
pub struct Minimized {
    /// Throughput of the flow, as a share of a plain flow's.
    pub throughput: Option<f64>,
    /// Mean delay in its send buffer, in ns.
    pub wait: Option<f64>,
    /// The same, as a share of a plain flow's.
    pub delay: Option<f64>,
    /// Throughput of each other flow, as a share of what it has beside a plain flow.
    pub others: Vec<Option<f64>>,
}

/// Judges --minimize in a scenario whose link has this rate in bits per second, if it has one. `delay` is judged in
/// `10m-50ms` alone, and the other flows in `three-flows`.
pub fn minimize(scenario: &str, rate: Option<u64>, minimized: &Minimized) -> Vec<Goal> {
    let Minimized { throughput, wait, delay, others } = minimized;
    let most_ms = if rate.is_some_and(|rate| rate >= FAST) { FAST_WAIT_MS } else { WAIT_MS };
    let mut goals = vec![
        Goal {
            holds: throughput.map(|share| share >= THROUGHPUT),
            what: format!(
                "{scenario}: --minimize keeps {} % of the throughput, goal: {} %",
                percent(*throughput),
                THROUGHPUT * 100.0
            ),
        },
        Goal {
            holds: wait.map(|ns| ns < most_ms * 1e6),
            what: format!("{scenario}: bytes wait {} ms, goal: below {most_ms} ms", millis(*wait)),
        },
    ];
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

    #[test]
    fn waits_are_judged_by_the_rate_of_the_link() {
        let minimized = |throughput, wait_ms: f64| Minimized {
            throughput: Some(throughput),
            wait: Some(wait_ms * 1e6),
            delay: None,
            others: Vec::new(),
        };
        let holds = |mbit: Option<u64>, throughput, wait_ms| -> Vec<Option<bool>> {
            let rate = mbit.map(|mbit| mbit * 1_000_000);
            minimize("reno", rate, &minimized(throughput, wait_ms)).iter().map(|goal| goal.holds).collect()
        };
        for mbit in [None, Some(10), Some(30)] {
            assert_eq!(holds(mbit, 0.97, 9.9), [Some(true), Some(true)]);
            assert_eq!(holds(mbit, 0.96, 10.0), [Some(false), Some(false)]);
        }
        for mbit in [Some(50), Some(200)] {
            assert_eq!(holds(mbit, 1.0, 4.9), [Some(true), Some(true)]);
            assert_eq!(holds(mbit, 1.0, 5.0), [Some(true), Some(false)]);
        }
    }
}
