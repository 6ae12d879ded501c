//! What devices do with packets: a veth takes none from XDP unless its other end is ready for it.

use std::io::{Read, Write};

use dwell_probes::{
    Interface, XdpMode,
    balancer::{Delivery, Forward, NextHops, Plane, PlaneOptions, Transmits},
};
use nix::{
    errno::Errno,
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};

use super::{options, star, star::Star, star::ask, stay_on, tell};

/// Runs a balancer whose device is a veth, and tries a connection. Returns whether it worked, what the device refused, and
/// what a test says of it.
fn tries(star: &Star, options: &PlaneOptions) -> (bool, u64, Option<Delivery>, u64) {
    star.balancer
        .enter(|| {
            let interface = Interface::find("eth0").unwrap();
            let mut transmits = Transmits::start().unwrap();
            transmits.watch(interface.index).unwrap();
            let mut plane = Plane::load(options).unwrap();
            tell(&mut plane, star, Forward::L2);
            plane.set_table(1, &[1; 31]).unwrap();
            plane.attach(&interface).unwrap();
            let works = star.connect().is_ok_and(|mut stream| {
                // More than one segment, which a device may have joined.
                let is_answered = ask(&mut stream).is_ok() && stream.write_all(&[7; 100_000]).is_ok();
                is_answered && stream.read_exact(&mut vec![0; 100_000]).is_ok()
            });
            let refused = transmits.counts(interface.index).unwrap().refused();
            let tested = transmits.test(&star.hop(0)).unwrap();
            (works, refused, tested, plane.counters().unwrap().unfinished)
        })
        .unwrap()
}

#[test]
fn root_a_route_may_carry_less_than_its_device() {
    if !star::may_run() {
        return;
    }
    let star = Star::new(1);
    star.balancer.enter(|| assert_eq!(star.hop(0).mtu, 1500)).unwrap();
    for (mtu, carries) in [(1400, 1400), (9000, 1500)] {
        star.route_to_server(0, mtu);
        // The neighbour is known once something was sent there.
        let hop = || {
            let _ = std::net::UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[0], (star::address(3), 9));
            NextHops::open().unwrap().find(star::address(3).into()).ok()
        };
        let found = std::iter::repeat_with(|| star.balancer.enter(hop).unwrap());
        let found = found.take(10_000).flatten().next().expect("the neighbour answers");
        assert_eq!(found.mtu, carries);
    }
}

/// Whether a veth refused all frames as its other end does not poll.
fn is_deaf(tested: Option<Delivery>) -> bool {
    // Kernels before 6.3 do not know beforehand what a device takes.
    [Errno::EOPNOTSUPP, Errno::ENXIO].iter().any(|errno| tested == Some(Delivery::Refused(Some(*errno as i32))))
}

#[test]
fn root_a_veth_that_takes_nothing_from_xdp_is_found_out() {
    if !star::may_run() {
        return;
    }
    let star = Star::new(2);
    star.serve();
    for redirects_back in [false, true] {
        let (works, refused, tested, _) = tries(&star, &PlaneOptions { redirects_back, ..options() });
        assert!(!works);
        assert!(refused > 0);
        assert!(is_deaf(tested), "{tested:?}");
    }
}

#[test]
fn root_a_veth_whose_other_end_polls_takes_what_is_redirected_back() {
    if !star::may_run() {
        return;
    }
    let star = Star::new(2);
    star.serve();
    star.poll_at_the_switch("on");
    let redirecting = PlaneOptions { redirects_back: true, ..options() };
    let (works, refused, tested, unfinished) = tries(&star, &redirecting);
    assert!(works);
    assert_eq!((refused, tested, unfinished), (0, Some(Delivery::Taken), 0));
    // What the driver runs loses what the stack knows of a checksum.
    star.offload_checksums();
    let (works, _, _, unfinished) = tries(&star, &redirecting);
    assert!(!works);
    assert!(unfinished > 0);
}

#[test]
fn root_the_network_stack_sends_through_a_veth_as_it_is() {
    if !star::may_run() {
        return;
    }
    let star = Star::new(2);
    star.serve();
    star.offload_checksums();
    let (works, refused, ..) = tries(&star, &PlaneOptions { mode: XdpMode::Generic, ..options() });
    assert!(works);
    assert_eq!(refused, 0);
}

#[test]
fn root_the_reason_is_that_of_the_last_test_and_tests_are_not_counted_as_packets() {
    if !star::may_run() {
        return;
    }
    let star = Star::new(1);
    star.poll_at_the_switch("on");
    let (hop, allowed) = (star.hop(0), sched_getaffinity(Pid::from_raw(0)).unwrap());
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap()).collect();
    // Each CPU has counts of its own: a later test on another one must not show what the first one found.
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    star.balancer
        .enter(|| {
            let mut transmits = Transmits::start().unwrap();
            transmits.watch(hop.interface).unwrap();
            stay_on(first);
            star.set_up("down");
            let down = Some(Delivery::Refused(Some(Errno::ENETDOWN as i32)));
            assert_eq!(transmits.test(&hop).unwrap(), down);
            stay_on(last);
            star.set_up("up");
            star.poll_at_the_switch("off");
            let tested = transmits.test(&hop).unwrap();
            assert!(is_deaf(tested), "{tested:?}");
            assert_eq!(transmits.counts(hop.interface).unwrap().refused(), 0);
            star.poll_at_the_switch("on");
            assert_eq!(transmits.test(&hop).unwrap(), Some(Delivery::Taken));
            assert_eq!(transmits.counts(hop.interface).unwrap().refused(), 0);
        })
        .unwrap();
}
