//! A balancer that another XDP program calls.

use std::{net::UdpSocket, path::PathBuf, time::Duration};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::{
    scene::{Scene, address},
    support::{eventually, skipped},
    xdp,
};

/// A program array that is pinned while it lives.
struct Slots {
    map: MapHandle,
    path: PathBuf,
}

impl Slots {
    fn new() -> Slots {
        let path = PathBuf::from(format!("/sys/fs/bpf/dwell-test-lb-{}", std::process::id()));
        let mut map = xdp::map(MapType::ProgArray, 4);
        map.pin(&path).unwrap();
        Slots { map, path }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Packets that a program has seen.
fn seen(counter: &MapHandle) -> u64 {
    let found = counter.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    u64::from_ne_bytes(found.try_into().unwrap())
}

/// So many datagrams to the balancer's own address come to its socket.
fn reaches_the_host(scene: &Scene, datagrams: u8) {
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
fn root_a_balancer_in_a_chain_takes_what_is_its_and_hands_on_the_rest() {
    const DROP: u64 = 1;
    const PASS: u64 = 2;
    if skipped() {
        return;
    }
    let scene = Scene::new("chain", 2);
    let slots = Slots::new();
    let (came, left) = (xdp::map(MapType::Array, 8), xdp::map(MapType::Array, 8));
    // what comes goes to slot 1, which is to be the balancer's; it hands on to slot 2
    let first = [&xdp::count(&came)[..], &xdp::call(&slots.map, 1), &[xdp::verdict(DROP), xdp::EXIT]];
    let first = xdp::load(&first.concat());
    let last = [&xdp::count(&left)[..], &[xdp::verdict(PASS), xdp::EXIT]];
    xdp::put(&slots.map, 2, &xdp::load(&last.concat()));
    let _link = scene.balancer.enter(|| xdp::attach(&first, "eth0")).unwrap();

    let chain = format!("chain = \"{}:1:2\"", slots.path.display());
    scene.configure(&chain, "", &[0, 1]);
    scene.run();
    assert_eq!(scene.spread(40).len(), 2);
    let load = scene.load(8);
    load.go_on();
    let before = (seen(&came), seen(&left), load.asked());
    load.go_on();
    let (asked, came_since) = (load.asked() - before.2, seen(&came) - before.0);
    // but for the eight that were on their way
    assert!(came_since + 8 >= asked, "{came_since} packets, {asked} requests");
    // neighbours ask for addresses now and then
    let left_since = seen(&left) - before.1;
    assert!(left_since < came_since / 4, "{left_since} of {came_since}");
    let before = seen(&left);
    reaches_the_host(&scene, 50);
    assert!(seen(&left) >= before + 50);

    scene.kill();
    load.go_on();
    scene.run();
    assert_eq!(scene.status()["plane"]["taken"], "over");
    load.go_on();
    assert_eq!(load.end(), [""; 0]);
    assert_eq!(scene.end().status, Some(0));
    assert_eq!(scene.spread(10).values().sum::<usize>(), 10);
    assert!(!xdp::is_empty(&slots.map, 1));
    let done = scene.lb_alone(&["detach", "--pin", &scene.pin()]);
    assert_eq!(done.status, Some(0), "{done}");
    assert!(xdp::is_empty(&slots.map, 1));
    eventually("the caller drops what nobody takes", || scene.connect().is_err());
}
