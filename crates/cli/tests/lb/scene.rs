//! A scene for tests: a client, a balancer and servers on one segment. Servers have the VIP on their loopback device and
//! answer the client directly.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs::Permissions,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use dwell_testbed::{Namespace, Switch};
use serde_json::Value;

use crate::support::{DWELL, Process, Run, eventually, ip, links, object, spawn};

pub const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const PORT: u16 = 80;
/// Entries of the VIP's Maglev table, unless a test sets [`Scene::table_size`].
pub const TABLE_SIZE: u32 = 1009;

pub struct Scene {
    pub client: Namespace,
    pub balancer: Namespace,
    pub servers: Vec<Server>,
    /// The VIP of the next configuration and of new connections: [`VIP`], or [`VIP6`] after [`Scene::speak_ipv6`].
    pub vip: Cell<IpAddr>,
    /// Entries of the VIP's Maglev table in the next configuration.
    pub table_size: Cell<u32>,
    /// The address of a host in the next configuration.
    pub address_of: Cell<fn(usize) -> IpAddr>,
    switches: Vec<Switch>,
    watch: Option<Process>,
    pub folder: tempfile::TempDir,
    pin: PathBuf,
    run: RefCell<Option<Process>>,
}

/// A server that answers each byte with its number.
pub struct Server {
    pub namespace: Namespace,
    listening: RefCell<Option<Listening>>,
    number: u8,
    /// The delay of each answer, in milliseconds.
    pub delay_ms: Arc<AtomicU64>,
}

struct Listening {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<dwell_testbed::Result<()>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

/// The IPv4 address of a host: 1 is the client, 2 the balancer, and servers start at 3.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, 0, host as u8)
}

/// The IPv6 address of a host.
pub fn address6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, host as u16)
}

/// Gives a namespace a device on a switch, whose other end polls.
fn plug(switch: &Switch, space: &Namespace, device: &str, host: u8) {
    switch.plug(host, space, device).unwrap();
    switch.poll(host, "on").unwrap();
    ip(space, &format!("addr add {}/24 dev {device}\n", switch.address(host)));
}

/// What XDP sends through a veth arrives only if its peer has a program too: one that watches.
fn watch(switch: &Switch, host: usize) -> Process {
    let port = format!("port{host}");
    let watch = spawn(switch.namespace(), DWELL, &["response", "-i", &port, "--hook", "xdp", "--format", "none"]);
    eventually("the port is watched", || links(watch.id()) > 0);
    watch
}

impl Scene {
    /// Builds a scene whose servers listen.
    pub fn new(name: &str, servers: usize) -> Scene {
        Scene::build(name, servers, false)
    }

    /// Builds a scene whose servers are on a segment of their own, behind another interface of the balancer. The
    /// balancer's kernel routes their answers to the client.
    pub fn apart(name: &str, servers: usize) -> Scene {
        let scene = Scene::build(name, servers, true);
        scene.address_of.set(|host| Ipv4Addr::new(10, 80, 0, host as u8).into());
        for server in &scene.servers {
            ip(&server.namespace, "route add default via 10.80.0.2\n");
        }
        let options = [("ipv4/ip_forward", "1"), ("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/eth1/rp_filter", "0")];
        scene.balancer.set(&options).unwrap();
        scene
    }

    /// Builds a scene whose devices are as they are made: the other end of the balancer's takes nothing from XDP, and
    /// checksums are left to devices.
    pub fn unprepared(name: &str, servers: usize) -> Scene {
        let mut scene = Scene::build(name, servers, false);
        drop(scene.watch.take());
        scene.poll_at_the_switch("off");
        scene.offload_checksums("on");
        scene
    }

    /// Whether the other end of the balancer's device polls: "on" or "off".
    pub fn poll_at_the_switch(&self, polls: &str) {
        self.switches[0].poll(2, polls).unwrap();
    }

    /// Makes the other end of the device towards servers that are apart take nothing from XDP.
    pub fn stop_polling_behind(&self) {
        self.switches[1].poll(2, "off").unwrap();
    }

    /// Whether client and servers leave checksums to their devices: "on" or "off".
    pub fn offload_checksums(&self, offloaded: &str) {
        let servers = self.servers.iter().map(|server| &server.namespace);
        for space in servers.chain([&self.client]) {
            space.offload("eth0", "tx", offloaded).unwrap();
        }
    }

