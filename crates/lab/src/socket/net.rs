use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::scenario::Bottleneck;
use super::{PORT, Scenario};
use crate::{
    Emulation, Error, Lab, LabOptions, Leg, LinkSpec, Namespace, Report, Result, Role, Topology,
};

/// A sender, a bottleneck and a receiver, in a line.
#[derive(Debug)]
pub(super) struct Net(Lab);

/// With less, the receiver's window would limit what is on the way, and no queue would ever fill.
const RECEIVE_BUFFER: &str = "4096 2097152 33554432";
const RECEIVE_BUFFER_FILE: &str = "/proc/sys/net/ipv4/tcp_rmem";
/// What sockets have that ask for nothing else, so that it can be seen whether they did: no other one may be the
/// default of any namespace.
const CONGESTION: &str = "reno";
const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

impl Net {
    pub(super) fn start(scenario: &Scenario, exe: &Path) -> Result<Net> {
        let Bottleneck::Fifo(link) = &scenario.bottleneck;
        let lab = Lab::start(&LabOptions {
            name: "socket".to_owned(),
            topology: Topology::Line {
                client: Leg {
                    to_vantage: link.clone(),
                    from_vantage: LinkSpec::delay(scenario.back_ns),
                },
                server: Leg::default(),
            },
            emulation: Emulation::Process(exe.to_owned()),
        })?;
        // A bottleneck counts packets, so let none be longer than the link's.
        lab.client().ip("link set vantage0 gso_max_segs 1\n")?;
        write(lab.client(), CONGESTION_FILE, CONGESTION)?;
        if scenario.reads.are_at_once() {
            write(lab.server(), RECEIVE_BUFFER_FILE, RECEIVE_BUFFER)?;
        }
        Ok(Net(lab))
    }

    pub(super) fn sender(&self) -> &Namespace {
        self.0.client()
    }

    pub(super) fn receiver(&self) -> &Namespace {
        self.0.server()
    }

    /// Where the receiver of a flow listens.
    pub(super) fn address(&self, flow: usize) -> SocketAddr {
        (Lab::address_v4(Role::Server), port(flow)).into()
    }

    pub(super) fn stop(self) -> Result<Option<Report>> {
        self.0.stop()
    }
}

/// `/proc/sys/net` is that of the thread's namespace.
fn write(namespace: &Namespace, file: &str, value: &str) -> Result<()> {
    namespace
        .enter(|| fs::write(file, value))?
        .map_err(Error::io(format!("write {value} to {file}")))
}

pub(super) fn port(flow: usize) -> u16 {
    PORT + u16::try_from(flow).expect("a scenario has few flows")
}
