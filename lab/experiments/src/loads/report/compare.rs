//! Estimates beside the truth, epoch by epoch.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use dwell_engine::stats::{mean, quantile, sorted};
use dwell_testbed::Nanos;

use super::log::{Epoch, Estimate, Log, Request};

/// Which answers a mean is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// Those that the estimate says it is of.
    Own,
    /// All of them.
    All,
    /// Those that made the client send the next request.
    Causal,
}

impl Truth {
    /// All of them, in the order in which they are told.
    pub const EACH: [Self; 3] = [Self::Own, Self::All, Self::Causal];

    /// As tables and records call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => "all",
            Self::Causal => "causal",
        }
    }
}

/// An epoch of a connection in which answers came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Compared {
    pub(super) connection: u16,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// Mean latency of all answers that came.
    pub(super) all_ns: f64,
    /// And of those that made the client send the next request.
    pub(super) causal_ns: Option<f64>,
    pub(super) estimate: Option<Estimate>,
    /// Why there is none.
    pub(super) reason: Option<String>,
}

impl Compared {
    pub(super) fn truth_ns(&self, truth: Truth) -> Option<f64> {
        let of_causal = || self.estimate.as_ref().map(|estimate| estimate.of_causal);
        match truth {
            Truth::All => Some(self.all_ns),
            Truth::Causal => self.causal_ns,
            Truth::Own if of_causal()? => self.causal_ns,
            Truth::Own => Some(self.all_ns),
        }
    }

    /// Estimate and truth.
    pub(super) fn pair(&self, truth: Truth) -> Option<(f64, f64)> {
        let estimate = self.estimate.as_ref()?;
        Some((estimate.ns as f64, self.truth_ns(truth)?))
    }
}

/// The estimates of a run beside the truth.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What made the estimates.
    pub estimator: String,
    pub(super) epochs: Vec<Compared>,
}

/// How far estimates are from a truth, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Errors {
    /// 0.01 is one percent.
    pub relative: Vec<f64>,
    /// In nanoseconds.
    pub absolute_ns: Vec<f64>,
}

impl Comparison {
    /// By connection and epoch. Epochs in which answers came and of which nothing was told count as without estimate.
    pub(super) fn new(estimator: &str, log: &Log, told: &[Epoch], length: Duration) -> Self {
        let length_ns = Nanos::from(length).0;
        // All epochs of a run end at the same times; records may say so with a little jitter.
        let phase_ns = told.first().map_or(0, |epoch| epoch.end_ns % length_ns);
        let number = |ns: u64| (ns + length_ns - phase_ns) / length_ns;
        let mut epochs = Vec::new();
        let mut known = HashSet::new();
        for epoch in told {
            let start_ns = epoch.end_ns.saturating_sub(length_ns);
            known.insert((epoch.connection, number(start_ns + length_ns / 2)));
            let span = (start_ns, epoch.end_ns);
            epochs.extend(compared(log, epoch.connection, span).map(|compared| Compared {
                estimate: epoch.estimate.clone(),
                reason: epoch.reason.clone(),
                ..compared
            }));
        }
        let mut untold = BTreeMap::new();
        for (&connection, requests) in &log.requests {
            for request in requests {
                let number = number(request.done_ns);
                if !known.contains(&(connection, number)) {
                    untold.insert((connection, number), number * length_ns + phase_ns);
                }
            }
        }
        epochs.extend(untold.into_iter().filter_map(|((connection, _), end_ns)| {
            let start_ns = end_ns.saturating_sub(length_ns);
            compared(log, connection, (start_ns, end_ns))
        }));
        epochs.sort_by_key(|epoch| (epoch.connection, epoch.end_ns));
        Self { estimator: estimator.to_owned(), epochs }
    }

    /// Epochs with answers of that kind.
    pub fn epochs(&self, truth: Truth) -> usize {
        let has_truth = |epoch: &&Compared| truth != Truth::Causal || epoch.causal_ns.is_some();
        self.epochs.iter().filter(has_truth).count()
    }

