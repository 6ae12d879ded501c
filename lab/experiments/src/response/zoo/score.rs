//! How near the estimates of `dwell response` come to the truth.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    time::Duration,
};

use dwell_engine::{stats, units::nanos};
use dwell_testbed::{Error, Result};
use serde::{Deserialize, Serialize};

use super::truth::Answer;

/// The least confidence at which an estimate is believed.
const BELIEVED: f64 = 0.7;
/// The relative error above which an estimate is wrong.
const WRONG: f64 = 0.2;
/// The factor, up or down, by which an estimate is off by far.
const FAR_OFF: f64 = 2.0;
/// The fewest answers in an epoch of which an estimate is expected, where one request at a time is under way.
pub(super) const EXPECTED_FROM: usize = 4;
/// Lower bounds of the bins of confidence.
pub(super) const BINS: [f64; 5] = [0.9, 0.8, 0.7, 0.6, 0.0];

/// What the epochs of one or several behaviours gave with one estimator.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Score {
    /// Epochs of connections in which answers ended.
    pub(super) epochs: usize,
    /// Epochs with an estimate that is valid and confident.
    pub(super) believed: usize,
    /// Believed estimates that are off by more than 20 %.
    pub(super) wrong: usize,
    /// Believed estimates that are less than half or more than twice the truth.
    pub(super) far_off: usize,
    /// Believed estimates where no answer ended, neither in the epoch nor in those next to it. They are counted above too.
    pub(super) phantom: usize,
    /// Epochs with several answers and one request at a time.
    pub(super) serial: usize,
    /// Those of them with a believed estimate.
    pub(super) serial_believed: usize,
    /// Epochs without a valid estimate, by reason.
    pub(super) reasons: BTreeMap<String, usize>,
    /// Valid estimates by confidence, from the highest bin.
    pub(super) bins: [Bin; BINS.len()],
    /// Relative errors of believed estimates, without their signs.
    #[serde(skip)]
    pub(super) errors: Vec<f64>,
}

/// Valid estimates of similar confidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Bin {
    pub(super) estimates: usize,
    /// Off by at most 10 %.
    pub(super) within_10: usize,
    /// Off by at most 20 %.
    pub(super) within_20: usize,
}

/// The type of the records that are estimates.
const EPOCH: &str = r#""type":"response.epoch""#;

#[derive(Deserialize)]
struct Record {
    /// The end of the epoch.
    time: String,
    flow: Flow,
    interval_ns: u64,
    latency: Latency,
}

#[derive(Deserialize)]
struct Flow {
    sport: Option<u16>,
}

#[derive(Deserialize)]
struct Latency {
    mean_ns: Option<u64>,
    confidence: f64,
    valid: bool,
    reason: Option<String>,
}

/// The answers of a connection that ended in an epoch.
#[derive(Default)]
struct Truth {
    answers: usize,
    sum_ns: u64,
    is_overlapping: bool,
}

impl Score {
    /// Compares the records of `dwell response` in a file with answers.
    pub(super) fn read(records: &Path, answers: &[Answer], epoch: Duration) -> Result<Self> {
        let text = fs::read_to_string(records).map_err(Error::file("read", records))?;
        Self::new(&text, answers, epoch)
    }

    fn new(records: &str, answers: &[Answer], epoch: Duration) -> Result<Self> {
        let epoch_ns = nanos(epoch);
        let truths = truths(answers, epoch_ns);
        let mut score = Self { epochs: truths.len(), ..Self::default() };
        score.serial = truths.values().filter(|truth| truth.is_serial()).count();
        for line in records.lines().filter(|line| line.contains(EPOCH)) {
            let wrong = |why| Error::invalid("record of dwell response", format!("{why}: {line}"));
            let record: Record = serde_json::from_str(line).map_err(wrong)?;
            let Some(port) = record.flow.sport else { continue };
            let time: jiff::Timestamp = record.time.parse().map_err(|why| Error::invalid("time of a record", why))?;
            let end_ns = u64::try_from(time.as_nanosecond()).unwrap_or_default();
            let number = end_ns.saturating_sub(record.interval_ns) / epoch_ns;
            let near = |number| truths.contains_key(&(port, number));
            match truths.get(&(port, number)) {
                Some(truth) => score.add(&record, truth),
                // The ACK of an answer may come in the next epoch.
                None if near(number.wrapping_sub(1)) || near(number + 1) => {}
                None if record.is_believed() => {
                    for count in [&mut score.believed, &mut score.wrong, &mut score.far_off, &mut score.phantom] {
                        *count += 1;
                    }
                }
                None => {}
            }
        }
        Ok(score)
    }

    fn add(&mut self, record: &Record, truth: &Truth) {
        let Some(estimate_ns) = record.latency.mean_ns.filter(|_| record.latency.valid) else {
            *self.reasons.entry(record.latency.reason.clone().unwrap_or_default()).or_default() += 1;
            return;
        };
        let ratio = estimate_ns as f64 / truth.mean_ns();
        let error = (ratio - 1.0).abs();
        let bin = BINS.iter().position(|&least| record.latency.confidence >= least).unwrap_or(BINS.len() - 1);
        self.bins[bin].estimates += 1;
        self.bins[bin].within_10 += usize::from(error <= 0.1);
        self.bins[bin].within_20 += usize::from(error <= WRONG);
        if record.is_believed() {
            self.believed += 1;
            self.serial_believed += usize::from(truth.is_serial());
            self.wrong += usize::from(error > WRONG);
            self.far_off += usize::from(!(1.0 / FAR_OFF..=FAR_OFF).contains(&ratio));
            self.errors.push(error);
        }
    }

