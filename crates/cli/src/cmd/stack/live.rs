//! What the layers of this host tell, interval by interval.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use dwell_engine::{
    histogram::Histogram,
    layers::{Config, Counters, Ends, Passage},
};
use dwell_probes::stack::{self, Hook, Options, Probe, Profile, Taken};
use dwell_records::StackRow;
use dwell_socket::clock::monotonic_ns;

use super::{Selection, budget::Keeper};
use crate::{args::nanos, exit::Failure, stop::Stop};

/// Between two looks whether to end.
const POLL: Duration = Duration::from_millis(20);

/// The name of this host.
pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".into(), |name| name.trim().to_owned())
}

/// An interval that is over.
pub struct Interval {
    /// When it ended, by CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// How long it was.
    pub length_ns: u64,
    /// One byte in so many was stamped, at its end.
    pub sample_bytes: u32,
    /// A segment each, in the order of a byte's way.
    pub rows: Vec<StackRow>,
    /// The same of bytes that were sent or came again; meaningless unless they are counted.
    pub again: Vec<StackRow>,
    /// Each flow by itself.
    pub flows: Vec<(Ends, Vec<StackRow>)>,
    /// Since the start of the run.
    pub counters: Counters,
}

/// Hears what is measured.
pub trait Hear {
    /// A byte finished a side.
    fn passage(&mut self, passage: &Passage) -> Result<(), Failure>;
    /// All passages of a look are told.
    fn pause(&mut self) -> Result<(), Failure>;
    /// An interval is over.
    fn interval(&mut self, interval: &Interval) -> Result<(), Failure>;
}

/// Stamps as long as it lives.
pub struct Live {
    probe: Probe,
    sample_bytes: u32,
    keeper: Option<Keeper>,
    /// When the interval began.
    begun: Instant,
}

impl Live {
    /// Begins to stamp in this network namespace.
    pub fn attach(config: Config, max_flows: Option<u32>, selection: &Selection) -> Result<Live, Failure> {
        let sample_bytes = config.sample_bytes;
        let mut probe = Probe::load(&Options {
            config,
            max_flows,
            processes: selection.pid.clone(),
            cgroup: selection.cgroup.clone(),
            profile: Profile::find(&selection.hooks).expect("clap takes names of profiles only"),
        })?;
        probe.attach()?;
        let budget = selection.cpu_budget;
        Ok(Live {
            probe,
            sample_bytes,
            keeper: budget.map(|share| Keeper::new(share, sample_bytes)),
            begun: Instant::now(),
        })
    }

    /// Tells all there is until it is to end.
    pub fn watch(&mut self, interval: Duration, stop: &Stop, hear: &mut impl Hear) -> Result<(), Failure> {
        while !stop.is_asked() {
            let left = interval.saturating_sub(self.begun.elapsed());
            thread::sleep(POLL.min(left));
            self.tell_passages(hear)?;
            if let Some(keeper) = &mut self.keeper {
                keeper.look(&mut self.probe)?;
            }
            if self.begun.elapsed() >= interval {
                self.end_interval(hear)?;
            }
        }
        Ok(())
    }

    fn tell_passages(&mut self, hear: &mut impl Hear) -> Result<(), Failure> {
        let mut told = Ok(());
        self.probe.drain(|passage| {
            if told.is_ok() {
                told = hear.passage(&passage);
            }
        })?;
        told?;
        hear.pause()
    }

    /// Tells of the interval so far, and begins another.
    pub fn end_interval(&mut self, hear: &mut impl Hear) -> Result<(), Failure> {
        self.tell_passages(hear)?;
        let end_ns = monotonic_ns();
        let length = self.begun.elapsed();
        self.begun = Instant::now();
        let taken = self.probe.take()?;
        let flows = self.probe.take_flows()?.into_iter();
        let flows = flows.map(|(ends, taken)| (ends, self.rows(&taken, |taken| &taken.histogram)));
        let flows = flows.collect();
        hear.interval(&Interval {
            end_ns,
            length_ns: nanos(length),
            sample_bytes: self.sample_bytes << self.keeper.as_ref().map_or(0, Keeper::thin),
            rows: self.rows(&taken, |taken| &taken.histogram),
            again: self.rows(&taken, |taken| &taken.again),
            flows,
            counters: self.probe.counters()?,
        })
    }

    fn rows(&self, taken: &[Taken], of: impl Fn(&Taken) -> &Histogram) -> Vec<StackRow> {
        let hooks = self.probe.hooks();
        let missing = stack::missing(hooks);
        let rows = taken.iter().map(|taken| {
            let (from, to) = stack::ends(hooks, taken.segment);
            StackRow {
                segment: taken.segment,
                histogram: of(taken).clone(),
                hook_from: stack::names(hooks, from),
                hook_to: stack::names(hooks, to),
                missing: missing.iter().find(|(segment, _)| *segment == taken.segment).map(|(_, layer)| *layer),
            }
        });
        rows.collect()
    }

    /// The hooks that are used.
    pub fn hooks(&self) -> &[&'static Hook] {
        self.probe.hooks()
    }

    /// What was counted beside the segments, since the start.
    pub fn counters(&mut self) -> Result<Counters, Failure> {
        Ok(self.probe.counters()?)
    }

    /// How much of the time nothing was stamped, to keep to the budget.
    pub fn rests(&self) -> Option<String> {
        self.keeper.as_ref().and_then(Keeper::rests)
    }

    /// Stops stamping. What was measured can still be told.
    pub fn detach(&mut self) {
        self.probe.detach();
    }
}
