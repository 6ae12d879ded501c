//! From a capture.

use std::{cell::RefCell, path::Path, rc::Rc};

use dwell_engine::{
    measure::Event,
    observe::Observation,
    replay::Intervals,
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
            && let Some(end_ns) = self.intervals.advance(packet.time_ns)
        {
            let length_ns = self.intervals.length_ns();
            told.tell(|report| report.interval(end_ns, length_ns, &groups.take()));
            let counters = groups.count(self.tracker.counters());
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
        if let (Some(groups), Some(start), Some(last)) = (&mut self.groups, self.intervals.start_ns(), self.last_ns)
            && told.failed.is_none()
        {
            let end_ns = last.max(start);
            told.tell(|report| report.interval(end_ns, end_ns - start, &groups.take()));
        }
        let counters = self.tracker.counters();
        let counters = self.groups.as_ref().map_or(counters, |groups| groups.count(counters));
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
