//! Plans: whatever ran and whatever is wanted, numbers stay with their VIPs and backends.
#![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

use std::{collections::BTreeSet, fmt::Write, path::Path};

use dwell_balancer::{
    config::{Config, Limits, Vip},
    plan::{NumberedBackend, Phase, PlanError, Restart, State, differences, plan, restart_keys},
};
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { zero_rtt_vips: 8, zero_rtt_servers: 1024, connections: 1000, measured: 1000, vips: 40, reals: 400 };

/// VIPs by the last byte of their address, each with its backends by theirs.
fn config(vips: &[(u8, Vec<u8>)]) -> Config {
    let mut text = "interface = \"eth0\"\n".to_owned();
    for (vip, backends) in vips {
        write!(text, "[[vip]]\nname = \"v{vip}\"\naddress = \"192.0.2.{vip}\"\nport = 80\nforward = \"l2\"\n").unwrap();
        for backend in backends {
            write!(text, "[[vip.backend]]\naddress = \"10.0.0.{backend}\"\n").unwrap();
        }
    }
    Config::parse(&text, Path::new("lb.toml")).unwrap()
}

fn wanted(vips: &[(u8, Vec<u8>)]) -> Vec<Vip> {
    config(vips).vips
}

fn next(state: &State, vips: &[(u8, Vec<u8>)]) -> State {
    plan(state, &wanted(vips), LIMITS).unwrap().next
}

#[test]
fn a_backend_that_returns_while_it_leaves_keeps_its_number() {
    let first = next(&State::default(), &[(1, vec![1, 2])]);
    let second = next(&first, &[(1, vec![2])]);
    assert_eq!(second.reals[&1].phase, Phase::Leaving);
    assert_eq!(second.reals[&2].phase, Phase::Serving);
    let third = next(&second, &[(1, vec![3, 1])]);
    assert_eq!(third.reals[&1].phase, Phase::Serving);
    assert_eq!(third.reals[&2].phase, Phase::Leaving);
    assert_eq!(third.reals[&3].name, "10.0.0.3");
}

#[test]
fn a_drained_backend_stays_drained_and_leaves_when_unwanted() {
    let mut state = next(&State::default(), &[(1, vec![1, 2])]);
    state.reals.get_mut(&1).unwrap().phase = Phase::Draining;
    assert_eq!(next(&state, &[(1, vec![1, 2, 3])]).reals[&1].phase, Phase::Draining);
    assert_eq!(next(&state, &[(1, vec![2])]).reals[&1].phase, Phase::Leaving);
}

#[test]
fn a_backend_with_another_forwarding_is_another_backend() {
    let first = next(&State::default(), &[(1, vec![1])]);
    let mut vips = wanted(&[(1, vec![1])]);
    vips[0].forward = dwell_balancer::config::Forward::Ipip;
    for phase in [Phase::Serving, Phase::Draining] {
        let mut first = first.clone();
        first.reals.get_mut(&1).unwrap().phase = phase;
        let next = plan(&first, &vips, LIMITS).unwrap().next;
        assert_eq!((next.reals[&1].phase, next.reals[&2].phase), (Phase::Leaving, phase));
        assert_eq!(next.reals[&1].address, next.reals[&2].address);
        let back = plan(&next, &wanted(&[(1, vec![1])]), LIMITS).unwrap().next;
        assert_eq!((back.reals[&1].phase, back.reals[&2].phase), (phase, Phase::Leaving));
    }
}

/// Packets of its open connections count by it.
#[test]
fn the_number_of_a_removed_vip_is_kept_until_its_last_backend_has_left() {
    let numbers = |state: &State| state.vips.keys().copied().collect::<Vec<_>>();
    let [alone, both, other] = [vec![(1, vec![1])], vec![(1, vec![1]), (2, vec![2])], vec![(1, vec![1]), (3, vec![3])]];
    let first = next(&State::default(), &both);
    let mut removed = next(&first, &alone);
    let later = next(&removed, &other);
    assert_eq!(numbers(&later), [1, 3]);
    // It has its number again.
    for before in [&removed, &next(&later, &alone)] {
        assert_eq!(next(before, &both).vips, first.vips);
    }
    // If there is no other number, it is taken.
    let limits = Limits { vips: 2, ..LIMITS };
    assert_eq!(numbers(&plan(&removed, &wanted(&other), limits).unwrap().next), [1, 2]);
    removed.reals.retain(|_, real| real.phase != Phase::Leaving);
    assert_eq!(numbers(&next(&removed, &other)), [1, 2]);
}

