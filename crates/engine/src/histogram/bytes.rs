//! Histograms as bytes, for the wire and for files.
//!
//! The first byte is the version. Numbers in LEB128 follow (seven bits per byte, least significant first): the count,
//! the minimum, the maximum and the sum, then for each filled bucket, in ascending order, its distance from the
//! previous filled bucket (for the first one, from bucket -1) and its count. A histogram with n filled buckets takes
//! about 3 n bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::Histogram;
use crate::abi;

const VERSION: u8 = 1;

/// The largest number that is accepted. A greater one is not plausible, and could overflow a sum.
const MOST: u64 = 1 << 56;

/// The reason why bytes are not a valid histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BytesError {
    /// The bytes end too early, or continue after the end.
    #[error("the bytes of a histogram are cut off, or too many")]
    Length,
    /// Another version of dwell wrote the bytes.
    #[error("a histogram has version {0}, and this dwell knows {VERSION} only")]
    Version(u8),
    /// No histogram has these numbers.
    #[error("the bytes of a histogram contradict each other")]
    Contradiction,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.to_bytes())
    }
}

impl<'a> Deserialize<'a> for Histogram {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Histogram, D::Error> {
        Histogram::from_bytes(Deserialize::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Histogram {
    /// Encodes the histogram.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for number in [self.count, self.min_ns, self.max_ns] {
            put(&mut bytes, number.into());
        }
        put(&mut bytes, self.sum_ns);
        let mut last = -1;
        for (bucket, count) in &self.buckets {
            let bucket = i32::from(*bucket);
            put(&mut bytes, (bucket - last) as u128);
            put(&mut bytes, (*count).into());
            last = bucket;
        }
        bytes
    }

    /// Decodes a histogram. The result can be merged and queried like any other, even if the bytes are untrusted. The
    /// counts of the buckets need not add up to the total count, because a flow's histogram is read while the kernel
    /// updates it.
    ///
    /// # Errors
    ///
    /// [`BytesError`] if the bytes are not a valid histogram.
    pub fn from_bytes(bytes: &[u8]) -> Result<Histogram, BytesError> {
        let mut buckets = BTreeMap::new();
        let figures = read(bytes, |bucket, count| {
            buckets.insert(bucket, count);
        })?;
        Ok(Histogram { buckets, ..figures })
    }
}

/// Decodes a histogram, and calls `each` with the number and the count of its filled buckets in ascending order. Returns it
/// without them.
pub(super) fn read(bytes: &[u8], mut each: impl FnMut(u16, u64)) -> Result<Histogram, BytesError> {
    let (version, mut rest) = bytes.split_first().ok_or(BytesError::Length)?;
    if *version != VERSION {
        return Err(BytesError::Version(*version));
    }
    let histogram = Histogram {
        count: take_small(&mut rest)?,
        min_ns: take_small(&mut rest)?,
        max_ns: take_small(&mut rest)?,
        sum_ns: take(&mut rest)?,
        buckets: BTreeMap::new(),
    };
    let is_empty = rest.is_empty();
    let mut next = 0;
    while !rest.is_empty() {
        let distance = take_small(&mut rest)?;
        let count = take_small(&mut rest)?;
        let bucket = (next + distance).checked_sub(1);
        let bucket = bucket.filter(|bucket| *bucket < abi::DWELL_BUCKETS.into());
        let (Some(bucket), 1..) = (bucket, distance.min(count)) else {
            return Err(BytesError::Contradiction);
        };
        each(bucket as u16, count);
        next = bucket + 1;
    }
    let mean_is_small = histogram.sum_ns <= u128::from(histogram.count) * u128::from(MOST);
    if histogram.min_ns > histogram.max_ns
        || !mean_is_small
        || is_empty != (histogram.count == 0)
        || is_empty && histogram.max_ns > 0
    {
        return Err(BytesError::Contradiction);
    }
    Ok(histogram)
}

fn put(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Result<u128, BytesError> {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(BytesError::Length)?;
        *bytes = rest;
        if shift > 112 {
            return Err(BytesError::Contradiction);
        }
        number |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(number)
}

fn take_small(bytes: &mut &[u8]) -> Result<u64, BytesError> {
    // Most are.
    if let [byte @ 0..0x80, rest @ ..] = bytes {
        let number = u64::from(*byte);
        *bytes = rest;
        return Ok(number);
    }
    let number = take(bytes)?;
    match u64::try_from(number) {
        Ok(number) if number <= MOST => Ok(number),
        _ => Err(BytesError::Contradiction),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn the_format_is_as_documented() {
        assert_eq!(Histogram::default().to_bytes(), [1, 0, 0, 0, 0]);
        let bytes = of(&[0, 5, 5, 300]).to_bytes();
        // 300 ns is in bucket 128 + (300 - 256) / 4 + 64 = 203, at distance 198 from bucket 5.
        assert_eq!(bytes, [1, 4, 0, 0xac, 2, 0xb6, 2, 1, 1, 5, 2, 0xc6, 1, 1]);
    }

    #[test]
    fn impossible_histograms_are_refused() {
        use BytesError::*;
        for (bytes, why) in [
            (&[][..], Length),
            (&[2, 0, 0, 0, 0], Version(2)),
            (&[1, 0, 0, 0], Length),
            (&[1, 1, 5, 5, 5, 6], Length),
            (&[1, 1, 5, 5, 0x80], Length),
            (&[1, 1, 5, 5, 5], Contradiction),
            (&[1, 0, 0, 5, 0], Contradiction),
            (&[1, 0, 0, 0, 5], Contradiction),
            (&[1, 1, 6, 5, 5, 6, 1], Contradiction),
            (&[1, 1, 5, 5, 5, 0, 1], Contradiction),
            (&[1, 1, 5, 5, 5, 6, 0], Contradiction),
            (&[1, 1, 5, 5, 5, 0x81, 0x10, 1], Contradiction),
        ] {
            assert_eq!(Histogram::from_bytes(bytes), Err(why), "{bytes:?}");
        }
        assert_eq!(Histogram::from_bytes(&[1, 1, 5, 5, 5, 6, 1]), Ok(of(&[5])));
    }

    /// The entry of a flow that was read between the update of its count and the update of its bucket.
    #[test]
    fn values_that_are_in_no_bucket_do_not_hide_the_others() {
        let bytes = [1, 0x80, 0x80, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1];
        let histogram = Histogram::from_bytes(&bytes).unwrap();
        assert_eq!(histogram.count(), 16_384);
        assert_eq!(histogram.quantile_ns(0.5), Some(0));
    }

    proptest! {
        #[test]
        fn bytes_give_the_histogram_back(values in prop::collection::vec(0u64..1 << 40, 0..100)) {
            let histogram = of(&values);
            prop_assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), Ok(histogram));
        }

        #[test]
        fn untrusted_bytes_give_a_histogram_that_can_be_queried(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(histogram) = Histogram::from_bytes(&[&[VERSION], &bytes[..]].concat()) {
                let mut merged = of(&[1, 1 << 40]);
                merged.merge(&histogram);
                prop_assert!(merged.quantile_ns(0.5).is_some() && merged.mean_ns().is_some());
            }
        }
    }
}
