//! Builds capture files field by field, and reads them back.

use std::{
    collections::HashMap,
    io::{self, Cursor, Read, Write},
};

use dwell_capture::{Error, LinkType, Reader};
use flate2::{Compression, write::GzEncoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

pub const ORDERS: [Order; 2] = [Order::Little, Order::Big];

impl Order {
    pub fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub fn i64(self, value: i64) -> [u8; 8] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }
}

/// A capture file, with the places where a cut leaves it whole.
#[derive(Clone, Debug)]
pub struct Capture {
    pub bytes: Vec<u8>,
    /// Ends of the header, of each record and of each block.
    pub whole_at: Vec<usize>,
    /// Ends of the packets.
    pub packets_end: Vec<usize>,
    order: Order,
    extra_header: usize,
}

impl Capture {
    pub fn pcap(order: Order, magic: u32, version: (u16, u16), link: u32) -> Capture {
        let mut bytes = order.u32(magic).to_vec();
        bytes.extend(order.u16(version.0));
        bytes.extend(order.u16(version.1));
        bytes.extend(order.words(&[0, 0, 262_144, link]));
        let extra_header = if magic == 0xa1b2_cd34 { 8 } else { 0 };
        let whole_at = vec![bytes.len()];
        Capture { bytes, whole_at, packets_end: Vec::new(), order, extra_header }
    }

    pub fn record(mut self, header: [u32; 4], data: &[u8]) -> Capture {
        self.bytes.extend(self.order.words(&header));
        self.bytes.extend(vec![0xee; self.extra_header]);
        self.bytes.extend(data);
        self.packets_end.push(self.bytes.len());
        self.whole_at.push(self.bytes.len());
        self
    }

    pub fn pcapng(order: Order) -> Capture {
        let empty =
            Capture { bytes: Vec::new(), whole_at: Vec::new(), packets_end: Vec::new(), order, extra_header: 0 };
        empty.section(order)
    }

