//! Targets that interpret their input directly: packets, capture files and filter rules.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    io::{Cursor, Read},
    net::IpAddr,
};

use dwell_capture::{Error, MAX_PACKET_BYTES, Reader};
use dwell_engine::{
    filter::{Clause, Filter, MAX_TERMS, Protocol, Term},
    measure::{Event, Method},
    observe::{LINK_TYPES, Observation},
    rtt::{Aggregate, Config, Counter, Groups},
};
use dwell_records::{FORMATS, Format, Interval, Record, Source, Summary};

use crate::{
    bytes::Bytes,
    frame::{self, Link},
    watch::{self, Watch},
};

/// Observes one arbitrary packet. Three bytes select the configuration; link type, length on the wire and the packet
/// follow. The packet is observed whole, truncated, and whole again.
pub fn packet(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut watch = Watch::new(watch::config(&mut choices));
    let [link, longer, cut] = choices.array();
    let link = LINK_TYPES.get(usize::from(link)).map_or(u32::from(link), |(number, _)| *number);
    let longer = match longer {
        0..=0xf0 => u32::from(longer) * 16,
        _ => u32::MAX,
    };
    // Each in an allocation of its exact size, so that a read past its end is detected.
    let whole = Box::<[u8]>::from(choices.rest());
    let short = Box::<[u8]>::from(&whole[..whole.len().saturating_sub(cut.into())]);
    let wire_len = (whole.len() as u32).saturating_add(longer);
    for (time_ns, data) in [(1_000_000, &whole), (2_000_000, &short), (3_000_000, &whole)] {
        watch.observe(&Observation { time_ns, interface: 0, link, data, wire_len });
    }
    watch.finish(4_000_000);
    watch.reached()
}

/// Reads arbitrary bytes as a capture file.
pub fn capture(bytes: &[u8]) -> BTreeSet<Method> {
    let (at_once, end) = read(bytes, bytes.len().max(1));
    let (bit_by_bit, same_end) = read(bytes, 7);
    // The packets do not depend on how the bytes arrive. Only the number of packets before damage in gzip does.
    let both = at_once.len().min(bit_by_bit.len());
    assert_eq!(at_once[..both], bit_by_bit[..both]);
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        assert_eq!((at_once.len(), &end), (bit_by_bit.len(), &same_end));
    }
    BTreeSet::new()
}

/// Returns a digest of each packet, and the error that ended reading.
fn read(bytes: &[u8], chunk: usize) -> (Vec<u64>, Option<String>) {
    let chunks = Chunks { bytes: Cursor::new(bytes.to_vec()), chunk };
    let mut packets = Vec::new();
    let mut reader = match Reader::from_read("input", Box::new(chunks)) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!matches!(error, Error::Read { .. }), "{error}");
            return (packets, Some(error.to_string()));
        }
    };
    assert_eq!(reader.size(), None);
    // The shortest record has 16 bytes, and gzip compresses up to 1032 bytes into one.
    let max = 1 + bytes.len() * 1032 / 16;
    let end = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= MAX_PACKET_BYTES as usize);
                assert!(packet.wire_len as usize >= packet.data.len());
                let mut hasher = DefaultHasher::new();
                (packet.time_ns, packet.interface, packet.link.0).hash(&mut hasher);
                (packet.wire_len, packet.data).hash(&mut hasher);
                packets.push(hasher.finish());
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        assert_eq!(reader.packets(), packets.len() as u64);
        assert!(reader.position() <= bytes.len() as u64);
        assert!(packets.len() <= max);
    };
    assert!(matches!(reader.next_packet(), Ok(None)), "nothing follows the end");
    if let Some(error) = &end {
        assert!(error.is_incomplete_data(), "{error}");
    }
    (packets, end.map(|error| error.to_string()))
}

struct Chunks {
    bytes: Cursor<Vec<u8>>,
    chunk: usize,
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = self.chunk.min(into.len());
        self.bytes.read(&mut into[..n])
    }
}

/// Replays a capture file through a small flow table to every output format, as `dwell rtt -r` does. Three bytes select
/// the configuration; the rest is the file.
pub fn replay(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut watch = Watch::new(watch::config(&mut choices));
    let file = Cursor::new(choices.rest().to_vec());
    let Ok(mut reader) = Reader::from_read("input", Box::new(file)) else {
        return BTreeSet::new();
    };
    let mut outputs = Outputs::new();
    let mut last_ns = 0;
    while let Ok(Some(packet)) = reader.next_packet() {
        outputs.write_events(&watch.sweep(packet.time_ns));
        let data = Box::<[u8]>::from(packet.data);
        let observed = watch.observe(&Observation {
            time_ns: packet.time_ns,
            interface: packet.interface,
            link: packet.link.0,
            data: &data,
            wire_len: packet.wire_len,
        });
        last_ns = packet.time_ns;
        outputs.write_events(&observed.events);
    }
    outputs.write_events(&watch.finish(last_ns));
    outputs.end(last_ns);
    watch.reached()
}

struct Outputs {
    formats: Vec<Box<dyn Format>>,
    source: Source,
    groups: Groups,
    summary: Summary,
    out: Vec<u8>,
}

