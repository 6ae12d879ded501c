pub use dwell_engine::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The rate of a link. Zero is not valid, and is refused when a configuration is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct BitsPerSecond(u64);

impl BitsPerSecond {
    /// `None` for zero.
    pub const fn new(bits_per_second: u64) -> Option<Self> {
        if bits_per_second == 0 { None } else { Some(Self(bits_per_second)) }
    }

    /// Returns how long the link takes to send this many bytes, rounded up.
    pub fn serialization(self, bytes: Bytes) -> Nanos {
        let ns = (u128::from(bytes.0) * 8_000_000_000).div_ceil(u128::from(self.0));
        Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl TryFrom<u64> for BitsPerSecond {
    type Error = &'static str;
    fn try_from(value: u64) -> Result<Self, Self::Error> {
        Self::new(value).ok_or("a rate must be above zero; leave it out for an unlimited link")
    }
}

impl From<BitsPerSecond> for u64 {
    fn from(rate: BitsPerSecond) -> Self {
        rate.0
    }
}

/// A probability from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Probability(f64);

impl Probability {
    /// The probability of what never happens.
    pub const NEVER: Self = Self(0.0);

    /// `None` outside 0 to 1.
    pub fn new(probability: f64) -> Option<Self> {
        (0.0..=1.0).contains(&probability).then_some(Self(probability))
    }

    /// Returns whether the event happens, given 64 random bits. The upper 53 decide, so that probability 0 never
    /// happens and 1 always does.
    pub fn hits(self, random: u64) -> bool {
        ((random >> 11) as f64) < self.0 * (1u64 << 53) as f64
    }
}

impl TryFrom<f64> for Probability {
    type Error = &'static str;
    fn try_from(value: f64) -> Result<Self, Self::Error> {
        Self::new(value).ok_or("a probability is from 0 to 1")
    }
}

impl From<Probability> for f64 {
    fn from(probability: Probability) -> Self {
        probability.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialization_rounds_up() {
        let rate = BitsPerSecond::new(10_000_000).unwrap();
        assert_eq!(rate.serialization(Bytes(1500)), Nanos(1_200_000));
        assert_eq!(BitsPerSecond::new(3_000_000_000).unwrap().serialization(Bytes(1)), Nanos(3));
    }

    #[test]
    fn probability_hits_at_its_edges() {
        assert!(!Probability::NEVER.hits(0));
        assert!(Probability::new(1.0).unwrap().hits(u64::MAX));
        let half = Probability::new(0.5).unwrap();
        assert!(half.hits((1 << 63) - 1));
        assert!(!half.hits(1 << 63));
        assert!(Probability::new(1.01).is_none());
        assert!(Probability::new(f64::NAN).is_none());
    }

    #[test]
    fn a_rate_of_zero_is_refused_where_it_is_read() {
        assert!(serde_json::from_str::<BitsPerSecond>("0").is_err());
        assert!(serde_json::from_str::<Probability>("1.5").is_err());
    }
}
