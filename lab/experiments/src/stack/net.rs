use std::{net::Ipv4Addr, path::Path};

use dwell_testbed::{
    Emulation, Lab, LabOptions, LinkPair, LinkSpec, Namespace, Nanos, Report, Result, Role, Topology, error::run,
};

use super::Scenario;

/// The network of a scenario. The sender is the client of a line, or a container there; the receiver is the server. Both
/// have a link to the collector that carries no data of the flows; a virtual machine has one link for both.
#[derive(Debug)]
pub struct Net {
    lab: Lab,
    container: Option<Namespace>,
    collector: Namespace,
}

/// The networks of the collector's links to the sender and to the receiver.
const MANAGEMENT: [&str; 2] = ["10.81.1", "10.81.2"];
/// The address of a container or a virtual machine.
pub(super) const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 2);
/// The host's address on its link to a container or a virtual machine.
pub(super) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);
/// The network of that link.
const INSIDES: &str = "10.90.0.0/24";

impl Net {
    /// Makes the network.
    pub(super) fn start(scenario: Scenario, lab: &Path) -> Result<Net> {
        let lab = Lab::start(&LabOptions {
            name: format!("stack-{}", scenario.name()),
            topology: Topology::Line {
                client: LinkPair { to_vantage: scenario.link(), from_vantage: LinkSpec::delay(Nanos::from_millis(10)) },
                server: LinkPair::default(),
            },
            emulation: Emulation::Process(lab.to_owned()),
        })?;
        let collector = Namespace::create(&format!("stack-{}-collector", scenario.name()))?;
        let container = match scenario.is_contained() {
            true => Some(contain(&lab, scenario)?),
            false => None,
        };
        let net = Net { lab, container, collector };
        for (host, prefix) in [net.sender(), net.receiver()].into_iter().zip(MANAGEMENT) {
            let name = &prefix[prefix.len() - 1..];
            net.collector.ip(&format!(
                "link add to{name} type veth peer name collector0 netns {}\n\
                 addr add {prefix}.1/24 dev to{name}\nlink set to{name} up\n",
                host.name()
            ))?;
            host.ip(&format!("addr add {prefix}.2/24 dev collector0\nlink set collector0 up\n"))?;
        }
        if scenario.is_emulated() {
            route_to_inside(&net.lab)?;
            net.collector.ip(&format!("route add {INSIDES} via {}.2\n", MANAGEMENT[0]))?;
        }
        // The bottleneck's queue counts packets, so none may be longer than the link's.
        let device = if scenario.is_contained() { "eth0" } else { "vantage0" };
        net.sender().ip(&format!("link set {device} gso_max_segs 1\n"))?;
        for line in scenario.shape().lines() {
            let arguments = line.split(' ');
            run(net.lab.client().command("tc").args(arguments), "")?;
        }
        Ok(net)
    }

    /// The namespace of the sender's application and agent, or of their virtual machine.
    pub fn sender(&self) -> &Namespace {
        self.container.as_ref().unwrap_or(self.lab.client())
    }

    /// The namespace of the receiver's application and agent.
    pub fn receiver(&self) -> &Namespace {
        self.lab.server()
    }

    /// The collector's namespace.
    pub fn collector(&self) -> &Namespace {
        &self.collector
    }

    /// The address at which the receiver listens.
    pub fn server(&self) -> Ipv4Addr {
        Lab::address_v4(Role::Server)
    }

    /// The collector's addresses for the sender and for the receiver.
    pub fn collector_addresses() -> [String; 2] {
        MANAGEMENT.map(|prefix| format!("{prefix}.1"))
    }

    pub(super) fn stop(self) -> Result<Option<Report>> {
        self.lab.stop()
    }
}

/// Makes a namespace behind a bridge of the client, as containers have, and routes to it.
fn contain(lab: &Lab, scenario: Scenario) -> Result<Namespace> {
    let container = Namespace::create(&format!("stack-{}-inside", scenario.name()))?;
    let client = lab.client();
    client.ip(&format!(
        "link add bridge0 type bridge\naddr add {OUTSIDE}/24 dev bridge0\nlink set bridge0 up\n\
         link add port0 type veth peer name eth0 netns {}\n\
         link set port0 master bridge0\nlink set port0 up\n",
        container.name()
    ))?;
    container.ip(&format!("addr add {INSIDE}/24 dev eth0\nlink set eth0 up\nroute add default via {OUTSIDE}\n"))?;
    route_to_inside(lab)?;
    Ok(container)
}

/// Makes the client forward to its container or virtual machine, and adds routes at the others.
fn route_to_inside(lab: &Lab) -> Result<()> {
    lab.client().set(&[("ipv4/ip_forward", "1")])?;
    let client = Lab::address_v4(Role::Client);
    lab.namespace(Role::ClientRouter).ip(&format!("route add {INSIDES} via {client}\n"))?;
    let router = Lab::client_router_at_vantage();
    lab.vantage().ip(&format!("route add {INSIDES} via {router}\n"))
}
