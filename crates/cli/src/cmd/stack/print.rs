//! Prints interval by interval on standard output.

use dwell_engine::{
    histogram::{Figure, Histogram},
    layers::{ByteTrace, Counter, Counters, DevicePoint, Layer, Segment, SegmentFigures},
    units::nanos,
};
use dwell_metrics::Shared;
use dwell_probes::stack::{self, Devices, Hook, Interval, Observer};
use dwell_records::{
    Output, Record, ShiftKey, Source, Stack, StackByte, StackFlow, StackHop, StackPlace, Status, Verb, counted,
};

use super::{Args, name_with_direction};
use crate::{
    baseline::{Baseline, Settings},
    exit::{Exit, Failure},
    fail_if::{self, Latencies},
    log::log,
    names::Namer,
    ranking::{self, RankingArgs},
    served::MetricsOutputs,
    source::{Namespaces, StackMetrics, clock, fail_if_lost, host_name, stack_lost, stack_status},
    stored,
};

/// Figures are incomplete if more than one byte of so many was lost.
const LOST_PART: u64 = 1000;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.ranking.refuse_without("--flows", args.flows)?;
    let has_flows = args.write.format(args.format.name()).is_some() && (args.flows || args.raw);
    let names = args.names.live(has_flows, &args.write, args.format.name())?;
    let source = Source { clock: clock(), host: Some(host_name()), names: names.of_source(), ..Source::default() };
    let config = args.config()?;
    let mut printer = Printer {
        devices: args.devices.then(|| Devices::load(&config)).transpose()?,
        namespaces: Namespaces::of_this_host()?,
        again: args.include_retransmissions,
        output: args.write.output(args.format.name(), source)?.keeping(args.store.open(args.interval, false)?),
        names,
        served: None,
        baseline: None,
        ranking: args.ranking,
        flows_cut: 0,
        measured: 0,
        latencies: Latencies::new(&args.fail_if),
        is_over: false,
    };
    if let Some(served) = args.metrics.start("stack")? {
        let metrics = served.registry.register(StackMetrics::default());
        printer.served = Some((served, metrics));
    }
    let stop = args.write.listen(args.duration)?;
    let max_flows = args.flows.then_some(args.max_flows);
    let mut monitor = args.selection.attach(config, max_flows)?;
    printer.baseline = args.baseline(monitor.hooks())?;
    printer.attach()?;
    let ended = monitor.run(args.interval, || stop.is_asked(), &mut printer);
    monitor.detach();
    printer.detach();
    if matches!(&ended, Err(failure) if failure.exit == Exit::Done) {
        return ended.map(|()| Exit::Done);
    }
    printer.is_over = true;
    let last = monitor.end_interval(&mut printer);
    let counters = monitor.counters()?;
    let mut lost = stack_lost(&counters, monitor.unreadable_passages());
    if !matches!(&last, Err(failure) if failure.exit == Exit::Done) {
        describe(&counters, monitor.unreadable_passages()).into_iter().for_each(log);
        lost += printer.describe_hops()?;
        monitor.pauses().into_iter().for_each(log);
        if let Some(verdict) = &printer.latencies.verdict {
            fail_if::announce(verdict, ("byte", "bytes"));
        }
    }
    ended.and(last)?;
    let exit = printer.baseline.map_or(Ok(Exit::Done), Baseline::finish)?;
    let exit = stored::finish(Some(&mut printer.output), exit);
    // Bytes of connections that were closed before they were read count too, of which any busy host has some.
    let lost = if lost.saturating_mul(LOST_PART) > printer.measured { lost } else { 0 };
    fail_if_lost(lost, "stamped bytes, reads or hops", "see the lines above")?;
    Ok(fail_if::exit(printer.latencies.verdict.as_ref(), exit))
}

