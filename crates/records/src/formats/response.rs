//! Epochs of `dwell response`, in words and as objects.

use std::{borrow::Cow, fmt, io::Write, net::IpAddr};

use serde::Serialize;

use super::{Latency, counted};
use crate::{Response, Source, Timestamps};

/// Name and version of the objects' schema, as [`super::SCHEMA`].
const SCHEMA: &str = "dwell.response/1";

/// `type` "response": an epoch of a flow that ended at `time`. `response_ns` is
/// null where there is no estimate; `valid` false, with a `reason`, where it
/// should not be believed.
#[derive(Serialize)]
struct Object<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    schema: &'a str,
    time: Option<&'a str>,
    src: IpAddr,
    sport: Option<u16>,
    dst: IpAddr,
    dport: Option<u16>,
    proto: Cow<'a, str>,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    method: Option<&'a str>,
    truth: Option<&'a str>,
    epoch_ns: u64,
    packets: u32,
    batches: u64,
    response_ns: Option<u64>,
    ibg_ns: Option<u64>,
    confidence: f64,
    valid: bool,
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modes: Option<Vec<Mode>>,
    interface: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Mode {
    min_ns: u64,
    max_ns: u64,
    mean_ns: u64,
    count: u32,
    marked: bool,
}

/// Writes an object and the end of its line.
pub(super) fn jsonl(response: &Response<'_>, times: &mut Timestamps, source: &Source, out: &mut Vec<u8>) {
    let record = response.record;
    let port = |port| record.key.has_ports().then_some(port);
    let object = Object {
        kind: "response",
        schema: SCHEMA,
        time: times.rfc3339(source.clock.unix_ns(end_ns(response))),
        src: record.src.address,
        sport: port(record.src.port),
        dst: record.dst.address,
        dport: port(record.dst.port),
        proto: match record.protocol.0 {
            6 => Cow::Borrowed("TCP"),
            17 => Cow::Borrowed("UDP"),
            50 => Cow::Borrowed("ESP"),
            _ => Cow::Owned(record.protocol.to_string()),
        },
        key: record.key.name(),
        id: record.id,
        method: response.method,
        truth: response.truth,
        epoch_ns: record.epoch.epoch_ns,
        packets: record.epoch.packets,
        batches: response.batches,
        response_ns: response.response_ns,
        ibg_ns: response.ibg_ns,
        confidence: (response.confidence * 1000.0).round() / 1000.0,
        valid: response.is_valid(),
        reason: response.reason,
        modes: response.show_modes.then(|| modes(response)),
        interface: source.interfaces.label(record.interface),
    };
    serde_json::to_writer(&mut *out, &object).expect("plain data becomes JSON");
    out.push(b'\n');
}

/// Writes a line; and with modes a line for each of them.
pub(super) fn text(response: &Response<'_>, times: &mut Timestamps, source: &Source, out: &mut Vec<u8>) {
    let record = response.record;
    let time = times.time_of_day(source.clock.unix_ns(end_ns(response)));
    put(out, format_args!("{}", time.unwrap_or("-               ")));
    match (response.response_ns, response.reason) {
        (Some(ns), None) => put(
            out,
            format_args!(
                "  {}  {:<10}  confidence {:.2}",
                Latency(ns),
                response.method.unwrap_or("-"),
                response.confidence
            ),
        ),
        (ns, reason) => put(
            out,
            format_args!(
                "  {:>7}  no estimate: {}",
                ns.map_or("-".to_owned(), |ns| format!("({})", Latency(ns)).replace(' ', "")),
                reason.unwrap_or("nothing to estimate from")
            ),
        ),
    }
    put(
        out,
        format_args!(
            "  {}  {}  {}",
            counted(response.batches, "batches"),
            counted(record.epoch.packets.into(), "packets"),
            record.flow(),
        ),
    );
    if source.interfaces.several()
        && let Some(name) = source.interfaces.label(record.interface)
    {
        put(out, format_args!("  on {name}"));
    }
    out.push(b'\n');
    if response.show_modes {
        for mode in modes(response) {
            put(
                out,
                format_args!(
                    "    {:>6} gaps of {} to {}, mean {}{}\n",
                    mode.count,
                    Latency(mode.min_ns),
                    Latency(mode.max_ns),
                    Latency(mode.mean_ns),
                    if mode.marked { ", after small packets" } else { "" }
                ),
            );
        }
    }
}

fn end_ns(response: &Response<'_>) -> u64 {
    let epoch = &response.record.epoch;
    epoch.start_ns.wrapping_add(epoch.epoch_ns)
}

fn modes(response: &Response<'_>) -> Vec<Mode> {
    let epoch = &response.record.epoch;
    epoch
        .mode
        .iter()
        .take(usize::from(epoch.modes))
        .map(|mode| Mode {
            min_ns: mode.min_ns,
            max_ns: mode.max_ns,
            mean_ns: mode.sum_ns / u64::from(mode.count.max(1)),
            count: mode.count,
            marked: mode.marked != 0,
        })
        .collect()
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes all");
}
