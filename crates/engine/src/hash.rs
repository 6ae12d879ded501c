//! The mixing function of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators"): the same
//! results on all machines and in all versions.

/// The increment between two states of a SplitMix64 generator.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes the bits of a word so that each input bit affects each output bit. A bijection; 0 maps to 0.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns the first output of a SplitMix64 generator that is seeded with `word`.
pub fn split_mix(word: u64) -> u64 {
    mix(word.wrapping_add(GOLDEN_GAMMA))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outputs of the authors' reference implementation for seed 0.
    #[test]
    fn outputs_are_those_of_the_reference_implementation() {
        assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(split_mix(GOLDEN_GAMMA), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(mix(0), 0);
    }
}