impl Args {
    fn baseline(&self, hooks: &[&'static Hook]) -> Result<Option<Baseline>, Failure> {
        // The numbers of processes are not kept: they are others in each run.
        let settings = Settings::new("stack", Some(host_name()))
            .with_time("--interval", self.interval)
            .with("--sample-bytes", self.sample_bytes)
            .with_option("--sample-interval", self.sample_interval.map(|time| format!("{time:?}")))
            .with_option("--port", self.selection.flows.port)
            .with_list("--filter", &self.selection.flows.filter)
            .with_flag("--pid", !self.selection.pid.is_empty())
            .with_option("--cgroup", self.selection.cgroup.as_ref().map(|path| path.display().to_string()))
            .with_flag("--all-namespaces", self.selection.all_namespaces);
        let settings = Layer::ALL.into_iter().fold(settings, |settings, layer| {
            settings.with_option(format!("hook of {}", layer.name()), stack::names(hooks, layer))
        });
        self.baseline.open(Verb::Stack, nanos(self.interval), settings)
    }
}

/// Returns the distributions that are compared with a baseline. What is in no segment is not.
fn compared(segments: &[SegmentFigures]) -> impl Iterator<Item = (ShiftKey, &Histogram)> {
    let explained = segments.iter().filter(|one| one.segment.name() != "unexplained");
    explained.map(|one| (ShiftKey::Segment(one.segment), &one.histogram))
}

struct Printer {
    again: bool,
    devices: Option<Devices>,
    namespaces: Namespaces,
    output: Output,
    names: Namer,
    served: Option<(MetricsOutputs, Shared<StackMetrics>)>,
    baseline: Option<Baseline>,
    ranking: RankingArgs,
    /// Flows that were not reported in all intervals, because of `--top`.
    flows_cut: u64,
    /// Bytes whose time was measured in all intervals.
    measured: u64,
    /// The time of bytes by segment.
    latencies: Latencies<Segment>,
    /// Whether the run is over, so that the next interval is its last one.
    is_over: bool,
}

impl Printer {
    fn attach(&mut self) -> Result<(), Failure> {
        if let Some(devices) = &mut self.devices {
            devices.attach()?;
        }
        Ok(())
    }

    fn detach(&mut self) {
        if let Some(devices) = &mut self.devices {
            devices.detach();
        }
    }

    fn take_hops(&mut self) -> Result<Vec<StackHop>, Failure> {
        let Some(devices) = &mut self.devices else {
            return Ok(Vec::new());
        };
        let mut place = |devices: &mut Devices, place: DevicePoint| -> Result<StackPlace, Failure> {
            let name = devices.name(place)?;
            Ok(StackPlace {
                device: name.unwrap_or_else(|| format!("device {}", place.device)),
                namespace: self.namespaces.name(place.namespace).map(str::to_owned),
                point: place.point.name(),
            })
        };
        let hops = devices.take()?.into_iter().map(|time| {
            Ok(StackHop {
                origin: place(devices, time.hop.origin)?,
                from: place(devices, time.hop.from)?,
                to: place(devices, time.hop.to)?,
                histogram: time.histogram,
            })
        });
        hops.collect()
    }

    /// Reports the hops that the table has no room for, and returns how many they are.
    fn describe_hops(&mut self) -> Result<u64, Failure> {
        let Some(devices) = &mut self.devices else {
            return Ok(0);
        };
        let dropped = devices.dropped_hops()?;
        if dropped > 0 {
            let hops = counted(dropped, "hop", "hops");
            log(format_args!(
                "{hops} between devices not reported: there are more pairs of devices than the table holds"
            ));
        }
        Ok(dropped)
    }
}

impl Observer for Printer {
    type Error = Failure;

    fn passage(&mut self, passage: &ByteTrace) -> Result<(), Failure> {
        let byte = StackByte { trace: passage, namespace: self.namespaces.name(passage.namespace) };
        Ok(self.output.write(&Record::ByteTrace(&byte))?)
    }

    fn end_poll(&mut self) -> Result<(), Failure> {
        Ok(self.output.flush()?)
    }