    /// How many estimates each method gave.
    pub fn methods(&self) -> BTreeMap<&str, usize> {
        let mut methods = BTreeMap::new();
        for estimate in self.epochs.iter().filter_map(|epoch| epoch.estimate.as_ref()) {
            *methods.entry(estimate.method.as_str()).or_default() += 1;
        }
        methods
    }

    /// Why there are no estimates, and of how many epochs.
    pub fn reasons(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for epoch in self.epochs.iter().filter(|epoch| epoch.estimate.is_none()) {
            let reason = epoch.reason.as_deref().unwrap_or("not reported");
            *reasons.entry(reason).or_default() += 1;
        }
        reasons
    }

    /// The truth that all estimates say they are of; None where they differ, or there is none.
    pub fn own(&self) -> Option<Truth> {
        let mut estimates = self.epochs.iter().filter_map(|epoch| epoch.estimate.as_ref());
        let first = estimates.next()?.of_causal;
        let own = if first { Truth::Causal } else { Truth::All };
        estimates.all(|estimate| estimate.of_causal == first).then_some(own)
    }

    /// Estimates and truths in nanoseconds, of epochs that have both.
    pub(super) fn pairs(&self, truth: Truth) -> impl Iterator<Item = (f64, f64)> {
        self.epochs.iter().filter_map(move |epoch| epoch.pair(truth))
    }

    /// How far the estimates are from that truth.
    pub fn errors(&self, truth: Truth) -> Errors {
        Errors::new(self.pairs(truth))
    }

    /// How far the mean estimate of each connection is from the mean truth of the same epochs.
    pub fn errors_of_connections(&self, truth: Truth) -> Errors {
        let mut sums = BTreeMap::<u16, (f64, f64)>::new();
        for (connection, (estimate, truth)) in self.epochs.iter().filter_map(|e| Some((e.connection, e.pair(truth)?))) {
            let sum = sums.entry(connection).or_default();
            *sum = (sum.0 + estimate, sum.1 + truth);
        }
        Errors::new(sums.into_values())
    }
}

impl Errors {
    /// Of estimates and truths in nanoseconds.
    pub(super) fn new(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let errors = pairs.into_iter().map(|(estimate, truth)| (estimate / truth - 1.0, estimate - truth));
        let (relative, absolute_ns): (Vec<f64>, Vec<f64>) = errors.unzip();
        Self { relative: sorted(relative), absolute_ns: sorted(absolute_ns) }
    }

    /// The share of estimates that are within so much of the truth.
    pub fn within(&self, share: f64) -> Option<f64> {
        let near = self.relative.iter().filter(|error| error.abs() <= share);
        let count = self.relative.len();
        (count > 0).then(|| near.count() as f64 / count as f64)
    }

    /// The relative error below or at which that share of the estimates lies.
    pub fn relative(&self, share: f64) -> Option<f64> {
        quantile(&self.relative, share)
    }

    /// The same without regard to signs.
    pub fn relative_size(&self, share: f64) -> Option<f64> {
        quantile(&sizes(&self.relative), share)
    }

    /// The same in nanoseconds.
    pub fn absolute_size_ns(&self, share: f64) -> Option<f64> {
        quantile(&sizes(&self.absolute_ns), share)
    }
}

fn sizes(errors: &[f64]) -> Vec<f64> {
    sorted(errors.iter().map(|error| error.abs()))
}

/// Requests of a connection whose answer came in that time.
fn answered(log: &Log, connection: u16, (start_ns, end_ns): (u64, u64)) -> impl Iterator<Item = &Request> + Clone {
    let requests = log.requests.get(&connection).map_or(&[][..], Vec::as_slice);
    requests.iter().filter(move |request| (start_ns..end_ns).contains(&request.done_ns))
}

