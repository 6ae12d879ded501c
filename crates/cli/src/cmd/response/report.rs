//! The report of `dwell response`: records or a summary.

use std::collections::BTreeMap;

use dwell_engine::{
    histogram::Histogram,
    measure::{Endpoint, Protocol},
    response::{Config, Estimator, Key, Reason, Record, estimate},
    rtt::Counters,
};
use dwell_probes::response::Probe;
use dwell_records::{self as records, Latency, Output, Response, Sink, SinkError, Source, Text, counted, entry};

use super::{Args, Format, metrics::Exporter};
use crate::{exit::Failure, tell::tell};

/// Flows whose estimates the summary keeps apart.
const SUMMARY_FLOWS: usize = 100_000;

/// The output of a run.
pub struct Report {
    config: Config,
    output: Option<Output>,
    /// Estimates by flow.
    summary: Option<BTreeMap<Flow, Line>>,
    /// Epochs of flows for which the summary had no room.
    other: u64,
    is_text: bool,
    show_modes: bool,
    /// Epochs with too little to estimate from, which are not worth a line of text.
    too_short: u64,
    metrics: Option<Exporter>,
}

/// The key of a flow in the summary. A QUIC connection is one flow whatever its client's address is.
type Flow = (Option<Endpoint>, Endpoint, Protocol, Key, u32, Option<u32>);

#[derive(Default)]
struct Line {
    /// The most recent name.
    name: String,
    epochs: u64,
    estimates: Histogram,
    /// Epochs without an estimate, by reason.
    reasons: BTreeMap<String, u64>,
}

impl Report {
    /// Opens the output.
    pub fn new(args: &Args, source: Source, metrics: Option<Exporter>) -> Result<Report, Failure> {
        let name = match args.format {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
            Format::None => "none",
        };
        if args.summary && args.format != Format::Text {
            return Err(Failure::usage(anyhow::anyhow!("--summary is text: leave out --format {name}")));
        }
        let output = match entry(name) {
            Some(format) => Some(Output::new((format.new)(), Sink::stdout()?, source)),
            None => None,
        };
        Ok(Report {
            config: args.config()?,
            output,
            summary: args.summary.then(BTreeMap::new),
            other: 0,
            show_modes: args.shows_modes(),
            too_short: 0,
            is_text: args.format == Format::Text,
            metrics,
        })
    }

    /// Changes the source, for a fresh offset of the clock.
    pub fn set_source(&mut self, change: impl FnOnce(&mut Source)) {
        if let Some(output) = &mut self.output {
            change(output.source_mut());
        }
    }

    /// Reports an epoch of a flow.
    pub fn record(&mut self, record: &Record) -> Result<(), SinkError> {
        if self.config.estimator == Estimator::SynAck && record.epoch.handshake_ns == 0 {
            // This estimator knows new connections only.
            return Ok(());
        }
        let estimate = estimate(&self.config, &record.epoch);
        if let Some(metrics) = &mut self.metrics {
            metrics.record(record, &estimate);
        }
        let response = Response {
            record,
            response_ns: estimate.response_ns,
            ibg_ns: estimate.ibg_ns,
            batches: estimate.batches,
            method: Some(estimate.method.name()),
            truth: Some(estimate.method.truth().name()),
            confidence: estimate.confidence,
            reason: estimate.reason.map(|reason| reason.name()),
            show_modes: self.show_modes,
        };
        match (&mut self.summary, &mut self.output) {
            (Some(_), _) => {
                self.add(&response);
                Ok(())
            }
            (None, Some(_)) if self.is_text && estimate.reason == Some(Reason::TooFew) => {
                self.too_short += 1;
                Ok(())
            }
            (None, Some(output)) => output.write(&records::Record::Response(&response)),
            (None, None) => Ok(()),
        }
    }

    fn add(&mut self, response: &Response<'_>) {
        let Some(summary) = &mut self.summary else {
            return;
        };
        let record = response.record;
        let flow = (
            (record.key != Key::QuicCid).then_some(record.src),
            record.dst,
            record.protocol,
            record.key,
            record.interface,
            record.id,
        );
        if summary.len() >= SUMMARY_FLOWS && !summary.contains_key(&flow) {
            self.other += 1;
            return;
        }
        let line = summary.entry(flow).or_default();
        line.name = format!("{} {}", record.protocol, record.flow());
        line.epochs += 1;
        if let (true, Some(ns)) = (response.is_valid(), response.response_ns) {
            line.estimates.record(ns);
        } else if let Some(reason) = response.reason {
            *line.reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }

    /// Updates the metrics.
    pub fn status(&mut self, probe: &mut Probe) -> Result<(), Failure> {
        self.metrics.as_mut().map_or(Ok(()), |metrics| metrics.status(probe))
    }

    /// Writes what is still in the buffer.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.output.as_mut().map_or(Ok(()), Output::flush)
    }

    /// Ends the run with the summary and, if they are known, the counters.
    pub fn finish(&mut self, counters: Option<&Counters>) -> Result<(), SinkError> {
        let written = self.write_summary();
        if let Some(counters) = counters
            && !matches!(written, Err(SinkError::Closed { .. }))
        {
            if self.too_short > 0 {
                let epochs = counted(self.too_short, "epoch", "epochs");
                tell(format_args!("{epochs} with too little to estimate from, not shown: --format jsonl has them"));
            }
            tell(Text::counters(counters, ("epoch", "epochs")));
        }
        written
    }

    fn write_summary(&mut self) -> Result<(), SinkError> {
        if let (Some(summary), Some(output)) = (&self.summary, &mut self.output) {
            output.lines(|out| {
                out.push_str(
                    "epochs  valid      p50      p90      p99  flow (percentiles over epochs); why others are not valid\n",
                );
                for line in summary.values() {
                    let quantile = |q| match line.estimates.quantile_ns(q) {
                        Some(ns) => Latency(ns).to_string(),
                        None => "-".to_owned(),
                    };
                    let commonest = line.reasons.iter().max_by_key(|(_, epochs)| **epochs);
                    let why = commonest.map_or(String::new(), |(reason, epochs)| {
                        format!("; mostly {reason}: {epochs}")
                    });
                    let valid = line.estimates.count() as f64 / line.epochs as f64;
                    out.push_str(&format!(
                        "{:>6}  {:>4.0} %  {:>7}  {:>7}  {:>7}  {}{why}\n",
                        line.epochs,
                        valid * 100.0,
                        quantile(0.5),
                        quantile(0.9),
                        quantile(0.99),
                        line.name,
                    ));
                }
                if self.other > 0 {
                    out.push_str(&format!("{:>6}  of other flows\n", self.other));
                }
            })?;
        }
        self.flush()
    }
}
