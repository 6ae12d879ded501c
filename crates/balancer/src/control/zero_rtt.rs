//! VIPs that go by connection ID: what the kernel is told of them, and what servers say.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dwell_engine::{balance::ServerId, quic_lb::Stamp};
use dwell_probes::balancer::{ServerLoad, ZeroServer, ZeroVip};

use super::{Balancer, ControlError, apply::to_plane, vip::VipRun};
use crate::{
    config::VipKey,
    plan::{Phase, State},
};

/// VIPs that go by connection ID.
#[derive(Default)]
pub(super) struct ZeroRun {
    /// What the kernel was told last, and under which slot.
    told: BTreeMap<VipKey, (u16, ZeroVip)>,
    /// What servers last said, by number.
    loads: BTreeMap<u32, ServerLoad>,
    /// Packets to each that leaves, and when there was the last.
    routed: BTreeMap<u32, (u64, Instant)>,
    idle: Duration,
}

impl ZeroRun {
    pub(super) fn slot(&self, key: &VipKey) -> Option<u16> {
        self.told.get(key).map(|(slot, _)| *slot)
    }

    /// Whether packets still go to a backend by their connection IDs: the connection table does not
    /// tell.
    pub(super) fn is_routed(&self, real: u32) -> bool {
        let last = self.routed.get(&real);
        last.is_some_and(|(_, at)| at.elapsed() < self.idle)
    }

    /// What a server last said: how long requests wait there, and how long ago that came.
    pub(super) fn said(&self, real: u32) -> Option<(Option<Duration>, Duration)> {
        let load = self.loads.get(&real).filter(|load| load.stamp != 0)?;
        let now_s = jiff::Timestamp::now().as_second();
        let age_s = now_s.saturating_sub(load.seen_s.into()).max(0);
        let wait = Stamp::from_word(load.stamp).load.wait();
        Some((wait, Duration::from_secs(age_s.unsigned_abs())))
    }
}

impl Balancer {
    /// The slots of VIPs that go by connection ID: the kernel's, where it has one.
    pub(super) fn zero_slots(
        &self,
        runs: &[VipRun],
    ) -> Result<BTreeMap<VipKey, u16>, ControlError> {
        let there: BTreeMap<_, _> = self
            .plane
            .vips()
            .filter_map(|(key, vip)| Some((*key, vip.zero_slot?)))
            .collect();
        let mut slots = BTreeMap::new();
        let wanted: Vec<VipKey> = runs
            .iter()
            .filter(|run| run.vip.zero_rtt.is_some())
            .map(|run| run.vip.key)
            .collect();
        for key in &wanted {
            if let Some(slot) = there.get(&to_plane(key)) {
                slots.insert(*key, *slot);
            }
        }
        let mut taken: Vec<u16> = there.into_values().collect();
        for key in wanted {
            if slots.contains_key(&key) {
                continue;
            }
            let most = self.config.limits.zero_rtt_vips;
            let slot = (1..=most).find(|slot| !taken.contains(slot)).ok_or(
                crate::plan::PlanError::NoRoom {
                    what: "VIPs with the policy zero-rtt",
                    key: "zero_rtt_vips",
                    needed: taken.len() + 1,
                    leaving: 0,
                    limit: most.into(),
                },
            )?;
            taken.push(slot);
            slots.insert(key, slot);
        }
        Ok(slots)
    }

    /// Tells the kernel how a VIP goes by connection ID, if it does.
    pub(super) fn give_zero(
        &mut self,
        run: &VipRun,
        state: &State,
        slots: &BTreeMap<VipKey, u16>,
    ) -> Result<(), ControlError> {
        let key = run.vip.key;
        let (Some(wanted), Some(slot)) = (zero_vip(run, state), slots.get(&key)) else {
            return Ok(());
        };
        let told = (*slot, wanted);
        if self.zero.told.get(&key) != Some(&told) {
            // Also of what fails halfway it must be known that it was begun.
            self.zero.told.insert(key, told.clone());
            self.plane.set_zero(&to_plane(&key), *slot, &told.1)?;
        }
        Ok(())
    }

    /// What has been told, for [`Balancer::undo_zero`].
    pub(super) fn zero_told(&self) -> BTreeMap<VipKey, (u16, ZeroVip)> {
        self.zero.told.clone()
    }

