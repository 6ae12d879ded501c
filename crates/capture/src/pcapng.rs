use std::collections::VecDeque;

use crate::{
    bytes::Order,
    error::Fault,
    link::LinkType,
    record::{Glance, MAX_PACKET_BYTES, Record, Step},
    window::{WINDOW_BYTES, Window},
};

/// First bytes of a section header block; they read the same in both byte orders.
pub(crate) const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

pub(crate) const SECTION_HEADER: u32 = u32::from_le_bytes(MAGIC);
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
pub(crate) const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(crate) const ENHANCED_PACKET: u32 = 6;

pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const BLOCK_HEADER_BYTES: usize = 8;
/// Bytes before the data of a packet block that records a time.
pub(crate) const TIMED_FIXED_BYTES: usize = 28;
pub(crate) const BLOCK_TRAILER_BYTES: usize = 4;
/// Wireshark's limit: larger blocks exist in damaged files only.
const MAX_BLOCK_BYTES: usize = 16 * 1024 * 1024;
/// Longer interface names are cut; names on Linux have at most 15 bytes.
const MAX_NAME_BYTES: usize = 64;
/// Most interfaces per section: an obsolete packet block cannot number more.
const MAX_INTERFACES: usize = 1 << 16;
/// Interfaces of earlier sections that are remembered by their names; the oldest make room.
const MAX_REMEMBERED: usize = 256;
/// By how much the first packet of a section may be earlier than the last one before it on the same interface: packets of several
/// processors come a little out of order. A file of another place, which was captured at the same time, begins much earlier.
const OVERLAP_NS: u64 = 10_000_000;

pub(crate) const OPTION_END: u16 = 0;
const OPTION_IF_NAME: u16 = 2;
pub(crate) const OPTION_TSRESOL: u16 = 9;
const OPTION_TSOFFSET: u16 = 14;

/// Parser of a pcapng file, with the state of the current section. Source: draft-ietf-opsawg-pcapng.
pub(crate) struct Pcapng {
    order: Order,
    interfaces: Vec<Interface>,
    /// Number of interfaces in all sections before this one.
    earlier_interfaces: u32,
    /// Interfaces of these that have a name and packets, and have not gone on in this section.
    remembered: VecDeque<Interface>,
    last_time_ns: u64,
}

impl Pcapng {
    pub(crate) fn open(window: &mut Window) -> Result<Pcapng, Fault> {
        let mut pcapng = Pcapng {
            order: Order::Little,
            interfaces: Vec::new(),
            earlier_interfaces: 0,
            remembered: VecDeque::new(),
            last_time_ns: 0,
        };
        pcapng.section_header(window)?;
        Ok(pcapng)
    }

    /// Returns the byte order of the section.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Parses one block.
    #[inline]
    pub(crate) fn step(&mut self, window: &mut Window) -> Result<Step, Fault> {
        if !window.begin(BLOCK_HEADER_BYTES)? {
            return Ok(Step::End);
        }
        match self.order.u32(window.rest(), 0) {
            kind @ (ENHANCED_PACKET | OBSOLETE_PACKET) => self.timed_packet(kind, window),
            SIMPLE_PACKET => self.simple_packet(window),
            INTERFACE_DESCRIPTION => self.interface_description(window),
            SECTION_HEADER => self.section_header(window),
            _ => {
                let len = self.block_len(window, BLOCK_HEADER_BYTES)?;
                self.skip(window, len)
            }
        }
    }

    /// Parses an enhanced or an obsolete packet block, which differ only in the width of the interface number.
    #[inline]
    fn timed_packet(&mut self, kind: u32, window: &mut Window) -> Result<Step, Fault> {
        let len = self.whole_block(window, TIMED_FIXED_BYTES)?;
        let block = window.rest();
        let id = match kind {
            ENHANCED_PACKET => self.order.u32(block, 8),
            _ => u32::from(self.order.u16(block, 8)),
        };
        let high = u64::from(self.order.u32(block, 12));
        let low = u64::from(self.order.u32(block, 16));
        let captured = self.order.u32(block, 20);
        let wire_len = self.order.u32(block, 24);
        let interface = self.interface_mut(id)?;
        let time_ns = interface.clock.unix_ns(high << 32 | low);
        let is_first = interface.last_ns.is_none();
        interface.last_ns = interface.last_ns.max(Some(time_ns));
        if is_first {
            self.go_on(id as usize, time_ns);
        }
        self.last_time_ns = time_ns;
        self.packet(window, len, TIMED_FIXED_BYTES, Lengths { captured, wire_len }, id)
    }

