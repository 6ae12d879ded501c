//! `dwell rtt` on interfaces, measured in the kernel.

use std::{
    io::{IsTerminal, stderr, stdout},
    mem, thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use dwell_engine::{
    rtt::{Counter, Counters},
    units::nanos,
};
use dwell_probes::{
    Hook,
    rtt::{Options, Probe},
};
use dwell_records::{Source, counted};
use dwell_socket::clock::monotonic_ns;

use super::{Args, Format, metrics::Exporter, report::Report};
use crate::{
    exit::{Exit, Failure},
    log::{log, show},
    source::{Interfaces, clock, cost, fail_if_lost, seed},
    stop::Stop,
};

/// Time between two polls of the ring buffer, for which there is no wake-up. The buffer holds some 43,000 samples, which
/// allows two million per second.
const POLL: Duration = Duration::from_millis(20);
/// Time after which idle flows are ended, or make room for others; an interval that is shorter is that time. Intervals may be
/// much longer, and short flows fill a table that has no more than a quarter of spare slots.
const ROOM: Duration = Duration::from_secs(1);
/// Minimum of --interval: shorter ones would leave no time between the ends of intervals.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Silence after which a person at a terminal is shown that the run goes on.
const SILENCE: Duration = Duration::from_secs(5);

pub fn run(args: &Args) -> Result<Exit, Failure> {
    if args.interval < SHORTEST_INTERVAL {
        return Err(Failure::usage(anyhow!(
            "--interval {:?} is too short: live it is at least {SHORTEST_INTERVAL:?}",
            args.interval
        )));
    }
    let interfaces = Interfaces::find(&args.interface)?;
    if args.ingress() == Hook::Xdp {
        interfaces.require_link_headers("--hook xdp")?;
    }
    let aggregate = args.aggregation()?;
    let source = Source { prefixes: aggregate.prefixes.clone(), ..interfaces.source()? };
    let metrics = args.metrics.start("rtt")?.map(|served| Exporter::new(served, args, source.clone()));
    let report = Report::new(args, source, args.names.live(args.shows_flows(), &args.write, args.format.name())?)?;
    let mut probe = Probe::load(&Options {
        config: args.config(seed())?,
        report: report.wants_samples(),
        aggregate: (report.wants_groups() || metrics.is_some()).then(|| aggregate.clone()),
        ingress: args.ingress(),
        tc: args.tc_kind(),
        replay: false,
    })?;
    let stop = args.write.listen(args.duration)?;
    for interface in interfaces.iter() {
        probe.attach(interface)?;
    }
    let mut live = Live {
        args,
        probe,
        report,
        metrics,
        interfaces,
        started: Instant::now(),
        interval_started: Instant::now(),
        room_made: Instant::now(),
        shown: Instant::now(),
        line_open: false,
    };
    let lost = live.watch(&stop);
    live.finish(lost)
}

struct Live<'a> {
    args: &'a Args,
    probe: Probe,
    report: Report,
    metrics: Option<Exporter>,
    interfaces: Interfaces,
    started: Instant,
    interval_started: Instant,
    /// When idle flows were last looked for.
    room_made: Instant,
    /// When something was last written.
    shown: Instant,
    /// Whether the progress line is on the terminal, without its end.
    line_open: bool,
}