    pub fn section(mut self, order: Order) -> Capture {
        self.order = order;
        let mut body = order.words(&[0x1a2b_3c4d]);
        body.extend(order.u16(1));
        body.extend(order.u16(0));
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    pub fn interface(self, link: u16, snap_bytes: u32, options: &[(u16, &[u8])]) -> Capture {
        let mut body = self.order.u16(link).to_vec();
        body.extend([0; 2]);
        body.extend(self.order.u32(snap_bytes));
        for (code, value) in options {
            body.extend(self.order.u16(*code));
            body.extend(self.order.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    pub fn enhanced(self, interface: u32, ticks: u64, data: &[u8], wire_len: u32) -> Capture {
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        let mut body = self.order.words(&[interface, high, low, data.len() as u32, wire_len]);
        body.extend(data);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.order.u16(1));
        body.extend(self.order.u16(2));
        body.extend(b"hi\0\0\0\0\0\0");
        self.packet(6, &body)
    }

    pub fn obsolete(self, interface: u16, ticks: u64, data: &[u8], wire_len: u32) -> Capture {
        let mut body = self.order.u16(interface).to_vec();
        body.extend(self.order.u16(0xffff));
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        body.extend(self.order.words(&[high, low, data.len() as u32, wire_len]));
        body.extend(data);
        self.packet(2, &body)
    }

    pub fn simple(self, data: &[u8], wire_len: u32) -> Capture {
        let mut body = self.order.u32(wire_len).to_vec();
        body.extend(data);
        self.packet(3, &body)
    }

    fn packet(self, kind: u32, body: &[u8]) -> Capture {
        let mut capture = self.block(kind, body);
        capture.packets_end.push(capture.bytes.len());
        capture
    }

    pub fn block(self, kind: u32, body: &[u8]) -> Capture {
        let len = 12 + body.len().next_multiple_of(4);
        self.block_claiming(kind, body, len as u32, len as u32)
    }

    pub fn block_claiming(mut self, kind: u32, body: &[u8], len: u32, trailer: u32) -> Capture {
        self.bytes.extend(self.order.words(&[kind, len]));
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend(self.order.u32(trailer));
        self.whole_at.push(self.bytes.len());
        self
    }
}

/// One small capture of each kind, by name.
pub fn one_of_each() -> Vec<(String, Capture)> {
    let mut kinds = Vec::new();
    for order in ORDERS {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34] {
            let capture = Capture::pcap(order, magic, (2, 4), 1)
                .record([1_700_000_000, 5, 3, 60], b"abc")
                .record([1_700_000_001, 6, 0, 60], b"")
                .record([1_700_000_002, 7, 8, 8], b"12345678");
            kinds.push((format!("pcap {magic:x} {order:?}"), capture));
        }
        let capture = Capture::pcapng(order)
            .interface(1, 0, &[(2, b"eth0"), (9, &[9]), (14, &order.i64(5)), (0, b"")])
            .block(5, b"statistics..")
            .enhanced(0, 1_700_000_000_000_000_000, b"abc", 60)
            .simple(b"simple", 6)
            .block(0x0bad_cafe, b"unknown block")
            .obsolete(0, 1_700_000_001_000_000_000, b"obsolete", 900)
            .section(if order == Order::Big { Order::Little } else { Order::Big })
            .interface(101, 0, &[])
            .enhanced(0, 1_700_000_002_000_000, b"", 60);
        kinds.push((format!("pcapng {order:?}"), capture));
    }
    kinds
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub time_ns: u64,
    pub is_timed: bool,
    pub interface: u32,
    pub link: LinkType,
    pub data: Vec<u8>,
    pub wire_len: u32,
}

/// All packets, and the error that ended them. Those that were looked at before are what was seen then.
pub fn drain(reader: Result<Reader, Error>) -> (Vec<Owned>, Option<Error>) {
    let mut packets = Vec::new();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    let mut seen = HashMap::new();
    loop {
        while let Some(packet) = reader.look_ahead(3) {
            assert!((1..=3).contains(&(packet.number - packets.len() as u64)), "{packet:?}");
            let what = (packet.interface, packet.link, packet.data.to_vec(), packet.wire_len);
            assert_eq!(seen.insert(packet.number, what), None);
        }
        match reader.next_packet() {
            Ok(Some(packet)) => {
                packets.push(Owned {
                    time_ns: packet.time_ns,
                    is_timed: packet.is_timed,
                    interface: packet.interface,
                    link: packet.link,
                    data: packet.data.to_vec(),
                    wire_len: packet.wire_len,
                });
                if let Some(before) = seen.remove(&(packets.len() as u64)) {
                    assert_eq!(before, (packet.interface, packet.link, packet.data.to_vec(), packet.wire_len));
                }
            }
            Ok(None) => return (packets, None),
            Err(error) => {
                assert_eq!(reader.packets(), packets.len() as u64);
                assert!(matches!(reader.next_packet(), Ok(None)), "an error ends the capture");
                return (packets, Some(error));
            }
        }
    }
}

pub fn read(bytes: &[u8]) -> (Vec<Owned>, Option<Error>) {
    drain(Reader::from_read("test", Box::new(Cursor::new(bytes.to_vec()))))
}

/// The packets of a capture that has no fault.
pub fn read_whole(bytes: &[u8]) -> Vec<Owned> {
    match read(bytes) {
        (packets, None) => packets,
        (_, Some(error)) => panic!("{error}"),
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Gives a few bytes at a time, and is interrupted before each time.
pub struct Dribble {
    pub bytes: Cursor<Vec<u8>>,
    pub step: usize,
    pub interrupted: bool,
}

impl Read for Dribble {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let step = self.step.min(into.len());
        self.bytes.read(&mut into[..step])
    }
}

pub fn dribble(bytes: &[u8], step: usize) -> Dribble {
    Dribble { bytes: Cursor::new(bytes.to_vec()), step, interrupted: false }
}