/// Without estimate; None if no answer came then.
fn compared(log: &Log, connection: u16, span: (u64, u64)) -> Option<Compared> {
    let answered = answered(log, connection, span);
    let causal = answered.clone().filter(|request| request.triggers.is_some());
    Some(Compared {
        connection,
        start_ns: span.0,
        end_ns: span.1,
        all_ns: mean(answered.map(Request::latency_ns))?,
        causal_ns: mean(causal.map(Request::latency_ns)),
        estimate: None,
        reason: None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn request(sent_ns: u64, done_ns: u64, causal: bool) -> Request {
        Request { id: 0, sent_ns, done_ns, triggers: causal.then_some(1) }
    }

    fn epoch(connection: u16, end_ns: u64, estimate_ns: Option<u64>, of_causal: bool) -> Epoch {
        Epoch {
            connection,
            end_ns,
            estimate: estimate_ns.map(|ns| Estimate { ns, method: "runs".to_owned(), of_causal }),
            reason: estimate_ns.is_none().then(|| "too few".to_owned()),
        }
    }

    fn comparison() -> Comparison {
        let log = Log {
            requests: HashMap::from([
                (1, vec![request(5000, 5100, true), request(5000, 5300, false), request(5900, 6500, true)]),
                (2, vec![request(5000, 5500, true), request(7000, 7100, false)]),
            ]),
            ..Log::default()
        };
        let told = [
            epoch(1, 6000, Some(220), false),
            // says its end with a little jitter
            epoch(1, 7003, Some(540), true),
            epoch(2, 6000, None, false),
            epoch(2, 7000, Some(1), false),
            epoch(3, 6000, Some(1), false),
        ];
        Comparison::new("auto", &log, &told, Duration::from_nanos(1000))
    }

    #[test]
    fn an_estimate_stands_beside_the_answers_of_its_epoch_and_connection() {
        let comparison = comparison();
        let rounded = |truth| -> Vec<i64> {
            let errors = comparison.errors(truth).relative.into_iter();
            errors.map(|error| (error * 1000.0).round() as i64).collect()
        };
        assert_eq!(rounded(Truth::Own), [-100, 100]);
        assert_eq!(rounded(Truth::All), [-100, 100]);
        assert_eq!(rounded(Truth::Causal), [-100, 1200]);
        assert_eq!(comparison.errors(Truth::All).absolute_ns, [-60.0, 20.0]);
        // 220 and 540 compared with 200 and 600
        assert_eq!(comparison.errors_of_connections(Truth::All).absolute_ns, [-40.0]);
        assert_eq!(comparison.errors(Truth::Causal).within(0.15), Some(0.5));
        assert_eq!(comparison.own(), None);
        let reasons = BTreeMap::from([("not reported", 1), ("too few", 1)]);
        assert_eq!(comparison.reasons(), reasons);
        assert_eq!(comparison.methods(), BTreeMap::from([("runs", 2)]));
    }

    #[test]
    fn an_epoch_of_which_nothing_was_told_has_no_estimate() {
        let comparison = comparison();
        // 1 in two, 2 in one that was told and in one that was not; the last has no causal answer
        assert_eq!(comparison.epochs(Truth::All), 4);
        assert_eq!(comparison.epochs(Truth::Causal), 3);
        let last = comparison.epochs.last().unwrap();
        assert_eq!((last.connection, last.start_ns, last.end_ns), (2, 7000, 8000));
        assert_eq!(last.estimate, None);
    }

    #[test]
    fn sizes_of_errors_have_no_sign() {
        let errors = Errors { relative: vec![-0.4, 0.1, 0.2], absolute_ns: vec![-9.0, 1.0, 2.0] };
        assert_eq!(errors.relative(0.5), Some(0.1));
        assert_eq!(errors.within(0.3), Some(2.0 / 3.0));
        assert_eq!(errors.relative_size(0.5), Some(0.2));
        assert_eq!(errors.absolute_size_ns(0.9), Some(9.0));
    }
}