    fn build(name: &str, servers: usize, is_apart: bool) -> Scene {
        let create = |who: &str| Namespace::create(&format!("lb-{name}-{who}")).unwrap();
        let (client, balancer) = (create("c"), create("b"));
        let spaces: Vec<_> = (0..servers).map(|at| create(&format!("s{at}"))).collect();
        let switch = |subnet: u8| Switch::create(&format!("lb-{name}-sw{subnet}"), subnet).unwrap();
        let mut switches = vec![switch(79)];
        plug(&switches[0], &client, "eth0", 1);
        plug(&switches[0], &balancer, "eth0", 2);
        if is_apart {
            switches.push(switch(80));
            plug(&switches[1], &balancer, "eth1", 2);
        }
        ip(&client, &format!("route add {VIP} via {}\n", address(2)));
        for (host, space) in (3..).zip(&spaces) {
            plug(&switches[switches.len() - 1], space, "eth0", host);
            ip(space, &format!("addr add {VIP}/32 dev lo\n"));
        }
        let watch = watch(&switches[0], 2);
        let mut scene = Scene::with(name, client, balancer, watch);
        scene.servers = (0..)
            .zip(spaces)
            .map(|(number, namespace)| Server {
                namespace,
                listening: RefCell::default(),
                number,
                delay_ms: Arc::default(),
            })
            .collect();
        scene.switches = switches;
        scene.servers.iter().for_each(Server::listen);
        scene
    }

    fn with(name: &str, client: Namespace, balancer: Namespace, watch: Process) -> Scene {
        Scene {
            client,
            balancer,
            servers: Vec::new(),
            vip: Cell::new(VIP.into()),
            table_size: Cell::new(TABLE_SIZE),
            address_of: Cell::new(|host| address(host).into()),
            switches: Vec::new(),
            watch: Some(watch),
            folder: tempfile::tempdir().unwrap(),
            pin: PathBuf::from(format!("/sys/fs/bpf/dwell-test-{name}-{}", std::process::id())),
            run: RefCell::default(),
        }
    }

    /// Adds another balancer on the segment, as this host: a scene without servers, whose client is nowhere.
    pub fn beside(&self, name: &str, host: usize) -> Scene {
        let create = |who: &str| Namespace::create(&format!("lb-{name}-{who}")).unwrap();
        let (client, balancer) = (create("c"), create("b"));
        plug(&self.switches[0], &balancer, "eth0", host as u8);
        Scene::with(name, client, balancer, watch(&self.switches[0], host))
    }

    /// Spreads the client's connections to the VIP over hosts with these weights, by equal-cost multipath.
    pub fn spread_over(&self, hosts: &[(usize, usize)]) {
        self.client.set(&[("ipv4/fib_multipath_hash_policy", "1")]).unwrap();
        let hop = |(host, weight): &(usize, usize)| format!(" nexthop via {} weight {weight}", address(*host));
        let hops: String = hosts.iter().map(hop).collect();
        ip(&self.client, &format!("route replace {VIP}{hops}\n"));
    }

    /// Sends the client's packets to the VIP to this host.
    pub fn lead_to(&self, host: usize) {
        ip(&self.client, &format!("route replace {VIP} via {}\n", address(host)));
    }

