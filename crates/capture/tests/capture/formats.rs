use std::{
    fs,
    io::{Cursor, Write},
    os::unix::net::UnixStream,
    process::Command,
    thread,
    time::Duration,
};

use dwell_capture::{Error, LinkType, Reader};

use crate::build::{Capture, ORDERS, Order, Owned, drain, dribble, gzip, one_of_each, read, read_whole};

#[test]
fn a_pcap_file_given_byte_by_byte_is_read() {
    let file = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 113, 0, 0, 0, //
        0x00, 0xf1, 0x53, 0x65, 0x2a, 0, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0, 0xaa, 0xbb,
    ];
    let expected = Owned {
        time_ns: 1_700_000_000_000_042_000,
        is_timed: true,
        interface: 0,
        link: LinkType::LINUX_SLL,
        data: vec![0xaa, 0xbb],
        wire_len: 64,
    };
    assert_eq!(read_whole(&file), [expected]);
}

#[test]
fn pcap_ticks_follow_the_magic_in_both_byte_orders() {
    for order in ORDERS {
        for (magic, tick_ns) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1), (0xa1b2_cd34, 1000)] {
            let capture = Capture::pcap(order, magic, (2, 4), 101)
                .record([1_700_000_000, 999_999, 3, 60], b"abc")
                .record([u32::MAX, 7, 2, 2], b"de");
            let packets = read_whole(&capture.bytes);
            let times: Vec<u64> = packets.iter().map(|packet| packet.time_ns).collect();
            let seconds = 1_000_000_000;
            assert_eq!(
                times,
                [1_700_000_000 * seconds + 999_999 * tick_ns, u64::from(u32::MAX) * seconds + 7 * tick_ns],
                "{magic:x} {order:?}"
            );
            assert_eq!((&packets[0].data[..], packets[0].wire_len), (&b"abc"[..], 60));
            assert_eq!((&packets[1].data[..], packets[1].wire_len), (&b"de"[..], 2));
            assert_eq!(packets[0].link, LinkType::RAW);
        }
    }
}

#[test]
fn pcap_before_version_2_4_holds_the_lengths_in_either_order() {
    for version in [(2, 0), (2, 2), (2, 3), (543, 0)] {
        let capture = Capture::pcap(Order::Big, 0xa1b2_c3d4, version, 1)
            .record([1, 2, 590, 3], b"abc")
            .record([1, 3, 3, 590], b"def");
        let packets = read_whole(&capture.bytes);
        assert_eq!((&packets[0].data[..], packets[0].wire_len), (&b"abc"[..], 590), "{version:?}");
        assert_eq!((&packets[1].data[..], packets[1].wire_len), (&b"def"[..], 590), "{version:?}");
    }
}

#[test]
fn a_wire_length_below_the_captured_length_is_corrected() {
    let pcap = Capture::pcap(Order::Little, 0xa1b2_c3d4, (2, 4), 1).record([1, 2, 5, 4], b"abcde");
    let pcapng = Capture::pcapng(Order::Little).interface(1, 0, &[]).enhanced(0, 1, b"abcde", 4);
    for capture in [pcap, pcapng] {
        let packets = read_whole(&capture.bytes);
        assert_eq!((&packets[0].data[..], packets[0].wire_len), (&b"abcde"[..], 5));
    }
}

#[test]
fn a_pcap_version_never_heard_of_is_refused() {
    let capture = Capture::pcap(Order::Little, 0xa1b2_c3d4, (9, 9), 1);
    let (_, error) = read(&capture.bytes);
    assert!(matches!(error, Some(Error::Corrupt { what, .. }) if what.contains("version 9.9")));
}

#[test]
fn frame_check_bits_do_not_change_the_link_type() {
    for link in [1, 0x4400_0001, 0xf400_0001] {
        let capture = Capture::pcap(Order::Big, 0xa1b2_c3d4, (2, 4), link).record([1, 2, 0, 0], b"");
        assert_eq!(read_whole(&capture.bytes)[0].link, LinkType::EN10MB);
    }
}

#[test]
fn a_header_alone_is_a_capture_of_no_packets() {
    assert!(read_whole(&Capture::pcap(Order::Big, 0xa1b2_c3d4, (2, 4), 1).bytes).is_empty());
    assert!(read_whole(&Capture::pcapng(Order::Big).bytes).is_empty());
}

