//! Fuzz targets of dwell.
//!
//! A target is a function of bytes that panics if an invariant is violated. libFuzzer drives it (`cargo +nightly fuzz run
//! tcp`), a test runs all inputs in `corpus/` through it, and without libFuzzer each target's program runs the files
//! named on its command line.
//!
//! While fuzzing, AddressSanitizer checks the C core as well as the Rust code, undefined behaviour in C traps, and both
//! report their coverage to libFuzzer.
//!
//! [`seeds`] generates the initial inputs; `cargo run --example seeds` writes them.

pub mod bytes;
pub mod frame;
pub mod seeds;
pub mod targets;
pub mod watch;

use std::{collections::BTreeSet, path::PathBuf};

use dwell_engine::measure::Method;

/// A target, which panics if an invariant is violated. It returns the methods that gave samples.
pub type Target = fn(&[u8]) -> BTreeSet<Method>;

/// All targets with their names.
pub const TARGETS: [(&str, Target); 17] = [
    ("balancer", targets::balancer),
    ("capture", targets::capture),
    ("clock", targets::clock),
    ("dns", targets::dns),
    ("filter", targets::filter),
    ("fleet", targets::fleet),
    ("icmp", targets::icmp),
    ("labels", targets::labels),
    ("packet", targets::packet),
    ("quic", targets::quic),
    ("replay", targets::replay),
    ("response", targets::response),
    ("response_replay", targets::response_replay),
    ("socket", targets::socket),
    ("tcp", targets::tcp),
    ("token", targets::token),
    ("trace", targets::trace),
];

/// Returns the folder of a target's inputs.
pub fn corpus(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "corpus", target].iter().collect()
}

/// Defines the program of a target.
#[macro_export]
macro_rules! entry {
    ($target:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            $crate::targets::$target(bytes);
        });

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            for path in std::env::args_os().skip(1) {
                $crate::targets::$target(&std::fs::read(path)?);
            }
            Ok(())
        }
    };
}
