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
        process::{Balancer, Places, backends, head},
    },
    loads::quic::block_on,
};

/// Four servers, and a balancer that has some of them.
pub(super) struct Stage<'a> {
    pub(super) star: &'a Star,
    placing: Placing,
    balancer: Balancer<'a>,
    pub(super) servers: Vec<Server>,
    pub(super) identity: Arc<Identity>,
}

/// What the balancer does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placing {
    pub(super) policy: Policy,
    /// By how much longer a server's requests may wait than the least, before heavy clients go elsewhere.
    pub(super) margin: Duration,
}

impl From<Policy> for Placing {
    /// With the round trip that the balancer has by itself.
    fn from(policy: Policy) -> Placing {
        Placing { policy, margin: Duration::from_millis(20) }
    }
}

/// What servers are like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Like {
    pub(super) tickets: usize,
    pub(super) work: Duration,
    pub(super) seed: u64,
    pub(super) heartbeat: Duration,
}

impl Like {
    /// They have nothing to do but to answer.
    pub(super) fn idle(tickets: usize) -> Like {
        Like { tickets, work: Duration::ZERO, seed: 0, heartbeat: HEARTBEAT }
    }
}

/// A configuration of connection IDs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) rotation: u8,
    pub(super) key: [u8; 16],
}

/// With which all begins.
pub(super) const FIRST_KEY: Key = Key { rotation: 0, key: KEY };

impl<'a> Stage<'a> {
    /// All servers run, and the balancer lets connections through.
    pub(super) fn start(scene: Scene<'a>, placing: impl Into<Placing>, like: Like) -> Result<Stage<'a>> {
        let Scene { star, dwell, folder } = scene;
        let placing = placing.into();
        star.widen()?;
        let identity = Arc::new(Identity::new(Certificate::Ecdsa)?);
        let mut servers = Vec::new();
        for (number, namespace) in star.servers.iter().enumerate() {
            let plan = ServerPlan {
                number: id(number),
                address: Self::vip(),
                identity: Arc::clone(&identity),
                cids: config(FIRST_KEY.rotation, FIRST_KEY.key)?,
                tickets: like.tickets,
                work: like.work,
                seed: like.seed,
                heartbeat: like.heartbeat,
            };
            servers.push(Server::start(namespace, plan)?);
        }
        let everyone = everyone();
        let all = configuration(placing, &everyone, &[FIRST_KEY]);
        let stage = Stage { star, placing, balancer: Balancer::start(star, dwell, folder, all)?, servers, identity };
        stage.balancer.wait_until(|| stage.comes_through())?;
        Ok(stage)
    }

    /// Where clients go.
    pub(super) fn vip() -> SocketAddr {
        (*Star::vip().ip(), PORT).into()
    }

    /// Has the balancer go on with these servers and keys.
    pub(super) fn reload(&self, servers: &[usize], keys: &[Key]) -> Result<()> {
        self.balancer.reload(configuration(self.placing, servers, keys))
    }

    /// Ends the balancer, then the servers.
    pub(super) fn stop(self) -> Result<()> {
        self.balancer.stop(Timestamp::now()).map(drop)
    }

    fn comes_through(&self) -> Result<bool> {
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

/// A server's number in connection IDs.
pub(super) fn id(server: usize) -> u16 {
    server as u16 + 1
}

/// In the namespace of the calling thread.
pub(super) fn bind(address: std::net::Ipv4Addr) -> Result<UdpSocket> {
    UdpSocket::bind((address, 0)).map_err(Error::io(format!("make a socket at {address}")))
}

fn configuration(placing: Placing, servers: &[usize], keys: &[Key]) -> impl FnOnce(&Places) -> String {
    let Placing { policy, margin } = placing;
    let is_steered = policy == Policy::ZeroRtt;
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
            Policy::ZeroRtt => "zero-rtt",
            Policy::FiveTuple | Policy::Source => "maglev",
        },
    );
    if is_steered {
        let _ = write!(vip, "\n[vip.zero_rtt]\nrtt = \"{}us\"\n", margin.as_micros());
    }
    for key in keys.iter().filter(|_| is_steered) {
        let digits = key.key.map(|octet| format!("{octet:02x}")).concat();
        let _ = write!(vip, "\n[[vip.zero_rtt.layout]]\nrotation = {}\nkey = \"{digits}\"\n", key.rotation);
    }
    vip += &backends(servers.iter().copied(), |server| match is_steered {
        true => format!("server_id = {}\n", id(server)),
        false => String::new(),
    });
    move |places| head(places) + &vip
}

/// Servers that the balancer has at first, by their places.
pub(super) fn everyone() -> Vec<usize> {
    (0..SERVERS).collect()
}
