//! All benchmarks that have limits, one after the other, and one table of what they found.

use std::ptr;

use anyhow::Result;
use dwell_app::{Exit, log::log};
use nix::{
    sched::{sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use super::{
    Benchmark, Options,
    limits::{ALL, Finding, Limit},
    print,
    stop::Stop,
};
use crate::{goal::Goal, print::Columns};

/// What became of a benchmark: its findings, or why there are none.
type Outcome = (Benchmark, Result<Vec<Finding>, String>);

/// Runs them. One that fails does not keep the others from running, and Ctrl-C ends them, but not the table.
pub fn run(options: &Options) -> Result<Exit> {
    let stop = Stop::listen()?;
    let this = Pid::from_raw(0);
    let processors = sched_getaffinity(this)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (_, benchmark, _) in &ALL {
        if outcomes.iter().any(|(other, _)| other == benchmark) {
            continue;
        }
        // Some pin this process.
        sched_setaffinity(this, &processors)?;
        println!("\n=== {}", benchmark.name());
        let outcome = benchmark.run(&options.clone().of_all(*benchmark), &stop);
        if stop.check().is_err() {
            log("interrupted: the table has what was measured before");
            break;
        }
        match &outcome {
            Ok((goals, _)) => print(goals),
            Err(error) => log(format!("cost {}: {error:#}", benchmark.name())),
        }
        let outcome = outcome.map(|(_, findings)| findings);
        outcomes.push((*benchmark, outcome.map_err(|error| format!("{error:#}").replace('\n', " "))));
    }
    println!("\n{}", COLUMNS.heading());
    let mut goals = Vec::new();
    for (number, benchmark, limits) in &ALL {
        let outcome = outcomes.iter().find(|(other, _)| other == benchmark).map(|(_, outcome)| outcome);
        for limit in *limits {
            let (holds, line) = row(*number, limit, outcome);
            println!("{line}");
            goals.push(Goal { holds, what: String::new() });
        }
    }
    Ok(Goal::exit(&goals))
}

const COLUMNS: Columns<5> =
    Columns([("goal", 4), ("  what", -61), ("limit", -22), ("figure", -14), ("verdict; the worst case of several", 0)]);

/// Whether a limit is kept in all cases, and its line of the table, which shows the case that is worst.
fn row(number: u8, limit: &'static Limit, outcome: Option<&Result<Vec<Finding>, String>>) -> (Option<bool>, String) {
    let line =
        |figure: &str, verdict: &str| COLUMNS.row([&number, &format!("  {}", limit.what), &limit, &figure, &verdict]);
    let findings: Vec<&Finding> = match outcome {
        None => return (None, line("-", "not decided: interrupted")),
        Some(Err(error)) => return (None, line("-", &format!("not decided: {error}"))),
        Some(Ok(findings)) => findings.iter().filter(|finding| ptr::eq(finding.limit, limit)).collect(),
    };
    let missed = findings.iter().filter(|finding| finding.holds() == Some(false)).count();
    // A case that is not decided is worse than one that is met, and better than one that is missed.
    let badness = |finding: &&&Finding| match finding.holds() {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    };
    let worst = findings.iter().max_by(|a, b| {
        let excess = |finding: &Finding| finding.excess().unwrap_or(f64::NEG_INFINITY);
        badness(a).cmp(&badness(b)).then(excess(a).total_cmp(&excess(b)))
    });
    let Some(worst) = worst else {
        return (None, line("-", "not decided: options left it out"));
    };
    let mut verdict = worst.verdict();
    if missed > 0 && findings.len() > 1 {
        verdict += &format!(" in {missed} of {}", findings.len());
    }
    if findings.len() > 1 {
        verdict += &format!("; {}", worst.case);
    }
    (worst.holds(), line(&worst.shown(), &verdict))
}

#[cfg(test)]
mod tests {
    use super::{super::limits::RESPONSE, *};

    fn row_of(figures: &[(&str, Result<f64, &str>)]) -> (Option<bool>, String) {
        let limit = &RESPONSE[0];
        let findings = figures.iter().map(|(case, figure)| limit.judge(*case, *figure)).collect();
        let (holds, line) = row(3, limit, Some(&Ok(findings)));
        let start = "   3  response: a request, up to 1,000 flows";
        assert!(line.starts_with(start), "{line}");
        (holds, line[start.len()..].split_whitespace().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_row_shows_the_worst_case() {
        let row = row_of(&[("auto", Ok(61.0)), ("pirate", Ok(142.0)), ("none", Ok(8.0))]);
        assert_eq!(row, (Some(false), "at most 60 ns 142.0 missed by 82.0 in 2 of 3; pirate".to_owned()));
        let row = row_of(&[("auto", Ok(59.0)), ("pirate", Err("left out"))]);
        assert_eq!(row, (None, "at most 60 ns - not decided: left out; pirate".to_owned()));
        assert_eq!(row_of(&[("", Ok(60.0))]), (Some(true), "at most 60 ns 60.0 met".to_owned()));
        assert_eq!(row_of(&[]), (None, "at most 60 ns - not decided: options left it out".to_owned()));
    }

    #[test]
    fn a_benchmark_that_failed_says_why_in_the_rows_of_its_limits() {
        let why = |outcome: Option<&Result<_, _>>| row(3, &RESPONSE[0], outcome);
        let (holds, line) = why(Some(&Err("no BPF".to_owned())));
        assert!(holds.is_none() && line.ends_with("not decided: no BPF"), "{line}");
        assert!(why(None).1.ends_with("not decided: interrupted"));
    }

    #[test]
    fn each_goal_follows_the_one_before_and_fits_its_columns() {
        let numbers: Vec<u8> = ALL.iter().map(|(number, ..)| *number).collect();
        assert!(numbers.is_sorted() && (1..=10).all(|number| numbers.contains(&number)));
        let mut limits = ALL.iter().flat_map(|(_, _, limits)| *limits);
        assert!(limits.all(|limit| limit.what.len() < 59 && limit.to_string().len() < 22));
    }
}
