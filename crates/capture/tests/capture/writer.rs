use std::io::ErrorKind;

use dwell_capture::{LinkType, Writer};
use proptest::prelude::*;

use crate::build::{Owned, read_whole};

#[test]
fn the_file_is_a_little_endian_nanosecond_pcap() {
    let mut writer = Writer::new(Vec::new(), LinkType::RAW).unwrap();
    writer.write(1_700_000_000_000_000_042, &[0xaa, 0xbb], 64).unwrap();
    let expected = [
        0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0, //
        0x00, 0xf1, 0x53, 0x65, 0x2a, 0, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0, 0xaa, 0xbb,
    ];
    assert_eq!(writer.finish().unwrap(), expected);
}

#[test]
fn what_the_format_cannot_hold_is_refused_and_leaves_nothing_behind() {
    let mut writer = Writer::new(Vec::new(), LinkType::RAW).unwrap();
    let too_late = writer.write((u64::from(u32::MAX) + 1) * 1_000_000_000, b"x", 1).unwrap_err();
    let too_long = writer.write(1, &vec![0; 262_145], 262_145).unwrap_err();
    assert_eq!((too_late.kind(), too_long.kind()), (ErrorKind::InvalidInput, ErrorKind::InvalidInput));
    assert_eq!(writer.finish().unwrap().len(), 24);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(
        link in 0..0x400_0000u32,
        packets in prop::collection::vec(
            (0..=4_294_967_295_999_999_999u64, prop::collection::vec(any::<u8>(), 0..2000), 0..2000u32),
            0..30,
        ),
    ) {
        let link = LinkType(link);
        let mut writer = Writer::new(Vec::new(), link).unwrap();
        let mut expected = Vec::new();
        for (time_ns, data, unseen) in packets {
            let wire_len = data.len() as u32 + unseen;
            writer.write(time_ns, &data, wire_len).unwrap();
            expected.push(Owned { time_ns, is_timed: true, interface: 0, link, data, wire_len });
        }
        prop_assert_eq!(read_whole(&writer.finish().unwrap()), expected);
    }
}
