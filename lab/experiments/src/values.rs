//! Values of options that several experiments share.

use dwell_testbed::{Nanos, Probability, Reorder};

/// Reordering: with this probability a packet is held 5 ms longer than the others.
pub fn reorder(probability: Probability) -> Reorder {
    Reorder { probability, extra_ns: Nanos(5_000_000) }
}

/// A rate in bits per second: "500k", "10M", "1G".
pub fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.find(|c: char| c.is_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err("the unit is k, M or G bits per second".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number * factor <= 1e12 => Ok((number * factor) as u64),
        _ => Err("write a rate as in 500k, 10M or 1G".into()),
    }
}

/// A time in whole seconds, from two of them to an hour.
pub fn whole_seconds(text: &str) -> Result<u64, String> {
    let time = dwell_app::args::positive_duration(text)?;
    match time.as_secs() {
        seconds @ 2..=3600 if time.subsec_nanos() == 0 => Ok(seconds),
        _ => Err("write whole seconds, from 2s to 1h".into()),
    }
}

/// A share from 0 to 1.
pub fn share(text: &str) -> Result<Probability, String> {
    let share = dwell_app::args::share(text)?;
    Probability::new(share).ok_or_else(|| "write a number from 0 to 1".into())
}

/// A number of things, at least one.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("write a whole number above 0".into()),
    }
}
