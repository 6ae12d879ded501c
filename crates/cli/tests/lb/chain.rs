//! A balancer that is called by another XDP program.

use std::{net::UdpSocket, time::Duration};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::{
    scene::{Scene, address},
    support::{eventually, skipped},
    xdp::{self, Slots},
};

/// Returns the number of packets that a program has counted.
fn packets(counter: &MapHandle) -> u64 {
    let found = counter.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    u64::from_ne_bytes(found.try_into().unwrap())
}

/// Checks that datagrams to the balancer's own address reach its socket.
fn check_host_is_reached(scene: &Scene, datagrams: u8) {
    let to = (address(2), 9000);
    let socket = scene.balancer.enter(|| UdpSocket::bind(to)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let client = || UdpSocket::bind("0.0.0.0:0").unwrap();
    let client = scene.client.enter(client).unwrap();
    for number in 0..datagrams {
        client.send_to(&[number], to).unwrap();
        let mut byte = [0];
        socket.recv(&mut byte).unwrap();
        assert_eq!(byte, [number]);
    }
}

#[test]
fn root_a_balancer_that_another_program_keeps_out_leaves_no_folder_behind() {
    if skipped() {
        return;
    }
    let scene = Scene::new("busy", 1);
    let other = xdp::load(&[xdp::verdict(2), xdp::EXIT]);
    let _link = scene.balancer.enter(|| xdp::attach(&other, "eth0")).unwrap();
    scene.configure("", "", &[0]);
    let run = scene.lb_alone(&["run", &scene.path("lb.toml")]);
    assert_eq!(run.status, Some(3), "{run}");
    assert!(!std::path::Path::new(&scene.pin()).exists(), "{run}");
}

#[test]
fn root_a_balancer_in_a_chain_takes_its_own_packets_and_passes_on_the_rest() {
    const DROP: u64 = 1;
    const PASS: u64 = 2;
    if skipped() {
        return;
    }
    let scene = Scene::new("chain", 2);
    let Some(slots) = Slots::new("lb") else { return };
    let (received, passed) = (xdp::map(MapType::Array, 8), xdp::map(MapType::Array, 8));
    // The first program calls slot 1, which the balancer enters; the balancer calls slot 2.
    let first = [&xdp::count(&received)[..], &xdp::call(&slots.map, 1), &[xdp::verdict(DROP), xdp::EXIT]];
    let first = xdp::load(&first.concat());
    let last = [&xdp::count(&passed)[..], &[xdp::verdict(PASS), xdp::EXIT]];
    xdp::put(&slots.map, 2, &xdp::load(&last.concat()));
    let _link = scene.balancer.enter(|| xdp::attach(&first, "eth0")).unwrap();

    let chain = format!("chain = \"{}:1:2\"", slots.path.display());
    scene.configure(&chain, "", &[0, 1]);
    scene.run();
    assert_eq!(scene.spread(40).len(), 2);
    let load = scene.load(8);
    load.go_on();
    let before = (packets(&received), packets(&passed), load.requests());
    load.go_on();
    let (requests, received_since) = (load.requests() - before.2, packets(&received) - before.0);
    // Eight packets may have been in flight.
    assert!(received_since + 8 >= requests, "{received_since} packets, {requests} requests");
    // Neighbour discovery adds some packets.
    let passed_since = packets(&passed) - before.1;
    assert!(passed_since < received_since / 4, "{passed_since} of {received_since}");
    let before = packets(&passed);
    check_host_is_reached(&scene, 50);
    assert!(packets(&passed) >= before + 50);

    scene.kill();
    load.go_on();
    scene.run();
    assert_eq!(scene.status()["plane"]["start"], "taken-over");
    load.go_on();
    assert_eq!(load.end(), [""; 0]);
    assert_eq!(scene.end().status, Some(0));
    assert_eq!(scene.spread(10).values().sum::<usize>(), 10);
    assert!(!xdp::is_empty(&slots.map, 1));
    let done = scene.lb_alone(&["detach", "--pin", &scene.pin()]);
    assert_eq!(done.status, Some(0), "{done}");
    assert!(xdp::is_empty(&slots.map, 1));
    eventually("the caller drops what no program takes", || scene.connect().is_err());
}
