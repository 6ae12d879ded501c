use std::io::{self, Write};

use crate::{link::LinkType, record::MAX_PACKET_BYTES};

/// Writes a classic little-endian pcap file with times in nanoseconds.
///
/// Each packet makes two small writes: pass a [`std::io::BufWriter`] for anything other than memory.
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header, which alone is a capture without packets.
    ///
    /// # Errors
    ///
    /// Errors of `out`.
    pub fn new(mut out: W, link: LinkType) -> io::Result<Writer<W>> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
        header[4..6].copy_from_slice(&2u16.to_le_bytes());
        header[6..8].copy_from_slice(&4u16.to_le_bytes());
        header[16..20].copy_from_slice(&MAX_PACKET_BYTES.to_le_bytes());
        header[20..24].copy_from_slice(&link.0.to_le_bytes());
        out.write_all(&header)?;
        Ok(Writer { out })
    }

    /// Appends a packet that was captured at `time_ns` (nanoseconds since 1970) and had `wire_len` bytes on the wire, of
    /// which `data` was captured.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`], with nothing written, if the format cannot hold the packet: its time is after
    /// February 2106, or it has more bytes than [`MAX_PACKET_BYTES`]. Otherwise errors of `out`.
    pub fn write(&mut self, time_ns: u64, data: &[u8], wire_len: u32) -> io::Result<()> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let seconds =
            u32::try_from(time_ns / 1_000_000_000).map_err(|_| invalid("a pcap file cannot hold a time after 2106"))?;
        let nanos = (time_ns % 1_000_000_000) as u32;
        let captured = u32::try_from(data.len())
            .ok()
            .filter(|captured| *captured <= MAX_PACKET_BYTES)
            .ok_or_else(|| invalid("a pcap file cannot hold a packet above 256 KiB"))?;
        let mut header = [0; 16];
        for (slot, field) in header.chunks_exact_mut(4).zip([seconds, nanos, captured, wire_len]) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        self.out.write_all(&header)?;
        self.out.write_all(data)
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    ///
    /// Errors of flushing.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
