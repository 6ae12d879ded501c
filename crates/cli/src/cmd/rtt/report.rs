//! The report of `dwell rtt`: records and the summary.

use std::borrow::Cow;

use anyhow::anyhow;
use dwell_engine::{
    measure::{Event, Method},
    rtt::{Counters, Group, GroupKey},
};
use dwell_records::{
    Cost, Interval, Kind, Output, Record, RoundTripKey, ShiftKey, SinkError, Source, Status, Summary, Text, Verb,
};

use super::{Args, Choice};
use crate::{
    baseline::Baseline,
    exit::{Exit, Failure},
    fail_if::{self, Latencies},
    log::log,
    names::Namer,
    source::{CaptureLosses, left_out},
    stored,
};

/// Flows whose distributions the summary keeps apart.
const SUMMARY_FLOWS: usize = 100_000;

/// The output of a run.
pub struct Report {
    output: Option<Output>,
    summary: Option<Summary>,
    /// Round trips by method; `None` is the group of those for which there was no group left.
    latencies: Latencies<Option<Method>>,
    baseline: Option<Baseline>,
    /// The names of the interfaces and prefixes of groups.
    source: Source,
    /// Whether round trips are counted in groups, so that single ones are not needed.
    aggregates: bool,
    /// Whether samples are written one by one.
    writes_samples: bool,
    /// Whether samples are stored, in distributions.
    keeps_samples: bool,
    names: Namer,
    /// What the capture lacks, once it has been read.
    losses: CaptureLosses,
}

impl Report {
    /// Opens the output.
    pub fn new(args: &Args, source: Source, names: Namer) -> Result<Report, Failure> {
        let source = Source { names: names.of_source(), ..source };
        let name = args.format.name();
        let format = args.write.format(name);
        args.ranking.check(args.summary, format.is_some())?;
        if let Some(format) = format {
            let wanted = [
                (args.aggregate, Kind::Interval),
                (args.summary, Kind::Summary),
                (args.flow_events, Kind::Flow),
                (args.baseline.is_given(), Kind::Shift),
            ];
            if wanted.into_iter().any(|(is_wanted, kind)| is_wanted && !(format.writes)(kind)) {
                return Err(Failure::usage(anyhow!(
                    "the format {name} has samples only: leave out --aggregate, --summary, --flow-events and \
                     --baseline, or take --format text or jsonl"
                )));
            }
        }
        let baseline = args.baseline(source.host.clone())?;
        let store = args.store.open(args.interval, args.read.is_some())?;
        let keeps_samples = store.is_some() && !args.aggregate;
        let output = match format {
            Some(format) => Some(Output::new((format.new)(), args.write.open()?, source.clone())),
            None => store.is_some().then(|| Output::nothing(source.clone())),
        };
        Ok(Report {
            output: output.map(|output| output.keeping(store)),
            summary: args.summary.then(|| Summary::new(SUMMARY_FLOWS).ranked(args.ranking.by(), args.ranking.top())),
            latencies: Latencies::new(&args.fail_if),
            baseline,
            source,
            aggregates: args.aggregate,
            writes_samples: !args.aggregate && !args.summary && format.is_some(),
            keeps_samples,
            names,
            losses: CaptureLosses::new(),
        })
    }

    /// Returns true if each sample is needed, and not only the distributions that the kernel keeps.
    pub fn wants_samples(&self) -> bool {
        let is_judged = self.latencies.are_wanted() && !self.aggregates;
        self.summary.is_some() || is_judged || self.writes_samples || self.keeps_samples
    }

    /// Changes the source: the next interface of a capture, a fresh offset of the clock.
    pub fn set_source(&mut self, mut change: impl FnMut(&mut Source)) {
        if self.baseline.is_some() {
            change(&mut self.source);
        }
        if let Some(output) = &mut self.output {
            change(output.source_mut());
        }
    }

