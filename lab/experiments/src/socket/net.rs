use std::{net::SocketAddr, path::Path};

use dwell_testbed::{
    BoxLink, BoxSpec, Emulation, Lab, LabOptions, LinkBox, LinkPair, LinkSpec, Namespace, Nanos, Report, Result, Role,
    Shaper, Statistics, Topology,
};

use super::{PORT, scenario::Bottleneck};

/// A sender, a bottleneck and a receiver, in a line.
#[derive(Debug)]
pub(super) enum Net {
    Emulated(Box<Lab>),
    Boxed(Box<LinkBox>),
}

/// Segmentation offload of the sender: whether its TCP makes packets of up to 64 KB, which the device or the kernel below
/// TCP cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offload {
    /// As on any host: the kernel cuts packets where a network card would.
    #[default]
    On,
    /// TCP makes single segments.
    Off,
}

/// With smaller buffers the receiver's window would limit the bytes in flight, and no queue would fill.
const RECEIVE_BUFFER: (&str, &str) = ("ipv4/tcp_rmem", "4096 2097152 33554432");
/// The default congestion control of the namespaces. The experiments set another one, so it is visible whether that
/// worked.
const CONGESTION: (&str, &str) = ("ipv4/tcp_congestion_control", "reno");

impl Net {
    /// Makes the network; `back` is the delay from receiver to sender.
    pub(super) fn start(bottleneck: &Bottleneck, back: Nanos, offload: Offload, lab: &Path) -> Result<Net> {
        let net = Net::link(bottleneck, back, lab)?;
        net.set_offload(offload)?;
        net.sender().set(&[CONGESTION])?;
        Ok(net)
    }

    /// The bottleneck's queue counts packets, so none may be longer than the link's: packets are cut before it.
    fn set_offload(&self, offload: Offload) -> Result<()> {
        let device = match self {
            Net::Emulated(_) => "vantage0",
            Net::Boxed(_) => Shaper::DEVICE,
        };
        match (offload, self) {
            (Offload::Off, _) => self.sender().ip(&format!("link set {device} gso_max_segs 1\n")),
            // The device of a link box has no offload: the kernel cuts packets before it.
            (Offload::On, Net::Boxed(_)) => Ok(()),
            (Offload::On, Net::Emulated(_)) => self.sender().offload(device, "tso", "off"),
        }
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
        self.receiver().set(&[RECEIVE_BUFFER])
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

pub(super) fn port(flow: usize) -> u16 {
    PORT + u16::try_from(flow).expect("a scenario has few flows")
}
