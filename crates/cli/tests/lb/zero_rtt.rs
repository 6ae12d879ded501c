//! QUIC that is routed by connection ID, from the configuration to the servers that answer.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dwell_engine::quic_lb::{Config, Load, Stamp, TokenStamp};

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

/// Adds another VIP, with a layout that is not dwell's own.
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

/// Runs `bpftool map` on a pinned map.
fn pinned(scene: &Scene, map: &str, verb: &str, more: &[&str]) -> serde_json::Value {
    let path = format!("{}/{map}", scene.pin());
    let arguments = [&["-j", "map", verb, "pinned", &path], more].concat();
    let output = tool(&scene.balancer, "bpftool", &arguments);
    serde_json::from_str(&output).unwrap_or_default()
}

/// Starts a balancer, which must fail. Returns its message.
fn start_refused(scene: &Scene) -> String {
    let run = scene.lb_alone(&["run", &scene.path("lb.toml")]);
    assert_eq!(run.status, Some(2), "{run}");
    run.stderr
}

fn id(server: usize) -> u16 {
    server as u16 * 1000 + 7
}

/// Servers that answer each datagram with their number until this is dropped.
pub struct EchoServers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<dwell_testbed::Result<()>>>,
}

impl EchoServers {
    pub fn new(scene: &Scene) -> EchoServers {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..).zip(&scene.servers).map(|(number, server)| {
            let stop = Arc::clone(&stop);
            server.namespace.spawn_thread(move || {
                let socket = UdpSocket::bind((VIP, PORT)).unwrap();
                let timeout = Some(Duration::from_millis(50));
                socket.set_read_timeout(timeout).unwrap();
                let mut buffer = [0; 2048];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((_, client)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(&[number], client);
                    }
                }
            })
        });
        let threads = threads.collect();
        EchoServers { stop, threads }
    }
}

impl Drop for EchoServers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Sends a datagram from a new port. Returns the number of the server that answers; none after a timeout.
fn answer(scene: &Scene, payload: &[u8]) -> Option<usize> {
    let ask = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let timeout = Some(Duration::from_millis(300));
        socket.set_read_timeout(timeout).unwrap();
        socket.send_to(payload, (VIP, PORT)).unwrap();
        let mut number = [0];
        socket.recv(&mut number).ok().map(|_| usize::from(number[0]))
    };
    scene.client.enter(ask).unwrap()
}

/// Sends datagrams until a server answers.
pub fn answering_server(scene: &Scene, payload: &[u8]) -> usize {
    let mut by = None;
    eventually("somebody answers", || {
        by = answer(scene, payload);
        by.is_some()
    });
    by.unwrap()
}

fn layout(rotation: usize) -> Config {
    let octets = |at: usize| u8::from_str_radix(&KEYS[rotation][2 * at..2 * at + 2], 16).unwrap();
    Config::own(rotation as u8, std::array::from_fn(octets)).unwrap()
}

fn freshness(count: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs() << 16 | count
}

pub fn short(rotation: usize, server: usize, count: u64) -> Vec<u8> {
    short_with(rotation, server, count, Duration::from_millis(25))
}

/// A packet with a connection ID in which a server says how long requests wait.
pub fn short_with(rotation: usize, server: usize, count: u64, wait: Duration) -> Vec<u8> {
    let stamp = Stamp { freshness: freshness(count), load: Load::from_wait(wait) };
    let cid = layout(rotation).encode_stamped(id(server), stamp);
    [&[0x41][..], &cid, &[5; 30]].concat()
}

/// The first packet of a client that returns to a server.
fn returning(server: usize, count: u64) -> Vec<u8> {
    let stamp = TokenStamp { freshness: freshness(count), lifetime_minutes: 60 };
    let token = layout(0).encode_token(id(server), stamp);
    let drawn = count.to_be_bytes();
    [&[0xc0, 0, 0, 0, 1, 8][..], &drawn, &[0, token.len() as u8], &token, &[0; 100]].concat()
}

