//! `dwell-lab why`.

use std::path::PathBuf;

use dwell_app::Exit;
use dwell_testbed::signals::Signals;
use serde::Serialize;

use super::{
    Look, Outcome, Verdict,
    fault::{Fault, Series},
    goals,
    matrix::matrix,
    measure, pair,
    setting::Setting,
};
use crate::{
    Programs,
    failure::Failure,
    goal::Goal,
    print::{Columns, Format, SCHEMA, folders, percent_to},
    values::whole_seconds,
};

/// Whether `dwell why` names the cause of faults that are known
///
/// Each fault is made between network namespaces at three strengths, and healthy targets for comparison. `dwell why` runs
/// there as a user would run it. Prints each verdict, then the confusion matrix: one row per fault, one column per
/// verdict, and the share that is right. The exit status is 1 if fewer than 95 % of the faults of the two stronger strengths
/// or 80 % of the weakest are named, if more than 2 % of the healthy targets are called slow, or if of fewer than 80 % of the
/// pairs both faults are the first two causes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo dwell-lab why                              settings that nothing was chosen or fixed on
  sudo dwell-lab why --settings tuning            those on which they were chosen
  sudo dwell-lab why --pairs --runs 3             two faults at the same time, three times each
  sudo dwell-lab why --captures --keep-in out        from captures too, which are kept
  sudo dwell-lab why --fault loss --fault distance --format jsonl")]
pub struct Why {
    /// Faults to make, instead of all; may be given several times
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    fault: Vec<Fault>,
    /// Which series of settings
    #[arg(long, value_enum, default_value_t = Series::Fresh)]
    settings: Series,
    /// How long dwell looks at each
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = whole_seconds)]
    duration: u64,
    /// Two faults at the same time instead of one; with --fault, those pairs of which it is one
    #[arg(long)]
    pairs: bool,
    /// Capture the same traffic with tcpdump, once from before the connections and once from after they began, and ask for
    /// the verdicts from the captures too
    #[arg(long)]
    captures: bool,
    /// Folder to keep the captures in
    #[arg(long, value_name = "FOLDER", requires = "captures")]
    keep_in: Option<PathBuf>,
    /// Runs of each setting
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
    also: Option<&'static str>,
    strength: &'a str,
    /// Whether it is the weakest strength of the fault.
    weakest: bool,
    verdict: &'a str,
    /// All causes that hold, the first one first.
    causes: &'a [String],
    certainty: Option<&'a str>,
    share: Option<f64>,
    named: bool,
    /// From a capture that began before the connections.
    captured: Option<&'a str>,
    /// From one that began after them.
    captured_late: Option<&'a str>,
}

const COLUMNS: Columns<8> = Columns([
    ("fault", -19),
    ("strength", -46),
    ("verdict", -19),
    ("certainty", -11),
    ("share", 7),
    ("captured", 19),
    ("captured late", 19),
    ("", 7),
]);

fn fault(name: &str) -> Result<Fault, String> {
    let known = Fault::ALL.map(Fault::name).join(", ");
    Fault::ALL.into_iter().find(|fault| fault.name() == name).ok_or_else(|| format!("write one of {known}"))
}

pub(crate) fn run(args: &Why) -> Result<Exit, Failure> {
    let (programs, signals) = (Programs::find()?, Signals::watch()?);
    let folder = folders("why", args.keep_in.as_deref())?;
    let folder = args.keep_in.as_deref().unwrap_or(folder.path());
    let look = Look { seconds: args.duration, captures: args.captures.then_some(folder) };
    args.format.say(&COLUMNS.heading())?;
    let mut outcomes = Vec::new();
    for (number, setting) in settings(args).into_iter().enumerate() {
        for run in 0..args.runs {
            let name = format!("{}-{number}-{run}", setting.fault.name());
            let outcome = measure(&setting, &name, &look, &programs, &signals)?;
            let record = Record::of(&outcome);
            args.format.print(&record, || record.line())?;
            outcomes.push(outcome);
        }
    }
    summarize(args, &outcomes)?;
    let goals = goals::judge(&outcomes);
    for goal in &goals {
        args.format.say(&goal.line())?;
    }
    Ok(Goal::exit(&goals))
}

