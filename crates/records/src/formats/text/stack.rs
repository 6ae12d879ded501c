//! Tables of `dwell stack`.

use dwell_engine::{
    histogram::Histogram,
    layers::{Direction, Ends, Segment, SegmentFigures},
};

use super::{Colour, UNKNOWN, cell, counted, put, style::place_of_worst, tcp_names, trimmed};
use crate::{Distribution, Source, Stack, StackByte, StackFlow, StackHop, record::complete_bytes};

pub(super) const HEADS: [&str; 7] = ["count", "mean", "p50", "p90", "p99", "max", "share"];

/// Writes a byte: its flow, and its time in each segment.
pub(super) fn byte_trace(byte: &StackByte<'_>, source: &Source, out: &mut Vec<u8>) {
    let StackByte { trace, namespace } = *byte;
    let ends = &trace.ends;
    put(out, format_args!("  {} → {} seq {} {}", ends.src, ends.dst, trace.seq, trace.direction.name()));
    if trace.again {
        put(out, format_args!(" again"));
    }
    let segments = Segment::ALL
        .iter()
        .filter(|segment| segment.direction() == trace.direction && !segment.name().starts_with("unexplained"));
    for segment in segments {
        let ns = trace.segment_ns(*segment);
        let cell = ns.map_or(UNKNOWN.into(), trimmed);
        put(out, format_args!("  {} {cell}", segment.name()));
    }
    put(out, format_args!("{}\n", place(source, ends, namespace)));
}

/// Writes how many bytes were stamped, then a table: one line per segment, parts of a segment below it, the total of
/// each side last. A side that no byte went through has no lines.
pub(super) fn interval(stack: &Stack<'_>, source: &Source, colour: Colour, out: &mut Vec<u8>) {
    let sent = complete_bytes(stack.segments, Direction::Tx);
    let read = complete_bytes(stack.segments, Direction::Rx);
    put(
        out,
        format_args!(
            "  {} sent and {} read were stamped in {}, 1 byte in {}\n",
            counted(sent, "byte", "bytes"),
            counted(read, "byte", "bytes"),
            trimmed(stack.length_ns),
            stack.sample_bytes
        ),
    );
    let again = [Direction::Tx, Direction::Rx].map(|direction| complete_bytes(stack.again, direction));
    let is_any = sent > 0 || read > 0 || again != [0, 0];
    if !is_any && stack.hops.is_empty() {
        return;
    }
    if is_any {
        put(out, format_args!("{:<17}", "segment"));
        heads(HEADS.len(), out);
    }
    lines(stack, stack.segments, colour, out);
    if again != [0, 0] {
        put(out, format_args!("sent or received again\n"));
        lines(stack, stack.again, colour, out);
    }
    hops(stack.hops, out);
    flows(stack, Direction::Tx, source, out);
    flows(stack, Direction::Rx, source, out);
    if stack.flows_cut > 0 {
        put(out, format_args!("{} not shown, because of --top\n", counted(stack.flows_cut as u64, "flow", "flows")));
    }
    out.push(b'\n');
}

/// Writes the first `columns` heads, and the end of the line.
pub(super) fn heads(columns: usize, out: &mut Vec<u8>) {
    for (index, head) in HEADS.iter().take(columns).enumerate() {
        let width = if index == 0 { 8 } else { 9 };
        put(out, format_args!("{head:>width$}"));
    }
    out.push(b'\n');
}

/// Writes one line per segment, the total of each side last. The largest share of a side is coloured.
fn lines(stack: &Stack<'_>, all: &[SegmentFigures], colour: Colour, out: &mut Vec<u8>) {
    for direction in [Direction::Tx, Direction::Rx] {
        if complete_bytes(all, direction) == 0 {
            continue;
        }
        let mut of_side: Vec<_> = all.iter().filter(|one| one.segment.direction() == direction).collect();
        of_side.sort_by_key(|one| one.segment == one.segment.total());
        let shares = of_side.iter().map(|one| {
            let is_part = !one.segment.is_whole() && one.segment.part_of().is_none();
            stack.share(one, all).filter(|_| is_part).map(|share| (share * 1e6) as u64)
        });
        let worst = place_of_worst(shares);
        for (place, one) in of_side.into_iter().enumerate() {
            let colour = if worst == Some(place) { colour } else { Colour::default() };
            line(stack, one, all, colour, out);
        }
    }
}

