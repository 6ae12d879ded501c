//! Clients, a balancer and servers on one switch; answers of servers do not pass through the balancer.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use dwell_testbed::{
    EmulatorConfig, EmulatorHandle, Error, LinkSpec, Namespace, Nanos, QueueConfig, Result, Switch,
    error::{find_program, run},
};

/// Number of clients.
pub const CLIENTS: usize = 2;
/// Number of servers, including those that are added later.
pub const SERVERS: usize = 4;
/// The TCP port of all servers.
pub(super) const PORT: u16 = 80;
/// The balancer's interface that receives clients' packets.
pub(super) const FRONT: &str = "front0";

pub(super) const VIP: Ipv4Addr = Ipv4Addr::new(10, SUBNET, 0, 100);
pub(super) const SUBNET: u8 = 79;
const FRONT_HOST: u8 = 1;
const BALANCER_HOST: u8 = 2;
const CLIENT_HOSTS: u8 = 11;
const SERVER_HOSTS: u8 = 21;

/// The network. It is removed when this is dropped.
#[derive(Debug)]
pub struct Star {
    /// Where clients run.
    pub clients: Vec<Namespace>,
    /// Where the balancer runs.
    pub balancer: Namespace,
    /// Where servers run.
    pub servers: Vec<Namespace>,
    switch: Switch,
}

impl Star {
    /// Creates the network.
    ///
    /// # Errors
    ///
    /// If this host cannot make network namespaces, or has no ethtool.
    pub fn start() -> Result<Star> {
        if find_program("ethtool").is_none() {
            return Err(Error::Host {
                wanted: "make a network with a balancer",
                fact: "there is no program ethtool".to_owned(),
                remedy: "install the package ethtool",
            });
        }
        let make = |name: String| Namespace::create(&format!("lb-{name}"));
        let star = Star {
            switch: Switch::create("lb-switch", SUBNET)?,
            clients: (1..=CLIENTS).map(|n| make(format!("client{n}"))).collect::<Result<_>>()?,
            balancer: make("balancer".to_owned())?,
            servers: (1..=SERVERS).map(|n| make(format!("server{n}"))).collect::<Result<_>>()?,
        };
        star.wire()?;
        Ok(star)
    }

    /// The address that clients connect to.
    pub fn vip() -> SocketAddrV4 {
        SocketAddrV4::new(VIP, PORT)
    }

    /// Gives each client a network in which it has every address: see [`Star::client_address`].
    pub(crate) fn route_client_networks(&self) -> Result<()> {
        for (number, client) in self.clients.iter().enumerate() {
            for network in [format!("10.80.{number}.0/24"), format!("10.{}.0.0/16", 81 + number)] {
                client.ip(&format!("route replace local {network} dev lo\n"))?;
                let route = format!("route replace {network} via {}\n", address(CLIENT_HOSTS + number as u8));
                for server in &self.servers {
                    server.ip(&route)?;
                }
            }
        }
        Ok(())
    }

