//! Lines and tables for people, and for grep and awk.

mod latency;
mod lines;
mod number;
mod path;
mod rate;
mod response;
mod rtt;
mod shift;
mod sockets;
mod stack;
mod style;
mod table;
mod top;
mod why;

use std::{
    fmt::{self, Display},
    io::Write,
};

use dwell_engine::{
    labels::harmless,
    layers,
    measure::{Endpoint, Protocol},
    rtt::{Counter, Counters},
};

use self::style::Colour;
use super::Format;
use crate::{Record, Source, Timestamps, name_note};

pub use latency::Latency;
pub use lines::Lines;
pub use number::counted;
pub use rate::Rate;

/// A cell without a value.
const UNKNOWN: &str = "-";

/// Writes lines that begin with the time of day (UTC), with the date as soon as there is more than one day, and tables. A line
/// names its interface where several are watched.
#[derive(Debug, Clone, Default)]
pub struct Text {
    times: Timestamps,
    sockets: sockets::Lines,
    colour: Colour,
    width: Option<usize>,
}

impl Format for Text {
    fn set_colour(&mut self, is_coloured: bool) {
        self.colour = Colour::new(is_coloured);
    }

    fn set_width(&mut self, width: Option<usize>) {
        self.width = width;
    }

    fn write(&mut self, record: &Record<'_>, source: &Source, out: &mut Vec<u8>) {
        let colour = self.colour;
        match record {
            Record::Sample(sample) => {
                self.time(sample.time_ns, source, out);
                rtt::sample(sample, source, out);
            }
            Record::Flow(event) => {
                self.time(event.time_ns, source, out);
                rtt::flow(event, source, out);
            }
            Record::Interval(interval) => {
                self.time(interval.end_ns, source, out);
                rtt::interval(interval, source, colour, out);
            }
            Record::Summary(summary) => table::summary(summary, source, colour, out),
            Record::Status(_) | Record::Agent(_) => {}
            Record::Gray(failure) => {
                self.time(failure.time_ns, source, out);
                out.extend_from_slice(format!("{failure}\n").as_bytes());
            }
            Record::Response(response) => {
                self.time(response.end_ns(), source, out);
                response::epoch(response, source, out);
            }
            Record::ResponseSummary(summary) => response::summary(summary, out),
            Record::Stack(stack) => {
                self.time(stack.end_ns, source, out);
                stack::interval(stack, source, colour, out);
            }
            Record::ByteTrace(byte) => {
                self.time(crate::record::last_stamp_ns(byte.trace).unwrap_or_default(), source, out);
                stack::byte_trace(byte, source, out);
            }
            Record::Path(path) => {
                self.time(path.end_ns, source, out);
                path::interval(path, out);
            }
            Record::Shift(shift) => {
                self.time(shift.end_ns, source, out);
                shift::comparison(shift, colour, out);
            }
            Record::Sockets(sockets) => self.sockets.write(sockets, &mut self.times, source, out),
            Record::SocketEnd(end) => sockets::summary::write(end, source, colour, out),
            Record::Top(top) => {
                self.time(top.end_ns, source, out);
                top::rows(top, out);
            }
            Record::Why(verdict) => why::verdict(verdict, colour, Lines::of(self.width), out),
        }
    }
}

impl Text {
    /// Formats the counters of a run as one line without its end: packets, samples and lost events, then every other
    /// counter that is not 0. `samples` is the verb's name for a sample, in the singular and the plural.
    pub fn counters(counters: &Counters, samples: (&str, &str)) -> String {
        let first = [Counter::Packets, Counter::Samples, Counter::EventsLost];
        let others = Counter::ALL.into_iter().filter(|counter| {
            // Slots that were freed matter to the flow table alone.
            !first.contains(counter) && *counter != Counter::SlotsFreed && counters.get(*counter) > 0
        });
        let parts: Vec<_> = first
            .into_iter()
            .chain(others)
            .map(|counter| {
                let name = counter.name().replace('_', " ");
                let (one, many) = match counter {
                    Counter::Samples => samples,
                    Counter::Packets => ("packet", "packets"),
                    Counter::EventsLost => ("event lost", "events lost"),
                    Counter::Bytes => ("byte", "bytes"),
                    Counter::FlowsOpened => ("flow opened", "flows opened"),
                    Counter::FlowsEvicted => ("flow evicted", "flows evicted"),
                    Counter::FlowsExpired => ("flow expired", "flows expired"),
                    Counter::Stamps => ("stamp", "stamps"),
                    Counter::StampsOverwritten => ("stamp overwritten", "stamps overwritten"),
                    Counter::GroupsFreed => ("group freed", "groups freed"),
                    _ => (name.as_str(), name.as_str()),
                };
                counted(counters.get(counter), one, many)
            })
            .collect();
        parts.join(", ")
    }

