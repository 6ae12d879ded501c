//! What the zoo prints: a row per behaviour and estimator, totals, and how reliable the confidence is.

use serde::Serialize;

use super::score::{BINS, Bin, Score};
use crate::{
    failure::Failure,
    print::{Columns, Format, SCHEMA, percent},
};

const SCORES: Columns<10> = Columns([
    ("behaviour", -51),
    ("estimator", -10),
    ("epochs", 7),
    ("believed", 9),
    ("one by one", 12),
    (">20 %", 7),
    (">2x", 5),
    ("median %", 10),
    ("p90 %", 8),
    ("  refused", 0),
]);

const RELIABILITY: Columns<5> =
    Columns([("confidence", -12), ("estimator", -10), ("estimates", 10), ("within 10 %", 13), ("within 20 %", 13)]);

/// The line of headings of the scores.
pub(super) fn heading() -> String {
    SCORES.heading()
}

/// What a row of scores is about.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Subject<'a> {
    /// A behaviour, by its name.
    Behaviour(&'a str),
    /// All behaviours of a group.
    Group(&'a str),
    /// All behaviours.
    All,
}

/// Prints a row of scores.
pub(super) fn print_score(format: Format, subject: Subject<'_>, estimator: &str, score: &Score) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        schema: &'static str,
        of: Subject<'a>,
        estimator: &'a str,
        #[serde(flatten)]
        score: &'a Score,
        median_error: Option<f64>,
        p90_error: Option<f64>,
    }
    let [median_error, p90_error] = [0.5, 0.9].map(|share| score.error(share));
    let line = Line { r#type: "lab.zoo", schema: SCHEMA, of: subject, estimator, score, median_error, p90_error };
    let name = match subject {
        Subject::Behaviour(name) => name.to_owned(),
        Subject::Group(name) => format!("all of {name}"),
        Subject::All => "all".to_owned(),
    };
    let reasons: Vec<String> = score.reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    format.print(&line, || {
        SCORES.row([
            &name,
            &estimator,
            &score.epochs,
            &score.believed,
            &format!("{}/{}", score.serial_believed, score.serial),
            &score.wrong,
            &score.far_off,
            &percent(median_error),
            &percent(p90_error),
            &format!("  {}", reasons.join(", ")),
        ])
    })
}

/// Prints how many estimates of each confidence are near the truth.
pub(super) fn print_reliability(format: Format, estimator: &str, score: &Score) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        schema: &'static str,
        estimator: &'a str,
        confidence_from: f64,
        #[serde(flatten)]
        bin: Bin,
    }
    format.say(&format!("\n{}", RELIABILITY.heading()))?;
    for (confidence_from, bin) in BINS.into_iter().zip(score.bins) {
        let line = Line { r#type: "lab.zoo-reliability", schema: SCHEMA, estimator, confidence_from, bin };
        let label = if confidence_from > 0.0 { format!("{confidence_from} or more") } else { "less".to_owned() };
        let share = |near: usize| percent((bin.estimates > 0).then(|| near as f64 / bin.estimates as f64));
        format.print(&line, || {
            let [within_10, within_20] = [bin.within_10, bin.within_20].map(share);
            RELIABILITY.row([&label, &estimator, &bin.estimates, &within_10, &within_20])
        })?;
    }
    Ok(())
}

/// Prints why a behaviour has no scores.
pub(super) fn print_absence(format: Format, behaviour: &str, is_skipped: bool, reason: &str) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        schema: &'static str,
        behaviour: &'a str,
        reason: &'a str,
    }
    let (kind, word) = match is_skipped {
        true => ("lab.zoo-skip", "skipped"),
        false => ("lab.zoo-failure", "FAILED"),
    };
    let line = Line { r#type: kind, schema: SCHEMA, behaviour, reason };
    format.print(&line, || format!("{behaviour:<51}{word}: {reason}"))
}
