//! How near estimates come.

use dwell_app::Exit;
use serde::Serialize;

use super::{Bench, Goal, SCHEMA, mean, millis, percent};
use crate::{
    failure::Failure,
    socket::{Outcome, Scenario, Setting, Watch, accuracy::Accuracy},
};

/// What stands side by side, the first of which is to be near.
const WAYS: [(&str, Watch); 3] =
    [("exact", watch("exact", false)), ("paper", watch("paper", false)), ("outside", watch("exact", true))];

const fn watch(estimator: &'static str, outside: bool) -> Watch {
    Watch {
        estimator,
        outside,
        // Looks are 2 ms apart at least, so that no line is of two.
        interval_ms: 1,
    }
}

/// What the estimator `exact` shall reach in each scenario.
const NEAR: f64 = 0.95;
/// Below that mean there is no delay to speak of.
const SOME_NS: f64 = 1e6;

/// Accuracy of one way in one run.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    scenario: &'a str,
    run: u32,
    estimator: &'a str,
    /// `null` if there was no look.
    way: Option<&'a str>,
    side: &'a str,
    looks: usize,
    truth_ns: Option<f64>,
    estimate_ns: Option<f64>,
    error_ns: Option<f64>,
    error_p5_ns: Option<f64>,
    error_p95_ns: Option<f64>,
    accuracy: Option<f64>,
}

/// All runs of a scenario.
struct Row {
    scenario: &'static str,
    sender: Ways,
    receiver: Ways,
}

/// Runs by way. `None`: there was nothing to compare.
type Ways = Vec<Vec<Option<Accuracy>>>;

pub(super) fn run(bench: &Bench<'_>, scenarios: &[Scenario]) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for scenario in scenarios {
        let mut row = Row {
            scenario: scenario.name,
            sender: vec![Vec::new(); WAYS.len()],
            receiver: vec![Vec::new(); WAYS.len()],
        };
        for run in 1..=bench.args.runs {
            for (way, (name, watch)) in WAYS.into_iter().enumerate() {
                let label = format!("{name}-{run}");
                let outcome = bench.run(scenario, (Setting::Plain, watch), &label)?;
                row.sender[way].push(outcome.sender_accuracy());
                row.receiver[way].push(outcome.receiver_accuracy());
                tell(bench, scenario.name, run, (name, watch), &outcome)?;
            }
        }
        rows.push(row);
    }
    bench.say(&table(&rows))?;
    let checks: Vec<Goal> = rows.iter().flat_map(Row::checks).collect();
    for check in &checks {
        bench.say(&check.line())?;
    }
    Ok(Goal::exit(&checks))
}

fn tell(
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
    for (side, looks, accuracy) in sides {
        let way = looks.last().map(|look| look.way.as_str());
        let object = Object {
            kind: "lab_accuracy",
            schema: SCHEMA,
            scenario,
            run,
            estimator: looks.last().map_or(watch.estimator, |look| look.estimator.as_str()),
            way,
            side,
            looks: accuracy.map_or(0, |accuracy| accuracy.looks),
            truth_ns: accuracy.map(|accuracy| accuracy.truth_ns),
            estimate_ns: accuracy.map(|accuracy| accuracy.estimate_ns),
            error_ns: accuracy.map(|accuracy| accuracy.error_ns),
            error_p5_ns: accuracy.map(|accuracy| accuracy.p5_ns),
            error_p95_ns: accuracy.map(|accuracy| accuracy.p95_ns),
            accuracy: accuracy.map(|accuracy| accuracy.share()),
        };
        bench.print(&object, || line(scenario, name, &object))?;
    }
    Ok(())
}

fn line(scenario: &str, name: &str, object: &Object<'_>) -> String {
    format!(
        "{scenario} {side}: {name} ({way}): {accuracy} % of {looks} looks; truth {truth} ms, estimate {estimate} ms, \
         error {error} ms, from {p5} (p5) to {p95} ms (p95)",
        side = object.side,
        way = object.way.unwrap_or("no look"),
        accuracy = percent(object.accuracy),
        looks = object.looks,
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
    let heads = |side: &str| {
        let ways = WAYS.map(|(name, _)| format!("{name:>9}"));
        format!("{:>12}{}", format!("{side} ms"), ways.concat())
    };
    let mut text = format!(
        "\naccuracy in %, where bytes wait 1 ms on average or longer\n{:<14}{}{}\n",
        "scenario",
        heads("sender"),
        heads("receiver")
    );
    for row in rows {
        text += &format!("{:<14}", row.scenario);
        for side in [&row.sender, &row.receiver] {
            text += &format!("{:>12}", millis(truth(&side[0])));
            for runs in side {
                let share = share(runs).filter(|_| is_delayed(runs));
                text += &format!("{:>9}", percent(share));
            }
        }
        text.push('\n');
    }
    for (name, pick) in [("median", 0.5), ("least", 0.0)] {
        text += &format!("{name:<14}");
        let sides: [fn(&Row) -> &Ways; 2] = [|row| &row.sender, |row| &row.receiver];
        for side in sides {
            text += &format!("{:>12}", "");
            for way in 0..WAYS.len() {
                let delayed = rows.iter().filter(|row| is_delayed(&side(row)[way]));
                let shares = delayed.filter_map(|row| share(&side(row)[way]));
                text += &format!("{:>9}", percent(rank(shares.collect(), pick)));
            }
        }
        text.push('\n');
    }
    text
}

impl Row {
    fn checks(&self) -> Vec<Goal> {
        let mut checks = Vec::new();
        for (side, runs) in [("sender", &self.sender[0]), ("receiver", &self.receiver[0])] {
            let share = share(runs);
            if share.is_some() && !is_delayed(runs) {
                continue;
            }
            checks.push(Goal {
                holds: share.map(|share| share >= NEAR),
                what: format!(
                    "{}: {side} delay is known to {} %, wanted: {} %",
                    self.scenario,
                    percent(share),
                    NEAR * 100.0
                ),
            });
        }
        checks
    }
}

fn truth(runs: &[Option<Accuracy>]) -> Option<f64> {
    mean(runs.iter().map(|run| run.map(|run| run.truth_ns)))
}

fn share(runs: &[Option<Accuracy>]) -> Option<f64> {
    mean(runs.iter().map(|run| run.map(|run| run.share())))
}

fn is_delayed(runs: &[Option<Accuracy>]) -> bool {
    truth(runs).is_some_and(|truth| truth >= SOME_NS)
}

/// The value with this part of the others below it.
fn rank(mut values: Vec<f64>, part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(truth_ns: f64, error_ns: f64) -> Option<Accuracy> {
        Some(Accuracy { looks: 9, truth_ns, estimate_ns: truth_ns, error_ns, p5_ns: 0.0, p95_ns: 0.0 })
    }

    fn row(scenario: &'static str, sender: Option<Accuracy>, receiver: Option<Accuracy>) -> Row {
        Row { scenario, sender: vec![vec![sender]; WAYS.len()], receiver: vec![vec![receiver]; WAYS.len()] }
    }

    #[test]
    fn what_nothing_waits_for_has_no_accuracy_and_no_check() {
        let rows = [
            row("near", run(100e6, 2e6), run(0.9e6, 0.5e6)),
            row("far", run(100e6, 6e6), run(50e6, 1e6)),
            row("unseen", None, run(0.1e6, 0.0)),
        ];
        let holds = |row: &Row| row.checks().iter().map(|check| check.holds).collect::<Vec<_>>();
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
