//! The same frames through the kernel (BPF_PROG_TEST_RUN) and through the native
//! core come to the same.

use std::time::Duration;

use dwell_engine::{
    balance::{Balancer, config},
    response::{Key, Watch},
};
use dwell_probes::balancer::{Forward, NextHop, Plane, PlaneOptions, Proto, Real, Vip, VipKey};

use crate::{
    options,
    packets::{Client, OUR_MAC, REAL_MAC, address, v4, v6},
};

fn both(forward: Forward, to: [&str; 2]) -> (Plane, Balancer) {
    // outer sources vary by a hash that it seeds
    let options = PlaneOptions {
        table_seed: 7,
        ..options()
    };
    let watch = Watch {
        config: options.response.clone(),
        key: Key::FiveTuple,
        max_flows: 800,
        idle_timeout_ns: options.idle_timeout.as_nanos() as u64,
        seed: options.table_seed,
        ..Watch::default()
    };
    let config = config(
        options.hash_seed,
        options.outer_v4,
        options.outer_v6,
        Duration::from_secs(1),
    );
    let (mut plane, mut native) = (
        Plane::load(&options).unwrap(),
        Balancer::new(&watch, config),
    );
    for (number, to) in (1..).zip(to) {
        let real = Real {
            address: address(to),
            next_hop: Some(NextHop {
                interface: 70 + number,
                destination: REAL_MAC,
                source: OUR_MAC,
                mtu: 1500,
            }),
            forward,
            gue_port: 6080,
            down: false,
        };
        plane.set_real(number, &real).unwrap();
        native.set_real(number, &real);
    }
    let table: Vec<u32> = (0..251).map(|at| 1 + at * 7 % 2).collect();
    for (client, number) in [(v4(), 1), (v6(), 2)] {
        for (proto, port, number) in [
            (Proto::Tcp, Some(80), number),
            (Proto::Udp, None, number + 2),
        ] {
            let key = VipKey {
                address: client.dst,
                proto,
                port,
            };
            let vip = Vip {
                number,
                measured: true,
                ..Vip::default()
            };
            plane.set_vip(&key, &vip).unwrap();
            plane.set_table(number, &table).unwrap();
            native.set_vip(&key, &vip, &table);
        }
    }
    (plane, native)
}

fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for port in 1000..1030 {
        for client in [v4(), v6()] {
            let client = Client { port, ..client };
            frames.extend([
                client.syn(),
                client.data(300),
                client.udp(b"query"),
                client.data(1450),
                client.fin(),
                client.rst(),
            ]);
        }
    }
    frames
}

/// Bytes that were hit on the way, in an order that is always the same.
fn damaged(frame: &[u8], round: &mut u64) -> Vec<u8> {
    let mut next = || {
        *round = round
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*round >> 33) as usize
    };
    let mut frame = frame.to_vec();
    let headers = frame.len().min(80) - 12;
    for _ in 0..1 + next() % 3 {
        frame[12 + next() % headers] = next() as u8;
    }
    if next() % 4 == 0 {
        frame.truncate(14 + next() % (frame.len() - 14));
    }
    frame
}

#[test]
fn root_kernel_and_native_send_the_same_packets() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: loading BPF programs needs root");
        return;
    }
    for (forward, to) in [
        (Forward::L2, ["10.0.0.5", "10.0.0.6"]),
        (Forward::Ipip, ["10.0.0.5", "2001:db8:5::6"]),
        (Forward::Gue, ["10.0.0.5", "2001:db8:5::6"]),
    ] {
        let (mut plane, mut native) = both(forward, to);
        let (mut round, mut time_ns, mut compared) = (1, 1_000_000_000_000, 0);
        for frame in frames() {
            let hit = damaged(&frame, &mut round);
            for frame in [frame, hit] {
                // the kernel runs nothing over less than an Ethernet header
                let Ok(told) = plane.ask(&frame) else {
                    continue;
                };
                time_ns += 1000;
                let (decision, out) = native.packet(&frame, 0, time_ns, true, drop);
                assert_eq!(told.decision, decision, "{forward:?} {frame:x?}");
                assert_eq!(told.frame, out, "{forward:?} {frame:x?}");
                plane.replay_packet(&frame).unwrap();
                native.packet(&frame, 0, time_ns, false, drop);
                compared += 1;
            }
        }
        assert!(compared > 700, "{compared}");
    }
}
