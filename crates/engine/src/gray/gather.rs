//! The figures of an interval, from the histograms that arrive within it.

use std::collections::BTreeMap;

use super::{Component, Measure, Subject};
use crate::{
    baseline::{Figure, Figures},
    histogram::Histogram,
    layers::{PathSegment, join::Path},
};

/// The figures of times that are compared.
const FIGURES: [Figure; 2] = [Figure::Median, Figure::P99];
/// The number of bytes that the share of those that were retransmitted is of, at least.
const LEAST_BYTES: u64 = 200;
/// Histograms of an interval at most; paths and services may take half of them.
const MOST: usize = 1 << 15;
/// A share of all, in millionths.
const ALL: u64 = 1_000_000;

/// What is known of an interval that has not ended.
#[derive(Debug, Default)]
pub struct Gathered {
    times: BTreeMap<(Subject, PathSegment), Histogram>,
    /// Of each path, its bytes and those among them that were sent more than once.
    sent: BTreeMap<Subject, [u64; 2]>,
    of_hosts: usize,
    omitted: u64,
}

impl Gathered {
    /// Adds times of a subject.
    pub fn times(&mut self, subject: Subject, segment: PathSegment, histogram: &Histogram) {
        if histogram.count() == 0 {
            return;
        }
        if let Some(known) = self.times.get_mut(&(subject, segment)) {
            return known.merge(histogram);
        }
        let is_host = matches!(subject, Subject::Host(_));
        let has_room = self.times.len() < MOST && (is_host || self.times.len() - self.of_hosts < MOST / 2);
        if !has_room {
            self.omitted += 1;
            return;
        }
        self.of_hosts += usize::from(is_host);
        self.times.insert((subject, segment), histogram.clone());
    }

    /// Adds the bytes of all flows between two hosts, those that were sent more than once or the others.
    pub fn path(&mut self, tx_host: u32, rx_host: u32, resent: bool, path: &Path) {
        let subject = Subject::Path { tx_host, rx_host };
        let network = path.segment(PathSegment::Network);
        if !resent {
            self.times(subject, PathSegment::Network, network);
        }
        if self.sent.contains_key(&subject) || self.sent.len() < MOST / 2 {
            self.sent.entry(subject).or_default()[usize::from(resent)] += network.count();
        }
    }

    /// Returns how many subjects and components there are.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns how many were left out, because there were too many.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Returns the figures, of whatever has enough bytes: times in nanoseconds, shares in millionths.
    pub fn finish(self) -> Vec<(Subject, Measure, u64)> {
        let times = self.times.iter().flat_map(|((subject, segment), histogram)| {
            let figures = Figures::from(histogram);
            FIGURES.into_iter().filter_map(move |figure| {
                let measure = Measure { component: Component::Time(*segment), figure: Some(figure) };
                Some((*subject, measure, figures.ns[figure as usize]?))
            })
        });
        let shares = self.sent.iter().filter_map(|(subject, [once, again])| {
            let bytes = once + again;
            let measure = Measure { component: Component::Retransmitted, figure: None };
            (bytes >= LEAST_BYTES).then(|| (*subject, measure, again * ALL / bytes))
        });
        times.chain(shares).collect()
    }
}
