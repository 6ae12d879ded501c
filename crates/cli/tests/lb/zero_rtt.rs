//! QUIC by connection ID, from the configuration to the servers that answer.

use std::{
    io::{BufRead, BufReader, Write},
    net::UdpSocket,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::{Config, Load, Stamp};

use crate::{
    scene::{PORT, Scene, VIP, address},
    support::{eventually, skipped, tool},
};

const KEYS: [&str; 2] = ["000102030405060708090a0b0c0d0e0f", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"];

pub fn configure(scene: &Scene, rotations: &[usize], servers: &[usize]) {
    let layouts: Vec<String> =
        rotations.iter().map(|at| format!("{{ rotation = {at}, key = \"{}\" }}", KEYS[*at])).collect();
    let vip = format!("protocol = \"udp\"\npolicy = \"zero-rtt\"\nzero_rtt = {{ layout = [{}] }}", layouts.join(", "));
    scene.configure("", &vip, servers);
    let path = scene.path("lb.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    for server in servers {
        let name = format!("name = \"s{server}\"");
        text = text.replace(&name, &format!("{name}\nserver_id = {}", id(*server)));
    }
    std::fs::write(&path, text).unwrap();
}

/// Has another VIP, with a layout that is not our own.
fn configure_second(scene: &Scene, servers: &[usize]) {
    let path = scene.path("lb.toml");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let second = format!(
        "[[vip]]\nname = \"second\"\naddress = \"{VIP}\"\nport = 444\nforward = \"l2\"\nprotocol = \"udp\"\n\
         policy = \"zero-rtt\"\nzero_rtt = {{ layout = [{{ rotation = 0, clear = true }}] }}\n"
    );
    text.push_str(&second);
    for server in servers {
        let (address, id) = (address(server + 3), id(*server));
        text.push_str(&format!("[[vip.backend]]\naddress = \"{address}\"\nserver_id = {id}\n"));
    }
    std::fs::write(&path, text).unwrap();
}

/// What `bpftool map` says of a pinned map.
fn pinned(scene: &Scene, map: &str, verb: &str, more: &[&str]) -> serde_json::Value {
    let path = format!("{}/{map}", scene.pin());
    let arguments = [&["-j", "map", verb, "pinned", &path], more].concat();
    let said = tool(&scene.balancer, "bpftool", &arguments);
    serde_json::from_str(&said).unwrap_or_default()
}

/// A start that must fail.
fn refused(scene: &Scene) -> String {
    let run = scene.lb_alone(&["run", &scene.path("lb.toml")]);
    assert_eq!(run.status, Some(2), "{run}");
    run.stderr
}

fn id(server: usize) -> u16 {
    server as u16 * 1000 + 7
}

/// Servers that answer each datagram with their number, until this is dropped.
struct Answering {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<dwell_testbed::Result<()>>>,
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
        socket.recv(&mut number).ok().map(|_| usize::from(number[0]))
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

pub fn short(rotation: usize, server: usize, count: u64) -> Vec<u8> {
    let octets = |at: usize| u8::from_str_radix(&KEYS[rotation][2 * at..2 * at + 2], 16).unwrap();
    let key: [u8; 16] = std::array::from_fn(octets);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let stamp = Stamp { freshness: now.as_secs() << 16 | count, load: Load::from_wait(Duration::from_millis(25)) };
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
    eventually("the load is told", || told().is_some_and(|wait| (0.0249..0.0251).contains(&wait)));
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
    assert!(left.contains(&answered(&scene, &initial)), "no new connection there");
    assert!(scene.ok(&["status"]).contains("says that one waits 25."));
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");
}

#[test]
fn root_a_server_id_is_not_another_s_before_its_backend_has_left() {
    if skipped() {
        return;
    }
    let scene = Scene::new("taken", 3);
    let _answering = Answering::new(&scene);
    configure(&scene, &[0], &[0, 1]);
    scene.run();
    let known = short(0, 1, 1);
    let stays = |what: &str| assert_eq!(answered(&scene, &known), 1, "{what}");
    stays("at first");
    scene.ok(&["remove", "s1"]);
    let (third, taken) = (address(5).to_string(), id(1).to_string());
    let add = || scene.lb(&["add", "web", &third, "--server-id", &taken]);
    let told = add();
    assert_eq!(told.status, Some(2), "{told}");
    let why = format!("1007 of backend '{third}' is still that of 's1'");
    assert!(told.stderr.contains(&why), "{told}");
    assert!(!told.stderr.contains("lb.toml"), "{told}");
    // by the file, running and at the start, even if what was saved is lost
    let file = || {
        configure(&scene, &[0], &[0, 2]);
        let text = std::fs::read_to_string(scene.path("lb.toml")).unwrap();
        let text = text.replace("server_id = 2007", "server_id = 1007");
        std::fs::write(scene.path("lb.toml"), text).unwrap();
    };
    file();
    let wanted = |told: &str, former: &str| {
        let whole = format!("lb.toml: vip.backend.server_id: 1007 of backend 's2' is still that of '{former}'");
        assert!(told.contains(&whole), "{told}");
        stays("refused");
    };
    let told = scene.lb(&["reload"]);
    wanted(&told.stderr, "s1");
    assert!(told.stderr.contains("nothing was changed"), "{told}");
    scene.kill();
    wanted(&refused(&scene), "s1");
    // and with other sizes, which the data plane has from there on
    let path = scene.path("lb.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let larger = text.replace("connections = 4096", "connections = 8192");
    std::fs::write(&path, larger).unwrap();
    wanted(&refused(&scene), "s1");
    file();
    std::fs::remove_file(scene.path("lb.sock.state")).unwrap();
    wanted(&refused(&scene), &address(4).to_string());
    // once it has left
    configure(&scene, &[0], &[0]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("idle_timeout = \"1s\"\n{text}")).unwrap();
    scene.run();
    let stamps = || {
        let loads = pinned(&scene, "zero_loads", "lookup", &["key", "1", "0", "0", "0"]);
        let octets = loads["value"].as_array().unwrap().clone();
        let loads = octets.chunks(16).take(2).map(<[_]>::to_vec);
        let is_stamped = |load: Vec<serde_json::Value>| load[..8].iter().any(|o| o != "0x00");
        loads.filter(|load| is_stamped(load.clone())).count()
    };
    assert_eq!(stamps(), 1);
    // asked without a pause, so that its number is given out as soon as it is free
    let mut socket = UnixStream::connect(scene.path("lb.sock")).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap()).lines();
    let asked = format!("{{\"do\":\"add\",\"vip\":\"web\",\"address\":\"{third}\",\"server_id\":{taken}}}\n");
    eventually("it has left", || {
        (0..1000).any(|_| {
            socket.write_all(asked.as_bytes()).unwrap();
            answers.next().unwrap().unwrap().contains("ok")
        })
    });
    assert_eq!(stamps(), 0, "what it said is not the other's");
    assert_eq!(answered(&scene, &known), 2);
}

#[test]
fn root_slots_that_end_while_no_process_runs_are_cleared() {
    if skipped() {
        return;
    }
    let scene = Scene::new("slots", 2);
    configure(&scene, &[0], &[0, 1]);
    configure_second(&scene, &[0]);
    scene.run();
    let slot = |number: &str| {
        let found = pinned(&scene, "zero_vips", "lookup", &["key", number, "0", "0", "0"]);
        let octets = found["value"].as_array().unwrap().clone();
        octets.iter().any(|octet| octet != "0x00")
    };
    let names = || pinned(&scene, "zero_names", "dump", &[]).as_array().unwrap().len();
    assert_eq!((slot("1"), slot("2"), names()), (true, true, 1));
    scene.kill();
    // one is gone, one has another policy
    scene.configure("", "protocol = \"udp\"", &[0, 1]);
    scene.run();
    assert_eq!((slot("1"), slot("2"), names()), (false, false, 0));
    // and while one runs
    configure(&scene, &[0], &[0, 1]);
    scene.ok(&["reload"]);
    assert_eq!((slot("1"), slot("2")), (true, false));
    scene.configure("", "protocol = \"udp\"", &[0, 1]);
    scene.ok(&["reload"]);
    assert_eq!((slot("1"), slot("2")), (false, false));
}

#[test]
fn root_a_plan_that_the_kernel_refuses_leaves_connections_of_others_alone() {
    if skipped() {
        return;
    }
    let scene = Scene::new("undone", 3);
    let _answering = Answering::new(&scene);
    configure(&scene, &[0], &[0, 1]);
    scene.run();
    let known: Vec<_> = (0..3).map(|server| short(0, server, 1)).collect();
    let goes_on = |what: &str| {
        assert_eq!(answered(&scene, &known[0]), 0, "{what}");
        assert_eq!(answered(&scene, &known[1]), 1, "{what}");
    };
    goes_on("at first");
    // the names of the second cannot be written
    pinned(&scene, "zero_names", "freeze", &[]);
    configure(&scene, &[0], &[0, 1, 2]);
    configure_second(&scene, &[0]);
    let told = scene.lb(&["reload"]);
    assert!(told.stderr.contains("zero_names"), "{told}");
    goes_on("refused");
    assert_eq!(answer(&scene, &known[2]), None, "as it was before");
    scene.kill();
    let run = scene.lb_alone(&["run", &scene.path("lb.toml")]);
    assert!(run.stderr.contains("zero_names"), "{run}");
    goes_on("refused at the start");
}
