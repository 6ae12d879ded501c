//! Goals of `dwell why`.

use super::{Outcome, Verdict};
use crate::{goal::Goal, print::percent, why::fault::Fault};

/// The least share of faults of the two stronger strengths that are named.
const MIN_STRONG: f64 = 0.95;
/// The least share of faults of the weakest strength that are named.
const MIN_WEAK: f64 = 0.8;
/// The least share of healthy targets that are not called slow.
const MIN_HEALTHY: f64 = 0.98;
/// The least share of pairs of which both faults are among the first two causes.
const MIN_PAIRS: f64 = 0.8;

/// Whether a verdict from packets names what packets can show of a fault.
pub(super) fn is_right_of_packets(fault: Fault, verdict: &str) -> bool {
    fault.in_captures().iter().any(|right| right.name() == verdict)
}

/// Whether a live verdict names a fault.
pub(super) fn is_right(fault: Fault, verdict: &str) -> bool {
    fault.cause().name() == verdict
}

/// Whether both faults of a pair are the first two causes.
pub(super) fn names_both(outcome: &Outcome, verdict: &Verdict, is_right: impl Fn(Fault, &str) -> bool) -> bool {
    let named = |fault: Fault| verdict.causes.iter().take(2).any(|cause| is_right(fault, cause));
    named(outcome.fault) && outcome.also.is_none_or(named)
}

/// Judges live verdicts: most faults are named, fewer of the weakest strength, and no healthy target is called slow; of
/// pairs both are named.
pub(super) fn judge(outcomes: &[Outcome]) -> Vec<Goal> {
    let single = || outcomes.iter().filter(|outcome| outcome.also.is_none());
    let named = |is_weakest: bool| {
        let faults = single().filter(|outcome| outcome.fault != Fault::Healthy);
        faults.filter(move |it| it.is_weakest == is_weakest).map(|it| is_right(it.fault, &it.live.cause))
    };
    let healthy = || single().filter(|outcome| outcome.fault == Fault::Healthy).map(|outcome| !outcome.live.is_slow);
    let pairs = || outcomes.iter().filter(|outcome| outcome.also.is_some());
    let mut goals = Vec::new();
    if pairs().next().is_none() || single().next().is_some() {
        goals.push(share("faults of the two stronger strengths named", named(false), MIN_STRONG));
        goals.push(share("faults of the weakest strength named", named(true), MIN_WEAK));
        goals.push(share("healthy targets not called slow", healthy(), MIN_HEALTHY));
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
        let strength = String::new();
        Outcome { fault, also: None, strength, is_weakest: false, live: of(&[verdict]), captured: None }
    }

    fn of(causes: &[&str]) -> Verdict {
        let names: Vec<String> = causes.iter().map(|cause| (*cause).to_owned()).collect();
        let is_slow = !["healthy", "not-enough", "no-traffic"].contains(&causes[0]);
        Verdict { cause: names[0].clone(), is_slow, causes: names, ..Verdict::default() }
    }

    fn holds(outcomes: &[Outcome]) -> Vec<Option<bool>> {
        judge(outcomes).iter().map(|goal| goal.holds).collect()
    }

    fn runs(count: usize, outcome: &Outcome) -> Vec<Outcome> {
        vec![outcome.clone(); count]
    }

    #[test]
    fn faults_of_each_strength_and_healthy_targets_have_a_goal_of_their_own() {
        let [named, missed] = ["loss", "distance"].map(|verdict| outcome(Fault::Loss, verdict));
        let [weak, weak_missed] = [&named, &missed].map(|it| Outcome { is_weakest: true, ..it.clone() });
        let [healthy, unknown, accused] =
            ["healthy", "not-enough", "loss"].map(|verdict| outcome(Fault::Healthy, verdict));
        let most = [runs(19, &named), runs(1, &missed), runs(4, &weak), runs(1, &weak_missed)].concat();
        let silent = [runs(49, &healthy), runs(1, &unknown)].concat();
        assert_eq!(holds(&[most, silent.clone()].concat()), [Some(true); 3]);
        let fewer = [runs(18, &named), runs(1, &missed), runs(3, &weak), runs(1, &weak_missed)].concat();
        assert_eq!(holds(&[fewer, silent, runs(2, &accused)].concat()), [Some(false); 3]);
        assert_eq!(holds(&[]), [None; 3]);
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
