//! Random numbers that are the same on all machines: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
//! number generators").
//!
//! This is not a generator of the crate `rand`, because the figures in README.md, docs/guide/sim.md and
//! docs/method/simulation.md are those of this sequence: another generator would change all of them.

use dwell_engine::hash::{GOLDEN_GAMMA, mix};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    #[cfg(test)]
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The stream of a number: independent of the streams of other numbers with the same seed.
    pub(crate) fn stream(seed: u64, number: u64) -> Random {
        Random(mix(seed ^ mix(number)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// Draws uniformly from [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws uniformly from 0 to `end` - 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Draws uniformly between two times.
    pub(crate) fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + (self.unit() * (high - low) as f64) as u64
    }

    /// Draws the time to the next event of a Poisson process with this mean.
    pub(crate) fn exponential(&mut self, mean_ns: f64) -> u64 {
        (-mean_ns * (1.0 - self.unit()).ln()) as u64
    }
}

/// The Zipf distribution of the numbers from 1 on: n has a probability proportional to n to the power of -skew.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    /// Cumulative probability of n, at index n - 1.
    cumulative: Vec<f64>,
    mean: f64,
}

impl Zipf {
    /// The distribution over 1 to `max`, which is at least 1.
    pub(crate) fn new(max: u32, skew: f64) -> Zipf {
        let weight = |n: u32| f64::from(n).powf(-skew);
        let total: f64 = (1..=max).map(weight).sum();
        let mean = (1..=max).map(|n| weight(n) * f64::from(n)).sum::<f64>() / total;
        let mut sum = 0.0;
        let cumulative = (1..=max).map(|n| {
            sum += weight(n) / total;
            sum
        });
        Zipf { cumulative: cumulative.collect(), mean }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        let drawn = random.unit();
        let below = self.cumulative.partition_point(|sum| *sum <= drawn);
        below.min(self.cumulative.len() - 1) as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_agree_with_the_reference() {
        let mut random = Random::new(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn means_agree_with_the_distributions() {
        let mut random = Random::new(1);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..200_000).map(|_| draw()).sum::<f64>() / 2e5;
        assert!((mean(&mut || random.exponential(1e6) as f64) / 1e6 - 1.0).abs() < 0.01);
        assert!((mean(&mut || random.between((1000, 3000)) as f64) / 2e3 - 1.0).abs() < 0.01);
        assert!((mean(&mut || random.below(11) as f64) / 5.0 - 1.0).abs() < 0.01);
        // (1 + 1/2 + 1/3) / (1 + 1/4 + 1/9)
        let zipf = Zipf::new(3, 2.0);
        let expected = (1.0 + 0.5 + 1.0 / 3.0) / (1.0 + 0.25 + 1.0 / 9.0);
        assert!((zipf.mean() - expected).abs() < 1e-12);
        assert!((mean(&mut || f64::from(zipf.draw(&mut random))) / expected - 1.0).abs() < 0.01);
    }
}
