//! The report of `dwell response`: records or a summary.

use dwell_engine::{
    histogram::Histogram,
    response::{Answers, Config, Estimator, Method, Reason, Record, estimate},
    rtt::Counters,
};
use dwell_probes::response::Probe;
use dwell_records::{self as records, Cost, Output, Response, SinkError, Source, Status, Text, Verb, counted};

use super::{Args, baseline::Epochs, metrics::Exporter, summary::Summary};
use crate::{
    args::FormatOrNone,
    exit::{Exit, Failure},
    fail_if::{self, Latencies},
    log::log,
    names::Namer,
    source::{CaptureLosses, cost, left_out},
    stored,
};

/// The output of a run.
pub struct Report {
    config: Config,
    output: Option<Output>,
    summary: Option<Summary>,
    /// Responses by method.
    latencies: Latencies<Method>,
    baseline: Option<Epochs>,
    is_text: bool,
    show_modes: bool,
    /// Epochs with too little to estimate from, which are not worth a line of text.
    too_short: u64,
    metrics: Option<Exporter>,
    names: Namer,
    /// When the counters are next reported: once in an epoch.
    status_due_ns: u64,
    /// What the capture lacks, once it has been read.
    losses: CaptureLosses,
}

impl Report {
    /// Opens the output.
    pub fn new(args: &Args, source: Source, names: Namer, metrics: Option<Exporter>) -> Result<Report, Failure> {
        let source = Source { names: names.of_source(), ..source };
        let format = args.write.format(args.format.name());
        args.ranking.check(args.summary.is_some(), format.is_some())?;
        let baseline = args.baseline(source.host.clone())?;
        let store = args.store.open(args.interval, args.read.is_some())?;
        let output = match format {
            Some(format) => Some(Output::new((format.new)(), args.write.open()?, source)),
            None => store.is_some().then(|| Output::nothing(source)),
        };
        Ok(Report {
            config: args.config()?,
            output: output.map(|output| output.keeping(store)),
            summary: args.summary.map(|by| Summary::new(by, args.ranking, args.prefixes())),
            latencies: Latencies::new(&args.fail_if),
            baseline,
            show_modes: args.shows_modes(),
            too_short: 0,
            is_text: args.format == FormatOrNone::Text,
            metrics,
            names,
            status_due_ns: 0,
            losses: CaptureLosses::new(),
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
        let answers = Answers::of(&record.epoch, &estimate);
        if let Some(ns) = estimate.response_ns.filter(|_| estimate.is_valid()) {
            self.latencies.add(estimate.method, |histogram| add_responses(histogram, ns, estimate.batches, answers));
            let ended = self.baseline.as_mut().and_then(|epochs| epochs.add(record, &estimate, ns));
            if let (Some(end_ns), None) = (ended, &self.summary) {
                self.write_shift(end_ns)?;
            }
        }
        let response = Response {
            record,
            percentiles: answers.map(|answers| [0.5, 0.9, 0.95, 0.99].map(|q| answers.quantile(q))),
            response_ns: estimate.response_ns,
            ibg_ns: estimate.ibg_ns,
            batches: estimate.batches,
            method: Some(estimate.method.name()),
            truth: Some(estimate.method.truth().name()),
            confidence: estimate.confidence,
            reason: estimate.reason.map(|reason| reason.name()),
            show_modes: self.show_modes,
        };
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        if let Some(summary) = &mut self.summary {
            output.keep(&records::Record::Response(&response));
            summary.add(&response, answers, output.source());
        } else if self.is_text && estimate.reason == Some(Reason::TooFew) {
            output.keep(&records::Record::Response(&response));
            self.too_short += 1;
        } else {
            output.write(&records::Record::Response(&response))?;
        }
        Ok(())
    }

    fn write_shift(&mut self, end_ns: u64) -> Result<(), SinkError> {
        match (&self.baseline, &mut self.output) {
            (Some(epochs), Some(output)) => epochs.baseline.write(end_ns, |record| output.write(record)),
            _ => Ok(()),
        }
    }

    /// Updates the metrics, and reports the counters so far.
    pub fn status(&mut self, time_ns: u64, probe: &mut Probe) -> Result<(), Failure> {
        if let Some(output) = &mut self.output
            && time_ns >= self.status_due_ns
        {
            self.status_due_ns = time_ns + self.config.epoch_ns;
            let cost = cost(&probe.run_times());
            let mut status = Status::of_packets(Verb::Response, Some(time_ns), false, &probe.counters()?, cost);
            self.names.count(&mut status.counters);
            output.count_kept(&mut status.counters);
            output.write(&records::Record::Status(&status))?;
        }
        self.metrics.as_mut().map_or(Ok(()), |metrics| metrics.status(probe))
    }

    /// Writes what is still in the buffer.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.output.as_mut().map_or(Ok(()), Output::flush)
    }

    /// Ends the run with the summary and, if they are known, the counters.
    pub fn finish(&mut self, time_ns: Option<u64>, counters: Option<&Counters>, cost: Cost) -> Result<(), SinkError> {
        let verdict = self.latencies.judge(|name| vec![(name.map(str::to_owned), methods(name))]).cloned();
        let status = counters.map(|counters| {
            let mut status = Status::of_packets(Verb::Response, time_ns, true, counters, cost);
            status.counters.extend_from_slice(&self.losses);
            self.names.count(&mut status.counters);
            if let Some(output) = &self.output {
                output.count_kept(&mut status.counters);
            }
            Status { verdict: verdict.clone(), ..status }
        });
        let written = self.finish_output(status.as_ref());
        if let Some(counters) = counters
            && !matches!(written, Err(SinkError::Closed { .. }))
        {
            if self.too_short > 0 {
                let epochs = counted(self.too_short, "epoch", "epochs");
                log(format_args!("{epochs} with too little to estimate from, not shown: --format jsonl has them"));
            }
            log(Text::counters(counters, ("epoch", "epochs")) + &left_out(&self.losses));
            if let Some(verdict) = &verdict {
                fail_if::announce(verdict, ("response", "responses"));
            }
        }
        written
    }

    /// Has the last status say what the capture lacks.
    pub fn set_losses(&mut self, losses: CaptureLosses) {
        self.losses = losses;
    }

    /// Returns the exit status of a run that has finished with `exit`.
    pub fn exit(&mut self, exit: Exit) -> Result<Exit, Failure> {
        let exit = match self.baseline.take() {
            Some(epochs) if exit == Exit::Done => epochs.baseline.finish()?,
            _ => exit,
        };
        let exit = stored::finish(self.output.as_mut(), exit);
        Ok(fail_if::exit(self.latencies.verdict.as_ref(), exit))
    }

    fn finish_output(&mut self, status: Option<&Status>) -> Result<(), SinkError> {
        if let (Some(summary), Some(output)) = (&self.summary, &mut self.output) {
            summary.with(|summary| output.write(&records::Record::ResponseSummary(summary)))?;
        }
        if let Some(epochs) = &mut self.baseline {
            epochs.finish();
            if let Some(time_ns) = status.and_then(|status| status.time_ns) {
                self.write_shift(time_ns)?;
            }
        }
        if let (Some(status), Some(output)) = (status, &mut self.output) {
            output.write(&records::Record::Status(status))?;
        }
        self.flush()
    }
}

/// Adds the responses of an epoch whose estimate is valid: each with its own latency or, where the method does not know
/// that, all with their mean.
pub fn add_responses(histogram: &mut Histogram, mean_ns: u64, responses: u64, answers: Option<Answers<'_>>) {
    match answers {
        Some(answers) => answers.buckets().for_each(|bucket| histogram.record_many(bucket.ns, bucket.count)),
        None => histogram.record_many(mean_ns, responses),
    }
}

/// Returns the methods that a name in a condition stands for, and without a name all.
fn methods(name: Option<&str>) -> Vec<Method> {
    Method::ALL.into_iter().filter(|method| name.is_none_or(|name| method.name() == name)).collect()
}