    /// Adds what other epochs gave.
    pub(super) fn merge(&mut self, other: &Self) {
        self.epochs += other.epochs;
        self.believed += other.believed;
        self.wrong += other.wrong;
        self.far_off += other.far_off;
        self.phantom += other.phantom;
        self.serial += other.serial;
        self.serial_believed += other.serial_believed;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
        for (bin, of_other) in self.bins.iter_mut().zip(other.bins) {
            bin.estimates += of_other.estimates;
            bin.within_10 += of_other.within_10;
            bin.within_20 += of_other.within_20;
        }
        self.errors.extend(&other.errors);
    }

    /// The relative error of believed estimates, without its sign, that this share of them does not exceed.
    pub(super) fn error(&self, share: f64) -> Option<f64> {
        let mut sorted = self.errors.clone();
        sorted.sort_by(f64::total_cmp);
        stats::quantile(&sorted, share)
    }
}

impl Record {
    fn is_believed(&self) -> bool {
        self.latency.valid && self.latency.mean_ns.is_some() && self.latency.confidence >= BELIEVED
    }
}

impl Truth {
    fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.answers as f64
    }

    fn is_serial(&self) -> bool {
        self.answers >= EXPECTED_FROM && !self.is_overlapping
    }
}

/// By connection and number of the epoch.
fn truths(answers: &[Answer], epoch_ns: u64) -> HashMap<(u16, u64), Truth> {
    let mut sorted = answers.to_vec();
    sorted.sort_by_key(|answer| (answer.sport, answer.start_ns));
    let mut truths: HashMap<(u16, u64), Truth> = HashMap::new();
    // Until when the requests before were under way, of the same connection.
    let mut busy: (u16, u64) = (0, 0);
    for answer in &sorted {
        let truth = truths.entry((answer.sport, answer.end_ns / epoch_ns)).or_default();
        truth.answers += 1;
        truth.sum_ns += answer.end_ns - answer.start_ns;
        let is_overlapping = busy.0 == answer.sport && answer.start_ns < busy.1;
        truth.is_overlapping |= is_overlapping;
        busy = match is_overlapping {
            true => (answer.sport, busy.1.max(answer.end_ns)),
            false => (answer.sport, answer.end_ns),
        };
    }
    truths
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn answer(start_ms: u64, end_ms: u64) -> Answer {
        Answer { sport: 5000, start_ns: start_ms * 1_000_000, end_ns: end_ms * 1_000_000 }
    }

    fn record(second: u64, response_ms: u64, confidence: f64, reason: &str) -> String {
        let valid = reason == "null";
        format!(
            r#"{{"type":"response.epoch","time":"1970-01-01T00:00:{second:02}Z","flow":{{"sport":5000}},"interval_ns":1000000000,"latency":{{"mean_ns":{},"confidence":{confidence},"valid":{valid},"reason":{reason}}}}}"#,
            response_ms * 1_000_000
        )
    }

    #[test]
    fn an_estimate_is_compared_with_the_answers_that_ended_in_its_epoch() {
        // Means of 20, 20 and 30 ms.
        let answers: Vec<Answer> =
            [(100, 110), (200, 230), (1_000, 1_020), (2_000, 2_030)].map(|(s, e)| answer(s, e)).into();
        let records = [
            record(1, 21, 0.95, "null"),
            record(2, 45, 0.9, "null"),
            record(3, 38, 0.65, "null"),
            record(5, 30, 0.9, "null"),
            record(7, 30, 0.9, "null"),
        ];
        let score = Score::new(&records.join("\n"), &answers, SECOND).unwrap();
        assert_eq!((score.epochs, score.believed, score.wrong, score.far_off, score.phantom), (3, 4, 3, 3, 2));
        let bin = |estimates, within_10, within_20| Bin { estimates, within_10, within_20 };
        assert_eq!((score.bins[0], score.bins[3]), (bin(2, 1, 1), bin(1, 0, 0)));
        assert!((score.error(0.5).unwrap() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_refusal_counts_by_its_reason() {
        let records = [record(1, 21, 0.95, r#""staggered""#), record(2, 21, 0.95, r#""staggered""#)];
        let score = Score::new(&records.join("\n"), &[answer(0, 10), answer(1_000, 1_100)], SECOND).unwrap();
        assert_eq!((score.epochs, score.believed), (2, 0));
        assert_eq!(score.reasons, BTreeMap::from([("staggered".to_owned(), 2)]));
        let mut both = score.clone();
        both.merge(&score);
        assert_eq!((both.epochs, both.reasons["staggered"]), (4, 4));
    }

    #[test]
    fn an_epoch_is_serial_if_its_several_requests_do_not_overlap() {
        let mut answers: Vec<Answer> = (0..5).map(|n| answer(n * 100, n * 100 + 50)).collect();
        let serial = |answers: &[Answer]| Score::new("", answers, SECOND).unwrap().serial;
        assert_eq!(serial(&answers), 1);
        assert_eq!(serial(&answers[..EXPECTED_FROM - 1]), 0);
        answers.push(answer(440, 500));
        assert_eq!(serial(&answers), 0);
    }
}
