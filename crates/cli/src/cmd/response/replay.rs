//! `dwell response` from a capture.

use std::{cell::RefCell, path::Path, rc::Rc};

use dwell_engine::{observe::Observation, response::Tracker, rtt::Counters};
use dwell_records::Source;

use super::{Args, report::Report};
use crate::{
    exit::{Exit, Failure},
    source::{Capture, NoInput, ReplayOutput, Wanted, cost, interrupted},
};

const WANTED: Wanted = Wanted { protocols: "TCP, UDP, ESP or any other that IP carries", both_directions: false };

pub fn run(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let stop = args.write.listen(None)?;
    let watch = args.watch(0, 0)?;
    let names = args.names.of_capture(args.shows_flows(), &args.write, args.format.name())?;
    let output = Rc::new(RefCell::new(ReplayOutput::new(Report::new(args, Source::default(), names.clone(), None)?)));
    let quiet = Rc::clone(&output);
    let mut capture = match Capture::open(path, &stop, move || quiet.borrow_mut().write(Report::flush)) {
        Ok(capture) => capture,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => {
            output.borrow_mut().report.finish(None, Some(&Counters::sum([])), cost(&[]))?;
            return Err(interrupted(path, 0));
        }
    };
    capture.set_names(names);
    capture.count_missing(watch.filter.clone());
    let mut tracker = Tracker::new(&watch);
    let mut last_ns = None;
    let read = capture.read(
        &stop,
        |name| output.borrow_mut().report.set_source(name),
        |packet| observe(&mut tracker, packet, &mut last_ns, &mut output.borrow_mut()),
    );
    let output = &mut *output.borrow_mut();
    tracker.finish(last_ns.unwrap_or_default(), |record| {
        output.write(|report| report.record(&record));
    });
    let counters = tracker.counters();
    output.report.set_losses(capture.losses(&read, &counters));
    match output.failed.take() {
        None => output.report.finish(last_ns, Some(&counters), cost(&[]))?,
        Some(error) => return Err(error.into()),
    }
    if read.is_ok() {
        capture.explain_nothing(WANTED, &counters);
    }
    capture.verdict(read, &counters).and_then(|exit| output.report.exit(exit))
}

/// Measures a packet. Returns false if results can no longer be written.
fn observe(
    tracker: &mut Tracker,
    packet: &Observation<'_>,
    last_ns: &mut Option<u64>,
    output: &mut ReplayOutput<Report>,
) -> bool {
    tracker.sweep(packet.time_ns, |record| {
        output.write(|report| report.record(&record));
    });
    tracker.observe(packet, |record| {
        output.write(|report| report.record(&record));
    });
    *last_ns = Some(packet.time_ns);
    output.failed.is_none()
}
