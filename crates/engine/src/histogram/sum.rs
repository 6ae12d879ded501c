//! Sums of many histograms, which are faster to make than by merging one [`Histogram`] after the other.

use super::{BytesError, Histogram, bucket_of, bytes};
use crate::abi;

/// Buckets that are set aside together: those of a power of two.
const PIECE: usize = 1 << abi::DWELL_GROUPING_POWER;
const PIECES: usize = (abi::DWELL_BUCKETS as usize).div_ceil(PIECE);

/// A histogram that is to be added to sums. Its memory is used again for the next one.
#[derive(Debug, Clone, Default)]
pub struct Addend {
    /// All but the buckets.
    figures: Histogram,
    /// The filled buckets.
    buckets: Vec<(u16, u64)>,
}

impl Addend {
    /// Makes it the histogram that [`Histogram::to_bytes`] has encoded.
    ///
    /// # Errors
    ///
    /// As [`Histogram::from_bytes`]; it is of no use then.
    pub fn decode(&mut self, encoded: &[u8]) -> Result<(), BytesError> {
        self.buckets.clear();
        self.figures = bytes::read(encoded, |bucket, count| self.buckets.push((bucket, count)))?;
        Ok(())
    }

    /// Makes it one value that was counted several times.
    pub fn repeat(&mut self, value_ns: u64, count: u64) {
        self.buckets.clear();
        self.figures = Histogram::default();
        if count > 0 {
            self.figures.note(count, u128::from(value_ns) * u128::from(count), value_ns, value_ns);
            self.buckets.push((bucket_of(value_ns), count));
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.figures.count
    }
}

/// The sum of histograms. It takes 512 bytes for each power of two in which a value lies.
#[derive(Debug, Clone, Default)]
pub struct HistogramSum {
    /// All but the buckets.
    figures: Histogram,
    pieces: [Option<Box<[u64; PIECE]>>; PIECES],
}

impl HistogramSum {
    /// Adds a histogram.
    pub fn add(&mut self, addend: &Addend) {
        let Addend { figures, buckets } = addend;
        if figures.count == 0 {
            return;
        }
        self.figures.note(figures.count, figures.sum_ns, figures.min_ns, figures.max_ns);
        for (bucket, count) in buckets {
            let bucket = usize::from(*bucket);
            let piece = self.pieces[bucket / PIECE].get_or_insert_with(|| Box::new([0; PIECE]));
            piece[bucket % PIECE] += count;
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &HistogramSum) {
        let figures = &other.figures;
        if figures.count == 0 {
            return;
        }
        self.figures.note(figures.count, figures.sum_ns, figures.min_ns, figures.max_ns);
        for (own, piece) in self.pieces.iter_mut().zip(&other.pieces) {
            let Some(piece) = piece else { continue };
            let own = own.get_or_insert_with(|| Box::new([0; PIECE]));
            own.iter_mut().zip(piece.iter()).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.figures.count
    }

    /// Returns the mean, rounded down, or `None` if there are no values.
    pub fn mean_ns(&self) -> Option<u64> {
        self.figures.mean_ns()
    }

    /// Returns the maximum, or `None` if there are no values.
    pub fn max_ns(&self) -> Option<u64> {
        self.figures.max_ns()
    }

    /// Returns the values at several quantiles, as [`Histogram::quantiles_ns`].
    pub fn quantiles_ns<const N: usize>(&self, ascending: [f64; N]) -> [Option<u64>; N] {
        self.figures.quantiles_of(|| self.filled(), ascending)
    }

    /// Returns the sum.
    pub fn finish(self) -> Histogram {
        let buckets = self.filled().collect();
        Histogram { buckets, ..self.figures }
    }

    /// Returns the filled buckets in ascending order, and their counts.
    fn filled(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let pieces = (0..).zip(&self.pieces).filter_map(|(number, piece)| Some((number, piece.as_ref()?)));
        let buckets = pieces.flat_map(|(number, piece)| {
            (0..).zip(piece.iter()).map(move |(bucket, count)| (number * PIECE as u16 + bucket, *count))
        });
        buckets.filter(|(_, count)| *count > 0)
    }
}

impl Histogram {
    /// Adds a histogram that was decoded.
    pub fn add(&mut self, Addend { figures, buckets }: &Addend) {
        if figures.count == 0 {
            return;
        }
        self.note(figures.count, figures.sum_ns, figures.min_ns, figures.max_ns);
        for (bucket, count) in buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sum_is_what_merging_gives(all in prop::collection::vec(prop::collection::vec((0_u64..1 << 40, 0_u64..5), 0..20), 0..10)) {
            let (mut merged, mut sum, mut addend) = (Histogram::default(), HistogramSum::default(), Addend::default());
            let (mut added, mut sums) = (Histogram::default(), HistogramSum::default());
            for values in all {
                let mut one = Histogram::default();
                values.iter().for_each(|(ns, count)| one.record_many(*ns, *count));
                merged.merge(&one);
                addend.decode(&one.to_bytes()).unwrap();
                prop_assert_eq!(addend.count(), one.count());
                sum.add(&addend);
                added.add(&addend);
                let mut own = HistogramSum::default();
                own.add(&addend);
                sums.merge(&own);
                if let Some((ns, count)) = values.first() {
                    merged.record_many(*ns, *count);
                    addend.repeat(*ns, *count);
                    sum.add(&addend);
                    added.add(&addend);
                    let mut own = HistogramSum::default();
                    own.add(&addend);
                    sums.merge(&own);
                }
            }
            prop_assert_eq!((sum.count(), sum.mean_ns(), sum.max_ns()), (merged.count(), merged.mean_ns(), merged.max_ns()));
            let quantiles = [0.0, 0.5, 0.99];
            prop_assert_eq!(sum.quantiles_ns(quantiles), merged.quantiles_ns(quantiles));
            prop_assert_eq!(sums.finish(), merged.clone());
            prop_assert_eq!(added, merged.clone());
            prop_assert_eq!(sum.finish(), merged);
        }
    }
}
