//! From a capture.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::BTreeSet,
    io::{IsTerminal, stderr},
    path::Path,
    rc::Rc,
};

use anyhow::anyhow;
use dwell_capture::{LinkType, Packet, Reader};
use dwell_engine::{
    measure::Event,
    observe::{Observation, knows_link},
    rtt::{Config, Counter, Counters, Groups, Tracker},
};
use dwell_records::{Interfaces, SinkError, Source, counted};
use indicatif::{ProgressBar, ProgressStyle};

use super::{
    Args,
    input::{Input, NoInput},
    report::Report,
};
use crate::{
    args::nanos,
    exit::{Exit, Failure},
    stop::Stop,
};

/// Files from this size on show their progress.
const PROGRESS_BYTES: u64 = 8 << 20;
/// Interfaces that are called by name; those of later sections by number.
const MAX_NAMES: u32 = 65_536;
/// Packets between two steps of the progress bar.
const STRIDE: u64 = 4096;

pub fn run(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let stop = Stop::listen(None)?;
    let config = args.config(0)?;
    let told = Rc::new(RefCell::new(Told {
        report: Report::new(args, Source::default())?,
        failed: None,
    }));
    let quiet = Rc::clone(&told);
    let mut input = match Input::open(path, &stop, move || quiet.borrow_mut().flush()) {
        Ok(input) => input,
        Err(NoInput::Failed(error)) => return Err(error.into()),
        Err(NoInput::Stopped) => {
            let nothing = Counters::sum([]);
            told.borrow_mut().report.finish(None, Some(nothing))?;
            return Err(interrupted(path, 0));
        }
    };
    let mut replay = Replay::new(args, &config, input.reader.tells_interfaces(), told);
    let read = replay.read(&mut input, &stop);
    let counters = replay.finish()?;
    if input.is_cut() {
        return Err(interrupted(path, input.reader.packets()));
    }
    read?;
    replay.tell_unknown_links(path, &counters)
}

fn interrupted(path: &Path, packets: u64) -> Failure {
    let error = anyhow!(
        "interrupted: the results are of the first {} of {}",
        counted(packets, "packets"),
        name_of(path)
    );
    Failure::new(Exit::Incomplete, error)
}

fn name_of(path: &Path) -> Cow<'_, str> {
    match path.as_os_str() == "-" {
        true => Cow::Borrowed("standard input"),
        false => path.to_string_lossy(),
    }
}

/// Output, which the input flushes when it has to wait.
struct Told {
    report: Report,
    /// The first failure; nothing is written after it.
    failed: Option<SinkError>,
}

impl Told {
    fn note(&mut self, result: Result<(), SinkError>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    /// False if nobody takes it.
    fn flush(&mut self) -> bool {
        let flushed = self.report.flush();
        self.note(flushed);
        self.failed.is_none()
    }

    fn event(&mut self, event: &Event) {
        let written = self.report.event(event);
        self.note(written);
    }
}

struct Replay {
    tracker: Tracker,
    groups: Option<Groups>,
    intervals: Intervals,
    /// Somebody wants to hear of flows that fall silent.
    sweep: bool,
    last_ns: Option<u64>,
    tells_interfaces: bool,
    /// Of the last packet.
    interface: Option<u32>,
    unknown_links: BTreeSet<LinkType>,
    told: Rc<RefCell<Told>>,
}

impl Replay {
    fn new(
        args: &Args,
        config: &Config,
        tells_interfaces: bool,
        told: Rc<RefCell<Told>>,
    ) -> Replay {
        Replay {
            tracker: Tracker::new(config),
            groups: args.aggregate.then(|| Groups::new(args.aggregation())),
            intervals: Intervals::new(nanos(args.interval)),
            sweep: args.flow_events,
            last_ns: None,
            tells_interfaces,
            interface: None,
            unknown_links: BTreeSet::new(),
            told,
        }
    }

