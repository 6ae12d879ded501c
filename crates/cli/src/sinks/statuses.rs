//! The status of a verb whose results go elsewhere than to standard output: what it lost, and what it cost.

use dwell_records::{Format as _, Jsonl, Record, SinkError, Source, Status, print};

use crate::{args::Format, tell::tell};

/// Whether it is printed.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct StatusArgs {
    /// Output format: text, on standard error where something was lost; or jsonl, what was lost and what it cost, from time to
    /// time and at the end, on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Prints what was lost and what it cost, until nobody reads it any more. The verb waits for a reader that is slow.
#[derive(Debug)]
pub struct Statuses {
    is_wanted: bool,
    source: Source,
}

impl Statuses {
    /// Prints if the arguments want it.
    pub fn new(args: StatusArgs, source: Source) -> Statuses {
        Statuses { is_wanted: args.format == Format::Jsonl, source }
    }

    /// Prints a status as an object.
    pub fn print(&mut self, status: &Status) {
        if !self.is_wanted {
            return;
        }
        if let Err(error) = print(line(status, &self.source)) {
            self.is_wanted = false;
            if !matches!(error, SinkError::Closed { .. }) {
                tell(format_args!("{error}; what is lost is no longer printed"));
            }
        }
    }
}

/// Returns a status as a line of JSON.
pub fn line(status: &Status, source: &Source) -> Vec<u8> {
    let mut line = Vec::new();
    Jsonl::default().write(&Record::Status(status), source, &mut line);
    line
}
