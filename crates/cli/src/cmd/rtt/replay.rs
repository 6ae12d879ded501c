//! `dwell rtt` from a capture.

use std::{cell::RefCell, path::Path, rc::Rc};

use anyhow::anyhow;
use dwell_engine::{
    measure::Event,
    observe::Observation,
    replay::Intervals,
    rtt::{Aggregate, Config, Counter, Counters, Groups, Tracker},
    units::nanos,
};
use dwell_records::{SinkError, Source};

use super::{Args, annotate, report::Report};
use crate::{
    exit::{Exit, Failure},
    source::{Capture, NoInput, Observer, ReplayOutput, Wanted, cost, interrupted},
};

const WANTED: Wanted = Wanted { protocols: "TCP, QUIC, DNS or ICMP echo", both_directions: true };

pub fn run(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let stop = args.write.listen(None)?;
    let config = args.config(0)?;
    let aggregate = args.aggregation()?;
    let source = Source { prefixes: aggregate.prefixes.clone(), ..Source::default() };
    let names = args.names.of_capture(args.shows_flows(), &args.write, args.format.name())?;
    let output = Rc::new(RefCell::new(ReplayOutput::new(Report::new(args, source, names.clone())?)));
    let copy =
        args.annotate.as_deref().map(|copy| annotate::open(copy, path, args.write.write.as_deref())).transpose()?;
    let (quiet, annotates) = (Rc::clone(&output), copy.is_some());
    let on_idle = move || quiet.borrow_mut().write(Report::flush) || annotates;
    let mut capture = match Capture::open_copying(path, &stop, copy, on_idle) {
        Ok(capture) => capture,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => {
            let nothing = Counters::sum([]);
            output.borrow_mut().report.finish(None, Some(&nothing), cost(&[]))?;
            return Err(interrupted(path, 0));
        }
    };
    capture.set_names(names);
    capture.count_missing(config.filter.clone());
    let source = Rc::clone(&output);
    let mut replay = Replay::new(args, &config, aggregate, Rc::clone(&output));
    let read = capture.read_to(&stop, |change| source.borrow_mut().report.set_source(change), &mut replay);
    output.borrow_mut().report.set_losses(capture.losses(&read, &replay.tracker.counters()));
    let counters = replay.finish()?;
    if read.is_ok() {
        capture.explain_nothing(WANTED, &counters);
    }
    capture.verdict(read, &counters).and_then(|exit| {
        untracked(&counters)?;
        output.borrow_mut().report.exit(exit)
    })
}

/// Fails if much was not measured because its flows found no room.
fn untracked(counters: &Counters) -> Result<(), Failure> {
    /// One packet of so many.
    const MUCH: u64 = 10;
    let (untracked, packets) = (counters.get(Counter::Untracked), counters.get(Counter::Packets));
    if untracked * MUCH <= packets {
        return Ok(());
    }
    let error = anyhow!(
        "{untracked} of {packets} packets are of flows that found no room and were not measured; follow more flows (--max-flows), or \
         fewer of the capture's (--filter)"
    );
    Err(Failure::new(Exit::Incomplete, error))
}

struct Replay {
    tracker: Tracker,
    groups: Option<Groups>,
    intervals: Intervals,
    /// Whether the close of silent flows is reported.
    reports_closes: bool,
    /// Whether the capture is written again with the samples as comments.
    annotates: bool,
    last_ns: Option<u64>,
    output: Rc<RefCell<ReplayOutput<Report>>>,
}

impl Replay {
    fn new(args: &Args, config: &Config, aggregate: Aggregate, output: Rc<RefCell<ReplayOutput<Report>>>) -> Replay {
        let wants_groups = output.borrow().report.wants_groups();
        Replay {
            tracker: Tracker::new(config),
            groups: wants_groups.then(|| Groups::new(aggregate)),
            intervals: Intervals::new(nanos(args.interval)),
            reports_closes: args.flow_events,
            annotates: args.annotate.is_some(),
            last_ns: None,
            output,
        }
    }

    fn finish(&mut self) -> Result<Counters, Failure> {
        let output = &mut *self.output.borrow_mut();
        if let Some(last_ns) = self.last_ns
            && self.reports_closes
        {
            self.tracker.finish(last_ns, |event| {
                output.write(|report| report.event(&event));
            });
        }
        if let (Some(groups), Some(start), Some(last)) = (&mut self.groups, self.intervals.start_ns(), self.last_ns)
            && output.failed.is_none()
        {
            let end_ns = last.max(start);
            output.write(|report| report.interval(end_ns, end_ns - start, &groups.take(end_ns)));
        }
        let counters = self.tracker.counters();
        let counters = self.groups.as_ref().map_or(counters, |groups| groups.count(counters));
        match output.failed.take() {
            None => output.report.finish(self.last_ns, Some(&counters), cost(&[]))?,
            // What became of the copy is to be said although nobody reads the samples.
            Some(SinkError::Closed { .. }) if self.annotates => {}
            Some(error) => {
                // The counters are reported even though records are lost.
                if !matches!(error, SinkError::Closed { .. }) {
                    let _ = output.report.finish(self.last_ns, Some(&counters), cost(&[]));
                }
                return Err(error.into());
            }
        }
        Ok(counters)
    }
}

impl Observer for Replay {
    const AHEAD: u64 = Tracker::AHEAD;

    fn prepare(&mut self, number: u64, packet: &Observation<'_>) {
        self.tracker.prepare(number, packet);
    }

    /// Measures a packet. Returns false if results can no longer be written.
    fn observe(&mut self, number: u64, packet: &Observation<'_>, comments: &mut Vec<String>) -> bool {
        let output = &mut *self.output.borrow_mut();
        if let Some(groups) = &mut self.groups
            && let Some(end_ns) = self.intervals.advance(packet.time_ns)
        {
            let length_ns = self.intervals.length_ns();
            output.write(|report| report.interval(end_ns, length_ns, &groups.take(end_ns)));
            let counters = groups.count(self.tracker.counters());
            output.write(|report| report.status(end_ns, &counters, cost(&[])));
        }
        let (groups, annotates) = (&mut self.groups, self.annotates);
        let mut report_event = |event: Event| {
            if let (Event::Sample(sample), Some(groups)) = (&event, groups.as_mut()) {
                groups.add(sample);
            }
            if let (Event::Sample(sample), true) = (&event, annotates) {
                comments.push(annotate::comment(sample));
            }
            output.write(|report| report.event(&event));
        };
        if self.reports_closes {
            self.tracker.sweep(packet.time_ns, &mut report_event);
        }
        self.tracker.observe_prepared(number, packet, report_event);
        self.last_ns = Some(packet.time_ns);
        // The copy is worth completing though nobody reads the samples.
        output.failed.is_none() || self.annotates
    }
}