impl Outputs {
    fn new() -> Outputs {
        Outputs {
            formats: FORMATS.iter().map(|entry| (entry.new)()).collect(),
            source: Source::default(),
            groups: Groups::new(Aggregate { max_groups: 3, ..Aggregate::default() }),
            summary: Summary::new(4),
            out: Vec::new(),
        }
    }

    fn write_events(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Sample(sample) = event {
                self.groups.add(sample);
                self.summary.add(sample);
            }
            self.write(|format, source, _, out| match event {
                Event::Sample(sample) => format.write(&Record::Sample(sample), source, out),
                Event::Flow(flow) => format.write(&Record::Flow(flow), source, out),
            });
        }
    }

    fn end(&mut self, end_ns: u64) {
        let groups = self.groups.take(0);
        let interval = Interval { end_ns, length_ns: 1_000_000_000, groups: &groups };
        self.write(|format, source, _, out| format.write(&Record::Interval(&interval), source, out));
        self.write(|format, source, summary, out| format.write(&Record::Summary(summary), source, out));
    }

    fn write(&mut self, record: impl Fn(&mut dyn Format, &Source, &Summary, &mut Vec<u8>)) {
        for format in &mut self.formats {
            record(&mut **format, &self.source, &self.summary, &mut self.out);
            assert!(self.out.is_empty() || self.out.ends_with(b"\n"), "whole lines only");
            std::str::from_utf8(&self.out).expect("text");
            self.out.clear();
        }
    }
}

/// Parses lines as rules and expressions of a filter. The core tracks exactly the flows that the parsed filter selects.
pub fn filter(bytes: &[u8]) -> BTreeSet<Method> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return BTreeSet::new();
    };
    let lines = text.split('\n').filter(|line| match Filter::parse(&[line]) {
        Ok(filter) => {
            assert!((1..=MAX_TERMS).contains(&filter.terms()));
            true
        }
        Err(error) => {
            assert!(error.to_string().contains(line));
            false
        }
    });
    let Ok(filter) = Filter::parse(&lines.collect::<Vec<_>>()) else {
        return BTreeSet::new();
    };
    let config = Config { filter: filter.clone(), max_flows: 4, ..Config::default() };
    let mut watch = Watch::new(config);
    for rule in filter.clauses.iter().flat_map(|clause| &clause.terms) {
        assert!(rule.ports.0 <= rule.ports.1);
        let near = rule.prefix.map_or(IpAddr::from([192, 0, 2, 1]), |net| net.network());
        let last = rule.prefix.map_or(near, |net| net.broadcast());
        for (address, port) in [
            (near, rule.ports.0),
            (last, rule.ports.1),
            (near, rule.ports.1.wrapping_add(1)),
            (next(last), rule.ports.0),
            (IpAddr::from([10, 0, 0, 1]), rule.ports.0),
            (IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]), rule.ports.0),
        ] {
            let peer = match address {
                IpAddr::V4(_) => IpAddr::from([198, 51, 100, 9]),
                IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9]),
            };
            check_filter(&mut watch, &filter, (address, port), (peer, 9));
        }
    }
    watch.reached()
}

fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).wrapping_add(1).into()),
        IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).wrapping_add(1).into()),
    }
}

/// Observes a SYN of a flow, and checks that the flow is tracked exactly if the filter selects it.
fn check_filter(watch: &mut Watch, filter: &Filter, from: (IpAddr, u16), to: (IpAddr, u16)) {
    // An IPv6 prefix covers IPv4 addresses only if it lies within ::ffff:0:0/96.
    let is_ipv4 = |address: IpAddr| address.to_canonical().is_ipv4();
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    };
    let covers = |rule: &Term, (address, port): (IpAddr, u16)| {
        rule.prefix.is_none_or(|net| {
            let covers_ipv4 = is_ipv4(net.network()) && (net.network().is_ipv4() || net.prefix_len() >= 96);
            is_ipv4(address) == covers_ipv4
                && (number(net.network())..=number(net.broadcast())).contains(&number(address))
        }) && (rule.ports.0..=rule.ports.1).contains(&port)
    };
    let of_tcp = |rule: &Term| matches!(rule.protocol, Protocol::Any | Protocol::Tcp | Protocol::TcpOrUdp);
    let holds = |rule: &Term| (of_tcp(rule) && (covers(rule, from) || covers(rule, to))) != rule.negated;
    let matches = |clause: &&Clause| clause.terms.iter().all(holds);
    let (excluding, including): (Vec<_>, Vec<_>) = filter.clauses.iter().partition(|clause| clause.excludes);
    let excluded = excluding.iter().any(matches);
    let included = including.is_empty() || including.iter().any(matches);
    let endpoint = |(address, port)| dwell_engine::measure::Endpoint { address, port };
    let l4 = frame::tcp((from.1, to.1), 1, 0, 2, 1000, &[]);
    let frame = frame::ip(Link::Raw, 6, endpoint(from), endpoint(to), &l4, l4.len());
    let observed = watch.observe(&Observation {
        time_ns: 1_000_000,
        interface: 0,
        link: frame.link,
        data: &frame.data,
        wire_len: frame.wire_len,
    });
    // Close all flows, so that only the filter decides about the next packet.
    watch.finish(1_000_000);
    assert_eq!(
        observed.skipped == Some(Counter::Filtered),
        excluded || !included,
        "{from:?} to {to:?} under {filter:?}"
    );
}
