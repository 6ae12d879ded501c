//! How many connections of a server are heavy, where that follows from their part of its packets.

use dwell_engine::steer::{HeavyShare, OutOfRange, zero_rtt::HeavyConfig};

use super::{Balancer, ControlError, vip::VipRun};
use crate::{api::HeavyStatus, config::Vip};

/// What chooses their number, if anything does.
pub(super) fn share_of(vip: &Vip) -> Result<Option<HeavyShare>, OutOfRange> {
    let Some(zero) = &vip.zero_rtt else {
        return Ok(None);
    };
    let share = zero.heavy_share;
    share.map(|share| HeavyShare::new(share, zero.heavy.most)).transpose()
}

impl VipRun {
    /// Takes over the number of what this was before, if the same is wanted.
    pub(super) fn keep_heavy(&mut self, before: &VipRun) {
        let wanted = |run: &VipRun| {
            let zero = run.vip.zero_rtt.as_ref()?;
            Some((zero.heavy, zero.heavy_share))
        };
        if wanted(self) == wanted(before) {
            self.heavy.clone_from(&before.heavy);
        }
    }

    /// Which connections are heavy now, for a VIP that is configured so.
    pub(super) fn heavy_now(&self, configured: HeavyConfig) -> HeavyConfig {
        let top = self.heavy.as_ref().map(HeavyShare::top);
        HeavyConfig { top: top.unwrap_or(configured.top), ..configured }
    }

    pub(super) fn heavy_status(&self) -> Option<HeavyStatus> {
        self.heavy.as_ref().map(|share| HeavyStatus {
            connections: share.top(),
            wanted: share.wanted(),
            captured: share.captured(),
        })
    }
}

impl Balancer {
    /// Looks at what clients have sent. The kernel is told of other numbers with what else is new.
    pub(super) fn end_heavy_interval(&mut self) -> Result<(), ControlError> {
        for run in &mut self.vips {
            let (Some(share), Some(zero)) = (&mut run.heavy, &run.vip.zero_rtt) else {
                continue;
            };
            if let Some(slot) = self.state.zero_slot(&run.vip.key) {
                share.step(self.plane.heavy_windows(slot, zero.heavy)?);
            }
        }
        Ok(())
    }
}
