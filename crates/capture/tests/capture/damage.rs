use std::{
    io::{self, Cursor, Read},
    path::Path,
};

use dwell_capture::{Error, Reader};
use proptest::{prelude::*, sample::Index};

use crate::build::{Capture, ORDERS, Order, drain, gzip, one_of_each, read, read_whole};

#[test]
fn a_cut_anywhere_delivers_the_whole_packets_before_it() {
    for (kind, capture) in one_of_each() {
        let all = read_whole(&capture.bytes);
        for cut in 0..capture.bytes.len() {
            let (packets, error) = read(&capture.bytes[..cut]);
            let whole = capture.packets_end.iter().filter(|end| **end <= cut).count();
            assert_eq!(packets, all[..whole], "{kind} cut at {cut}");
            let last_whole = capture.whole_at.iter().rev().find(|place| **place <= cut);
            match error {
                None => assert_eq!(last_whole, Some(&cut), "{kind} cut at {cut}"),
                Some(Error::NotACapture { .. }) => assert!(cut < 4, "{kind} cut at {cut}"),
                Some(Error::Truncated { packets, offset, .. }) => {
                    assert_eq!(packets, whole as u64, "{kind} cut at {cut}");
                    let start = last_whole.copied().unwrap_or(0);
                    assert_eq!(offset, start as u64, "{kind} cut at {cut}");
                    assert_ne!(start, cut, "{kind} cut at {cut}");
                }
                Some(error) => panic!("{kind} cut at {cut}: {error}"),
            }
        }
    }
}

#[test]
fn a_cut_gzip_file_delivers_whole_packets_and_is_never_taken_for_whole() {
    for (kind, capture) in one_of_each() {
        let all = read_whole(&capture.bytes);
        let packed = gzip(&capture.bytes);
        for cut in 2..packed.len() {
            let (packets, error) = read(&packed[..cut]);
            assert!(all.starts_with(&packets), "{kind} cut at {cut}");
            assert!(matches!(error, Some(Error::Truncated { .. })), "{kind} cut at {cut}: {error:?}");
        }
        let (packets, _) = read(&packed[..packed.len() - 8]);
        assert_eq!(packets, all, "{kind} without its checksum");
    }
}

#[test]
fn a_gzip_checksum_that_does_not_match_is_told() {
    let (_, capture) = &one_of_each()[0];
    let mut packed = gzip(&capture.bytes);
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    let (packets, error) = read(&packed);
    assert_eq!(packets, read_whole(&capture.bytes));
    assert!(matches!(error, Some(Error::Corrupt { what, .. }) if what.contains("gzip")));
}

#[test]
fn an_absurd_packet_length_is_named_and_not_read() {
    for order in ORDERS {
        for claimed in [262_145, 1 << 20, 0x7fff_ffff, u32::MAX] {
            let pcap = Capture::pcap(order, 0xa1b2_c3d4, (2, 4), 1)
                .record([1, 2, 3, 3], b"abc")
                .record([1, 2, claimed, claimed], b"");
            let pcapng = Capture::pcapng(order)
                .interface(1, 0, &[])
                .enhanced(0, 1, b"abc", 3)
                .block(6, &order.words(&[0, 0, 0, claimed, claimed]));
            for capture in [pcap, pcapng] {
                let start = capture.whole_at[capture.whole_at.len() - 2];
                let endless = Cursor::new(capture.bytes).chain(io::repeat(0x77));
                let (packets, error) = drain(Reader::from_read("test", Box::new(endless)));
                assert_eq!(packets.len(), 1);
                let error = error.expect("the length is impossible");
                assert!(
                    matches!(error, Error::Corrupt { packets: 1, offset, .. } if offset == start as u64),
                    "{error}"
                );
                let text = error.to_string();
                assert!(text.contains(&format!("packet 2, byte {start}")), "{text}");
                assert!(text.contains(&claimed.to_string()), "{text}");
            }
        }
    }
}

#[test]
fn the_largest_packet_is_read() {
    let data = vec![7; 262_144];
    let pcap = Capture::pcap(Order::Big, 0xa1b2_c3d4, (2, 4), 1).record([1, 2, 262_144, 262_144], &data);
    let pcapng = Capture::pcapng(Order::Big).interface(1, 0, &[]).enhanced(0, 1, &data, 262_144);
    for capture in [pcap, pcapng] {
        assert_eq!(read_whole(&capture.bytes)[0].data, data);
    }
}

