//! From a capture.

use std::{
    collections::BTreeSet,
    io::{IsTerminal, stderr},
    path::Path,
};

use anyhow::anyhow;
use dwell_capture::{LinkType, Packet, Reader};
use dwell_engine::{
    measure::Event,
    observe::{Observation, knows_link},
    rtt::{Counter, Groups, Tracker},
};
use dwell_records::{Interfaces, SinkError, Source};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Args, report::Report};
use crate::{
    args::nanos,
    exit::{Exit, Failure},
    stop::Stop,
};

/// Files from this size on show their progress.
const PROGRESS_BYTES: u64 = 8 << 20;
/// Interfaces that are called by name; those of later sections by number.
const MAX_NAMES: u32 = 65_536;
/// Packets between two looks at signals and progress.
const STRIDE: u64 = 4096;

pub fn run(args: &Args, path: &Path) -> Result<Exit, Failure> {
    let stop = Stop::listen(None)?;
    let mut reader = Reader::open(path)?;
    let report = Report::new(args, Source::default())?;
    let mut replay = Replay {
        tracker: Tracker::new(&args.config(0)?),
        groups: args.aggregate.then(|| Groups::new(args.aggregation())),
        sweep: args.flow_events,
        interval_ns: nanos(args.interval),
        interval_start: None,
        last_ns: None,
        tells_interfaces: reader.tells_interfaces(),
        interface: None,
        report,
        failed: None,
    };
    let progress = progress(&reader);
    let mut unknown_links = BTreeSet::new();
    let result = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                if !knows_link(packet.link.0) {
                    unknown_links.insert(packet.link);
                }
                replay.observe(&packet);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
        if replay.failed.is_some() {
            break Ok(());
        }
        if reader.packets().is_multiple_of(STRIDE) {
            progress.set_position(reader.position());
            if stop.is_asked() {
                break Ok(());
            }
        }
    };
    progress.finish_and_clear();
    let counters = replay.finish()?;
    result?;
    if unknown_links.is_empty() {
        return Ok(Exit::Done);
    }
    let names: Vec<_> = unknown_links.iter().map(LinkType::to_string).collect();
    let skipped = counters.get(Counter::UnknownLink);
    let error = anyhow!(
        "{}: {skipped} of {} packets have a link type that is not known: {}; capture on another \
         interface, or convert it with a tool that knows it",
        path.display(),
        counters.get(Counter::Packets),
        names.join(", ")
    );
    let all = skipped == counters.get(Counter::Packets);
    Err(Failure::new(
        if all { Exit::Usage } else { Exit::Incomplete },
        error,
    ))
}

struct Replay {
    tracker: Tracker,
    groups: Option<Groups>,
    /// Somebody wants to hear of flows that fall silent.
    sweep: bool,
    interval_ns: u64,
    interval_start: Option<u64>,
    last_ns: Option<u64>,
    tells_interfaces: bool,
    /// Of the last packet.
    interface: Option<u32>,
    report: Report,
    failed: Option<SinkError>,
}

impl Replay {
    fn observe(&mut self, packet: &Packet<'_>) {
        if self.interface.replace(packet.interface) != Some(packet.interface) {
            self.name_interface(packet);
        }
        self.end_intervals(packet.time_ns);
        let (report, groups, failed) = (&mut self.report, &mut self.groups, &mut self.failed);
        let mut tell = |event: Event| {
            if let (Event::Sample(sample), Some(groups)) = (&event, groups.as_mut()) {
                groups.add(sample);
            }
            if let Err(error) = report.event(&event) {
                failed.get_or_insert(error);
            }
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

    /// Classic pcap does not tell interfaces apart, unless each packet does.
    fn name_interface(&mut self, packet: &Packet<'_>) {
        self.report
            .set_source(|source| match packet.interface_name {
                Some(name) if packet.interface < MAX_NAMES => {
                    source.interfaces.insert(packet.interface, name);
                }
                None if !self.tells_interfaces && packet.link != LinkType::LINUX_SLL2 => {
                    source.interfaces = Interfaces::unknown();
                }
                _ => {}
            });
    }

    /// Intervals run from the first packet on, in the capture's own time; one
    /// without a packet is passed over.
    fn end_intervals(&mut self, now_ns: u64) {
        let Some(groups) = &mut self.groups else {
            return;
        };
        let start = *self.interval_start.get_or_insert(now_ns);
        let past = now_ns.saturating_sub(start) / self.interval_ns;
        if past > 0 {
            let taken = groups.take();
            if let Err(error) =
                self.report
                    .interval(start + self.interval_ns, self.interval_ns, &taken)
            {
                self.failed.get_or_insert(error);
            }
            self.interval_start = Some(start + past * self.interval_ns);
        }
    }

    fn finish(mut self) -> Result<dwell_engine::rtt::Counters, Failure> {
        let (report, failed) = (&mut self.report, &mut self.failed);
        if let Some(last_ns) = self.last_ns
            && self.sweep
        {
            self.tracker.finish(last_ns, |event| {
                if let Err(error) = report.event(&event) {
                    failed.get_or_insert(error);
                }
            });
        }
        let counters = self.tracker.counters();
        if let Some(error) = self.failed {
            // What could not be written is lost, but not what was counted.
            if !matches!(error, SinkError::Closed { .. }) {
                let _ = self.report.finish(self.last_ns, counters);
            }
            return Err(error.into());
        }
        if let (Some(groups), Some(start), Some(last_ns)) =
            (&mut self.groups, self.interval_start, self.last_ns)
        {
            self.report
                .interval(last_ns, last_ns.saturating_sub(start), &groups.take())?;
        }
        self.report.finish(self.last_ns, counters)?;
        Ok(counters)
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