    /// Parses a simple packet block, which has neither an interface nor a captured length. It belongs to the first
    /// interface; the captured length follows from that interface's limit and the length on the wire.
    fn simple_packet(&mut self, window: &mut Window) -> Result<Step, Fault> {
        const FIXED_BYTES: usize = 12;
        let len = self.whole_block(window, FIXED_BYTES)?;
        let wire_len = self.order.u32(window.rest(), 8);
        let captured = match self.interface(0)?.snap_bytes {
            0 => wire_len,
            snap_bytes => wire_len.min(snap_bytes),
        };
        self.packet(window, len, FIXED_BYTES, Lengths { captured, wire_len }, 0)
    }

    #[inline]
    fn packet(
        &mut self,
        window: &mut Window,
        len: BlockLen,
        fixed_bytes: usize,
        Lengths { captured, wire_len }: Lengths,
        id: u32,
    ) -> Result<Step, Fault> {
        if captured > MAX_PACKET_BYTES {
            return Err(Fault::Corrupt(format!("it claims {captured} captured bytes, the most is {MAX_PACKET_BYTES}")));
        }
        let room = len.padded - fixed_bytes - BLOCK_TRAILER_BYTES;
        if captured as usize > room {
            return Err(Fault::Corrupt(format!("it claims {captured} captured bytes in a block with room for {room}")));
        }
        let &Interface { link, number, .. } = self.interface(id)?;
        let block = window.take(len.padded);
        let data = block.start + fixed_bytes;
        Ok(Step::Packet(Record {
            time_ns: self.last_time_ns,
            is_timed: fixed_bytes == TIMED_FIXED_BYTES,
            interface: number,
            link,
            wire_len: wire_len.max(captured),
            data: data..data + captured as usize,
        }))
    }

    /// Looks at the block with which `bytes` begin. `None` if it is cut off there or damaged, or is no enhanced packet block.
    #[inline]
    pub(crate) fn glance(&self, bytes: &[u8]) -> Option<Glance> {
        let block = bytes.get(..TIMED_FIXED_BYTES)?;
        let len = (self.order.u32(block, 4) as usize).next_multiple_of(4);
        if self.order.u32(block, 0) != ENHANCED_PACKET || !(TIMED_FIXED_BYTES..=bytes.len()).contains(&len) {
            return None;
        }
        let (id, captured) = (self.order.u32(block, 8), self.order.u32(block, 20));
        let data = TIMED_FIXED_BYTES..TIMED_FIXED_BYTES + captured as usize;
        let is_whole = captured <= MAX_PACKET_BYTES && data.end + BLOCK_TRAILER_BYTES <= len;
        // Before its first packet the number of an interface is not settled.
        let interface = self.interfaces.get(id as usize).filter(|it| is_whole && it.last_ns.is_some())?;
        Some(Glance {
            interface: interface.number,
            link: interface.link,
            wire_len: self.order.u32(block, 24).max(captured),
            data,
            len,
        })
    }

