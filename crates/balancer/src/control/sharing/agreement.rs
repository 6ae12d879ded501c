//! A VIP as one of several balancers has it: what it reports, what the leader makes of all reports, and the weights that
//! all have agreed on.

use std::time::{Duration, Instant};

use dwell_engine::steer::{BackendState as PolicyInput, BackendStats, Share, ShareReason};
use dwell_probes::balancer::ActiveConnections;

use super::super::{backend::RunningBackend, vip::RunningVip};
use crate::{
    config::PolicyName,
    shared::{
        report::{BackendReport, View, VipReport, merge},
        set::{BackendWeight, VipWeights, digest},
    },
};

/// The part that a balancer has among the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::control) struct Role {
    /// Whether it decides.
    pub leads: bool,
    /// Whether the store is away.
    pub is_alone: bool,
}

/// What all balancers have agreed on for a VIP.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::control) struct Agreement {
    /// Whether there is a set with this VIP.
    is_there: bool,
    /// Whether it is for another configuration of the VIP.
    is_for_other: bool,
    all_down: bool,
    role: Role,
}

impl RunningBackend {
    /// What this balancer says of the backend.
    fn own_view(&self) -> View {
        View { is_up: self.health.is_up, is_unreachable: !self.is_reachable, is_draining: self.is_draining }
    }

    /// What counts when weights are decided: this balancer's own view, or that of most.
    pub(in crate::control) fn view(&self) -> View {
        self.voted.unwrap_or_else(|| self.own_view())
    }
}

impl RunningVip {
    /// What balancers must have in common to agree on this VIP.
    pub(in crate::control) fn digest(&self) -> &str {
        self.digest.get_or_init(|| digest(&self.vip))
    }

    /// Ends an interval. Returns what was seen in it. The policy sets weights only if none are agreed on, and not if they are
    /// held.
    pub(in crate::control) fn report(&mut self, connections: &ActiveConnections, is_held: bool) -> VipReport {
        let inputs: Vec<PolicyInput> = self.policy_inputs(connections);
        let measured = self.intervals.end_measured(&inputs);
        self.note_estimates(&inputs, measured.iter().map(|(seen, _)| seen));
        if !self.agreement.is_there && !self.agreement.role.leads && !is_held {
            let seen: Vec<BackendStats> = measured.iter().map(|(seen, _)| *seen).collect();
            self.step(&seen);
        }
        let is_measured = self.vip.policy == PolicyName::Latency;
        let of = self.backends.iter_mut().zip(measured).map(|(run, (seen, measured))| {
            run.seen = Some(seen);
            let report = BackendReport {
                view: run.own_view(),
                requests: seen.requests,
                active: seen.active,
                measured: (is_measured && measured.connections > 0).then_some(measured),
            };
            (run.backend.address, report)
        });
        let of = of.collect();
        VipReport { digest: self.digest().to_owned(), of }
    }

    /// Merges what balancers with the same configuration have seen, each with its name. With `is_step`, the policy sets weights.
    pub(in crate::control) fn merge(&mut self, reports: &[(&str, &VipReport)], is_step: bool) {
        let alike: Vec<_> = reports.iter().filter(|(_, report)| report.digest == self.digest()).collect();
        let config = self.vip.latency.intervals;
        let merged: Vec<BackendStats> = self
            .backends
            .iter_mut()
            .map(|run| {
                let named: Vec<(&str, &BackendReport)> = alike
                    .iter()
                    .filter_map(|(name, report)| Some((*name, report.of.get(&run.backend.address)?)))
                    .collect();
                let drained = named.iter().filter(|(_, report)| report.view.is_draining);
                run.drained_by = drained.map(|(name, _)| (*name).to_owned()).collect();
                let of: Vec<&BackendReport> = named.iter().map(|(_, report)| *report).collect();
                let own = run.seen.unwrap_or(BackendStats {
                    real: run.real,
                    configured: run.backend.weight,
                    latency: None,
                    requests: 0,
                    strays: 0,
                    active: 0,
                    is_usable: false,
                });
                let (view, stats) = merge(&config, &own, &of);
                run.voted = Some(view);
                stats
            })
            .collect();
        if is_step {
            self.step(&merged);
        }
    }

    /// Takes over the weights that all have agreed on, if there are any.
    pub(in crate::control) fn follow(&mut self, agreed: Option<&VipWeights>, role: Role) {
        self.agreement = Agreement {
            is_there: agreed.is_some(),
            is_for_other: agreed.is_some_and(|agreed| agreed.digest != self.digest()),
            all_down: agreed.is_some_and(|agreed| agreed.all_down),
            role,
        };
        for run in &mut self.backends {
            run.agreed = agreed.and_then(|agreed| agreed.of.get(&run.backend.address).copied());
            if !role.leads {
                run.voted = None;
                let drained_by = agreed.and_then(|agreed| agreed.drained_by.get(&run.backend.address));
                run.drained_by = drained_by.cloned().unwrap_or_default();
                if let Some(agreed) = run.agreed {
                    run.share = Share { weight: agreed.policy, reason: ShareReason::Shared };
                }
            }
        }
    }

