//! Captures that are written again while they are read, with comments.

use std::{
    cell::RefCell,
    io::{self, Cursor, ErrorKind, Write},
    rc::Rc,
};

use dwell_capture::{Error, Reader};

use crate::build::{Capture, ORDERS, Order, Owned, drain, dribble, gzip, one_of_each, read_whole};

/// What a reader has written, block by block.
#[derive(Clone, Default)]
struct Written {
    blocks: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Blocks from this one on do not fit.
    full_at: Option<usize>,
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        self.blocks.borrow().concat()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut blocks = self.blocks.borrow_mut();
        if self.full_at == Some(blocks.len()) {
            return Err(ErrorKind::StorageFull.into());
        }
        blocks.push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies a capture to its end or its fault, with `comments` on the packet of a number from 0. Returns the copy, and how
/// many packets were read.
fn copy(bytes: &[u8], comments: impl Fn(usize) -> Vec<String>) -> (Vec<u8>, usize) {
    let written = Written::default();
    let input = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut reader) = Reader::from_read_copying("test", input, Box::new(written.clone())) else {
        assert!(written.bytes().is_empty());
        return (Vec::new(), 0);
    };
    let mut packets = 0;
    while let Ok(Some(_)) = reader.next_packet() {
        comments(packets).into_iter().for_each(|comment| reader.comment(comment));
        packets += 1;
    }
    reader.finish_copy().unwrap();
    (written.bytes(), packets)
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    copy(bytes, |_| Vec::new()).0
}

/// A block as another program reads it: its type, and what follows the length.
fn blocks(bytes: &[u8], order: Order) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize| {
        let raw = bytes[at..at + 4].try_into().unwrap();
        match order {
            Order::Little => u32::from_le_bytes(raw),
            Order::Big => u32::from_be_bytes(raw),
        }
    };
    let (mut at, mut blocks) = (0, Vec::new());
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        assert!(len.is_multiple_of(4) && word(at + len - 4) as usize == len, "{len} bytes at {at}");
        blocks.push((word(at), bytes[at + 8..at + len - 4].to_vec()));
        at += len;
    }
    blocks
}

#[test]
fn a_copy_without_comments_has_the_same_packets_and_all_blocks_of_pcapng() {
    for (kind, capture) in one_of_each() {
        let copied = plain(&capture.bytes);
        assert_eq!(read_whole(&copied), read_whole(&capture.bytes), "{kind}");
        if kind.starts_with("pcapng") {
            assert_eq!(copied, capture.bytes, "{kind}");
        }
        assert_eq!(plain(&gzip(&capture.bytes)), copied, "{kind}");
    }
}

#[test]
fn a_cut_or_damaged_capture_leaves_a_whole_copy_of_what_was_read() {
    let comments = |number: usize| vec![format!("packet {number}"); number % 3];
    for (kind, capture) in one_of_each() {
        let (whole, _) = copy(&capture.bytes, comments);
        let all = read_whole(&capture.bytes);
        for cut in 0..capture.bytes.len() {
            let (copied, packets) = copy(&capture.bytes[..cut], comments);
            assert!(whole.starts_with(&copied), "{kind} cut at {cut}");
            if !copied.is_empty() {
                assert_eq!(read_whole(&copied), all[..packets], "{kind} cut at {cut}");
            }
        }
    }
    let damaged = Capture::pcapng(Order::Little)
        .interface(1, 0, &[])
        .enhanced(0, 1, b"good", 4)
        .enhanced(7, 2, b"of no interface", 15)
        .enhanced(0, 3, b"behind", 6);
    let (copied, packets) = copy(&damaged.bytes, comments);
    assert_eq!((read_whole(&copied).len(), packets), (1, 1));
}

