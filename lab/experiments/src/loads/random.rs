//! The distributions that loads draw from.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};

/// A generator for one purpose of one member of a load, the same for the same three numbers.
pub(crate) fn generator(seed: u64, purpose: u64, member: u64) -> Xoshiro256PlusPlus {
    // Odd factors keep members of neighbouring seeds apart; the seeding itself mixes the bits.
    let seed = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(purpose.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(member.wrapping_mul(0x94d0_49bb_1331_11eb));
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// A standard normal value (Box and Muller).
pub(crate) fn normal(random: &mut impl RngExt) -> f64 {
    // 1 - u is never zero, so that the logarithm is finite.
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (TAU * random.random::<f64>()).cos()
}

/// An exponential value of that mean.
pub(crate) fn exponential(random: &mut impl RngExt, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distributions_have_their_moments() {
        let mut random = generator(1, 2, 3);
        let count = 20_000;
        let normals: Vec<f64> = (0..count).map(|_| normal(&mut random)).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(count);
        let variance = normals.iter().map(|x| x * x).sum::<f64>() / f64::from(count);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let sum: f64 = (0..count).map(|_| exponential(&mut random, 7.0)).sum();
        assert!((sum / f64::from(count) - 7.0).abs() < 0.2, "{sum}");
    }

    #[test]
    fn members_differ_and_repeat() {
        let draw = |seed, purpose, member| generator(seed, purpose, member).random::<u64>();
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 2, 4));
        assert_ne!(draw(1, 2, 3), draw(1, 3, 3));
        assert_ne!(draw(1, 2, 3), draw(2, 2, 3));
    }
}