    fn time(&mut self, time_ns: u64, source: &Source, out: &mut Vec<u8>) {
        let width = "05:10:00.123456Z".len() + self.times.date_width();
        match self.times.of_line(source.clock.unix_ns(time_ns)) {
            Some(time) => out.extend_from_slice(time.as_bytes()),
            None => put(out, format_args!("{UNKNOWN:<width$}")),
        }
    }
}

/// Both ends of a flow: "192.0.2.1:443 → [2001:db8::1]:50000", and for ICMP "192.0.2.1 → 192.0.2.2 id 17".
struct Ends<'a> {
    src: &'a Endpoint,
    dst: &'a Endpoint,
    protocol: Protocol,
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

/// The source and the destination of a flow, and its protocol.
type FlowEnds<'a> = (&'a Endpoint, &'a Endpoint, Protocol);

/// Formats a latency for a column.
fn cell(ns: Option<u64>) -> String {
    ns.map_or(UNKNOWN.into(), |ns| Latency(ns).to_string())
}

/// Formats a latency without the spaces that align it.
fn trimmed(ns: u64) -> String {
    Latency(ns).to_string().trim().to_owned()
}

/// Ends a line about a flow: with its interface where several are watched, and its names.
fn end_flow_line(interface: u32, (src, dst, protocol): FlowEnds<'_>, source: &Source, out: &mut Vec<u8>) {
    if source.interfaces.several()
        && let Some(label) = source.interfaces.label(interface)
    {
        put(out, format_args!("  on {}", harmless(&label)));
    }
    put(out, format_args!("{}\n", name_note(source, src, dst, protocol)));
}

/// Returns the names of a TCP connection as they follow it in a line.
fn tcp_names(source: &Source, ends: &layers::Ends) -> String {
    name_note(source, &ends.src, &ends.dst, Protocol::TCP)
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use dwell_engine::abi;

    use super::{super::samples, *};

    fn text(source: &Source) -> String {
        let (mut format, mut out) = (Text::default(), Vec::new());
        for sample in samples::all() {
            format.write(&Record::Sample(&sample), source, &mut out);
        }
        for event in samples::flows() {
            format.write(&Record::Flow(&event), source, &mut out);
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
        Text::default().write(&Record::Sample(&samples::tcp4()), &source, &mut out);
        assert!(out.starts_with(b"-                 1.23 ms  min 1.10 ms"));
    }

    #[test]
    fn counters_name_what_was_not_used() {
        let mut raw = abi::dwell_counters::default();
        raw.value[abi::DWELL_SEEN_PACKETS as usize] = 10;
        raw.value[abi::DWELL_SKIP_NOT_IP as usize] = 3;
        let line = Text::counters(&Counters::sum([&raw]), ("sample", "samples"));
        assert_eq!(line, "10 packets, 0 samples, 0 events lost, 3 not ip");
    }

    #[test]
    fn one_of_a_kind_is_singular() {
        let mut raw = abi::dwell_counters::default();
        raw.value.fill(1);
        insta::assert_snapshot!(Text::counters(&Counters::sum([&raw]), ("sample", "samples")), @"1 packet, 1 sample, 1 event lost, 1 byte, 1 not ip, 1 other protocol, 1 truncated, 1 malformed, 1 fragment, 1 too deep, 1 filtered, 1 unknown link, 1 server, 1 stray, 1 unreported, 1 flow opened, 1 flow evicted, 1 flow expired, 1 untracked, 1 contended, 1 stamp, 1 stamp overwritten, 1 ambiguous, 1 spin early, 1 spin order, 1 backwards, 1 aggregate other, 1 group freed");
    }
}
