//! Lines of `dwell response`.

use super::{Latency, UNKNOWN, counted, end_flow_line, put};
use crate::{Response, ResponseLine, ResponseSummary, Source};

/// Writes a table with a line for each flow, server or prefix.
pub(super) fn summary(summary: &ResponseSummary<'_>, out: &mut Vec<u8>) {
    let about = summary.about;
    put(
        out,
        format_args!(
            "epochs  valid  responses     mean      p50      p90      p99  p99 from       to  {about}; why other epochs are not valid\n"
        ),
    );
    summary.lines.iter().for_each(|line| put_line(line, out));
    if summary.cut > 0 {
        put(out, format_args!("{} not shown, because of --top\n", counted(summary.cut as u64, "line", "lines")));
    }
    if summary.other > 0 {
        put(out, format_args!("{:>6}  of others\n", summary.other));
    }
}

fn put_line(line: &ResponseLine<'_>, out: &mut Vec<u8>) {
    let latency = |ns: Option<u64>| ns.map_or_else(|| UNKNOWN.to_owned(), |ns| Latency(ns).to_string());
    let [p50, p90, p99] = line.responses.quantiles_ns([0.5, 0.9, 0.99]).map(latency);
    let mean = latency(line.responses.mean_ns());
    let (least, most) = line.p99_bounds_ns;
    let why = line.commonest_reason().map_or(String::new(), |(reason, epochs)| format!("; mostly {reason}: {epochs}"));
    put(
        out,
        format_args!(
            "{:>6}  {:>3.0} %  {:>9}  {mean:>7}  {p50:>7}  {p90:>7}  {p99:>7}  {:>8}  {:>7}  {}{why}\n",
            line.epochs,
            line.valid as f64 / line.epochs as f64 * 100.0,
            line.responses.count(),
            latency(least),
            latency(most),
            line.name,
        ),
    );
}

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
