//! A collector's view of connections through the balancer, with agents at clients and servers.

use std::{fs, time::Duration};

use dwell_testbed::{Namespace, harness::patiently};
use rusqlite::Connection;

use crate::{
    scene::{PORT, Scene, ask},
    support::{DWELL, Process, dwell, links, skipped, spawn},
};

const COLLECTOR: &str = "10.79.0.2:4790";
/// Connections, and requests of each: a byte, and a byte as an answer.
const CONNECTIONS: usize = 8;
const REQUESTS: usize = 400;

/// Starts an agent, and waits until it stamps.
fn agent(scene: &Scene, namespace: &Namespace, name: &str) -> Process {
    let key = scene.path("key");
    let port = PORT.to_string();
    let always = ["agent", "--collector", COLLECTOR, "--key-file", &key, "--name", name, "--buffer-dir", "none"];
    let agent = spawn(namespace, DWELL, &[&always[..], &["--port", &port, "--sample-bytes", "64"]].concat());
    patiently("it stamps", || links(agent.id()) >= 10);
    agent
}

/// Servers see the VIP, as clients do, so that addresses are the same.
#[test]
fn root_bytes_of_connections_through_ipip_are_matched_in_both_directions() {
    if skipped() {
        return;
    }
    let scene = Scene::new("collected", 2);
    let _decaps = scene.decapsulate();
    scene.configure("", "forward = \"ipip\"", &[0, 1]);
    scene.run();
    let (key, store) = (scene.path("key"), scene.path("store"));
    assert_eq!(dwell(&["collect", "--new-key", &key]).status, Some(0));
    let listen = ["collect", "--listen", COLLECTOR, "--key-file", &key, "--store", &store];
    let collector = spawn(&scene.balancer, DWELL, &listen);
    patiently("there is a store", || fs::exists(&store).unwrap());
    let agents = [(&scene.client, "c"), (&scene.servers[0].namespace, "s0"), (&scene.servers[1].namespace, "s1")]
        .map(|(namespace, name)| agent(&scene, namespace, name));
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| scene.connect().unwrap()).collect();
    for stream in &mut streams {
        (0..REQUESTS).for_each(|_| assert!(ask(stream).is_ok()));
    }
    let matched = |wanted: &str| -> i64 {
        let store = Connection::open(&store).unwrap();
        store.busy_timeout(Duration::from_secs(10)).unwrap();
        let sql = format!(
            "SELECT ifnull(sum(count), 0) FROM paths
                WHERE segment = 'end-to-end' AND src IS NOT NULL AND joined = 'address' AND {wanted}"
        );
        store.query_row(&sql, [], |row| row.get(0)).unwrap_or(0)
    };
    // Of each connection and direction, one byte in 64 is stamped.
    let stamped = (CONNECTIONS * REQUESTS / 64) as i64;
    let there = "tx_host = 'c' AND rx_host LIKE 's_' AND dst = '198.51.100.1'";
    let back = "tx_host LIKE 's_' AND rx_host = 'c' AND src = '198.51.100.1'";
    for wanted in [there, back] {
        patiently(wanted, || matched(wanted) >= stamped * 8 / 10);
    }
    for process in agents.into_iter().chain([collector]) {
        let run = process.interrupt();
        assert_eq!(run.status, Some(0), "{run}");
    }
}
