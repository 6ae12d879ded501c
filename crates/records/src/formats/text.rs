//! Lines for people, and for grep and awk.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    io::Write,
};

use dwell_engine::{
    layers::Passage,
    measure::{Endpoint, FlowChange, FlowEvent, Protocol, Sample},
    rtt::{Counter, Counters},
};

use super::{Format, Latency, path, response, shift, socket, socket_summary, stack, table};
use crate::{Interval, PathTable, Response, SocketEnd, Sockets, Source, Stack, StackShift, Summary, Timestamps};

/// A line a sample: time of day (UTC), round trip, the flow's least so far,
/// method, and who asked → who answered. A line ends with `handshake` where
/// the sample comes from a connection's opening, and with `on` an interface
/// where several are watched.
#[derive(Debug, Clone, Default)]
pub struct Text {
    times: Timestamps,
    sockets: socket::Lines,
}

impl Format for Text {
    fn sample(&mut self, sample: &Sample, source: &Source, out: &mut Vec<u8>) {
        self.time(sample.time_ns, source, out);
        put(
            out,
            format_args!(
                "  {}  min {}  {:<14}  {}",
                Latency(sample.rtt_ns),
                Latency(sample.min_rtt_ns),
                sample.method.name(),
                Ends::of(&sample.src, &sample.dst, sample.protocol),
            ),
        );
        if sample.handshake {
            out.extend_from_slice(b"  handshake");
        }
        end_line(sample.interface, source, out);
    }

    fn flow(&mut self, event: &FlowEvent, source: &Source, out: &mut Vec<u8>) {
        self.time(event.time_ns, source, out);
        let change = match event.change {
            FlowChange::Open => "open",
            FlowChange::FirstRtt(..) => "first rtt",
            FlowChange::Close(_) => "close",
        };
        put(
            out,
            format_args!(
                "  {change:<20}  {:<14}  {}",
                event.protocol,
                Ends::of(&event.src, &event.dst, event.protocol)
            ),
        );
        match event.change {
            FlowChange::Open => {}
            FlowChange::FirstRtt(method, rtt_ns) => {
                put(out, format_args!("  {} by {method}", Trimmed(Latency(rtt_ns))))
            }
            FlowChange::Close(reason) => put(
                out,
                format_args!(
                    "  {} after {}, {}, {}, {}",
                    reason.name(),
                    Trimmed(Latency(event.time_ns.saturating_sub(event.first_ns))),
                    counted(event.samples.into(), "samples"),
                    counted(event.packets, "packets"),
                    counted(event.bytes, "bytes")
                ),
            ),
        }
        end_line(event.interface, source, out);
    }

    fn response(&mut self, response: &Response<'_>, source: &Source, out: &mut Vec<u8>) {
        response::text(response, &mut self.times, source, out);
    }

    fn stack(&mut self, interval: &Stack<'_>, source: &Source, out: &mut Vec<u8>) {
        self.time(interval.end_ns, source, out);
        stack::text(interval, out);
    }

    fn passage(&mut self, _host: &str, passage: &Passage, source: &Source, out: &mut Vec<u8>) {
        let end_ns = stack::end_ns(passage).unwrap_or_default();
        self.time(end_ns, source, out);
        stack::passage_text(passage, out);
    }

    fn path(&mut self, path: &PathTable<'_>, source: &Source, out: &mut Vec<u8>) {
        self.time(path.end_ns, source, out);
        path::text(path, out);
    }

    fn shift(&mut self, shift: &StackShift<'_>, source: &Source, out: &mut Vec<u8>) {
        self.time(shift.end_ns, source, out);
        shift::text(shift, out);
    }

    fn sockets(&mut self, sockets: &Sockets<'_>, source: &Source, out: &mut Vec<u8>) {
        self.sockets.write(sockets, &mut self.times, source, out);
    }

    fn socket_end(&mut self, end: &SocketEnd<'_>, _source: &Source, out: &mut Vec<u8>) {
        socket_summary::text(end, out);
    }

    fn interval(&mut self, interval: &Interval<'_>, source: &Source, out: &mut Vec<u8>) {
        self.time(interval.end_ns, source, out);
        let samples: u64 = interval.groups.iter().map(|group| group.histogram.count()).sum();
        put(out, format_args!("  {} in {}\n", counted(samples, "samples"), Trimmed(Latency(interval.length_ns))));
        if samples > 0 {
            table::interval(interval, source, out);
            out.push(b'\n');
        }
    }

    fn summary(&mut self, summary: &Summary, source: &Source, out: &mut Vec<u8>) {
        table::summary(summary, source, out);
    }
}

impl Text {
    /// What a run has counted, as one line without its end: packets and
    /// samples, which have the name that the verb gives them, then everything else
    /// that is not 0.
    pub fn counters(counters: &Counters, samples: &str) -> String {
        let first = [Counter::Packets, Counter::Samples, Counter::EventsLost];
        // the table's own affair
        let untold = Counter::PlacesFreed;
        let others = Counter::ALL
            .into_iter()
            .filter(|counter| !first.contains(counter) && *counter != untold && counters.get(*counter) > 0);
        let parts: Vec<_> = first
            .into_iter()
            .chain(others)
            .map(|counter| {
                let name = match counter {
                    Counter::Samples => samples.to_owned(),
                    _ => counter.name().replace('_', " "),
                };
                counted(counters.get(counter), &name)
            })
            .collect();
        parts.join(", ")
    }

    fn time(&mut self, time_ns: u64, source: &Source, out: &mut Vec<u8>) {
        let time = self.times.time_of_day(source.clock.unix_ns(time_ns));
        out.extend_from_slice(time.unwrap_or("-               ").as_bytes());
    }
}

