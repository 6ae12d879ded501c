//! The accuracy of estimates.

use dwell_app::Exit;
use dwell_sim::report;
use serde::Serialize;

use super::{Bench, Goal, SCHEMA, millis, percent};
use crate::{
    failure::Failure,
    figures::{least, median},
    socket::{
        Outcome, Scenario, Setting, Watch,
        accuracy::Accuracy,
        goals::{self, is_delayed, share, truth},
    },
};

/// The methods that are compared; the goals are for the first.
const METHODS: [(&str, Watch); 3] =
    [("exact", watch("exact", false)), ("paper", watch("paper", false)), ("outside", watch("exact", true))];

const fn watch(estimator: &'static str, outside: bool) -> Watch {
    Watch {
        estimator,
        outside,
        // Samples are at least 2 ms apart, so that each line holds one.
        interval_ms: 1,
    }
}

/// Accuracy of one method in one run.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    scenario: &'a str,
    run: u32,
    estimator: &'a str,
    /// `null` if there was no sample.
    way: Option<&'a str>,
    side: &'a str,
    #[serde(rename = "looks")]
    samples: usize,
    truth_ns: Option<f64>,
    estimate_ns: Option<f64>,
    error_ns: Option<f64>,
    error_p5_ns: Option<f64>,
    error_p95_ns: Option<f64>,
    accuracy: Option<f64>,
    bounded: Option<f64>,
}

/// All runs of a scenario.
struct Row {
    scenario: &'static str,
    sender: RunsByMethod,
    receiver: RunsByMethod,
}

/// The runs of each method. `None`: there was nothing to compare.
type RunsByMethod = Vec<Vec<Option<Accuracy>>>;

pub(super) fn run(bench: &Bench<'_>, scenarios: &[Scenario]) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for scenario in scenarios {
        let mut row = Row {
            scenario: scenario.name,
            sender: vec![Vec::new(); METHODS.len()],
            receiver: vec![Vec::new(); METHODS.len()],
        };
        for run in 1..=bench.args.runs {
            for (method, (name, watch)) in METHODS.into_iter().enumerate() {
                let label = format!("{name}-{run}");
                let outcome = bench.run(scenario, (Setting::Plain, watch), &label)?;
                row.sender[method].push(outcome.sender_accuracy());
                row.receiver[method].push(outcome.receiver_accuracy());
                print(bench, scenario.name, run, (name, watch), &outcome)?;
            }
        }
        rows.push(row);
    }
    bench.say(&table(&rows))?;
    bench.judge(&rows.iter().flat_map(Row::goals).collect::<Vec<Goal>>())
}

fn print(
    bench: &Bench<'_>,
    scenario: &str,
    run: u32,
    (name, watch): (&str, Watch),
    outcome: &Outcome,
) -> Result<(), Failure> {
    let sides = [
        ("sender", &outcome.sender, outcome.sender_accuracy()),
        ("receiver", &outcome.receiver, outcome.receiver_accuracy()),
    ];
    for (side, samples, accuracy) in sides {
        let way = samples.last().map(|sample| sample.way.as_str());
        let object = Object {
            kind: "lab.accuracy",
            schema: SCHEMA,
            scenario,
            run,
            estimator: samples.last().map_or(watch.estimator, |sample| sample.estimator.as_str()),
            way,
            side,
            samples: accuracy.map_or(0, |accuracy| accuracy.samples),
            truth_ns: accuracy.map(|accuracy| accuracy.truth_ns),
            estimate_ns: accuracy.map(|accuracy| accuracy.estimate_ns),
            error_ns: accuracy.map(|accuracy| accuracy.error_ns),
            error_p5_ns: accuracy.map(|accuracy| accuracy.p5_ns),
            error_p95_ns: accuracy.map(|accuracy| accuracy.p95_ns),
            accuracy: accuracy.map(|accuracy| accuracy.share()),
            bounded: accuracy.and_then(|accuracy| accuracy.bounded),
        };
        bench.print(&object, || line(scenario, name, &object))?;
    }
    Ok(())
}

