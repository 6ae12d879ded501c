//! Conversion of times on a source's clock to Unix time and to text.

use jiff::Timestamp;

/// A source's clock, as its offset from Unix time: by default 0, as for captures. Times are wrong by as much as the offset has
/// drifted since it was read, so a source that runs for long needs a fresh one now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clock {
    offset_ns: i128,
}

impl Clock {
    /// Creates a clock from its offset: Unix time minus source time in nanoseconds, both read at the same moment.
    pub fn with_offset(offset_ns: i128) -> Clock {
        Clock { offset_ns }
    }

    /// Converts a time on the source's clock to nanoseconds since 1970.
    pub fn unix_ns(self, time_ns: u64) -> i128 {
        self.offset_ns.saturating_add(i128::from(time_ns))
    }
}

/// Formats Unix times. It caches the text of the last second, because records come in order and many share one.
#[derive(Debug, Clone, Default)]
pub struct Timestamps {
    second: Option<i64>,
    /// RFC 3339 once `second` is set: 20 bytes to the dot, then fraction and Z.
    text: String,
    short: String,
    /// The first day that a line of text was about, and whether a later line was about another one.
    first_day: Option<String>,
    has_date: bool,
}

/// Length of "2026-11-21T05:10:00." and of "2026-11-21T".
const TO_FRACTION: usize = 20;
const TO_HOUR: usize = 11;

/// Returns the time of now as [`Timestamps::rfc3339`] does.
pub fn now() -> String {
    format!("{:.9}", Timestamp::now())
}

impl Timestamps {
    /// Formats a time in RFC 3339, in UTC with nanoseconds: "2026-11-21T05:10:00.123456789Z". `None` outside the years 0
    /// to 9999, which RFC 3339 cannot express.
    pub fn rfc3339(&mut self, unix_ns: i128) -> Option<&str> {
        let second = i64::try_from(unix_ns.div_euclid(1_000_000_000)).ok()?;
        let nanos = unix_ns.rem_euclid(1_000_000_000) as u32;
        if self.second != Some(second) {
            self.second = None;
            let time = Timestamp::from_second(second).ok()?;
            self.text = format!("{time:.9}");
            if self.text.len() != TO_FRACTION + 10 {
                return None;
            }
            self.second = Some(second);
        }
        self.text.truncate(TO_FRACTION);
        let mut unit = 100_000_000;
        while unit > 0 {
            self.text.push(char::from(b'0' + (nanos / unit % 10) as u8));
            unit /= 10;
        }
        self.text.push('Z');
        Some(&self.text)
    }

    /// Formats the time of a line of text in UTC with microseconds, truncated and not rounded: the time of day,
    /// "05:10:00.123456Z", and from the first line on that is not about the day of the first one, the date before it:
    /// "2026-11-22 05:10:00.123456Z". `None` as for [`Timestamps::rfc3339`].
    pub fn of_line(&mut self, unix_ns: i128) -> Option<&str> {
        self.rfc3339(unix_ns)?;
        let day = &self.text[..TO_HOUR - 1];
        match &self.first_day {
            None => self.first_day = Some(day.to_owned()),
            Some(first) => self.has_date |= first != day,
        }
        self.short.clear();
        if self.has_date {
            self.short.push_str(day);
            self.short.push(' ');
        }
        self.short.push_str(&self.text[TO_HOUR..TO_FRACTION + "123456".len()]);
        self.short.push('Z');
        Some(&self.short)
    }

    /// Returns the number of characters that the date takes in a line of text now: 0 without one.
    pub fn date_width(&self) -> usize {
        if self.has_date { TO_HOUR } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21T05:10:00Z.
    const SECOND: i128 = 1_795_237_800_000_000_000;

    #[test]
    fn a_time_on_the_boot_clock_is_written_as_unix_time() {
        let boot = Clock::with_offset(SECOND - 5_000_000_000);
        let mut times = Timestamps::default();
        assert_eq!(times.rfc3339(boot.unix_ns(5_123_456_789)), Some("2026-11-21T05:10:00.123456789Z"));
        assert_eq!(times.of_line(boot.unix_ns(5_999_999_999)), Some("05:10:00.999999Z"));
        assert_eq!(Clock::default().unix_ns(17), 17);
    }

    #[test]
    fn lines_have_a_date_as_soon_as_there_is_another_day() {
        let mut times = Timestamps::default();
        let midnight = SECOND + (18 * 3600 + 50 * 60) * 1_000_000_000;
        assert_eq!(times.of_line(midnight - 1), Some("23:59:59.999999Z"));
        assert_eq!(times.date_width(), 0);
        assert_eq!(times.of_line(midnight), Some("2026-11-22 00:00:00.000000Z"));
        assert_eq!(
            times.of_line(midnight - 1),
            Some("2026-11-21 23:59:59.999999Z"),
            "a late line is not of the new day"
        );
        assert_eq!(times.date_width(), "2026-11-22 ".len());
        // Exactly a day later it is the same time of day.
        let mut times = Timestamps::default();
        assert_eq!(times.of_line(SECOND), Some("05:10:00.000000Z"));
        assert_eq!(times.of_line(SECOND + 86_400_000_000_000), Some("2026-11-22 05:10:00.000000Z"));
    }

    #[test]
    fn times_before_1970_and_at_the_ends_of_what_rfc_3339_can_write() {
        let mut times = Timestamps::default();
        assert_eq!(times.rfc3339(-1), Some("1969-12-31T23:59:59.999999999Z"));
        assert_eq!(times.rfc3339(0), Some("1970-01-01T00:00:00.000000000Z"));
        let year_10000 = 253_402_300_800_000_000_000;
        assert!(times.rfc3339(year_10000).is_none());
        assert!(times.rfc3339(i128::MAX).is_none());
        assert!(times.rfc3339(i128::MIN).is_none());
        assert!(times.rfc3339(-70_000_000_000_000_000_000).is_none());
        assert_eq!(Timestamps::default().rfc3339(i128::from(u64::MAX)), Some("2554-07-21T23:34:33.709551615Z"));
    }

    /// Runs the tests of this module and of the formats in another time zone: all except this one, which would start
    /// itself again.
    #[test]
    fn the_local_time_zone_changes_nothing() {
        let own = "clock::tests::the_local_time_zone_changes_nothing";
        let arguments = ["clock::", "formats::", "--skip", own];
        let output = Command::new(env::current_exe().unwrap()).args(arguments).env("TZ", "JST-9").output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains("test result: ok.") && !output.contains("ok. 0 passed"), "{output}");
    }

    proptest! {
        #[test]
        fn the_kept_second_never_shows_in_another(ns in prop::collection::vec(0i128..4_000_000_000, 1..20)) {
            let mut kept = Timestamps::default();
            for ns in ns {
                let fresh = format!("{:.9}", Timestamp::from_nanosecond(SECOND + ns).unwrap());
                prop_assert_eq!(kept.rfc3339(SECOND + ns), Some(fresh.as_str()));
            }
        }
    }
}
