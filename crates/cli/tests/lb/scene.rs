//! A client, a balancer and servers on one segment. Servers have the VIP on their loopback device and
//! answer the client straight back.

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

use dwell_testbed::Namespace;
use serde_json::Value;

use crate::support::{DWELL, Process, Run, eventually, ip, links, spawn, tool};

pub const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const VIP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const PORT: u16 = 80;

pub struct Scene {
    pub client: Namespace,
    pub balancer: Namespace,
    pub servers: Vec<Server>,
    /// What is configured and asked: [`VIP`], or [`VIP6`] after [`Scene::speak_ipv6`].
    pub vip: Cell<IpAddr>,
    /// By which of their addresses backends are configured.
    pub address_of: Cell<fn(usize) -> IpAddr>,
    _switches: Vec<Namespace>,
    _watch: Process,
    pub folder: tempfile::TempDir,
    pin: PathBuf,
    run: RefCell<Option<Process>>,
}

/// A server that answers each byte with its number.
pub struct Server {
    pub namespace: Namespace,
    listening: RefCell<Option<Listening>>,
    number: u8,
    /// Milliseconds that an answer takes.
    pub delay_ms: Arc<AtomicU64>,
}

struct Listening {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<dwell_testbed::Result<()>>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

/// Address of a host: 1 the client, 2 the balancer, servers from 3 on.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, 0, host as u8)
}

/// The same of IPv6.
pub fn address6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, host as u16)
}

/// Hosts on a switch: 10.SUBNET.0.HOST.
struct Segment {
    switch: Namespace,
    subnet: u8,
}

impl Segment {
    fn new(switch: Namespace, subnet: u8) -> Segment {
        ip(&switch, "link add bridge0 type bridge\nlink set bridge0 up\n");
        Segment { switch, subnet }
    }

    fn join(&self, space: &Namespace, device: &str, host: usize) {
        let there = space.name();
        ip(
            &self.switch,
            &format!(
                "link add port{host} type veth peer name {device} netns {there}\n\
                 link set port{host} master bridge0 up\n"
            ),
        );
        let address = Ipv4Addr::new(10, self.subnet, 0, host as u8);
        ip(space, &format!("addr add {address}/24 dev {device}\nlink set {device} up\n"));
        // XDP knows nothing of checksums that are left to the device.
        tool(space, "ethtool", &["-K", device, "tx", "off"]);
        // What XDP sends through a veth arrives only at a peer that polls.
        tool(&self.switch, "ethtool", &["-K", &format!("port{host}"), "gro", "on"]);
    }
}

impl Scene {
    /// With servers that listen.
    pub fn new(name: &str, servers: usize) -> Scene {
        Scene::build(name, servers, false)
    }

