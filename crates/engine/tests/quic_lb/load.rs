//! Waiting times encoded in 16 bits.

use std::time::Duration;

use dwell_engine::quic_lb::Load;
use proptest::prelude::*;

const NS: fn(u64) -> Duration = Duration::from_nanos;

#[test]
fn what_is_not_known_is_not_none_and_less_than_all() {
    assert_eq!(Load::UNKNOWN.wait(), None);
    assert_eq!(Load::default(), Load::UNKNOWN);
    let none = Load::from_wait(Duration::ZERO);
    assert_eq!((none.code(), none.wait()), (1, Some(Duration::ZERO)));
    assert!(Load::UNKNOWN < none && none < Load::from_wait(NS(1)));
}

#[test]
fn what_is_short_is_exact_and_what_is_long_is_the_longest() {
    for ns in 0..2048 {
        assert_eq!(Load::from_wait(NS(ns)).wait(), Some(NS(ns)));
    }
    let longest = Load::from_wait(NS(1 << 42));
    assert_eq!(Load::from_wait(Duration::MAX), longest);
    assert_eq!(longest.wait(), Some(NS(1 << 42)));
    assert_eq!(Load::from_code(u16::MAX).wait(), Some(NS(1 << 42)));
}

#[test]
fn every_code_is_the_code_of_its_wait() {
    let longest = Load::from_wait(Duration::MAX).code();
    for code in 1..=longest {
        let wait = Load::from_code(code).wait().expect("it is known");
        assert_eq!(Load::from_wait(wait).code(), code);
    }
}

proptest! {
    #[test]
    fn an_error_is_at_most_one_in_2048(exponent in 0u32..42, low: u64) {
        let ns = (1 << exponent) + low % (1 << exponent);
        let told = Load::from_wait(NS(ns)).wait().expect("it is known").as_nanos() as u64;
        prop_assert!(told.abs_diff(ns) * 2048 <= ns, "{} for {}", told, ns);
    }

    #[test]
    fn codes_compare_like_waits(a in 0u64..1 << 43, b in 0u64..1 << 43) {
        let (a, b) = (a.min(b), a.max(b));
        prop_assert!(Load::from_wait(NS(a)) <= Load::from_wait(NS(b)));
    }
}
