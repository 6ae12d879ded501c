//! VIPs that route by connection ID: their state in the kernel, and the load that their servers report.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use dwell_engine::{
    balance::{ServerId, ServerState, VipKey},
    quic_lb::Stamp,
    units::nanos,
};
use dwell_probes::balancer::{Reason, ServerLoad, ZeroServer, ZeroVip};

use super::{
    Balancer, ControlError,
    backend::RunningBackend,
    status::{and_more, load},
    vip::RunningVip,
};
use crate::plan::{Phase, State};

/// The state of the VIPs that route by connection ID.
#[derive(Default)]
pub(super) struct ZeroRttState {
    /// What this process has written to the kernel last.
    written: BTreeMap<VipKey, ZeroVip>,
    /// The loads that servers have reported last, by the number of the backend.
    loads: BTreeMap<u32, ServerLoad>,
    /// Which clients of a backend are heavy at other balancers, as the kernel knows it.
    pub(super) heavy_elsewhere: BTreeMap<u32, Vec<(IpAddr, u32)>>,
    /// For each backend that is leaving: its packet count, and when that last changed.
    routed: BTreeMap<u32, (u64, Instant)>,
    /// Whether clients' packets name a backend, by its number.
    naming: BTreeMap<u32, Naming>,
    idle_timeout: Duration,
}

/// What shows whether a server puts its ID into connection IDs. Nobody can make an ID that names a server without the key, so
/// that one is proof. Packets whose IDs name no server prove nothing, as anybody can send them.
struct Naming {
    /// What the kernel had counted of those that name it, in the last interval.
    counted: u32,
    /// When one was last seen to name it, with the layouts of now.
    last: Option<Instant>,
    /// New connections that had been placed there when the watch began.
    opened: u64,
    /// Packets that had been dropped by then, as their IDs name no server.
    unroutable: u64,
}

/// A write of a slot that a failed plan may have to undo.
pub(super) struct ZeroWrite {
    key: VipKey,
    slot: u16,
    /// What this process had written before, if anything.
    before: Option<ZeroVip>,
}

/// The load that a server reported.
pub(super) struct ReportedLoad {
    /// How long requests wait; none if the server does not know.
    pub wait: Option<Duration>,
    /// How long ago the report arrived.
    pub age: Duration,
}

impl ZeroRttState {
    /// Whether packets are still routed to a leaving backend by connection ID. The connection table does not show them.
    pub(super) fn is_routed(&self, real: u32) -> bool {
        let last = self.routed.get(&real);
        last.is_some_and(|(_, at)| at.elapsed() < self.idle_timeout)
    }

    /// The load that a server reported last, as the word of a stamp; 0 if it has reported none.
    pub(super) fn load_word(&self, real: u32) -> u64 {
        self.loads.get(&real).map_or(0, |load| load.stamp)
    }

    /// The load that a server reported last, if it has reported one.
    pub(super) fn reported_load(&self, real: u32) -> Option<ReportedLoad> {
        let load = self.loads.get(&real).filter(|load| load.stamp != 0)?;
        let now_s = jiff::Timestamp::now().as_second();
        let age_s = now_s.saturating_sub(load.seen_s.into()).max(0);
        let wait = Stamp::from_word(load.stamp).load.wait();
        Some(ReportedLoad { wait, age: Duration::from_secs(age_s.unsigned_abs()) })
    }
}

impl Balancer {
    /// Writes the slot of a VIP that routes by connection ID, if it has changed. What was there before is added to
    /// `writes`.
    pub(super) fn write_zero_vip(
        &mut self,
        run: &RunningVip,
        next: &State,
        writes: &mut Vec<ZeroWrite>,
    ) -> Result<(), ControlError> {
        let key = run.vip.key;
        let (Some(wanted), Some(slot)) = (zero_vip(run, next), next.zero_slot(&key)) else {
            return Ok(());
        };
        if self.zero.written.get(&key) == Some(&wanted) {
            return Ok(());
        }
        // A write that fails halfway has to be undone too, so it is noted first.
        let before = self.zero.written.insert(key, wanted.clone());
        if before.as_ref().is_some_and(|before| before.layouts != wanted.layouts) {
            for server in &wanted.servers {
                self.zero.naming.remove(&server.real);
            }
        }
        writes.push(ZeroWrite { key, slot, before });
        Ok(self.plane.set_zero(&key, slot, &wanted)?)
    }

