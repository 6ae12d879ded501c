//! A capture written again as pcapng while it is read, with comments on packets.

use std::io::{self, Write};

use crate::{
    bytes::Order,
    pcapng::{BLOCK_TRAILER_BYTES, ENHANCED_PACKET, MAGIC, OBSOLETE_PACKET, OPTION_END, TIMED_FIXED_BYTES},
    window::WINDOW_BYTES,
};

const OPTION_COMMENT: u16 = 1;
/// Option of an enhanced packet block; in an obsolete one the number is a field.
const OPTION_DROP_COUNT: u16 = 4;
/// The drop count of an obsolete packet block that has none.
const UNKNOWN_DROP_COUNT: u16 = u16::MAX;
/// Length of a section that does not say its length: with comments it is another one than before.
pub(crate) const UNKNOWN_LENGTH: [u8; 8] = [0xff; 8];

/// Where the copy goes, and what the last packet gets there.
pub(crate) struct PcapngCopy {
    out: Box<dyn Write>,
    is_begun: bool,
    /// Of the packet that was read last.
    pub(crate) comments: Vec<String>,
    block: Vec<u8>,
}

impl PcapngCopy {
    pub(crate) fn new(out: Box<dyn Write>) -> PcapngCopy {
        PcapngCopy { out, is_begun: false, comments: Vec::new(), block: Vec::new() }
    }

    /// Writes a block or a record, in one call of the writer. `append` makes it: it is told whether this is the first, and
    /// the comments.
    pub(crate) fn write(
        &mut self,
        append: impl FnOnce(bool, &[String], &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.block.clear();
        append(!self.is_begun, &self.comments, &mut self.block)?;
        self.is_begun = true;
        self.comments.clear();
        self.out.write_all(&self.block)?;
        self.block.shrink_to(WINDOW_BYTES);
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Appends a whole block of a pcapng file, a packet with these comments.
pub(crate) fn append_block(order: Order, block: &[u8], comments: &[String], out: &mut Vec<u8>) {
    match order.u32(block, 0) {
        _ if block.starts_with(&MAGIC) => {
            out.extend_from_slice(&block[..16]);
            out.extend_from_slice(&UNKNOWN_LENGTH);
            out.extend_from_slice(&block[24..]);
        }
        kind @ (ENHANCED_PACKET | OBSOLETE_PACKET) if !comments.is_empty() => {
            append_packet(order, kind, block, comments, out);
        }
        _ => out.extend_from_slice(block),
    }
}

/// Appends a packet block as an enhanced one with comments before its other options. An obsolete block differs in its first
/// fields only; the options that it may have are numbered alike.
fn append_packet(order: Order, kind: u32, block: &[u8], comments: &[String], out: &mut Vec<u8>) {
    let captured = order.u32(block, 20) as usize;
    let options_at = TIMED_FIXED_BYTES + captured.next_multiple_of(4);
    let (interface, drop_count) = match kind {
        OBSOLETE_PACKET => (u32::from(order.u16(block, 8)), Some(order.u16(block, 10))),
        _ => (order.u32(block, 8), None),
    };
    let mut new = Block::new(order, ENHANCED_PACKET, out);
    new.u32(interface);
    new.bytes(&block[12..options_at]);
    new.comments(comments);
    if let Some(count) = drop_count.filter(|count| *count != UNKNOWN_DROP_COUNT) {
        new.option(OPTION_DROP_COUNT, &order.to_u64(count.into()));
    }
    match &block[options_at..block.len() - BLOCK_TRAILER_BYTES] {
        [] => new.option(OPTION_END, &[]),
        // They end themselves.
        options => new.bytes(options),
    }
    new.end();
}

/// A block while it is appended.
pub(crate) struct Block<'a> {
    order: Order,
    out: &'a mut Vec<u8>,
    start: usize,
}

impl Block<'_> {
    pub(crate) fn new(order: Order, kind: u32, out: &mut Vec<u8>) -> Block<'_> {
        let start = out.len();
        let mut block = Block { order, out, start };
        block.u32(kind);
        // The length, once it is known.
        block.u32(0);
        block
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&self.order.to_u16(value));
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&self.order.to_u32(value));
    }

    /// Appends bytes, and what is missing to a multiple of four.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.out.resize(self.out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
    }

    /// Appends an option of at most 65,535 bytes.
    pub(crate) fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.bytes(value);
    }

    /// Appends each comment, cut to what an option has room for.
    pub(crate) fn comments(&mut self, comments: &[String]) {
        for text in comments {
            let most = text.len().min(usize::from(u16::MAX));
            let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            self.option(OPTION_COMMENT, &text.as_bytes()[..end]);
        }
    }

    /// Completes the block.
    pub(crate) fn end(self) {
        let len = (self.out.len() - self.start + BLOCK_TRAILER_BYTES) as u32;
        let len = self.order.to_u32(len);
        self.out[self.start + 4..self.start + 8].copy_from_slice(&len);
        self.out.extend_from_slice(&len);
    }
}