    /// Gives all hosts of one segment IPv6 addresses too, and the servers [`VIP6`].
    pub fn speak_ipv6(&self) {
        let servers = self.servers.iter().map(|server| &server.namespace);
        let hosts = [&self.client, &self.balancer].into_iter().chain(servers);
        for (host, space) in (1..).zip(hosts) {
            let own = format!("addr add {}/64 dev eth0 nodad\n", address6(host));
            let vip = match host {
                1 => format!("route add {VIP6} via {}\n", address6(2)),
                2 => String::new(),
                _ => format!("addr add {VIP6}/128 dev lo\n"),
            };
            ip(space, &(own + &vip));
        }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs `dwell lb decap` on each server.
    pub fn decapsulate(&self) -> Vec<Process> {
        self.decapsulate_with(&[])
    }

    /// Runs `dwell lb decap` with these options on each server.
    pub fn decapsulate_with(&self, options: &[&str]) -> Vec<Process> {
        let start = |server: &Server| {
            let process = spawn(&server.namespace, DWELL, &[&["lb", "decap", "eth0"], options].concat());
            eventually("packets are decapsulated", || links(process.id()) > 0);
            process
        };
        self.servers.iter().map(start).collect()
    }

    /// Makes the folder accessible to all users, and puts the binary there. Returns its path.
    pub fn for_anybody(&self) -> String {
        let folder = self.folder.path();
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        let path = folder.join("dwell");
        let linked = std::fs::hard_link(DWELL, &path);
        linked.or_else(|_| std::fs::copy(DWELL, &path).map(drop)).unwrap();
        path.display().to_string()
    }

    /// Writes the configuration: the keys before the VIP, the keys of the VIP, and its backends by the numbers of
    /// servers.
    pub fn configure(&self, top: &str, vip: &str, servers: &[usize]) {
        let backends: String = servers
            .iter()
            .map(|server| {
                format!("[[vip.backend]]\nname = \"s{server}\"\naddress = \"{}\"\n", self.address_of.get()(server + 3))
            })
            .collect();
        let forward = if vip.contains("forward") { "" } else { "forward = \"l2\"\n" };
        let text = format!(
            "interface = \"eth0\"\npin = \"{}\"\nlimits.connections = 4000\napi.socket = \"{}\"\n{top}\n\
             [[vip]]\nname = \"web\"\naddress = \"{}\"\nport = {PORT}\n{forward}table_size = {}\n{vip}\n{backends}",
            self.pin.display(),
            self.path("lb.sock"),
            self.vip.get(),
            self.table_size.get(),
        );
        std::fs::write(self.path("lb.toml"), text).unwrap();
    }

    /// Starts `dwell lb run` and waits until it answers.
    pub fn run(&self) {
        self.run_by(&["env"]);
    }

    /// Starts `dwell lb run` with these options and waits until it answers.
    pub fn run_with(&self, options: &[&str]) {
        self.start(&["env"], options);
    }

    /// Starts `dwell lb run` through a program that executes its arguments, and waits until it answers.
    pub fn run_by(&self, by: &[&str]) {
        self.start(by, &[]);
    }

    fn start(&self, by: &[&str], options: &[&str]) {
        let path = self.path("lb.toml");
        let all = [&by[1..], &[DWELL, "lb", "run", &path], options].concat();
        let process = spawn(&self.balancer, by[0], &all);
        *self.run.borrow_mut() = Some(process);
        eventually("it answers", || {
            let ended = self.run.borrow_mut().as_mut().unwrap().has_ended();
            assert!(!ended, "{}", self.run.take().unwrap().end());
            self.lb(&["status"]).status == Some(0)
        });
    }

    /// The running process.
    pub fn with_run<T>(&self, action: impl FnOnce(&Process) -> T) -> T {
        action(self.run.borrow().as_ref().unwrap())
    }

    /// Interrupts the running process, and waits for its end.
    pub fn end(&self) -> Run {
        self.run.take().unwrap().interrupt()
    }

    /// Waits for the end of the running process.
    pub fn wait(&self) -> Run {
        self.run.take().unwrap().end()
    }

    /// Scrapes the metrics.
    pub fn get_metrics(&self) -> String {
        self.balancer
            .enter(|| {
                let mut stream = TcpStream::connect("127.0.0.1:9469").unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                let mut page = String::new();
                stream.read_to_string(&mut page).unwrap();
                page
            })
            .unwrap()
    }

    /// Kills the running process.
    pub fn kill(&self) {
        let process = self.run.take().unwrap();
        process.signal(nix::sys::signal::Signal::SIGKILL);
        process.end();
    }

    /// Runs a verb of `dwell lb` with the scene's socket.
    pub fn lb(&self, arguments: &[&str]) -> Run {
        let socket = self.path("lb.sock");
        let with = [&["lb"], arguments, &["--socket", &socket]].concat();
        spawn(&self.balancer, DWELL, &with).end()
    }

    /// Runs a verb of `dwell lb` that uses no socket.
    pub fn lb_alone(&self, arguments: &[&str]) -> Run {
        spawn(&self.balancer, DWELL, &[&["lb"], arguments].concat()).end()
    }

    pub fn pin(&self) -> String {
        self.pin.display().to_string()
    }

    /// Runs a verb of `dwell lb` with the scene's socket, which must succeed. Returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let run = self.lb(arguments);
        assert_eq!(run.status, Some(0), "{arguments:?}: {run}");
        run.stdout
    }

    pub fn status(&self) -> Value {
        object(&self.ok(&["status", "--format", "jsonl"]))
    }