    /// Undoes the writes of a plan that failed. The first plan after taking over a data plane cannot be undone: what
    /// the earlier process had written is not known, so the new contents stay.
    pub(super) fn undo_zero(&mut self, writes: Vec<ZeroWrite>) {
        for ZeroWrite { key, slot, before } in writes {
            // The kernel has just refused an update, so errors are ignored here: there is no further remedy.
            if let Some(before) = before {
                let _ = self.plane.set_zero(&key, slot, &before);
                self.zero.written.insert(key, before);
                continue;
            }
            self.zero.written.remove(&key);
            // A slot that was taken over keeps its new contents, so that its packets are still routed.
            if self.state.zero_slot(&key).is_none() {
                let _ = self.plane.remove_zero(slot);
            }
        }
    }

    /// Writes the slots that have changed, as after a backend went down.
    pub(super) fn update_zero_vips(&mut self) -> Result<(), ControlError> {
        for run in &self.vips {
            let key = run.vip.key;
            let (Some(wanted), Some(slot)) = (zero_vip(run, &self.state), self.state.zero_slot(&key)) else {
                continue;
            };
            if self.zero.written.get(&key).is_some_and(|written| *written != wanted) {
                self.plane.set_zero(&key, slot, &wanted)?;
                self.zero.written.insert(key, wanted);
            }
        }
        Ok(())
    }

    /// Removes the slots of `before` that are no longer used.
    pub(super) fn remove_old_slots(&mut self, before: &State) {
        // Their tables are emptied when they are used again.
        self.zero.heavy_elsewhere.clear();
        for (slot, key) in &before.zero_slots {
            if self.state.zero_slots.get(slot) != Some(key) {
                self.zero.written.remove(key);
                // No packet is routed by the slot any more, so leftovers do no harm.
                let _ = self.plane.remove_zero(*slot as u16);
            }
        }
    }

    /// Reads the loads that servers have reported, and updates the kernel's clock.
    pub(super) fn read_server_loads(&mut self) -> Result<(), ControlError> {
        if self.state.zero_slots.is_empty() {
            return Ok(());
        }
        self.plane.set_clock()?;
        self.zero.loads.clear();
        for slot in self.state.zero_slots.keys() {
            let loads = self.plane.server_loads(*slot as u16)?;
            self.zero.loads.extend(loads);
        }
        self.zero.idle_timeout = self.config.idle_timeout;
        let now = Instant::now();
        let reals = &self.state.reals;
        let is_leaving = |number: &u32| {
            let real = reals.get(number);
            real.is_some_and(|real| real.phase == Phase::Leaving && real.server_id.is_some())
        };
        self.zero.routed.retain(|number, _| is_leaving(number));
        for number in reals.keys().filter(|number| is_leaving(number)) {
            let packets = load(&self.figures.reals, *number).packets;
            let last = self.zero.routed.entry(*number).or_insert((packets, now));
            if last.0 != packets {
                *last = (packets, now);
            }
        }
        Ok(())
    }

    /// Notes which servers were named by connection IDs since the interval before.
    pub(super) fn update_naming(&mut self) -> Result<(), ControlError> {
        let unroutable = self.unroutable();
        let reals = &self.state.reals;
        self.zero.naming.retain(|real, _| reals.contains_key(real));
        for slot in self.state.zero_slots.keys() {
            for (real, counted) in self.plane.named_packets(*slot as u16)? {
                let opened = load(&self.figures.reals, real).opened;
                let new = Naming { counted, last: None, opened, unroutable };
                let naming = self.zero.naming.entry(real).or_insert(new);
                if naming.counted != counted {
                    (naming.counted, naming.last) = (counted, Some(Instant::now()));
                }
            }
        }
        Ok(())
    }

    fn unroutable(&self) -> u64 {
        self.figures.counters.as_ref().map_or(0, |counters| counters.get(Reason::Unroutable))
    }

    /// Warns of servers that no connection ID has named yet, while packets with others were dropped.
    pub(super) fn mute_warning(&self, run: &RunningVip) -> Option<String> {
        const FEWEST: u64 = 3;
        let dropped = |naming: &Naming| self.unroutable().saturating_sub(naming.unroutable);
        let is_mute = |backend: &&RunningBackend| {
            self.zero.naming.get(&backend.real).is_some_and(|naming| {
                let has_opened = load(&self.figures.reals, backend.real).opened > naming.opened;
                naming.last.is_none() && has_opened && dropped(naming) >= FEWEST
            })
        };
        let mute: Vec<_> = run.backends.iter().filter(is_mute).collect();
        let first = mute.first()?;
        let others = and_more(mute.len() - 1);
        let dropped = self.zero.naming.get(&first.real).map_or(0, dropped);
        Some(format!(
            "VIP '{}': no packet has named '{}'{others} in its connection ID yet, and {dropped} that name no server were dropped: \
             servers behind policy 'zero-rtt' must put their server_id into connection IDs (QUIC-LB), with rotation and key of the \
             layout, or their clients time out; whether clients sent these packets or somebody forged them cannot be told",
            run.vip.name, first.backend.name
        ))
    }