#[test]
fn pcapng_times_follow_resolution_and_offset() {
    let cases: [(Option<u8>, i64, u64, u64); 14] = [
        (None, 0, 1_700_000_000_000_001, 1_700_000_000_000_001_000),
        (Some(6), 0, 1_700_000_000_000_001, 1_700_000_000_000_001_000),
        (Some(0), 0, 1_700_000_000, 1_700_000_000_000_000_000),
        (Some(3), 0, 1_700_000_000_001, 1_700_000_000_001_000_000),
        (Some(9), 0, 1_700_000_000_000_000_001, 1_700_000_000_000_000_001),
        (Some(10), 0, 17_000_000_000_000_000_019, 1_700_000_000_000_000_001),
        (Some(19), 0, 15_000_000_000_000_000_000, 1_500_000_000),
        (Some(0x80), 0, 1_700_000_000, 1_700_000_000_000_000_000),
        (Some(0x80 | 10), 0, 1025, 1_000_976_562),
        (Some(0x80 | 63), 0, 3 << 62, 1_500_000_000),
        (Some(9), 1_700_000_000, 5, 1_700_000_000_000_000_005),
        (Some(0x80 | 1), -1, 3, 500_000_000),
        (Some(6), -1_700_000_000, 5, 0),
        (Some(0), 0, u64::MAX, u64::MAX),
    ];
    for order in ORDERS {
        for (resolution, offset_s, ticks, expected_ns) in cases {
            let offset = order.i64(offset_s);
            let resolution = resolution.map(|resolution| [resolution]);
            let mut options: Vec<(u16, &[u8])> = vec![(2, b"eth")];
            if let Some(resolution) = &resolution {
                options.push((9, resolution));
            }
            if offset_s != 0 {
                options.push((14, &offset));
            }
            options.push((0, b""));
            options.push((9, &[3]));
            let capture = Capture::pcapng(order).interface(1, 0, &options).enhanced(0, ticks, b"x", 1);
            let time_ns = read_whole(&capture.bytes)[0].time_ns;
            assert_eq!(time_ns, expected_ns, "{order:?} {resolution:?} {offset_s} {ticks}");
        }
    }
}

#[test]
fn a_resolution_finer_than_64_bits_is_refused() {
    for resolution in [20, 127, 0x80 | 64, 255] {
        let capture = Capture::pcapng(Order::Little).interface(1, 0, &[(9, &[resolution])]);
        let (_, error) = read(&capture.bytes);
        assert!(matches!(error, Some(Error::Corrupt { .. })), "{resolution} {error:?}");
    }
}

#[test]
fn interfaces_have_the_names_that_their_section_gives() {
    let long = [b'x'; 100];
    let capture = Capture::pcapng(Order::Big)
        .interface(1, 0, &[(2, b"eth0")])
        .interface(1, 0, &[(9, &[9])])
        .enhanced(0, 1, b"a", 1)
        .enhanced(1, 1, b"b", 1)
        .section(Order::Little)
        .interface(1, 0, &[(2, &long)])
        .enhanced(0, 1, b"c", 1);
    let mut reader = Reader::from_read("names", Box::new(Cursor::new(capture.bytes))).unwrap();
    let mut names = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        names.push(packet.interface_name.map(str::to_owned));
    }
    assert_eq!(names, [Some("eth0".into()), None, Some("x".repeat(64))]);
    assert!(reader.distinguishes_interfaces());
}

#[test]
fn sections_of_either_byte_order_number_their_interfaces_on() {
    let capture = Capture::pcapng(Order::Big)
        .interface(1, 0, &[])
        .interface(0, 0, &[(9, &[9])])
        .enhanced(1, 11, b"a", 1)
        .enhanced(0, 12, b"b", 1)
        .section(Order::Little)
        .section(Order::Little)
        .interface(101, 0, &[(9, &[3])])
        .enhanced(0, 13, b"c", 1)
        .interface(113, 0, &[])
        .obsolete(1, 14, b"dddd", 1500);
    let packets = read_whole(&capture.bytes);
    let seen: Vec<_> =
        packets.iter().map(|packet| (packet.interface, packet.link.0, packet.time_ns, packet.wire_len)).collect();
    assert_eq!(seen, [(1, 0, 11, 1), (0, 1, 12_000, 1), (2, 101, 13_000_000, 1), (3, 113, 14_000, 1500)]);
}

