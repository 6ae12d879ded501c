mod plan;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    process::Command,
};

use plan::Plan;
use serde::{Deserialize, Serialize};

use crate::{
    EmulatorConfig, EmulatorHandle, LinkSpec, Namespace, Nanos, QueueConfig, Report, Result, State, error::run,
    registry::Record,
};

/// Who a namespace is in a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Where clients run.
    Client,
    /// Emulates the link between client and vantage point.
    ClientRouter,
    /// Where dwell watches. It forwards.
    Vantage,
    /// Emulates the link between vantage point and server.
    ServerRouter,
    /// Where servers run.
    Server,
    /// Emulates the way from server to client that does not pass the vantage point.
    DirectRouter,
}

impl Role {
    /// The last part of the namespace's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::ClientRouter => "cr",
            Self::Vantage => "vantage",
            Self::ServerRouter => "sr",
            Self::Server => "server",
            Self::DirectRouter => "dr",
        }
    }
}

/// A side of the vantage point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// From the vantage point to the client and back.
    Client,
    /// From the vantage point to the server and back.
    Server,
}

/// Both directions of the link on one side of the vantage point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkPair {
    /// From the endpoint towards the vantage point.
    pub to_vantage: LinkSpec,
    /// From the vantage point towards the endpoint.
    pub from_vantage: LinkSpec,
}

impl LinkPair {
    /// A link that only delays: half the round trip each way.
    pub fn with_rtt(rtt: Nanos) -> Self {
        let out = Nanos(rtt.0 / 2);
        Self { to_vantage: LinkSpec::delay(out), from_vantage: LinkSpec::delay(rtt - out) }
    }

    fn rtt(&self) -> Nanos {
        self.to_vantage.delay_ns + self.from_vantage.delay_ns
    }
}

/// The network of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Topology {
    /// client - vantage - server: the vantage point sees both directions.
    Line {
        /// The link between client and vantage point.
        client: LinkPair,
        /// The link between vantage point and server.
        server: LinkPair,
    },
    /// client -> vantage -> server, and server -> client directly: the vantage point sees one direction.
    Triangle {
        /// From the client to the vantage point.
        client_to_vantage: LinkSpec,
        /// From the vantage point to the server.
        vantage_to_server: LinkSpec,
        /// From the server to the client.
        server_to_client: LinkSpec,
    },
}

impl Topology {
    /// A line with these round-trip times on either side of the vantage point.
    pub fn line(client_rtt: Nanos, server_rtt: Nanos) -> Self {
        Self::Line { client: LinkPair::with_rtt(client_rtt), server: LinkPair::with_rtt(server_rtt) }
    }

    /// A triangle with these one-way delays.
    pub fn triangle(client_to_vantage: Nanos, vantage_to_server: Nanos, server_to_client: Nanos) -> Self {
        Self::Triangle {
            client_to_vantage: LinkSpec::delay(client_to_vantage),
            vantage_to_server: LinkSpec::delay(vantage_to_server),
            server_to_client: LinkSpec::delay(server_to_client),
        }
    }

    /// The emulated round trip from the vantage point to one side and back: configured delays only, without queues,
    /// jitter and emulator error. None where packets do not come back the same way.
    pub fn side_rtt(&self, side: Side) -> Option<Nanos> {
        match (self, side) {
            (Self::Line { client, .. }, Side::Client) => Some(client.rtt()),
            (Self::Line { server, .. }, Side::Server) => Some(server.rtt()),
            (Self::Triangle { .. }, _) => None,
        }
    }

    /// The emulated round trip between client and server.
    pub fn end_to_end_rtt(&self) -> Nanos {
        match self {
            Self::Line { client, server } => client.rtt() + server.rtt(),
            Self::Triangle { client_to_vantage, vantage_to_server, server_to_client } => {
                client_to_vantage.delay_ns + vantage_to_server.delay_ns + server_to_client.delay_ns
            }
        }
    }

    /// The interfaces of the vantage point, each named for the end it leads to.
    pub fn vantage_interfaces(&self) -> [&'static str; 2] {
        ["client0", "server0"]
    }

    pub(crate) fn endpoints(&self) -> [(Role, Option<(Ipv4Addr, Ipv6Addr)>); 3] {
        let address = |role| (role, Some((Lab::address_v4(role), Lab::address_v6(role))));
        [address(Role::Client), (Role::Vantage, None), address(Role::Server)]
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Line { client, server } => {
                format!("client -- {} -- vantage -- {} -- server (round trips)", client.rtt(), server.rtt())
            }
            Self::Triangle { client_to_vantage, vantage_to_server, server_to_client } => format!(
                "client -- {} -> vantage -- {} -> server -- {} -> client (one way)",
                client_to_vantage.delay_ns, vantage_to_server.delay_ns, server_to_client.delay_ns
            ),
        }
    }
}

/// Who runs the link emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Emulation {
    /// A thread of this process.
    Thread,
    /// A process of this executable: `dwell-lab`, which has the verb `emulate`.
    Process(PathBuf),
    /// Nobody: routers forward at once, and links are perfect whatever the topology says.
    None,
}