/// The settings that the user wants.
fn settings(args: &Why) -> Vec<Setting> {
    let is_wanted = |fault: Fault| args.fault.is_empty() || args.fault.contains(&fault);
    match args.pairs {
        true => {
            let pairs = pair::settings(args.settings).into_iter();
            pairs.filter(|pair| is_wanted(pair.fault) || pair.also.is_some_and(is_wanted)).collect()
        }
        false => {
            let wanted = Fault::ALL.into_iter().filter(|fault| is_wanted(*fault));
            wanted.flat_map(|fault| fault.settings(args.settings)).collect()
        }
    }
}

/// One of the verdicts on a setting.
type VerdictOf = fn(&Outcome) -> Option<&Verdict>;

/// Prints the matrices, or of pairs how often both were named.
fn summarize(args: &Why, outcomes: &[Outcome]) -> Result<(), Failure> {
    let say = |text: String| args.format.say(&text);
    if !args.pairs {
        say(format!("\n{}", matrix(outcomes, |outcome| Some(&outcome.live), goals::is_right)))?;
    }
    if !args.captures {
        return Ok(());
    }
    let kinds: [(&str, VerdictOf); 2] =
        [("that began before the connections", Outcome::whole), ("that began after them", Outcome::late)];
    for (which, verdict_of) in kinds {
        let verdicts = || outcomes.iter().filter_map(|outcome| Some((outcome, verdict_of(outcome)?)));
        if args.pairs {
            let right = |(outcome, verdict): &(&Outcome, &Verdict)| {
                goals::names_both(outcome, verdict, goals::is_right_of_packets)
            };
            let (both, all) = (verdicts().filter(right).count(), verdicts().count());
            say(format!("From captures {which}: {both} of {all} pairs with both faults first"))?;
            continue;
        }
        let counted = goals::counted(verdicts().map(|(outcome, verdict)| (outcome.fault, verdict)));
        say(format!("\nFrom captures {which}: {counted}\n"))?;
        say(matrix(outcomes, verdict_of, goals::is_right_of_packets))?;
    }
    Ok(())
}

impl Record<'_> {
    fn of(outcome: &Outcome) -> Record<'_> {
        let Verdict { cause, certainty, share, causes, .. } = &outcome.live;
        let captured = outcome.captured.as_ref();
        Record {
            kind: "lab.why",
            schema: SCHEMA,
            fault: outcome.fault.name(),
            also: outcome.also.map(Fault::name),
            strength: &outcome.strength,
            weakest: outcome.is_weakest,
            verdict: cause,
            causes,
            certainty: certainty.as_deref(),
            share: *share,
            named: match outcome.also {
                Some(_) => goals::names_both(outcome, &outcome.live, goals::is_right),
                None => goals::is_right(outcome.fault, cause),
            },
            captured: captured.map(|captured| captured.whole.cause.as_str()),
            captured_late: captured.map(|captured| captured.late.cause.as_str()),
        }
    }

    fn line(&self) -> String {
        let share = percent_to(0, self.share);
        let named = if self.named { "" } else { "  WRONG" };
        let certainty = self.certainty.unwrap_or("-");
        let (captured, late) = (self.captured.unwrap_or("-"), self.captured_late.unwrap_or("-"));
        let Some(also) = self.also else {
            return COLUMNS.row([
                &self.fault,
                &self.strength,
                &self.verdict,
                &certainty,
                &share,
                &captured,
                &late,
                &named,
            ]);
        };
        let causes = self.causes.join(", ");
        format!("{} and {also}, {}: {causes}{named}", self.fault, self.strength)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_as_its_verdict() {
        assert_eq!(fault("loss"), Ok(Fault::Loss));
        assert!(fault("gremlins").unwrap_err().contains("slow-service"));
    }
}
