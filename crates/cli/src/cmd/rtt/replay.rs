//! From a capture.

use std::{cell::RefCell, path::Path, rc::Rc};

use dwell_engine::{
    measure::Event,
    observe::Observation,
    rtt::{Config, Counters, Groups, Tracker},
};
use dwell_records::{SinkError, Source};

use super::{Args, report::Report};
use crate::{
    args::nanos,
    exit::{Exit, Failure},
    source::{Capture, NoInput, Told, interrupted},
    stop::Stop,
};

pub fn run(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let stop = Stop::listen(None)?;
    let config = args.config(0)?;
    let told = Rc::new(RefCell::new(Told::new(Report::new(args, Source::default())?)));
    let quiet = Rc::clone(&told);
    let mut capture = match Capture::open(path, &stop, move || quiet.borrow_mut().tell(Report::flush)) {
        Ok(capture) => capture,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => {
            let nothing = Counters::sum([]);
            told.borrow_mut().report.finish(None, Some(nothing))?;
            return Err(interrupted(path, 0));
        }
    };
    let names = Rc::clone(&told);
    let mut replay = Replay::new(args, &config, told);
    let read = capture.read(&stop, |name| names.borrow_mut().report.set_source(name), |packet| replay.observe(packet));
    let counters = replay.finish()?;
    capture.verdict(read, &counters)
}

struct Replay {
    tracker: Tracker,
    groups: Option<Groups>,
    intervals: Intervals,
    /// Somebody wants to hear of flows that fall silent.
    sweep: bool,
    last_ns: Option<u64>,
    told: Rc<RefCell<Told<Report>>>,
}

impl Replay {
    fn new(args: &Args, config: &Config, told: Rc<RefCell<Told<Report>>>) -> Replay {
        Replay {
            tracker: Tracker::new(config),
            groups: args.aggregate.then(|| Groups::new(args.aggregation())),
            intervals: Intervals::new(nanos(args.interval)),
            sweep: args.flow_events,
            last_ns: None,
            told,
        }
    }

    /// False if results cannot be written any more.
    fn observe(&mut self, packet: &Observation<'_>) -> bool {
        let told = &mut *self.told.borrow_mut();
        if let Some(groups) = &mut self.groups
            && let Some(end_ns) = self.intervals.end(packet.time_ns)
        {
            let length_ns = self.intervals.length_ns;
            told.tell(|report| report.interval(end_ns, length_ns, &groups.take()));
            let counters = self.tracker.counters();
            told.tell(|report| report.status(end_ns, counters));
        }
        let groups = &mut self.groups;
        let mut tell = |event: Event| {
            if let (Event::Sample(sample), Some(groups)) = (&event, groups.as_mut()) {
                groups.add(sample);
            }
            told.tell(|report| report.event(&event));
        };
        if self.sweep {
            self.tracker.sweep(packet.time_ns, &mut tell);
        }
        self.tracker.observe(packet, tell);
        self.last_ns = Some(packet.time_ns);
        told.failed.is_none()
    }

    fn finish(&mut self) -> Result<Counters, Failure> {
        let told = &mut *self.told.borrow_mut();
        if let Some(last_ns) = self.last_ns
            && self.sweep
        {
            self.tracker.finish(last_ns, |event| {
                told.tell(|report| report.event(&event));
            });
        }
        if let (Some(groups), Some(start), Some(last)) = (&mut self.groups, self.intervals.start_ns, self.last_ns)
            && told.failed.is_none()
        {
            let end_ns = last.max(start);
            told.tell(|report| report.interval(end_ns, end_ns - start, &groups.take()));
        }
        let counters = self.tracker.counters();
        match told.failed.take() {
            None => told.report.finish(self.last_ns, Some(counters))?,
            Some(error) => {
                // What could not be written is lost, but not what was counted.
                if !matches!(error, SinkError::Closed { .. }) {
                    let _ = told.report.finish(self.last_ns, Some(counters));
                }
                return Err(error.into());
            }
        }
        Ok(counters)
    }
}

/// They follow each other from the first packet on, in the capture's own time; one without a
/// packet is passed over. A packet from more than an interval before the present one means that
/// the clock was set back, or that a packet before had a wrong time: intervals run from it on. One
/// that is less late belongs to the present interval, as captures of several queues are not quite
/// in order.
struct Intervals {
    length_ns: u64,
    start_ns: Option<u64>,
}

impl Intervals {
    fn new(length_ns: u64) -> Intervals {
        Intervals { length_ns, start_ns: None }
    }

    /// The end of the present interval, if a packet of this time is past it or far before it. The
    /// packet belongs to the next one.
    fn end(&mut self, now_ns: u64) -> Option<u64> {
        let start = *self.start_ns.get_or_insert(now_ns);
        let past = now_ns.saturating_sub(start) / self.length_ns;
        if past > 0 {
            self.start_ns = Some(start + past * self.length_ns);
        } else if start.saturating_sub(now_ns) > self.length_ns {
            self.start_ns = Some(now_ns);
        } else {
            return None;
        }
        Some(start.saturating_add(self.length_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where packets of these times end an interval of 10.
    fn ends(times: &[u64]) -> Vec<Option<u64>> {
        let mut intervals = Intervals::new(10);
        times.iter().map(|time| intervals.end(*time)).collect()
    }

    #[test]
    fn intervals_run_from_the_first_packet_and_keep_their_grid() {
        let told = ends(&[103, 112, 113, 149, 153]);
        assert_eq!(told, [None, None, Some(113), Some(123), Some(153)]);
    }

    #[test]
    fn a_packet_that_is_a_little_late_ends_nothing() {
        assert_eq!(ends(&[100, 111, 109, 100]), [None, Some(110), None, None]);
    }

    #[test]
    fn a_packet_from_far_ahead_holds_nothing_back() {
        let told = ends(&[100, 5_000, 105, 114, 115]);
        assert_eq!(told, [None, Some(110), Some(5_010), None, Some(115)]);
    }

    #[test]
    fn a_packet_from_long_ago_holds_nothing_back() {
        let told = ends(&[1_000, 0, 1_001, 1_009, 1_010]);
        assert_eq!(told, [None, Some(1_010), Some(10), None, Some(1_010)]);
    }

    #[test]
    fn the_end_of_time_is_no_overflow() {
        assert_eq!(ends(&[5, u64::MAX, 6]), [None, Some(15), Some(u64::MAX)]);
    }
}
