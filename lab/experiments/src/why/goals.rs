//! Goals of `dwell why`.

use super::{Outcome, Verdict};
use crate::{goal::Goal, print::percent, why::fault::Fault};

/// The least share of faults that are named.
const MIN_NAMED: f64 = 0.9;
/// The least share of pairs of which both faults are among the first two causes.
const MIN_PAIRS: f64 = 0.8;

/// Whether a verdict from packets names what packets can show of a fault.
pub(super) fn is_right_of_packets(fault: Fault, verdict: &str) -> bool {
    fault.in_captures().iter().any(|right| right.name() == verdict)
}

/// Whether a live verdict names a fault.
pub(super) fn is_right(fault: Fault, verdict: &str) -> bool {
    fault.name() == verdict
}

/// Whether both faults of a pair are the first two causes.
pub(super) fn names_both(outcome: &Outcome, verdict: &Verdict, is_right: impl Fn(Fault, &str) -> bool) -> bool {
    let named = |fault: Fault| verdict.causes.iter().take(2).any(|cause| is_right(fault, cause));
    named(outcome.fault) && outcome.also.is_none_or(named)
}

/// Judges live verdicts: most faults are named, and no healthy target is called slow; of pairs both are.
pub(super) fn judge(outcomes: &[Outcome]) -> Vec<Goal> {
    let single = || outcomes.iter().filter(|outcome| outcome.also.is_none());
    let faults = || single().filter(|outcome| outcome.fault != Fault::Healthy);
    let healthy = || single().filter(|outcome| outcome.fault == Fault::Healthy);
    let pairs = || outcomes.iter().filter(|outcome| outcome.also.is_some());
    let named = |outcome: &&Outcome| is_right(outcome.fault, &outcome.live.cause);
    let accused = healthy().filter(|outcome| !named(outcome)).count();
    let mut goals = Vec::new();
    if pairs().next().is_none() || faults().next().is_some() {
        goals.push(share("faults named", faults().map(|outcome| named(&outcome)), MIN_NAMED));
        goals.push(Goal {
            holds: healthy().next().map(|_| accused == 0),
            what: format!("{accused} of {} healthy targets not called healthy, wanted: none", healthy().count()),
        });
    }
    if pairs().next().is_some() {
        let both = pairs().map(|outcome| names_both(outcome, &outcome.live, is_right));
        goals.push(share("pairs with both faults first", both, MIN_PAIRS));
    }
    goals
}

fn share(what: &str, right: impl Iterator<Item = bool>, least: f64) -> Goal {
    let right: Vec<bool> = right.collect();
    let count = right.iter().filter(|right| **right).count();
    let share = count as f64 / right.len().max(1) as f64;
    let (shown, wanted) = (percent(Some(share)), percent(Some(least)));
    Goal {
        holds: (!right.is_empty()).then_some(share >= least),
        what: format!("{shown} % of {} {what}, wanted: at least {wanted} %", right.len()),
    }
}

/// Counts verdicts from captures: those that are right, that say that the capture cannot tell, and that are wrong.
pub(super) fn counted<'a>(verdicts: impl Iterator<Item = (Fault, &'a Verdict)>) -> String {
    let [mut right, mut unknown, mut wrong] = [0; 3];
    for (fault, verdict) in verdicts {
        match verdict.cause.as_str() {
            cause if is_right_of_packets(fault, cause) => right += 1,
            "not-enough" => unknown += 1,
            _ => wrong += 1,
        }
    }
    format!("{right} of {} right, {unknown} unknown, {wrong} wrong", right + unknown + wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fault: Fault, verdict: &str) -> Outcome {
        Outcome { fault, also: None, strength: String::new(), live: of(&[verdict]), captured: None }
    }

    fn of(causes: &[&str]) -> Verdict {
        let names: Vec<String> = causes.iter().map(|cause| (*cause).to_owned()).collect();
        Verdict { cause: names[0].clone(), causes: names, ..Verdict::default() }
    }

    fn holds(outcomes: &[Outcome]) -> Vec<Option<bool>> {
        judge(outcomes).iter().map(|goal| goal.holds).collect()
    }

    #[test]
    fn a_wrong_name_and_a_false_alarm_miss_their_goals() {
        let good = [outcome(Fault::Loss, "loss"), outcome(Fault::Healthy, "healthy")];
        assert_eq!(holds(&good), [Some(true), Some(true)]);
        let bad = [outcome(Fault::Loss, "distance"), outcome(Fault::Healthy, "loss")];
        assert_eq!(holds(&bad), [Some(false), Some(false)]);
        assert_eq!(holds(&[]), [None, None]);
    }

    #[test]
    fn of_a_pair_both_faults_must_be_the_first_two() {
        let pair =
            |causes: &[&str]| Outcome { also: Some(Fault::Distance), live: of(causes), ..outcome(Fault::Nagle, "") };
        assert_eq!(holds(&[pair(&["distance", "nagle", "loss"])]), [Some(true)]);
        assert_eq!(holds(&[pair(&["distance", "loss", "nagle"])]), [Some(false)]);
        assert_eq!(holds(&[pair(&["distance"])]), [Some(false)]);
    }

    #[test]
    fn from_packets_a_slow_reader_is_a_full_window_and_not_knowing_is_not_wrong() {
        let verdicts = [of(&["receiver-window"]), of(&["not-enough"]), of(&["healthy"])];
        let text = counted(verdicts.iter().map(|verdict| (Fault::SlowReader, verdict)));
        assert_eq!(text, "1 of 3 right, 1 unknown, 1 wrong");
    }
}