    fn interface_description(&mut self, window: &mut Window) -> Result<Step, Fault> {
        const FIXED_BYTES: usize = 16;
        let len = self.whole_block(window, FIXED_BYTES)?;
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(Fault::Corrupt(format!("the section has more than {MAX_INTERFACES} interfaces")));
        }
        let block = &window.rest()[..len.padded];
        let options = &block[FIXED_BYTES..len.padded - BLOCK_TRAILER_BYTES];
        let (clock, name) = interface_options(self.order, options)?;
        self.interfaces.push(Interface {
            number: self.earlier_interfaces.saturating_add(self.interfaces.len() as u32),
            last_ns: None,
            link: LinkType(u32::from(self.order.u16(block, 8))),
            snap_bytes: self.order.u32(block, 12),
            clock,
            name,
        });
        window.take(len.padded);
        Ok(Step::NoPacket)
    }

    fn section_header(&mut self, window: &mut Window) -> Result<Step, Fault> {
        const FIXED_BYTES: usize = 24;
        window.need(FIXED_BYTES)?;
        let block = window.rest();
        self.order = match Order::Little.u32(block, 8) {
            BYTE_ORDER_MAGIC => Order::Little,
            magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => Order::Big,
            magic => {
                return Err(Fault::Corrupt(format!("the section header gives no byte order but {magic:#010x}")));
            }
        };
        let (major, minor) = (self.order.u16(block, 12), self.order.u16(block, 14));
        if major != 1 {
            return Err(Fault::Corrupt(format!("the section header gives pcapng version {major}.{minor}, known is 1")));
        }
        self.earlier_interfaces = self.earlier_interfaces.saturating_add(self.interfaces.len() as u32);
        self.remembered.extend(self.interfaces.drain(..).filter(|it| it.name.is_some() && it.last_ns.is_some()));
        self.remembered.drain(..self.remembered.len().saturating_sub(MAX_REMEMBERED));
        let len = self.block_len(window, FIXED_BYTES)?;
        self.skip(window, len)
    }

    /// Gives an interface whose first packet is of `time_ns` the number that it had in an earlier section: one of the same name and
    /// link, of which all packets are earlier, as in files of one capture that were joined.
    fn go_on(&mut self, id: usize, time_ns: u64) {
        let interface = &mut self.interfaces[id];
        let is_same = |it: &Interface| {
            it.name == interface.name
                && it.link == interface.link
                && it.last_ns.is_some_and(|last_ns| last_ns <= time_ns.saturating_add(OVERLAP_NS))
        };
        if let Some(before) = self.remembered.iter().rposition(is_same).and_then(|at| self.remembered.remove(at)) {
            interface.number = before.number;
        }
    }

    #[inline]
    fn interface(&self, id: u32) -> Result<&Interface, Fault> {
        self.interfaces.get(id as usize).ok_or_else(|| no_interface(id, self.interfaces.len()))
    }

    #[inline]
    fn interface_mut(&mut self, id: u32) -> Result<&mut Interface, Fault> {
        let described = self.interfaces.len();
        self.interfaces.get_mut(id as usize).ok_or_else(|| no_interface(id, described))
    }

    /// Returns the name of an interface of this section by its number over the whole file.
    pub(crate) fn interface_name(&self, interface: u32) -> Option<&str> {
        // Those that go on have numbers of earlier sections.
        let by_number = interface.checked_sub(self.earlier_interfaces).and_then(|id| self.interfaces.get(id as usize));
        let is_it = |it: &&Interface| it.number == interface;
        by_number.filter(is_it).or_else(|| self.interfaces.iter().find(is_it))?.name.as_deref()
    }

    /// Skips a block, which may be larger than the window.
    fn skip(&self, window: &mut Window, len: BlockLen) -> Result<Step, Fault> {
        window.skip(len.padded - BLOCK_TRAILER_BYTES)?;
        window.need(BLOCK_TRAILER_BYTES)?;
        len.check(self.order.u32(window.rest(), 0))?;
        window.take(BLOCK_TRAILER_BYTES);
        Ok(Step::NoPacket)
    }

    /// Makes a whole block available that has at least `fixed_bytes` before its trailer.
    #[inline]
    fn whole_block(&self, window: &mut Window, fixed_bytes: usize) -> Result<BlockLen, Fault> {
        let len = self.block_len(window, fixed_bytes)?;
        if len.padded > WINDOW_BYTES {
            return Err(Fault::Corrupt(format!("its block claims {} bytes, the most is {WINDOW_BYTES}", len.claimed)));
        }
        window.need(len.padded)?;
        len.check(self.order.u32(window.rest(), len.padded - BLOCK_TRAILER_BYTES))?;
        Ok(len)
    }

    #[inline]
    fn block_len(&self, window: &Window, fixed_bytes: usize) -> Result<BlockLen, Fault> {
        let claimed = self.order.u32(window.rest(), 4);
        let least = fixed_bytes + BLOCK_TRAILER_BYTES;
        if !(least..=MAX_BLOCK_BYTES).contains(&(claimed as usize)) {
            return Err(Fault::Corrupt(format!(
                "its block claims {claimed} bytes, possible is {least} to {MAX_BLOCK_BYTES}"
            )));
        }
        Ok(BlockLen { claimed, padded: (claimed as usize).next_multiple_of(4) })
    }
}

