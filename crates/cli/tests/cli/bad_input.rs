//! Captures that are none, or not whole: what was measured before the fault is reported, the fault
//! is named, and the exit status shows whether anything was missed.

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use dwell_capture::LinkType;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use tempfile::TempDir;

use crate::{
    records::of_type,
    support::{Run, dwell, dwell_reading},
    wire::{Sender, capture, capture_as, echo, pings},
};

/// A file in a folder of its own; its name is the same in each message.
struct File {
    folder: TempDir,
}

impl File {
    fn new(content: &[u8]) -> File {
        let file = File { folder: tempfile::tempdir().unwrap() };
        fs::write(file.path(), content).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("x.pcap")
    }

    /// What dwell says of it, with the path made the same for every run.
    fn read(&self) -> Run {
        read(&self.path())
    }
}

fn read(path: &Path) -> Run {
    let mut run = dwell(&["rtt", "-r", path.to_str().unwrap()]);
    run.stderr = run.stderr.replace(path.to_str().unwrap(), "x.pcap");
    run
}

/// Two packets of each ping: 16 bytes of head and 14 + 20 + 8 + 56.
const RECORD: usize = 114;
const HEADER: usize = 24;

#[test]
fn a_whole_capture() {
    let run = File::new(&capture(&pings(3))).read();
    insta::assert_snapshot!(run, @"
    exit 0
    stdout: 03:04:05.005000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stdout: 03:04:05.015000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stdout: 03:04:05.025000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stderr: dwell: 6 packets, 3 samples, 0 events lost, 588 bytes, 1 flow opened, 3 stamps
    ");
}

#[test]
fn a_missing_file() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(read(&folder.path().join("nosuch.pcap")), @"
    exit 2
    stderr: dwell: cannot open capture x.pcap: No such file or directory (os error 2); check the name and that you may read it
    ");
}

#[test]
fn a_directory() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(read(folder.path()), @"
    exit 2
    stderr: dwell: cannot open capture x.pcap: Is a directory (os error 21); check the name and that you may read it
    ");
}

#[test]
fn a_file_that_is_no_capture() {
    insta::assert_snapshot!(File::new(b"GET / HTTP/1.1\r\n\r\n").read(), @"
    exit 2
    stderr: dwell: x.pcap is not a capture: it starts with 'GET '; give a pcap or pcapng file, plain or gzip
    ");
}

#[test]
fn an_empty_file() {
    insta::assert_snapshot!(File::new(b"").read(), @"
    exit 2
    stderr: dwell: x.pcap is not a capture: it is empty; give a pcap or pcapng file, plain or gzip
    ");
}

#[test]
fn a_header_and_nothing_more() {
    insta::assert_snapshot!(File::new(&capture(&[])).read(), @"
    exit 0
    stderr: dwell: 0 packets, 0 samples, 0 events lost
    ");
}

#[test]
fn a_part_of_a_header() {
    insta::assert_snapshot!(File::new(&capture(&[])[..10]).read(), @"
    exit 4
    stderr: dwell: capture x.pcap is cut off inside the record at byte 0; packets read before: 0, all good; copy the file again or let the capture finish to get the rest
    ");
}

#[test]
fn a_capture_that_is_cut_in_the_middle_of_a_packet_or_of_its_head() {
    let whole = capture(&pings(3));
    assert_eq!(whole.len(), HEADER + 6 * RECORD);
    let [packet, head] = [50, 7].map(|bytes| File::new(&whole[..HEADER + 4 * RECORD + bytes]).read());
    assert_eq!(packet.to_string(), head.to_string());
    insta::assert_snapshot!(packet, @"
    exit 4
    stdout: 03:04:05.005000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stdout: 03:04:05.015000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stderr: dwell: 4 packets, 2 samples, 0 events lost, 392 bytes, 1 flow opened, 2 stamps
    stderr: dwell: capture x.pcap is cut off inside the record at byte 480; packets read before: 4, all good; copy the file again or let the capture finish to get the rest
    ");
}

#[test]
fn a_packet_that_claims_an_absurd_length() {
    let mut bytes = capture(&pings(3));
    let length = HEADER + 4 * RECORD + 8;
    bytes[length..length + 4].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
    insta::assert_snapshot!(File::new(&bytes).read(), @"
    exit 4
    stdout: 03:04:05.005000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stdout: 03:04:05.015000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stderr: dwell: 4 packets, 2 samples, 0 events lost, 392 bytes, 1 flow opened, 2 stamps
    stderr: dwell: capture x.pcap is damaged at packet 5, byte 480: it claims 4294967280 captured bytes, the most is 262144; packets read before: 4, all good; copy the file again or repair it to get the rest
    ");
}

#[test]
fn a_link_type_that_nobody_knows() {
    let bytes = capture_as(LinkType(147), &pings(3));
    insta::assert_snapshot!(File::new(&bytes).read(), @"
    exit 2
    stderr: dwell: 6 packets, 0 samples, 0 events lost, 504 bytes, 6 unknown link
    stderr: dwell: x.pcap: 6 of 6 packets have an unknown link type: 147; capture on another interface, or convert it with a tool that knows it
    ");
}

#[test]
fn one_interface_of_two_with_a_link_type_that_nobody_knows() {
    insta::assert_snapshot!(File::new(&two_links()).read(), @"
    exit 4
    stdout: 00:00:00.005000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stdout: 00:00:00.015000Z  5.00 ms  min 5.00 ms  icmp            192.0.2.1 → 198.51.100.7 id 7
    stderr: dwell: 5 packets, 2 samples, 0 events lost, 340 bytes, 1 unknown link, 1 flow opened, 2 stamps
    stderr: dwell: x.pcap: 1 of 5 packets have an unknown link type: 147; capture on another interface, or convert it with a tool that knows it
    ");
}

/// A block of a pcapng file.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (12 + body.len().next_multiple_of(4)) as u32;
    let mut block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
    block.extend(body);
    block.resize(length as usize - 4, 0);
    block.extend(length.to_le_bytes());
    block
}

#[test]
fn packets_without_a_time() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/simple-packets.pcapng.gz");
    insta::assert_snapshot!(read(&path), @"
    exit 2
    stderr: dwell: 0 packets, 0 samples, 0 events lost
    stderr: dwell: x.pcap: 150 of 150 packets have no time (pcapng simple packet blocks) and were not measured; capture again with a tool that records times, such as tcpdump
    ");
}

#[test]
fn one_packet_of_six_without_a_time() {
    let untimed = block(3, &[&4u32.to_le_bytes()[..], &[1, 2, 3, 4]].concat());
    let file = [two_links(), untimed].concat();
    let run = File::new(&file).read();
    assert_eq!(run.status, Some(4));
    assert!(run.stderr.contains("1 of 6 packets have no time"), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 2);
}

#[test]
fn every_replay_says_in_its_status_what_the_capture_lacks() {
    let untimed = block(3, &[&4u32.to_le_bytes()[..], &[1, 2, 3, 4]].concat());
    let whole = [two_links(), untimed].concat();
    let (whole, cut) = (File::new(&whole), File::new(&whole[..whole.len() - 30]));
    for (verb, options) in [("rtt", &[][..]), ("response", &[]), ("top", &["--once"])] {
        let counters = |file: &File| {
            let path = file.path();
            let run = dwell(&[&[verb, "-r", path.to_str().unwrap(), "--format", "jsonl"], options].concat());
            let status = of_type(&run.stdout, &format!("{verb}.status")).pop().unwrap_or_else(|| panic!("{run}"));
            status["counters"].clone()
        };
        let of_whole = counters(&whole);
        assert_eq!((&of_whole["capture_untimed"], &of_whole["unknown_link"]), (&1.into(), &1.into()), "{verb}");
        assert!(of_whole["capture_cut_off"].is_null(), "{verb}");
        assert_eq!(counters(&cut)["capture_cut_off"], 1, "{verb}");
    }
    let mut shortened = capture(&pings(1));
    // The length on the wire of the first packet.
    shortened[HEADER + 12] += 1;
    let file = File::new(&shortened);
    let run = dwell(&["rtt", "-r", file.path().to_str().unwrap(), "--format", "jsonl"]);
    assert_eq!(of_type(&run.stdout, "rtt.status")[0]["counters"]["capture_shortened"], 1, "{run}");
    let run = dwell(&["why", ":80", "-r", whole.path().to_str().unwrap(), "--format", "jsonl"]);
    assert!(run.stdout.contains("1 of 6 packets have no time"), "{run}");
}

#[test]
fn a_packet_that_a_capture_has_twice_counts_once() {
    let packed = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/line.pcap.gz")).unwrap();
    let mut once = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut once).unwrap();
    let word = |at: usize| u32::from_le_bytes(once[at..at + 4].try_into().unwrap());
    let (mut twice, mut at, mut packets) = (once[..HEADER].to_vec(), HEADER, 0);
    while at < once.len() {
        let end = at + 16 + word(at + 8) as usize;
        twice.extend_from_slice(&once[at..end]);
        // The copies come a little later, from a router: with one hop less to live, and another checksum.
        for later_us in [20, 40] {
            let mut copy = once[at..end].to_vec();
            copy[4..8].copy_from_slice(&(word(at + 4) + later_us).to_le_bytes());
            if copy[28..30] == [8, 0] {
                copy[38] -= 1;
                copy[40] ^= 1;
            } else {
                copy[37] -= 1;
            }
            twice.extend(copy);
            packets += 1;
        }
        at = end;
    }
    let (once, twice) = (File::new(&once), File::new(&twice));
    for options in [&["rtt", "--summary"][..], &["response"], &["top", "--once"]] {
        let run = |file: &File| dwell(&[options, &["-r", file.path().to_str().unwrap(), "--format", "jsonl"]].concat());
        let (of_once, of_twice) = (run(&once), run(&twice));
        let all_but_status = |run: &Run| {
            let lines = run.stdout.lines().filter(|line| !line.contains(".status\""));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(all_but_status(&of_once), all_but_status(&of_twice), "{options:?}");
        let status = of_type(&of_twice.stdout, &format!("{}.status", options[0])).pop().unwrap();
        assert_eq!(status["counters"]["capture_repeated"], packets, "{of_twice}");
    }
    let run = dwell(&["why", "-r", twice.path().to_str().unwrap()]);
    assert!(run.stdout.contains(&format!("{packets} copies of packets that the capture has more than once")), "{run}");
}

#[test]
fn segments_that_a_capture_lacks_are_counted_and_a_tenth_of_them_is_a_fault() {
    let packed = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/line.pcap.gz")).unwrap();
    let mut whole = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut whole).unwrap();
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
    for (each, status) in [(u64::MAX, 0), (20, 0), (4, 4)] {
        let (mut lost, mut at, mut segments, mut missing) = (whole[..HEADER].to_vec(), HEADER, 0, 0);
        while at < whole.len() {
            let end = at + 16 + word(at + 8) as usize;
            // IPv4 in Ethernet, and TCP with data.
            let is_data = word(at + 12) > 200 && whole[at + 28..at + 30] == [8, 0] && whole[at + 39] == 6;
            segments += u64::from(is_data);
            let is_lost = is_data && segments % each == each - 1;
            missing += u64::from(is_lost);
            if !is_lost {
                lost.extend_from_slice(&whole[at..end]);
            }
            at = end;
        }
        assert!((missing > 0) == (each < u64::MAX));
        let file = File::new(&lost);
        for options in [&["rtt"][..], &["response"]] {
            let run = dwell(&[options, &["-r", file.path().to_str().unwrap(), "--format", "jsonl"]].concat());
            let counters = of_type(&run.stdout, &format!("{}.status", options[0])).pop().unwrap()["counters"].clone();
            assert_eq!(counters["capture_missing"].as_u64().unwrap_or(0), missing, "{run}");
            assert_eq!(run.status, Some(status), "{run}");
            assert_eq!(run.stderr.contains("the capture lacks them; capture with less load"), status == 4, "{run}");
        }
    }
}

/// As with `tcpdump -s 64`: timestamps of TCP are lost.
#[test]
fn a_capture_that_is_cut_within_the_headers_of_tcp_is_told() {
    let packed = fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/line.pcap.gz")).unwrap();
    let mut whole = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut whole).unwrap();
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
    let (mut cut, mut at) = (whole[..HEADER].to_vec(), HEADER);
    while at < whole.len() {
        let (captured, end) = (word(at + 8).min(60), at + 16 + word(at + 8) as usize);
        cut.extend_from_slice(&whole[at..at + 8]);
        cut.extend(captured.to_le_bytes());
        cut.extend_from_slice(&whole[at + 12..at + 16 + captured as usize]);
        at = end;
    }
    let file = File::new(&cut);
    for verb in ["rtt", "response"] {
        let run = dwell(&[verb, "-r", file.path().to_str().unwrap()]);
        assert_eq!(run.status, Some(4), "{run}");
        assert!(run.stderr.contains("are cut within") && run.stderr.contains("tcpdump -s 128"), "{run}");
    }
}

#[test]
fn flows_that_find_no_room_are_told_with_the_remedy() {
    let pinged =
        |id: u16| [(0.0, Sender::Client), (0.5, Sender::Server)].map(|(at, by)| echo(f64::from(id) + at, by, id, 1));
    let file = File::new(&capture(&(0..64).flat_map(pinged).collect::<Vec<_>>()));
    for (most, status) in [("64000", 0), ("4", 4)] {
        let run = dwell(&["rtt", "-r", file.path().to_str().unwrap(), "--max-flows", most]);
        assert_eq!(run.status, Some(status), "{run}");
        assert_eq!(run.stderr.contains("follow more flows (--max-flows)"), status == 4, "{run}");
    }
}

/// A pcapng file: pings on an Ethernet interface, and a packet on one of a private link type.
fn two_links() -> Vec<u8> {
    fn packet(interface: u32, micros: u32, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let mut body: Vec<u8> =
            [interface, 0, micros, length, length].iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(data);
        block(6, &body)
    }
    let section = [&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat();
    let interface = |link: u16| block(1, &[&link.to_le_bytes()[..], &[0; 6]].concat());
    let mut file = block(0x0a0d_0d0a, &section);
    file.extend(interface(101));
    file.extend(interface(147));
    file.extend(packet(1, 0, &[1, 2, 3, 4]));
    for ping in pings(2) {
        file.extend(packet(0, (ping.at_ms * 1000.0) as u32, &ping.ip));
    }
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_pipe_a_gzip_file_and_both_give_what_the_plain_file_gives() {
    let plain = capture(&pings(20));
    let want = File::new(&plain).read();
    assert_eq!((want.status, want.stdout.lines().count()), (Some(0), 20));
    assert_eq!(File::new(&gzip(&plain)).read(), want);
    assert_eq!(dwell_reading(&["rtt", "-r", "-"], &plain), want);
    assert_eq!(dwell_reading(&["rtt", "-r", "-"], &gzip(&plain)), want);
}

#[test]
fn a_gzip_file_that_is_cut() {
    let packed = gzip(&capture(&pings(2000)));
    let run = File::new(&packed[..packed.len() / 2]).read();
    assert_eq!(run.status, Some(4), "{run}");
    assert!((500..2000).contains(&run.stdout.lines().count()), "{run}");
    assert!(run.stderr.contains("all good"), "{run}");
}

#[test]
fn an_empty_pipe() {
    insta::assert_snapshot!(dwell_reading(&["rtt", "-r", "-"], b""), @"
    exit 2
    stderr: dwell: standard input is not a capture: it is empty; give a pcap or pcapng file, plain or gzip
    ");
}

#[test]
fn packets_that_make_no_sense_are_counted_by_reason() {
    let mut packets = pings(1);
    // A header length of 4 bytes, then a packet that is cut short.
    packets[0].ip[0] = 0x41;
    packets[1].ip.truncate(10);
    insta::assert_snapshot!(File::new(&capture(&packets)).read(), @"
    exit 4
    stderr: dwell: 2 packets, 0 samples, 0 events lost, 122 bytes, 1 truncated, 1 malformed
    stderr: dwell: x.pcap: 1 of 2 packets are cut within their headers and were not measured; capture more of each packet (tcpdump -s 128)
    ");
}
