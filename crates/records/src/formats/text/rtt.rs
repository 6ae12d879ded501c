//! Lines of `dwell rtt`.

use dwell_engine::measure::{FlowChange, FlowEvent, Sample, Tunnel};

use super::{Colour, Ends, Latency, counted, end_flow_line, put, table, trimmed};
use crate::{Interval, Source};

/// Writes a sample: the round trip, the flow's least so far, the method, and who asked → who answered; `handshake`
/// where it comes from a connection's opening.
pub(super) fn sample(sample: &Sample, source: &Source, out: &mut Vec<u8>) {
    let Sample { src, dst, protocol, .. } = sample;
    put(
        out,
        format_args!(
            "  {}  min {}  {:<14}  {}",
            Latency(sample.rtt_ns),
            Latency(sample.min_rtt_ns),
            sample.method.name(),
            Ends { src, dst, protocol: *protocol },
        ),
    );
    if sample.handshake {
        out.extend_from_slice(b"  handshake");
    }
    end_tunnel(sample.tunnel, out);
    end_flow_line(sample.interface, (src, dst, *protocol), source, out);
}

/// Writes a change in the life of a flow.
pub(super) fn flow(event: &FlowEvent, source: &Source, out: &mut Vec<u8>) {
    let FlowEvent { src, dst, protocol, .. } = event;
    let change = match event.change {
        FlowChange::Open => "open",
        FlowChange::FirstRtt(..) => "first rtt",
        FlowChange::Close(_) => "close",
    };
    put(out, format_args!("  {change:<20}  {:<14}  {}", event.protocol, Ends { src, dst, protocol: *protocol }));
    match event.change {
        FlowChange::Open => {}
        FlowChange::FirstRtt(method, rtt_ns) => put(out, format_args!("  {} by {method}", trimmed(rtt_ns))),
        FlowChange::Close(reason) => put(
            out,
            format_args!(
                "  {} after {}, {}, {}, {}",
                reason.name(),
                trimmed(event.time_ns.saturating_sub(event.first_ns)),
                counted(event.samples.into(), "sample", "samples"),
                counted(event.packets, "packet", "packets"),
                counted(event.bytes, "byte", "bytes")
            ),
        ),
    }
    end_tunnel(event.tunnel, out);
    end_flow_line(event.interface, (src, dst, *protocol), source, out);
}

fn end_tunnel(tunnel: Tunnel, out: &mut Vec<u8>) {
    if !tunnel.is_none() {
        put(out, format_args!("  in {tunnel}"));
    }
}

/// Writes an interval: how many samples there were, then a table of its groups.
pub(super) fn interval(interval: &Interval<'_>, source: &Source, colour: Colour, out: &mut Vec<u8>) {
    let samples: u64 = interval.groups.iter().map(|group| group.figures.histogram.count()).sum();
    put(out, format_args!("  {} in {}\n", counted(samples, "sample", "samples"), trimmed(interval.length_ns)));
    if samples > 0 {
        table::interval(interval, source, colour, out);
        out.push(b'\n');
    }
}
