//! The object `flow`, which is the same in all verbs.

use std::{borrow::Cow, net::IpAddr};

use dwell_engine::{
    flow_id,
    layers::Ends,
    measure::{Endpoint, Protocol},
    names::{EndNames, FlowNames, Network, Pod},
    roles::{CLIENT_PORTS, Role},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Source;

/// A flow, or one direction of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "flow")]
pub struct FlowObject {
    /// The address of one end. Which one it is depends on the type of the object.
    pub src: IpAddr,
    /// The port of that end. Null where the protocol or the key of the flow has no ports.
    pub sport: Option<u16>,
    /// The address of the other end.
    pub dst: IpAddr,
    /// The port of the other end.
    pub dport: Option<u16>,
    /// The transport protocol: "TCP", "UDP", "ICMP", "ICMPv6", "ESP", or an IP protocol number in a string.
    pub proto: Cow<'static, str>,
    /// The Community ID of the flow, the same in both directions and in all verbs. Null where ports are left out of the
    /// flow, so that it is not known.
    pub id: Option<String>,
    /// Which end is the client, "src" or "dst"; the other one is the server. Known by the packets that opened the flow; else by
    /// a socket of this host that listens, unless with `--no-names`; else by the ports, if one is below 32768, which Linux gives
    /// to no client by default, and the other is not. Null where none of these tells.
    pub client: Option<End>,
    /// The names of the ends. The key is missing where neither has one, and with `--no-names`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<NamesObject>,
    /// What the latest request has asked for, where it was in clear, as "GET /index.html": at most 64 bytes. The key is
    /// missing where that is not known, with `--no-labels`, and in files of `--write` unless `--labels` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The transport protocol by its number, which is in `proto` too.
    #[serde(skip)]
    pub protocol: Protocol,
}

/// Names of a flow, for people: processes of this host, and hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "names")]
pub struct NamesObject {
    /// Those of the end `src`.
    pub src: EndNamesObject,
    /// Those of the end `dst`.
    pub dst: EndNamesObject,
    /// The service of the lower port in /etc/services. Null in captures.
    pub service: Option<String>,
}

/// Names of an end of a flow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "end_names")]
pub struct EndNamesObject {
    /// The name of the address: that of /etc/hosts, or the one for which an answer of DNS had the address last; else, with
    /// `--resolve`, that of a reverse look-up, which its owner chose.
    pub host: Option<String>,
    /// A process of this host that has the socket. Null where only the name is known, from the socket that listens.
    pub pid: Option<u32>,
    /// The name of that process, at most 15 characters long.
    pub process: Option<String>,
    /// The unit of systemd of that process, or the first 12 digits of its container's ID.
    pub unit: Option<String>,
    /// The pod of Kubernetes of that process. The key is missing where it is in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodObject>,
    /// The network of the address, by the files of `--as-file`. The key is missing where they do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkObject>,
}

/// A pod of Kubernetes on this host, with a container of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "pod")]
pub struct PodObject {
    /// The UID by which the kubelet knows the pod. That of a static pod is not the one that the API server has.
    pub uid: String,
    /// Its namespace in Kubernetes. Null where the kubelet's folders for logs cannot be read.
    pub namespace: Option<String>,
    /// Its name in that namespace. Null where the namespace is.
    pub name: Option<String>,
    /// The container's name in the manifest of the pod. Null of several containers, and where it is not known.
    pub container: Option<String>,
}

impl From<&Pod> for PodObject {
    fn from(pod: &Pod) -> PodObject {
        let name = pod.name.as_ref();
        PodObject {
            uid: pod.uid.to_string(),
            namespace: name.map(|name| name.namespace.to_string()),
            name: name.map(|name| name.name.to_string()),
            container: pod.container.as_deref().map(str::to_owned),
        }
    }
}

/// The network of an address.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "network")]
pub struct NetworkObject {
    /// The number of its autonomous system.
    pub asn: Option<u32>,
    /// The name of that, at most 48 bytes.
    pub as_name: Option<String>,
    /// Its country, as two letters of ISO 3166.
    pub country: Option<String>,
}

impl From<&Network> for NetworkObject {
    fn from(network: &Network) -> NetworkObject {
        NetworkObject {
            asn: network.asn,
            as_name: network.as_name.as_deref().map(str::to_owned),
            country: network.country.map(|country| country.as_str().to_owned()),
        }
    }
}

impl From<&FlowNames> for NamesObject {
    fn from(names: &FlowNames) -> NamesObject {
        let text = |text: &Option<_>| text.as_deref().map(str::to_owned);
        let end = |end: &EndNames| EndNamesObject {
            host: text(&end.host),
            pid: end.pid,
            process: text(&end.process),
            unit: text(&end.unit),
            pod: end.pod.as_deref().map(PodObject::from),
            network: end.network.as_ref().map(NetworkObject::from),
        };
        NamesObject { src: end(&names.src), dst: end(&names.dst), service: text(&names.service) }
    }
}

/// An end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "end")]
pub enum End {
    /// The end of `src` and `sport`.
    Src,
    /// The end of `dst` and `dport`.
    Dst,
}

impl End {
    fn client(src_role: Role) -> End {
        match src_role {
            Role::Client => End::Src,
            Role::Server => End::Dst,
        }
    }
}

impl FlowObject {
    /// Creates the object of a flow whose ports or identifiers of echoes are known. `src_role` is what `src` is, where better is
    /// known than what the ports tell.
    pub fn new(src: &Endpoint, dst: &Endpoint, protocol: Protocol, src_role: Option<Role>) -> FlowObject {
        let id = Some(flow_id(src, dst, protocol));
        let port = |end: &Endpoint| (!protocol.is_icmp()).then_some(end.port);
        let (sport, dport) = (port(src), port(dst));
        let proto = name(protocol);
        let by_ports = || Role::by_ports(&Ends { src: *src, dst: *dst }, protocol, &CLIENT_PORTS);
        let client = src_role.or_else(by_ports).map(End::client);
        let (src, dst) = (src.address, dst.address);
        FlowObject { src, sport, dst, dport, proto, id, client, names: None, label: None, protocol }
    }

    /// Creates the object of a flow with its names. `seen` is what `src` is, if the packets that opened the flow show it.
    pub fn of_source(
        src: &Endpoint,
        dst: &Endpoint,
        protocol: Protocol,
        seen: Option<Role>,
        source: &Source,
    ) -> FlowObject {
        let names = source.names(src, dst, protocol);
        let src_role = seen.or_else(|| names.as_ref()?.src_role);
        FlowObject::new(src, dst, protocol, src_role).named(names.as_ref())
    }

    /// Creates the object of a flow whose packets are told apart by something else than ports.
    pub fn without_ports(src: IpAddr, dst: IpAddr, protocol: Protocol, src_role: Option<Role>) -> FlowObject {
        let end = |address| Endpoint { address, port: 0 };
        let is_complete = !protocol.has_ports() && !protocol.is_icmp();
        let id = is_complete.then(|| flow_id(&end(src), &end(dst), protocol));
        let (proto, client) = (name(protocol), src_role.map(End::client));
        FlowObject { src, sport: None, dst, dport: None, proto, id, client, names: None, label: None, protocol }
    }

    /// Creates the object of one direction of a TCP connection, with its names.
    pub fn of_tcp(ends: &Ends, source: &Source) -> FlowObject {
        FlowObject::of_source(&ends.src, &ends.dst, Protocol::TCP, None, source)
    }

    /// Returns the same flow with its names and its label, if there are any.
    pub fn named(self, names: Option<&FlowNames>) -> FlowObject {
        let label = names.and_then(|names| names.label.as_deref().map(str::to_owned));
        let names = names.filter(|names| names.name_an_end());
        FlowObject { names: names.map(NamesObject::from), label, ..self }
    }
}

fn name(protocol: Protocol) -> Cow<'static, str> {
    match protocol.0 {
        6 => Cow::Borrowed("TCP"),
        17 => Cow::Borrowed("UDP"),
        50 => Cow::Borrowed("ESP"),
        _ => Cow::Owned(protocol.to_string()),
    }
}
