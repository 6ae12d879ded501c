//! Tables of distributions for people.

use dwell_engine::{
    labels::harmless,
    measure::{Method, Tunnel},
    rtt::Figures,
};

use super::{Colour, Ends, UNKNOWN, cell, counted, style::place_of_worst};
use crate::{Distribution, Interval, PathObject, Prefix, Source, Summary, name_note};

const FIGURES: [&str; 10] = ["count", "min", "p50", "p90", "p99", "max", "mean", "queue", "resent", "CE"];

/// Writes one line per group of interface, method and prefix.
pub(super) fn interval(interval: &Interval<'_>, source: &Source, colour: Colour, out: &mut Vec<u8>) {
    let mut table = Table::new(&["interface", "method", "prefix"]);
    for group in interval.ordered() {
        let names = match &group.key {
            Some(key) => {
                [interface(key.interface, key.tunnel, source), key.method.name().into(), prefix(&key.prefix, source)]
            }
            None => ["other".into(), UNKNOWN.into(), UNKNOWN.into()],
        };
        table.add(names.into(), group.key.map(|key| key.method), &group.figures);
    }
    table.write(colour, out);
}

/// Writes one line per flow and method, most samples first; flows beyond the limit share one line per method at the
/// end.
pub(super) fn summary(summary: &Summary, source: &Source, colour: Colour, out: &mut Vec<u8>) {
    let mut table = Table::new(&["interface", "flow", "method"]);
    for flow in summary.flows() {
        let key = flow.key;
        let ends = Ends { src: &key.src, dst: &key.dst, protocol: key.protocol };
        let names = vec![
            interface(key.interface, key.tunnel, source),
            format!("{:<6}  {ends}", key.protocol),
            key.method.name().into(),
        ];
        table.add(names, Some(key.method), flow.figures);
        *table.notes.last_mut().expect("a row was added") = name_note(source, &key.src, &key.dst, key.protocol);
    }
    for (method, figures) in summary.other() {
        let names = vec![UNKNOWN.into(), "other flows".into(), method.name().into()];
        table.add(names, Some(method), figures);
    }
    if table.rows.is_empty() {
        out.extend_from_slice(b"No samples.\n");
        return;
    }
    table.write(colour, out);
    if summary.cut() > 0 {
        let note = format!("{} not shown, because of --top.\n", counted(summary.cut() as u64, "line", "lines"));
        out.extend_from_slice(note.as_bytes());
    }
    if summary.overflowed() {
        let note = format!(
            "Only the first {} flows have lines of their own: \"other flows\" are those that came later.\n",
            summary.limit()
        );
        out.extend_from_slice(note.as_bytes());
    }
}

fn prefix(prefix: &Prefix, source: &Source) -> String {
    let written = prefix.to_string();
    match source.prefixes.name(prefix) {
        Some(name) if name != written => format!("{written} {}", harmless(name)),
        _ => written,
    }
}

fn interface(number: u32, tunnel: Tunnel, source: &Source) -> String {
    let name = match source.interfaces.label(number) {
        Some(label) => harmless(&label),
        None => UNKNOWN.into(),
    };
    if tunnel.is_none() { name } else { format!("{name} {tunnel}") }
}

/// Formats a part of a number of packets as a percentage; a dash if either is unknown or there were none.
fn share(part: Option<u64>, all: Option<u64>) -> String {
    match (part, all) {
        (Some(0), Some(1..)) => "0 %".into(),
        (Some(part), Some(all @ 1..)) => format!("{:.2} %", part as f64 * 100.0 / all as f64),
        _ => UNKNOWN.into(),
    }
}

/// Cells that are names, flush left, then the figures, flush right.
struct Table {
    names: usize,
    rows: Vec<Vec<String>>,
    /// The 99th percentile of each row. The worst is coloured.
    p99s: Vec<Option<u64>>,
    /// What follows each row, without a heading.
    notes: Vec<String>,
    heads: Vec<&'static str>,
}

