//! Has the kernel keep the unsent part of the send buffer short.

use super::{Controller, Setting, State};

/// What is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowatConfig {
    /// The delay in the send buffer.
    pub target_ns: u64,
}

impl Default for LowatConfig {
    fn default() -> LowatConfig {
        LowatConfig {
            target_ns: 25_000_000,
        }
    }
}

/// Keeps so much unsent as leaves in the target's time, by `TCP_NOTSENT_LOWAT`.
#[derive(Debug, Clone)]
pub struct Lowat {
    config: LowatConfig,
    set: Option<u32>,
}

/// At least so many segments.
const LEAST_SEGMENTS: u32 = 4;

impl Lowat {
    /// For a socket of which nothing is known yet.
    pub fn new(config: LowatConfig) -> Lowat {
        Lowat { config, set: None }
    }
}

impl Controller for Lowat {
    fn update(&mut self, state: &State<'_>) -> Setting {
        let info = &state.reading.info;
        let rate = info.delivery_rate.unwrap_or_default();
        let least = info.send_mss.saturating_mul(LEAST_SEGMENTS);
        let wanted = (u128::from(rate) * u128::from(self.config.target_ns) / 1_000_000_000)
            .min(u128::from(u32::MAX / 2)) as u32;
        let wanted = wanted.max(least);
        let near = self.set.is_some_and(|set| wanted.abs_diff(set) <= set / 8);
        if near {
            return Setting::default();
        }
        self.set = Some(wanted);
        Setting {
            notsent_lowat: Some(wanted),
            ..Setting::default()
        }
    }
}
