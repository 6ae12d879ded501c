//! When a connection starts its rounds.

use std::{str::FromStr, time::Duration};

use dwell_testbed::Nanos;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::random::exponential;

/// How long a client waits after the last answer of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// Not at all.
    #[default]
    None,
    /// Always so long.
    Fixed(Nanos),
    /// Exponential with that mean.
    Exponential(Nanos),
}

impl Think {
    fn draw_ns(self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Self::None => 0,
            Self::Fixed(time) => time.0,
            Self::Exponential(mean) => exponential(random, mean.0 as f64) as u64,
        }
    }
}

/// `20ms`, or `exp:20ms`; the unit is us, ms or s.
impl FromStr for Think {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (is_exponential, time) = match text.strip_prefix("exp:") {
            Some(mean) => (true, mean),
            None => (false, text),
        };
        let split = time.find(|c: char| c.is_alphabetic()).unwrap_or(time.len());
        let (number, unit) = time.split_at(split);
        let unit_ns = match unit {
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err("write a think time as 20ms or exp:20ms"),
        };
        match number.parse::<f64>().map(|number| number * unit_ns) {
            Ok(ns) if (0.0..=1e12).contains(&ns) => {
                Ok(if is_exponential { Self::Exponential(Nanos(ns as u64)) } else { Self::Fixed(Nanos(ns as u64)) })
            }
            _ => Err("a think time is from 0 to 1000s"),
        }
    }
}

/// The start of a connection's rounds: on schedule, but not before the client has thought.
///
/// The schedule does not depend on the answers. Where rounds take longer than it allows they follow each other at
/// once until they have caught up.
#[derive(Debug)]
pub(super) struct Pace {
    /// Mean time between two requests of the connection; 0 without a schedule.
    gap_ns: f64,
    think: Think,
    random: Xoshiro256PlusPlus,
    scheduled_ns: u64,
    thought_ns: u64,
}

impl Pace {
    /// From `begin_ns` on.
    pub(super) fn new(begin_ns: u64, gap: Duration, think: Think, random: Xoshiro256PlusPlus) -> Self {
        Self { gap_ns: gap.as_nanos() as f64, think, random, scheduled_ns: begin_ns, thought_ns: 0 }
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.scheduled_ns.max(self.thought_ns)
    }

    /// A round of so many requests comes next.
    pub(super) fn schedule(&mut self, requests: usize) {
        let mean_ns = self.gap_ns * requests as f64;
        self.scheduled_ns += exponential(&mut self.random, mean_ns) as u64;
    }

    /// Its last answer has come.
    pub(super) fn finished(&mut self, now_ns: u64) {
        self.thought_ns = now_ns + self.think.draw_ns(&mut self.random);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::random::generator, *};

    fn pace(gap: Duration, think: Think) -> Pace {
        Pace::new(1_000, gap, think, generator(1, 0, 0))
    }

    #[test]
    fn rounds_start_at_the_rate_that_was_asked_for() {
        let mut pace = pace(Duration::from_millis(2), Think::None);
        let begin = pace.next_ns();
        for _ in 0..2_000 {
            pace.schedule(5);
            pace.finished(begin);
        }
        let mean_ms = (pace.next_ns() - begin) as f64 / 1e6 / 2_000.0;
        assert!((mean_ms - 10.0).abs() < 0.8, "{mean_ms}");
    }

    #[test]
    fn without_a_schedule_only_thinking_delays() {
        let mut fixed = pace(Duration::ZERO, Think::Fixed(Nanos(700)));
        assert_eq!(fixed.next_ns(), 1_000);
        fixed.schedule(5);
        fixed.finished(2_000);
        assert_eq!(fixed.next_ns(), 2_700);
        let mut none = pace(Duration::ZERO, Think::None);
        none.finished(2_000);
        assert_eq!(none.next_ns(), 2_000);
    }

    #[test]
    fn think_times_are_read() {
        assert_eq!("20ms".parse(), Ok(Think::Fixed(Nanos::from_millis(20))));
        assert_eq!("exp:1.5s".parse(), Ok(Think::Exponential(Nanos::from_millis(1500))));
        for text in ["", "20", "exp:", "exp:ms", "-1ms", "2000s", "exp:exp:1ms"] {
            assert!(text.parse::<Think>().is_err(), "{text}");
        }
    }
}
