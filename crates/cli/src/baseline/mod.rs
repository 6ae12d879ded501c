//! `--baseline FILE`: whether latencies have shifted since an earlier run. The same for every verb that has it.

mod file;
mod settings;

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
};

use dwell_engine::{
    baseline::{Comparison, Figures, MOST_RECENT, compare},
    histogram::Histogram,
};
use dwell_records::{Record, Shift, ShiftKey, Verb, counted};

use self::file::Recording;
pub use self::{file::BaselineError, settings::Settings};
use crate::{
    exit::{Exit, Failure},
    log::{alarm, log},
};

/// The figures of all keys in one interval.
type Interval = dwell_engine::baseline::Interval<ShiftKey>;

/// The greatest number of keys that a baseline keeps apart. Others are counted.
pub const MOST_KEYS: usize = 1000;
/// The greatest number of keys that a message names.
const MOST_NAMED: usize = 5;

/// Whether to compare with an earlier run.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct BaselineArgs {
    /// Report what takes longer or shorter than in an earlier run: record FILE if there is none, otherwise compare with it
    /// (exit status 1 if anything has shifted)
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Record the baseline even if FILE exists
    #[arg(long, requires = "baseline")]
    baseline_record: bool,
}

impl BaselineArgs {
    /// Returns true if there is to be a baseline.
    pub fn is_given(&self) -> bool {
        self.baseline.is_some()
    }

    /// Reads the file, or prepares to write it; `None` if there is to be no baseline. The settings are those that must be the
    /// same in two runs.
    pub fn open(&self, verb: Verb, interval_ns: u64, settings: Settings) -> Result<Option<Baseline>, Failure> {
        let Some(path) = &self.baseline else {
            return Ok(None);
        };
        let recorded = match self.baseline_record {
            true => None,
            false => file::read(path, &settings)?,
        };
        let content = match recorded {
            Some(baseline) => Content::Compare(Run::new(baseline)),
            None => {
                let recording = Recording::new(path, settings)?;
                log(format_args!("recording a baseline into {}", path.display()));
                Content::Record(recording)
            }
        };
        Ok(Some(Baseline { verb, interval_ns, content }))
    }
}

/// A baseline that is being recorded or compared with.
pub struct Baseline {
    verb: Verb,
    interval_ns: u64,
    content: Content,
}

enum Content {
    /// There was none: this run becomes it.
    Record(Recording),
    /// There is one.
    Compare(Run),
}

/// A run that is being compared with a baseline.
struct Run {
    baseline: Vec<Interval>,
    keys: BTreeSet<ShiftKey>,
    recent: VecDeque<Interval>,
    /// Keys that the baseline does not have, at most [`MOST_KEYS`].
    others: BTreeSet<ShiftKey>,
    last: Vec<Comparison<ShiftKey>>,
}

impl Baseline {
    /// Adds an interval of this run. One that was cut short, or that has no samples, does not count.
    pub fn add<'a>(&mut self, latencies: impl IntoIterator<Item = (ShiftKey, &'a Histogram)>, length_ns: u64) {
        let with_samples = latencies.into_iter().filter(|(_, histogram)| histogram.count() > 0);
        let interval: Interval = with_samples.map(|(key, histogram)| (key, Figures::from(histogram))).collect();
        let is_whole = u128::from(length_ns) * 10 >= u128::from(self.interval_ns) * 9;
        let counts = is_whole && !interval.is_empty();
        match &mut self.content {
            Content::Record(recording) if counts => recording.add(interval),
            Content::Record(_) => {}
            Content::Compare(run) => run.add(counts.then_some(interval)),
        }
    }

    /// Calls `write` with the comparison as it is now, if this run is compared.
    pub fn write<E>(&self, end_ns: u64, write: impl FnOnce(&Record<'_>) -> Result<(), E>) -> Result<(), E> {
        match &self.content {
            Content::Record(_) => Ok(()),
            Content::Compare(run) => {
                let (verb, interval_ns) = (self.verb, self.interval_ns);
                write(&Record::Shift(&Shift { verb, end_ns, interval_ns, compared: &run.last }))
            }
        }
    }

    /// Writes what was recorded, or turns the last comparison into an exit status.
    pub fn finish(self) -> Result<Exit, Failure> {
        match self.content {
            Content::Record(recording) => {
                let path = recording.path().display().to_string();
                let omitted = recording.omitted();
                let count = recording.store(Shift::nouns(self.verb).1)? as u64;
                log(format_args!("recorded a baseline of {} into {path}", counted(count, "interval", "intervals")));
                if omitted > 0 {
                    let figures = counted(omitted, "figure", "figures");
                    log(format_args!("not recorded: {figures} of groups beyond the first {MOST_KEYS}"));
                }
                Ok(Exit::Done)
            }
            Content::Compare(run) => Ok(run.finish(self.verb)),
        }
    }
}

impl Run {
    fn new(baseline: Vec<Interval>) -> Run {
        let keys = baseline.iter().flat_map(|interval| interval.keys().cloned()).collect();
        Run { baseline, keys, recent: VecDeque::new(), others: BTreeSet::new(), last: Vec::new() }
    }

    fn add(&mut self, interval: Option<Interval>) {
        if let Some(mut interval) = interval {
            interval.retain(|key, _| {
                let is_known = self.keys.contains(key);
                if !is_known && self.others.len() < MOST_KEYS {
                    self.others.insert(key.clone());
                }
                is_known
            });
            push_within(&mut self.recent, interval, MOST_RECENT);
        }
        self.last = compare(&self.baseline, self.recent.make_contiguous());
    }

    /// Reports the last comparison, and returns the exit status that follows from it.
    fn finish(self, verb: Verb) -> Exit {
        let ((one, many), samples) = Shift::nouns(verb);
        let named = |shifted| -> Vec<String> {
            self.last.iter().filter(|one| one.shifted == shifted).map(|one| one.key.to_string()).collect()
        };
        let (shifted, unknown) = (named(Some(true)), named(None));
        if !self.others.is_empty() {
            let others = counted(self.others.len() as u64, one, many);
            log(format_args!("not in the baseline, so not compared: {others}"));
        }
        if !unknown.is_empty() || self.last.is_empty() {
            log(format_args!(
                "not compared with the baseline, because too few intervals had {samples} there: {}",
                list(&unknown)
            ));
        }
        if !shifted.is_empty() {
            alarm(format_args!("shifted since the baseline was recorded: {}", list(&shifted)));
            return Exit::False;
        }
        // A host has all its segments in each run. Clients and servers come and go.
        let is_incomplete = match verb {
            Verb::Stack => !unknown.is_empty(),
            _ => unknown.len() == self.last.len(),
        };
        if is_incomplete { Exit::Incomplete } else { Exit::Done }
    }
}

/// Joins names; of many, the first ones and the number of the others.
fn list(names: &[String]) -> String {
    match names.len() {
        0 => "none".to_owned(),
        all if all <= MOST_NAMED => names.join(", "),
        all => format!("{} and {} more", names[..MOST_NAMED].join(", "), all - MOST_NAMED),
    }
}

fn push_within(intervals: &mut VecDeque<Interval>, interval: Interval, most: usize) {
    intervals.push_back(interval);
    if intervals.len() > most {
        intervals.pop_front();
    }
}
