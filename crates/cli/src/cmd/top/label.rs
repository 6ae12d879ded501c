//! What a row is called.

use std::{fmt::Display, net::IpAddr};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::{EndNames, FlowNames},
    roles::Role,
    top::{FlowKey, Row, RowKey},
};

use super::{
    columns::{columns, fit},
    shown::{Origin, Screenful},
};

/// Looks up the names of a row: those of a flow, or of what its flows have in common. None where names are off.
pub fn names_of(row: &Row, shown: &Screenful) -> FlowNames {
    let mut found = FlowNames { src_role: row.role, ..FlowNames::default() };
    // A unit has no number that people know.
    if let RowKey::Unit(Some(number)) = &row.key {
        found.src.unit = shown.units.name(*number).cloned();
        found.src.pod = shown.units.pod(*number).cloned();
    }
    if let RowKey::Flow(FlowKey { ends, protocol: Protocol::TCP }) = &row.key {
        // The local end is `src`; the other one is of this host too where they talk to each other.
        let is_own = |end: &Endpoint| end.address == ends.src.address || end.address.is_loopback();
        let by_listeners = || Role::by_listeners(ends, |end| shown.listening.contains(&end.port) && is_own(end));
        found.src_role = row.role.or_else(by_listeners);
    }
    let Some(names) = shown.names() else {
        return found;
    };
    if shown.origin == Origin::Store {
        return stored_names_of(row, shown, found);
    }
    match &row.key {
        RowKey::Flow(flow) => {
            let ends = &flow.ends;
            found.dst.host = names.host(ends.dst.address);
            found.service = names.service(&ends.src, &ends.dst, flow.protocol);
            found.dst.network = shown.network(ends.dst.address);
            found.label = names.label(&ends.src, &ends.dst, flow.protocol);
        }
        RowKey::Peer(address) => {
            found.dst.host = names.host(*address);
            found.dst.network = shown.network(*address);
        }
        RowKey::Prefix(_) | RowKey::Process(_) | RowKey::Unit(_) => {}
    }
    if let Some(pid) = row.pid {
        let flow = match &row.key {
            RowKey::Flow(flow) => Some(&flow.ends),
            _ => None,
        };
        found.src = names.process(pid, flow);
    }
    found
}

/// Looks up what a store has of the names of a row, and adds it to those that are `found`.
fn stored_names_of(row: &Row, shown: &Screenful, found: FlowNames) -> FlowNames {
    let (names, mut found) = (&shown.stored_names, found);
    let peer = match &row.key {
        RowKey::Flow(flow) => {
            found.service = names.service(server(flow, &found), flow.protocol);
            Some(flow.ends.dst.address)
        }
        RowKey::Peer(address) => Some(*address),
        RowKey::Prefix(_) | RowKey::Process(_) | RowKey::Unit(_) => None,
    };
    if let Some(address) = peer {
        (found.dst.host, found.dst.network) = (names.host(address), shown.network(address));
    }
    if let Some(pid) = row.pid {
        found.src = names.process(pid);
    }
    found
}

/// Writes a row in one line: `nginx:https ← 198.51.100.7:51234`, `curl → example.org:https  [GET /]`, `nginx 4242`. The
/// arrow points to the server.
pub fn line(row: &Row, names: &FlowNames) -> String {
    match &row.key {
        RowKey::Flow(flow) => {
            let label = names.label.as_deref().map_or_else(String::new, |label| format!("  [{label}]"));
            of_flow(row, flow, names) + &network(names) + &label
        }
        RowKey::Peer(address) => {
            names.dst.host.as_deref().map_or_else(|| address.to_string(), str::to_owned) + &network(names)
        }
        RowKey::Prefix(prefix) => prefix.to_string(),
        RowKey::Process(None) => "(unknown)".into(),
        RowKey::Unit(_) => unit(&names.src).unwrap_or_else(|| "(no unit)".into()),
        RowKey::Process(Some(pid)) => match &names.src.process {
            Some(name) => format!("{name} {pid}"),
            None => pid.to_string(),
        },
    }
}

