//! What a topology is made of: wires, addresses, routes and queues, as input for `ip` and `iptables`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Role, Topology};
use crate::{LinkSpec, Namespace, Result};

/// A pair of interfaces, and the subnet it is; the first end has host number 1, the second 2.
struct Wire {
    subnet: u8,
    ends: [(Role, &'static str); 2],
}

/// An address by its numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    subnet: u8,
    host: u8,
}

impl Address {
    pub(super) fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.subnet, self.host)
    }

    pub(super) fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x77, self.subnet.into(), 0, 0, 0, 0, self.host.into())
    }

    fn both(self) -> [IpAddr; 2] {
        [self.v4().into(), self.v6().into()]
    }

    fn mac(self) -> String {
        format!("02:00:0a:4d:{:02x}:{:02x}", self.subnet, self.host)
    }
}

/// A route of a role: to a subnet, or to everything, over a neighbour.
struct Route {
    role: Role,
    subnet: Option<u8>,
    over: Address,
}

/// A queue of the emulator: packets that a router takes in on one interface to forward them.
pub(super) struct QueuePlan {
    pub(super) name: &'static str,
    pub(super) role: Role,
    input: &'static str,
    pub(super) number: u16,
    pub(super) link: LinkSpec,
}

pub(super) struct Plan {
    roles: Vec<Role>,
    wires: Vec<Wire>,
    routes: Vec<Route>,
    queues: Vec<QueuePlan>,
}

const CLIENT: u8 = 1;
const CLIENT_SIDE: u8 = 2;
const SERVER_SIDE: u8 = 3;
const SERVER: u8 = 4;
const DIRECT_SERVER: u8 = 5;
const DIRECT_CLIENT: u8 = 6;

const fn address(subnet: u8, host: u8) -> Address {
    Address { subnet, host }
}

/// The client's router, on the vantage point's side of it.
pub(super) fn client_router_at_vantage() -> Address {
    address(CLIENT_SIDE, 1)
}

/// The address that others use for a role.
pub(super) fn main_address(role: Role) -> Address {
    match role {
        Role::Client => address(CLIENT, 1),
        Role::ClientRouter => address(CLIENT, 2),
        Role::Vantage => address(CLIENT_SIDE, 2),
        Role::ServerRouter => address(SERVER, 1),
        Role::Server => address(SERVER, 2),
        Role::DirectRouter => address(DIRECT_SERVER, 2),
    }
}

impl Plan {
    pub(super) fn of(topology: &Topology) -> Self {
        use Role::{Client, ClientRouter, DirectRouter, Server, ServerRouter, Vantage};
        let mut plan = Self {
            roles: vec![Client, ClientRouter, Vantage, ServerRouter, Server],
            wires: vec![
                Wire { subnet: CLIENT, ends: [(Client, "vantage0"), (ClientRouter, "client0")] },
                Wire { subnet: CLIENT_SIDE, ends: [(ClientRouter, "vantage0"), (Vantage, "client0")] },
                Wire { subnet: SERVER_SIDE, ends: [(Vantage, "server0"), (ServerRouter, "vantage0")] },
                Wire { subnet: SERVER, ends: [(ServerRouter, "server0"), (Server, "vantage0")] },
            ],
            routes: vec![
                Route { role: Client, subnet: None, over: address(CLIENT, 2) },
                Route { role: ClientRouter, subnet: None, over: address(CLIENT_SIDE, 2) },
                Route { role: Vantage, subnet: Some(CLIENT), over: address(CLIENT_SIDE, 1) },
                Route { role: Vantage, subnet: Some(SERVER), over: address(SERVER_SIDE, 2) },
                Route { role: ServerRouter, subnet: None, over: address(SERVER_SIDE, 1) },
                Route { role: Server, subnet: None, over: address(SERVER, 1) },
            ],
            queues: Vec::new(),
        };
        let queue =
            |name, role, input, number, link: &LinkSpec| QueuePlan { name, role, input, number, link: link.clone() };
        match topology {
            Topology::Line { client, server } => {
                plan.queues = vec![
                    queue("client to vantage", ClientRouter, "client0", 0, &client.to_vantage),
                    queue("vantage to client", ClientRouter, "vantage0", 1, &client.from_vantage),
                    queue("server to vantage", ServerRouter, "server0", 0, &server.to_vantage),
                    queue("vantage to server", ServerRouter, "vantage0", 1, &server.from_vantage),
                ];
            }
            Topology::Triangle { client_to_vantage, vantage_to_server, server_to_client } => {
                plan.roles.push(DirectRouter);
                plan.wires.push(Wire { subnet: DIRECT_SERVER, ends: [(Server, "client0"), (DirectRouter, "server0")] });
                plan.wires.push(Wire { subnet: DIRECT_CLIENT, ends: [(DirectRouter, "client0"), (Client, "server0")] });
                plan.routes.push(Route { role: Server, subnet: Some(CLIENT), over: address(DIRECT_SERVER, 2) });
                plan.routes.push(Route { role: DirectRouter, subnet: Some(CLIENT), over: address(DIRECT_CLIENT, 2) });
                plan.queues = vec![
                    queue("client to vantage", ClientRouter, "client0", 0, client_to_vantage),
                    queue("vantage to server", ServerRouter, "vantage0", 0, vantage_to_server),
                    queue("server to client", DirectRouter, "server0", 0, server_to_client),
                ];
            }
        }
        plan
    }

