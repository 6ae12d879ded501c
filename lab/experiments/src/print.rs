//! What experiments print, and where they keep files.

use std::{
    fs,
    io::{self, Write, stdout},
    path::Path,
};

use anyhow::Context;
use clap::ValueEnum;
use dwell_app::Exit;
use serde::Serialize;

use crate::failure::Failure;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines and tables for people.
    Text,
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// Prints the object as JSON, or the text.
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
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Incomplete, error)),
        _ => Ok(Exit::Done),
    }
}

/// Makes a temporary folder for a run, and the folder of `--keep` if one is wanted.
pub fn folders(prefix: &str, keep: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir().map_err(|error| Failure::new(Exit::Host, error))?;
    if let Some(keep) = keep {
        fs::create_dir_all(keep)
            .with_context(|| format!("make the folder {}", keep.display()))
            .map_err(Failure::usage)?;
    }
    Ok(folder)
}

/// Milliseconds with two to three significant digits; `-` where unknown.
pub fn millis(ns: Option<f64>) -> String {
    match ns.map(|ns| ns / 1e6) {
        None => "-".to_owned(),
        Some(ms) if ms >= 100.0 => format!("{ms:.0}"),
        Some(ms) if ms >= 10.0 => format!("{ms:.1}"),
        Some(ms) if ms >= 0.095 => format!("{ms:.2}"),
        Some(ms) => format!("{ms:.3}"),
    }
}

/// A share in percent; `-` where unknown.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
}

/// The mean of the known values; `None` where there are none.
pub fn mean(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let known: Vec<f64> = values.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
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
    }
}