/// A number and what it counts, which is given in the plural: "1 flow opened", "2 flows opened".
pub fn counted(number: u64, things: &str) -> String {
    let (noun, rest) = things.split_at(things.find(' ').unwrap_or(things.len()));
    let noun = match noun {
        "bytes" | "connections" | "epochs" | "events" | "flows" | "packets" | "rows" | "samples" | "stamps"
        | "times"
            if number == 1 =>
        {
            &noun[..noun.len() - 1]
        }
        "batches" if number == 1 => "batch",
        _ => noun,
    };
    format!("{number} {noun}{rest}")
}

/// Both ends of a flow: "192.0.2.1:443 → [2001:db8::1]:50000", and for ICMP
/// "192.0.2.1 → 192.0.2.2 id 17".
pub(super) struct Ends<'a> {
    src: &'a Endpoint,
    dst: &'a Endpoint,
    protocol: Protocol,
}

impl<'a> Ends<'a> {
    pub(super) fn of(src: &'a Endpoint, dst: &'a Endpoint, protocol: Protocol) -> Ends<'a> {
        Ends { src, dst, protocol }
    }
}

impl Display for Ends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.protocol.is_icmp() {
            let (src, dst) = (self.src.address, self.dst.address);
            write!(f, "{src} → {dst} id {}", self.src.port)
        } else {
            write!(f, "{} → {}", self.src, self.dst)
        }
    }
}

/// Without the spaces that align it.
pub(super) struct Trimmed(pub(super) Latency);

impl Display for Trimmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().trim())
    }
}

/// A name from outside, which may come from a capture of unknown origin: what
/// would move a terminal's cursor is replaced.
pub(super) fn printable(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_control) {
        Cow::Owned(name.replace(char::is_control, "\u{fffd}"))
    } else {
        Cow::Borrowed(name)
    }
}

fn end_line(interface: u32, source: &Source, out: &mut Vec<u8>) {
    if source.interfaces.several()
        && let Some(label) = source.interfaces.label(interface)
    {
        put(out, format_args!("  on {}", printable(&label)));
    }
    out.push(b'\n');
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes all");
}

#[cfg(test)]
mod tests {
    use dwell_engine::abi;

    use super::{super::samples, *};

    fn text(source: &Source) -> String {
        let (mut format, mut out) = (Text::default(), Vec::new());
        for sample in samples::all() {
            format.sample(&sample, source, &mut out);
        }
        for event in samples::flows() {
            format.flow(&event, source, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_a_sample_and_a_line_a_flow_event() {
        insta::assert_snapshot!(text(&samples::source()), @"
        05:10:00.123456Z  1.23 ms  min 1.10 ms  tcp-timestamp   192.0.2.1:44321 → 198.51.100.7:443
        05:10:01.000000Z   456 µs  min  456 µs  tcp-seq         [2001:db8::1]:50000 → [2001:db8:0:1::443]:443  handshake
        05:10:02.000000Z   789 ns  min    0 ns  icmp            192.0.2.1 → 203.0.113.255 id 17
        06:09:59.999999Z  12.3 s   min 1.00 ms  icmpv6          fe80::1 → fe80::2 id 65535
        05:10:00.123456Z  18446744074 s   min 20.0 ms  quic-spin-loop  192.0.2.1:44321 → 198.51.100.7:443
        05:10:00.123456Z  1.23 ms  min 1.10 ms  dns             192.0.2.1:44321 → 198.51.100.7:443
        05:10:00.010000Z  open                  TCP             192.0.2.1:44321 → 198.51.100.7:443
        05:10:00.035000Z  first rtt             TCP             192.0.2.1:44321 → 198.51.100.7:443  25.0 ms by tcp-timestamp
        05:11:01.500000Z  close                 ICMPv6          fe80::1 → fe80::2 id 9  idle after 61.5 s, 3 samples, 6 packets, 708 bytes
        ");
    }

    #[test]
    fn with_several_interfaces_each_line_names_its_own() {
        let mut source = samples::source();
        source.interfaces.insert(7, "wg\u{1b}[2J0");
        let text = text(&source);
        assert_eq!(text.matches("  on eth0\n").count(), 8);
        assert_eq!(text.matches("  on wg\u{fffd}[2J0\n").count(), 1);
    }

    #[test]
    fn a_time_that_cannot_be_written_keeps_the_columns() {
        let mut source = samples::source();
        source.clock = crate::Clock::with_offset(i128::MAX);
        let mut out = Vec::new();
        Text::default().sample(&samples::tcp4(), &source, &mut out);
        assert!(out.starts_with(b"-                 1.23 ms  min 1.10 ms"));
    }

    #[test]
    fn counters_name_what_was_not_used() {
        let mut raw = abi::dwell_counters::default();
        raw.value[abi::DWELL_SEEN_PACKETS as usize] = 10;
        raw.value[abi::DWELL_SKIP_NOT_IP as usize] = 3;
        let line = Text::counters(&Counters::sum([&raw]), "samples");
        assert_eq!(line, "10 packets, 0 samples, 0 events lost, 3 not ip");
    }

    #[test]
    fn one_of_a_kind_is_singular() {
        let mut raw = abi::dwell_counters::default();
        raw.value.fill(1);
        insta::assert_snapshot!(Text::counters(&Counters::sum([&raw]), "samples"), @"1 packet, 1 sample, 1 event lost, 1 byte, 1 not ip, 1 other protocol, 1 truncated, 1 malformed, 1 fragment, 1 too deep, 1 filtered, 1 unknown link, 1 server, 1 stray, 1 flow opened, 1 flow evicted, 1 flow expired, 1 untracked, 1 contended, 1 stamp, 1 stamp overwritten, 1 ambiguous, 1 spin early, 1 spin order, 1 backwards, 1 aggregate other");
    }
}
