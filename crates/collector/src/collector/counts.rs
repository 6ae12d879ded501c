//! What a collector counts about itself, and where these counts are shown.

use dwell_fleet::{Refusals, Server};
use dwell_records::{Cost, Record, Status, Verb};
use dwell_socket::clock::process_cpu_ns;

use super::{Collector, gray::Gray, left_out::LeftOut, unix};
use crate::{Error, metrics::Counts};

impl Collector {
    /// Prints what was counted in the run, at its end.
    pub(super) fn print_status(&mut self, now_ns: u64) -> Result<(), Error> {
        let joined = self.joiner.counters();
        let mut status = Status {
            verb: Verb::Collect,
            time_ns: Some(now_ns),
            last: true,
            lost: joined.crowded + self.outlived,
            cost: Cost { cpu_ns: Some(process_cpu_ns()), ..Cost::default() },
            counters: self.outcomes().map(|(name, count)| (name.into(), count)).into(),
            verdict: self.judge.as_mut().and_then(|judge| judge.judge()),
        };
        match &mut self.print {
            Some(print) => {
                print.output.count_kept(&mut status.counters);
                print.output.write(&Record::Status(&status))?;
                Ok(print.output.flush()?)
            }
            None => Ok(()),
        }
    }

    /// What became of the bytes that agents reported.
    fn outcomes(&self) -> [(&'static str, u64); 17] {
        let joined = self.joiner.counters();
        [
            ("matched", joined.matched),
            ("retransmitted", joined.resent),
            ("translated", joined.translated),
            ("clamped", joined.clamped),
            ("doubtful", joined.doubtful),
            ("clock_faults", joined.clock_faults),
            ("ambiguous", joined.ambiguous),
            ("contested", joined.contested),
            ("clockless", self.clockless),
            ("edgeless", self.edgeless),
            ("misdated", self.left_out.misdated),
            ("outlived", self.outlived),
            ("unmatched_tx", joined.unmatched_tx),
            ("unmatched_rx", joined.unmatched_rx),
            ("crowded", joined.crowded),
            ("flows_omitted", joined.flows_omitted),
            ("paths_omitted", joined.paths_omitted),
        ]
    }

    /// Updates the metrics of what the collector itself has counted.
    pub(super) fn serve_counts(&self, server: &Server) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let mut deferred = self.gate.deferred().to_vec();
        deferred.push(("memory", server.skipped()));
        metrics.lock().counts(Counts {
            outcomes: self.outcomes().to_vec(),
            left_out: self.left_out().to_vec(),
            refused: server.refusals().by_reason().to_vec(),
            deferred,
            agents: server.agents(),
            stored: self.stored,
            lost_batches: self.losses.batches(),
            killed_runs: self.losses.killed_runs(),
            gray: self.gray.as_ref().map(|gray| gray.counts(&self.hosts)).unwrap_or_default(),
            forward: self.forward.as_ref().map(|forward| forward.status(&self.store)),
            refused_rows_kept: self.store.refused_size().rows,
            lines_lost: self.print.as_ref().map(|print| print.output.lost_lines()),
        });
    }

    /// What agents sent and was not taken, or not as it was.
    pub(super) fn left_out(&self) -> [(&'static str, u64); 12] {
        let LeftOut { counters, hooks, times_clamped, clock_samples, matched_flows, hosts, .. } = self.left_out;
        let [gray_late, gray_omitted, gray_rare, gray_unwaited] = self.gray.as_ref().map_or([0; 4], Gray::left_out);
        [
            ("counters_omitted", counters),
            ("hooks_omitted", hooks),
            ("estimates_omitted", self.estimates.omitted()),
            ("clock_samples_omitted", clock_samples + self.gate.samples_dropped()),
            ("times_clamped", times_clamped),
            ("matched_flows_omitted", matched_flows),
            ("connections_omitted", self.joiner.counters().connections_omitted),
            ("gray_late", gray_late),
            ("gray_omitted", gray_omitted),
            ("gray_rare", gray_rare),
            ("gray_unwaited", gray_unwaited),
            ("hosts_refused", hosts),
        ]
    }

    /// Writes changed counters into the store.
    pub(super) fn count(&mut self, refusals: &Refusals) -> Result<(), Error> {
        let refused = refusals.by_reason();
        let refused = refused.map(|(reason, count)| (format!("refused {reason}"), count));
        let outcomes = self.outcomes().into_iter().chain(self.left_out());
        let outcomes = outcomes.map(|(name, count)| (name.to_owned(), count));
        let now_unix_ns = unix(self.time.now_ns(), self.time.to_unix_ns());
        let counted = &mut self.counted;
        let changed: Vec<_> = outcomes
            .chain(refused)
            .filter(|(name, count)| counted.insert(name.clone(), *count) != Some(*count))
            .collect();
        self.store.write(|to| {
            for (name, count) in &changed {
                to.counter(now_unix_ns, None, name, *count)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}