#[test]
fn a_block_length_that_lies_is_named() {
    let order = Order::Little;
    let start = || Capture::pcapng(order).interface(1, 0, &[]).enhanced(0, 1, b"abc", 3);
    let fixed = order.words(&[0, 0, 0, 0, 0]);
    let over_room = order.words(&[0, 0, 0, 5, 5, 0]);
    let too_large = vec![7; 262_145];
    let cases = [
        ("0 bytes", start().block_claiming(6, &fixed, 0, 32)),
        ("8 bytes", start().block_claiming(0x99, &fixed, 8, 32)),
        ("28 bytes", start().block_claiming(6, &fixed, 28, 28)),
        ("16777220 bytes, possible", start().block_claiming(0x99, &fixed, 16_777_220, 32)),
        ("4294967295 bytes", start().block_claiming(6, &fixed, u32::MAX, u32::MAX)),
        ("524292 bytes", start().block_claiming(6, &fixed, 524_292, 32)),
        ("524292 bytes", start().block_claiming(1, &fixed, 524_292, 32)),
        ("36 at its end", start().block_claiming(6, &fixed, 32, 36)),
        ("36 at its end", start().block_claiming(0x99, &fixed, 32, 36)),
        ("the most is 262144", start().enhanced(0, 1, &too_large, 262_145)),
        ("room for 4", start().block(6, &over_room)),
        ("interface 1", start().enhanced(1, 1, b"abc", 3)),
        ("interface 65535", start().obsolete(65_535, 1, b"abcd", 4)),
        ("interface 0", start().section(order).simple(b"abcd", 4)),
        ("option 2", start().interface(1, 0, &[]).block(1, &order.words(&[1, 0, 0x0100_0002]))),
        ("option 9", start().interface(1, 0, &[(9, &[6, 6])])),
        ("option 14", start().interface(1, 0, &[(14, &[6, 6])])),
        ("no byte order", start().block(0x0a0d_0d0a, &order.words(&[0x1234, 1, 0, 0]))),
        ("version 2.0", start().block(0x0a0d_0d0a, &order.words(&[0x1a2b_3c4d, 2, 0, 0]))),
    ];
    for (expected, capture) in cases {
        let offset_expected = capture.whole_at[capture.whole_at.len() - 2] as u64;
        let endless = Cursor::new(capture.bytes).chain(io::repeat(0));
        let (packets, error) = drain(Reader::from_read("test", Box::new(endless)));
        assert_eq!(packets.len(), 1, "{expected}");
        match error {
            Some(Error::Corrupt { what, offset, packets: 1, .. }) => {
                assert!(what.contains(expected), "{expected}: {what}");
                assert_eq!(offset, offset_expected, "{expected}");
            }
            error => panic!("{expected}: {error:?}"),
        }
    }
}

#[test]
fn a_section_without_end_of_interfaces_is_refused() {
    let interface = Capture::pcapng(Order::Little).interface(1, 0, &[]).bytes.split_off(28);
    let mut bytes = Capture::pcapng(Order::Little).bytes;
    bytes.extend(interface.repeat(65_537));
    let (_, error) = read(&bytes);
    assert!(matches!(error, Some(Error::Corrupt { what, .. }) if what.contains("65536")));
}