#[test]
fn root_connection_ids_lead_to_their_servers_over_restarts_new_keys_and_drains() {
    if skipped() {
        return;
    }
    let scene = Scene::new("zero", 3);
    let _answering = EchoServers::new(&scene);
    configure(&scene, &[0], &[0, 1, 2]);
    scene.run();
    let old: Vec<Vec<u8>> = (0..3).map(|server| short(0, server, 1)).collect();
    let stays = |what: &str, packets: &[Vec<u8>]| {
        for (server, packet) in packets.iter().enumerate() {
            assert_eq!(answering_server(&scene, packet), server, "{what}");
        }
    };
    stays("at first", &old);
    // A new connection.
    let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &[3; 8], &[0; 100]].concat();
    let own = answering_server(&scene, &initial);
    assert_eq!(answering_server(&scene, &initial), own, "a client has a server");
    let wait = || scene.backend(1)["load"]["wait_ns"].as_f64().map(|ns| ns / 1e9);
    eventually("the load is reported", || wait().is_some_and(|wait| (0.0249..0.0251).contains(&wait)));
    assert_eq!(scene.backend(1)["server_id"], 1007);
    scene.kill();
    stays("while no process runs", &old);
    scene.run();
    stays("taken over", &old);
    assert_eq!(scene.status()["plane"]["start"], "taken-over");
    eventually("the load is still known", || wait().is_some());
    // The key is rotated.
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
    // Drained, and then removed.
    scene.ok(&["drain", "s1"]);
    stays("drained", &new);
    let left: Vec<usize> = (0..3).filter(|server| *server != own).collect();
    configure(&scene, &[1], &left);
    scene.ok(&["reload"]);
    stays("leaving", &new);
    assert!(left.contains(&answering_server(&scene, &initial)), "no new connection there");
    assert!(scene.ok(&["status"]).contains("reported a 25."));
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");
}

#[test]
fn root_a_token_leads_to_its_server_or_to_the_successor_that_status_names() {
    if skipped() {
        return;
    }
    let scene = Scene::new("token", 3);
    let _answering = EchoServers::new(&scene);
    configure(&scene, &[0], &[0, 1, 2]);
    scene.run();
    for server in 0..3 {
        assert_eq!(answering_server(&scene, &returning(server, 1)), server);
    }
    assert!(scene.backend(1)["successor"].is_null());
    let counted = |name: &str| scene.status()["plane"]["connection_ids"][name].as_u64().unwrap_or(0);
    eventually("tokens are counted", || counted("token") >= 3);
    assert!(scene.status()["plane"]["packets"]["token"].as_u64() >= Some(3));
    // A server that is drained, and then removed.
    let mut count = 1;
    let mut check_successor = |name: &str| {
        let wanted: usize = name.strip_prefix('s').unwrap().parse().unwrap();
        for _ in 0..10 {
            count += 1;
            assert_eq!(answering_server(&scene, &returning(1, count)), wanted);
        }
    };
    scene.ok(&["drain", "s1"]);
    let successor = scene.backend(1)["successor"].as_str().unwrap().to_owned();
    check_successor(&successor);
    assert!(scene.ok(&["status"]).contains(&format!("clients with its tokens go to {successor}")));
    scene.ok(&["remove", "s1"]);
    let leaving = scene.status()["leaving"][0]["successor"].as_str().unwrap().to_owned();
    check_successor(&leaving);
    eventually("those of a server that left too", || counted("token-left") >= 20);
    assert_eq!(answering_server(&scene, &returning(2, 99)), 2);
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");
}

/// Where all servers fail their checks, all are used; where one does, nobody has its sessions.
#[test]
fn root_tokens_of_a_server_that_is_down_are_as_none_and_lead_to_it_if_all_are() {
    if skipped() {
        return;
    }
    let scene = Scene::new("token-down", 3);
    let _answering = EchoServers::new(&scene);
    for server in [0, 2] {
        let healthy = scene.servers[server].namespace.enter(|| TcpListener::bind("0.0.0.0:81")).unwrap().unwrap();
        std::thread::spawn(move || for _ in healthy.incoming() {});
    }
    let check = |port: u16| {
        configure(&scene, &[0], &[0, 1, 2]);
        let health = format!("health = {{ kind = \"tcp\", port = {port}, interval = \"100ms\", timeout = \"100ms\" }}");
        let text = std::fs::read_to_string(scene.path("lb.toml")).unwrap();
        let policy = "policy = \"zero-rtt\"";
        std::fs::write(scene.path("lb.toml"), text.replace(policy, &format!("{policy}\n{health}"))).unwrap();
    };
    check(81);
    scene.run();
    eventually("one is down", || scene.backend(1)["health"] == "down");
    eventually("the others are up", || [0, 2].iter().all(|server| scene.backend(*server)["health"] == "up"));
    assert!(scene.backend(1)["successor"].is_null(), "{}", scene.backend(1));
    let initial = [&[0xc0, 0, 0, 0, 1, 8][..], &[3; 8], &[0; 100]].concat();
    let own = answering_server(&scene, &initial);
    for count in 0..5 {
        assert_eq!(answering_server(&scene, &returning(1, count)), own, "the one of the client's address");
    }
    let counted = |name: &str| scene.status()["plane"]["connection_ids"][name].as_u64().unwrap_or(0);
    eventually("they are counted", || counted("token-down") >= 5);
    assert_eq!(counted("token-left"), 0);
    // Nothing listens there.
    check(9);
    scene.ok(&["reload"]);
    eventually("all fail", || scene.status()["vips"][0]["all_down"] == true);
    for server in 0..3 {
        assert_eq!(answering_server(&scene, &returning(server, 9)), server);
    }
    let run = scene.end();
    assert_eq!(run.status, Some(0), "{run}");
}

