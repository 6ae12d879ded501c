//! The confusion matrix.

use super::{Fault, Outcome, Verdict};
use crate::print::percent_to;

/// Outcomes of `dwell why` that are no cause, in the order of their columns.
const OTHERS: [&str; 2] = ["not-enough", "no-traffic"];

/// Draws one row per fault, one column per verdict, and the share that names the fault: `is_right` of a fault and a verdict.
/// Columns have letters, which are explained in the rows of the faults that are named like them and, for other verdicts that
/// were given, below. Faults that are not causes of their own have no letter.
pub fn matrix(
    outcomes: &[Outcome],
    verdict_of: impl Fn(&Outcome) -> Option<&Verdict>,
    is_right: impl Fn(Fault, &str) -> bool,
) -> String {
    let given = || outcomes.iter().filter_map(|outcome| Some((outcome.fault, verdict_of(outcome)?.cause.as_str())));
    let is_cause = |fault: &Fault| fault.cause() == *fault;
    let mut verdicts: Vec<&str> = Fault::ALL.into_iter().filter(is_cause).map(Fault::name).collect();
    let is_given = |verdict: &str| given().any(|(_, given)| given == verdict);
    for other in OTHERS.into_iter().filter(|other| is_given(other)).chain(given().map(|(_, verdict)| verdict)) {
        if !verdicts.contains(&other) {
            verdicts.push(other);
        }
    }
    let letter = |index: usize| char::from(b'a' + index as u8);
    let mut text = format!("{:22}", "fault \\ verdict");
    (0..verdicts.len()).for_each(|index| text += &format!("{:>3}", letter(index)));
    text += "   right";
    for fault in Fault::ALL {
        let letter = verdicts.iter().position(|verdict| *verdict == fault.name()).map_or(' ', letter);
        text += &format!("\n{letter} {:20}", fault.name());
        let row: Vec<&str> = given().filter(|(of, _)| *of == fault).map(|(_, verdict)| verdict).collect();
        for column in &verdicts {
            let count = row.iter().filter(|verdict| verdict == &column).count();
            text += &if count > 0 { format!("{count:>3}") } else { format!("{:>3}", ".") };
        }
        let right = row.iter().filter(|verdict| is_right(fault, verdict)).count();
        if !row.is_empty() {
            let share = right as f64 / row.len() as f64;
            text += &format!("   {right} of {} ({} %)", row.len(), percent_to(0, Some(share)));
        }
    }
    let is_fault = |verdict: &str| Fault::ALL.iter().any(|fault| fault.name() == verdict);
    for (index, verdict) in verdicts.iter().enumerate().filter(|(_, verdict)| !is_fault(verdict)) {
        text += &format!("\n{} {verdict}", letter(index));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_row_per_fault_a_column_per_verdict_and_the_share_that_is_right() {
        let outcome = |fault, verdict: &str| Outcome {
            fault,
            also: None,
            strength: String::new(),
            is_weakest: false,
            live: Verdict { cause: verdict.to_owned(), ..Verdict::default() },
            captured: None,
        };
        let outcomes =
            [outcome(Fault::Loss, "loss"), outcome(Fault::Loss, "not-enough"), outcome(Fault::RateLimit, "loss")];
        let text = matrix(&outcomes, |outcome| Some(&outcome.live), |fault, verdict| fault.cause().name() == verdict);
        let row = text.lines().find(|line| line.contains("loss")).unwrap();
        assert_eq!(row.split_whitespace().filter(|cell| *cell == "1").count(), 3, "{text}");
        assert!(row.ends_with("1 of 2 (50 %)"), "{text}");
        assert!(text.contains(" not-enough"), "{text}");
        let limited = text.lines().find(|line| line.starts_with("  rate-limit")).unwrap();
        assert!(limited.ends_with("1 of 1 (100 %)"), "{text}");
    }
}
