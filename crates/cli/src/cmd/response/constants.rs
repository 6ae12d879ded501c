//! The constants of estimators: `--set KEY=VALUE`.

use std::time::Duration;

use dwell_engine::response::{Config, Epsilon, Estimator, Rto};
use dwell_engine::units::nanos;

use super::EstimatorName;
use crate::{
    args::{duration, positive_duration},
    set::{Key, boolean, one_of, setting},
};

/// A constant and the value that it is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Constant {
    /// `threshold`: a longer gap between packets separates batches of requests.
    Threshold(Duration),
    /// `modes`: how many modes a flow may have.
    Modes(u8),
    /// `merge-distance`: gaps this near each other belong to one mode; `None` stands for half of the gap.
    MergeDistance(Option<Duration>),
    /// `rto`: modes from here on are retransmission timeouts; `None` stands for 200 ms where they are rare.
    Rto(Option<Duration>),
    /// `floor`: the gap between batches is of a mode with at least this share of the gaps.
    Floor(f64),
    /// `heuristics`: whether transport ACKs make no gaps, and whether only a gap after a packet smaller than the MTU is
    /// between batches.
    Heuristics { acks: bool, mtu: bool },
    /// `idle-gap`: a longer gap means that the client was idle.
    IdleGap(Duration),
    /// `show-modes`: each estimate is printed with the modes that it came from.
    ShowModes(bool),
}

const KEYS: &[Key<Constant>] = &[
    ("threshold", |value| positive_duration(value).map(Constant::Threshold)),
    ("modes", |value| match value.parse() {
        Ok(modes @ 1..=10) => Ok(Constant::Modes(modes)),
        _ => Err("write a number from 1 to 10".into()),
    }),
    ("merge-distance", |value| auto_or_time(value).map(Constant::MergeDistance)),
    ("rto", |value| auto_or_time(value).map(Constant::Rto)),
    ("floor", |value| match value.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(Constant::Floor(share)),
        _ => Err("write a number from 0 to below 1".into()),
    }),
    ("heuristics", |value| {
        let both = Constant::Heuristics { acks: true, mtu: true };
        let values = [
            ("acks", Constant::Heuristics { acks: true, mtu: false }),
            ("mtu", Constant::Heuristics { acks: false, mtu: true }),
            ("acks,mtu", both),
            ("mtu,acks", both),
            ("none", Constant::Heuristics { acks: false, mtu: false }),
        ];
        one_of(value, &values)
    }),
    ("idle-gap", |value| match positive_duration(value)? {
        long if long > Duration::from_secs(60) => Err("it must be at most 60s".into()),
        gap => Ok(Constant::IdleGap(gap)),
    }),
    ("show-modes", |value| boolean(value).map(Constant::ShowModes)),
];

/// Parses one `--set`.
pub fn constant(text: &str) -> Result<Constant, String> {
    setting(text, KEYS)
}

fn auto_or_time(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "auto" => Ok(None),
        _ => duration(text).map(Some),
    }
}

impl Constant {
    /// Returns the constant's key and the estimators that use it; no estimator in the list stands for all of them.
    pub fn estimators(&self) -> (&'static str, &'static [EstimatorName]) {
        use EstimatorName::{Gap, Pirate};
        match self {
            Constant::Threshold(_) => ("threshold", &[Gap]),
            Constant::Modes(_) => ("modes", &[Pirate]),
            Constant::MergeDistance(_) => ("merge-distance", &[Pirate]),
            Constant::Rto(_) => ("rto", &[Pirate]),
            Constant::Floor(_) => ("floor", &[Pirate]),
            Constant::Heuristics { .. } => ("heuristics", &[Pirate, Gap]),
            Constant::IdleGap(_) => ("idle-gap", &[]),
            Constant::ShowModes(_) => ("show-modes", &[Pirate]),
        }
    }

    /// Puts the value where the engine reads it.
    pub fn apply(&self, config: &mut Config) {
        match *self {
            Constant::Threshold(threshold) => config.estimator = Estimator::Gap(nanos(threshold)),
            Constant::Modes(modes) => config.modes = modes,
            Constant::MergeDistance(None) => config.epsilon = Config::default().epsilon,
            Constant::MergeDistance(Some(distance)) => config.epsilon = Epsilon::Absolute(nanos(distance)),
            Constant::Rto(None) => config.rto = Rto::Auto,
            Constant::Rto(Some(rto)) => config.rto = Rto::From(nanos(rto)),
            Constant::Floor(share) => config.floor = share,
            Constant::Heuristics { acks, mtu } => {
                config.coalesce_acks = acks;
                config.mark_small = mtu;
            }
            Constant::IdleGap(gap) => config.idle_ns = nanos(gap),
            Constant::ShowModes(_) => {}
        }
    }
}