    fn interval(&mut self, interval: &Interval) -> Result<(), Failure> {
        self.output.source_mut().clock = clock();
        self.namespaces.forget();
        let hops = self.take_hops()?;
        let mut flows: Vec<_> = interval.flows.iter().collect();
        let flows_cut = ranking::cut(&mut flows, &self.ranking, |flow, figure| of_totals(&flow.segments, figure));
        self.flows_cut += flows_cut as u64;
        let flows = flows.into_iter().map(|flow| StackFlow {
            ends: flow.ends,
            namespace: self.namespaces.name(flow.namespace).map(|name| name.to_owned().into()),
            segments: &flow.segments,
        });
        let flows: Vec<_> = flows.collect();
        self.output.write(&Record::Stack(&Stack {
            end_ns: interval.end_ns,
            length_ns: interval.length_ns,
            sample_bytes: interval.sample_bytes,
            segments: &interval.segments,
            again: if self.again { &interval.again } else { &[] },
            flows: &flows,
            flows_cut,
            hooks: &interval.hooks,
            hops: &hops,
        }))?;
        if let Some((_, metrics)) = &self.served {
            let segments = interval.segments.iter().map(|figures| (figures.segment, &figures.histogram));
            metrics.lock().interval(segments, &interval.counts(), &interval.run_times);
        }
        let totals = interval.segments.iter().filter(|one| one.segment.name() == "total");
        self.measured += totals.map(|one| one.histogram.count()).sum::<u64>();
        for one in &interval.segments {
            self.latencies.add(one.segment, |histogram| histogram.merge(&one.histogram));
        }
        let verdict = if self.is_over { self.latencies.judge(segments).cloned() } else { None };
        let mut status = Status { verdict, ..stack_status(Verb::Stack, interval, self.is_over) };
        if self.flows_cut > 0 {
            status.counters.push(("flows_cut".into(), self.flows_cut));
        }
        self.names.count(&mut status.counters);
        self.output.count_kept(&mut status.counters);
        self.output.write(&Record::Status(&status))?;
        if let Some(baseline) = &mut self.baseline {
            baseline.add(compared(&interval.segments), interval.length_ns);
            baseline.write(interval.end_ns, |record| self.output.write(record))?;
        }
        Ok(self.output.flush()?)
    }
}

/// Returns a figure of a flow's total, of the direction in which it is the larger one.
fn of_totals(segments: &[SegmentFigures], figure: Figure) -> Option<u64> {
    let totals = segments.iter().filter(|one| one.segment == one.segment.total());
    totals.map(|one| figure.of(&one.histogram)).max().flatten()
}

/// Returns the segments that a name in a condition stands for, and without a name the totals, each by itself.
fn segments(name: Option<&str>) -> Vec<(Option<String>, Vec<Segment>)> {
    let name = name.unwrap_or("total");
    let is_meant = |segment: &Segment| segment.name() == name || name_with_direction(*segment) == name;
    let meant = Segment::ALL.into_iter().filter(is_meant);
    meant.map(|segment| (Some(name_with_direction(segment)), vec![segment])).collect()
}

/// Describes the bytes that are in no segment: one line per reason.
fn describe(counters: &Counters, unreadable_passages: u64) -> Vec<String> {
    // Bytes that lose their slot to others reach the driver without a first stamp.
    let unbegun = counters.get(Counter::TxUnbegun).saturating_sub(counters.get(Counter::TxDisplaced));
    let reasons = [
        (
            unbegun,
            "sent without a first stamp, left out: they were written before the run began, or by way of Multipath TCP",
        ),
        (
            counters.get(Counter::RxUnbegun),
            "read without their first stamps, left out: they arrived before the run began; where addresses are \
             translated (NAT), that is the case for all bytes",
        ),
        (
            counters.get(Counter::TxAgain),
            "retransmitted before reaching the driver, left out (--include-retransmissions reports them \
             separately)",
        ),
        (
            counters.get(Counter::RxAgain),
            "received again, as this host had dropped the first copy, left out (--include-retransmissions reports them \
             separately)",
        ),
        (
            counters.get(Counter::TxDisplaced),
            "whose slot others took before they reached the driver, left out: set a larger --sample-bytes",
        ),
        (
            counters.get(Counter::RxDisplaced),
            "whose slot others took before they were read, left out: set a larger --sample-bytes",
        ),
        (
            counters.get(Counter::TracesLost),
            "not reported individually, because there were too many: set a larger --sample-bytes",
        ),
        (
            unreadable_passages,
            "not reported individually, because they could not be decoded: dwell and its programs differ",
        ),
        (
            counters.get(Counter::FlowsOmitted),
            "that belong to no flow here, because there are more flows than --max-flows",
        ),
    ];
    let reasons = reasons.map(|(bytes, what)| (bytes, what.to_owned()));
    let missed = Layer::ALL.map(|layer| {
        let what = format!("without a stamp at {}, left out of the segments that start or end there", layer.name());
        (counters.missed(layer), what)
    });
    let mut lines: Vec<_> = reasons
        .into_iter()
        .chain(missed)
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", counted(bytes, "byte", "bytes")))
        .collect();
    if counters.get(Counter::RxUnwalked) > 0 {
        lines.push(format!(
            "{} more was read at once than is examined, and the rest left out: set a larger --sample-bytes",
            counted(counters.get(Counter::RxUnwalked), "time", "times")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use dwell_engine::abi::{DWELL_STACK_COUNTERS, dwell_stack_counters};

    use super::*;

    #[test]
    fn bytes_that_lost_their_slot_were_not_written_before_the_run() {
        for (unbegun, said) in [(7, 1), (9, 2)] {
            let mut core = dwell_stack_counters { value: [0; DWELL_STACK_COUNTERS as usize] };
            core.value[Counter::TxUnbegun as usize] = unbegun;
            core.value[Counter::TxDisplaced as usize] = 7;
            let lines = describe(&Counters::sum([&core]), 0);
            assert_eq!(lines.len(), said, "{lines:?}");
            assert_eq!(lines[0].starts_with("2 bytes sent without a first stamp"), said == 2, "{lines:?}");
        }
    }
}