struct Interface {
    /// Number over the whole file.
    number: u32,
    /// The time of the latest packet so far.
    last_ns: Option<u64>,
    link: LinkType,
    /// Most captured bytes per packet; 0 means no limit.
    snap_bytes: u32,
    clock: Clock,
    name: Option<Box<str>>,
}

/// Length of a block, including header and trailer.
#[derive(Clone, Copy)]
struct BlockLen {
    claimed: u32,
    /// The claimed length, rounded up to four bytes: some writers do not count the padding.
    padded: usize,
}

impl BlockLen {
    #[inline]
    fn check(self, trailer: u32) -> Result<(), Fault> {
        if trailer == self.claimed {
            return Ok(());
        }
        Err(Fault::Corrupt(format!("its block claims {} bytes at its start and {trailer} at its end", self.claimed)))
    }
}

fn no_interface(id: u32, described: usize) -> Fault {
    Fault::Corrupt(format!("it names interface {id}, the section has described {described}"))
}

struct Lengths {
    captured: u32,
    wire_len: u32,
}

/// How an interface expresses time.
#[derive(Clone, Copy)]
struct Clock {
    tick: Tick,
    /// Seconds to add to each time.
    offset_s: i64,
}

#[derive(Clone, Copy)]
enum Tick {
    /// Nanoseconds per tick.
    Nanos(u64),
    /// Ticks per nanosecond.
    PerNano(u64),
    /// A second has two to this power of ticks.
    PowerOfTwo(u32),
}

/// Parses the options that matter: how the interface expresses time, and its name.
fn interface_options(order: Order, mut options: &[u8]) -> Result<(Clock, Option<Box<str>>), Fault> {
    let mut clock = Clock { tick: Tick::Nanos(1000), offset_s: 0 };
    let mut name = None;
    while options.len() >= 4 {
        let code = order.u16(options, 0);
        let len = usize::from(order.u16(options, 2));
        if code == OPTION_END {
            break;
        }
        let Some(value) = options.get(4..4 + len) else {
            return Err(Fault::Corrupt(format!(
                "option {code} of its interface claims {len} bytes, more than the block has"
            )));
        };
        match (code, value) {
            (OPTION_TSRESOL, &[resolution]) => clock.tick = Tick::from_tsresol(resolution)?,
            (OPTION_TSOFFSET, &[_, _, _, _, _, _, _, _]) => {
                clock.offset_s = order.u64(value, 0) as i64;
            }
            (OPTION_TSRESOL | OPTION_TSOFFSET, _) => {
                return Err(Fault::Corrupt(format!(
                    "option {code} of its interface, needed for times, has {len} bytes"
                )));
            }
            (OPTION_IF_NAME, value) if !value.is_empty() => {
                let kept = &value[..value.len().min(MAX_NAME_BYTES)];
                name = Some(String::from_utf8_lossy(kept).into());
            }
            _ => {}
        }
        options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((clock, name))
}

impl Clock {
    /// Converts ticks to nanoseconds since 1970, clamped to the range of the result.
    #[inline]
    fn unix_ns(self, ticks: u64) -> u64 {
        match self {
            Clock { tick: Tick::Nanos(ns), offset_s: 0 } => ticks.saturating_mul(ns),
            _ => self.unix_ns_slowly(ticks),
        }
    }

    fn unix_ns_slowly(self, ticks: u64) -> u64 {
        let ticks = i128::from(ticks);
        let ns = match self.tick {
            Tick::Nanos(ns) => ticks * i128::from(ns),
            Tick::PerNano(ticks_per_ns) => ticks / i128::from(ticks_per_ns),
            Tick::PowerOfTwo(power) => (ticks * 1_000_000_000) >> power,
        };
        let ns = ns + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

impl Tick {
    /// Parses the resolution: a negative power of ten or, if the highest bit is set, of two.
    fn from_tsresol(resolution: u8) -> Result<Tick, Fault> {
        match u32::from(resolution) {
            power @ 0..=9 => Ok(Tick::Nanos(10u64.pow(9 - power))),
            power @ 10..=19 => Ok(Tick::PerNano(10u64.pow(power - 9))),
            power @ 0x80..=0xbf => Ok(Tick::PowerOfTwo(power - 0x80)),
            _ => Err(Fault::Corrupt(format!(
                "the time resolution {resolution:#04x} of its interface is finer than 64 bits hold"
            ))),
        }
    }
}