    /// The weight of each backend in the table that all have agreed on, and whether all are kept although they are down.
    /// Without the store, backends that fail the checks of this balancer are left out, as others leave them out that see the
    /// same. `None` if there is no agreement, or it is for other backends.
    pub(in crate::control) fn agreed_weights(&self) -> Option<(Vec<f64>, bool)> {
        let Agreement { is_there, is_for_other, all_down, role } = self.agreement;
        let weights: Vec<f64> = self.backends.iter().map(|run| run.agreed.map_or(0.0, |agreed| agreed.table)).collect();
        let has_any = |weights: &[f64]| weights.iter().any(|weight| *weight > 0.0);
        if !is_there || is_for_other && !has_any(&weights) {
            return None;
        }
        if !role.is_alone {
            return Some((weights, all_down));
        }
        let up =
            self.backends.iter().zip(&weights).map(|(run, weight)| if run.health.is_down() { 0.0 } else { *weight });
        let up: Vec<f64> = up.collect();
        Some(if has_any(&up) { (up, false) } else { (weights, true) })
    }

    /// Whether connections should not go to a backend whatever the table says: as most balancers see it, or without the
    /// store as this one does.
    pub(in crate::control) fn is_down(&self, run: &RunningBackend) -> bool {
        match run.agreed {
            Some(agreed) if !self.agreement.role.is_alone => agreed.is_down,
            _ => run.health.is_down(),
        }
    }

    /// Whether a backend drains, at this balancer or any other.
    pub(in crate::control) fn is_drained(&self, run: &RunningBackend) -> bool {
        run.is_draining || run.view().is_draining || run.agreed.is_some_and(|agreed| agreed.is_draining)
    }

