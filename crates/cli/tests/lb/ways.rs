//! Ways to backends: IPv6, tunnels of either version, and another interface than that of the clients.

use std::io::{Read, Write};

use serde_json::Value;

use crate::{
    scene::{Scene, VIP, VIP6, address, address6, ask},
    support::{eventually, skipped},
};

/// Both servers get connections, each of which carries more than packets of one segment do.
fn both_are_served(scene: &Scene, way: &str) {
    eventually(way, || (0..2).all(|server| scene.backend(server)["share"].as_f64() > Some(0.4)));
    assert_eq!(scene.spread(30).len(), 2, "{way}");
    for _ in 0..4 {
        let mut stream = scene.connect().unwrap();
        let number = ask(&mut stream).unwrap();
        stream.write_all(&[7; 20_000]).unwrap();
        let mut answers = vec![0; 20_000];
        stream.read_exact(&mut answers).unwrap();
        assert!(answers.iter().all(|answer| *answer == number), "{way}");
    }
}

/// What would become of a connection's first packet, by the kernel's own program.
fn sent(scene: &Scene, packet: &str) -> (String, Vec<u8>) {
    let said = scene.ok(&["where", packet, "--json"]);
    let went: Value = serde_json::from_str(&said).unwrap();
    let frame = went["frame"].as_str().unwrap();
    let octets = (0..frame.len()).step_by(2);
    let octets = octets.map(|at| u8::from_str_radix(&frame[at..at + 2], 16).unwrap());
    (went["verdict"].as_str().unwrap().into(), octets.collect())
}

/// Version of the outermost header, and the protocol that follows it.
fn outermost(frame: &[u8]) -> (u8, u8) {
    match frame[12..14] {
        [8, 0] => (4, frame[23]),
        [0x86, 0xdd] => (6, frame[20]),
        _ => panic!("{frame:02x?}"),
    }
}

#[test]
fn root_ipv6_goes_by_layer_2_and_through_tunnels_of_either_version() {
    if skipped() {
        return;
    }
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const IPV4: u8 = 4;
    const IPV6: u8 = 41;
    let scene = Scene::new("six", 2);
    scene.speak_ipv6();
    let decaps = scene.decapsulate();
    // versions of VIP and backends, and how packets are then
    for (at, (vip, backends, forward, outer)) in [
        (6, 6, "l2", (6, TCP)),
        (6, 6, "ipip", (6, IPV6)),
        (6, 4, "ipip", (4, IPV6)),
        (4, 6, "ipip", (6, IPV4)),
        (6, 6, "gue", (6, UDP)),
        (6, 4, "gue", (4, UDP)),
        (4, 6, "gue", (6, UDP)),
        (6, 4, "l2", (6, TCP)),
    ]
    .into_iter()
    .enumerate()
    {
        let way = format!("IPv{vip} by {forward} to backends of IPv{backends}");
        scene.vip.set(if vip == 6 { VIP6.into() } else { VIP.into() });
        scene.address_of.set(match backends {
            6 => |host| address6(host).into(),
            _ => |host| address(host).into(),
        });
        scene.configure("", &format!("forward = \"{forward}\""), &[0, 1]);
        match at {
            0 => scene.run(),
            _ => drop(scene.ok(&["reload"])),
        }
        both_are_served(&scene, &way);
        let packet = match vip {
            6 => format!("tcp:[{}]:1000>[{VIP6}]:80", address6(1)),
            _ => format!("tcp:{}:1000>{VIP}:80", address(1)),
        };
        let (verdict, frame) = sent(&scene, &packet);
        assert_eq!((verdict.as_str(), outermost(&frame)), ("send", outer), "{way}");
    }
    // those that filled the client's MTU did not fit into tunnels, which the client was told
    let too_big = scene.status()["plane"]["packets"]["too-big"].as_u64();
    assert!(too_big > Some(0), "{}", scene.status());
    assert_eq!(scene.end().status, Some(0));
    for decap in decaps {
        let run = decap.interrupt();
        assert!(run.stderr.contains("; 0 were malformed"), "{run}");
    }
}

#[test]
fn root_backends_behind_another_interface_are_reached() {
    if skipped() {
        return;
    }
    let scene = Scene::apart("apart", 2);
    let _decaps = scene.decapsulate();
    let mut load = None;
    for (at, forward) in ["l2", "ipip", "gue"].into_iter().enumerate() {
        scene.configure("", &format!("forward = \"{forward}\""), &[0, 1]);
        match at {
            0 => scene.run(),
            _ => drop(scene.ok(&["reload"])),
        }
        both_are_served(&scene, forward);
        let (verdict, _) = sent(&scene, "tcp:10.79.0.1:1000>198.51.100.1:80");
        assert_eq!(verdict, "redirect", "{forward}");
        load.get_or_insert_with(|| scene.load(8)).go_on();
    }
    assert_eq!(load.unwrap().end(), [""; 0]);
}
