//! Where samples go: records, the summary, metrics.

use anyhow::anyhow;
use dwell_engine::{
    measure::Event,
    rtt::{Counters, Group},
};
use dwell_records::{Interval, Output, Sink, SinkError, Source, Status, Summary, Text, entry};

use super::{Args, Format};
use crate::{exit::Failure, tell::tell};

/// Flows whose distributions the summary keeps apart.
const SUMMARY_FLOWS: usize = 100_000;

/// What is told of a run.
pub struct Report {
    output: Option<Output>,
    summary: Option<Summary>,
    /// Samples are printed one by one.
    each: bool,
    /// The format has a place for counters.
    status: bool,
}

impl Report {
    /// Nothing told yet.
    pub fn new(args: &Args, source: Source) -> Result<Report, Failure> {
        let name = match args.format {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
            Format::Ppviz => "ppviz",
            Format::None => "none",
        };
        let format = entry(name);
        if format.is_none() && args.summary {
            return Err(Failure::usage(anyhow!("--format none prints no summary: leave out one of the two")));
        }
        if let Some(format) = format {
            let distributions = args.aggregate || args.summary;
            if (distributions && !format.distributions) || (args.flow_events && !format.flows) {
                return Err(Failure::usage(anyhow!(
                    "the format {name} has samples only: leave out --aggregate, --summary and \
                     --flow-events, or take --format text or jsonl"
                )));
            }
        }
        let output = match format {
            Some(format) => Some(Output::new((format.new)(), Sink::stdout()?, source)),
            None => None,
        };
        Ok(Report {
            output,
            summary: args.summary.then(|| Summary::new(SUMMARY_FLOWS)),
            each: !args.aggregate && !args.summary,
            status: format.is_some_and(|format| format.status),
        })
    }

    /// True if somebody wants each sample, and not only their distributions.
    pub fn wants_samples(&self) -> bool {
        self.summary.is_some() || (self.each && self.output.is_some())
    }

    /// For a source that changes.
    pub fn set_source(&mut self, change: impl FnOnce(&mut Source)) {
        if let Some(output) = &mut self.output {
            change(output.source_mut());
        }
    }

    /// Tells what a packet caused.
    pub fn event(&mut self, event: &Event) -> Result<(), SinkError> {
        if let Event::Sample(sample) = event {
            if let Some(summary) = &mut self.summary {
                summary.add(sample);
            }
            if !self.each {
                return Ok(());
            }
        }
        match &mut self.output {
            Some(output) => output.event(event),
            None => Ok(()),
        }
    }

    /// Tells the groups of an interval that ends.
    pub fn interval(&mut self, end_ns: u64, length_ns: u64, groups: &[Group]) -> Result<(), SinkError> {
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        if !groups.is_empty() {
            output.interval(&Interval { end_ns, length_ns, groups })?;
        }
        output.flush()
    }

    /// Hands on what is still in buffers.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.output.as_mut().map_or(Ok(()), Output::flush)
    }

    /// Tells what was counted so far, at the end of an interval.
    pub fn status(&mut self, time_ns: u64, counters: Counters) -> Result<(), SinkError> {
        self.write_status(Some(time_ns), false, counters)?;
        self.flush()
    }

    /// The end of the run: the summary, and what was counted, if that is known. The counters are
    /// told on standard error even if standard output has failed.
    pub fn finish(&mut self, time_ns: Option<u64>, counters: Option<Counters>) -> Result<(), SinkError> {
        let written = self.finish_output(time_ns, counters);
        if let Some(counters) = counters
            && !matches!(written, Err(SinkError::Closed { .. }))
        {
            tell(Text::counters(&counters, "samples"));
        }
        written
    }

    fn finish_output(&mut self, time_ns: Option<u64>, counters: Option<Counters>) -> Result<(), SinkError> {
        if let (Some(output), Some(summary)) = (&mut self.output, &self.summary) {
            output.summary(summary)?;
        }
        if let Some(counters) = counters {
            self.write_status(time_ns, true, counters)?;
        }
        self.flush()
    }

    fn write_status(&mut self, time_ns: Option<u64>, last: bool, counters: Counters) -> Result<(), SinkError> {
        match &mut self.output {
            Some(output) if self.status => output.status(&Status { time_ns, last, counters }),
            _ => Ok(()),
        }
    }
}