    /// An address in a client's network, after [`Star::route_client_networks`].
    pub(crate) fn client_address(client: usize, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 80, client as u8, host)
    }

    /// One of 65,536 further addresses of a client, for connections that have none in common.
    pub(crate) fn further_address(client: usize, number: u16) -> Ipv4Addr {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 81 + client as u8, high, low)
    }

    /// Emulates a round trip until the handle is dropped: clients' UDP packets are delayed by all of it as they leave.
    /// No handle is needed for zero.
    pub(crate) fn delay(&self, rtt: Duration) -> Result<Option<EmulatorHandle>> {
        if rtt.is_zero() {
            return Ok(None);
        }
        needs_iptables("emulate a round trip")?;
        let mut config = EmulatorConfig::default();
        for (queue, client) in (0..).zip(&self.clients) {
            let rules = format!("*mangle\n-A OUTPUT -p udp -j NFQUEUE --queue-num {queue} --queue-bypass\nCOMMIT\n");
            let mut restore = client.command("iptables-legacy-restore");
            run(restore.args(["--wait", "10"]), &rules)?;
            config.queues.push(QueueConfig {
                name: format!("client{queue}"),
                namespace: Some(client.name().to_owned()),
                queue,
                link: LinkSpec { delay_ns: Nanos::from(rtt), ..LinkSpec::default() },
            });
        }
        EmulatorHandle::spawn_thread(config).map(Some)
    }

    /// Lets a server lose so many of 100 packets in each direction, at random; 0: none. Those from it are lost at clients: what its
    /// own host dropped, its TCP would notice.
    pub(super) fn lose(&self, server: usize, percent: u32) -> Result<()> {
        needs_iptables("lose packets")?;
        let mac = mac(SERVER_HOSTS + server as u8);
        for (namespace, of) in self
            .clients
            .iter()
            .map(|client| (client, format!("-m mac --mac-source {mac}")))
            .chain([(&self.servers[server], String::new())])
        {
            let rule = match percent {
                0 => String::new(),
                _ => format!(
                    "-A INPUT -i eth0 {of} -m statistic --mode random --probability {} -j DROP\n",
                    f64::from(percent) / 100.0
                ),
            };
            let rules = format!("*filter\n:INPUT ACCEPT [0:0]\n{rule}COMMIT\n");
            run(namespace.command("iptables-legacy-restore").args(["--wait", "10"]), &rules)?;
        }
        Ok(())
    }

    /// A server's own address.
    pub fn server_address(server: usize) -> Ipv4Addr {
        address(SERVER_HOSTS + server as u8)
    }

    fn wire(&self) -> Result<()> {
        let clients = (CLIENT_HOSTS..).zip(&self.clients);
        let servers = (SERVER_HOSTS..).zip(&self.servers);
        for (host, namespace) in clients.clone().chain(servers.clone()) {
            plug(&self.switch, host, namespace, "eth0")?;
        }
        // The balancer has two ports: to leave by the port that they came from, packets would need an XDP program at
        // its other end.
        plug(&self.switch, FRONT_HOST, &self.balancer, FRONT)?;
        plug(&self.switch, BALANCER_HOST, &self.balancer, "back0")?;
        self.switch.poll(BALANCER_HOST, "on")?;
        for (host, client) in clients.clone() {
            client.ip(&format!(
                "addr add {}/24 dev eth0\n{}",
                address(host),
                neighbours(&servers.clone().map(|(host, _)| host).collect::<Vec<_>>())
            ))?;
            client.ip(&format!("neigh replace {VIP} lladdr {} dev eth0 nud permanent\n", mac(FRONT_HOST)))?;
        }
        let for_servers: Vec<u8> = clients.map(|(host, _)| host).collect();
        for (host, server) in servers.clone() {
            serve_vip(server, host, &for_servers)?;
        }
        let servers: Vec<u8> = servers.map(|(host, _)| host).collect();
        self.balancer.ip(&format!(
            "addr add {}/24 dev back0\n{}",
            address(BALANCER_HOST),
            neighbours(&servers).replace("eth0", "back0")
        ))
    }

    /// Lets a program in the balancer's namespace listen at the address that clients connect to, and answer them.
    pub(super) fn give_vip_to_balancer(&self) -> Result<()> {
        // Clients' packets come in by another device than answers leave by.
        for of in ["all", FRONT] {
            self.balancer.set(&[(&format!("ipv4/conf/{of}/rp_filter"), "0")])?;
        }
        self.balancer.ip(&format!("addr replace {VIP}/32 dev lo\n"))
    }

    /// Undoes [`Star::give_vip_to_balancer`].
    pub(super) fn take_vip_from_balancer(&self) -> Result<()> {
        self.balancer.ip(&format!("addr del {VIP}/32 dev lo\n"))
    }

    /// Lets clients reach the first server without a balancer.
    #[cfg(test)]
    fn without_balancer(&self) -> Result<()> {
        for client in &self.clients {
            client.ip(&format!("neigh replace {VIP} lladdr {} dev eth0 nud permanent\n", mac(SERVER_HOSTS)))?;
        }
        Ok(())
    }
}

fn needs_iptables(wanted: &'static str) -> Result<()> {
    match find_program("iptables-legacy-restore") {
        Some(_) => Ok(()),
        None => Err(Error::Host {
            wanted,
            fact: "there is no program iptables-legacy-restore".to_owned(),
            remedy: "install the package iptables",
        }),
    }
}

/// Connects a namespace to a switch, without IPv6.
pub(super) fn plug(switch: &Switch, host: u8, namespace: &Namespace, device: &str) -> Result<()> {
    namespace.set(&[("ipv6/conf/all/disable_ipv6", "1")])?;
    switch.plug(host, namespace, device)
}

/// Gives a server its addresses: its own, and the one that clients connect to.
pub(super) fn serve_vip(server: &Namespace, host: u8, clients: &[u8]) -> Result<()> {
    server.set(&[
        ("ipv4/conf/all/arp_ignore", "1"),
        ("ipv4/conf/all/arp_announce", "2"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/eth0/rp_filter", "0"),
    ])?;
    server.ip(&format!("addr add {}/24 dev eth0\naddr add {VIP}/32 dev lo\n{}", address(host), neighbours(clients)))
}

pub(super) fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, SUBNET, 0, host)
}

pub(super) fn mac(host: u8) -> String {
    format!("02:00:0a:{SUBNET:02x}:00:{host:02x}")
}

/// Permanent neighbour entries, which make ARP unnecessary.
pub(super) fn neighbours(hosts: &[u8]) -> String {
    let line = |host: &u8| format!("neigh replace {} lladdr {} dev eth0 nud permanent\n", address(*host), mac(*host));
    hosts.iter().map(line).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
