//! Runs the stack programs and reports, interval by interval, how long bytes spend in each segment.

use std::{
    thread,
    time::{Duration, Instant},
};

use dwell_engine::layers::{ByteTrace, Counters, Ends, SegmentFigures};
use dwell_socket::clock::monotonic_ns;

use super::{Hook, Options, Probe, budget::BudgetControl};
use crate::Error;

/// The longest time between two checks whether to stop.
const POLL: Duration = Duration::from_millis(20);

/// The figures of an interval that has ended.
#[derive(Debug, Clone)]
pub struct Interval {
    /// When the interval ended, by CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// The length of the interval.
    pub length_ns: u64,
    /// How many bytes of a connection there were to each stamped one at the end of the interval.
    pub sample_bytes: u32,
    /// The figures of all segments, in the order in which a byte passes them.
    pub segments: Vec<SegmentFigures>,
    /// The figures of each flow, if flows are kept apart.
    pub flows: Vec<(Ends, Vec<SegmentFigures>)>,
    /// What was counted since the start of the run.
    pub counters: Counters,
    /// The number of byte traces that could not be decoded since the start of the run.
    pub unreadable_passages: u64,
}

/// Receives what a [`Monitor`] measures.
pub trait Observer {
    /// Why an observer fails, which ends the run.
    type Error: From<Error>;

    /// Receives the times of one byte that has passed all layers of its direction.
    fn passage(&mut self, passage: &ByteTrace) -> Result<(), Self::Error>;

    /// Is called when all bytes of a poll have been received: the moment to flush or send them.
    fn end_poll(&mut self) -> Result<(), Self::Error>;

    /// Receives the figures of an interval. `hooks` are the ones that stamp.
    fn interval(&mut self, interval: &Interval, hooks: &[&'static Hook]) -> Result<(), Self::Error>;
}

/// Stamps bytes in this network namespace until it is dropped.
pub struct Monitor {
    probe: Probe,
    sample_bytes: u32,
    budget: Option<BudgetControl>,
    /// When the current interval started.
    start: Instant,
}

impl Monitor {
    /// Loads and attaches the programs. With a `cpu_budget`, a part of the time of all processors from 0 to 1, fewer
    /// bytes are stamped when the programs would cost more.
    pub fn attach(options: &Options, cpu_budget: Option<f64>) -> Result<Monitor, Error> {
        let sample_bytes = options.config.sample_bytes;
        let mut probe = Probe::load(options)?;
        probe.attach()?;
        Ok(Monitor {
            probe,
            sample_bytes,
            budget: cpu_budget.map(|share| BudgetControl::new(share, sample_bytes)),
            start: Instant::now(),
        })
    }

    /// Reports to the observer until `is_stopped`. The interval that is under way then is not reported.
    pub fn run<O: Observer>(
        &mut self,
        interval: Duration,
        is_stopped: impl Fn() -> bool,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        while !is_stopped() {
            let left = interval.saturating_sub(self.start.elapsed());
            thread::sleep(POLL.min(left));
            self.poll(observer)?;
            if let Some(budget) = &mut self.budget {
                budget.poll(&mut self.probe)?;
            }
            if self.start.elapsed() >= interval {
                self.end_interval(observer)?;
            }
        }
        Ok(())
    }

    fn poll<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        let mut result = Ok(());
        self.probe.drain(|passage| {
            if result.is_ok() {
                result = observer.passage(&passage);
            }
        })?;
        result?;
        observer.end_poll()
    }

    /// Reports the interval up to now, and starts another.
    pub fn end_interval<O: Observer>(&mut self, observer: &mut O) -> Result<(), O::Error> {
        self.poll(observer)?;
        let end_ns = monotonic_ns();
        let length = self.start.elapsed();
        self.start = Instant::now();
        let thin = self.budget.as_ref().map_or(0, BudgetControl::thin);
        let interval = Interval {
            end_ns,
            length_ns: length.as_nanos() as u64,
            sample_bytes: self.sample_bytes << thin,
            segments: self.probe.take()?,
            flows: self.probe.take_flows()?,
            counters: self.probe.counters()?,
            unreadable_passages: self.probe.unreadable_passages(),
        };
        observer.interval(&interval, self.probe.hooks())
    }

    /// The hooks that stamp.
    pub fn hooks(&self) -> &[&'static Hook] {
        self.probe.hooks()
    }

    /// What was counted since the start of the run.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.probe.counters()
    }

    /// The number of byte traces that could not be decoded since the start of the run.
    pub fn unreadable_passages(&self) -> u64 {
        self.probe.unreadable_passages()
    }

    /// A sentence for people on how much of the time nothing was stamped, if the budget could not be kept otherwise.
    pub fn pauses(&self) -> Option<String> {
        self.budget.as_ref().and_then(BudgetControl::pauses)
    }

    /// Stops stamping. What was measured can still be reported.
    pub fn detach(&mut self) {
        self.probe.detach();
    }
}