    /// The weights that follow from what is known here.
    pub(in crate::control) fn proposal(&self, ramp: Duration, now: Instant) -> VipWeights {
        let (weights, all_down) = self.effective_weights(ramp, now);
        let of = self.backends.iter().zip(weights).map(|(run, table)| {
            let View { is_up, is_draining, .. } = run.view();
            let weight = BackendWeight { table, policy: run.share.weight, is_down: is_up == Some(false), is_draining };
            (run.backend.address, weight)
        });
        let drained = self.backends.iter().filter(|run| !run.drained_by.is_empty());
        let drained_by = drained.map(|run| (run.backend.address, run.drained_by.clone())).collect();
        VipWeights { digest: self.digest().to_owned(), all_down, of: of.collect(), drained_by }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use dwell_probes::balancer::{ServerState, WhenStale};

    use super::*;
    use crate::{config::vip_with, control::vip::PriorState};

    fn vip(backends: &str) -> RunningVip {
        let vip = vip_with("table_size = 1009\npolicy = \"latency\"\nhealth.kind = \"tcp\"", backends);
        let reals: Vec<(u32, bool)> = (1..).zip(&vip.backends).map(|(real, _)| (real, false)).collect();
        let mut run = RunningVip::configure(None, 1, vip, &reals, &PriorState::default(), Duration::from_secs(1));
        run.backends.iter_mut().for_each(|run| run.is_reachable = true);
        run
    }

    const THREE: &str = "{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }, { address = \"10.0.0.3\" }";

    fn build(run: &mut RunningVip) {
        run.build_tables(Duration::ZERO, Instant::now(), WhenStale::Keep);
    }

    /// The weights of backends by the last octet of their address.
    fn agreed(run: &RunningVip, weights: &[(u8, f64)]) -> VipWeights {
        let weight = |(octet, table): &(u8, f64)| {
            let weight =
                BackendWeight { table: *table, policy: *table, is_down: *table == 0.0, ..BackendWeight::default() };
            (IpAddr::from([10, 0, 0, *octet]), weight)
        };
        let of = weights.iter().map(weight).collect();
        VipWeights { digest: run.digest().to_owned(), of, ..VipWeights::default() }
    }

    #[test]
    fn tables_are_equal_if_sets_are_whatever_each_has_seen_before() {
        let mut one = vip(THREE);
        // The other has other numbers, another history, and a health of its own.
        let mut other = vip("{ address = \"10.0.0.3\" }, { address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }");
        other.backends[0].share.weight = 0.3;
        other.backends[1].health.is_up = Some(false);
        other.backends[2].is_draining = true;
        [&mut one, &mut other].into_iter().for_each(build);
        assert_ne!(one.table.hash(), other.table.hash());
        let follow = |run: &mut RunningVip, weights: &[(u8, f64)]| {
            let agreed = agreed(run, weights);
            run.follow(Some(&agreed), Role::default());
            build(run);
        };
        // One has seen another set before, from which the last differs by too little to matter where weights are measured.
        follow(&mut one, &[(1, 1.0), (2, 0.5), (3, 2.0)]);
        let before = one.table.hash();
        for run in [&mut one, &mut other] {
            follow(run, &[(1, 1.008), (2, 0.5), (3, 2.0)]);
        }
        assert_ne!(one.table.hash(), before);
        assert_eq!(one.table.hash(), other.table.hash());
        assert_eq!(one.backends[1].share, Share { weight: 0.5, reason: ShareReason::Shared });
    }

    fn down(run: &RunningVip) -> Vec<u32> {
        run.in_use().filter(|(_, in_use)| in_use.is_down).map(|(real, _)| real).collect()
    }

    #[test]
    fn what_most_see_as_down_is_down_and_without_the_store_what_is_seen_here() {
        let mut run = vip(THREE);
        run.backends[0].health.is_up = Some(false);
        let agreed = agreed(&run, &[(1, 1.0), (2, 0.0), (3, 1.0)]);
        run.follow(Some(&agreed), Role::default());
        build(&mut run);
        assert_eq!(down(&run), [2]);
        assert!(run.table.share(1) > 0.4);
        run.follow(Some(&agreed), Role { is_alone: true, leads: false });
        build(&mut run);
        assert_eq!(down(&run), [1]);
        assert_eq!([1, 2, 3].map(|real| run.table.share(real)), [0.0, 0.0, 1.0]);
        run.backends[2].health.is_up = Some(false);
        build(&mut run);
        assert!(run.all_down && run.table.share(1) > 0.4, "all are kept");
        assert!(down(&run).is_empty());
    }

    #[test]
    fn another_configuration_follows_as_far_as_it_has_the_same_backends() {
        let three = vip(THREE);
        let weights = agreed(&three, &[(1, 1.0), (2, 1.0), (3, 1.0)]);
        let mut two = vip("{ address = \"10.0.0.3\" }, { address = \"10.0.0.4\" }");
        assert_ne!(two.digest(), three.digest());
        two.follow(Some(&weights), Role::default());
        build(&mut two);
        assert_eq!([1, 2].map(|real| two.table.share(real)), [1.0, 0.0], "the new one waits for the leader");
        let mut none = vip("{ address = \"10.0.0.4\" }");
        none.follow(Some(&weights), Role::default());
        build(&mut none);
        assert_eq!(none.table.share(1), 1.0, "it has none of them, and decides alone");
        none.follow(None, Role::default());
        build(&mut none);
        assert_eq!(none.table.share(1), 1.0);
    }

    #[test]
    fn the_leader_proposes_what_most_see_and_not_what_it_sees_alone() {
        let mut run = vip(THREE);
        run.backends[0].health.is_up = Some(false);
        let digest = run.digest().to_owned();
        let report = |downs: &[u8], drained: Option<u8>| {
            let of = (1..=3).map(|octet| {
                let view = View {
                    is_up: Some(!downs.contains(&octet)),
                    is_unreachable: false,
                    is_draining: drained == Some(octet),
                };
                (IpAddr::from([10, 0, 0, octet]), BackendReport { view, ..BackendReport::default() })
            });
            VipReport { digest: digest.clone(), of: of.collect() }
        };
        let other = VipReport { digest: "other".into(), ..report(&[1], None) };
        run.follow(None, Role { leads: true, is_alone: false });
        let reports = [report(&[1], None), report(&[3], None), report(&[3], Some(2)), other];
        let named: Vec<_> = ["lb1", "lb2", "lb3", "lb4"].into_iter().zip(&reports).collect();
        run.merge(&named, false);
        let proposal = run.proposal(Duration::ZERO, Instant::now());
        let weights: Vec<(f64, bool)> = proposal.of.values().map(|weight| (weight.table, weight.is_down)).collect();
        assert_eq!(weights, [(1.0, false), (0.0, false), (0.0, true)]);
        // Those that follow know what was drained elsewhere: another server has its sessions.
        let mut follower = vip(THREE);
        follower.follow(Some(&proposal), Role::default());
        build(&mut follower);
        let states: Vec<ServerState> = follower.backends.iter().map(|run| follower.server_state(run)).collect();
        assert_eq!(states, [ServerState::Open, ServerState::Left, ServerState::Down]);
        let drained_by: Vec<&[String]> = follower.backends.iter().map(|run| &*run.drained_by).collect();
        assert_eq!(drained_by, [&[][..], &["lb3".to_owned()], &[]]);
        // Who leads no more has a view of its own again.
        run.follow(None, Role::default());
        assert!(run.backends[0].view().is_up == Some(false));
    }
}
