//! Progress of long work, on standard error.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar. Hidden where standard error is not a terminal; it disappears when dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of `length` steps; `unit` names one, in the plural.
    pub fn new(length: u64, unit: &str) -> Bar {
        if !stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(length);
        match ProgressStyle::with_template(&format!("{{bar:40}} {{pos}} of {{len}} {unit}, {{eta}} left")) {
            Ok(style) => Bar(bar.with_style(style)),
            Err(_) => Bar(bar),
        }
    }

    /// Advances by some steps.
    pub fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
