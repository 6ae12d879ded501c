use crate::{
    bytes::Order,
    error::Fault,
    link::LinkType,
    record::{MAX_PACKET_BYTES, Record, Step},
    window::Window,
};

const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
/// The modified format adds interface index, protocol and packet type to each record.
const MODIFIED_RECORD_HEADER_BYTES: usize = 24;
/// The bits above hold the length of the frame check sequence.
const LINK_TYPE_MASK: u32 = 0x03ff_ffff;

/// Parser of a classic pcap file after its header.
///
/// Sources: draft-ietf-opsawg-pcap; for older versions, libpcap's `sf-pcap.c`.
pub(crate) struct Classic {
    order: Order,
    link: LinkType,
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
        let link = LinkType(order.u32(header, 20) & LINK_TYPE_MASK);
        window.take(FILE_HEADER_BYTES);
        Ok(Classic { order, link, tick_ns, record_header_bytes, lengths })
    }

    #[inline]
    pub(crate) fn step(&self, window: &mut Window) -> Result<Step, Fault> {
        if !window.begin(self.record_header_bytes)? {
            return Ok(Step::End);
        }
        let header = window.rest();
        let seconds = self.order.u32(header, 0);
        let ticks = self.order.u32(header, 4);
        let mut captured = self.order.u32(header, 8);
        let mut wire_len = self.order.u32(header, 12);
        if captured > wire_len {
            match self.lengths {
                Lengths::CapturedFirst => wire_len = captured,
                Lengths::SmallerIsCaptured => std::mem::swap(&mut captured, &mut wire_len),
            }
        }
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
}