#[test]
fn what_is_no_capture_is_described() {
    let cases: [(&[u8], &str); 9] = [
        (b"", "is empty"),
        (b"GET / HTTP/1.1", "starts with 'GET '"),
        (b"0\n0\n1\n", r"starts with '0\n0\n'"),
        (b"\xa1\xb2\xc3", "starts with the bytes a1 b2 c3"),
        (b"\x7fELF", "starts with the bytes 7f 45 4c 46"),
        (b"\x28\xb5\x2f\xfd....", "is packed with zstd, unpack it first"),
        (b"\xfd7zXZ\0", "is packed with xz, unpack it first"),
        (b"BZh9", "is packed with bzip2, unpack it first"),
        (b"PK\x03\x04", "is a zip archive, unpack it first"),
    ];
    for (content, expected) in cases {
        for content in [content.to_vec(), gzip(content)] {
            match read(&content) {
                (_, Some(error @ Error::NotACapture { .. })) => {
                    assert!(!error.is_incomplete_data());
                    let text = error.to_string();
                    assert!(text.contains(&format!("it {expected};")), "{text}");
                }
                (_, error) => panic!("{expected}: {error:?}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_opened_is_told_at_once() {
    for path in ["/", "/no/such/file"] {
        let error = Reader::open(Path::new(path)).err().expect("nothing to read there");
        assert!(matches!(&error, Error::Open { path: named, .. } if named == path), "{error}");
        assert!(!error.is_incomplete_data());
    }
}

#[test]
fn a_read_that_fails_half_way_keeps_the_packets_before() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("bad sector"))
        }
    }
    for (kind, capture) in one_of_each() {
        let input = Cursor::new(capture.bytes[..capture.packets_end[1] + 3].to_vec()).chain(Fails);
        let (packets, error) = drain(Reader::from_read("test", Box::new(input)));
        assert_eq!(packets.len(), 2, "{kind}");
        let error = error.expect("the read fails");
        assert!(matches!(error, Error::Read { packets: 2, .. }), "{kind}: {error}");
        assert!(error.to_string().contains("bad sector"), "{error}");
        assert!(error.is_incomplete_data());
    }
}

#[derive(Clone, Debug)]
enum Harm {
    Flip(Index, u8),
    Word(Index, u32),
    Cut(Index),
    Remove(Index, Index),
    Repeat(Index, Index),
}

fn harm() -> impl Strategy<Value = Harm> {
    let words = prop_oneof![
        Just(0),
        Just(u32::MAX),
        Just(0x0d0a_0a0d),
        1u32..600_000,
        (1u32..600_000).prop_map(u32::swap_bytes),
        any::<u32>()
    ];
    prop_oneof![
        6 => (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        6 => (any::<Index>(), words).prop_map(|(at, word)| Harm::Word(at, word)),
        1 => any::<Index>().prop_map(Harm::Cut),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Harm::Remove(a, b)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Harm::Repeat(a, b)),
    ]
}

fn apply(bytes: &mut Vec<u8>, harm: &Harm) {
    if bytes.is_empty() {
        return;
    }
    let span = |a: &Index, b: &Index, bytes: &[u8]| {
        let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
        a.min(b)..a.max(b)
    };
    match harm {
        Harm::Flip(at, bit) => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        Harm::Word(at, word) => {
            let at = at.index(bytes.len()) & !3;
            let end = bytes.len().min(at + 4);
            bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
        }
        Harm::Cut(at) => bytes.truncate(at.index(bytes.len())),
        Harm::Remove(a, b) => drop(bytes.drain(span(a, b, bytes))),
        Harm::Repeat(a, b) => {
            let span = span(a, b, bytes);
            bytes.extend_from_within(span);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_never_makes_it_panic_or_run_on(
        kind in any::<Index>(),
        packed in prop::bool::weighted(0.2),
        harms in prop::collection::vec(harm(), 1..6),
    ) {
        let kinds = one_of_each();
        let mut bytes = kinds[kind.index(kinds.len())].1.bytes.clone();
        if packed {
            bytes = gzip(&bytes);
        }
        for harm in &harms {
            apply(&mut bytes, harm);
        }
        let (packets, _) = read(&bytes);
        if !packed {
            let claimed: usize = packets.iter().map(|packet| packet.data.len() + 16).sum();
            prop_assert!(claimed <= bytes.len(), "more packets than bytes");
        }
        for packet in packets {
            prop_assert!(packet.wire_len as usize >= packet.data.len());
        }
    }

    #[test]
    fn noise_never_makes_it_panic_or_run_on(
        kind in any::<Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let kinds = one_of_each();
        let capture = &kinds[kind.index(kinds.len())].1;
        let mut bytes = capture.bytes[..capture.whole_at[0]].to_vec();
        bytes.extend(&noise);
        let (packets, _) = read(&bytes);
        prop_assert!(packets.len() * 16 <= noise.len());
        read(&noise);
    }
}
