use std::{fs, net::SocketAddr, path::Path};

use dwell_testbed::{
    BoxLink, BoxSpec, Emulation, Error, Lab, LabOptions, LinkBox, LinkPair, LinkSpec, Namespace, Nanos, Report, Result,
    Role, Shaper, Statistics, Topology,
};

use super::{PORT, scenario::Bottleneck};

/// A sender, a bottleneck and a receiver, in a line.
#[derive(Debug)]
pub(super) enum Net {
    Emulated(Box<Lab>),
    Boxed(Box<LinkBox>),
}

/// With smaller buffers the receiver's window would limit the bytes in flight, and no queue would fill.
const RECEIVE_BUFFER: &str = "4096 2097152 33554432";
const RECEIVE_BUFFER_FILE: &str = "/proc/sys/net/ipv4/tcp_rmem";
/// The default congestion control of the namespaces. The experiments set another one, so it is visible whether that
/// worked.
const CONGESTION: &str = "reno";
const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

impl Net {
    /// Makes the network; `back` is the delay from receiver to sender.
    pub(super) fn start(bottleneck: &Bottleneck, back: Nanos, lab: &Path) -> Result<Net> {
        let net = Net::link(bottleneck, back, lab)?;
        write(net.sender(), CONGESTION_FILE, CONGESTION)?;
        Ok(net)
    }

    fn link(bottleneck: &Bottleneck, back: Nanos, lab: &Path) -> Result<Net> {
        match bottleneck {
            Bottleneck::Fifo(link) => {
                let lab = Lab::start(&LabOptions {
                    name: "socket".to_owned(),
                    topology: Topology::Line {
                        client: LinkPair { to_vantage: link.clone(), from_vantage: LinkSpec::delay(back) },
                        server: LinkPair::default(),
                    },
                    emulation: Emulation::Process(lab.to_owned()),
                })?;
                // The bottleneck's queue counts packets, so none may be longer than the link's.
                lab.client().ip("link set vantage0 gso_max_segs 1\n")?;
                Ok(Net::Emulated(Box::new(lab)))
            }
            Bottleneck::Box(link) => {
                let spec = BoxSpec { to_right: *link, to_left: BoxLink { delay: back, ..BoxLink::default() } };
                Ok(Net::Boxed(Box::new(LinkBox::start("socket", &spec)?)))
            }
        }
    }

    /// Gives later connections of the receiver a window that limits nothing.
    pub(super) fn widen_window(&self) -> Result<()> {
        write(self.receiver(), RECEIVE_BUFFER_FILE, RECEIVE_BUFFER)
    }

    pub(super) fn sender(&self) -> &Namespace {
        match self {
            Net::Emulated(lab) => lab.client(),
            Net::Boxed(link) => &link.left,
        }
    }

    pub(super) fn receiver(&self) -> &Namespace {
        match self {
            Net::Emulated(lab) => lab.server(),
            Net::Boxed(link) => &link.right,
        }
    }

    /// The address at which the receiver of a flow listens.
    pub(super) fn address(&self, flow: usize) -> SocketAddr {
        let address = match self {
            Net::Emulated(_) => Lab::address_v4(Role::Server),
            Net::Boxed(_) => Shaper::RIGHT,
        };
        (address, port(flow)).into()
    }

    /// The statistics of a link box so far.
    pub(super) fn statistics(&self) -> Result<Option<Statistics>> {
        match self {
            Net::Emulated(_) => Ok(None),
            Net::Boxed(link) => link.statistics().map(Some),
        }
    }

    pub(super) fn stop(self) -> Result<Option<Report>> {
        match self {
            Net::Emulated(lab) => lab.stop(),
            Net::Boxed(_) => Ok(None),
        }
    }
}

/// Writes a file of a namespace's `/proc/sys/net`.
fn write(namespace: &Namespace, file: &str, value: &str) -> Result<()> {
    namespace.enter(|| fs::write(file, value))?.map_err(Error::io(format!("write {value} to {file}")))
}

pub(super) fn port(flow: usize) -> u16 {
    PORT + u16::try_from(flow).expect("a scenario has few flows")
}
