//! The report of `dwell rtt`: records and the summary.

use anyhow::anyhow;
use dwell_engine::{
    measure::{Event, Method},
    rtt::{Counters, Group},
};
use dwell_records::{Cost, Interval, Kind, Output, Record, SinkError, Source, Status, Summary, Text, Verb, entry};

use super::{Args, Choice, Format};
use crate::{
    exit::{Exit, Failure},
    fail_if::{self, Latencies},
    tell::tell,
};

/// Flows whose distributions the summary keeps apart.
const SUMMARY_FLOWS: usize = 100_000;

/// The output of a run.
pub struct Report {
    output: Option<Output>,
    summary: Option<Summary>,
    /// Round trips by method; `None` is the group of those for which there was no group left.
    latencies: Latencies<Option<Method>>,
    /// Whether round trips are counted in groups, so that single ones are not needed.
    aggregates: bool,
    /// Whether samples are written one by one.
    writes_samples: bool,
}

impl Report {
    /// Opens the output.
    pub fn new(args: &Args, source: Source) -> Result<Report, Failure> {
        let name = match args.format {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
            Format::Ppviz => "ppviz",
            Format::None => "none",
        };
        let format = entry(name);
        args.ranking.refuse_without_summary(args.summary)?;
        if format.is_none() && args.summary {
            return Err(Failure::usage(anyhow!("--format none prints no summary: leave out one of the two")));
        }
        if let Some(format) = format {
            let wanted =
                [(args.aggregate, Kind::Interval), (args.summary, Kind::Summary), (args.flow_events, Kind::Flow)];
            if wanted.into_iter().any(|(is_wanted, kind)| is_wanted && !(format.writes)(kind)) {
                return Err(Failure::usage(anyhow!(
                    "the format {name} has samples only: leave out --aggregate, --summary and \
                     --flow-events, or take --format text or jsonl"
                )));
            }
        }
        let output = match format {
            Some(format) => Some(Output::new((format.new)(), args.write.open()?, source)),
            None => None,
        };
        Ok(Report {
            output,
            summary: args.summary.then(|| Summary::new(SUMMARY_FLOWS).ranked(args.ranking.by(), args.ranking.top())),
            latencies: Latencies::new(&args.fail_if),
            aggregates: args.aggregate,
            writes_samples: !args.aggregate && !args.summary,
        })
    }

    /// Returns true if each sample is needed, and not only the distributions that the kernel keeps.
    pub fn wants_samples(&self) -> bool {
        let is_judged = self.latencies.are_wanted() && !self.aggregates;
        self.summary.is_some() || is_judged || (self.writes_samples && self.output.is_some())
    }

    /// Changes the source: the next interface of a capture, a fresh offset of the clock.
    pub fn set_source(&mut self, change: impl FnOnce(&mut Source)) {
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

    /// Reports the groups of a finished interval.
    pub fn interval(&mut self, end_ns: u64, length_ns: u64, groups: &[Group]) -> Result<(), SinkError> {
        for group in groups {
            let method = group.key.map(|key| key.method);
            self.latencies.add(method, |histogram| histogram.merge(&group.figures.histogram));
        }
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        if !groups.is_empty() {
            output.write(&Record::Interval(&Interval { end_ns, length_ns, groups }))?;
        }
        output.flush()
    }

    /// Writes what is still in the buffer.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.output.as_mut().map_or(Ok(()), Output::flush)
    }

    /// Reports the counters so far, at the end of an interval.
    pub fn status(&mut self, time_ns: u64, counters: &Counters, cost: Cost) -> Result<(), SinkError> {
        self.write_status(&Status::of_packets(Verb::Rtt, Some(time_ns), false, counters, cost))?;
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
            Status { verdict: verdict.clone(), ..status }
        });
        let written = self.finish_output(status.as_ref());
        if let Some(counters) = counters
            && !matches!(written, Err(SinkError::Closed { .. }))
        {
            tell(Text::counters(counters, ("sample", "samples")));
            if let Some(verdict) = &verdict {
                fail_if::announce(verdict, ("sample", "samples"));
            }
        }
        written
    }

    /// Returns the exit status of a run that has finished with `exit`.
    pub fn exit(&self, exit: Exit) -> Exit {
        fail_if::exit(self.latencies.verdict.as_ref(), exit)
    }

    fn finish_output(&mut self, status: Option<&Status>) -> Result<(), SinkError> {
        if let (Some(output), Some(summary)) = (&mut self.output, &self.summary) {
            output.write(&Record::Summary(summary))?;
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

/// Returns the methods that a name in a condition stands for, and without a name all that have round trips.
fn methods(name: Option<&str>) -> Vec<Option<Method>> {
    match name.map(Choice::parse) {
        Some(Ok(choice)) => choice.methods().into_iter().map(Some).collect(),
        _ => Method::ALL.into_iter().map(Some).chain([None]).collect(),
    }
}
