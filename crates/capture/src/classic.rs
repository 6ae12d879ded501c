use std::io;

use crate::{
    bytes::Order,
    copy::{Block, UNKNOWN_LENGTH},
    error::Fault,
    link::LinkType,
    pcapng::{BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, OPTION_END, OPTION_TSRESOL, SECTION_HEADER},
    record::{Glance, MAX_PACKET_BYTES, Record, Step},
    window::Window,
};

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// The modified format adds interface index, protocol and packet type to each record.
const MODIFIED_RECORD_HEADER_BYTES: usize = 24;
/// The bits above hold the length of the frame check sequence.
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;
/// The bit that says that the length of the frame check sequence stands there, in units of 16 bits.
const HAS_CHECK_LENGTH: u32 = 0x0400_0000;
/// Option of an interface: the length of the frame check sequence in bits.
const OPTION_CHECK_LENGTH: u16 = 13;
/// Byte order of a pcapng copy.
const COPY_ORDER: Order = Order::Little;

/// Parser of a classic pcap file after its header.
///
/// Sources: draft-ietf-opsawg-pcap; for older versions, libpcap's `sf-pcap.c`.
pub(crate) struct Classic {
    order: Order,
    link: LinkType,
    /// Length of the frame check sequence at the end of each packet, in bits, if the file says it.
    check_bits: Option<u8>,
    snap_bytes: u32,
    tick_ns: u64,
    record_header_bytes: usize,
    lengths: Lengths,
}

/// Order of the two lengths in a record header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    /// Files before version 2.4 have either order, some with a wrong version number. The captured length is the smaller
    /// one.
    SmallerIsCaptured,
}

impl Classic {
    /// Returns byte order, nanoseconds per tick and length of a record header if `magic` starts a classic pcap file.
    pub(crate) fn recognise(magic: [u8; 4]) -> Option<(Order, u64, usize)> {
        let (order, magic) = match u32::from_le_bytes(magic) {
            le @ (0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34) => (Order::Little, le),
            be => (Order::Big, be.swap_bytes()),
        };
        match magic {
            0xa1b2_c3d4 => Some((order, 1000, RECORD_HEADER_BYTES)),
            0xa1b2_3c4d => Some((order, 1, RECORD_HEADER_BYTES)),
            0xa1b2_cd34 => Some((order, 1000, MODIFIED_RECORD_HEADER_BYTES)),
            _ => None,
        }
    }

    pub(crate) fn open(
        (order, tick_ns, record_header_bytes): (Order, u64, usize),
        window: &mut Window,
    ) -> Result<Classic, Fault> {
        window.need(FILE_HEADER_BYTES)?;
        let header = window.rest();
        let lengths = match (order.u16(header, 4), order.u16(header, 6)) {
            (2, 0..4) | (543, _) => Lengths::SmallerIsCaptured,
            (2, _) => Lengths::CapturedFirst,
            (major, minor) => {
                return Err(Fault::Corrupt(format!(
                    "the file header gives pcap version {major}.{minor}, known is 2.0 to 2.4"
                )));
            }
        };
        let (snap_bytes, link_field) = (order.u32(header, 16), order.u32(header, 20));
        let link = LinkType(link_field & LINK_TYPE_MASK);
        let check_bits = (link_field & HAS_CHECK_LENGTH != 0).then_some((link_field >> 28) as u8 * 16);
        window.take(FILE_HEADER_BYTES);
        Ok(Classic { order, link, check_bits, snap_bytes, tick_ns, record_header_bytes, lengths })
    }

    #[inline]
    pub(crate) fn step(&self, window: &mut Window) -> Result<Step, Fault> {
        if !window.begin(self.record_header_bytes)? {
            return Ok(Step::End);
        }
        let RecordHeader { seconds, ticks, captured, wire_len } = self.header(window.rest());
        if captured > MAX_PACKET_BYTES {
            return Err(Fault::Corrupt(format!("it claims {captured} captured bytes, the most is {MAX_PACKET_BYTES}")));
        }
        let captured = captured as usize;
        window.need(self.record_header_bytes + captured)?;
        window.take(self.record_header_bytes);
        Ok(Step::Packet(Record {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * self.tick_ns,
            is_timed: true,
            interface: 0,
            link: self.link,
            wire_len,
            data: window.take(captured),
        }))
    }

    /// Looks at the record with which `bytes` begin. `None` if it is cut off there or damaged.
    #[inline]
    pub(crate) fn glance(&self, bytes: &[u8]) -> Option<Glance> {
        let header = self.record_header_bytes;
        if bytes.len() < header {
            return None;
        }
        let RecordHeader { captured, wire_len, .. } = self.header(bytes);
        let len = header + captured as usize;
        (captured <= MAX_PACKET_BYTES && len <= bytes.len()).then_some(Glance {
            interface: 0,
            link: self.link,
            wire_len,
            data: header..len,
            len,
        })
    }

    #[inline]
    fn header(&self, record: &[u8]) -> RecordHeader {
        let mut captured = self.order.u32(record, 8);
        let mut wire_len = self.order.u32(record, 12);
        if captured > wire_len {
            match self.lengths {
                Lengths::CapturedFirst => wire_len = captured,
                Lengths::SmallerIsCaptured => std::mem::swap(&mut captured, &mut wire_len),
            }
        }
        RecordHeader { seconds: self.order.u32(record, 0), ticks: self.order.u32(record, 4), captured, wire_len }
    }

    /// Appends what pcapng has in place of the file header: a section with one interface.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if pcapng has no room for the link type.
    pub(crate) fn append_head(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let link = u16::try_from(self.link.0).map_err(|_| {
            let what = format!("pcapng has no room for the link type {}, only for those up to 65535", self.link.0);
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        let mut section = Block::new(COPY_ORDER, SECTION_HEADER, out);
        section.u32(BYTE_ORDER_MAGIC);
        section.u16(1);
        section.u16(0);
        section.bytes(&UNKNOWN_LENGTH);
        section.end();
        let mut interface = Block::new(COPY_ORDER, INTERFACE_DESCRIPTION, out);
        interface.u16(link);
        interface.u16(0);
        interface.u32(self.snap_bytes);
        interface.option(OPTION_TSRESOL, &[if self.tick_ns == 1 { 9 } else { 6 }]);
        if let Some(bits) = self.check_bits {
            interface.option(OPTION_CHECK_LENGTH, &[bits]);
        }
        interface.option(OPTION_END, &[]);
        interface.end();
        Ok(())
    }

    /// Appends a whole record as an enhanced packet block with these comments.
    pub(crate) fn append_packet(&self, record: &[u8], comments: &[String], out: &mut Vec<u8>) {
        let RecordHeader { seconds, ticks, captured, wire_len } = self.header(record);
        let ticks = u64::from(seconds) * (1_000_000_000 / self.tick_ns) + u64::from(ticks);
        let mut packet = Block::new(COPY_ORDER, ENHANCED_PACKET, out);
        for field in [0, (ticks >> 32) as u32, ticks as u32, captured, wire_len] {
            packet.u32(field);
        }
        packet.bytes(&record[self.record_header_bytes..]);
        if !comments.is_empty() {
            packet.comments(comments);
            packet.option(OPTION_END, &[]);
        }
        packet.end();
    }
}

struct RecordHeader {
    seconds: u32,
    ticks: u32,
    captured: u32,
    wire_len: u32,
}
