//! The goals of `dwell-lab response zoo`: what `dwell response` believes is so, and it believes what it can know.

use std::collections::BTreeMap;

use super::score::{EXPECTED_FROM, Score};
use crate::{goal::Goal, print::percent};

/// The largest share of believed epochs that may be wrong by more than 20 %.
const MAX_WRONG: f64 = 0.01;
/// The least share of epochs with a believed estimate, where one request at a time is under way.
const MIN_BELIEVED: f64 = 0.9;

/// The groups whose protocols carry several requests on a connection, or messages without an answer. Nothing in one
/// direction shows that there is one request at a time: refusing it is right.
const REFUSABLE: [&str; 2] = ["http/2", "messages"];

/// The goals of an estimator over all behaviours of a run, and over their groups.
pub(super) fn judge(estimator: &str, score: &Score, groups: &BTreeMap<String, Score>) -> Vec<Goal> {
    let share = |count: usize, of: usize| (of > 0).then(|| count as f64 / of as f64);
    let wrong = share(score.wrong, score.believed);
    let mut serial = Score::default();
    groups.iter().filter(|(name, _)| !REFUSABLE.contains(&name.as_str())).for_each(|(_, score)| serial.merge(score));
    let believed = share(serial.serial_believed, serial.serial);
    vec![
        Goal {
            holds: wrong.map(|wrong| wrong <= MAX_WRONG),
            what: format!(
                "{estimator}: {} % of {} believed epochs are wrong by more than 20 %, wanted: at most {} %",
                percent(wrong),
                score.believed,
                percent(Some(MAX_WRONG))
            ),
        },
        Goal {
            holds: (score.believed > 0).then_some(score.far_off == 0),
            what: format!(
                "{estimator}: {} believed epochs are off by more than a factor of 2, wanted: none",
                score.far_off
            ),
        },
        Goal {
            holds: believed.map(|believed| believed >= MIN_BELIEVED),
            what: format!(
                "{estimator}: {} % of {} epochs with {EXPECTED_FROM} answers or more and one request at a time are \
                 believed, apart from {}, wanted: at least {} %",
                percent(believed),
                serial.serial,
                REFUSABLE.join(" and "),
                percent(Some(MIN_BELIEVED))
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_epoch_in_a_hundred_is_allowed_and_none_that_is_far_off() {
        let holds = |score: &Score| -> Vec<Option<bool>> {
            let refused = Score { serial: 1000, ..Score::default() };
            let groups = BTreeMap::from([("http/1".to_owned(), score.clone()), ("http/2".to_owned(), refused)]);
            judge("auto", score, &groups).iter().map(|goal| goal.holds).collect()
        };
        let score = Score { believed: 100, wrong: 1, serial: 100, serial_believed: 90, ..Score::default() };
        assert_eq!(holds(&score), [Some(true); 3]);
        assert_eq!(holds(&Score { wrong: 2, ..score.clone() }), [Some(false), Some(true), Some(true)]);
        assert_eq!(holds(&Score { far_off: 1, ..score.clone() }), [Some(true), Some(false), Some(true)]);
        assert_eq!(holds(&Score { serial_believed: 89, ..score }), [Some(true), Some(true), Some(false)]);
        assert_eq!(holds(&Score::default()), [None; 3]);
    }
}
