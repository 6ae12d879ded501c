//! Paths to backends: IPv6, tunnels over either IP version, and another interface than that of the clients.

use std::io::{Read, Write};

use crate::{
    scene::{Scene, VIP, VIP6, address, address6, ask},
    support::{DWELL, eventually, ip, object, skipped, spawn},
};

/// Checks that both servers get connections, and that each carries more than fits into one segment.
fn check_both_serve(scene: &Scene, path: &str) {
    eventually(path, || (0..2).all(|server| scene.backend(server)["share"].as_f64() > Some(0.4)));
    assert_eq!(scene.spread(30).len(), 2, "{path}");
    for _ in 0..4 {
        let mut stream = scene.connect().unwrap();
        let number = ask(&mut stream).unwrap();
        stream.write_all(&[7; 20_000]).unwrap();
        let mut answers = vec![0; 20_000];
        stream.read_exact(&mut answers).unwrap();
        assert!(answers.iter().all(|answer| *answer == number), "{path}");
    }
}

/// Sets the IP versions of the VIP and its backends, 4 or 6, in the next configuration.
fn set_versions(scene: &Scene, vip: u8, backends: u8) {
    scene.vip.set(if vip == 6 { VIP6.into() } else { VIP.into() });
    scene.address_of.set(match backends {
        6 => |host| address6(host).into(),
        _ => |host| address(host).into(),
    });
}

/// Asks where the first packet of a connection would be sent. Returns the verdict and the frame.
fn route(scene: &Scene, packet: &str) -> (String, Vec<u8>) {
    let output = scene.ok(&["where", packet, "--format", "jsonl"]);
    let route = object(&output);
    let frame = route["frame"].as_str().unwrap();
    let octets = (0..frame.len()).step_by(2);
    let octets = octets.map(|at| u8::from_str_radix(&frame[at..at + 2], 16).unwrap());
    (route["verdict"].as_str().unwrap().into(), octets.collect())
}

/// The version of the outermost IP header, and the protocol that follows it.
fn outermost(frame: &[u8]) -> (u8, u8) {
    match frame[12..14] {
        [8, 0] => (4, frame[23]),
        [0x86, 0xdd] => (6, frame[20]),
        _ => panic!("{frame:02x?}"),
    }
}

#[test]
fn root_ipv6_is_forwarded_by_layer_2_and_through_tunnels_over_either_version() {
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
    // The IP versions of VIP and backends, the forwarding, and the headers that follow.
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
        let path = format!("IPv{vip} by {forward} to backends of IPv{backends}");
        set_versions(&scene, vip, backends);
        scene.configure("", &format!("forward = \"{forward}\""), &[0, 1]);
        match at {
            0 => scene.run(),
            _ => drop(scene.ok(&["reload"])),
        }
        check_both_serve(&scene, &path);
        let packet = match vip {
            6 => format!("tcp:[{}]:1000>[{VIP6}]:80", address6(1)),
            _ => format!("tcp:{}:1000>{VIP}:80", address(1)),
        };
        let (verdict, frame) = route(&scene, &packet);
        assert_eq!((verdict.as_str(), outermost(&frame)), ("send", outer), "{path}");
    }
    // Packets of the client's full MTU did not fit into tunnels, and ICMP reported that to the client.
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
        check_both_serve(&scene, forward);
        let (verdict, _) = route(&scene, "tcp:10.79.0.1:1000>198.51.100.1:80");
        assert_eq!(verdict, "redirect", "{forward}");
        load.get_or_insert_with(|| scene.load(8)).go_on();
    }
    assert_eq!(load.unwrap().end(), [""; 0]);
}

#[test]
fn root_a_backend_is_up_once_a_syn_is_answered_through_its_tunnel() {
    if skipped() {
        return;
    }
    let scene = Scene::new("knock", 2);
    scene.speak_ipv6();
    // Answers to a VIP of IPv6 come back by the address from which it would be reached.
    ip(&scene.balancer, &format!("route add {VIP6} dev eth0\n"));
    let decap = |server: usize| spawn(&scene.servers[server].namespace, DWELL, &["lb", "decap", "eth0"]);
    let is = |server: usize, health: &str| scene.backend(server)["health"] == health;
    let mut decaps = vec![decap(0)];
    for (at, (vip, backends, forward)) in
        [(4, 4, "ipip"), (4, 4, "gue"), (6, 6, "ipip"), (6, 6, "gue"), (6, 4, "ipip"), (6, 4, "gue")]
            .into_iter()
            .enumerate()
    {
        let path = format!("IPv{vip} by {forward} to backends of IPv{backends}");
        set_versions(&scene, vip, backends);
        let health = "health = { kind = \"tcp\", interval = \"500ms\", tunnel = true }";
        scene.configure("health.ramp = \"0s\"", &format!("forward = \"{forward}\"\n{health}"), &[0, 1]);
        match at {
            0 => {
                scene.run();
                eventually("one decapsulates", || is(0, "up") && is(1, "down"));
                assert_eq!(scene.spread(10).keys().collect::<Vec<_>>(), [&0]);
                decaps.push(decap(1));
            }
            _ => drop(scene.ok(&["reload"])),
        }
        eventually(&path, || is(0, "up") && is(1, "up"));
    }
    ip(&scene.servers[1].namespace, &format!("addr del {VIP6}/128 dev lo\n"));
    eventually("one has no VIP", || is(0, "up") && is(1, "down"));
    scene.configure("health.ramp = \"0s\"", "forward = \"gue\"\nhealth = { kind = \"icmp\", tunnel = true }", &[0, 1]);
    scene.ok(&["reload"]);
    scene.servers[0].die();
    eventually("nobody listens", || is(0, "down"));
    let run = scene.end();
    assert!(run.stdout.contains("no SYN to the VIP through the tunnel within 4"), "{run}");
    assert!(run.stdout.contains("refuses connections to the VIP through the tunnel"), "{run}");
    drop(decaps);
}