    pub(super) fn roles(&self) -> &[Role] {
        &self.roles
    }

    pub(super) fn role_names(&self) -> Vec<&'static str> {
        self.roles.iter().map(|role| role.name()).collect()
    }

    pub(super) fn queues(&self) -> &[QueuePlan] {
        &self.queues
    }

    /// Both ends of every wire, made where they belong.
    pub(super) fn links(&self, namespaces: &BTreeMap<Role, Namespace>) -> String {
        let mut batch = String::new();
        for Wire { subnet, ends: [(a, a_interface), (b, b_interface)] } in &self.wires {
            let (a, b) = (namespaces[a].name(), namespaces[b].name());
            let (a_mac, b_mac) = (address(*subnet, 1).mac(), address(*subnet, 2).mac());
            let _ = writeln!(
                batch,
                "link add name {a_interface} netns {a} address {a_mac} type veth \
                 peer name {b_interface} netns {b} address {b_mac}"
            );
        }
        batch
    }

    pub(super) fn addresses_and_routes(&self, role: Role) -> String {
        let mut batch = String::new();
        for wire in &self.wires {
            for (own, (owner, interface)) in (1..).zip(wire.ends) {
                if owner != role {
                    continue;
                }
                let (own, peer) = (address(wire.subnet, own), address(wire.subnet, 3 - own));
                // No link-local addresses: nothing but the workload speaks on a wire.
                let _ = writeln!(batch, "link set {interface} addrgenmode none up");
                let _ = writeln!(batch, "address add {}/24 dev {interface}", own.v4());
                let _ = writeln!(batch, "address add {}/64 dev {interface} nodad", own.v6());
                for peer_address in peer.both() {
                    let mac = peer.mac();
                    let _ = writeln!(batch, "neighbour add {peer_address} lladdr {mac} dev {interface} nud permanent");
                }
            }
        }
        for route in self.routes.iter().filter(|route| route.role == role) {
            let [v4, v6] = route.over.both();
            let (to_v4, to_v6) = match route.subnet {
                Some(subnet) => (format!("{}/24", address(subnet, 0).v4()), format!("{}/64", address(subnet, 0).v6())),
                None => ("default".to_owned(), "default".to_owned()),
            };
            let _ = writeln!(batch, "route add {to_v4} via {v4}");
            let _ = writeln!(batch, "route add {to_v6} via {v6}");
        }
        batch
    }

    /// Before there is any interface, so that each takes them over from the defaults.
    pub(super) fn set_kernel_options(&self, namespace: &Namespace) -> Result<()> {
        let options = [
            ("ipv4/ip_forward", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
            ("ipv4/conf/all/send_redirects", "0"),
            ("ipv4/conf/default/send_redirects", "0"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv6/conf/default/forwarding", "1"),
            ("ipv6/conf/default/accept_ra", "0"),
            // Connections do not learn from earlier ones, so that runs are alike.
            ("ipv4/tcp_no_metrics_save", "1"),
        ];
        namespace.set(&options)
    }

    /// Input of iptables-restore and ip6tables-restore.
    pub(super) fn queue_rules(&self, role: Role) -> String {
        let mut rules = String::new();
        for queue in self.queues.iter().filter(|queue| queue.role == role) {
            let _ = writeln!(rules, "-A FORWARD -i {} -j NFQUEUE --queue-num {}", queue.input, queue.number);
        }
        if rules.is_empty() { rules } else { format!("*mangle\n{rules}COMMIT\n") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;

    #[test]
    fn every_main_address_is_on_a_wire_of_its_role() {
        let triangle = Plan::of(&Topology::triangle(Nanos(1), Nanos(2), Nanos(3)));
        for &role in triangle.roles() {
            let line = format!("address add {}/24 ", main_address(role).v4());
            assert!(triangle.addresses_and_routes(role).contains(&line), "{role:?}");
        }
    }

    #[test]
    fn a_server_of_a_triangle_answers_directly() {
        let triangle = Plan::of(&Topology::triangle(Nanos(1), Nanos(2), Nanos(3)));
        assert!(triangle.addresses_and_routes(Role::Server).contains("route add 10.77.1.0/24 via 10.77.5.2\n"));
        let line = Plan::of(&Topology::line(Nanos(2), Nanos(4)));
        assert!(!line.addresses_and_routes(Role::Server).contains("10.77.5"));
        assert!(line.queue_rules(Role::Vantage).is_empty());
    }
}