#[test]
fn root_a_server_id_is_not_reused_before_its_backend_has_left() {
    if skipped() {
        return;
    }
    let scene = Scene::new("taken", 3);
    let _answering = EchoServers::new(&scene);
    configure(&scene, &[0], &[0, 1]);
    scene.run();
    let known = short(0, 1, 1);
    let stays = |what: &str| assert_eq!(answering_server(&scene, &known), 1, "{what}");
    stays("at first");
    scene.ok(&["remove", "s1"]);
    let (third, taken) = (address(5).to_string(), id(1).to_string());
    let add = || scene.lb(&["add", "web", &third, "--server-id", &taken]);
    let refused = add();
    assert_eq!(refused.status, Some(2), "{refused}");
    let why = format!("1007 of backend '{third}' still belongs to 's1'");
    assert!(refused.stderr.contains(&why), "{refused}");
    assert!(!refused.stderr.contains("lb.toml"), "{refused}");
    // Through the file, while running and at the start, even if the saved state is lost.
    let file = || {
        configure(&scene, &[0], &[0, 2]);
        let text = std::fs::read_to_string(scene.path("lb.toml")).unwrap();
        let text = text.replace("server_id = 2007", "server_id = 1007");
        std::fs::write(scene.path("lb.toml"), text).unwrap();
    };
    file();
    let check_refused = |message: &str, former: &str| {
        let whole = format!("lb.toml: vip.backend.server_id: 1007 of backend 's2' still belongs to '{former}'");
        assert!(message.contains(&whole), "{message}");
        stays("refused");
    };
    let reload = scene.lb(&["reload"]);
    check_refused(&reload.stderr, "s1");
    assert!(reload.stderr.contains("nothing was changed"), "{reload}");
    scene.kill();
    check_refused(&start_refused(&scene), "s1");
    // With other sizes too, which the data plane has from then on.
    let path = scene.path("lb.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let larger = text.replace("connections = 4096", "connections = 8192");
    std::fs::write(&path, larger).unwrap();
    check_refused(&start_refused(&scene), "s1");
    file();
    std::fs::remove_file(scene.path("lb.sock.state")).unwrap();
    check_refused(&start_refused(&scene), &address(4).to_string());
    // Once it has left.
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
    // Requested without a pause, so that its number is reused as soon as it is free.
    let mut socket = UnixStream::connect(scene.path("lb.sock")).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap()).lines();
    let request = format!("{{\"do\":\"add\",\"vip\":\"web\",\"address\":\"{third}\",\"server_id\":{taken}}}\n");
    eventually("it has left", || {
        (0..1000).any(|_| {
            socket.write_all(request.as_bytes()).unwrap();
            answers.next().unwrap().unwrap().contains("ok")
        })
    });
    assert_eq!(stamps(), 0, "its load is not the other's");
    assert_eq!(answering_server(&scene, &known), 2);
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
    // One VIP is gone, the other has another policy.
    scene.configure("", "protocol = \"udp\"", &[0, 1]);
    scene.run();
    assert_eq!((slot("1"), slot("2"), names()), (false, false, 0));
    // The same while a process runs.
    configure(&scene, &[0], &[0, 1]);
    scene.ok(&["reload"]);
    assert_eq!((slot("1"), slot("2")), (true, false));
    scene.configure("", "protocol = \"udp\"", &[0, 1]);
    scene.ok(&["reload"]);
    assert_eq!((slot("1"), slot("2")), (false, false));
}

