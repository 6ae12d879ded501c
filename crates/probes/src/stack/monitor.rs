//! Runs the stack programs and reports, interval by interval, how long bytes spend in each segment.

use std::{
    borrow::Cow,
    thread,
    time::{Duration, Instant},
};

use dwell_engine::layers::{ByteTrace, Counters, FlowFigures, Layer, SegmentFigures, SegmentHooks};
use dwell_socket::clock::monotonic_ns;

use super::{Hook, Options, Probe, budget::BudgetControl, hooks::of_segments};
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
    /// The same of bytes that TCP sent or received again, if they are counted separately; otherwise empty
    /// distributions.
    pub again: Vec<SegmentFigures>,
    /// The hooks at the ends of all segments, in the same order.
    pub hooks: Vec<SegmentHooks>,
    /// The figures of each flow, if flows are kept apart.
    pub flows: Vec<FlowFigures>,
    /// What was counted since the start of the run.
    pub counters: Counters,
    /// The number of byte traces that could not be decoded since the start of the run.
    pub unreadable_passages: u64,
    /// The name, the number of runs and the run time in nanoseconds of each program that has run since the start, if the
    /// kernel counts them.
    pub run_times: Vec<(&'static str, u64, u64)>,
}

impl Interval {
    /// Returns what was counted since the start of the run, by the names in outputs and stores.
    pub fn counts(&self) -> Vec<(Cow<'static, str>, u64)> {
        let named = self.counters.named().map(|(name, count)| (Cow::Borrowed(name), count));
        let unreadable = (Cow::Borrowed("traces_unreadable"), self.unreadable_passages);
        let missed = Layer::ALL.map(|layer| {
            let name = format!("missed_{}", layer.name().replace('-', "_"));
            (Cow::Owned(name), self.counters.missed(layer))
        });
        named.chain([unreadable]).chain(missed).collect()
    }
}

/// Receives what a [`Monitor`] measures.
pub trait Observer {
    /// Why an observer fails, which ends the run.
    type Error: From<Error>;

    /// Receives the times of one byte that has passed all layers of its direction.
    fn passage(&mut self, passage: &ByteTrace) -> Result<(), Self::Error>;

    /// Is called when all bytes of a poll have been received: the moment to flush or send them.
    fn end_poll(&mut self) -> Result<(), Self::Error>;

    /// Receives the figures of an interval.
    fn interval(&mut self, interval: &Interval) -> Result<(), Self::Error>;
}

/// Stamps bytes in this network namespace, or in all of the host, until it is dropped.
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

    /// Reports to the observer until `is_stopped`, which the run begins with. The interval that is under way then is not reported,
    /// nor is one that ends then: [`Monitor::end_interval`] does.
    pub fn run<O: Observer>(
        &mut self,
        interval: Duration,
        is_stopped: impl Fn() -> bool,
        observer: &mut O,
    ) -> Result<(), O::Error> {
        if is_stopped() {
            return Ok(());
        }
        self.start = Instant::now();
        while !is_stopped() {
            let left = interval.saturating_sub(self.start.elapsed());
            thread::sleep(POLL.min(left));
            self.poll(observer)?;
            if let Some(budget) = &mut self.budget {
                budget.poll(&mut self.probe)?;
            }
            if self.start.elapsed() >= interval && !is_stopped() {
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
            again: self.probe.take_again()?,
            hooks: of_segments(self.probe.hooks()),
            flows: self.probe.take_flows()?,
            counters: self.probe.counters()?,
            unreadable_passages: self.probe.unreadable_passages(),
            run_times: self.probe.run_times(),
        };
        observer.interval(&interval)
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

#[cfg(test)]
mod tests {
    use dwell_engine::abi::dwell_stack_counters;

    use super::*;

    #[test]
    fn counts_have_names_also_of_missed_layers_and_unreadable_traces() {
        let mut core = dwell_stack_counters { value: [0; 19] };
        core.value.iter_mut().zip(1..).for_each(|(value, number)| *value = number);
        let interval = Interval {
            end_ns: 0,
            length_ns: 0,
            sample_bytes: 64,
            segments: Vec::new(),
            again: Vec::new(),
            hooks: Vec::new(),
            flows: Vec::new(),
            counters: Counters::sum([&core]),
            unreadable_passages: 20,
            run_times: Vec::new(),
        };
        let mut counts: Vec<_> = interval.counts();
        assert_eq!(counts[0], ("tx_unbegun".into(), 1));
        for (name, count) in [("traces_unreadable", 20), ("missed_tx_socket", 10), ("missed_rx_socket", 19)] {
            assert!(counts.contains(&(name.into(), count)), "{counts:?}");
        }
        counts.sort_by_key(|(_, count)| *count);
        assert!(counts.iter().map(|(_, count)| *count).eq(1..=20), "{counts:?}");
    }
}