#[test]
fn an_error_for_lack_of_room_names_what_takes_it() {
    let limits = Limits { reals: 2, ..LIMITS };
    let state = next(&State::default(), &[(1, vec![1, 2])]);
    let error = plan(&state, &wanted(&[(1, vec![2, 3])]), limits).unwrap_err();
    assert_eq!(error, PlanError::NoRoom { what: "backends", key: "reals", needed: 3, leaving: 1, ending: 0, limit: 2 });
    insta::assert_snapshot!(error, @"there is no room for 3 backends (1 of them leaving: they wait for their last connections), only for 2: raise limits.reals and restart");
    let limits = Limits { vips: 1, ..LIMITS };
    let error = plan(&State::default(), &wanted(&[(1, vec![]), (2, vec![])]), limits).unwrap_err();
    assert!(matches!(error, PlanError::NoRoom { key: "vips", needed: 2, .. }), "{error}");
}

/// QUIC VIPs by the last byte of their address, each with its backends by theirs and with their server IDs.
fn quic(vips: &[(u8, &[(u8, u64)])]) -> Vec<Vip> {
    let mut text = "interface = \"eth0\"\n".to_owned();
    for (vip, backends) in vips {
        write!(
            text,
            "[[vip]]\nname = \"v{vip}\"\naddress = \"192.0.2.{vip}\"\nport = 443\nprotocol = \"udp\"\n\
             forward = \"l2\"\npolicy = \"zero-rtt\"\n\
             zero_rtt = {{ layout = [{{ rotation = 0, clear = true }}] }}\n"
        )
        .unwrap();
        for (backend, id) in *backends {
            let address = format!("10.0.{}.{backend}", id >> 8);
            write!(text, "[[vip.backend]]\naddress = \"{address}\"\nserver_id = {id}\n").unwrap();
        }
    }
    Config::parse(&text, Path::new("lb.toml")).unwrap().vips
}

const IN_USE: &str = "vip.backend.server_id: 7 of backend '10.0.0.3' still belongs to '10.0.0.1' (10.0.0.1), which is leaving 192.0.2.1:443/udp: its connections are routed by that ID; write another one, or leave '10.0.0.3' out until '10.0.0.1' has left (see `dwell lb status`)";

const CHANGED: &str = "vip.backend.server_id: backend '10.0.0.2' of 192.0.2.1:443/udp has 8 and cannot change to 7: its connections are routed by 8; write 8 again, or leave '10.0.0.2' out until it has left (see `dwell lb status`)";