/// What lab to make.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// First part of its name, `<name>-<pid>-<n>`: characters a-z, 0-9 and -.
    pub name: String,
    /// Its network.
    pub topology: Topology,
    /// Who emulates its links.
    pub emulation: Emulation,
}

/// A running lab. Dropping it removes it.
#[derive(Debug)]
pub struct Lab {
    // In the order in which they must go; the record removes the namespaces.
    emulator: Option<EmulatorHandle>,
    namespaces: BTreeMap<Role, Namespace>,
    topology: Topology,
    record: Record,
}

impl Lab {
    /// Makes a lab that goes with this process. First removes what killed runs left.
    pub fn start(options: &LabOptions) -> Result<Self> {
        let plan = Plan::of(&options.topology);
        let record = Record::transient(&options.name, Some(&options.topology), &plan.role_names())?;
        let mut lab = Self::build(options.topology.clone(), &plan, record)?;
        if options.emulation != Emulation::None {
            lab.queue_packets(&plan)?;
        }
        lab.emulator = match &options.emulation {
            Emulation::Process(exe) => {
                let folder = lab.state().folder();
                let config = lab.emulator_config(&plan);
                let record = |process| lab.record.set_emulator(process);
                Some(EmulatorHandle::spawn_process(exe, config, &folder, record)?)
            }
            Emulation::Thread => Some(EmulatorHandle::spawn_thread(lab.emulator_config(&plan))?),
            Emulation::None => None,
        };
        Ok(lab)
    }

    /// Makes a lab under this very name that stays when the process ends.
    pub(crate) fn start_persistent(name: &str, topology: &Topology, exe: &std::path::Path) -> Result<State> {
        let plan = Plan::of(topology);
        let record = Record::named(name, topology, &plan.role_names())?;
        let mut lab = Self::build(topology.clone(), &plan, record)?;
        lab.queue_packets(&plan)?;
        let config = lab.emulator_config(&plan);
        let folder = lab.state().folder();
        let record = |process| lab.record.set_emulator(process);
        EmulatorHandle::spawn_background(exe, config, &folder, record)?;
        lab.record.keep()
    }

    fn build(topology: Topology, plan: &Plan, record: Record) -> Result<Self> {
        let mut namespaces = BTreeMap::new();
        for &role in plan.roles() {
            let namespace = Namespace::add(&record.state().namespaces[role.name()])?;
            plan.set_kernel_options(&namespace)?;
            namespaces.insert(role, namespace);
        }
        run(Command::new("ip").args(["-batch", "-"]), &plan.links(&namespaces))?;
        for (&role, namespace) in &namespaces {
            namespace.ip(&plan.addresses_and_routes(role))?;
        }
        Ok(Self { emulator: None, namespaces, topology, record })
    }

    /// Sends forwarded packets to the emulator's queues. Without an emulator they are dropped rather than let through
    /// unemulated.
    fn queue_packets(&self, plan: &Plan) -> Result<()> {
        for (&role, namespace) in &self.namespaces {
            let rules = plan.queue_rules(role);
            if !rules.is_empty() {
                for program in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
                    run(namespace.command(program).args(["--wait", "10"]), &rules)?;
                }
            }
        }
        Ok(())
    }

    fn emulator_config(&self, plan: &Plan) -> EmulatorConfig {
        let queues = plan.queues().iter().map(|queue| QueueConfig {
            name: queue.name.to_owned(),
            namespace: Some(self.namespace(queue.role).name().to_owned()),
            queue: queue.number,
            link: queue.link.clone(),
        });
        EmulatorConfig { queues: queues.collect(), ..EmulatorConfig::default() }
    }

    /// The namespace of a role.
    ///
    /// # Panics
    ///
    /// If the topology has no such role: a line has no direct router.
    pub fn namespace(&self, role: Role) -> &Namespace {
        &self.namespaces[&role]
    }

    /// Where clients run.
    pub fn client(&self) -> &Namespace {
        self.namespace(Role::Client)
    }

    /// Where dwell watches, on `client0` or `server0`.
    pub fn vantage(&self) -> &Namespace {
        self.namespace(Role::Vantage)
    }

    /// Where servers run.
    pub fn server(&self) -> &Namespace {
        self.namespace(Role::Server)
    }

    /// The network as asked for.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What others can know of it.
    pub fn state(&self) -> &State {
        self.record.state()
    }

    /// Main IPv4 address of a role, the same in every lab.
    pub fn address_v4(role: Role) -> Ipv4Addr {
        plan::main_address(role).v4()
    }

    /// Main IPv6 address of a role, the same in every lab.
    pub fn address_v6(role: Role) -> Ipv6Addr {
        plan::main_address(role).v6()
    }

    /// Where the vantage point reaches the client's router.
    pub fn client_router_at_vantage() -> Ipv4Addr {
        plan::client_router_at_vantage().v4()
    }

    /// Stops the emulator, removes the lab, and gives the emulator's report, if there was one.
    pub fn stop(mut self) -> Result<Option<Report>> {
        self.emulator.take().map(EmulatorHandle::stop).transpose()
    }
}