    /// Returns the status of a backend.
    pub fn backend(&self, server: usize) -> Value {
        let status = self.status();
        let backends = status["vips"][0]["backends"].as_array().unwrap().clone();
        let is_it = |backend: &&Value| backend["name"] == format!("s{server}");
        backends.iter().find(is_it).unwrap_or_else(|| panic!("no s{server}: {status}")).clone()
    }

    /// Opens a connection from the client to the VIP.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        let vip = self.vip.get();
        self.client.enter(|| connect(vip)).unwrap()
    }

    /// Opens connections. Returns how many each server got.
    pub fn spread(&self, connections: usize) -> BTreeMap<u8, usize> {
        let mut spread = BTreeMap::new();
        for _ in 0..connections {
            let mut stream = self.connect().unwrap();
            *spread.entry(ask(&mut stream).unwrap()).or_default() += 1;
        }
        spread
    }

    /// Opens connections that send requests until the load is ended.
    pub fn load(&self, connections: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(AtomicU64::new(0));
        let vip = self.vip.get();
        let threads = (0..connections)
            .map(|_| {
                let (stop, requests) = (Arc::clone(&stop), Arc::clone(&requests));
                self.client.spawn_thread(move || -> Result<(), String> {
                    let mut stream = connect(vip).map_err(|error| format!("connecting: {error}"))?;
                    let mut first = None;
                    while !stop.load(Ordering::Relaxed) {
                        let number = ask(&mut stream).map_err(|error| format!("asking {first:?}: {error}"))?;
                        if *first.get_or_insert(number) != number {
                            return Err(format!("{first:?} became {number}"));
                        }
                        requests.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                })
            })
            .collect();
        Load { stop, requests, threads }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(self.run.take());
        for entry in walk(&self.pin) {
            let _ = std::fs::remove_file(&entry).or_else(|_| std::fs::remove_dir(&entry));
        }
    }
}

/// Returns everything below a folder, deepest first, and the folder itself.
fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.flat_map(|entry| walk(&entry.path())).collect();
    all.push(folder.into());
    all
}

/// Connections that send requests all the time.
pub struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    threads: Vec<JoinHandle<dwell_testbed::Result<Result<(), String>>>>,
}

impl Load {
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Waits until each connection has sent some more requests.
    pub fn go_on(&self) {
        let before = self.requests();
        let more = self.threads.len() as u64 * 5;
        eventually("the load goes on", || self.requests() >= before + more);
    }

    /// Ends the load. Returns the failures of connections.
    pub fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let ends = self.threads.into_iter().map(|thread| thread.join().unwrap().unwrap());
        ends.filter_map(Result::err).collect()
    }
}

fn connect(vip: IpAddr) -> std::io::Result<TcpStream> {
    let to = SocketAddr::new(vip, PORT);
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request. Returns the number of the server that answered.
pub fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut byte = [7];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

impl Server {
    /// Listens on all addresses of the server.
    pub fn listen(&self) {
        let stop = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (ready, started) = std::sync::mpsc::channel();
        let (number, for_thread, kept) = (self.number, Arc::clone(&stop), Arc::clone(&streams));
        let delay = Arc::clone(&self.delay_ms);
        let thread = self.namespace.spawn_thread(move || {
            // IPv4 alone if there is no IPv6.
            let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
            let any = any.map(|address| SocketAddr::new(address, PORT));
            let listener = TcpListener::bind(&any[..]).unwrap();
            ready.send(()).unwrap();
            for stream in listener.incoming() {
                if for_thread.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                kept.lock().unwrap().push(stream.try_clone().unwrap());
                let delay = Arc::clone(&delay);
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() {
                        thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
                        let _ = stream.write_all(&[number]);
                    }
                });
            }
        });
        started.recv().unwrap();
        *self.listening.borrow_mut() = Some(Listening { stop, thread, streams });
    }

    /// Behaves as if the server were killed: nothing listens, and connections are reset.
    pub fn die(&self) {
        let listening = self.listening.take().unwrap();
        listening.stop.store(true, Ordering::SeqCst);
        // Wakes the thread. It refuses if a health check has woken it before.
        self.namespace.enter(|| drop(TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)))).unwrap();
        listening.thread.join().unwrap().unwrap();
        for stream in listening.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.listening.borrow().is_some() {
            self.die();
        }
    }
}