/// Files of a ring that were joined, and after them one of another host, whose interface has the same name, of the same time.
#[test]
fn an_interface_goes_on_in_a_later_section_and_one_of_another_place_does_not() {
    let name: &[(u16, &[u8])] = &[(2, b"eth0")];
    let capture = Capture::pcapng(Order::Little)
        .interface(1, 0, &[(2, b"lo")])
        .interface(1, 0, name)
        .enhanced(1, 1_000_000, b"a", 1)
        .enhanced(1, 1_000_900, b"b", 1)
        .section(Order::Little)
        .interface(1, 0, name)
        .interface(1, 0, name)
        .enhanced(0, 1_000_800, b"c", 1)
        .enhanced(1, 1_000_950, b"d", 1)
        .section(Order::Big)
        .interface(1, 0, name)
        .enhanced(0, 2_000_000, b"e", 1)
        .section(Order::Little)
        .interface(1, 0, name)
        .enhanced(0, 500_000, b"f", 1)
        .section(Order::Little)
        .interface(101, 0, name)
        .enhanced(0, 3_000_000, b"g", 1);
    let mut reader = Reader::from_read("joined", Box::new(Cursor::new(capture.bytes.clone()))).unwrap();
    let mut seen = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        seen.push((packet.data[0], packet.interface, packet.interface_name == Some("eth0")));
    }
    let expected = [(b'a', 1), (b'b', 1), (b'c', 1), (b'd', 3), (b'e', 3), (b'f', 5), (b'g', 6)];
    assert_eq!(seen, expected.map(|(data, interface)| (data, interface, true)));
    // What is seen before its turn is what comes.
    read_whole(&capture.bytes);
}

#[test]
fn a_simple_packet_has_no_time_and_takes_interface_and_length_from_elsewhere() {
    let capture = Capture::pcapng(Order::Little)
        .interface(1, 4, &[])
        .interface(101, 0, &[])
        .simple(b"1234", 100)
        .enhanced(1, 7, b"x", 1)
        .simple(b"123\0", 3)
        .section(Order::Big)
        .interface(0, 0, &[])
        .simple(b"123456\0\0", 6);
    let packets = read_whole(&capture.bytes);
    let packet = |time_ns, interface, link, data: &[u8], wire_len| Owned {
        time_ns,
        is_timed: false,
        interface,
        link: LinkType(link),
        data: data.to_vec(),
        wire_len,
    };
    assert_eq!(packets[0], packet(0, 0, 1, b"1234", 100));
    assert!(packets[1].is_timed);
    assert_eq!(packets[2], packet(7000, 0, 1, b"123", 3));
    assert_eq!(packets[3], packet(7000, 2, 0, b"123456", 6));
}

#[test]
fn unknown_blocks_of_any_size_are_stepped_over() {
    for len in [0, 1, 100, 600_000, 9_000_000] {
        let capture = Capture::pcapng(Order::Big)
            .block(0x4000_0bad, &vec![0x55; len])
            .interface(1, 0, &[])
            .block(5, &vec![0x55; len])
            .enhanced(0, 7, b"x", 1);
        assert_eq!(read_whole(&capture.bytes).len(), 1, "{len}");
    }
}

#[test]
fn a_block_length_without_its_padding_is_understood() {
    let mut body = Order::Little.words(&[0, 0, 7, 3, 3]);
    body.extend(b"abc");
    let capture =
        Capture::pcapng(Order::Little).interface(1, 0, &[]).block_claiming(6, &body, 35, 35).enhanced(0, 8, b"de", 2);
    let packets = read_whole(&capture.bytes);
    assert_eq!(packets[0].data, b"abc");
    assert_eq!(packets[1].data, b"de");
}

#[test]
fn gzip_is_unpacked_whatever_the_name() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, capture) in one_of_each() {
        let plain = read_whole(&capture.bytes);
        let (first, second) = capture.bytes.split_at(capture.bytes.len() / 2);
        let members = [gzip(first), gzip(b""), gzip(second)].concat();
        for packed in [gzip(&capture.bytes), members] {
            let path = folder.path().join("capture.pcap");
            fs::write(&path, &packed).unwrap();
            let mut reader = Reader::open(&path).unwrap();
            while reader.next_packet().unwrap().is_some() {}
            assert_eq!(reader.position(), packed.len() as u64, "{kind}");
            assert_eq!(reader.size(), Some(packed.len() as u64), "{kind}");
            assert_eq!(drain(Reader::open(&path)).0, plain, "{kind}");
        }
    }
}