impl Table {
    fn new(names: &[&'static str]) -> Table {
        Table {
            names: names.len(),
            rows: Vec::new(),
            p99s: Vec::new(),
            notes: Vec::new(),
            heads: [names, &FIGURES].concat(),
        }
    }

    fn add(&mut self, mut row: Vec<String>, method: Option<Method>, figures: &Figures) {
        let (rtt, path) = (Distribution::from(&figures.histogram), PathObject::new(method, figures));
        row.push(rtt.count.to_string());
        let queue_ns = path.queue_mean_ns;
        for ns in [rtt.min_ns, rtt.p50_ns, rtt.p90_ns, rtt.p99_ns, rtt.max_ns, rtt.mean_ns, queue_ns] {
            row.push(cell(ns));
        }
        row.push(share(path.retransmitted, path.data_segments));
        row.push(share(path.ce, path.packets_back));
        self.rows.push(row);
        self.p99s.push(rtt.p99_ns);
        self.notes.push(String::new());
    }

    fn write(&self, colour: Colour, out: &mut Vec<u8>) {
        let worst = place_of_worst(self.p99s.iter().copied());
        let last = self.heads.last().copied();
        columns(&self.heads, self.names, &self.rows, out, |row, head, cell| match head {
            "p99" if worst == Some(row) => colour.worst(cell),
            head if Some(head) == last => cell + &self.notes[row],
            _ => cell,
        });
    }
}

/// Writes headings and rows in columns: the first `names` flush left, the others flush right. `paint` may colour the padded
/// cell of a row below a heading.
pub(super) fn columns(
    heads: &[&str],
    names: usize,
    rows: &[Vec<String>],
    out: &mut Vec<u8>,
    paint: impl Fn(usize, &str, String) -> String,
) {
    let titles: Vec<String> = heads.iter().map(|head| head.to_string()).collect();
    let lines = || std::iter::once(&titles).chain(rows);
    let width = |column: usize| {
        let widths = lines().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for (place, line) in lines().enumerate() {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if column > 0 {
                text += "  ";
            }
            let padded = if column < names { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            text += &match place.checked_sub(1) {
                Some(row) => paint(row, heads[column], padded),
                None => padded,
            };
        }
        out.extend_from_slice(text.trim_end().as_bytes());
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::measure::{Method, Sample, Tunnel};

    use crate::{Format, Group, GroupKey, Interfaces, Interval, Prefix, Record, Summary, Text, formats::samples};

    fn group(prefix: Option<(&str, u8)>, rtts_ns: &[u64]) -> Group {
        let mut figures = dwell_engine::rtt::Figures::default();
        rtts_ns.iter().for_each(|rtt| figures.add(&Sample { rtt_ns: *rtt, base_ns: 900, ..samples::tcp4() }));
        Group {
            key: prefix.map(|(address, bits)| GroupKey {
                interface: 2,
                tunnel: Tunnel(0),
                method: Method::TcpTimestamp,
                prefix: Prefix { address: address.parse().unwrap(), bits },
            }),
            figures,
        }
    }

    fn interval(groups: &[Group]) -> String {
        let mut out = Vec::new();
        let interval = Interval { end_ns: 1_000_000_000, length_ns: 1_000_000_000, groups };
        Text::default().write(&Record::Interval(&interval), &samples::source(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn groups_of_an_interval_with_other_last() {
        let groups = [
            group(None, &[61_000_000_000]),
            group(Some(("192.0.2.0", 24)), &[900, 1_500_000, 25_000_000]),
            group(Some(("2001:db8::", 48)), &[2_000_000_000]),
        ];
        insta::assert_snapshot!(interval(&groups), @"
        05:10:01.000000Z  5 samples in 1.00 s
        interface  method         prefix         count      min      p50      p90      p99      max     mean    queue  resent      CE
        eth0       tcp-timestamp  192.0.2.0/24       3   900 ns  1.50 ms  25.0 ms  25.0 ms  25.0 ms  8.83 ms  8.83 ms  1.50 %  4.00 %
        eth0       tcp-timestamp  2001:db8::/48      1  2.00 s   2.00 s   2.00 s   2.00 s   2.00 s   2.00 s   2.00 s   1.50 %  4.00 %
        other      -              -                  1  61.0 s   61.0 s   61.0 s   61.0 s   61.0 s   61.0 s   61.0 s   1.50 %  4.00 %
        ");
    }

    #[test]
    fn an_interval_without_samples_is_one_line() {
        assert_eq!(interval(&[]), "05:10:01.000000Z  0 samples in 1.00 s\n");
    }

    fn summary(limit: usize) -> String {
        let mut summary = Summary::new(limit);
        let [tcp4, tcp6, ping, ..] = &samples::all()[..] else { unreachable!("there are more") };
        for (sample, times) in [(ping, 1), (tcp4, 2), (tcp6, 3)] {
            (0..times).for_each(|_| summary.add(sample));
        }
        let mut out = Vec::new();
        Text::default().write(&Record::Summary(&summary), &samples::source(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn flows_of_a_summary_by_count() {
        insta::assert_snapshot!(summary(10), @"
        interface  flow                                                   method         count      min      p50      p90      p99      max     mean    queue  resent      CE
        eth0       TCP     [2001:db8::1]:50000 → [2001:db8:0:1::443]:443  tcp-seq            3   456 µs   456 µs   456 µs   456 µs   456 µs   456 µs     0 ns     0 %     0 %
        eth0       TCP     192.0.2.1:44321 → 198.51.100.7:443             tcp-timestamp      2  1.23 ms  1.23 ms  1.23 ms  1.23 ms  1.23 ms  1.23 ms  34.6 µs  1.50 %  4.00 %
        7          ICMP    192.0.2.1 → 203.0.113.255 id 17                icmp               1   789 ns   789 ns   789 ns   789 ns   789 ns   789 ns   789 ns       -     0 %
        ");
    }

    #[test]
    fn a_summary_tells_of_flows_beyond_its_limit() {
        insta::assert_snapshot!(summary(1), @r#"
        interface  flow                                     method         count      min      p50      p90      p99      max     mean    queue  resent      CE
        7          ICMP    192.0.2.1 → 203.0.113.255 id 17  icmp               1   789 ns   789 ns   789 ns   789 ns   789 ns   789 ns   789 ns       -     0 %
        -          other flows                              tcp-timestamp      2  1.23 ms  1.23 ms  1.23 ms  1.23 ms  1.23 ms  1.23 ms  34.6 µs  1.50 %  4.00 %
        -          other flows                              tcp-seq            3   456 µs   456 µs   456 µs   456 µs   456 µs   456 µs     0 ns     0 %     0 %
        Only the first 1 flows have lines of their own: "other flows" are those that came later.
        "#);
    }

    #[test]
    fn a_summary_of_nothing_says_so_and_unknown_interfaces_are_a_dash() {
        let mut out = Vec::new();
        let mut source = samples::source();
        Text::default().write(&Record::Summary(&Summary::new(1)), &source, &mut out);
        assert_eq!(out, b"No samples.\n");
        out.clear();
        source.interfaces = Interfaces::unknown();
        let mut summary = Summary::new(1);
        summary.add(&samples::tcp4());
        Text::default().write(&Record::Summary(&summary), &source, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().nth(1).unwrap().starts_with("-          TCP"));
    }
}
