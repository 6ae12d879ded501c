//! The names of a flow, and its label, as text has them: at the end of its line.

use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::EndNames,
};

use crate::Source;

/// Returns the names of a flow as they follow it in a line, with the spaces before them: `  (curl 4242 → db.example)`, or with
/// one end alone `  (curl 4242 →)`, and what its latest request has asked for: `  [GET /index.html]`. Empty if there is
/// neither. A process stands before a host, with its pod if it is in one: `nginx 77 shop/web-0/nginx`.
pub fn name_note(source: &Source, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> String {
    let Some(names) = source.names(src, dst, protocol) else {
        return String::new();
    };
    let mut note = match [&names.src, &names.dst].map(end) {
        [Some(src), Some(dst)] => format!("  ({src} → {dst})"),
        [Some(src), None] => format!("  ({src} →)"),
        [None, Some(dst)] => format!("  (→ {dst})"),
        [None, None] => String::new(),
    };
    if let Some(label) = &names.label {
        note += &format!("  [{label}]");
    }
    note
}

/// Returns the name of the destination of a flow alone: `  (nginx 77)`. Empty if it has none.
pub fn server_note(source: &Source, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> String {
    let name = source.names(src, dst, protocol).and_then(|names| end(&names.dst));
    name.map_or_else(String::new, |name| format!("  ({name})"))
}

fn end(end: &EndNames) -> Option<String> {
    let name = match (&end.process, end.pid) {
        (Some(name), Some(pid)) => Some(format!("{name} {pid}")),
        (Some(name), None) => Some(name.to_string()),
        (None, Some(pid)) => Some(pid.to_string()),
        (None, None) => end.host.as_deref().map(str::to_owned),
    };
    let name = match &end.pod {
        Some(pod) => name.map(|name| format!("{name} {pod}")),
        None => name,
    };
    match (name, &end.network) {
        (Some(name), Some(network)) => Some(format!("{name} {network}")),
        (name, network) => name.or_else(|| network.as_ref().map(ToString::to_string)),
    }
}
