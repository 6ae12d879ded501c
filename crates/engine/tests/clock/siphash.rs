//! SipHash, compared with the paper's vector and with another implementation.

#[allow(deprecated, reason = "nothing else in std is SipHash-2-4 by contract")]
use std::hash::{Hasher, SipHasher};

use dwell_engine::clock::{Key, native::siphash};
use proptest::prelude::*;

/// "SipHash: a fast short-input PRF", appendix A.
#[test]
fn the_papers_example_comes_out() {
    let key = Key(std::array::from_fn(|at| at as u8));
    let message: [u8; 15] = std::array::from_fn(|at| at as u8);
    assert_eq!(siphash(&key, &message), 0xa129_ca61_49be_45e5);
}

/// The first of the vectors from the authors' own implementation.
#[test]
fn short_messages_come_out() {
    let key = Key(std::array::from_fn(|at| at as u8));
    assert_eq!(siphash(&key, &[]), 0x726f_db47_dd0e_0e31);
    assert_eq!(siphash(&key, &[0]), 0x74f8_39c5_93dc_67fd);
    assert_eq!(siphash(&key, &[0, 1, 2, 3, 4, 5, 6, 7]), 0x93f5_f579_9a93_2462);
}

proptest! {
    #[test]
    fn it_is_that_of_the_standard_library(key: [u8; 16], message: Vec<u8>) {
        let half = |at: usize| u64::from_le_bytes(key[at..at + 8].try_into().unwrap());
        #[allow(deprecated)]
        let mut hasher = SipHasher::new_with_keys(half(0), half(8));
        hasher.write(&message);
        prop_assert_eq!(siphash(&Key(key), &message), hasher.finish());
    }
}
