//! What a row is called.

use std::{fmt::Display, net::IpAddr};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    top::{FlowKey, Row, RowKey},
};
use dwell_socket::names::Names;

/// Names of the parts of a row, for people. `None` where names are off or nothing has a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Label {
    /// The name of the process.
    pub process: Option<String>,
    /// The service of the server's port.
    pub service: Option<String>,
    /// The name of the peer.
    pub peer: Option<String>,
}

impl Label {
    /// Looks up the names of a row.
    pub fn of(row: &Row, names: Option<&Names>) -> Label {
        let Some(names) = names else {
            return Label::default();
        };
        let host = |address: &IpAddr| names.host(*address).map(str::to_owned);
        let (peer, service) = match &row.key {
            RowKey::Flow(flow) => {
                let ends = &flow.ends;
                let service = names.service(server(flow).port, flow.protocol.0).filter(|_| flow.protocol.has_ports());
                (host(&ends.dst.address), service.map(str::to_owned))
            }
            RowKey::Peer(address) => (host(address), None),
            RowKey::Prefix(_) | RowKey::Process(_) => (None, None),
        };
        Label { process: row.pid.and_then(|pid| names.process(pid)).map(str::to_owned), service, peer }
    }

    /// Writes the row in one line: `nginx:https ← 198.51.100.7:51234`, `curl → example.org:https`, `nginx 4242`. The arrow
    /// points to the server.
    pub fn line(&self, row: &Row) -> String {
        match &row.key {
            RowKey::Flow(flow) => self.flow(row, flow),
            RowKey::Peer(address) => self.peer.clone().unwrap_or_else(|| address.to_string()),
            RowKey::Prefix(prefix) => prefix.to_string(),
            RowKey::Process(None) => "(unknown)".into(),
            RowKey::Process(Some(pid)) => match &self.process {
                Some(name) => format!("{name} {pid}"),
                None => pid.to_string(),
            },
        }
    }

    fn flow(&self, row: &Row, flow: &FlowKey) -> String {
        let ends = &flow.ends;
        let own = match (&self.process, row.pid) {
            (Some(name), _) => Some(name.clone()),
            (None, pid) => pid.map(|pid| pid.to_string()),
        };
        let peer = match &self.peer {
            Some(name) => name.clone(),
            None => host(ends.dst.address),
        };
        if flow.protocol.is_icmp() {
            return format!("{} → {peer} icmp", own.unwrap_or_else(|| ends.src.address.to_string()));
        }
        let port: &dyn Display = match &self.service {
            Some(name) => name,
            None => &server(flow).port,
        };
        let own = |port: &dyn Display| match &own {
            Some(name) => format!("{name}:{port}"),
            None => format!("{}:{port}", host(ends.src.address)),
        };
        match *server(flow) == ends.src {
            true => format!("{} ← {peer}:{}", own(port), ends.dst.port),
            // A client's port says little where the process has a name.
            false if row.pid.is_some() => format!("{} → {peer}:{port}", own(&"").trim_end_matches(':')),
            false => format!("{} → {peer}:{port}", own(&ends.src.port)),
        }
    }
}

/// The end of a flow with the lower port.
pub fn server(flow: &FlowKey) -> &Endpoint {
    let ends = &flow.ends;
    if ends.src.port < ends.dst.port { &ends.src } else { &ends.dst }
}

/// The protocol, where it is not TCP.
pub fn protocol(key: &RowKey) -> Option<Protocol> {
    match key {
        RowKey::Flow(flow) if flow.protocol.0 != 6 => Some(flow.protocol),
        _ => None,
    }
}

fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
