use std::{fs, net::SocketAddr, path::Path};

use dwell_testbed::{
    BoxLink, BoxSpec, Emulation, Error, Lab, LabOptions, Leg, LinkBox, LinkSpec, Namespace, Nanos, Report, Result,
    Role, Shaper, Statistics, Topology,
};

use super::{PORT, scenario::Bottleneck};

/// A sender, a bottleneck and a receiver, in a line.
#[derive(Debug)]
pub(super) enum Net {
    Emulated(Box<Lab>),
    Boxed(Box<LinkBox>),
}

/// With less, the receiver's window would limit what is on the way, and no queue would ever fill.
const RECEIVE_BUFFER: &str = "4096 2097152 33554432";
const RECEIVE_BUFFER_FILE: &str = "/proc/sys/net/ipv4/tcp_rmem";
/// What sockets have that ask for nothing else, so that it can be seen whether they did: no other one may be the
/// default of any namespace.
const CONGESTION: &str = "reno";
const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

impl Net {
    /// What comes back takes `back`.
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
                        client: Leg { to_vantage: link.clone(), from_vantage: LinkSpec::delay(back) },
                        server: Leg::default(),
                    },
                    emulation: Emulation::Process(lab.to_owned()),
                })?;
                // A bottleneck counts packets, so let none be longer than the link's.
                lab.client().ip("link set vantage0 gso_max_segs 1\n")?;
                Ok(Net::Emulated(Box::new(lab)))
            }
            Bottleneck::Box(link) => {
                let spec = BoxSpec { to_right: *link, to_left: BoxLink { delay: back, ..BoxLink::default() } };
                Ok(Net::Boxed(Box::new(LinkBox::start("socket", &spec)?)))
            }
        }
    }

    /// From now on connections of the receiver begin with a window that limits nothing.
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

    /// Where the receiver of a flow listens.
    pub(super) fn address(&self, flow: usize) -> SocketAddr {
        let address = match self {
            Net::Emulated(_) => Lab::address_v4(Role::Server),
            Net::Boxed(_) => Shaper::RIGHT,
        };
        (address, port(flow)).into()
    }

    /// What the queues of a link box did so far.
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

/// `/proc/sys/net` is that of the thread's namespace.
fn write(namespace: &Namespace, file: &str, value: &str) -> Result<()> {
    namespace.enter(|| fs::write(file, value))?.map_err(Error::io(format!("write {value} to {file}")))
}

pub(super) fn port(flow: usize) -> u16 {
    PORT + u16::try_from(flow).expect("a scenario has few flows")
}
