//! Lines of `dwell response`.

use super::{Latency, UNKNOWN, counted, end_flow_line, put};
use crate::{Response, Source};

/// Writes an epoch of a flow, and one line per mode if they are wanted.
pub(super) fn epoch(response: &Response<'_>, source: &Source, out: &mut Vec<u8>) {
    let record = response.record;
    match (response.response_ns, response.reason) {
        (Some(ns), None) => put(
            out,
            format_args!(
                "  {}  {:<10}  confidence {:.2}",
                Latency(ns),
                response.method.unwrap_or(UNKNOWN),
                response.confidence
            ),
        ),
        (ns, reason) => put(
            out,
            format_args!(
                "  {:>7}  no estimate: {}",
                ns.map_or(UNKNOWN.to_owned(), |ns| format!("({})", Latency(ns)).replace(' ', "")),
                reason.unwrap_or("nothing to estimate from")
            ),
        ),
    }
    put(
        out,
        format_args!(
            "  {}  {}  {}",
            counted(response.batches, "batch", "batches"),
            counted(record.epoch.packets.into(), "packet", "packets"),
            record.flow(),
        ),
    );
    end_flow_line(record.interface, (&record.src, &record.dst, record.protocol), source, out);
    if response.show_modes {
        for mode in response.modes() {
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
