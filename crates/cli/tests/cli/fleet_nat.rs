//! Joins through address translation: agents at both ends of connections whose addresses a router between them translates.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
};

use dwell_testbed::{Namespace, skip::lacks_program};

use crate::{
    fleet::{Office, ended, patiently},
    records::objects,
    support::{ip, skipped, tool},
};

/// The port that the server listens on, and that of the service by which clients reach it.
const PORT: u16 = 5223;
const SERVICE_PORT: u16 = 5224;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 81, 1, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 81, 2, 2);
/// The router at the client's side, where the collector is, and at the server's.
const ROUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 81, 1, 1), Ipv4Addr::new(10, 81, 2, 1)];
/// The service, which is at no device.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// A client and a server on either side of a router, which is a host of a collector too.
struct Route {
    client: Namespace,
    router: Namespace,
    server: Namespace,
    office: Office,
}

impl Route {
    fn new(name: &str) -> Route {
        let [client, router, server] =
            ["client", "router", "server"].map(|who| Namespace::create(&format!("{name}-{who}")).unwrap());
        for (end, own, gateway) in [(&client, CLIENT, ROUTER[0]), (&server, SERVER, ROUTER[1])] {
            let device = if own == CLIENT { "client0" } else { "server0" };
            let there = end.name();
            ip(
                &router,
                &format!(
                    "link add {device} type veth peer name eth0 netns {there}\n\
                     addr add {gateway}/24 dev {device}\nlink set {device} up\n"
                ),
            );
            ip(end, &format!("addr add {own}/24 dev eth0\nlink set eth0 up\nroute add default via {gateway}\n"));
        }
        router.set(&[("ipv4/ip_forward", "1")]).unwrap();
        Route { client, router, server, office: Office::new(IpAddr::from(ROUTER[0])) }
    }

    fn translate(&self, rule: &str) {
        tool(&self.router, "iptables-legacy", &rule.split_ascii_whitespace().collect::<Vec<_>>());
    }

    /// Lets the client talk to the server at an address while agents `a` and `b` follow both, until nearly all of 1,000 bytes in
    /// each direction are matched, and checks that each of the two flows has one path, with what both ends see.
    fn check(&self, (address, port): (Ipv4Addr, u16)) {
        let listener = self.server.enter(|| TcpListener::bind((SERVER, PORT)).unwrap()).unwrap();
        let connect = || TcpStream::connect((address, port)).unwrap();
        let mut client = self.client.enter(connect).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        [&client, &server].iter().for_each(|stream| stream.set_nodelay(true).unwrap());
        let mut talk = |exchanges| {
            for _ in 0..exchanges {
                client.write_all(&[1; 640]).unwrap();
                server.read_exact(&mut [0; 640]).unwrap();
                server.write_all(&[2; 640]).unwrap();
                client.read_exact(&mut [0; 640]).unwrap();
            }
        };
        // The connection is older than the agents.
        talk(3);
        let collector = self.office.collect(&self.router, &["--format", "jsonl", "--flows"]);
        let filter = ["--filter", &format!("port {PORT} or port {SERVICE_PORT}")];
        let a = self.office.agent_of(&self.client, "a", &filter);
        let b = self.office.agent_of(&self.server, "b", &filter);
        talk(100);
        patiently("both directions are matched", || {
            ["a", "b"].iter().all(|host| self.paths(host, "sum(count)") >= Some(900))
        });
        ended(a, 0);
        ended(b, 0);
        let run = ended(collector, 0);

        let (to, from) = (ends(&client), ends(&server));
        for (host, flow, rx_flow) in [("a", to.clone(), reversed(&from)), ("b", from, reversed(&to))] {
            let count = self.paths(host, "sum(count)").unwrap();
            assert!((900..=1_010).contains(&count), "{count} from {host}");
            let as_seen = format!(
                "sum(count * (src || ':' || sport || ' ' || dst || ':' || dport = '{}'
                    AND rx_src || ':' || rx_sport || ' ' || rx_dst || ':' || rx_dport = '{}' AND joined = 'sequence'))",
                flow.join(" "),
                rx_flow.join(" "),
            );
            assert_eq!(self.paths(host, &as_seen), Some(count), "from {host}: {flow:?} {rx_flow:?}");
            let printed: i64 = objects(&run.stdout)
                .iter()
                .filter(|object| {
                    object["segment"] == "end-to-end"
                        && object["joined"] == "sequence"
                        && object["tx_host"] == host
                        && object["rx_flow"]["src"].as_str().is_some_and(|src| rx_flow[0].starts_with(src))
                })
                .map(|object| object["latency"]["count"].as_i64().unwrap())
                .sum();
            assert_eq!(printed, count, "from {host}");
        }
        let counted = |name: &str| self.office.number(&format!("SELECT max(value) FROM counter WHERE name = '{name}'"));
        assert_eq!(counted("translated"), counted("matched"));
        assert_eq!(counted("contested").unwrap_or(0), 0);
        let estimated = "SELECT count(*) FROM path WHERE method = 'estimated'";
        assert_eq!(self.office.number(estimated), Some(0), "both ends tell of it");
    }

    /// A figure of the paths of single flows from this host to the other.
    fn paths(&self, tx_host: &str, figure: &str) -> Option<i64> {
        self.office.number(&format!(
            "SELECT {figure} FROM paths
                WHERE src IS NOT NULL AND segment = 'end-to-end' AND tx_host = '{tx_host}' AND rx_host <> tx_host"
        ))
    }
}

/// The ends of the flow that a socket sends, as it sees them.
fn ends(stream: &TcpStream) -> [String; 2] {
    [stream.local_addr(), stream.peer_addr()].map(|end| end.unwrap().to_string())
}

fn reversed([src, dst]: &[String; 2]) -> [String; 2] {
    [dst.clone(), src.clone()]
}

#[test]
fn root_bytes_of_a_masqueraded_client_are_matched() {
    if skipped() || lacks_program("iptables-legacy") {
        return;
    }
    let route = Route::new("fleet-snat");
    // Ports too.
    route.translate("-t nat -A POSTROUTING -o server0 -p tcp -j MASQUERADE --to-ports 20000-20999");
    route.check((SERVER, PORT));
}

#[test]
fn root_bytes_to_a_service_whose_address_is_translated_are_matched() {
    if skipped() || lacks_program("iptables-legacy") {
        return;
    }
    let route = Route::new("fleet-dnat");
    // As kube-proxy does it on a node, for a pod of its own.
    route.translate(&format!(
        "-t nat -A PREROUTING -i client0 -p tcp -d {SERVICE} --dport {SERVICE_PORT} -j DNAT --to-destination {SERVER}:{PORT}"
    ));
    route.check((SERVICE, SERVICE_PORT));
}

#[test]
fn root_bytes_of_a_service_behind_both_translations_are_matched() {
    if skipped() || lacks_program("iptables-legacy") {
        return;
    }
    let route = Route::new("fleet-nat");
    // As from outside of a cluster, by the port of a node.
    route.translate(&format!(
        "-t nat -A PREROUTING -i client0 -p tcp -d {} --dport {SERVICE_PORT} -j DNAT --to-destination {SERVER}:{PORT}",
        ROUTER[0]
    ));
    route.translate("-t nat -A POSTROUTING -o server0 -p tcp -j MASQUERADE");
    route.check((ROUTER[0], SERVICE_PORT));
}