#[test]
fn the_server_id_of_a_backend_that_leaves_is_free_when_it_has_left() {
    let state = |state: &State, vips: &[Vip]| plan(state, vips, LIMITS).unwrap().next;
    let both = state(&State::default(), &quic(&[(1, &[(1, 7), (2, 8)])]));
    // As it starts to leave, and while it leaves.
    let first = state(&both, &quic(&[(1, &[(2, 8)])]));
    for before in [&both, &first] {
        let taken = quic(&[(1, &[(3, 7), (2, 8)])]);
        let error = plan(before, &taken, LIMITS).unwrap_err();
        assert_eq!(error.to_string(), IN_USE);
        // An existing backend must not take it either.
        let taken = quic(&[(1, &[(2, 7)])]);
        let error = plan(before, &taken, LIMITS).unwrap_err();
        assert_eq!(error.to_string(), CHANGED);
        // Allowed: another ID, the same ID of another VIP, and the former owner.
        for vips in
            [quic(&[(1, &[(3, 9), (2, 8)])]), quic(&[(1, &[(2, 8)]), (2, &[(3, 7)])]), quic(&[(1, &[(1, 7), (2, 8)])])]
        {
            plan(before, &vips, LIMITS).unwrap();
        }
    }
    // With another forwarding, it is the same server to its connections.
    let mut otherwise = quic(&[(1, &[(1, 7), (2, 8)])]);
    otherwise[0].forward = dwell_balancer::config::Forward::Ipip;
    let next = state(&both, &otherwise);
    assert_eq!(next.reals.len(), 4);
    // The rule holds even after the VIP was removed.
    let none = state(&both, &[]);
    plan(&none, &quic(&[(1, &[(3, 7)])]), LIMITS).unwrap_err();
    let mut left = first;
    left.reals.remove(&1);
    let taken = state(&left, &quic(&[(1, &[(3, 7), (2, 8)])]));
    assert_eq!(taken.reals[&1].server_id, Some(7));
    // An older version may have allowed a duplicate: its owner keeps it.
    let mut twice = taken.clone();
    twice.reals.get_mut(&2).unwrap().server_id = Some(7);
    plan(&twice, &quic(&[(1, &[(3, 7)])]), LIMITS).unwrap();
}

#[test]
fn a_backend_that_stays_keeps_its_server_id() {
    let state = |state: &State, vips: &[Vip]| plan(state, vips, LIMITS).unwrap().next;
    let both = state(&State::default(), &quic(&[(1, &[(1, 7), (2, 8)])]));
    let changed = |vips: &[Vip]| match plan(&both, vips, LIMITS) {
        Err(PlanError::ServerIdChanged { had, id, .. }) => (had, id),
        other => panic!("{other:?}"),
    };
    // Two that swap, a new one that takes what another gives up, and an unused ID.
    assert_eq!(changed(&quic(&[(1, &[(1, 8), (2, 7)])])), (7, 8));
    assert_eq!(changed(&quic(&[(1, &[(3, 7), (1, 9), (2, 8)])])), (7, 9));
    assert_eq!(changed(&quic(&[(1, &[(1, 7), (2, 9)])])), (8, 9));
    // Not while it leaves either.
    let first = state(&both, &quic(&[(1, &[(2, 8)])]));
    plan(&first, &quic(&[(1, &[(1, 9), (2, 8)])]), LIMITS).unwrap_err();
    // Another forwarding is another backend: the former leaves with its ID.
    let mut otherwise = quic(&[(1, &[(1, 9), (2, 8)])]);
    otherwise[0].forward = dwell_balancer::config::Forward::Ipip;
    assert_eq!(state(&both, &otherwise).reals[&1].server_id, Some(7));
    // A backend that is not routed by connection ID may have any.
    let mut hashed = quic(&[(1, &[(1, 8), (2, 7)])]);
    hashed[0].zero_rtt = None;
    let next = state(&both, &hashed);
    state(&next, &quic(&[(1, &[(1, 9), (2, 10)])]));
}