    /// As it was before a plan that failed.
    pub(super) fn undo_zero(&mut self, before: BTreeMap<VipKey, (u16, ZeroVip)>) {
        // The kernel has just refused something: what it refuses now cannot be helped.
        for (key, (slot, _)) in &self.zero.told {
            if before.get(key).map(|(slot, _)| slot) != Some(slot) {
                let _ = self.plane.remove_zero(*slot);
            }
        }
        for (key, (slot, vip)) in &before {
            let _ = self.plane.set_zero(&to_plane(key), *slot, vip);
        }
        self.zero.told = before;
    }

    /// Tells the kernel who gets new connections, where that has changed.
    pub(super) fn refresh_zero(&mut self) -> Result<(), ControlError> {
        let wanted: Vec<(VipKey, ZeroVip)> = self
            .vips
            .iter()
            .filter_map(|run| Some((run.vip.key, zero_vip(run, &self.state)?)))
            .collect();
        for (key, wanted) in wanted {
            let Some((slot, told)) = self.zero.told.get_mut(&key) else {
                continue;
            };
            if *told != wanted {
                self.plane.set_zero(&to_plane(&key), *slot, &wanted)?;
                *told = wanted;
            }
        }
        Ok(())
    }

    /// After a plan: slots of VIPs that go by connection ID no more are free.
    pub(super) fn forget_zero(&mut self) {
        let vips = &self.vips;
        let is_wanted = |key: &VipKey| {
            vips.iter()
                .any(|run| run.vip.key == *key && run.vip.zero_rtt.is_some())
        };
        let gone: Vec<VipKey> = self
            .zero
            .told
            .keys()
            .filter(|key| !is_wanted(key))
            .copied()
            .collect();
        for key in gone {
            if let Some((slot, _)) = self.zero.told.remove(&key) {
                // No packet comes to it any more: what stays there does no harm.
                let _ = self.plane.remove_zero(slot);
            }
        }
    }

    /// Takes what servers have said, and tells the kernel the time.
    pub(super) fn end_zero_interval(&mut self) -> Result<(), ControlError> {
        if self.zero.told.is_empty() {
            return Ok(());
        }
        self.plane.set_clock()?;
        self.zero.loads.clear();
        let slots: Vec<u16> = self.zero.told.values().map(|(slot, _)| *slot).collect();
        for slot in slots {
            self.zero.loads.extend(self.plane.server_loads(slot)?);
        }
        self.zero.idle = self.config.idle_timeout;
        let now = Instant::now();
        let reals = &self.state.reals;
        let leaves = |number: &u32| {
            let real = reals.get(number);
            real.is_some_and(|real| real.phase == Phase::Leaving && real.server_id.is_some())
        };
        self.zero.routed.retain(|number, _| leaves(number));
        for number in reals.keys().filter(|number| leaves(number)) {
            let packets = super::tell::load(&self.figures.reals, *number).packets;
            let last = self.zero.routed.entry(*number).or_insert((packets, now));
            if last.0 != packets {
                *last = (packets, now);
            }
        }
        Ok(())
    }
}

/// How a VIP is to go by connection ID: with those of its backends that leave.
fn zero_vip(run: &VipRun, state: &State) -> Option<ZeroVip> {
    let zero = run.vip.zero_rtt.as_ref()?;
    let serving = run.backends.iter().filter_map(|run| {
        Some(ZeroServer {
            real: run.real,
            id: ServerId(run.backend.server_id?.into()),
            is_out: !run.is_usable() || run.share.weight <= 0.0,
        })
    });
    let mut servers: Vec<ZeroServer> = serving.collect();
    for (number, real) in &state.reals {
        let Some(id) = real.server_id.map(|id| ServerId(id.into())) else {
            continue;
        };
        let is_of_it = real.vip == Some(run.vip.key) && real.phase == Phase::Leaving;
        // who has the ID of one that leaves has its place
        if is_of_it && !servers.iter().any(|server| server.id == id) {
            servers.push(ZeroServer {
                real: *number,
                id,
                is_out: true,
            });
        }
    }
    Some(ZeroVip {
        layouts: zero.layouts.clone(),
        servers,
        heavy: zero.heavy,
        overload: zero.overload,
        window: zero.window,
        attempt: zero.attempt,
        is_any_heavy: zero.is_any_heavy,
        is_unroutable_hashed: zero.is_unroutable_hashed,
    })
}
