//! From device to device, below a table of `dwell stack` or as objects.

use std::fmt;

use serde::Serialize;

use super::stack::{SCHEMA, figures, heads, put};
use crate::{Distribution, Stack, StackHop, StackPlace};

/// Columns that a hop has: all but the share.
const COLUMNS: usize = 6;

/// `type` "stack-hop": what bytes took from one device to the next.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
    interval_ns: u64,
    host: &'a str,
    origin: Place<'a>,
    from: Place<'a>,
    to: Place<'a>,
    #[serde(flatten)]
    figures: Distribution,
}

#[derive(Serialize)]
struct Place<'a> {
    device: &'a str,
    namespace: Option<&'a str>,
    point: &'a str,
}

impl<'a> From<&'a StackPlace> for Place<'a> {
    fn from(place: &'a StackPlace) -> Place<'a> {
        Place { device: &place.device, namespace: place.namespace.as_deref(), point: place.point }
    }
}

impl fmt::Display for StackPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "@{namespace}")?;
        }
        write!(f, " {}", self.point)
    }
}

/// Writes an object a hop.
pub(super) fn jsonl(stack: &Stack<'_>, time: Option<&str>, out: &mut Vec<u8>) {
    for hop in stack.hops {
        let object = Object {
            kind: "stack-hop",
            schema: SCHEMA,
            time,
            interval_ns: stack.length_ns,
            host: stack.host,
            origin: (&hop.origin).into(),
            from: (&hop.from).into(),
            to: (&hop.to).into(),
            figures: Distribution::from(&hop.histogram),
        };
        serde_json::to_writer(&mut *out, &object).expect("plain data becomes JSON");
        out.push(b'\n');
    }
}

/// Writes a line a hop, and a head for each way.
pub(super) fn text(hops: &[StackHop], out: &mut Vec<u8>) {
    let label = |hop: &StackHop| format!("  {} → {}", hop.from, hop.to);
    let labels = hops.iter().map(|hop| label(hop).chars().count());
    let width = labels.max().unwrap_or(0).max("devices".len() + 2);
    for (index, hop) in hops.iter().enumerate() {
        if index == 0 || hops[index - 1].origin != hop.origin {
            let head = if index == 0 { "devices" } else { "" };
            put(out, format_args!("\n{head:<width$}"));
            heads(COLUMNS, out);
        }
        put(out, format_args!("{:<width$}", label(hop)));
        figures(&hop.histogram, out);
        out.push(b'\n');
    }
}