#[test]
fn vips_that_route_by_connection_id_keep_their_slots_and_lack_of_room_has_a_remedy() {
    let one: &[(u8, u64)] = &[(1, 1)];
    let both = plan(&State::default(), &quic(&[(1, one), (2, one)]), LIMITS).unwrap().next;
    let keys = |state: &State| state.zero_slots.clone().into_iter().collect::<Vec<_>>();
    let [first, second] = [1, 2].map(|number| both.vips[&number]);
    assert_eq!(keys(&both), [(1, first), (2, second)]);
    // A slot that ends is not reused by the same plan.
    let next = plan(&both, &quic(&[(2, one), (3, one)]), LIMITS).unwrap().next;
    assert_eq!(keys(&next), [(2, second), (3, next.vips[&3])]);
    let again = plan(&next, &quic(&[(2, one), (3, one), (4, one)]), LIMITS).unwrap().next;
    assert_eq!(again.zero_slots.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    let limits = Limits { zero_rtt_vips: 2, ..LIMITS };
    let error = plan(&both, &quic(&[(2, one), (3, one)]), limits).unwrap_err();
    insta::assert_snapshot!(error, @"there is no room for 3 VIPs with the policy zero-rtt (1 of them ending: their room becomes free afterwards), only for 2: first reload without the additions, or raise limits.zero_rtt_vips and restart");
    plan(&both, &quic(&[(2, one)]), limits).unwrap();
    // If even the total is too much, that does not help.
    let error = plan(&both, &quic(&[(2, one), (3, one), (4, one)]), limits).unwrap_err();
    insta::assert_snapshot!(error, @"there is no room for 3 VIPs with the policy zero-rtt, only for 2: raise limits.zero_rtt_vips and restart");
    // Servers, including those that leave and those of slots that end.
    let limits = Limits { zero_rtt_servers: 3, ..LIMITS };
    plan(&both, &quic(&[(1, &[(1, 1), (2, 2)]), (2, one)]), limits).unwrap();
    let error = plan(&both, &quic(&[(1, &[(2, 2), (3, 3)]), (2, one)]), limits).unwrap_err();
    insta::assert_snapshot!(error, @"there is no room for 4 backends of VIPs with the policy zero-rtt (1 of them leaving: they wait for their last connections), only for 3: raise limits.zero_rtt_servers and restart");
    let error = plan(&both, &quic(&[(1, one), (3, &[(1, 1), (2, 2)])]), limits).unwrap_err();
    assert!(error.to_string().contains("no room for 4 backends of VIPs"), "{error}");
    // Also if the VIP continues without connection IDs.
    let mut hashed = quic(&[(2, one), (3, &[(1, 1), (2, 2), (3, 3)])]);
    hashed[0].zero_rtt = None;
    hashed[0].backends[0].server_id = None;
    let mut alone = plan(&both, &quic(&[(2, one)]), limits).unwrap().next;
    alone.reals.retain(|_, real| real.phase != Phase::Leaving);
    let error = plan(&alone, &hashed, limits).unwrap_err();
    insta::assert_snapshot!(error, @"there is no room for 4 backends of VIPs with the policy zero-rtt (1 of them ending: their room becomes free afterwards), only for 3: first reload without the additions, or raise limits.zero_rtt_servers and restart");
    let next = plan(&alone, &hashed[..1], limits).unwrap().next;
    plan(&next, &hashed, limits).unwrap();
    // Of one VIP.
    let many: Vec<(u8, u64)> = (0..1025).map(|id| ((id % 250) as u8 + 1, id + (id / 250) * 256)).collect();
    let limits = Limits { reals: 2000, zero_rtt_servers: 2000, ..LIMITS };
    plan(&State::default(), &quic(&[(1, &many[1..])]), limits).unwrap();
    let error = plan(&State::default(), &quic(&[(1, &many)]), limits).unwrap_err();
    insta::assert_snapshot!(error, @"192.0.2.1:443/udp would have 1025 servers with connection IDs, including those that are leaving, and can have 1024: remove some, or move them to another VIP");
}

#[test]
fn differences_are_described() {
    let old = r#"
        interface = "eth0"
        [[vip]]
        name = "gone"
        address = "192.0.2.1"
        port = 80
        forward = "l2"
        backend = [{ address = "10.0.0.1" }]
        [[vip]]
        name = "web"
        address = "192.0.2.2"
        port = 80
        forward = "l2"
        backend = [{ address = "10.0.0.1", name = "a" }, { address = "10.0.0.2", name = "b" }, { address = "10.0.0.3" }]
    "#;
    let new = r#"
        interface = "eth1"
        estimator = "pirate"
        limits.vips = 9
        [[vip]]
        name = "www"
        address = "192.0.2.2"
        port = 80
        forward = "ipip"
        policy = "latency"
        table_size = 127
        latency.steady = "4s"
        health = { kind = "tcp" }
        backend = [{ address = "10.0.0.1", name = "a", weight = 2 }, { address = "10.0.0.2", name = "B" }, { address = "10.0.0.4" }]
        [[vip]]
        name = "new"
        address = "192.0.2.3"
        port = "any"
        protocol = "udp"
        forward = "gue"
    "#;
    let read = |text| Config::parse(text, Path::new("lb.toml")).unwrap();
    let (old, new) = (read(old), read(new));
    insta::assert_snapshot!(differences(&old.vips, &new.vips).join("\n"));
    let keys = restart_keys(&old, &new);
    assert_eq!(keys.iter().map(|(key, _)| *key).collect::<Vec<_>>(), ["interface", "estimator", "pin", "limits"]);
    assert_eq!(keys.iter().map(|(_, restart)| *restart).max(), Some(Restart::Detached));
    assert!(differences(&new.vips, &new.vips).is_empty());
}

fn any_vips() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let backends = prop::collection::btree_set(1..20u8, 0..8);
    prop::collection::btree_map(1..8u8, backends, 0..6)
        .prop_map(|vips| vips.into_iter().map(|(vip, set)| (vip, set.into_iter().collect())).collect())
}

