//! Objects of `dwell response`.

use std::{borrow::Cow, net::IpAddr};

use serde::Serialize;

use super::Objects;
use crate::{Mode, Response};

const SCHEMA: &str = "dwell.response/1";

/// `type` "response": an epoch of a flow that ended at `time`. `response_ns` is null where there is no estimate;
/// `valid` is false, with a `reason`, where the estimate should not be believed.
#[derive(Serialize)]
struct Object<'a> {
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

pub(super) fn epoch(response: &Response<'_>, objects: &mut Objects<'_>) {
    let record = response.record;
    let port = |port| record.key.has_ports().then_some(port);
    let body = Object {
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
        modes: response.show_modes.then(|| response.modes().collect()),
        interface: objects.source.interfaces.label(record.interface),
    };
    objects.write("response", SCHEMA, Some(response.end_ns()), &body);
}
