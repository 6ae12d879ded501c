//! Latencies of single answers, from the histogram that the core keeps of the turns of an epoch.

use crate::{
    abi,
    response::{Epoch, Estimate, Method},
};

/// Buckets in each power of two.
const PER_OCTAVE: u32 = 4;

/// The answers of an epoch by latency: quarter octaves from 33 µs to 2.1 s. Latencies below are in the first bucket, and
/// those above in the last one, up to the longest time that counts as a response. Of answers that took longer only the
/// number is known.
#[derive(Debug, Clone, Copy)]
pub struct Answers<'a> {
    epoch: &'a Epoch,
    counted: u64,
}

/// Answers of about the same latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Its lower edge.
    pub least_ns: u64,
    /// Its middle, moved within it by the factor with which all answers have the mean that is known.
    pub ns: u64,
    /// Its upper edge. `None`: longer than what counts as a response.
    pub most_ns: Option<u64>,
    /// How many answers.
    pub count: u64,
}

/// A quantile, and what it may be as far as ends of answers are unknown and buckets are wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantile {
    /// Interpolated within its bucket. `None` if it is longer than what counts as a response.
    pub ns: Option<u64>,
    /// The lower edge of the bucket in which it lies if all answers with unknown ends are the shortest.
    pub least_ns: u64,
    /// The upper edge of the bucket in which it lies, if there is one.
    pub most_ns: Option<u64>,
}

impl<'a> Answers<'a> {
    /// Returns the answers of an epoch whose estimate is valid. `None` if its method does not know single answers.
    pub fn of(epoch: &'a Epoch, estimate: &Estimate) -> Option<Answers<'a>> {
        let counted = epoch.log.iter().map(|count| u64::from(*count)).sum();
        (estimate.method == Method::Turns && estimate.is_valid() && counted > 0).then_some(Answers { epoch, counted })
    }

    /// Returns the buckets that have answers, ascending. The core counts a sample of many answers: numbers are rounded, so
    /// that they add up to all answers. Those that took longer than what counts as a response come last, with that time.
    pub fn buckets(self) -> impl Iterator<Item = Bucket> + 'a {
        let answered = u64::from(self.epoch.answered);
        let sum: f64 = self.filled().map(|(index, count)| middle_ns(self.epoch, index) * count as f64).sum();
        let mean_ns = self.epoch.answered_ns as f64 / answered.max(1) as f64;
        let factor = mean_ns * self.counted as f64 / sum;
        let mut below = 0;
        let scaled = move |count: u64| (count * answered + self.counted / 2) / self.counted;
        let buckets = self.filled().map(move |(index, counted)| {
            let count = scaled(below + counted) - scaled(below);
            below += counted;
            let (least_ns, most_ns) = (lower_ns(index), upper_ns(self.epoch, index));
            let ns = ((middle_ns(self.epoch, index) * factor) as u64).clamp(least_ns, most_ns);
            Bucket { least_ns, ns, most_ns: Some(most_ns), count }
        });
        let (idle_ns, count) = (self.epoch.idle_ns, self.epoch.overlong.into());
        let longer = Bucket { least_ns: idle_ns, ns: idle_ns, most_ns: None, count };
        buckets.chain([longer]).filter(|bucket| bucket.count > 0)
    }

    /// Returns the number of answers whose end is unknown: they may have ended earlier than they count.
    pub fn unsure(self) -> u64 {
        self.epoch.unsure.into()
    }

    /// Returns a quantile, from 0 to 1.
    pub fn quantile(self, q: f64) -> Quantile {
        let unknown = f64::from(self.epoch.unsure) / self.all();
        let found = self.locate(q);
        let least_ns = |found: Option<(u32, f64)>| found.map_or(self.epoch.idle_ns, |(index, _)| lower_ns(index));
        Quantile {
            ns: found.map(|(index, within)| {
                let (low, high) = (lower_ns(index), upper_ns(self.epoch, index));
                low + ((high - low) as f64 * within) as u64
            }),
            least_ns: least_ns(self.locate((q - unknown).max(0.0))),
            most_ns: found.map(|(index, _)| upper_ns(self.epoch, index)),
        }
    }

    /// Returns the number of answers, with those that took longer than what counts as a response.
    fn all(self) -> f64 {
        f64::from(self.epoch.answered) + f64::from(self.epoch.overlong)
    }

    /// Returns the bucket of a quantile, and how far into it the quantile lies. `None`: beyond all buckets.
    fn locate(self, q: f64) -> Option<(u32, f64)> {
        let rank = q * self.all() * self.counted as f64 / f64::from(self.epoch.answered.max(1));
        let mut below = 0.0;
        let mut last = None;
        for (index, count) in self.filled() {
            if below + count as f64 >= rank {
                return Some((index, ((rank - below) / count as f64).clamp(0.0, 1.0)));
            }
            below += count as f64;
            last = Some((index, 1.0));
        }
        last.filter(|_| self.epoch.overlong == 0) // a rank is rounded
    }

    fn filled(self) -> impl Iterator<Item = (u32, u64)> + 'a {
        let counts = self.epoch.log.iter().map(|count| u64::from(*count));
        (0..abi::DWELL_ANSWER_LOGS).zip(counts).filter(|(_, count)| *count > 0)
    }
}

fn middle_ns(epoch: &Epoch, index: u32) -> f64 {
    (lower_ns(index) + upper_ns(epoch, index)) as f64 / 2.0
}

/// Returns the lower edge of a bucket.
fn lower_ns(index: u32) -> u64 {
    if index == 0 {
        return 0;
    }
    let octave = 1_u64 << (abi::DWELL_ANSWER_LOG_MIN + index / PER_OCTAVE);
    octave + octave / u64::from(PER_OCTAVE) * u64::from(index % PER_OCTAVE)
}

/// Returns the upper edge of a bucket: of the last one, the longest time that counts as a response.
fn upper_ns(epoch: &Epoch, index: u32) -> u64 {
    match index + 1 {
        abi::DWELL_ANSWER_LOGS => epoch.idle_ns.max(lower_ns(index)),
        next => lower_ns(next),
    }
}