#[test]
fn position_moves_with_the_packets() {
    let (_, capture) = &one_of_each()[0];
    let mut reader = Reader::from_read("test", Box::new(Cursor::new(capture.bytes.clone()))).unwrap();
    assert_eq!((reader.position(), reader.size(), reader.packets()), (24, None, 0));
    for (count, end) in capture.packets_end.iter().enumerate() {
        reader.next_packet().unwrap().unwrap();
        assert_eq!(reader.position(), *end as u64);
        assert_eq!(reader.packets(), count as u64 + 1);
    }
}

#[test]
fn small_and_interrupted_reads_change_nothing() {
    for (kind, capture) in one_of_each() {
        for bytes in [capture.bytes.clone(), gzip(&capture.bytes)] {
            for step in 1..40 {
                let (packets, error) = drain(Reader::from_read("test", Box::new(dribble(&bytes, step))));
                assert!(error.is_none(), "{kind} by {step}: {error:?}");
                assert_eq!(packets, read_whole(&bytes), "{kind} by {step}");
            }
        }
    }
}

#[test]
fn a_capture_larger_than_the_buffer_is_read_whole() {
    let mut pcap = Capture::pcap(Order::Little, 0xa1b2_c3d4, (2, 4), 1);
    let mut pcapng = Capture::pcapng(Order::Little).interface(1, 0, &[]);
    for number in 0..40_u32 {
        let len = number * 6_553;
        let data = vec![number as u8; len as usize];
        pcap = pcap.record([0, number, len, len], &data);
        pcapng = pcapng.enhanced(0, u64::from(number), &data, len);
    }
    for bytes in [pcap.bytes, pcapng.bytes] {
        let packets = read_whole(&bytes);
        assert_eq!(packets.len(), 40);
        for (number, packet) in packets.iter().enumerate() {
            assert_eq!(packet.time_ns, number as u64 * 1000);
            assert_eq!(packet.data.len(), number * 6_553);
            assert!(packet.data.iter().all(|byte| usize::from(*byte) == number));
        }
    }
}

#[test]
fn a_live_pipe_gives_each_packet_when_it_is_there() {
    let (_, capture) = &one_of_each()[0];
    let (mut sender, receiver) = UnixStream::pair().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    sender.write_all(&capture.bytes[..capture.packets_end[0]]).unwrap();
    let mut reader = Reader::from_read("pipe", Box::new(receiver)).unwrap();
    assert_eq!(reader.next_packet().unwrap().unwrap().data, b"abc");
    sender.write_all(&capture.bytes[capture.packets_end[0]..]).unwrap();
    drop(sender);
    assert_eq!(drain(Ok(reader)).0.len(), 2);
}

#[test]
fn a_named_pipe_is_read_and_has_no_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (_, capture) = one_of_each().remove(0);
    let expected = read_whole(&capture.bytes);
    let writer = thread::spawn({
        let path = path.clone();
        move || fs::write(path, capture.bytes)
    });
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.size(), None);
    assert_eq!(drain(Ok(reader)).0, expected);
    writer.join().unwrap().unwrap();
}

#[test]
fn link_types_show_their_names() {
    let names = [0, 1, 12, 101, 104, 113, 276, 147].map(|link| LinkType(link).to_string());
    assert_eq!(names, ["NULL", "EN10MB", "RAW", "RAW", "C_HDLC", "LINUX_SLL", "LINUX_SLL2", "147"]);
}

#[test]
fn packets_are_seen_before_their_turn_as_far_as_they_are_in_memory_and_each_once() {
    for (name, capture) in one_of_each() {
        let mut reader = Reader::from_read(&name, Box::new(Cursor::new(capture.bytes.clone()))).unwrap();
        let mut numbers = Vec::new();
        loop {
            while let Some(packet) = reader.look_ahead(2) {
                numbers.push(packet.number);
            }
            if reader.next_packet().unwrap().is_none() {
                break;
            }
        }
        assert!(numbers.is_sorted_by(|one, other| one < other), "{name}: {numbers:?}");
        // In pcapng, one that follows another kind of block is not seen.
        let expected = if name.starts_with("pcapng") { 0 } else { reader.packets() };
        assert!(numbers.len() as u64 >= expected && numbers.len() as u64 <= reader.packets(), "{name}: {numbers:?}");
    }
}
