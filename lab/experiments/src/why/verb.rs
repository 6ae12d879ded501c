//! `dwell-lab why`.

use dwell_app::Exit;
use dwell_testbed::signals::Signals;
use serde::Serialize;

use super::{
    Outcome,
    fault::{Fault, Half},
    goals, measure,
};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    print::{Columns, Format, percent_to},
};

/// Whether `dwell why` names the cause of faults that are known
///
/// Each fault is made between network namespaces at three strengths, and healthy targets for comparison. `dwell why` runs
/// there as a user would run it. Prints each verdict, then the confusion matrix: one row per fault, one column per
/// verdict. The exit status is 1 if fewer than 90 % of the faults are named, or a healthy target is called slow.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab why                              the settings that thresholds have not seen
  sudo dwell-lab why --settings tuning            those on which they were chosen
  sudo dwell-lab why --fault loss --fault distance --format jsonl")]
pub struct Why {
    /// Only this fault; may be given several times
    #[arg(long, value_name = "NAME", value_parser = fault)]
    fault: Vec<Fault>,
    /// Which half of the settings
    #[arg(long, value_enum, default_value_t = Half::Reported)]
    settings: Half,
    /// How long dwell looks at each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Capture the same traffic with tcpdump, and ask for the verdict from the capture too
    #[arg(long)]
    captures: bool,
    /// Repeat each setting this many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Output format: text, or jsonl with one object per setting
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The verdict on one setting.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'static str,
    fault: &'static str,
    strength: &'a str,
    verdict: &'a str,
    captured: Option<&'a str>,
    certainty: Option<&'a str>,
    share: Option<f64>,
    named: bool,
}

const SCHEMA: &str = "dwell.lab_why/1";

const COLUMNS: Columns<7> = Columns([
    ("fault", -19),
    ("strength", -38),
    ("verdict", -19),
    ("certainty", -11),
    ("share", 7),
    ("captured", 19),
    ("", 7),
]);

fn fault(name: &str) -> Result<Fault, String> {
    let known = Fault::ALL.map(Fault::name).join(", ");
    Fault::ALL.into_iter().find(|fault| fault.name() == name).ok_or_else(|| format!("write one of {known}"))
}

pub(crate) fn run(args: &Why) -> Result<Exit, Failure> {
    let (programs, signals) = (Programs::find()?, Signals::watch()?);
    let wanted = Fault::ALL.into_iter().filter(|fault| args.fault.is_empty() || args.fault.contains(fault));
    args.format.say(&COLUMNS.heading())?;
    let mut outcomes = Vec::new();
    let settings = wanted.flat_map(|fault| fault.settings(args.settings));
    for setting in settings.flat_map(|setting| std::iter::repeat_n(setting, args.runs as usize)) {
        let outcome = measure(&setting, args.seconds, args.captures, &programs, &signals)?;
        let record = Record::of(&outcome);
        args.format.print(&record, || record.line())?;
        outcomes.push(outcome);
    }
    args.format.say(&format!("\n{}", matrix(&outcomes, |outcome| Some(&outcome.verdict))))?;
    if args.captures {
        args.format
            .say(&format!("\nFrom captures:\n\n{}", matrix(&outcomes, |outcome| outcome.captured.as_deref())))?;
    }
    let goals = goals::judge(&outcomes);
    for goal in &goals {
        args.format.say(&goal.line())?;
    }
    Ok(Goal::exit(&goals))
}

impl Record<'_> {
    fn of(outcome: &Outcome) -> Record<'_> {
        Record {
            kind: "lab_why",
            schema: SCHEMA,
            fault: outcome.fault.name(),
            strength: &outcome.strength,
            verdict: &outcome.verdict,
            captured: outcome.captured.as_deref(),
            certainty: outcome.certainty.as_deref(),
            share: outcome.share,
            named: outcome.verdict == outcome.fault.name(),
        }
    }

    fn line(&self) -> String {
        let share = percent_to(0, self.share);
        let named = if self.named { "" } else { "WRONG" };
        let (certainty, captured) = (self.certainty.unwrap_or("-"), self.captured.unwrap_or("-"));
        COLUMNS.row([&self.fault, &self.strength, &self.verdict, &certainty, &share, &captured, &named])
    }
}

/// The confusion matrix: one row per fault, one column per verdict that was given. Columns have letters, which are
/// explained in the rows and, for verdicts that are not faults, below.
fn matrix<'a>(outcomes: &'a [Outcome], verdict_of: impl Fn(&'a Outcome) -> Option<&'a str>) -> String {
    let mut verdicts: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
    for other in outcomes.iter().filter_map(&verdict_of) {
        if !verdicts.contains(&other) {
            verdicts.push(other);
        }
    }
    let letter = |index: usize| char::from(b'a' + index as u8);
    let mut text = format!("{:22}", "fault \\ verdict");
    (0..verdicts.len()).for_each(|index| text += &format!("{:>3}", letter(index)));
    for (index, verdict) in verdicts.iter().enumerate() {
        text += &format!("\n{} {verdict:20}", letter(index));
        let row: Vec<_> = outcomes.iter().filter(|outcome| outcome.fault.name() == *verdict).collect();
        for column in &verdicts {
            let count = row.iter().filter(|outcome| verdict_of(outcome) == Some(column)).count();
            text += &if count > 0 { format!("{count:>3}") } else { format!("{:>3}", ".") };
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_a_row_per_fault_and_a_column_per_verdict() {
        let outcome = |fault, verdict: &str| Outcome {
            fault,
            strength: String::new(),
            verdict: verdict.to_owned(),
            certainty: None,
            share: None,
            captured: None,
        };
        let outcomes = [outcome(Fault::Loss, "loss"), outcome(Fault::Loss, "not-enough")];
        let text = matrix(&outcomes, |outcome| Some(&outcome.verdict));
        let row = text.lines().find(|line| line.contains("loss")).unwrap();
        assert_eq!(row.split_whitespace().filter(|cell| *cell == "1").count(), 2, "{text}");
        assert!(text.contains(" not-enough"), "{text}");
    }

    #[test]
    fn a_fault_is_named_as_its_verdict() {
        assert_eq!(fault("loss"), Ok(Fault::Loss));
        assert!(fault("gremlins").unwrap_err().contains("slow-service"));
    }
}
