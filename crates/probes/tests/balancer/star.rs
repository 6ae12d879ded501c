//! A client, a balancer and backends on one segment. Backends have the VIP on their loopback device, and answer the
//! client directly.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    sync::mpsc::Sender,
    thread,
    time::Duration,
};

use dwell_engine::rtt::Prefix;
use dwell_probes::{
    Interface,
    balancer::{Decap, DecapRules, NextHop},
};
use dwell_testbed::{
    Namespace, Switch,
    harness::ip,
    skip::{lacks_program, lacks_root},
};

use crate::xdp;

pub const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const PORT: u16 = 80;
const SUBNET: u8 = 79;

pub struct Star {
    pub client: Namespace,
    pub balancer: Namespace,
    pub servers: Vec<Namespace>,
    switch: Switch,
    _programs: Vec<OwnedFd>,
    _ends: Vec<Sender<()>>,
}

/// Returns the address of a host by its number: 1 is the client, 2 the balancer, and servers start at 3.
pub fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, SUBNET, 0, host as u8)
}

impl Star {
    /// Makes the network with this many servers.
    pub fn new(servers: usize) -> Star {
        let create = |name: &str| Namespace::create(&format!("lb-{name}")).unwrap();
        let star = Star {
            client: create("client"),
            balancer: create("balancer"),
            servers: (0..servers).map(|at| create(&format!("s{at}"))).collect(),
            switch: Switch::create("lb-switch", SUBNET).unwrap(),
            _programs: Vec::new(),
            _ends: Vec::new(),
        };
        for (host, namespace) in (1..).zip([&star.client, &star.balancer].into_iter().chain(&star.servers)) {
            star.switch.plug(host, namespace, "eth0").unwrap();
            ip(namespace, &format!("addr add {}/24 dev eth0", star.switch.address(host)));
            namespace.set(&[("ipv4/conf/all/rp_filter", "0"), ("ipv4/conf/eth0/rp_filter", "0")]).unwrap();
        }
        ip(&star.client, &format!("route add {VIP} via {}", address(2)));
        for server in &star.servers {
            ip(server, &format!("addr add {VIP}/32 dev lo"));
        }
        star
    }

    /// Lets packets pass that XDP sends back through a veth: they arrive only if the peer has a program.
    pub fn let_xdp_send(&mut self) {
        let fds = self.switch.namespace().enter(|| pass("port2")).unwrap();
        self._programs.extend(fds);
    }

    /// Makes the other end of the balancer's device poll ("on"), so that it takes what is redirected to it, or not ("off").
    pub fn poll_at_the_switch(&self, polls: &str) {
        self.switch.poll(2, polls).unwrap();
    }

    /// Sets the balancer's device "up" or "down".
    pub fn set_up(&self, state: &str) {
        ip(&self.balancer, &format!("link set eth0 {state}"));
    }

    /// Sets the MTU of the other end of the balancer's device, in octets.
    pub fn set_mtu_at_the_switch(&self, mtu: u32) {
        ip(self.switch.namespace(), &format!("link set port2 mtu {mtu}"));
    }

    /// Gives the balancer a route of its own to a server, counted from 0, with an MTU in octets.
    pub fn route_to_server(&self, server: usize, mtu: u32) {
        let to = address(server + 3);
        ip(&self.balancer, &format!("route replace {to}/32 dev eth0 mtu {mtu}"));
    }

    /// Lets the client and the servers leave checksums to their devices, as they do by default.
    pub fn offload_checksums(&self) {
        for space in self.servers.iter().chain([&self.client]) {
            space.offload("eth0", "tx", "on").unwrap();
        }
    }

    /// Makes each server decapsulate packets to its address. Clients' packets leave room for the outer headers.
    pub fn end_tunnels(&mut self, gue_port: u16) {
        ip(&self.client, "link set eth0 mtu 1440");
        for (at, server) in self.servers.iter().enumerate() {
            let (ready, started) = std::sync::mpsc::channel();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            server.spawn_thread(move || {
                let mut decap = Decap::load(&DecapRules {
                    addresses: vec![address(at + 3).into()],
                    gue_port,
                    vips: vec![Prefix { address: VIP.into(), bits: 32 }],
                    senders: DecapRules::ANYBODY.to_vec(),
                    ..DecapRules::default()
                })
                .unwrap();
                decap.attach(&Interface::find("eth0").unwrap()).unwrap();
                ready.send(()).unwrap();
                let _ = ends.recv();
            });
            started.recv().unwrap();
            self._ends.push(end);
        }
        // The balancer needs the servers' link addresses as next hops.
        for host in (3..).take(self.servers.len()) {
            let octets = self.switch.mac(host).map(|byte| format!("{byte:02x}")).join(":");
            let entry = format!("neigh replace {} lladdr {octets} dev eth0", self.switch.address(host));
            ip(&self.balancer, &entry);
        }
    }

    /// Makes each server answer each datagram with its own number.
    pub fn serve_datagrams(&self) {
        for (number, server) in (0u8..).zip(&self.servers) {
            let (ready, started) = std::sync::mpsc::channel();
            server.spawn_thread(move || {
                let socket = UdpSocket::bind((VIP, PORT)).unwrap();
                ready.send(()).unwrap();
                let mut byte = [0; 8];
                while let Ok((bytes, client)) = socket.recv_from(&mut byte) {
                    byte[0] = number;
                    let _ = socket.send_to(&byte[..bytes], client);
                }
            });
            started.recv().unwrap();
        }
    }

    /// Returns a socket of the client that sends to the VIP.
    pub fn datagrams(&self) -> UdpSocket {
        self.client
            .enter(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect((VIP, PORT)).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                socket
            })
            .unwrap()
    }

    /// Returns the next hop from the balancer to a server, counted from 0.
    pub fn hop(&self, server: usize) -> NextHop {
        NextHop {
            interface: self.index("eth0"),
            destination: self.switch.mac(server as u8 + 3),
            source: self.switch.mac(2),
            mtu: 1500,
        }
    }

    fn index(&self, name: &str) -> u32 {
        self.balancer.enter(|| nix::net::if_::if_nametoindex(name).unwrap()).unwrap()
    }

    /// Makes each server answer each byte with its own number.
    pub fn serve(&self) {
        for (number, server) in (0u8..).zip(&self.servers) {
            let (ready, started) = std::sync::mpsc::channel();
            server.spawn_thread(move || {
                let listener = TcpListener::bind((VIP, PORT)).unwrap();
                ready.send(()).unwrap();
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    thread::spawn(move || {
                        let mut byte = [0];
                        while stream.read_exact(&mut byte).is_ok() {
                            let _ = stream.write_all(&[number]);
                        }
                    });
                }
            });
            started.recv().unwrap();
        }
    }

    /// Opens a connection from the client to the VIP.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        let to = SocketAddr::new(IpAddr::V4(VIP), PORT);
        self.client
            .enter(|| {
                let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
                stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .unwrap()
    }
}

/// Sends a request. Returns the number of the server that answered.
pub fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut byte = [7];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Attaches an XDP program that passes every packet to a device. It is detached with its link.
fn pass(device: &str) -> [OwnedFd; 2] {
    let program = xdp::load(&[xdp::verdict(2), xdp::EXIT]);
    let link = xdp::attach(&program, device);
    [program, link]
}

/// Returns whether this process has the privileges that these tests need, and reports it if not.
pub fn may_run() -> bool {
    !lacks_root() && !lacks_program("ethtool")
}