fn line(scenario: &str, name: &str, object: &Object<'_>) -> String {
    let bounds =
        object.bounded.map_or_else(String::new, |share| format!("; bounds hold in {} %", percent(Some(share))));
    format!(
        "{scenario} {side}: {name} ({way}): {accuracy} % in {samples} samples; truth {truth} ms, estimate {estimate} ms, \
         error {error} ms, from {p5} (p5) to {p95} ms (p95){bounds}",
        side = object.side,
        way = object.way.unwrap_or("no sample"),
        accuracy = percent(object.accuracy),
        samples = object.samples,
        truth = millis(object.truth_ns),
        estimate = millis(object.estimate_ns),
        error = millis(object.error_ns),
        p5 = signed(object.error_p5_ns),
        p95 = signed(object.error_p95_ns),
    )
}

fn signed(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:+.1}", ns / 1e6))
}

fn table(rows: &[Row]) -> String {
    let sides: [fn(&Row) -> &RunsByMethod; 2] = [|row| &row.sender, |row| &row.receiver];
    let mut heading = vec!["scenario"];
    for side in ["sender ms", "receiver ms"] {
        heading.push(side);
        heading.extend(METHODS.map(|(name, _)| name));
    }
    let mut lines = Vec::new();
    for row in rows {
        let mut line = vec![row.scenario.to_owned()];
        for side in sides {
            line.push(millis(truth(&side(row)[0])));
            line.extend(side(row).iter().map(|runs| percent(share(runs).filter(|_| is_delayed(runs)))));
        }
        lines.push(line);
    }
    type Pick = fn(&[f64]) -> f64;
    let picks: [(&str, Pick); 2] = [("median", median), ("least", least)];
    for (name, pick) in picks {
        let mut line = vec![name.to_owned()];
        for side in sides {
            line.push(String::new());
            line.extend((0..METHODS.len()).map(|method| {
                let delayed = rows.iter().filter(|row| is_delayed(&side(row)[method]));
                let shares: Vec<f64> = delayed.filter_map(|row| share(&side(row)[method])).collect();
                percent((!shares.is_empty()).then(|| pick(&shares)))
            }));
        }
        lines.push(line);
    }
    format!("\naccuracy in %, where bytes wait 1 ms on average or longer\n{}", report::table(&heading, &lines))
}

impl Row {
    fn goals(&self) -> Vec<Goal> {
        let sides = [("sender", &self.sender[0]), ("receiver", &self.receiver[0])];
        sides.into_iter().filter_map(|(side, runs)| goals::accuracy(self.scenario, side, runs)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(truth_ns: f64, error_ns: f64) -> Option<Accuracy> {
        Some(Accuracy { samples: 9, truth_ns, estimate_ns: truth_ns, error_ns, p5_ns: 0.0, p95_ns: 0.0, bounded: None })
    }

    fn row(scenario: &'static str, sender: Option<Accuracy>, receiver: Option<Accuracy>) -> Row {
        Row { scenario, sender: vec![vec![sender]; METHODS.len()], receiver: vec![vec![receiver]; METHODS.len()] }
    }

    #[test]
    fn a_delay_too_short_to_matter_has_no_accuracy_and_no_goal() {
        let rows = [
            row("near", run(100e6, 2e6), run(0.9e6, 0.5e6)),
            row("far", run(100e6, 6e6), run(50e6, 1e6)),
            row("unseen", None, run(0.1e6, 0.0)),
        ];
        let holds = |row: &Row| row.goals().iter().map(|goal| goal.holds).collect::<Vec<_>>();
        assert_eq!(holds(&rows[0]), [Some(true)]);
        assert_eq!(holds(&rows[1]), [Some(false), Some(true)]);
        assert_eq!(holds(&rows[2]), [None]);
        let table = table(&rows);
        let words = |name: &str| -> Vec<&str> {
            let line = table.lines().find(|line| line.starts_with(name));
            line.unwrap().split_whitespace().skip(1).collect()
        };
        assert_eq!(words("near"), ["100", "98.0", "98.0", "98.0", "0.90", "-", "-", "-"]);
        assert_eq!(words("unseen")[..4], ["-"; 4]);
        assert_eq!(words("median"), ["98.0", "98.0", "98.0", "98.0", "98.0", "98.0"]);
        assert_eq!(words("least")[..3], ["94.0"; 3]);
    }
}
