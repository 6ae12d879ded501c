//! Progress of long work, on standard error.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar. Hidden where standard error is not a terminal; it disappears when dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of `length` steps; `unit` names one, in the plural.
    pub fn new(length: u64, unit: &str) -> Bar {
        Bar::with_style(length, &format!("{{bar:40}} {{pos}} of {{len}} {unit}, {{eta}} left"))
    }

    /// A bar of `length` bytes, which also shows how many pass per second.
    pub fn of_bytes(length: u64) -> Bar {
        Bar::with_style(length, "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
    }

    /// A bar that is never shown.
    pub fn hidden() -> Bar {
        Bar(ProgressBar::hidden())
    }

    fn with_style(length: u64, template: &str) -> Bar {
        if !stderr().is_terminal() {
            return Bar::hidden();
        }
        let bar = ProgressBar::new(length);
        match ProgressStyle::with_template(template) {
            Ok(style) => Bar(bar.with_style(style)),
            Err(_) => Bar(bar),
        }
    }

    /// Advances by some steps.
    pub fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Advances to a step.
    pub fn advance_to(&self, step: u64) {
        self.0.set_position(step);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
