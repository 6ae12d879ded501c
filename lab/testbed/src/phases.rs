use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BitsPerSecond, Bytes, Nanos};

/// Phases in which a link has different properties. They follow one another from its first packet on, and repeat after
/// the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Phase>", into = "Vec<Phase>")]
pub struct Phases(Arc<[Phase]>);

/// A phase. Absent properties are those of the link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The length of the phase.
    pub lasts_ns: Nanos,
    /// The rate at which the queue is served during the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_second: Option<BitsPerSecond>,
    /// The one-way delay of packets that leave the queue during the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<Nanos>,
}

impl Phases {
    /// Returns the phase at a time since the start, and how much of it is left.
    pub(crate) fn at(&self, since_start: Nanos) -> (&Phase, Nanos) {
        let period: u64 = self.0.iter().map(|phase| phase.lasts_ns.0).sum();
        let mut rest = Nanos(since_start.0 % period);
        for phase in self.0.iter() {
            if rest < phase.lasts_ns {
                return (phase, phase.lasts_ns - rest);
            }
            rest = rest - phase.lasts_ns;
        }
        unreachable!("the rest is less than all phases together");
    }

    /// Returns the time at which a packet has been sent completely whose first byte is sent at `begin`, on a link that
    /// has this rate outside of phases. Both times are since the start.
    pub(crate) fn serve(&self, begin: Nanos, bytes: Bytes, other: Option<BitsPerSecond>) -> Nanos {
        let mut now = begin;
        // In units of 10⁻⁹ bits: a rate in bits per second is also the number of these units per nanosecond.
        let mut rest = u128::from(bytes.0) * 8_000_000_000;
        loop {
            let (phase, left) = self.at(now);
            let Some(rate) = phase.rate_bits_per_second.or(other) else {
                return now;
            };
            let rate = u128::from(u64::from(rate));
            let taken = rate * u128::from(left.0);
            if rest <= taken {
                let ns = u64::try_from(rest.div_ceil(rate)).expect("it is at most what is left");
                return now + Nanos(ns);
            }
            rest -= taken;
            now = now + left;
        }
    }
}

impl TryFrom<Vec<Phase>> for Phases {
    type Error = &'static str;
    fn try_from(phases: Vec<Phase>) -> Result<Self, Self::Error> {
        match phases.iter().any(|phase| phase.lasts_ns > Nanos::ZERO) {
            true => Ok(Self(phases.into())),
            false => Err("one phase of a link at least must last some time"),
        }
    }
}

impl From<Phases> for Vec<Phase> {
    fn from(phases: Phases) -> Self {
        phases.0.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn phase(ms: u64, mbit: u64) -> Phase {
        Phase { lasts_ns: at(ms), rate_bits_per_second: BitsPerSecond::new(mbit * 1_000_000), delay_ns: None }
    }

    #[test]
    fn phases_follow_each_other_and_begin_again() {
        let phases = Phases::try_from(vec![phase(10, 10), phase(0, 1), phase(20, 50)]).unwrap();
        assert_eq!(phases.at(at(0)), (&phase(10, 10), at(10)));
        assert_eq!(phases.at(Nanos(9_999_999)), (&phase(10, 10), Nanos(1)));
        assert_eq!(phases.at(at(10)), (&phase(20, 50), at(20)));
        assert_eq!(phases.at(at(30_000 + 29)), (&phase(20, 50), at(1)));
    }

    #[test]
    fn a_packet_that_is_on_its_way_as_the_rate_changes_takes_part_of_both() {
        let phases = Phases::try_from(vec![phase(10, 10), phase(10, 50)]).unwrap();
        // 1500 bytes take 1.2 ms at 10 Mbit/s: half of them, and the other half at a fifth of the time.
        let done = phases.serve(Nanos(9_400_000), Bytes(1500), None);
        assert_eq!(done, Nanos(10_120_000));
        // Longer than both phases.
        let done = phases.serve(at(0), Bytes(75_000 + 1_250), None);
        assert_eq!(done, at(21));
    }

    #[test]
    fn a_phase_without_a_rate_has_that_of_its_link() {
        let pause = Phase { rate_bits_per_second: None, ..phase(10, 1) };
        let phases = Phases::try_from(vec![pause]).unwrap();
        assert_eq!(phases.serve(at(3), Bytes(1500), None), at(3));
        let other = BitsPerSecond::new(1_000_000);
        assert_eq!(phases.serve(at(3), Bytes(1500), other), at(15));
    }

    #[test]
    fn phases_that_last_no_time_are_refused() {
        assert!(Phases::try_from(Vec::new()).is_err());
        assert!(serde_json::from_str::<Phases>(r#"[{"lasts_ns":0}]"#).is_err());
        let json = r#"[{"lasts_ns":5,"delay_ns":7}]"#;
        let phases: Phases = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&phases).unwrap(), json);
    }
}
