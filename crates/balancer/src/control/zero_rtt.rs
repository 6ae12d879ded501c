//! VIPs that go by connection ID: what the kernel is told of them, and what servers say.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dwell_engine::{balance::ServerId, quic_lb::Stamp};
use dwell_probes::balancer::{ServerLoad, ZeroServer, ZeroVip};

use super::{Balancer, ControlError, vip::VipRun};
use crate::{
    config::VipKey,
    plan::{Phase, State},
};

/// VIPs that go by connection ID.
#[derive(Default)]
pub(super) struct ZeroRun {
    /// What this process has told the kernel last.
    told: BTreeMap<VipKey, ZeroVip>,
    /// What servers last said, by number.
    loads: BTreeMap<u32, ServerLoad>,
    /// Packets to each that leaves, and when there was the last.
    routed: BTreeMap<u32, (u64, Instant)>,
    idle: Duration,
}

/// What a plan has told of VIPs and slots, and what this process had told of them before, if it had.
pub(super) type Given = Vec<(VipKey, u16, Option<ZeroVip>)>;

impl ZeroRun {
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
    /// Tells the kernel how a VIP goes by connection ID, if it does. What it was told before goes to `given`.
    pub(super) fn give_zero(&mut self, run: &VipRun, next: &State, given: &mut Given) -> Result<(), ControlError> {
        let key = run.vip.key;
        let (Some(wanted), Some(slot)) = (zero_vip(run, next), next.zero_slot(&key)) else {
            return Ok(());
        };
        if self.zero.told.get(&key) == Some(&wanted) {
            return Ok(());
        }
        // Also of what fails halfway it must be known that it was begun.
        let before = self.zero.told.insert(key, wanted.clone());
        given.push((key, slot, before));
        Ok(self.plane.set_zero(&key, slot, &wanted)?)
    }

    /// As it was before a plan that failed: of what that has touched. Not so of the first plan after a
    /// take-over: what the process before has told the kernel is not known, and what was told since stays.
    pub(super) fn undo_zero(&mut self, given: Given) {
        for (key, slot, before) in given {
            // The kernel has just refused something: what it refuses now cannot be helped.
            if let Some(before) = before {
                let _ = self.plane.set_zero(&key, slot, &before);
                self.zero.told.insert(key, before);
                continue;
            }
            self.zero.told.remove(&key);
            // Packets of one that was taken over go on, as it has been told now.
            if self.state.zero_slot(&key).is_none() {
                let _ = self.plane.remove_zero(slot);
            }
        }
    }

    /// Tells the kernel who gets new connections, where that has changed.
    pub(super) fn refresh_zero(&mut self) -> Result<(), ControlError> {
        for run in &self.vips {
            let key = run.vip.key;
            let (Some(wanted), Some(slot)) = (zero_vip(run, &self.state), self.state.zero_slot(&key)) else {
                continue;
            };
            if self.zero.told.get(&key).is_some_and(|told| *told != wanted) {
                self.plane.set_zero(&key, slot, &wanted)?;
                self.zero.told.insert(key, wanted);
            }
        }
        Ok(())
    }

    /// After a plan: slots of VIPs that went by connection ID before it, and do no more, are free.
    pub(super) fn forget_zero(&mut self, before: &State) {
        for (slot, key) in &before.zero_slots {
            if self.state.zero_slots.get(slot) != Some(key) {
                self.zero.told.remove(key);
                // No packet comes to it any more: what stays there does no harm.
                let _ = self.plane.remove_zero(*slot as u16);
            }
        }
    }

    /// Takes what servers have said, and tells the kernel the time.
    pub(super) fn end_zero_interval(&mut self) -> Result<(), ControlError> {
        if self.state.zero_slots.is_empty() {
            return Ok(());
        }
        self.plane.set_clock()?;
        self.zero.loads.clear();
        for slot in self.state.zero_slots.keys() {
            let loads = self.plane.server_loads(*slot as u16)?;
            self.zero.loads.extend(loads);
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
        // who is reached otherwise than before has its place
        if is_of_it && !servers.iter().any(|server| server.id == id) {
            servers.push(ZeroServer { real: *number, id, is_out: true });
        }
    }
    Some(ZeroVip {
        layouts: zero.layouts.clone(),
        servers,
        heavy: run.heavy_now(zero.heavy),
        overload: zero.overload,
        window: zero.window,
        attempt: zero.attempt,
        is_any_heavy: zero.is_any_heavy,
        is_unroutable_hashed: zero.is_unroutable_hashed,
    })
}
