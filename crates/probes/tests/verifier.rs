//! How many instructions the verifier walks for each program. Above a million it refuses a program, as above 512 bytes of
//! stack, and other kernels than this one walk more.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "BPF programs by their instructions")]
#![allow(clippy::print_stdout, reason = "the counts are what one looks for here")]

#[path = "support/xdp.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod xdp;

use std::{collections::BTreeMap, fs};

use dwell_engine::{
    layers,
    response::Watch,
    rtt::{self, Prefix},
};
use dwell_probes::{
    Chain, Hook, Interface,
    balancer::{Decap, DecapRules, Plane, PlaneOptions, Transmits},
    owners::Owners,
    response, rtt as rtt_probe, stack,
};
use dwell_testbed::{Namespace, skip::lacks_root};
use xdp::Slots;

/// What leaves room for kernels that walk more.
const MOST: u64 = 600_000;

/// Returns the instructions that were walked for each program that this process holds, by the program's ID.
fn walked() -> BTreeMap<u64, u64> {
    let mut walked = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        if let (Some(id), Some(instructions)) = (value("prog_id"), value("verified_insns")) {
            walked.insert(id, instructions);
        }
    }
    walked
}

/// Checks the programs of what is loaded, of which there are at least so many.
fn check<T>(what: &str, programs: usize, loaded: T) {
    let walked = walked();
    drop(loaded);
    if walked.is_empty() {
        println!("{what}: this kernel does not tell how many instructions it has walked");
        return;
    }
    assert!(walked.len() >= programs, "{what}: {walked:?}");
    println!("{what}: {:?}", walked.values());
    for instructions in walked.values() {
        assert!(*instructions <= MOST, "{what}: {instructions} instructions");
    }
}

#[test]
fn root_no_program_is_near_the_limit_of_the_verifier() {
    if lacks_root() {
        return;
    }
    let rtt = |ingress| {
        let options = rtt_probe::Options { ingress, ..rtt_probe::Options::new(rtt::Config::default()) };
        rtt_probe::Probe::load(&options).unwrap()
    };
    let response = |ingress| {
        let options = response::Options { ingress, ..response::Options::new(Watch::default()) };
        response::Probe::load(&options).unwrap()
    };
    check("rtt, by XDP", 3, rtt(Hook::Xdp));
    check("response, by XDP", 3, response(Hook::Xdp));
    let namespace = Namespace::create("verifier").unwrap();
    namespace.ip("tuntap add dev tun0 mode tun\n").unwrap();
    let walk = || {
        // Packets of a tunnel have no link header, for which there is a program of its own.
        let tunnel = Interface::find("tun0").unwrap();
        let mut probe = rtt(Hook::TcIngress);
        probe.attach(&tunnel).unwrap();
        check("rtt", 3, probe);
        let mut probe = response(Hook::TcIngress);
        probe.attach(&tunnel).unwrap();
        check("response", 3, probe);
    };
    namespace.enter(walk).unwrap();
    let profile = &stack::PROFILES[0];
    for namespace in [None, stack::own_namespace().ok()] {
        let config = layers::Config { namespace, flows: true, traces: true, ..layers::Config::default() };
        check("stack", 5, stack::Probe::load(&stack::Options::new(config, profile)).unwrap());
    }
    // Not in a PID namespace of its own.
    if let Some(owners) = Owners::attach() {
        check("owners", 1, owners);
    }
    let mut plane = Plane::load(&PlaneOptions::default()).unwrap();
    plane.dry_run(&[0; 64]).unwrap();
    check("the balancer", 3, plane);
    if let Some(slots) = Slots::new("verifier") {
        let chain = Some(Chain { map: slots.path.clone(), slot: 1, next: Some(2) });
        let chained = PlaneOptions { chain, ..PlaneOptions::default() };
        // Its stack is the nearest to that limit.
        let mut plane = Plane::load(&chained).unwrap();
        plane.dry_run(&[0; 64]).unwrap();
        check("the balancer in a chain", 3, plane);
    }
    check("refused packets", 5, Transmits::start().unwrap());
    let rules = DecapRules {
        addresses: vec!["10.0.0.1".parse().unwrap()],
        gue_port: 6080,
        vips: vec![Prefix { address: "192.0.2.1".parse().unwrap(), bits: 32 }],
        senders: DecapRules::ANYBODY.to_vec(),
        backends: DecapRules::ANYBODY.to_vec(),
        redirects_back: false,
    };
    check("decapsulation", 1, Decap::load(&rules).unwrap());
}
