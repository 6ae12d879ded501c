//! The status of a verb whose results go elsewhere than to standard output: what it lost, and what it cost.

use std::io;

use dwell_records::{Format as _, Jsonl, Record, Source, Status};

use crate::{
    args::Format,
    exit::{Exit, Failure},
    log::log,
    queue::{self, Drain, Lines},
};

/// The number of statuses that wait for a slow reader. Each has the totals so far, so that the latest tells most.
const MAX_STATUSES: usize = 16;

/// Whether it is printed.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct StatusArgs {
    /// Output format: text, on standard error where something was lost; or jsonl, what was lost and what it cost, from time to
    /// time and at the end, on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Prints what was lost and what it cost. A reader that is slow is not waited for, and learns how many statuses it has missed.
#[derive(Debug)]
pub struct Statuses {
    /// `None` if they are not wanted.
    queue: Option<(Lines, Drain)>,
    source: Source,
}

impl Statuses {
    /// Prints if the arguments want it.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn new(args: StatusArgs, source: Source) -> Result<Statuses, Failure> {
        let report = |error: &io::Error| {
            // A reader may end whenever it likes.
            if error.kind() != io::ErrorKind::BrokenPipe {
                log(format_args!("cannot write to standard output: {error}; statuses are lost until that works"));
            }
        };
        let start = || queue::start(io::stdout(), MAX_STATUSES, report, |_, _| None);
        let queue = (args.format == Format::Jsonl).then(start).transpose();
        Ok(Statuses { queue: queue.map_err(|error| Failure::new(Exit::Host, error))?, source })
    }

    /// Prints a status as an object.
    pub fn print(&self, mut status: Status) {
        if let Some((lines, _)) = &self.queue {
            status.counters.push(("statuses_lost".into(), lines.lost()));
            lines.put(line(&status, &self.source));
        }
    }
}

/// Returns a status as a line of JSON.
pub fn line(status: &Status, source: &Source) -> Vec<u8> {
    let mut line = Vec::new();
    Jsonl::default().write(&Record::Status(status), source, &mut line);
    line
}
