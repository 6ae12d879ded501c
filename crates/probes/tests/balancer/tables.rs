//! Changes of Maglev tables, VIPs and backends.

use std::{
    thread,
    time::{Duration, Instant},
};

use dwell_engine::response::Watch;
use dwell_probes::balancer::{
    Forward, Heartbeat, Load, NextHop, Plane, PlaneOptions, Protocol, RECENT, Real, Vip, VipKey, WhenStale,
};
use dwell_testbed::skip::lacks_root;

use crate::{
    options,
    packets::{Client, v4},
    parity::native,
};

fn real(host: u8) -> Real {
    let (destination, source) = ([2, 0, 0, 0, 0, host], [2, 0, 0, 0, 0, 1]);
    let next_hop = NextHop { interface: 70, destination, source, mtu: 1500 };
    Real::new([10, 0, 0, host].into(), Some(next_hop), Forward::L2)
}

fn key(port: u16) -> VipKey {
    VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(port) }
}

fn numbered(number: u32) -> Vip {
    Vip { number, ..Vip::default() }
}

pub fn loaded(options: &PlaneOptions) -> Option<Plane> {
    if lacks_root() {
        return None;
    }
    let mut plane = Plane::load(options).unwrap();
    for number in 1..=3 {
        plane.set_real(number, &real(number as u8)).unwrap();
    }
    Some(plane)
}

