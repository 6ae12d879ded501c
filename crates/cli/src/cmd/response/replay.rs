//! From a capture.

use std::{cell::RefCell, path::Path, rc::Rc};

use dwell_engine::{observe::Observation, response::Tracker, rtt::Counters};
use dwell_records::Source;

use super::{Args, report::Report};
use crate::{
    exit::{Exit, Failure},
    source::{Capture, NoInput, Told, interrupted},
    stop::Stop,
};

pub fn run(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let stop = Stop::listen(None)?;
    let watch = args.watch(0, 0)?;
    let told = Rc::new(RefCell::new(Told::new(Report::new(args, Source::default(), None)?)));
    let quiet = Rc::clone(&told);
    let mut capture = match Capture::open(path, &stop, move || quiet.borrow_mut().tell(Report::flush)) {
        Ok(capture) => capture,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => {
            told.borrow_mut().report.finish(Some(&Counters::sum([])))?;
            return Err(interrupted(path, 0));
        }
    };
    let mut tracker = Tracker::new(&watch);
    let mut last_ns = 0;
    let read = capture.read(
        &stop,
        |name| told.borrow_mut().report.set_source(name),
        |packet| observe(&mut tracker, packet, &mut last_ns, &mut told.borrow_mut()),
    );
    let told = &mut *told.borrow_mut();
    tracker.finish(last_ns, |record| {
        told.tell(|report| report.record(&record));
    });
    let counters = tracker.counters();
    match told.failed.take() {
        None => told.report.finish(Some(&counters))?,
        Some(error) => return Err(error.into()),
    }
    capture.verdict(read, &counters)
}

/// False if results cannot be written any more.
fn observe(tracker: &mut Tracker, packet: &Observation<'_>, last_ns: &mut u64, told: &mut Told<Report>) -> bool {
    tracker.sweep(packet.time_ns, |record| {
        told.tell(|report| report.record(&record));
    });
    tracker.observe(packet, |record| {
        told.tell(|report| report.record(&record));
    });
    *last_ns = packet.time_ns;
    told.failed.is_none()
}
