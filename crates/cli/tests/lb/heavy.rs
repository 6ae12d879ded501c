//! How many connections are heavy, given the part of a server's packets that they should carry.

use std::net::UdpSocket;

use crate::{
    scene::{PORT, Scene, VIP},
    support::{eventually, skipped},
    zero_rtt::{configure, short},
};

/// Configures the scene with more keys of `[vip.zero_rtt]`.
fn configure_with(scene: &Scene, keys: &str) {
    configure(scene, &[0], &[0, 1]);
    let path = scene.path("lb.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = text.replace("zero_rtt = { ", &format!("zero_rtt = {{ {keys}, "));
    assert_ne!(changed, text);
    std::fs::write(&path, changed).unwrap();
}

#[test]
fn root_as_few_connections_are_heavy_as_carry_the_wanted_part_of_packets() {
    if skipped() {
        return;
    }
    let scene = Scene::new("heavy", 2);
    let keys = |share: &str| format!("{share}heavy_most = 8, heavy_interval = 100");
    configure_with(&scene, &keys("heavy_share = 0.55, "));
    scene.run();
    let heavy = || scene.status()["vips"][0]["heavy"].clone();
    assert_eq!(heavy()["connections"], 8);
    assert!(heavy()["captured"].is_null(), "{}", heavy());
    // Of ten packets, one connection sends four, another three, and three others one each.
    let sockets: Vec<UdpSocket> =
        scene.client.enter(|| (0..5).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect()).unwrap();
    let parts = [4, 3, 1, 1, 1];
    let packet = short(0, 0, 1);
    let send = || {
        for (socket, packets) in sockets.iter().zip(parts) {
            for _ in 0..packets {
                socket.send_to(&packet, (VIP, PORT)).unwrap();
            }
        }
    };
    eventually("two are enough", || {
        (0..20).for_each(|_| send());
        heavy()["connections"] == 2
    });
    let captured = heavy()["captured"].as_f64().unwrap();
    assert!((0.6..0.8).contains(&captured), "{captured}");
    let status = scene.ok(&["status"]);
    assert!(status.contains("heavy: 2 connections per server, with "), "{status}");
    // The next process arrives at the same number.
    scene.kill();
    scene.run();
    eventually("two are enough again", || heavy()["connections"] == 2);
    configure_with(&scene, &keys(""));
    scene.ok(&["reload"]);
    assert!(heavy().is_null(), "{}", heavy());
}