/// Returns the backends to which connections to a port would go, each once.
fn backends(plane: &mut Plane, port: u16) -> Vec<u32> {
    let mut found: Vec<u32> = (1000..1200)
        .filter_map(|client_port| {
            let client = Client { port: client_port, ..v4() };
            let mut syn = client.syn();
            syn[14 + 20 + 2..][..2].copy_from_slice(&port.to_be_bytes());
            plane.dry_run(&syn).unwrap().decision.real
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn root_many_tables_are_set_at_once_whatever_their_sizes() {
    let many = PlaneOptions { max_vips: 300, ..options() };
    let Some(mut plane) = loaded(&many) else {
        return;
    };
    for number in 1..=300 {
        plane.set_vip(&key(number), &numbered(number.into())).unwrap();
    }
    let set = |plane: &mut Plane, sizes: [usize; 3]| {
        let rows: Vec<(u32, Vec<u32>)> =
            (1..=300).map(|vip: u32| (vip, vec![1 + vip % 3; sizes[vip as usize % 3]])).collect();
        let rows: Vec<(u32, &[u32])> = rows.iter().map(|(vip, row)| (*vip, &row[..])).collect();
        plane.set_tables(&rows).unwrap();
        for vip in [1, 2, 3, 255, 256, 257, 300u16] {
            let wanted: Vec<u32> = match sizes[usize::from(vip) % 3] {
                0 => vec![],
                _ => vec![1 + u32::from(vip) % 3],
            };
            assert_eq!(backends(plane, vip), wanted, "{vip}");
        }
    };
    // The table grows, shrinks, and is removed and set again.
    set(&mut plane, [7, 31, 251]);
    set(&mut plane, [251, 31, 7]);
    set(&mut plane, [0, 13, 0]);
    set(&mut plane, [31, 0, 31]);

    // A refused table changes nothing, not even for the tables before it.
    let before = backends(&mut plane, 3);
    assert!(plane.set_tables(&[(3, &[2; 7]), (4, &[99; 7])]).is_err());
    assert_eq!(backends(&mut plane, 3), before);

    // Numbers of VIPs that are removed together begin with nothing.
    plane.set_equal_tables(&[(2, &[1; 7]), (3, &[1; 7])]).unwrap();
    plane.set_recent_tables(&[(2, &[[1; RECENT]; 7]), (3, &[[1; RECENT]; 7])]).unwrap();
    let all: Vec<VipKey> = (1..=300).map(key).collect();
    plane.remove_vips(&all).unwrap();
    assert_eq!(plane.vips().count(), 0);
    plane.set_vip(&key(3), &numbered(2)).unwrap();
    assert!(backends(&mut plane, 3).is_empty());
    plane.set_table(2, &[3; 7]).unwrap();
    assert_eq!(backends(&mut plane, 3), [3]);
    assert!(plane.recent_table(2).unwrap().as_flattened().iter().all(|had| *had == 0));
}

#[test]
fn root_thousands_of_backends_are_written_read_and_swept_at_once() {
    const MANY: u32 = 12_000;
    let Some(mut plane) = loaded(&PlaneOptions { max_reals: MANY, ..options() }) else { return };
    let all: Vec<(u32, Real)> = (1..=MANY).map(|number| (number, real(number as u8))).collect();
    plane.set_reals(&all).unwrap();
    plane.set_vip(&key(80), &numbered(1)).unwrap();
    for number in [1, MANY / 2, MANY] {
        plane.set_table(1, &[number; 7]).unwrap();
        let client = Client { port: 1000 + number as u16, ..v4() };
        plane.replay_packet(&client.syn()).unwrap();
    }
    let busy = |loads: Vec<Load>| -> Vec<u32> {
        assert_eq!(loads.len() as u32, MANY + 1);
        (0..).zip(loads).filter(|(_, load)| load.packets == 1).map(|(number, _)| number).collect()
    };
    assert_eq!(busy(plane.real_loads().unwrap()), [1, MANY / 2, MANY]);
    // The second sweep counts anew where the first one has left something.
    for _ in 0..2 {
        let found = plane.sweep(|_| {}).unwrap();
        let tracked: Vec<u32> = (0..=MANY).filter(|number| found.tracked(*number) > 0).collect();
        assert_eq!(tracked, [1, MANY / 2, MANY]);
        assert_eq!(found.tracked(MANY), 1);
    }
    plane.remove_reals(&[MANY / 2, MANY]).unwrap();
    plane.set_real(MANY, &real(1)).unwrap();
    assert_eq!(busy(plane.real_loads().unwrap()), [1]);
}

#[test]
fn root_a_number_that_is_used_again_begins_with_nothing() {
    let Some(mut plane) = loaded(&options()) else {
        return;
    };
    for port in [80, 81] {
        plane.set_vip(&key(port), &numbered(1)).unwrap();
    }
    plane.set_table(1, &[2; 7]).unwrap();
    for frame in [v4().syn(), v4().data(5)] {
        plane.replay_packet(&frame).unwrap();
    }
    plane.remove_vips(&[key(81)]).unwrap();
    // One of its keys is left.
    assert_eq!(backends(&mut plane, 80), [2]);
    assert_eq!(plane.vip_loads().unwrap()[1].packets, 2);
    plane.remove_vips(&[key(80)]).unwrap();
    // A known connection stays, and is still counted at its VIP.
    plane.replay_packet(&v4().data(5)).unwrap();
    plane.set_vip(&key(80), &numbered(1)).unwrap();
    assert!(backends(&mut plane, 80).is_empty());
    assert_eq!(plane.vip_loads().unwrap()[1], Load::default());

    // The same holds for a VIP whose last key gets another number.
    plane.set_table(1, &[3; 7]).unwrap();
    plane.set_vip(&key(80), &numbered(2)).unwrap();
    plane.set_vip(&key(81), &numbered(1)).unwrap();
    assert!(backends(&mut plane, 81).is_empty());

    assert_eq!(plane.real_loads().unwrap()[2].packets, 3);
    plane.remove_reals(&[2]).unwrap();
    assert_eq!(plane.real_loads().unwrap()[2], Load::default());
    plane.set_real(2, &real(4)).unwrap();
    assert_eq!(plane.real_loads().unwrap()[2], Load::default());
}

#[test]
fn tables_of_equal_weights_count_once_the_sign_of_life_is_older_than_its_limit() {
    let mut balancer = native(Watch::default(), 100);
    for number in 1..=2 {
        balancer.set_real(number, &real(number as u8));
    }
    balancer.set_vip(&key(80), &numbered(1), &[1; 7]);
    let second = 1_000_000_000;
    let mut heartbeat =
        Heartbeat { renewed_ns: 100 * second, stale_after: Duration::from_secs(10), when_stale: WhenStale::Equal };
    for (when_stale, second_after, expected) in [
        (WhenStale::Equal, 0, 1),
        (WhenStale::Equal, 10, 1),
        (WhenStale::Equal, 11, 2),
        (WhenStale::Equal, 100_000, 2),
        (WhenStale::Keep, 100_000, 1),
    ] {
        heartbeat.when_stale = when_stale;
        balancer.set_heartbeat(&heartbeat, &[(1, &[2; 7])]);
        let time_ns = heartbeat.renewed_ns + second_after * second;
        let decision = balancer.packet(&v4().syn(), 1, time_ns, true, drop).0;
        assert_eq!(decision.real, Some(expected), "{when_stale:?} after {second_after} s");
    }
}

#[test]
fn root_tables_of_equal_weights_count_while_nobody_renews_the_data_plane() {
    let Some(mut plane) = loaded(&options()) else { return };
    let becomes = |plane: &mut Plane, real: u32| {
        let begun = Instant::now();
        while backends(plane, 80) != [real] {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays at {:?}", backends(plane, 80));
            thread::sleep(Duration::from_millis(100));
        }
    };
    let minute = Duration::from_secs(60);
    plane.set_vip(&key(80), &numbered(1)).unwrap();
    plane.set_table(1, &[1; 7]).unwrap();
    plane.set_equal_tables(&[(1, &[2; 7])]).unwrap();
    assert_eq!((backends(&mut plane, 80), plane.heartbeat_age()), (vec![1], None), "nobody has begun to renew it");
    plane.renew(minute, WhenStale::Equal).unwrap();
    assert_eq!(backends(&mut plane, 80), [1]);
    plane.renew(Duration::ZERO, WhenStale::Equal).unwrap();
    becomes(&mut plane, 2);
    assert!(plane.heartbeat_age() > Some(Duration::from_millis(1)));
    // Without such a table, the VIP's own counts.
    plane.set_equal_tables(&[(1, &[])]).unwrap();
    assert_eq!(backends(&mut plane, 80), [1]);
    plane.set_equal_tables(&[(1, &[2; 7])]).unwrap();
    assert_eq!(backends(&mut plane, 80), [2]);
    plane.renew(minute, WhenStale::Equal).unwrap();
    assert_eq!(backends(&mut plane, 80), [1]);
    plane.renew(Duration::ZERO, WhenStale::Equal).unwrap();
    becomes(&mut plane, 2);
    // A number that is used again does not inherit the table.
    plane.remove_vips(&[key(80)]).unwrap();
    plane.set_vip(&key(80), &numbered(1)).unwrap();
    plane.set_table(1, &[3; 7]).unwrap();
    assert_eq!(backends(&mut plane, 80), [3]);
    plane.set_equal_tables(&[(1, &[2; 7])]).unwrap();
    plane.renew(Duration::ZERO, WhenStale::Keep).unwrap();
    thread::sleep(Duration::from_millis(2100));
    assert_eq!(backends(&mut plane, 80), [3], "the weights are kept");
}
