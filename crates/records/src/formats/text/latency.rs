//! Latencies for people.

use std::fmt;

/// A latency in nanoseconds, shown with three significant digits in the unit
/// that suits it, in 7 columns: "1.23 ms", " 456 µs", "12.3 s ". From 1,000 s
/// on it takes more columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency(pub u64);

const UNITS: [(u64, &str); 3] = [(1_000, "µs"), (1_000_000, "ms"), (1_000_000_000, "s")];

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        if ns < 1_000 {
            return write!(f, "{ns:>4} ns");
        }
        for (unit_ns, unit) in UNITS {
            for (scale, decimals) in [(100, 2), (10, 1), (1, 0)] {
                // Rounding comes first, so that 999.6 µs is 1.00 ms.
                let step = unit_ns / scale;
                let steps = ns / step + u64::from(ns % step >= step.div_ceil(2));
                let (whole, part) = (steps / scale, steps % scale);
                match decimals {
                    _ if steps >= 1_000 => {}
                    0 => return write!(f, "{whole:>4} {unit:<2}"),
                    1 => return write!(f, "{whole:>2}.{part} {unit:<2}"),
                    _ => return write!(f, "{whole}.{part:02} {unit:<2}"),
                }
            }
        }
        let seconds = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 500_000_000);
        write!(f, "{seconds:>4} s ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_unit_that_suits() {
        for (ns, want) in [
            (0, "   0 ns"),
            (789, " 789 ns"),
            (999, " 999 ns"),
            (1_000, "1.00 µs"),
            (1_005, "1.01 µs"),
            (9_994, "9.99 µs"),
            (9_995, "10.0 µs"),
            (99_949, "99.9 µs"),
            (99_950, " 100 µs"),
            (456_000, " 456 µs"),
            (999_499, " 999 µs"),
            (999_500, "1.00 ms"),
            (1_234_567, "1.23 ms"),
            (25_000_000, "25.0 ms"),
            (999_499_999, " 999 ms"),
            (999_500_000, "1.00 s "),
            (12_345_678_901, "12.3 s "),
            (999_499_999_999, " 999 s "),
            (999_500_000_000, "1000 s "),
            (u64::MAX, "18446744074 s "),
        ] {
            assert_eq!(Latency(ns).to_string(), want, "{ns} ns");
        }
    }
}
