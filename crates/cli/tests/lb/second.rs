//! Connections that arrive at another balancer than the one where they began, after the weights have moved.

use std::net::TcpStream;

use dwell_testbed::skip::lacks_program;
use nix::{
    libc::linger,
    sys::socket::{setsockopt, sockopt},
};

use crate::{
    scene::{Scene, VIP, address, ask},
    shared::{Etcd, share, store},
    support::{eventually, ip, skipped, tool},
};

/// The host that the other balancer is.
const OTHER: usize = 9;

/// A balancer with three servers, and another one beside it.
fn two(name: &str) -> (Scene, Scene) {
    let one = Scene::new(name, 3);
    let other = one.beside(&format!("{name}2"), OTHER);
    (one, other)
}

/// Runs a balancer, or lets it reload, with backends of equal weights.
fn run(scene: &Scene, vip: &str, is_running: bool) {
    scene.configure("hash_seed = 7\n", &format!("policy = \"weights\"\n{vip}"), &[0, 1, 2]);
    match is_running {
        false => scene.run(),
        true => drop(scene.ok(&["reload"])),
    }
    let weigh = |server: usize| drop(scene.ok(&["weight", &format!("s{server}"), "1"]));
    (0..3).for_each(weigh);
    eventually("all serve", || (0..3).all(|server| scene.backend(server)["share"].as_f64() > Some(0.3)));
}

fn weigh(scenes: [&Scene; 2], server: usize, weight: &str) {
    scenes.iter().for_each(|scene| drop(scene.ok(&["weight", &format!("s{server}"), weight])));
}

fn second_chances(scene: &Scene) -> u64 {
    scene.status()["plane"]["packets"]["second-chance"].as_u64().unwrap_or(0)
}

/// Opens connections, and returns the server of each.
fn open(scene: &Scene, connections: usize) -> Vec<(TcpStream, u8)> {
    let opened = (0..connections).map(|_| {
        let mut stream = scene.connect().unwrap();
        let server = ask(&mut stream).unwrap();
        (stream, server)
    });
    opened.collect()
}

/// Counts the connections that have ended or have another server.
fn broken(streams: &mut [(TcpStream, u8)]) -> usize {
    streams.iter_mut().filter_map(|(stream, server)| (ask(stream).ok() != Some(*server)).then_some(())).count()
}

#[test]
fn root_a_connection_finds_its_backend_from_another_balancer_after_weights_have_moved() {
    if skipped() {
        return;
    }
    let (one, other) = two("second");
    let decaps = one.decapsulate_with(&["--from", "172.16.0.0/16", "--backend", "10.79.0.0/24"]);
    for (at, (forward, second)) in
        [("ipip", false), ("gue", false), ("ipip", true), ("gue", true)].into_iter().enumerate()
    {
        let keys = format!("forward = \"{forward}\"\nsecond_chance = {second}");
        for scene in [&one, &other] {
            run(scene, &keys, at > 0);
        }
        one.lead_to(2);
        let mut streams = open(&one, 60);
        let before = second_chances(&other);
        weigh([&one, &other], 0, "0.01");
        one.lead_to(OTHER);
        let lost = broken(&mut streams);
        if !second {
            assert!(lost > 10, "{forward}: without a second chance {lost} of 60 are broken");
            continue;
        }
        assert_eq!(lost, 0, "{forward}");
        eventually("they are counted", || second_chances(&other) > before);
        // Further tables, and back again.
        weigh([&one, &other], 1, "0.01");
        assert_eq!(broken(&mut streams), 0, "{forward}");
        weigh([&one, &other], 0, "1");
        one.lead_to(2);
        assert_eq!(broken(&mut streams), 0, "{forward}");
        one.lead_to(OTHER);
        assert_eq!(broken(&mut streams), 0, "{forward}");
        // What the connections were is not learnt, and new ones are placed as ever.
        assert!(one.spread(30).get(&1).copied().unwrap_or(0) < 5, "{forward}");
        // A process that takes over knows the tables before.
        other.kill();
        other.run();
        assert_eq!(broken(&mut streams), 0, "{forward}: after a restart");
    }
    let runs: Vec<_> = decaps.into_iter().map(|decap| decap.interrupt()).collect();
    assert!(runs.iter().any(|run| !run.stderr.contains(" 0 sent on")), "{runs:?}");
    for run in runs {
        assert!(run.stderr.contains("were kept") && run.stderr.contains("; 0 were malformed"), "{run}");
    }
}