    /// For how long no connection ID has named a backend, in ns; none if none ever did.
    pub(super) fn named_age(&self, real: u32) -> Option<u64> {
        let last = self.zero.naming.get(&real)?.last?;
        Some(nanos(last.elapsed()))
    }

    /// Adjusts how many connections of a server count as heavy. The kernel gets new numbers with its next update.
    pub(super) fn update_heavy_shares(&mut self) -> Result<(), ControlError> {
        for run in &mut self.vips {
            let slot = self.state.zero_slot(&run.vip.key);
            if let (Some((share, config)), Some(slot)) = (run.heavy_share_mut(), slot) {
                share.step(self.plane.heavy_windows(slot, config)?);
            }
        }
        Ok(())
    }
}

/// The slot of a VIP that routes by connection ID, including the backends that are leaving.
fn zero_vip(run: &RunningVip, state: &State) -> Option<ZeroVip> {
    let zero = run.vip.zero_rtt.as_ref()?;
    let serving = run.backends.iter().filter_map(|backend| {
        let id = ServerId(backend.backend.server_id?.into());
        Some(ZeroServer { real: backend.real, id, state: run.server_state(backend) })
    });
    let mut servers: Vec<ZeroServer> = serving.collect();
    for (number, real) in &state.reals {
        let Some(id) = real.server_id.map(|id| ServerId(id.into())) else {
            continue;
        };
        let is_leaving = real.vip == Some(run.vip.key) && real.phase == Phase::Leaving;
        // A backend whose forwarding has changed leaves under its old number, and serves under its new one with the
        // same ID.
        if is_leaving && !servers.iter().any(|server| server.id == id) {
            servers.push(ZeroServer { real: *number, id, state: ServerState::Left });
        }
    }
    Some(ZeroVip {
        layouts: zero.layouts.clone(),
        servers,
        heavy: run.current_heavy(zero.heavy),
        overload: zero.overload,
        window: zero.window,
        attempt: zero.attempt,
        heavy_scope: zero.heavy_scope,
        is_unroutable_hashed: zero.is_unroutable_hashed,
    })
}

#[cfg(test)]
mod tests {
    use ServerState::{Down, Left, Open};
    use dwell_probes::balancer::WhenStale;

    use super::*;
    use crate::{config::vip_with, control::vip::PriorState};

    fn running() -> RunningVip {
        let keys = "protocol = \"udp\"\npolicy = \"zero-rtt\"\nhealth = { kind = \"tcp\" }\ntable_size = 1009\n\
                    zero_rtt = { layout = [{ rotation = 0, key = \"000102030405060708090a0b0c0d0e0f\" }] }";
        let backends = (1..=3).map(|at| format!("{{ address = \"10.0.0.{at}\", server_id = {at} }}"));
        let vip = vip_with(keys, &backends.collect::<Vec<_>>().join(", "));
        let reals = [(1, false), (2, false), (3, false)];
        let mut run = RunningVip::configure(None, 1, vip, &reals, &PriorState::default(), Duration::from_secs(1));
        run.backends.iter_mut().for_each(|run| run.is_reachable = true);
        run
    }

    fn states(run: &mut RunningVip) -> Vec<ServerState> {
        run.build_tables(Duration::ZERO, Instant::now(), WhenStale::Keep);
        let servers = zero_vip(run, &State::default()).expect("it has the policy").servers;
        servers.iter().map(|server| server.state).collect()
    }

    fn fails(run: &mut RunningVip, at: usize) {
        run.backends[at].health.update(false, Instant::now());
    }

    #[test]
    fn a_server_that_fails_its_checks_has_not_left_and_one_that_is_drained_has() {
        let mut run = running();
        assert_eq!(states(&mut run), [Open, Open, Open]);
        fails(&mut run, 1);
        run.backends[2].is_draining = true;
        assert_eq!(states(&mut run), [Open, Down, Left]);
        // Its sessions were handed over before it went down.
        fails(&mut run, 2);
        assert_eq!(states(&mut run), [Open, Down, Left]);
        run.backends[1].is_draining = true;
        assert_eq!(states(&mut run), [Open, Left, Left]);
        run.backends[0].is_reachable = false;
        assert_eq!(states(&mut run), [Down, Left, Left]);
    }

    #[test]
    fn if_all_servers_fail_their_checks_tokens_lead_to_them_all_the_same() {
        let mut run = running();
        (0..3).for_each(|at| fails(&mut run, at));
        assert_eq!(states(&mut run), [Open, Open, Open]);
        run.backends[1].is_draining = true;
        assert_eq!(states(&mut run), [Open, Left, Open]);
        run.backends[0].health.update(true, Instant::now());
        assert_eq!(states(&mut run), [Open, Left, Down]);
    }
}
