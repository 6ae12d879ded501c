//! The balancer's data plane.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "BPF programs by their instructions")]

mod answers;
mod connections;
mod decap;
mod devices;
mod fixtures;
mod flood;
mod packets;
mod parity;
mod pins;
mod second;
mod selection;
mod star;
mod tables;
mod tokens;
#[path = "../support/xdp.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod xdp;
mod zero_rtt;
mod zero_slots;

use std::io::{Read, Write};

use dwell_probes::{
    Interface,
    balancer::{Forward, NextHops, Plane, PlaneOptions, Protocol, Real, Reason, Vip, VipKey},
};
use dwell_testbed::harness::eventually;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use star::{PORT, Star, VIP, address, ask};

fn options() -> PlaneOptions {
    PlaneOptions { max_connections: 1024, max_vips: 4, max_reals: 16, ..PlaneOptions::default() }
}

/// Keeps this thread on a CPU.
fn stay_on(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
}

const WEB: VipKey = VipKey { address: std::net::IpAddr::V4(VIP), protocol: Protocol::Tcp, port: Some(PORT) };

fn web() -> Vip {
    Vip { number: 1, measured: true, ..Vip::default() }
}

#[test]
fn root_a_connection_stays_while_the_table_changes() {
    if !star::may_run() {
        return;
    }
    let mut star = Star::new(2);
    star.let_xdp_send();
    star.serve();
    star.balancer.enter(|| in_the_balancer(&star)).unwrap();
}

/// Returns a server, counted from 0, that gets its packets unchanged.
fn backend(star: &Star, server: usize) -> Real {
    Real::new(address(server + 3).into(), Some(star.hop(server)), Forward::L2)
}

/// Sets the VIP and the servers, without a table.
fn tell(plane: &mut Plane, star: &Star, forward: Forward) {
    for server in [0, 1] {
        let real = Real { forward, ..backend(star, server) };
        plane.set_real(server as u32 + 1, &real).unwrap();
    }
    plane.set_vip(&WEB, &web()).unwrap();
}

/// Uploads through tunnels that end at XDP programs of the servers.
#[test]
fn root_tunnels_end_at_the_backends() {
    if !star::may_run() {
        return;
    }
    for forward in [Forward::Ipip, Forward::Gue(6080)] {
        let mut star = Star::new(2);
        star.let_xdp_send();
        star.end_tunnels(6080);
        star.serve();
        let upload = |plane: &mut Plane, server: u8| {
            plane.set_table(1, &[u32::from(server) + 1; 31]).unwrap();
            let mut stream = star.connect().unwrap();
            assert_eq!(ask(&mut stream).unwrap(), server);
            // The upload is larger than a segment. The client's MTU leaves room for outer headers.
            stream.write_all(&[7; 20_000]).unwrap();
            let mut answers = vec![0; 20_000];
            stream.read_exact(&mut answers).unwrap();
            assert!(answers.iter().all(|answer| *answer == server));
        };
        star.balancer
            .enter(|| {
                let mut plane = Plane::load(&options()).unwrap();
                tell(&mut plane, &star, forward);
                plane.attach(&Interface::find("eth0").unwrap()).unwrap();
                upload(&mut plane, 0);
                upload(&mut plane, 1);
                let counters = plane.counters().unwrap();
                assert_eq!(counters.get(Reason::TooBig), 0, "{counters:?}");
                let mut hops = NextHops::open().unwrap();
                assert!(hops.find("192.0.2.1".parse().unwrap()).is_err());
                assert_eq!(hops.find(address(3).into()).unwrap(), star.hop(0));
            })
            .unwrap();
    }
}

fn in_the_balancer(star: &Star) {
    let mut plane = Plane::load(&options()).unwrap();
    tell(&mut plane, star, Forward::L2);
    plane.set_table(1, &[1; 251]).unwrap();
    plane.attach(&Interface::find("eth0").unwrap()).unwrap();

    let mut first = star.connect().unwrap();
    assert_eq!(ask(&mut first).unwrap(), 0);
    plane.set_table(1, &[2; 13]).unwrap();
    let mut second = star.connect().unwrap();
    for _ in 0..20 {
        assert_eq!(ask(&mut first).unwrap(), 0);
        assert_eq!(ask(&mut second).unwrap(), 1);
    }
    let counters = plane.counters().unwrap();
    assert_eq!(counters.get(Reason::New), 2, "{counters:?}");
    assert!(counters.get(Reason::Connection) >= 40, "{counters:?}");
    assert_eq!(plane.sweep(drop).unwrap().of(1), 1);
    let loads = plane.real_loads().unwrap();
    assert_eq!([loads[1].opened, loads[2].opened], [1, 1]);
    assert!(loads[1].packets > 20 && loads[1].bytes > 20 * 41);
    assert_eq!(plane.vip_loads().unwrap()[1].opened, 2);

    // Epochs end after a second, or with the sweep.
    let mut packets = [0; 3];
    eventually("the epochs of both servers are delivered", || {
        plane
            .sweep(|record| {
                assert_eq!(record.vip, 1);
                packets[record.real as usize] += record.epoch.packets;
            })
            .unwrap();
        // All results have been delivered: there are no others.
        plane.drain(|record| panic!("{record:?}")).unwrap();
        packets[1..].iter().all(|packets| *packets >= 20)
    });
}
