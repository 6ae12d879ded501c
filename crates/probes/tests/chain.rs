//! `dwell response` behind another XDP program, which calls it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "BPF programs by their instructions")]

#[path = "support/xdp.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod xdp;

use std::os::fd::{AsRawFd, OwnedFd};

use dwell_engine::{response::Watch, rtt::Counter};
use dwell_probes::{
    Chain, Error, Hook,
    response::{Options, Probe},
};
use dwell_testbed::skip::lacks_root;
use libbpf_rs::{MapHandle, libbpf_sys};
use xdp::Slots;

/// Loads a program that calls slot 1, and drops the packet if the slot is empty.
fn caller(slots: &MapHandle) -> OwnedFd {
    xdp::load(&[&xdp::call(slots, 1)[..], &[xdp::verdict(1), xdp::EXIT]].concat())
}

/// Runs the program over a packet. Returns its verdict.
fn run(program: &OwnedFd, packet: &[u8]) -> u32 {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the packet is valid for its length, and nothing is written.
    let failed = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    options.retval
}

fn options(chain: Chain) -> Options {
    let watch = Watch { max_flows: 64, ..Watch::default() };
    Options { ingress: Hook::Xdp, chain: Some(chain), ..Options::new(watch) }
}

#[test]
fn root_another_program_calls_and_goes_on() {
    if lacks_root() {
        return;
    }
    let Some(slots) = Slots::new("chain") else { return };
    let mut packet = [&[2; 12][..], &[8, 0]].concat();
    etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(40000, 53)
        .write(&mut packet, &[0; 60])
        .unwrap();
    let caller = caller(&slots.map);
    let (drop, pass, tx) = (1, 2, 3);
    assert_eq!(run(&caller, &packet), drop);

    let chain = |next| Chain { map: slots.path.clone(), slot: 1, next };
    let mut probe = Probe::load(&options(chain(Some(2)))).unwrap();
    // The next slot is empty, so the packet passes.
    assert_eq!(run(&caller, &packet), pass);
    let last = xdp::load(&[xdp::verdict(tx.into()), xdp::EXIT]);
    xdp::put(&slots.map, 2, &last);
    assert_eq!(run(&caller, &packet), tx);
    assert_eq!(probe.counters().unwrap().get(Counter::Packets), 2);

    // An occupied slot is left alone.
    let taken = Probe::load(&options(chain(None))).err();
    assert!(matches!(taken, Some(Error::Chain { .. })), "{taken:?}");
    probe.detach();
    assert!(xdp::is_empty(&slots.map, 1));
    assert_eq!(run(&caller, &packet), drop);
    let mut packets = 0;
    probe.finish().unwrap();
    probe.drain(|record| packets += record.epoch.packets).unwrap();
    assert_eq!(packets, 2);
}