#[test]
fn root_a_plan_that_the_kernel_refuses_does_not_affect_existing_connections() {
    if skipped() {
        return;
    }
    let scene = Scene::new("undone", 3);
    let _answering = EchoServers::new(&scene);
    configure(&scene, &[0], &[0, 1]);
    scene.run();
    let known: Vec<_> = (0..3).map(|server| short(0, server, 1)).collect();
    let check_routed = |what: &str| {
        assert_eq!(answering_server(&scene, &known[0]), 0, "{what}");
        assert_eq!(answering_server(&scene, &known[1]), 1, "{what}");
    };
    check_routed("at first");
    // The server IDs of the second VIP cannot be written.
    pinned(&scene, "zero_names", "freeze", &[]);
    configure(&scene, &[0], &[0, 1, 2]);
    configure_second(&scene, &[0]);
    let reload = scene.lb(&["reload"]);
    assert!(reload.stderr.contains("zero_names"), "{reload}");
    check_routed("refused");
    assert_eq!(answer(&scene, &known[2]), None, "as it was before");
    scene.kill();
    let run = scene.lb_alone(&["run", &scene.path("lb.toml")]);
    assert!(run.stderr.contains("zero_names"), "{run}");
    check_routed("refused at the start");
}

/// Sends a datagram to the VIP some times.
fn send(scene: &Scene, times: usize, packet: &[u8]) {
    let packets = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        (0..times).for_each(|_| assert!(socket.send_to(packet, (VIP, PORT)).is_ok()));
    };
    scene.client.enter(packets).unwrap();
}

/// The first packet of another connection, whose client drew a connection ID.
fn initial() -> Vec<u8> {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    let drawn = DRAWN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [&[0xc3, 0, 0, 0, 1, 8][..], &drawn, &[0; 100]].concat()
}

/// A short header with a connection ID in a rotation that nobody has configured.
fn foreign() -> Vec<u8> {
    [&[0x41, 0xe0][..], &[7; 40]].concat()
}

#[test]
fn root_servers_that_put_no_id_into_connection_ids_are_pointed_out() {
    if skipped() {
        return;
    }
    let scene = Scene::new("plain", 2);
    let _answering = EchoServers::new(&scene);
    configure(&scene, &[0], &[0, 1]);
    scene.run();
    let own = answering_server(&scene, &initial());
    let warning = |server: usize| format!("no packet has named 's{server}' in its connection ID yet");
    let warns = |server: usize| scene.status()["warnings"].to_string().contains(&warning(server));
    eventually("it warns of the one that has clients", || {
        send(&scene, 1, &initial());
        send(&scene, 3, &foreign());
        warns(own)
    });
    assert!(!warns(1 - own), "it has no connection");
    assert!(scene.ok(&["status"]).contains("forged them cannot be told"));
    eventually("it no longer warns", || {
        send(&scene, 1, &short(0, own, 1));
        !warns(own)
    });
    // With a key that the servers do not have.
    configure(&scene, &[1], &[0, 1]);
    scene.ok(&["reload"]);
    eventually("it warns again", || {
        send(&scene, 1, &initial());
        send(&scene, 3, &short(0, own, 2));
        warns(own)
    });
}

#[test]
fn root_forged_packets_blame_no_server_that_a_client_has_named() {
    if skipped() {
        return;
    }
    let scene = Scene::new("forged", 2);
    configure(&scene, &[0], &[0, 1]);
    scene.run();
    eventually("both are named", || {
        (0..2).for_each(|server| send(&scene, 1, &short(0, server, 1)));
        let backends = &scene.status()["vips"][0]["backends"];
        (0..2).all(|at| backends[at]["named_age_ns"].is_u64())
    });
    let packets = |why: &str| scene.status()["plane"]["packets"][why].as_u64().unwrap();
    let before = packets("unroutable");
    (0..100).for_each(|_| send(&scene, 1, &initial()));
    send(&scene, 100, &foreign());
    eventually("they are counted", || packets("unroutable") >= before + 100);
    let warnings = scene.status()["warnings"].to_string();
    assert!(!warnings.contains("server"), "{warnings}");
}
