//! Rates for people.

use std::fmt;

/// Bits a second with three significant digits in the unit that suits them, in 11 columns: "9.65 Mbit/s",
/// " 456 kbit/s".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000 {
            return write!(f, "{:>4} bit/s ", self.0);
        }
        let mut value = self.0 as f64;
        for unit in ["kbit/s", "Mbit/s", "Gbit/s"] {
            value /= 1_000.0;
            // Rounding comes first, so that 999.6 kbit/s are 1.00 Mbit/s.
            let decimals = match value {
                _ if value < 9.995 => 2,
                _ if value < 99.95 => 1,
                _ if value < 999.5 => 0,
                _ => continue,
            };
            return write!(f, "{value:>4.decimals$} {unit}");
        }
        write!(f, "{value:>4.0} Gbit/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let shown = [0, 999, 1_000, 999_499, 999_600, 9_650_000, 33_800_000_000].map(Rate);
        let shown = shown.map(|rate| rate.to_string());
        assert_eq!(
            shown,
            ["   0 bit/s ", " 999 bit/s ", "1.00 kbit/s", " 999 kbit/s", "1.00 Mbit/s", "9.65 Mbit/s", "33.8 Gbit/s"]
        );
        assert_eq!(Rate(u64::MAX).to_string(), "18446744074 Gbit/s");
    }
}
