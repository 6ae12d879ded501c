//! The library's configuration in a form without allocations.

use dwell_engine::{
    socket::{Estimator, PollPacer},
    units::nanos as ns,
};

use super::{Config, ControllerKind, Error};

/// [`Config`] as the library reads it from the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RawConfig {
    /// Time between two polls of a socket, in nanoseconds; at least [`RawConfig::SHORTEST_POLL_NS`].
    pub poll_ns: u64,
    /// Share of a core that all pollers may use together.
    pub budget: f64,
    /// The method of estimating delays.
    pub estimator: Estimator,
    /// The controller that shortens delays, if any.
    pub controller: Option<ControllerKind>,
    /// Target of the controller, in nanoseconds.
    pub target_ns: u64,
    /// Whether the controller also sets the send buffer's size.
    pub wireless: bool,
    /// Name of a congestion control, padded with zeroes; all zeroes for none.
    pub congestion: [u8; 16],
}

/// Number of words that [`RawConfig`] occupies in the table.
pub(super) const WORDS: usize = 8;

impl RawConfig {
    /// Shortest time between two polls; more frequent polls find nothing more.
    pub const SHORTEST_POLL_NS: u64 = 100_000;

    /// Converts a configuration.
    pub fn new(config: &Config) -> Result<RawConfig, Error> {
        let mut congestion = [0; 16];
        if let Some(name) = &config.congestion {
            let place = congestion.get_mut(..name.len());
            match place.filter(|_| (1..16).contains(&name.len()) && !name.contains('\0')) {
                Some(place) => place.copy_from_slice(name.as_bytes()),
                None => return Err(Error::Congestion { name: name.clone() }),
            }
        }
        Ok(RawConfig {
            poll_ns: ns(config.poll).max(RawConfig::SHORTEST_POLL_NS),
            budget: config.budget.clamp(0.0001, 1.0),
            // Algorithm 3 of ELEMENT acts on the delays of Algorithm 1.
            estimator: match config.controller {
                Some(ControllerKind::Element) => Estimator::Paper,
                _ => config.estimator,
            },
            controller: config.controller,
            target_ns: ns(config.target),
            wireless: config.wireless,
            congestion,
        })
    }

    /// Returns the time from the start of a round to the start of the next, if a socket is due at `next_ns`.
    pub fn period_ns(&self, began_ns: u64, next_ns: Option<u64>) -> u64 {
        let wanted_ns = next_ns.map_or(self.poll_ns, |next_ns| next_ns.saturating_sub(began_ns));
        wanted_ns.max(self.poll_ns / PollPacer::SHORTEST)
    }

    pub(super) fn words(&self) -> [u64; WORDS] {
        let half = |from: usize| {
            let bytes = self.congestion.get(from..from + 8);
            bytes.map_or(0, |bytes| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
        };
        [
            self.poll_ns,
            self.budget.to_bits(),
            self.estimator as u64,
            self.controller.map_or(0, |kind| kind as u64),
            self.target_ns,
            u64::from(self.wireless),
            half(0),
            half(8),
        ]
    }

    pub(super) fn from_words(words: [u64; WORDS]) -> RawConfig {
        let [poll_ns, budget, estimator, controller, target_ns, wireless, first, second] = words;
        let mut congestion = [0; 16];
        for (place, byte) in congestion.iter_mut().zip(first.to_le_bytes().into_iter().chain(second.to_le_bytes())) {
            *place = byte;
        }
        RawConfig {
            poll_ns: poll_ns.max(RawConfig::SHORTEST_POLL_NS),
            budget: f64::from_bits(budget),
            estimator: if estimator == Estimator::Paper as u64 { Estimator::Paper } else { Estimator::Exact },
            controller: match controller {
                1 => Some(ControllerKind::Lowat),
                2 => Some(ControllerKind::Element),
                _ => None,
            },
            target_ns,
            wireless: wireless != 0,
            congestion,
        }
    }
}