proptest! {
    /// A history of configurations; between them some leaving backends disappear, and some backends are drained.
    #[test]
    fn numbers_stay_with_their_owners(
        history in prop::collection::vec((any_vips(), any::<u64>(), any::<u64>()), 1..12)
    ) {
        let mut state = State::default();
        for (vips, gone, drain) in history {
            let wanted = wanted(&vips);
            let planned = plan(&state, &wanted, LIMITS).unwrap();
            let next = &planned.next;
            // The owner of a number that stays in use is the same.
            for (number, real) in &next.reals {
                if let Some(was) = state.reals.get(number) {
                    prop_assert_eq!((was.vip, was.address, was.forward), (real.vip, real.address, real.forward));
                    prop_assert!(was.phase != Phase::Draining || real.phase != Phase::Serving);
                } else {
                    prop_assert!(planned.new_reals.contains(number));
                }
            }
            // No running backend is forgotten.
            prop_assert!(state.reals.keys().all(|number| next.reals.contains_key(number)));
            // Exactly the wanted backends serve or drain.
            let there: BTreeSet<_> = next.reals.values().filter(|real| real.phase != Phase::Leaving)
                .map(|real| (real.vip.unwrap(), real.address)).collect();
            let want: BTreeSet<_> = wanted.iter()
                .flat_map(|vip| vip.backends.iter().map(|backend| (vip.key, backend.address))).collect();
            prop_assert_eq!(&there, &want);
            let keys: BTreeSet<_> = next.vips.values().copied().collect();
            prop_assert_eq!(keys, wanted.iter().map(|vip| vip.key).collect::<BTreeSet<_>>());
            for (number, key) in &state.vips {
                prop_assert!(next.vips.get(number).is_none_or(|now| now == key));
            }
            // Where connections of a removed VIP may be open, no other VIP has its number.
            for (number, key) in &state.removed_vips {
                let is_over = state.reals.values().all(|real| real.vip != Some(*key));
                prop_assert!(is_over || next.vips.get(number).is_none_or(|now| now == key));
            }
            // Numbers are reported in the order of the configuration.
            for (vip, (number, reals)) in wanted.iter().zip(&planned.numbers) {
                prop_assert_eq!(next.vips[number], vip.key);
                let there: Vec<_> = reals.iter().map(|real| next.reals[real].address).collect();
                prop_assert_eq!(there, vip.backends.iter().map(|backend| backend.address).collect::<Vec<_>>());
            }
            // The same configuration again changes nothing.
            let again = plan(next, &wanted, LIMITS).unwrap();
            prop_assert!(again.new_reals.is_empty() && again.new_vips.is_empty() && again.gone_vips.is_empty());
            prop_assert_eq!(&again.next, next);
            state = planned.next;
            let is_gone = |number: u32, real: &NumberedBackend| {
                real.phase == Phase::Leaving && gone >> (number % 64) & 1 == 1
            };
            state.reals.retain(|number, real| !is_gone(*number, real));
            for (number, real) in &mut state.reals {
                if real.phase == Phase::Serving && drain >> (number % 64) & 1 == 1 {
                    real.phase = Phase::Draining;
                }
            }
        }
    }
}