/// Writes one line per flow: count, mean and p99 of its total, then the mean of each segment.
fn flows(stack: &Stack<'_>, direction: Direction, source: &Source, out: &mut Vec<u8>) {
    let mut flows = stack.flows.iter().filter(|flow| complete_bytes(flow.segments, direction) > 0).peekable();
    let Some(first) = flows.peek() else {
        return;
    };
    let is_column = |one: &&SegmentFigures| one.segment.direction() == direction && !one.segment.is_whole();
    put(out, format_args!("\n{:<9}{:>8}{:>9}{:>9}", format!("{} flows", direction.name()), "count", "mean", "p99"));
    for one in first.segments.iter().filter(is_column) {
        put(out, format_args!("{:>12}", one.segment.name()));
    }
    put(out, format_args!("  flow (means of its segments)\n"));
    for StackFlow { ends, namespace, segments: all } in flows {
        let total = all.iter().find(|one| one.segment.direction() == direction && one.segment == one.segment.total());
        let total = total.map(|one| Distribution::from(&one.histogram));
        put(
            out,
            format_args!(
                "{:<9}{:>8}{:>9}{:>9}",
                "",
                total.map_or(0, |total| total.count),
                cell(total.and_then(|total| total.mean_ns)),
                cell(total.and_then(|total| total.p99_ns)),
            ),
        );
        for one in all.iter().filter(is_column) {
            put(out, format_args!("{:>12}", cell(one.histogram.mean_ns())));
        }
        let place = place(source, ends, namespace.as_deref());
        put(out, format_args!("  {} → {}{place}\n", ends.src, ends.dst));
    }
}

/// What follows the ends of a flow: its names, or its namespace if that is another than dwell's, whose names are unknown.
fn place(source: &Source, ends: &Ends, namespace: Option<&str>) -> String {
    match namespace {
        None => tcp_names(source, ends),
        Some(namespace) => format!(" @{namespace}"),
    }
}

fn line(stack: &Stack<'_>, one: &SegmentFigures, all: &[SegmentFigures], colour: Colour, out: &mut Vec<u8>) {
    let indent = if one.segment.part_of().is_some() { "  " } else { "" };
    let name = format!("{} {indent}{}", one.segment.direction().name(), one.segment.name());
    put(out, format_args!("{name:<17}"));
    if let Some(layer) = stack.hooks_of(one.segment).missing {
        put(out, format_args!("{UNKNOWN:>8}  missing: no hook for {} here\n", layer.name()));
        return;
    }
    figures(&one.histogram, out);
    share(stack.share(one, all), colour, out);
}

/// Writes the last column, coloured if `colour` is on, and the end of the line.
pub(super) fn share(share: Option<f64>, colour: Colour, out: &mut Vec<u8>) {
    let share = share.map_or(UNKNOWN.into(), |share| format!("{:.1} %", share * 100.0));
    put(out, format_args!("{}\n", colour.worst(format_args!("{share:>9}"))));
}

/// Writes count, mean, quantiles and maximum, below their heads.
pub(super) fn figures(histogram: &Histogram, out: &mut Vec<u8>) {
    let figures = Distribution::from(histogram);
    put(out, format_args!("{:>8}", figures.count));
    for ns in [figures.mean_ns, figures.p50_ns, figures.p90_ns, figures.p99_ns, figures.max_ns] {
        put(out, format_args!("{:>9}", cell(ns)));
    }
}