    /// The same with servers on a segment of their own, behind another interface of the balancer, whose
    /// kernel takes their answers to the client.
    pub fn apart(name: &str, servers: usize) -> Scene {
        let scene = Scene::build(name, servers, true);
        scene.address_of.set(|host| Ipv4Addr::new(10, 80, 0, host as u8).into());
        for server in &scene.servers {
            ip(&server.namespace, "route add default via 10.80.0.2\n");
        }
        for (key, value) in [("ip_forward", "1"), ("conf/all/rp_filter", "0"), ("conf/eth1/rp_filter", "0")] {
            let write = || std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value);
            scene.balancer.enter(write).unwrap().unwrap();
        }
        scene
    }

    fn build(name: &str, servers: usize, is_apart: bool) -> Scene {
        let create = |who: &str| Namespace::create(&format!("lb-{name}-{who}")).unwrap();
        let (client, balancer) = (create("c"), create("b"));
        let spaces: Vec<_> = (0..servers).map(|at| create(&format!("s{at}"))).collect();
        let mut segments = vec![Segment::new(create("sw"), 79)];
        segments[0].join(&client, "eth0", 1);
        segments[0].join(&balancer, "eth0", 2);
        if is_apart {
            segments.push(Segment::new(create("sw2"), 80));
            segments[1].join(&balancer, "eth1", 2);
        }
        ip(&client, &format!("route add {VIP} via {}\n", address(2)));
        for (host, space) in (3..).zip(&spaces) {
            segments[segments.len() - 1].join(space, "eth0", host);
            ip(space, &format!("addr add {VIP}/32 dev lo\n"));
        }
        // What XDP sends through a veth arrives only if its peer has a program too: one that watches.
        let watch = ["response", "-i", "port2", "--hook", "xdp", "--format", "none"];
        let watch = spawn(&segments[0].switch, DWELL, &watch);
        eventually("the port is watched", || links(watch.id()) > 0);
        let folder = tempfile::tempdir().unwrap();
        let pin = PathBuf::from(format!("/sys/fs/bpf/dwell-test-{name}-{}", std::process::id()));
        let scene = Scene {
            client,
            balancer,
            servers: (0..)
                .zip(spaces)
                .map(|(number, namespace)| Server {
                    namespace,
                    listening: RefCell::default(),
                    number,
                    delay_ms: Arc::default(),
                })
                .collect(),
            vip: Cell::new(VIP.into()),
            address_of: Cell::new(|host| address(host).into()),
            _switches: segments.into_iter().map(|segment| segment.switch).collect(),
            _watch: watch,
            folder,
            pin,
            run: RefCell::default(),
        };
        scene.servers.iter().for_each(Server::listen);
        scene
    }

    /// Gives all of one segment addresses of IPv6 too, and servers [`VIP6`].
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

    /// Each server unpacks what comes by a tunnel, with `dwell lb decap`.
    pub fn decapsulate(&self) -> Vec<Process> {
        let begin = |server: &Server| {
            let process = spawn(&server.namespace, DWELL, &["lb", "decap", "eth0"]);
            eventually("packets are unpacked", || links(process.id()) > 0);
            process
        };
        self.servers.iter().map(begin).collect()
    }

    /// The binary where any user may run it, in a folder that any may enter.
    pub fn for_anybody(&self) -> String {
        let folder = self.folder.path();
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        let path = folder.join("dwell");
        let linked = std::fs::hard_link(DWELL, &path);
        linked.or_else(|_| std::fs::copy(DWELL, &path).map(drop)).unwrap();
        path.display().to_string()
    }

    /// Writes the configuration: what stands before the VIPs, what stands in the one VIP, and its
    /// backends by the numbers of servers.
    pub fn configure(&self, top: &str, vip: &str, servers: &[usize]) {
        let backends: String = servers
            .iter()
            .map(|server| {
                format!("[[vip.backend]]\nname = \"s{server}\"\naddress = \"{}\"\n", self.address_of.get()(server + 3))
            })
            .collect();
        let forward = if vip.contains("forward") { "" } else { "forward = \"l2\"\n" };
        let text = format!(
            "interface = \"eth0\"\npin = \"{}\"\nlimits.connections = 4096\napi.socket = \"{}\"\n{top}\n\
             [[vip]]\nname = \"web\"\naddress = \"{}\"\nport = {PORT}\n{forward}table_size = 1009\n{vip}\n{backends}",
            self.pin.display(),
            self.path("lb.sock"),
            self.vip.get(),
        );
        std::fs::write(self.path("lb.toml"), text).unwrap();
    }

    /// Starts `dwell lb run` and waits until it answers.
    pub fn run(&self) {
        self.run_by(&["env"]);
    }

    /// The same by a program that becomes what it is given.
    pub fn run_by(&self, by: &[&str]) {
        let path = self.path("lb.toml");
        let all = [&by[1..], &[DWELL, "lb", "run", &path]].concat();
        let process = spawn(&self.balancer, by[0], &all);
        *self.run.borrow_mut() = Some(process);
        eventually("it answers", || {
            let ended = self.run.borrow_mut().as_mut().unwrap().has_ended();
            assert!(!ended, "{}", self.run.take().unwrap().end());
            self.lb(&["status"]).status == Some(0)
        });
    }

    /// The running process.
    pub fn with_run<T>(&self, what: impl FnOnce(&Process) -> T) -> T {
        what(self.run.borrow().as_ref().unwrap())
    }

    /// Its end, and what it said.
    pub fn end(&self) -> Run {
        self.run.take().unwrap().interrupt()
    }

    /// The same of one that ends by itself.
    pub fn wait(&self) -> Run {
        self.run.take().unwrap().end()
    }

    /// What Prometheus reads.
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

    /// The running process, killed without a word.
    pub fn kill(&self) {
        let process = self.run.take().unwrap();
        process.signal(nix::sys::signal::Signal::SIGKILL);
        process.end();
    }

    /// A verb of `dwell lb` with the scene's socket.
    pub fn lb(&self, arguments: &[&str]) -> Run {
        let socket = self.path("lb.sock");
        let with = [&["lb"], arguments, &["--socket", &socket]].concat();
        spawn(&self.balancer, DWELL, &with).end()
    }

    /// A verb of `dwell lb` that asks nobody.
    pub fn lb_alone(&self, arguments: &[&str]) -> Run {
        spawn(&self.balancer, DWELL, &[&["lb"], arguments].concat()).end()
    }

    pub fn pin(&self) -> String {
        self.pin.display().to_string()
    }

    /// The same, which must succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let run = self.lb(arguments);
        assert_eq!(run.status, Some(0), "{arguments:?}: {run}");
        run.stdout
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["status", "--json"])).unwrap()
    }

    /// A backend of the one VIP.
    pub fn backend(&self, server: usize) -> Value {
        let status = self.status();
        let backends = status["vips"][0]["backends"].as_array().unwrap().clone();
        let is_it = |backend: &&Value| backend["name"] == format!("s{server}");
        backends.iter().find(is_it).unwrap_or_else(|| panic!("no s{server}: {status}")).clone()
    }

    /// A connection of the client's.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        let vip = self.vip.get();
        self.client.enter(|| connect(vip)).unwrap()
    }

    /// Which servers so many new connections come to.
    pub fn spread(&self, connections: usize) -> BTreeMap<u8, usize> {
        let mut spread = BTreeMap::new();
        for _ in 0..connections {
            let mut stream = self.connect().unwrap();
            *spread.entry(ask(&mut stream).unwrap()).or_default() += 1;
        }
        spread
    }

    /// So many connections that ask all the time, until the load is ended.
    pub fn load(&self, connections: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicU64::new(0));
        let vip = self.vip.get();
        let threads = (0..connections)
            .map(|_| {
                let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
                self.client.spawn_thread(move || -> Result<(), String> {
                    let mut stream = connect(vip).map_err(|error| format!("connecting: {error}"))?;
                    let mut first = None;
                    while !stop.load(Ordering::Relaxed) {
                        let number = ask(&mut stream).map_err(|error| format!("asking {first:?}: {error}"))?;
                        if *first.get_or_insert(number) != number {
                            return Err(format!("{first:?} became {number}"));
                        }
                        asked.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                })
            })
            .collect();
        Load { stop, asked, threads }
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

/// What is below a folder, deepest first, and the folder.
fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.flat_map(|entry| walk(&entry.path())).collect();
    all.push(folder.into());
    all
}

/// Connections that ask all the time.
pub struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    threads: Vec<JoinHandle<dwell_testbed::Result<Result<(), String>>>>,
}

impl Load {
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits until each has asked some more.
    pub fn go_on(&self) {
        let before = self.asked();
        let more = self.threads.len() as u64 * 5;
        eventually("the load goes on", || self.asked() >= before + more);
    }

    /// Ends it; what went wrong with connections.
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

/// One request; the number of the server that answered.
pub fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut byte = [7];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

impl Server {
    /// On all its addresses.
    pub fn listen(&self) {
        let stop = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (ready, started) = std::sync::mpsc::channel();
        let (number, for_thread, kept) = (self.number, Arc::clone(&stop), Arc::clone(&streams));
        let delay = Arc::clone(&self.delay_ms);
        let thread = self.namespace.spawn_thread(move || {
            // Where there is no IPv6, of IPv4 alone.
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

    /// As if it were killed: nobody listens, connections are reset.
    pub fn die(&self) {
        let listening = self.listening.take().unwrap();
        listening.stop.store(true, Ordering::SeqCst);
        self.namespace.enter(|| drop(TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).unwrap())).unwrap();
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
