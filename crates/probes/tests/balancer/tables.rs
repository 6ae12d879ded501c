//! Changes of Maglev tables, VIPs and backends.

use dwell_probes::balancer::{Forward, Load, NextHop, Plane, PlaneOptions, Protocol, Real, Vip, VipKey};
use dwell_testbed::skip::lacks_root;

use crate::{
    options,
    packets::{Client, v4},
};

fn real(host: u8) -> Real {
    Real {
        address: [10, 0, 0, host].into(),
        next_hop: Some(NextHop {
            interface: 70,
            destination: [2, 0, 0, 0, 0, host],
            source: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
        }),
        forward: Forward::L2,
        down: false,
    }
}

fn key(port: u16) -> VipKey {
    VipKey { address: v4().dst, protocol: Protocol::Tcp, port: Some(port) }
}

fn numbered(number: u32) -> Vip {
    Vip { number, ..Vip::default() }
}

fn loaded(options: &PlaneOptions) -> Option<Plane> {
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
    plane.remove_vip(&key(81)).unwrap();
    // One of its keys is left.
    assert_eq!(backends(&mut plane, 80), [2]);
    assert_eq!(plane.vip_loads().unwrap()[1].packets, 2);
    plane.remove_vip(&key(80)).unwrap();
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
    plane.remove_real(2).unwrap();
    assert_eq!(plane.real_loads().unwrap()[2], Load::default());
    plane.set_real(2, &real(4)).unwrap();
    assert_eq!(plane.real_loads().unwrap()[2], Load::default());
}
