//! Where a load takes place: a triangle, and what watches its traffic at the vantage point.

use std::{net::IpAddr, path::Path};

use dwell_testbed::{
    BitsPerSecond, Emulation, Error, Lab, LabOptions, LinkSpec, Result, Role, Topology, signals::Signals,
};

use super::{
    CaptureReport,
    capture::Capture,
    cross::Cross,
    tunnel::{self, Tunnel, Wireguard},
};

/// What lies between client and server.
#[derive(Debug, Clone)]
pub struct Network {
    /// A triangle, or a line.
    pub topology: Topology,
    /// Other traffic each way.
    pub cross: Option<BitsPerSecond>,
    /// What all connections go through, if anything.
    pub tunnel: Option<Tunnel>,
}

/// What a load asks of its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageOptions<'a> {
    pub(super) lab: &'a Path,
    pub(super) network: &'a Network,
    pub(super) seed: u64,
    pub(super) pcap: Option<&'a Path>,
}

/// The triangle.
pub(super) struct Stage<'a> {
    // Goes before its namespaces do.
    _tunnel: Option<Wireguard>,
    pub(super) lab: Lab,
    pub(super) signals: &'a Signals,
    options: StageOptions<'a>,
}

/// What runs beside the traffic.
pub(super) struct Watchers {
    capture: Option<Capture>,
    _cross: Option<Cross>,
}

impl<'a> Stage<'a> {
    pub(super) fn start(signals: &'a Signals, options: StageOptions<'a>) -> Result<Self> {
        let Network { topology, tunnel, .. } = options.network;
        let lab = Lab::start(&LabOptions {
            name: "load".to_owned(),
            topology: topology.clone(),
            emulation: emulation(topology, options.lab),
        })?;
        let start = |Tunnel::Wireguard| Wireguard::start(&lab);
        Ok(Self { _tunnel: tunnel.map(start).transpose()?, lab, signals, options })
    }

    /// Address of the server, as the client is to call it.
    pub(super) fn server(&self) -> IpAddr {
        match self.options.network.tunnel {
            Some(Tunnel::Wireguard) => tunnel::SERVER.into(),
            None => Lab::address_v4(Role::Server).into(),
        }
    }

    /// Starts the capture, and the traffic of others.
    pub(super) fn watch(&self) -> Result<Watchers> {
        let StageOptions { seed, network, pcap, .. } = self.options;
        let capture = |file| Capture::at_vantage(self.lab.vantage(), file);
        let start_cross = |rate| Cross::start(&self.lab, rate, seed);
        Ok(Watchers { capture: pcap.map(capture).transpose()?, _cross: network.cross.map(start_cross).transpose()? })
    }

    /// Ends them.
    pub(super) fn finish(&self, watchers: Watchers) -> Result<Option<CaptureReport>> {
        let finish = |capture: Capture| {
            let missed = capture.finish(self.signals)?;
            Ok(CaptureReport { missed })
        };
        watchers.capture.map(finish).transpose()
    }

    /// An answer is a packet at least. What a host says of itself on a new wire (MLD) are a few.
    pub(super) fn check_that_answers_went_around(&self, requests: u64) -> Result<()> {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let table = self.lab.vantage().enter(read)?;
        let table = table.map_err(Error::io("read the vantage point's interfaces"))?;
        match received_packets(&table, "server0") {
            Some(packets) if packets == 0 || packets < requests => Ok(()),
            Some(packets) => {
                Err(Error::invalid("load", format!("{packets} packets from the server passed the vantage point")))
            }
            None => Err(Error::invalid("the vantage point's interfaces", table)),
        }
    }
}

/// Nobody, where all links are perfect: then packets do not leave the kernel's own path.
fn emulation(topology: &Topology, lab: &Path) -> Emulation {
    let is_perfect = |link: &LinkSpec| {
        let seed = link.seed;
        *link == LinkSpec { seed, ..LinkSpec::default() }
    };
    match topology {
        Topology::Triangle { client_to_vantage, vantage_to_server, server_to_client }
            if [client_to_vantage, vantage_to_server, server_to_client].into_iter().all(is_perfect) =>
        {
            Emulation::None
        }
        _ => Emulation::Process(lab.to_owned()),
    }
}

/// From the kernel's table of interfaces: name, then bytes and packets received.
fn received_packets(table: &str, interface: &str) -> Option<u64> {
    let counters = table.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'))?;
    counters.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use dwell_testbed::Nanos;

    use super::*;

    #[test]
    fn perfect_links_are_not_emulated_whatever_their_seed() {
        let triangle = |client_to_vantage| Topology::Triangle {
            client_to_vantage,
            vantage_to_server: LinkSpec::default(),
            server_to_client: LinkSpec::default(),
        };
        let seeded = LinkSpec { seed: 7, ..LinkSpec::default() };
        let exe = Path::new("/dwell");
        assert_eq!(emulation(&triangle(seeded), exe), Emulation::None);
        let delayed = triangle(LinkSpec::delay(Nanos(1)));
        assert_eq!(emulation(&delayed, exe), Emulation::Process(exe.to_owned()));
    }

    #[test]
    fn received_packets_are_the_second_column() {
        let table = "Inter-|   Receive\n face |bytes packets\n  client0: 900 7 0 0\nserver0:5 3 1 1\n";
        assert_eq!(received_packets(table, "client0"), Some(7));
        assert_eq!(received_packets(table, "server0"), Some(3));
        assert_eq!(received_packets(table, "server"), None);
    }
}
