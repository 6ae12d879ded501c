//! `--baseline`: responses of each server or prefix, epoch by epoch.

use std::collections::BTreeMap;

use dwell_engine::{
    histogram::Histogram,
    response::{Answers, Estimate, Record},
};
use dwell_records::{ResponseKey, ShiftKey};

use super::{PrefixLengths, report::add_responses};
use crate::baseline::{Baseline, MOST_KEYS};

/// Collects the epochs of all flows that ended at the same time into one interval of the baseline.
///
/// Flows end their epochs at the same times, but report them up to a quarter of an epoch later, or when their next packet
/// comes. So an epoch is complete when there is a record of one that began two epochs later.
pub struct Epochs {
    pub baseline: Baseline,
    /// The prefix lengths, where prefixes of servers are compared.
    prefixes: Option<PrefixLengths>,
    epoch_ns: u64,
    /// The epochs that are not complete yet, by number.
    open: BTreeMap<u64, BTreeMap<ShiftKey, Histogram>>,
    /// The number of the first epoch, which may have begun before the run.
    first: Option<u64>,
}

impl Epochs {
    /// Collects for a baseline of epochs of this length.
    pub fn new(baseline: Baseline, prefixes: Option<PrefixLengths>, epoch_ns: u64) -> Epochs {
        Epochs { baseline, prefixes, epoch_ns, open: BTreeMap::new(), first: None }
    }

    /// Adds a valid estimate. Returns the end of the last epoch that is complete now, if any.
    pub fn add(&mut self, record: &Record, estimate: &Estimate, mean_ns: u64) -> Option<u64> {
        let number = record.epoch.start_ns / self.epoch_ns;
        let first = *self.first.get_or_insert(number);
        let newest = self.open.last_key_value().map_or(number, |(newest, _)| (*newest).max(number));
        // A record that comes later than an epoch allows belongs to an interval that has been compared already.
        if number > first && number + 1 >= newest {
            let epoch = self.open.entry(number).or_default();
            let key = key(record, estimate, self.prefixes);
            if epoch.len() < MOST_KEYS || epoch.contains_key(&key) {
                let answers = Answers::of(&record.epoch, estimate);
                add_responses(epoch.entry(key).or_default(), mean_ns, estimate.batches, answers);
            }
        }
        let mut ended = None;
        while let Some(oldest) = self.open.first_entry().filter(|oldest| oldest.key() + 1 < newest) {
            ended = Some((oldest.key() + 1) * self.epoch_ns);
            let epoch = oldest.remove();
            self.baseline.add(epoch.iter().map(|(key, histogram)| (key.clone(), histogram)), self.epoch_ns);
        }
        ended
    }

    /// Adds the epochs that are complete when the run ends: all but the last one.
    pub fn finish(&mut self) {
        self.open.pop_last();
        for epoch in std::mem::take(&mut self.open).values() {
            self.baseline.add(epoch.iter().map(|(key, histogram)| (key.clone(), histogram)), self.epoch_ns);
        }
    }
}

/// Returns what a baseline knows the server of a flow by.
fn key(record: &Record, estimate: &Estimate, prefixes: Option<PrefixLengths>) -> ShiftKey {
    let method = estimate.method.name().to_owned();
    ShiftKey::Responses(match prefixes {
        Some(prefixes) => ResponseKey {
            server: None,
            port: None,
            proto: None,
            prefix: Some(prefixes.group(record.dst.address).to_string()),
            method,
        },
        None => ResponseKey {
            server: Some(record.dst.address),
            port: record.key.has_ports().then_some(record.dst.port),
            proto: Some(record.protocol.to_string()),
            prefix: None,
            method,
        },
    })
}
