//! The same frames have the same results in the kernel (BPF_PROG_TEST_RUN) and in the native core.

use std::time::Duration;

use dwell_engine::{
    balance::{Balancer, config},
    response::{Key, Watch},
};
use dwell_probes::balancer::{Forward, Plane, PlaneOptions, Protocol, Real, Vip, VipKey};
use dwell_testbed::skip::lacks_root;

use crate::{
    options,
    packets::{Client, GUE_PORT, address, numbers, real, v4, v6},
};

/// The kernel's and the native core with the same configuration.
pub struct Both {
    pub plane: Plane,
    pub native: Balancer,
}

impl Both {
    pub fn new(options: PlaneOptions) -> Option<Both> {
        if lacks_root() {
            return None;
        }
        // The outer source address varies by a hash with this seed.
        let options = PlaneOptions { table_seed: 7, ..options };
        let watch = Watch {
            config: options.response.clone(),
            idle_timeout_ns: options.idle_timeout.as_nanos() as u64,
            seed: options.table_seed,
            ..Watch::default()
        };
        Some(Both { plane: Plane::load(&options).unwrap(), native: native(watch, 800) })
    }

    pub fn set_real(&mut self, number: u32, real: &Real) {
        self.plane.set_real(number, real).unwrap();
        self.native.set_real(number, real);
    }

    pub fn set_vip(&mut self, key: &VipKey, vip: &Vip, table: &[u32]) {
        self.plane.set_vip(key, vip).unwrap();
        self.plane.set_table(vip.number, table).unwrap();
        self.native.set_vip(key, vip, table);
    }
}

/// Returns the native core alone, with slots for this many connections.
pub fn native(watch: Watch, max_flows: u32) -> Balancer {
    let options = options();
    let config = config(options.hash_seed, options.outer_v4, options.outer_v6, Duration::from_secs(1));
    let watch = Watch { key: Key::FiveTuple, max_flows, ..watch };
    Balancer::new(&watch, config)
}

fn both(forward: Forward, to: [&str; 2]) -> Option<Both> {
    let mut both = Both::new(options())?;
    for (number, to) in (1..).zip(to) {
        both.set_real(number, &real(address(to), forward, 70 + number));
    }
    let table: Vec<u32> = (0..251).map(|at| 1 + at * 7 % 2).collect();
    for (client, number) in [(v4(), 1), (v6(), 2)] {
        for (protocol, port, number) in [(Protocol::Tcp, Some(80), number), (Protocol::Udp, None, number + 2)] {
            let key = VipKey { address: client.dst, protocol, port };
            let vip = Vip { number, measured: true, ..Vip::default() };
            both.set_vip(&key, &vip, &table);
        }
    }
    Some(both)
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

/// Damages bytes of a frame, in an order that is always the same.
fn damaged(frame: &[u8], mut next: impl FnMut() -> usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let headers = frame.len().min(80) - 12;
    for _ in 0..1 + next() % 3 {
        frame[12 + next() % headers] = next() as u8;
    }
    if next().is_multiple_of(4) {
        frame.truncate(14 + next() % (frame.len() - 14));
    }
    frame
}

#[test]
fn root_kernel_and_native_send_the_same_packets() {
    for (forward, to) in [
        (Forward::L2, ["10.0.0.5", "10.0.0.6"]),
        (Forward::Ipip, ["10.0.0.5", "2001:db8:5::6"]),
        (Forward::Gue(GUE_PORT), ["10.0.0.5", "2001:db8:5::6"]),
    ] {
        let Some(Both { mut plane, mut native }) = both(forward, to) else {
            return;
        };
        let (mut next, mut time_ns, mut compared) = (numbers(), 1_000_000_000_000, 0);
        for frame in frames() {
            let hit = damaged(&frame, &mut next);
            for frame in [frame, hit] {
                // The kernel refuses frames that are shorter than an Ethernet header.
                let Ok(told) = plane.dry_run(&frame) else {
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
