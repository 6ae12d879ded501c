//! Goals of `dwell why`.

use super::Outcome;
use crate::why::fault::Fault;
use crate::{goal::Goal, print::percent};

/// The least share of faults that are named.
const MIN_NAMED: f64 = 0.9;

/// Judges the verdicts: most faults are named, and no healthy target is called slow.
pub(super) fn judge(outcomes: &[Outcome]) -> Vec<Goal> {
    let faults = || outcomes.iter().filter(|outcome| outcome.fault != Fault::Healthy);
    let healthy = || outcomes.iter().filter(|outcome| outcome.fault == Fault::Healthy);
    let named = |outcome: &&Outcome| outcome.verdict == outcome.fault.name();
    let share = faults().filter(named).count() as f64 / faults().count().max(1) as f64;
    let accused = healthy().filter(|outcome| !named(outcome)).count();
    vec![
        Goal {
            holds: faults().next().map(|_| share >= MIN_NAMED),
            what: format!(
                "{} % of {} faults named, wanted: at least {} %",
                percent(Some(share)),
                faults().count(),
                percent(Some(MIN_NAMED))
            ),
        },
        Goal {
            holds: healthy().next().map(|_| accused == 0),
            what: format!("{accused} of {} healthy targets not called healthy, wanted: none", healthy().count()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fault: Fault, verdict: &str) -> Outcome {
        Outcome {
            fault,
            strength: String::new(),
            verdict: verdict.to_owned(),
            certainty: None,
            share: None,
            captured: None,
        }
    }

    #[test]
    fn a_wrong_name_and_a_false_alarm_miss_their_goals() {
        let holds = |outcomes: &[Outcome]| judge(outcomes).iter().map(|goal| goal.holds).collect::<Vec<_>>();
        let good = [outcome(Fault::Loss, "loss"), outcome(Fault::Healthy, "healthy")];
        assert_eq!(holds(&good), [Some(true), Some(true)]);
        let bad = [outcome(Fault::Loss, "distance"), outcome(Fault::Healthy, "loss")];
        assert_eq!(holds(&bad), [Some(false), Some(false)]);
        assert_eq!(holds(&[]), [None, None]);
    }
}
