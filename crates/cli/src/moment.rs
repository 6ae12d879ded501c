//! Moments in what is stored: `--since` and `--until`.

use std::time::Duration;

use dwell_engine::units::nanos;

use crate::args::duration;

/// A moment as a user names it.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// In Unix time.
    At(i64),
    /// Before the end of what is stored.
    BeforeEnd(Duration),
}

impl Moment {
    /// Parses a time, or how long before the end it is.
    pub fn parse(text: &str) -> Result<Moment, String> {
        if let Ok(length) = duration(text) {
            return Ok(Moment::BeforeEnd(length));
        }
        let time: Option<jiff::Timestamp> = text.parse().ok();
        time.and_then(|time| i64::try_from(time.as_nanosecond()).ok())
            .map(Moment::At)
            .ok_or_else(|| "write a time as in 2026-11-21T14:00:00Z, or how long before the end, as in 10m".into())
    }

    /// Returns the moment in Unix time, where all that is stored ends at `end_ns`.
    pub fn unix_ns(self, end_ns: i64) -> i64 {
        match self {
            Moment::At(time_ns) => time_ns,
            Moment::BeforeEnd(length) => end_ns.saturating_sub_unsigned(nanos(length)),
        }
    }
}
