//! A backend of a VIP that is balanced.

use std::time::{Duration, Instant};

use dwell_engine::steer::{BackendStats, Share};

use crate::{
    api::HealthState,
    config::Backend,
    shared::{report::View, set::BackendWeight},
};

/// A backend of a VIP that is balanced.
#[derive(Debug, Clone)]
pub(super) struct RunningBackend {
    /// The number in the kernel's maps.
    pub real: u32,
    pub backend: Backend,
    pub share: Share,
    pub is_draining: bool,
    pub health: BackendHealth,
    /// Whether a next hop is known, now or until recently, by a device that takes packets.
    pub is_reachable: bool,
    /// What the last interval measured.
    pub seen: Option<BackendStats>,
    /// What most balancers say, if this one decides for all.
    pub voted: Option<View>,
    /// The weight that all balancers have agreed on.
    pub agreed: Option<BackendWeight>,
    /// The names of the balancers at which it is drained, as far as the one that leads has said so.
    pub drained_by: Vec<String>,
}

impl RunningBackend {
    /// Whether the backend may get new connections: it is up, has been checked if it has joined, is reachable and does not
    /// drain.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_draining && !self.health.is_down() && !self.health.is_pending && self.is_reachable
    }

    /// Returns the share of a backend that stays, scaled to its configured weight.
    pub(super) fn carried_share(&self, configured: f64) -> Share {
        Share { weight: scaled(self.share.weight, self.backend.weight, configured), ..self.share }
    }
}

/// The state of a backend's health checks.
#[derive(Debug, Clone, Default)]
pub(super) struct BackendHealth {
    /// None before the first result.
    pub is_up: Option<bool>,
    /// Whether the backend joined while the VIP ran: it gets no connections before the first result.
    pub is_pending: bool,
    /// When the backend came back, or was up for the first time after it had joined.
    pub up_since: Option<Instant>,
    /// Why the last check failed; none if it succeeded.
    pub failure: Option<String>,
    /// The duration of the last successful check.
    pub duration: Option<Duration>,
}

impl BackendHealth {
    /// The state of a backend that the kernel considers down.
    pub(super) fn down() -> BackendHealth {
        BackendHealth { is_up: Some(false), ..BackendHealth::default() }
    }

    /// Takes over whether checks succeed. True if that changes what the backend gets.
    pub(super) fn update(&mut self, is_up: bool, now: Instant) -> bool {
        let has_joined = std::mem::take(&mut self.is_pending);
        let was_unknown = self.is_up.is_none() && !has_joined;
        // Only a backend that had nothing gets its weight gradually.
        self.up_since = (is_up && (has_joined || self.is_down())).then_some(now);
        self.is_up = Some(is_up);
        !(was_unknown && is_up)
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_up == Some(false)
    }

    /// The part of its weight that the backend gets while it comes back. It rises in tenths, so that the table does not
    /// change every time.
    pub(super) fn ramp_factor(&self, ramp: Duration, now: Instant) -> f64 {
        let Some(up_since) = self.up_since.filter(|_| !ramp.is_zero()) else {
            return 1.0;
        };
        let progress = now.saturating_duration_since(up_since).as_secs_f64() / ramp.as_secs_f64();
        ((progress * 10.0).floor() + 1.0).min(10.0) / 10.0
    }

    pub(super) fn state(&self, ramp: Duration, now: Instant) -> HealthState {
        match self.is_up {
            None if self.is_pending => HealthState::Pending,
            None => HealthState::Unchecked,
            Some(false) => HealthState::Down,
            Some(true) if self.ramp_factor(ramp, now) < 1.0 => HealthState::Rising,
            Some(true) => HealthState::Up,
        }
    }
}

/// Scales a weight that a policy has set by the change of the configured weight.
pub(super) fn scaled(weight: f64, was: f64, configured: f64) -> f64 {
    if was == configured {
        weight
    } else if was > 0.0 {
        weight * configured / was
    } else {
        configured
    }
}
