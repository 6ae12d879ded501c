//! QUIC by connection ID, from the configuration to the servers that answer.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::{Config, Load, Stamp};

use crate::scene::{PORT, Scene, VIP};
use crate::support::{eventually, skipped};

const KEYS: [&str; 2] = [
    "000102030405060708090a0b0c0d0e0f",
    "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
];

fn configure(scene: &Scene, rotations: &[usize], servers: &[usize]) {
    let layouts: Vec<String> = rotations
        .iter()
        .map(|at| format!("{{ rotation = {at}, key = \"{}\" }}", KEYS[*at]))
        .collect();
    let vip = format!(
        "protocol = \"udp\"\npolicy = \"zero-rtt\"\nzero_rtt = {{ layout = [{}] }}",
        layouts.join(", ")
    );
    scene.configure("", &vip, servers);
    let path = scene.path("lb.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for server in servers {
        let name = format!("name = \"s{server}\"");
        text = text.replace(&name, &format!("{name}\nserver_id = {}", id(*server)));
    }
    std::fs::write(&path, text).unwrap();
}

fn id(server: usize) -> u16 {
    server as u16 * 1000 + 7
}

/// Servers that answer each datagram with their number, until this is dropped.
struct Answering {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<dwell_lab::Result<()>>>,
}

impl Answering {
    fn new(scene: &Scene) -> Answering {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..).zip(&scene.servers).map(|(number, server)| {
            let stop = Arc::clone(&stop);
            server.namespace.spawn_thread(move || {
                let socket = UdpSocket::bind((VIP, PORT)).unwrap();
                let patience = Some(Duration::from_millis(50));
                socket.set_read_timeout(patience).unwrap();
                let mut buffer = [0; 2048];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((_, client)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(&[number], client);
                    }
                }
            })
        });
        let threads = threads.collect();
        Answering { stop, threads }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Who answers a datagram, asked from a port of its own; none within the patience.
fn answer(scene: &Scene, payload: &[u8]) -> Option<usize> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let patience = Some(Duration::from_millis(300));
        socket.set_read_timeout(patience).unwrap();
        socket.send_to(payload, (VIP, PORT)).unwrap();
        let mut number = [0];
        socket
            .recv(&mut number)
            .ok()
            .map(|_| usize::from(number[0]))
    };
    scene.client.enter(ask).unwrap()
}

/// Until somebody does.
fn answered(scene: &Scene, payload: &[u8]) -> usize {
    let mut by = None;
    eventually("somebody answers", || {
        by = answer(scene, payload);
        by.is_some()
    });
    by.unwrap()
}

fn short(rotation: usize, server: usize, count: u64) -> Vec<u8> {
    let octets = |at: usize| u8::from_str_radix(&KEYS[rotation][2 * at..2 * at + 2], 16).unwrap();
    let key: [u8; 16] = std::array::from_fn(octets);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let stamp = Stamp {
        freshness: now.as_secs() << 16 | count,
        load: Load::from_wait(Duration::from_millis(25)),
    };
    let config = Config::own(rotation as u8, key).unwrap();
    let cid = config.encode_stamped(id(server), stamp);
    [&[0x41][..], &cid, &[5; 30]].concat()
}

#[test]
fn root_connection_ids_lead_to_their_servers_over_restarts_new_keys_and_drains() {
    if skipped() {
        return;
    }
    let scene = Scene::new("zero", 3);
    let _answering = Answering::new(&scene);
    configure(&scene, &[0], &[0, 1, 2]);
    scene.run();
    let old: Vec<Vec<u8>> = (0..3).map(|server| short(0, server, 1)).collect();
    let stays = |what: &str, packets: &[Vec<u8>]| {
        for (server, packet) in packets.iter().enumerate() {
            assert_eq!(answered(&scene, packet), server, "{what}");
        }
    };
    stays("at first", &old);
    // a new connection, and one that nobody had
    let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &[3; 8], &[0; 100]].concat();
    let own = answered(&scene, &initial);
    assert_eq!(answered(&scene, &initial), own, "a client has a server");
    let told = || scene.backend(1)["load"]["wait_s"].as_f64();
    eventually("the load is told", || {
        told().is_some_and(|wait| (0.0249..0.0251).contains(&wait))
    });
    assert_eq!(scene.backend(1)["server_id"], 1007);
    scene.kill();
    stays("while nobody runs", &old);
    scene.run();
    stays("taken over", &old);
    assert_eq!(scene.status()["plane"]["taken"], "over");
    eventually("what was known is known", || told().is_some());
    // keys roll over
    let new: Vec<Vec<u8>> = (0..3).map(|server| short(1, server, 2)).collect();
    assert_eq!(answer(&scene, &new[0]), None, "its key is not known yet");
    configure(&scene, &[0, 1], &[0, 1, 2]);
    scene.ok(&["reload"]);
    stays("the old key", &old);
    stays("the new key", &new);
    configure(&scene, &[1], &[0, 1, 2]);
    scene.ok(&["reload"]);
    stays("the new key alone", &new);
    assert_eq!(answer(&scene, &old[0]), None, "its key is gone");
    // drained, and then not wanted any more
    scene.ok(&["drain", "s1"]);
    stays("drained", &new);
    let left: Vec<usize> = (0..3).filter(|server| *server != own).collect();
    configure(&scene, &[1], &left);
    scene.ok(&["reload"]);
    stays("leaving", &new);
    assert!(
        left.contains(&answered(&scene, &initial)),
        "no new connection there"
    );
    assert!(scene.ok(&["status"]).contains("says that one waits 25."));
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");
}