#[test]
fn comments_stand_before_the_other_options_of_their_packet() {
    for order in ORDERS {
        let capture = Capture::pcapng(order)
            .interface(1, 0, &[])
            .enhanced(0, 1, b"abc", 60)
            .block(0x0bad_cafe, b"unknown block")
            .enhanced(0, 2, b"none", 4)
            .obsolete(0, 3, b"obsolete", 900)
            .simple(b"simple", 6);
        let comments = |number: usize| match number {
            0 => vec!["ten bytes.".to_owned(), "µs".to_owned()],
            1 => Vec::new(),
            _ => vec!["old".to_owned()],
        };
        let (copied, _) = copy(&capture.bytes, comments);
        assert_eq!(read_whole(&copied), read_whole(&capture.bytes));
        let (before, after) = (blocks(&capture.bytes, order), blocks(&copied, order));
        assert_eq!(before.len(), after.len());
        for same in [0, 1, 3, 4, 6] {
            assert_eq!(before[same], after[same], "block {same}");
        }
        let option = |code: u16, value: &[u8]| {
            let mut bytes = [order.u16(code), order.u16(value.len() as u16)].concat();
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        // Five words and the padded data come first.
        let (packet, options) = before[2].1.split_at(20 + 4);
        let expected = [packet, &option(1, b"ten bytes."), &option(1, "µs".as_bytes()), options].concat();
        assert_eq!(after[2], (6, expected));
        let mut expected = order.u32(0).to_vec();
        expected.extend([&before[5].1[4..], &option(1, b"old"), &option(0, b"")].concat());
        assert_eq!(after[5], (6, expected), "an obsolete block becomes an enhanced one");
    }
}

#[test]
fn the_drops_that_an_obsolete_block_counts_become_an_option() {
    let mut capture = Capture::pcapng(Order::Little).interface(1, 0, &[]);
    let at = capture.bytes.len();
    capture = capture.obsolete(0, 3, b"obsolete", 900);
    capture.bytes[at + 10..at + 12].copy_from_slice(&5_u16.to_le_bytes());
    let (copied, _) = copy(&capture.bytes, |_| vec!["x".to_owned()]);
    let blocks = blocks(&copied, Order::Little);
    let drops = [4, 0, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    assert!(blocks[2].1.windows(drops.len()).any(|bytes| bytes == drops), "{:?}", blocks[2]);
}

#[test]
fn a_section_says_no_length_any_more_and_large_blocks_are_kept() {
    let mut capture = Capture::pcapng(Order::Big).block(0x0bad_cafe, &vec![7; 3_000_000]).interface(1, 0, &[]);
    capture = capture.enhanced(0, 1, b"abc", 60);
    let copied = plain(&capture.bytes);
    assert_eq!(copied, capture.bytes);
    capture.bytes[16..24].copy_from_slice(&1234_i64.to_be_bytes());
    assert_eq!(plain(&capture.bytes), copied);
}

#[test]
fn a_classic_file_becomes_a_section_with_one_interface() {
    // Four bytes of frame check sequence, microseconds.
    let link = 0x2400_0001;
    let capture = Capture::pcap(Order::Big, 0xa1b2_c3d4, (2, 4), link).record([1_700_000_000, 5, 3, 60], b"abc");
    let (copied, _) = copy(&capture.bytes, |_| vec!["five!".to_owned()]);
    let blocks = blocks(&copied, Order::Little);
    assert_eq!(blocks.len(), 3);
    let interface = [1, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 6, 0, 0, 0, 13, 0, 1, 0, 32, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(blocks[1], (1, interface.to_vec()));
    let ticks = 1_700_000_000_000_005_u64;
    let mut packet: Vec<u8> = [0, (ticks >> 32) as u32, ticks as u32, 3, 60].map(u32::to_le_bytes).concat();
    packet.extend(*b"abc\0\x01\0\x05\0five!\0\0\0\0\0\0\0");
    assert_eq!(blocks[2], (6, packet));

    let unknown = Capture::pcap(Order::Little, 0xa1b2_c3d4, (2, 4), 0x0001_0000).record([1, 5, 3, 60], b"abc");
    let input = Box::new(Cursor::new(unknown.bytes));
    let mut reader = Reader::from_read_copying("test", input, Box::new(Written::default())).unwrap();
    let error = reader.next_packet().unwrap_err();
    assert!(error.to_string().contains("no room for the link type 65536"), "{error}");
}

#[test]
fn an_overlong_comment_is_cut_between_characters() {
    let (_, capture) = &one_of_each()[0];
    let (copied, packets) = copy(&capture.bytes, |_| vec!["xµ".repeat(40_000)]);
    assert_eq!((read_whole(&copied).len(), packets), (3, 3));
    let packet = &blocks(&copied, Order::Little)[2].1;
    assert_eq!(packet[24..28], [1, 0, 0xff, 0xff]);
    assert!(String::from_utf8(packet[28..28 + 65_535].to_vec()).is_ok());
}

#[test]
fn a_writer_that_fails_ends_the_reading_once_with_its_words() {
    for (kind, capture) in one_of_each() {
        let whole = Written::default();
        let open = |written: &Written| {
            let input = Box::new(dribble(&capture.bytes, 7));
            Reader::from_read_copying("test", input, Box::new(written.clone()))
        };
        let (all, error) = drain(open(&whole));
        assert!(error.is_none(), "{kind}: {error:?}");
        let count = whole.blocks.borrow().len();
        // The last packet is written when the reader is asked for one more.
        for full_at in 0..count {
            let written = Written { full_at: Some(full_at), ..Written::default() };
            let (packets, error) = drain(open(&written));
            let error = error.unwrap();
            assert!(matches!(error, Error::Copy { .. }) && error.is_incomplete_data(), "{kind}: {error}");
            assert_eq!(error.to_string(), "no storage space");
            assert_eq!(written.blocks.borrow()[..], whole.blocks.borrow()[..full_at], "{kind}");
            assert!(all.starts_with(&packets), "{kind}");
        }
    }
}

#[test]
fn a_reader_that_is_left_early_completes_its_copy_when_told() {
    let (_, capture) = &one_of_each()[6];
    let written = Written::default();
    let input = Box::new(Cursor::new(capture.bytes.clone()));
    let mut reader = Reader::from_read_copying("test", input, Box::new(written.clone())).unwrap();
    let first: Vec<Owned> = read_whole(&capture.bytes).into_iter().take(1).collect();
    assert!(written.bytes().is_empty(), "nothing before a packet is asked for");
    reader.next_packet().unwrap().unwrap();
    reader.comment("last");
    reader.finish_copy().unwrap();
    let copied = written.bytes();
    assert_eq!(read_whole(&copied), first);
    assert!(copied.windows(4).any(|bytes| bytes == b"last"));
    reader.next_packet().unwrap().unwrap();
    reader.finish_copy().unwrap();
    assert_eq!(written.bytes(), copied, "a copy that is complete gets nothing more");
}