impl Live<'_> {
    /// Watches until the run is to end, or no interface is left.
    fn watch(&mut self, stop: &Stop) -> Result<(), Failure> {
        while !stop.is_asked() {
            let left = self.args.interval.saturating_sub(self.interval_started.elapsed());
            // An interval that ends with the run is its last one: a few milliseconds more would be one of their own.
            let end = stop.left().filter(|end| *end < POLL);
            thread::sleep(end.unwrap_or(POLL.min(left)));
            self.drain()?;
            if self.room_made.elapsed() >= ROOM.min(self.args.interval) {
                self.make_room()?;
            }
            self.report.flush()?;
            if end.is_none() && self.interval_started.elapsed() >= self.args.interval {
                self.end_interval()?;
                self.check_interfaces()?;
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        let (report, mut failed) = (&mut self.report, None);
        let mut any = false;
        self.probe.drain(|event| {
            any = true;
            if failed.is_none() {
                failed = report.event(&event).err();
            }
        })?;
        if any {
            self.shown = Instant::now();
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Ends idle flows; without flow events, only if few slots are free.
    fn make_room(&mut self) -> Result<(), Failure> {
        self.room_made = Instant::now();
        if self.args.flow_events {
            self.probe.sweep()?;
            return self.drain();
        }
        Ok(self.probe.make_room()?)
    }

    fn end_interval(&mut self) -> Result<(), Failure> {
        let length = self.interval_started.elapsed();
        self.interval_started = Instant::now();
        let fresh = clock();
        self.report.set_source(|source| source.clock = fresh);
        let groups = self.report_groups(length)?;
        if groups > 0 {
            self.shown = Instant::now();
        }
        let counters = self.probe.all_counters()?;
        self.report.status(monotonic_ns(), &counters, cost(&self.probe.run_times()))?;
        if let Some(metrics) = &self.metrics {
            metrics.status(&self.probe, &counters);
        }
        self.show_progress(&counters);
        Ok(())
    }

    /// Reports the interval that ends. Returns the number of groups with samples.
    fn report_groups(&mut self, length: Duration) -> Result<usize, Failure> {
        let (groups, freed) = self.probe.take_groups(monotonic_ns())?;
        if let Some(metrics) = &self.metrics {
            metrics.groups(&groups, &freed);
        }
        self.report.interval(monotonic_ns(), nanos(length), &groups)?;
        Ok(groups.len())
    }

    /// Shows progress: a line on a terminal that shows no records, a message after a long silence on one that does.
    fn show_progress(&mut self, counters: &Counters) {
        if !stderr().is_terminal() {
            return;
        }
        let figures = format!(
            "{} s, {}, {}, {} lost",
            self.started.elapsed().as_secs(),
            counted(counters.get(Counter::Packets), "packet", "packets"),
            counted(counters.get(Counter::Samples), "sample", "samples"),
            counters.get(Counter::EventsLost)
        );
        if !stdout().is_terminal() || self.args.format == Format::None || self.args.write.write.is_some() {
            show(format_args!("\r\x1b[K{figures}"));
            self.line_open = true;
        } else if self.shown.elapsed() >= SILENCE {
            log(format_args!("still watching: {figures}"));
            self.shown = Instant::now();
        }
    }

    fn check_interfaces(&mut self) -> Result<(), Failure> {
        let open = &mut self.line_open;
        self.interfaces.poll(|| end_line(open))
    }

    /// Detaches and reports what is left, whatever ended the run.
    fn finish(mut self, ended: Result<(), Failure>) -> Result<Exit, Failure> {
        self.probe.detach();
        end_line(&mut self.line_open);
        let reported = match is_closed(&ended) {
            true => ended,
            false => ended.and(self.report_rest()),
        };
        let counters = self.probe.all_counters();
        if let (Some(metrics), Ok(counters)) = (&self.metrics, &counters) {
            metrics.status(&self.probe, counters);
        }
        let finished = match is_closed(&reported) {
            true => Ok(()),
            false => self.report.finish(Some(monotonic_ns()), counters.as_ref().ok(), cost(&self.probe.run_times())),
        };
        reported?;
        let counters = counters?;
        finished?;
        let lost = counters.get(Counter::EventsLost) + self.probe.unreadable_events();
        fail_if_lost(
            lost,
            "samples or flow events",
            "user space could not keep up; sample less with --rate-limit, or count in the kernel with --aggregate",
        )
        .and_then(|exit| self.report.exit(exit))
    }

    /// Reports everything since the last interval. Every step is tried; returns the first failure.
    fn report_rest(&mut self) -> Result<(), Failure> {
        let drained = self.drain();
        let closed = match self.args.flow_events {
            true => self.probe.finish().map_err(Failure::from),
            false => Ok(()),
        };
        let length = self.interval_started.elapsed();
        drained.and(closed).and(self.drain()).and(self.report_groups(length).map(drop))
    }
}

fn end_line(open: &mut bool) {
    if mem::take(open) {
        show("\n");
    }
}

/// Returns true if the reader of the results closed its end.
fn is_closed(ended: &Result<(), Failure>) -> bool {
    matches!(ended, Err(failure) if failure.exit == Exit::Done)
}