    /// Until the capture ends, its results cannot be written, or a signal comes.
    fn read(&mut self, input: &mut Input, stop: &Stop) -> Result<(), dwell_capture::Error> {
        let progress = Progress(progress(&input.reader));
        while let Some(packet) = input.reader.next_packet()? {
            if !knows_link(packet.link.0) {
                self.unknown_links.insert(packet.link);
            }
            self.observe(&packet);
            if self.told.borrow().failed.is_some() {
                break;
            }
            if input.is_file && stop.is_asked() {
                input.cut();
                break;
            }
            if input.reader.packets().is_multiple_of(STRIDE) {
                progress.0.set_position(input.reader.position());
            }
        }
        Ok(())
    }

    fn observe(&mut self, packet: &Packet<'_>) {
        let told = &mut *self.told.borrow_mut();
        if self.interface.replace(packet.interface) != Some(packet.interface) {
            name_interface(&mut told.report, packet, self.tells_interfaces);
        }
        if let Some(groups) = &mut self.groups
            && let Some(end_ns) = self.intervals.end(packet.time_ns)
        {
            let length_ns = self.intervals.length_ns;
            let written = told.report.interval(end_ns, length_ns, &groups.take());
            told.note(written);
            let written = told.report.status(end_ns, self.tracker.counters());
            told.note(written);
        }
        let groups = &mut self.groups;
        let mut tell = |event: Event| {
            if let (Event::Sample(sample), Some(groups)) = (&event, groups.as_mut()) {
                groups.add(sample);
            }
            told.event(&event);
        };
        if self.sweep {
            self.tracker.sweep(packet.time_ns, &mut tell);
        }
        let observation = Observation {
            time_ns: packet.time_ns,
            interface: packet.interface,
            link: packet.link.0,
            data: packet.data,
            wire_len: packet.wire_len,
        };
        self.tracker.observe(&observation, tell);
        self.last_ns = Some(packet.time_ns);
    }

    fn finish(&mut self) -> Result<Counters, Failure> {
        let told = &mut *self.told.borrow_mut();
        if let Some(last_ns) = self.last_ns
            && self.sweep
        {
            self.tracker.finish(last_ns, |event| told.event(&event));
        }
        if let (Some(groups), Some(start), Some(last)) =
            (&mut self.groups, self.intervals.start_ns, self.last_ns)
            && told.failed.is_none()
        {
            let end_ns = last.max(start);
            let written = told.report.interval(end_ns, end_ns - start, &groups.take());
            told.note(written);
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

    fn tell_unknown_links(&self, path: &Path, counters: &Counters) -> Result<Exit, Failure> {
        if self.unknown_links.is_empty() {
            return Ok(Exit::Done);
        }
        let names: Vec<_> = self.unknown_links.iter().map(LinkType::to_string).collect();
        let skipped = counters.get(Counter::UnknownLink);
        let error = anyhow!(
            "{}: {skipped} of {} packets have a link type that is not known: {}; capture on \
             another interface, or convert it with a tool that knows it",
            name_of(path),
            counters.get(Counter::Packets),
            names.join(", ")
        );
        let all = skipped == counters.get(Counter::Packets);
        Err(Failure::new(
            if all { Exit::Usage } else { Exit::Incomplete },
            error,
        ))
    }
}

/// Classic pcap does not tell interfaces apart, unless each packet does.
fn name_interface(report: &mut Report, packet: &Packet<'_>, tells_interfaces: bool) {
    report.set_source(|source| match packet.interface_name {
        Some(name) if packet.interface < MAX_NAMES => {
            source.interfaces.insert(packet.interface, name);
        }
        None if !tells_interfaces && packet.link != LinkType::LINUX_SLL2 => {
            source.interfaces = Interfaces::unknown();
        }
        _ => {}
    });
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
        Intervals {
            length_ns,
            start_ns: None,
        }
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

/// Removed from the terminal whatever ends the reading.
struct Progress(ProgressBar);

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn progress(reader: &Reader) -> ProgressBar {
    match reader.size() {
        Some(size) if size >= PROGRESS_BYTES && stderr().is_terminal() => {
            let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            let bar = ProgressBar::new(size);
            match ProgressStyle::with_template(style) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        }
        _ => ProgressBar::hidden(),
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
