//! Which connections are heavy: as many as carry a part of a server's packets, and those of all balancers.

use std::{net::UdpSocket, time::Duration};

use dwell_testbed::skip::lacks_program;

use crate::{
    scene::{PORT, Scene, VIP},
    shared::{Etcd, store},
    support::{eventually, skipped},
    zero_rtt::{EchoServers, answering_server, configure, short, short_with},
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

/// A client and the loads of servers come by one balancer, and the client's next connection by the other.
#[test]
fn root_who_is_heavy_at_one_balancer_is_diverted_by_the_other_if_servers_told_the_first_that_it_pays() {
    if skipped() || lacks_program("etcd") {
        return;
    }
    let [one, two] = [Scene::new("quic1", 2), Scene::new("quic2", 2)];
    let etcd = Etcd::new("quic", &[&one, &two]);
    etcd.start_in_clear();
    for (link, scene, name) in [(1, &one, "a"), (2, &two, "b")] {
        configure_with(scene, "heavy = \"own\"");
        let path = scene.path("lb.toml");
        let shared = format!("name = \"{name}\"\nendpoints = [\"http://{}:2379\"]", store(link));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}\n[shared]\n{shared}\n")).unwrap();
        scene.run();
    }
    let _answering = EchoServers::new(&two);
    let begins = |count: u8| [&[0xc3, 0, 0, 0, 1, 8, count][..], &[7; 7], &[0; 120]].concat();
    let own = answering_server(&two, &begins(0));
    let load = |scene: &Scene, server| scene.backend(server)["load"]["wait_ns"].as_f64();
    assert_eq!([load(&two, 0), load(&two, 1)], [None, None]);
    let socket = one.client.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
    for (count, wait) in [(1, 500), (2, 1)] {
        let server = if wait == 500 { own } else { 1 - own };
        let packet = short_with(0, server, count, Duration::from_millis(wait));
        for _ in 0..20 {
            socket.send_to(&packet, (VIP, PORT)).unwrap();
        }
    }
    eventually("the other knows the loads", || load(&two, 0).is_some() && load(&two, 1).is_some());
    assert!(load(&two, own) > Some(0.4e9) && load(&two, 1 - own) < Some(0.01e9));
    let mut count = 0_u8;
    eventually("a new connection goes to the other server", || {
        count = count.wrapping_add(1);
        answering_server(&two, &begins(count)) == 1 - own
    });
    // Nobody tells it the same again.
    one.kill();
    eventually("it is heavy no longer", || {
        count = count.wrapping_add(1);
        answering_server(&two, &begins(count)) == own
    });
}