/// Writes one line per hop, and a head for each path through the devices. A hop has no share.
fn hops(hops: &[StackHop], out: &mut Vec<u8>) {
    let label = |hop: &StackHop| format!("  {} → {}", hop.from, hop.to);
    let labels = hops.iter().map(|hop| label(hop).chars().count());
    let width = labels.max().unwrap_or(0).max("devices".len() + 2);
    for (index, hop) in hops.iter().enumerate() {
        if index == 0 || hops[index - 1].origin != hop.origin {
            let head = if index == 0 { "devices" } else { "" };
            put(out, format_args!("\n{head:<width$}"));
            heads(HEADS.len() - 1, out);
        }
        put(out, format_args!("{:<width$}", label(hop)));
        figures(&hop.histogram, out);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use dwell_engine::layers::{Layer, SegmentHooks};

    use super::*;
    use crate::{Format, Jsonl, Record, Text, formats::samples};

    static HOOKS: LazyLock<Vec<SegmentHooks>> = LazyLock::new(|| {
        let hook = |layer: Layer| Some(format!("hook/{}", layer.name())).filter(|_| layer != Layer::TxTcp);
        let hooks = Segment::ALL.into_iter().map(|segment| {
            let (from, to) = segment.ends();
            let missing = (from == Layer::TxTcp).then_some(from);
            SegmentHooks { from: hook(from), to: hook(to), missing }
        });
        hooks.collect()
    });

    fn segments() -> Vec<SegmentFigures> {
        let row = |segment: Segment, values: &[u64]| {
            let mut histogram = Histogram::default();
            values.iter().for_each(|ns| histogram.record(*ns));
            SegmentFigures { segment, histogram }
        };
        vec![
            row(Segment::SocketTcp, &[600_000_000, 400_000_000]),
            row(Segment::TcpIp, &[]),
            row(Segment::IpDriver, &[100_000_000, 100_000_000]),
            row(Segment::Queueing, &[99_000_000, 99_000_000]),
            row(Segment::TxTotal, &[701_000_000, 500_000_000]),
            row(Segment::TxUnexplained, &[1_000_000]),
            row(Segment::RxTotal, &[]),
        ]
    }

    fn stack(segments: &[SegmentFigures]) -> Stack<'_> {
        Stack {
            end_ns: 1_000_000_000,
            length_ns: 1_000_000_000,
            sample_bytes: 16384,
            segments,
            again: &[],
            flows: &[],
            flows_cut: 0,
            hooks: &HOOKS,
            hops: &[],
        }
    }

    #[test]
    fn a_table_has_parts_below_their_segment_and_the_total_last() {
        let mut out = Vec::new();
        Text::default().write(&Record::Stack(&stack(&segments())), &samples::source(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\
05:10:01.000000Z  2 bytes sent and 0 bytes read were stamped in 1.00 s, 1 byte in 16384
segment             count     mean      p50      p90      p99      max    share
tx socket-tcp           2   500 ms   401 ms   600 ms   600 ms   600 ms   83.3 %
tx tcp-ip               -  missing: no hook for tx-tcp here
tx ip-driver            2   100 ms   100 ms   100 ms   100 ms   100 ms   16.7 %
tx   queueing           2  99.0 ms  99.0 ms  99.0 ms  99.0 ms  99.0 ms   16.5 %
tx unexplained          1  1.00 ms  1.00 ms  1.00 ms  1.00 ms  1.00 ms    0.1 %
tx total                2   601 ms   501 ms   700 ms   700 ms   701 ms  100.0 %

"
        );
    }

    #[test]
    fn a_flow_has_a_line_with_the_mean_of_each_segment() {
        let rows = segments();
        let ends = Ends { src: samples::endpoint("192.0.2.1", 44_321), dst: samples::endpoint("2001:db8::1", 443) };
        let flow =
            |namespace: Option<&'static str>| StackFlow { ends, namespace: namespace.map(Into::into), segments: &rows };
        let flows = [flow(None), flow(Some("web"))];
        let stack = Stack { flows: &flows, flows_cut: 2, ..stack(&rows) };
        let mut out = Vec::new();
        Text::default().write(&Record::Stack(&stack), &samples::source(), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.ends_with(
                "
tx flows    count     mean      p99  socket-tcp      tcp-ip   ip-driver    queueing  flow (means of its segments)
                2   601 ms   700 ms      500 ms           -      100 ms     99.0 ms  192.0.2.1:44321 → [2001:db8::1]:443
                2   601 ms   700 ms      500 ms           -      100 ms     99.0 ms  192.0.2.1:44321 → [2001:db8::1]:443 @web
2 flows not shown, because of --top

"
            ),
            "{text}"
        );
        let mut out = Vec::new();
        Jsonl::default().write(&Record::Stack(&stack), &samples::source(), &mut out);
        let objects = String::from_utf8(out).unwrap();
        let of_flow: Vec<serde_json::Value> =
            objects.lines().skip(rows.len()).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(of_flow.len(), 2 * (rows.len() - 1), "nothing was read");
        assert!(of_flow[0]["namespace"].is_null());
        assert_eq!(of_flow[rows.len() - 1]["namespace"], "web");
        assert_eq!(of_flow[0]["flow"]["sport"], 44_321);
        assert_eq!(of_flow[0]["flow"]["dst"], "2001:db8::1");
        assert_eq!(of_flow[0]["share"], 0.832639);
    }

    #[test]
    fn what_was_sent_again_has_lines_of_its_own() {
        let rows = segments();
        let stack = Stack { again: &rows[..5], ..stack(&rows) };
        let mut out = Vec::new();
        Text::default().write(&Record::Stack(&stack), &samples::source(), &mut out);
        let text = String::from_utf8(out).unwrap();
        let (first, again) = text.split_once("sent or received again\n").unwrap();
        assert!(first.ends_with("100.0 %\n"), "{text}");
        assert!(again.starts_with("tx socket-tcp           2   500 ms"), "{text}");
        let mut out = Vec::new();
        Jsonl::default().write(&Record::Stack(&stack), &samples::source(), &mut out);
        let objects = String::from_utf8(out).unwrap();
        assert_eq!(objects.matches("\"retransmitted\":true").count(), 5);
        assert_eq!(objects.matches("\"retransmitted\":false").count(), rows.len());
    }

    #[test]
    fn a_missing_stamp_is_null_and_named() {
        let mut out = Vec::new();
        Jsonl::default().write(&Record::Stack(&stack(&segments())), &samples::source(), &mut out);
        let objects: Vec<serde_json::Value> = out
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(objects.len(), segments().len());
        assert_eq!((&objects[0]["type"], &objects[0]["host"]), (&"stack.segment".into(), &"here".into()));
        assert_eq!(objects[0]["time"], "2026-11-21T05:10:01.000000000Z");
        assert_eq!(objects[0]["segment"], "socket-tcp");
        assert_eq!(objects[0]["latency"]["mean_ns"], 500_000_000);
        assert_eq!(objects[0]["share"], 0.832639);
        assert_eq!(objects[0]["hook_from"], "hook/tx-socket");
        assert!(objects[0]["missing"].is_null() && objects[0]["flow"].is_null());
        assert_eq!(objects[1]["missing"], "tx-tcp");
        assert!(objects[1]["latency"]["count"].is_null() && objects[1]["share"].is_null());
        assert!(objects[1]["hook_from"].is_null());
        assert_eq!(objects[3]["part_of"], "ip-driver");
        assert_eq!(objects[6]["latency"]["count"], 0);
        assert!(objects[6]["share"].is_null(), "no byte was read");
    }
}
