//! Servers behind a balancer, and clients with many addresses.

use std::{
    fmt::Write as _,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use dwell_quic::HEARTBEAT;
use dwell_testbed::{Error, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    KEY, PORT, Policy, Scene,
    client::{Client, Mode, Request},
    config,
    identity::{Certificate, Identity},
    server::{Server, ServerPlan},
};
use crate::{
    lb::{
        SERVERS, Star,
        process::{Balancer, BalancerPaths, backends, common_config},
    },
    loads::quic::block_on,
};

/// Four servers behind a balancer whose configuration names some of them.
pub(super) struct Stage<'a> {
    pub(super) star: &'a Star,
    balancing: BalancerOptions,
    balancer: Balancer<'a>,
    pub(super) servers: Vec<Server>,
    pub(super) identity: Arc<Identity>,
}

/// How the balancer works.
#[derive(Debug, Clone, Copy)]
pub(super) struct BalancerOptions {
    pub(super) policy: Policy,
    /// How much longer requests may wait at a server than at the least loaded one before heavy clients are moved.
    pub(super) margin: Duration,
}

impl From<Policy> for BalancerOptions {
    /// A policy with the margin that is the balancer's default.
    fn from(policy: Policy) -> BalancerOptions {
        BalancerOptions { policy, margin: Duration::from_millis(20) }
    }
}

/// How the servers work.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerOptions {
    pub(super) tickets: usize,
    pub(super) work: Duration,
    pub(super) seed: u64,
    pub(super) heartbeat: Duration,
}

impl ServerOptions {
    /// Servers that answer at once and issue `tickets` per connection.
    pub(super) fn without_work(tickets: usize) -> ServerOptions {
        ServerOptions { tickets, work: Duration::ZERO, seed: 0, heartbeat: HEARTBEAT }
    }
}

/// A key of connection IDs, and the rotation bits that name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) rotation: u8,
    pub(super) key: [u8; 16],
}

/// The key with which each experiment starts.
pub(super) const FIRST_KEY: Key = Key { rotation: 0, key: KEY };

impl<'a> Stage<'a> {
    /// Starts all servers and the balancer, and waits until a connection succeeds.
    pub(super) fn start(
        scene: Scene<'a>,
        balancing: impl Into<BalancerOptions>,
        serving: ServerOptions,
    ) -> Result<Stage<'a>> {
        let Scene { star, dwell, folder } = scene;
        let balancing = balancing.into();
        star.route_client_networks()?;
        let identity = Arc::new(Identity::new(Certificate::Ecdsa)?);
        let mut servers = Vec::new();
        for (number, namespace) in star.servers.iter().enumerate() {
            let plan = ServerPlan {
                number: id(number),
                address: Self::vip(),
                identity: Arc::clone(&identity),
                cids: config(FIRST_KEY.rotation, FIRST_KEY.key)?,
                tickets: serving.tickets,
                work: serving.work,
                seed: serving.seed,
                heartbeat: serving.heartbeat,
            };
            servers.push(Server::start(namespace, plan)?);
        }
        let all = all_servers();
        let config = configuration(balancing, &all, &[FIRST_KEY]);
        let balancer = Balancer::start(&star.balancer, dwell, folder, config)?;
        let stage = Stage { star, balancing, balancer, servers, identity };
        stage.balancer.wait_until("a connection through", || stage.is_reachable())?;
        Ok(stage)
    }

    /// The address that clients connect to.
    pub(super) fn vip() -> SocketAddr {
        (*Star::vip().ip(), PORT).into()
    }

    /// Reloads the balancer with a configuration of these servers and keys.
    pub(super) fn reload(&self, servers: &[usize], keys: &[Key]) -> Result<()> {
        self.balancer.reload(configuration(self.balancing, servers, keys))
    }

    /// Counts packets of the balancer by what became of them.
    pub(super) fn packets(&self, fate: &str) -> Result<u64> {
        let status = self.balancer.ask(&["status", "--format", "jsonl"])?;
        let status: Value =
            serde_json::from_str(&status).map_err(|why| Error::invalid("status of the balancer", why))?;
        Ok(status["plane"]["packets"][fate].as_u64().unwrap_or(0))
    }

    /// Stops the balancer, then the servers.
    pub(super) fn stop(self) -> Result<()> {
        self.balancer.stop(Timestamp::now()).map(drop)
    }

    /// Whether a connection through the balancer succeeds.
    fn is_reachable(&self) -> Result<bool> {
        let client = Client::new(&self.identity.certificate, Mode::Full)?;
        self.star.clients[0].enter(|| {
            let socket = bind(Star::client_address(0, 254))?;
            block_on(async {
                let visiting = client.visit(socket, Self::vip(), Request::short(0));
                let visit = tokio::time::timeout(Duration::from_millis(500), visiting).await;
                Ok(matches!(visit, Ok(Ok(_))))
            })
        })?
    }
}

/// The number in connection IDs of the server with this index.
pub(super) fn id(server: usize) -> u16 {
    server as u16 + 1
}

/// Binds a UDP socket in the namespace of the calling thread.
pub(super) fn bind(address: std::net::Ipv4Addr) -> Result<UdpSocket> {
    UdpSocket::bind((address, 0)).map_err(Error::io(format!("make a socket at {address}")))
}

fn configuration(balancing: BalancerOptions, servers: &[usize], keys: &[Key]) -> impl FnOnce(&BalancerPaths) -> String {
    let BalancerOptions { policy, margin } = balancing;
    let is_steered = policy.has_server_ids();
    let hash = match policy {
        Policy::Source => "hash = \"source\"\n",
        _ => "",
    };
    let mut vip = format!(
        "[[vip]]\nname = \"lab\"\naddress = \"{}\"\nprotocol = \"udp\"\nport = {PORT}\n\
         policy = \"{}\"\nforward = \"l2\"\n{hash}\n\
         [vip.health]\nkind = \"icmp\"\ninterval = \"2s\"\nrise = 2\nfall = 5\n",
        Star::vip().ip(),
        match policy {
            Policy::ZeroRtt | Policy::LeastLoaded => "zero-rtt",
            Policy::FiveTuple | Policy::Source => "maglev",
        },
    );
    if is_steered {
        let _ = write!(vip, "\n[vip.zero_rtt]\nrtt = \"{}us\"\n", margin.as_micros());
    }
    if policy == Policy::LeastLoaded {
        vip += "alpha = 0\npercentile = 0\nheavy = \"all\"\n";
    }
    for key in keys.iter().filter(|_| is_steered) {
        let digits = key.key.map(|octet| format!("{octet:02x}")).concat();
        let _ = write!(vip, "\n[[vip.zero_rtt.layout]]\nrotation = {}\nkey = \"{digits}\"\n", key.rotation);
    }
    vip += &backends(servers.iter().copied(), |server| match is_steered {
        true => format!("server_id = {}\n", id(server)),
        false => String::new(),
    });
    move |paths| common_config(paths, &[]) + &vip
}

/// The indices of all servers.
pub(super) fn all_servers() -> Vec<usize> {
    (0..SERVERS).collect()
}
