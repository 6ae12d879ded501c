//! A client that spreads its connections over balancers by equal-cost multipath, servers that answer it directly, and a
//! store by which the balancers agree.

use std::{fmt::Write as _, path::Path, process::Command};

use dwell_testbed::{
    Guarded, Namespace, Result, Switch,
    program::{PATIENCE, RunningProgram},
    workload::serve,
};

use crate::lb::star::{FRONT, SUBNET, VIP, address, neighbours, plug, serve_vip};

/// Balancers in all; one of them comes later.
pub(super) const BALANCERS: usize = 4;
/// Servers.
pub(super) const SERVERS: usize = 3;

const CLIENT: u8 = 1;
const STORE: u8 = 5;
const STORE_PORT: u16 = 2379;
const FRONTS: u8 = 11;
const BACKS: u8 = 21;
/// The first server among the hosts.
pub(super) const REALS: u8 = 31;
/// The networks that tunnels of balancers come from, and where servers are.
const TUNNELS: &str = "172.16.0.0/16";
const BACKENDS: &str = "10.79.0.0/24";

/// The network. It is removed when this is dropped.
pub(super) struct Hosts {
    pub(super) client: Namespace,
    pub(super) balancers: Vec<Namespace>,
    pub(super) servers: Vec<Namespace>,
    store: Namespace,
    switch: Switch,
}

impl Hosts {
    pub(super) fn create() -> Result<Hosts> {
        let make = |name: String| Namespace::create(&format!("several-{name}"));
        let hosts = Hosts {
            switch: Switch::create("several-switch", SUBNET)?,
            client: make("client".to_owned())?,
            balancers: (1..=BALANCERS).map(|n| make(format!("balancer{n}"))).collect::<Result<_>>()?,
            servers: (1..=SERVERS).map(|n| make(format!("server{n}"))).collect::<Result<_>>()?,
            store: make("store".to_owned())?,
        };
        hosts.wire()?;
        Ok(hosts)
    }

    fn wire(&self) -> Result<()> {
        let plug = |host: u8, namespace: &Namespace, device: &str| {
            plug(&self.switch, host, namespace, device)?;
            // What XDP redirects to a veth arrives only if its other end polls, as it does with GRO.
            self.switch.poll(host, "on")
        };
        plug(STORE, &self.store, "eth0")?;
        self.store.ip(&format!("addr add {}/24 dev eth0\nlink set lo up\n", address(STORE)))?;
        let servers: Vec<u8> = (REALS..).take(SERVERS).collect();
        for (host, server) in (REALS..).zip(&self.servers) {
            plug(host, server, "eth0")?;
            serve_vip(server, host, &[CLIENT])?;
            // The secret of SYN cookies is the kernel's, so that here each server would take those of all others.
            server.set(&[("ipv4/tcp_syncookies", "0")])?;
        }
        for (number, balancer) in (0..).zip(&self.balancers) {
            plug(FRONTS + number, balancer, FRONT)?;
            plug(BACKS + number, balancer, "back0")?;
            balancer.ip(&format!(
                "addr add {}/24 dev back0\n{}",
                address(BACKS + number),
                neighbours(&servers).replace("eth0", "back0")
            ))?;
        }
        plug(CLIENT, &self.client, "eth0")?;
        self.client.set(&[
            // Paths are chosen by ports too.
            ("ipv4/fib_multipath_hash_policy", "1"),
            // Connections end at the client, whose ports rest for a minute.
            ("ipv4/ip_local_port_range", "1024 65535"),
            ("ipv4/tcp_tw_reuse", "1"),
        ])?;
        let fronts: Vec<u8> = (FRONTS..).take(BALANCERS).collect();
        self.client.ip(&format!(
            "addr add {}/24 dev eth0\n{}{}",
            address(CLIENT),
            neighbours(&servers),
            neighbours(&fronts)
        ))
    }

    /// Spreads the client's connections over these balancers, with a weight each, in this order.
    pub(super) fn spread(&self, over: &[(usize, u32)]) -> Result<()> {
        let mut route = format!("route replace {VIP}");
        for (balancer, weight) in over {
            let _ = write!(route, " nexthop via {} weight {weight}", address(FRONTS + *balancer as u8));
        }
        self.client.ip(&(route + "\n"))
    }

    /// Takes a balancer off the network that clients reach it by.
    pub(super) fn cut_off(&self, balancer: usize) -> Result<()> {
        self.balancers[balancer].ip(&format!("link set {FRONT} down\n"))
    }

    /// The address and port of the store.
    pub(super) fn store_address() -> String {
        format!("{}:{STORE_PORT}", address(STORE))
    }

    /// Starts etcd, and waits until it listens.
    pub(super) fn start_store(&self, folder: &Path) -> Result<Guarded> {
        let arguments = [
            format!("--data-dir={}", folder.join("etcd").display()),
            format!("--advertise-client-urls=http://{}", Hosts::store_address()),
            format!("--listen-client-urls=http://0.0.0.0:{STORE_PORT}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--initial-cluster=default=http://127.0.0.1:2380".to_owned(),
        ];
        let configure = |command: &mut Command| {
            command.args(arguments);
        };
        serve(&self.store, "etcd", configure, "tcp", STORE_PORT)
    }

    /// Starts the ends of the tunnels on all servers.
    pub(super) fn start_tunnels(&self, dwell: &Path, folder: &Path) -> Result<Vec<RunningProgram>> {
        let start = |(number, server): (usize, &Namespace)| {
            let arguments = ["lb", "decap", "eth0", "--from", TUNNELS, "--backend", BACKENDS];
            let mut end = RunningProgram::start(format!("tunnel{number}"), server, dwell, folder, &arguments)?;
            end.wait_for("decapsulating", 1, PATIENCE)?;
            Ok(end)
        };
        self.servers.iter().enumerate().map(start).collect()
    }

    /// The configuration of all backends.
    pub(super) fn backends() -> String {
        let backend = |server: usize| {
            format!(
                "\n[[vip.backend]]\nname = \"server{}\"\naddress = \"{}\"\n",
                server + 1,
                address(REALS + server as u8)
            )
        };
        (0..SERVERS).map(backend).collect()
    }
}