/// Writes a row in one line of this width. Of a flow the middle of its peer's name is cut out, so that its ports stay, and on
/// narrow screens the middle of all.
pub fn line_in(row: &Row, names: &FlowNames, width: usize) -> String {
    const NARROW: usize = 26;
    const LEAST_LABEL: usize = "  [GET /…".len();
    let count = columns;
    if let RowKey::Flow(flow) = &row.key {
        let (ends, peer) = (of_flow(row, flow, names), peer(flow, names));
        let (before, after) = ends.rsplit_once(&peer).unwrap_or((&ends, ""));
        let room = width.saturating_sub(count(before) + count(after));
        match count(&ends) > width {
            true if room > 1 => return format!("{before}{}{after}", without_middle(&peer, room)),
            true if width < NARROW => return without_middle(&ends, width),
            _ => {}
        }
    }
    let (whole, without_label) = (line(row, names), line(row, &FlowNames { label: None, ..names.clone() }));
    // A few letters of a label say nothing, and would take the last digits of a port.
    fit(if columns(&without_label) + LEAST_LABEL <= width { &whole } else { &without_label }, width)
}

/// Cuts the middle out of a text that is longer than the width.
fn without_middle(text: &str, width: usize) -> String {
    /// What stays of the end at least, where there is room: the longest number of a port.
    const PORT: usize = ":65535".len();
    let tail = (width / 2).max(PORT.min(width.saturating_sub(2)));
    let length = text.chars().count();
    fit(text, width.saturating_sub(tail)) + &text.chars().skip(length.saturating_sub(tail)).collect::<String>()
}

/// The pod of an end, or else its unit.
pub fn unit(end: &EndNames) -> Option<String> {
    end.pod.as_ref().map(|pod| pod.title()).or_else(|| end.unit.as_deref().map(str::to_owned))
}

/// The network of the peer, with the spaces before it.
fn network(names: &FlowNames) -> String {
    names.dst.network.as_ref().map_or_else(String::new, |network| format!("  {network}"))
}

fn of_flow(row: &Row, flow: &FlowKey, names: &FlowNames) -> String {
    let ends = &flow.ends;
    let own = match (&names.src.process, row.pid) {
        (Some(name), _) => Some(name.to_string()),
        (None, pid) => pid.map(|pid| pid.to_string()),
    };
    let peer = peer(flow, names);
    let server = server(flow, names);
    if flow.protocol.is_icmp() {
        return format!("{} → {peer} icmp", own.unwrap_or_else(|| ends.src.address.to_string()));
    }
    let port: &dyn Display = match &names.service {
        Some(name) => name,
        None => &server.port,
    };
    let own = |port: &dyn Display| match &own {
        Some(name) => format!("{name}:{port}"),
        None => format!("{}:{port}", host(ends.src.address)),
    };
    match *server == ends.src {
        true => format!("{} ← {peer}:{}", own(port), ends.dst.port),
        // A client's port says little where the process has a name.
        false if row.pid.is_some() => format!("{} → {peer}:{port}", own(&"").trim_end_matches(':')),
        false => format!("{} → {peer}:{port}", own(&ends.src.port)),
    }
}

fn peer(flow: &FlowKey, names: &FlowNames) -> String {
    names.dst.host.as_deref().map_or_else(|| host(flow.ends.dst.address), str::to_owned)
}

/// The server's end of a flow; as far as it is not known, the one with the lower port.
pub fn server<'a>(flow: &'a FlowKey, names: &FlowNames) -> &'a Endpoint {
    let ends = &flow.ends;
    let is_src = names.src_role.map_or(ends.src.port < ends.dst.port, |role| role == Role::Server);
    if is_src { &ends.src } else { &ends.dst }
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