    /// Reports a sample or a flow event.
    pub fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        if let Event::Sample(sample) = event {
            if !self.aggregates {
                self.latencies.add(Some(sample.method), |histogram| histogram.record(sample.rtt_ns));
            }
            if let Some(summary) = &mut self.summary {
                summary.add(sample);
            }
            if !self.writes_samples {
                if self.summary.is_some() || self.keeps_samples {
                    self.names.note(&sample.src, &sample.dst, sample.protocol);
                }
                if let (Some(output), true) = (&mut self.output, self.keeps_samples) {
                    output.keep(&Record::Sample(sample));
                }
                return Ok(());
            }
        }
        match &mut self.output {
            Some(output) => output.write(&match event {
                Event::Sample(sample) => Record::Sample(sample),
                Event::Flow(flow) => Record::Flow(flow),
            }),
            None => Ok(()),
        }
    }

    /// Returns true if groups are needed.
    pub fn wants_groups(&self) -> bool {
        self.aggregates || self.baseline.is_some()
    }

    /// Reports the groups of a finished interval.
    pub fn interval(&mut self, end_ns: u64, length_ns: u64, groups: &[Group]) -> Result<(), SinkError> {
        if self.aggregates {
            for group in groups {
                let method = group.key.map(|key| key.method);
                self.latencies.add(method, |histogram| histogram.merge(&group.figures.histogram));
            }
            if let (Some(output), false) = (&mut self.output, groups.is_empty()) {
                output.write(&Record::Interval(&Interval { end_ns, length_ns, groups }))?;
            }
        }
        if let Some(baseline) = &mut self.baseline {
            let source = &self.source;
            let keyed = groups.iter().filter_map(|group| Some((group.key.as_ref()?, &group.figures.histogram)));
            baseline.add(keyed.map(|(key, histogram)| (shift_key(key, source), histogram)), length_ns);
        }
        if self.summary.is_none() {
            self.write_shift(end_ns)?;
        }
        self.flush()
    }

    fn write_shift(&mut self, end_ns: u64) -> Result<(), SinkError> {
        match (&self.baseline, &mut self.output) {
            (Some(baseline), Some(output)) => baseline.write(end_ns, |record| output.write(record)),
            _ => Ok(()),
        }
    }

    /// Writes what is still in the buffer.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.output.as_mut().map_or(Ok(()), Output::flush)
    }

    /// Reports the counters so far, at the end of an interval.
    pub fn status(&mut self, time_ns: u64, counters: &Counters, cost: Cost) -> Result<(), SinkError> {
        let mut status = Status::of_packets(Verb::Rtt, Some(time_ns), false, counters, cost);
        self.count(&mut status.counters);
        self.write_status(&status)?;
        self.flush()
    }

    /// Ends the run with the summary and, if they are known, the counters. The counters go to standard error even if
    /// standard output has failed.
    pub fn finish(&mut self, time_ns: Option<u64>, counters: Option<&Counters>, cost: Cost) -> Result<(), SinkError> {
        let verdict = self.latencies.judge(|name| vec![(name.map(str::to_owned), methods(name))]).cloned();
        let status = counters.map(|counters| {
            let mut status = Status::of_packets(Verb::Rtt, time_ns, true, counters, cost);
            if let Some(cut) = self.summary.as_ref().map(Summary::cut).filter(|cut| *cut > 0) {
                status.counters.push(("summary_lines_cut".into(), cut as u64));
            }
            self.count(&mut status.counters);
            Status { verdict: verdict.clone(), ..status }
        });
        let written = self.finish_output(status.as_ref());
        if let Some(counters) = counters
            && !matches!(written, Err(SinkError::Closed { .. }))
        {
            log(Text::counters(counters, ("sample", "samples")) + &left_out(&self.losses));
            if let Some(verdict) = &verdict {
                fail_if::announce(verdict, ("sample", "samples"));
            }
        }
        written
    }

    /// Has the last status say what the capture lacks.
    pub fn set_losses(&mut self, losses: CaptureLosses) {
        self.losses = losses;
    }

    /// Adds what names have cost, what could not be stored, and what a capture lacks.
    fn count(&self, counters: &mut Vec<(Cow<'static, str>, u64)>) {
        counters.extend_from_slice(&self.losses);
        self.names.count(counters);
        if let Some(output) = &self.output {
            output.count_kept(counters);
        }
    }

    /// Returns the exit status of a run that has finished with `exit`.
    pub fn exit(&mut self, exit: Exit) -> Result<Exit, Failure> {
        let exit = match self.baseline.take() {
            Some(baseline) if exit == Exit::Done => baseline.finish()?,
            _ => exit,
        };
        let exit = stored::finish(self.output.as_mut(), exit);
        Ok(fail_if::exit(self.latencies.verdict.as_ref(), exit))
    }

    fn finish_output(&mut self, status: Option<&Status>) -> Result<(), SinkError> {
        if let (Some(output), Some(summary)) = (&mut self.output, &self.summary) {
            output.write(&Record::Summary(summary))?;
            if let Some(time_ns) = status.and_then(|status| status.time_ns) {
                self.write_shift(time_ns)?;
            }
        }
        if let Some(status) = status {
            self.write_status(status)?;
        }
        self.flush()
    }

    fn write_status(&mut self, status: &Status) -> Result<(), SinkError> {
        self.output.as_mut().map_or(Ok(()), |output| output.write(&Record::Status(status)))
    }
}

/// Returns what a baseline knows a group by: numbers of interfaces are others after a restart.
fn shift_key(key: &GroupKey, source: &Source) -> ShiftKey {
    let prefix = key.prefix.to_string();
    ShiftKey::RoundTrips(RoundTripKey {
        name: source.prefixes.name(&key.prefix).filter(|name| *name != prefix).map(str::to_owned),
        prefix,
        method: key.method.name().to_owned(),
        interface: source.interfaces.label(key.interface).map(|label| label.into_owned()),
        tunnel: key.tunnel.label(),
    })
}

/// Returns the methods that a name in a condition stands for, and without a name all that have round trips.
fn methods(name: Option<&str>) -> Vec<Option<Method>> {
    match name.map(Choice::parse) {
        Some(Ok(choice)) => choice.methods().into_iter().map(Some).collect(),
        _ => Method::ALL.into_iter().map(Some).chain([None]).collect(),
    }
}
