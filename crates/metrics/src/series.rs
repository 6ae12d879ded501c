//! Series of one family or of several.

use std::collections::BTreeMap;

use dwell_engine::histogram::Histogram;

use crate::{Collect, Family, Snapshot};

/// The label value that stands for all values beyond the limit on series.
pub const OTHER: &str = "other";

/// The histograms of one family by their labels, up to a maximum number.
#[derive(Debug, Clone)]
pub struct Histograms {
    family: Family,
    max_series: usize,
    series: BTreeMap<Vec<String>, Histogram>,
}

impl Histograms {
    /// Creates an empty family of which at most `max_series` combinations of labels get a series of their own.
    pub fn new(family: Family, max_series: usize) -> Histograms {
        Histograms { family, max_series, series: BTreeMap::new() }
    }

    /// Returns the histogram of `labels` or, where it has none and the limit is reached, that of `overflow`: the same
    /// labels with [`OTHER`] in place of every value that traffic brings.
    pub fn get<const N: usize>(&mut self, labels: [&str; N], overflow: [&str; N]) -> &mut Histogram {
        self.get_labelled(labels, overflow).1
    }

    /// Forgets the series of these labels.
    pub fn remove(&mut self, labels: &[String]) {
        self.series.remove(labels);
    }

    /// Returns the same histogram with the labels that it has, for other families with the same series.
    pub fn get_labelled<const N: usize>(
        &mut self,
        labels: [&str; N],
        overflow: [&str; N],
    ) -> (Vec<String>, &mut Histogram) {
        let mut key = labels.map(str::to_owned).to_vec();
        if self.series.len() >= self.max_series && !self.series.contains_key(&key) {
            key = overflow.map(str::to_owned).to_vec();
        }
        (key.clone(), self.series.entry(key).or_default())
    }
}

impl Collect for Histograms {
    fn collect(&self, snapshot: &mut Snapshot) {
        if !self.series.is_empty() {
            snapshot.family(&self.family);
        }
        for (labels, histogram) in &self.series {
            snapshot.histogram(&self.family, labels, histogram);
        }
    }
}

/// Values of several counters and gauges, made anew for each update. Families are written by name, and the series of
/// a family in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Numbers(BTreeMap<Family, Vec<(Vec<String>, f64)>>);

impl Numbers {
    /// Adds a series with its value.
    pub fn add(&mut self, family: Family, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.entry(family).or_default().push((labels, value));
    }
}

impl Collect for Numbers {
    fn collect(&self, snapshot: &mut Snapshot) {
        for (family, series) in &self.0 {
            snapshot.family(family);
            for (labels, value) in series {
                snapshot.sample(family, labels, *value);
            }
        }
    }
}
