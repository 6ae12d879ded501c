//! Seeds for readers of capture files.

use std::io::Write;

use dwell_capture::{LinkType, Writer};

use super::{endpoints, framed, query, segment};
use crate::frame::{self, Link};

/// Small files of each format, and damaged ones.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let (client, server) = endpoints(false, (0, 0));
    let request = frame::ip(Link::Ethernet, 6, client, server, &segment(false), 82).data;
    let reply = segment(true);
    let reply = [&reply[..24], &[0, 0, 0, 9, 0, 0, 0, 7], &reply[32..]].concat();
    let answer = frame::ip(Link::Ethernet, 6, server, client, &reply, 82).data;
    let question = framed(Link::Ethernet, 17, true, &query()).data;
    let all = [&request, &answer, &question];

    let mut writer = Writer::new(Vec::new(), LinkType(1)).expect("writing to memory cannot fail");
    for (at_ms, data) in (0..).zip(all) {
        let time_ns = 1_600_000_000_000_000_000 + at_ms * 20_000_000;
        writer.write(time_ns, data, data.len() as u32 + 50).expect("writing to memory cannot fail");
    }
    let classic = writer.finish().expect("writing to memory cannot fail");
    // A classic file in big-endian byte order, with microseconds.
    let mut swapped: Vec<u8> =
        [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 1].iter().flat_map(|word| word.to_be_bytes()).collect();
    for data in all {
        let len = data.len() as u32;
        swapped.extend([5, 6, len, len].iter().flat_map(|word| word.to_be_bytes()));
        swapped.extend(data);
    }

    let section = block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    let interface = |link: u8, tsresol: u8| {
        let head = [link, 0, 0, 0, 0, 0, 4, 0];
        block(1, &[&head[..], &[9, 0, 1, 0, tsresol, 0, 0, 0, 0, 0, 0, 0]].concat())
    };
    let packet = |kind: u32, number: u8, time: u32, data: &[u8]| {
        let len = (data.len() as u32).to_le_bytes();
        let head = [[number, 0, 0, 0], 0x57f5_0000u32.to_le_bytes(), time.to_le_bytes(), len, len];
        let mut body = [head.as_flattened(), data].concat();
        body.resize(body.len().next_multiple_of(4), 0);
        block(kind, &body)
    };
    let mut simple = [&(request.len() as u32).to_le_bytes()[..], &request].concat();
    simple.resize(simple.len().next_multiple_of(4), 0);
    let blocks = [
        section.clone(),
        interface(1, 9),
        packet(6, 0, 1_000_000, &request),
        interface(101, 0x94),
        packet(6, 0, 21_000_000, &answer),
        packet(2, 1, 3, &request[14..]),
        block(5, &[0; 12]),
        block(3, &simple),
        section,
        interface(1, 6),
        packet(6, 0, 9, &question),
    ]
    .concat();
    let cut = |file: &[u8]| file[..file.len() - 9].to_vec();
    vec![
        ("empty", Vec::new()),
        ("text", b"GET / HTTP/1.1\r\n".to_vec()),
        ("classic-cut", cut(&classic)),
        ("blocks-cut", cut(&blocks)),
        ("classic-gzip", gzip(&classic)),
        ("blocks-gzip", [gzip(&blocks[..100]), gzip(&blocks[100..])].concat()),
        ("classic", classic),
        ("classic-swapped", swapped),
        ("blocks", blocks),
    ]
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, body, &len].concat()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    packer.write_all(content).expect("writing to memory cannot fail");
    packer.finish().expect("writing to memory cannot fail")
}