#[test]
fn root_a_port_that_a_client_uses_again_leads_to_its_new_backend() {
    if skipped() {
        return;
    }
    let (one, other) = two("again");
    let _decaps = one.decapsulate_with(&["--from", "172.16.0.0/16", "--backend", "10.79.0.0/24"]);
    for scene in [&one, &other] {
        run(scene, "forward = \"ipip\"\nsecond_chance = true", false);
    }
    // The client has as many ports as connections.
    one.client.set(&[("ipv4/ip_local_port_range", "40000 40059")]).unwrap();
    one.lead_to(2);
    let mut streams = open(&one, 60);
    // Two balancers see the beginnings of connections in turn, and ends are seen by the other one, so that it remembers
    // connections that are over.
    for (begins_at, goes_on_at, light) in [(OTHER, 2, 0), (2, OTHER, 1), (OTHER, 2, 2)] {
        let ends_at = if goes_on_at == 2 { OTHER } else { 2 };
        one.lead_to(ends_at);
        for (stream, _) in &streams {
            setsockopt(stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
        }
        drop(streams);
        weigh([&one, &other], light, "0.01");
        weigh([&one, &other], (light + 2) % 3, "1");
        one.lead_to(begins_at);
        streams = open(&one, 60);
        one.lead_to(goes_on_at);
        assert_eq!(broken(&mut streams), 0, "with little for server {light}");
        one.lead_to(begins_at);
        assert_eq!(broken(&mut streams), 0, "with little for server {light}, and back");
    }
}

#[test]
fn root_syn_cookies_come_back_by_another_balancer() {
    if skipped() || lacks_program("iptables-legacy") {
        return;
    }
    let (one, other) = two("cookies");
    let decaps = one.decapsulate_with(&["--from", "172.16.0.0/16", "--backend", "10.79.0.0/24"]);
    // The secret of cookies is that of the kernel, which all servers here have in common: only one takes any.
    for (server, cookies) in one.servers.iter().zip(["2", "0", "0"]) {
        server.namespace.set(&[("ipv4/tcp_syncookies", cookies)]).unwrap();
    }
    for scene in [&one, &other] {
        run(scene, "forward = \"ipip\"\nsecond_chance = true", false);
    }
    // Entries of the first server have others before and after it, so that its packets come with a further chance. SYNs go to
    // the balancer that knows nothing of that, everything else to the other.
    for (server, weight) in [("s1", "100"), ("s1", "1"), ("s2", "100"), ("s2", "1"), ("s0", "0.01")] {
        other.ok(&["weight", server, weight]);
    }
    tool(
        &one.client,
        "iptables-legacy",
        &["-t", "mangle", "-A", "OUTPUT", "-p", "tcp", "--syn", "-j", "MARK", "--set-mark", "1"],
    );
    ip(&one.client, &format!("route add {VIP} via {} table 100\nrule add fwmark 1 lookup 100\n", address(2)));
    one.lead_to(OTHER);
    let spread = one.spread(60);
    assert!(spread.len() == 3 && spread[&0] > 10, "{spread:?}");
    // A status has what was counted at the end of the last interval.
    eventually("packets have second chances", || second_chances(&other) > 30);
    let runs: Vec<_> = decaps.into_iter().map(|decap| decap.interrupt()).collect();
    assert!(!runs[0].stderr.contains(" 0 were kept"), "{runs:?}");
}

#[test]
fn root_no_connection_breaks_while_routes_and_weights_move_and_balancers_come_and_go() {
    if skipped() || lacks_program("etcd") {
        return;
    }
    let first = Scene::new("many", 3);
    let [second, third, added] = [9, 10, 11].map(|host| first.beside(&format!("many{host}"), host));
    let all = [(&first, 2), (&second, 9), (&third, 10), (&added, 11)];
    let decaps = first.decapsulate_with(&["--from", "172.16.0.0/16", "--backend", "10.79.0.0/24"]);
    let etcd = Etcd::new("many", &all.map(|(scene, _)| scene));
    etcd.start_in_clear();
    let start = |at: usize| {
        let (scene, host) = all[at];
        let top = format!(
            "interval = \"200ms\"\nhealth.ramp = \"0s\"\n[shared]\nname = \"b{host}\"\nendpoints = [\"http://{}:2379\"]\n",
            store(at + 1)
        );
        let vip = "forward = \"ipip\"\nsecond_chance = true\npolicy = \"latency\"\n\
                   latency = { rate = 0.5, cap = 1.0, floor = 0.1, regress = 0.5 }\nhealth.kind = \"tcp\"";
        scene.configure(&top, vip, &[0, 1, 2]);
        scene.run();
        eventually("it follows", || !scene.status()["shared"]["set"].is_null());
    };
    (0..3).for_each(start);
    let mut living = vec![all[0], all[1], all[2]];
    // Each time with other weights and in another order, so that most connections go to another balancer.
    let mut round = 0;
    let mut rehash = |living: &[(&Scene, usize)]| {
        round += 1;
        let mut hops: Vec<_> = living.iter().enumerate().map(|(at, (_, host))| (*host, 1 + (at + round) % 3)).collect();
        hops.rotate_left(round % living.len());
        first.spread_over(&hops);
    };
    rehash(&living);
    eventually("all serve", || living.iter().all(|(scene, _)| (0..3).all(|server| share(scene, server) > 0.1)));
    let mut loads = vec![first.load(24)];
    for step in 0..4 {
        let server = step % 3;
        let drained = format!("s{server}");
        living[step % living.len()].0.ok(&["drain", &drained]);
        eventually("all have drained it", || living.iter().all(|(scene, _)| share(scene, server) == 0.0));
        rehash(&living);
        loads.push(first.load(12));
        loads.iter().for_each(|load| load.go_on());
        if step == 1 {
            // One host dies: its data plane with its process.
            let (dead, _) = living.remove(0);
            ip(&dead.balancer, "link set eth0 down\n");
            dead.kill();
            rehash(&living);
            loads.iter().for_each(|load| load.go_on());
        }
        if step == 2 {
            // What it knows of the time before, it has from the store.
            start(3);
            living.push(all[3]);
            eventually("it has the same table", || share(&added, server) == 0.0);
        }
        let undone = living.iter().any(|(scene, _)| scene.lb(&["drain", &drained, "--undo"]).status == Some(0));
        assert!(undone);
        eventually("it has connections again", || living.iter().all(|(scene, _)| share(scene, server) > 0.0));
        for _ in 0..3 {
            rehash(&living);
            loads.iter().for_each(|load| load.go_on());
        }
    }
    for load in loads {
        assert_eq!(load.end(), [""; 0]);
    }
    eventually("the added one gave second chances", || second_chances(&added) > 0);
    drop(decaps);
}
