//! What experiments print for people and as JSON Lines, and the folders that keep their files.

use std::{fmt::Display, fs, path::Path};

use anyhow::Context;
use clap::ValueEnum;
use dwell_app::Exit;
use dwell_engine::stats;
use dwell_records::SinkError;
use dwell_testbed::Nanos;
use serde::Serialize;

use crate::failure::Failure;

/// The version of what experiments print as JSON Lines. Types are named `lab.` and the kind.
pub const SCHEMA: &str = "dwell-lab/2";

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines and tables for people.
    Text,
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// Prints an object, as JSON or as the text that stands for it.
    pub fn print(self, object: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        let line = match self {
            Format::Text => text(),
            Format::Jsonl => serde_json::to_string(object).map_err(|error| Failure::new(Exit::Incomplete, error))?,
        };
        say(&line).map(drop)
    }

    /// Prints a line for people; nothing in JSON Lines.
    pub fn say(self, text: &str) -> Result<(), Failure> {
        match self {
            Format::Text => say(text).map(drop),
            Format::Jsonl => Ok(()),
        }
    }
}

/// Prints a line to standard output. A closed pipe is not an error.
pub fn say(text: &str) -> Result<Exit, Failure> {
    match dwell_records::print(format!("{text}\n")) {
        Ok(()) | Err(SinkError::Closed { .. }) => Ok(Exit::Done),
        Err(error) => Err(error.into()),
    }
}

/// Makes a temporary folder for a run, and the folder of `--keep-in` if one is wanted.
pub fn folders(prefix: &str, keep: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir().map_err(|error| Failure::new(Exit::Host, error))?;
    if let Some(keep) = keep {
        fs::create_dir_all(keep)
            .with_context(|| format!("make the folder {}", keep.display()))
            .map_err(Failure::usage)?;
    }
    Ok(folder)
}

/// The columns of a table whose rows are printed one by one, as runs end: headings and widths.
///
/// A positive width aligns to the right and a negative one to the left, as in printf; 0 sets no width.
pub struct Columns<const N: usize>(pub [(&'static str, isize); N]);

impl<const N: usize> Columns<N> {
    /// The line of headings.
    pub fn heading(&self) -> String {
        self.row(self.0.each_ref().map(|(heading, _)| heading as &dyn Display))
    }

    /// A row, one cell per column.
    pub fn row(&self, cells: [&dyn Display; N]) -> String {
        let mut line = String::new();
        for ((_, width), cell) in self.0.iter().zip(cells) {
            let (cell, size) = (cell.to_string(), width.unsigned_abs());
            line += &match width {
                ..0 => format!("{cell:<size$}"),
                _ => format!("{cell:>size$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Milliseconds with two to three significant digits; `-` where unknown.
pub fn millis(ns: Option<f64>) -> String {
    let digits = match ns.unwrap_or_default() / 1e6 {
        100.0.. => 0,
        10.0.. => 1,
        0.095.. => 2,
        _ => 3,
    };
    millis_to(digits, ns)
}

/// Milliseconds with a fixed number of digits after the point; `-` where unknown.
pub fn millis_to(digits: usize, ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.digits$}", ns / 1e6))
}

/// Milliseconds with three digits after the point; `-` where unknown.
pub fn ms(time: Option<Nanos>) -> String {
    millis_to(3, time.map(|time| time.0 as f64))
}

/// A share in percent, with one digit after the point; `-` where unknown.
pub fn percent(share: Option<f64>) -> String {
    percent_to(1, share)
}

/// A share in percent, with a fixed number of digits after the point; `-` where unknown.
pub fn percent_to(digits: usize, share: Option<f64>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        |share| {
            let text = format!("{:.digits$}", share * 100.0);
            match text.strip_prefix('-') {
                Some(zero) if zero.bytes().all(|byte| matches!(byte, b'0' | b'.')) => zero.to_owned(),
                _ => text,
            }
        },
    )
}

/// A ratio with two digits after the point; `-` where unknown.
pub fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// The mean of the known values; `None` where there are none.
pub fn mean(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    stats::mean(values.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_say_something() {
        let ms = |ms: f64| millis(Some(ms * 1e6));
        assert_eq!([ms(655.4), ms(23.46), ms(9.116), ms(0.5), ms(0.0124)], ["655", "23.5", "9.12", "0.50", "0.012"]);
        assert_eq!((millis(None), percent(None)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(mean([Some(1.0), None, Some(3.0)]), Some(2.0));
        assert_eq!(mean([None]), None);
        let percents = [0.01234, -0.0001, -0.01].map(|share| percent(Some(share)));
        assert_eq!(percents, ["1.2", "0.0", "-1.0"]);
        assert_eq!(millis_to(2, Some(1_234_567.0)), "1.23");
    }

    #[test]
    fn cells_stand_below_their_headings() {
        let columns = Columns([("name", -6), ("count", 7), ("  note", 0)]);
        assert_eq!(columns.heading(), "name    count  note");
        assert_eq!(columns.row([&"a", &12, &""]), "a          12");
    }
}
