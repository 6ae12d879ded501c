//! What packets tell of flows: labels of requests, and names.

use std::collections::BTreeSet;

use dwell_engine::{
    labels::LONGEST,
    measure::{Endpoint, Method, Protocol},
    names::PassiveNames,
    observe::Observation,
};

use crate::{
    bytes::Bytes,
    frame::{self, Link},
};

/// A segment whose end was not captured.
const CUT: u8 = 0x80;
/// One before which another is missing.
const GAP: u8 = 0x40;
/// A datagram of DNS instead.
const DATAGRAM: u8 = 0x20;
/// The other direction.
const BACK: u8 = 0x10;

/// Reads payloads of one connection, each after two bytes: flags with the upper bits of its length, and the lower ones.
pub fn labels(bytes: &[u8]) -> BTreeSet<Method> {
    let end = |last: u8, port| Endpoint { address: [192, 0, 2, last].into(), port };
    let mut names = PassiveNames::new(true);
    let (mut rest, mut seqs) = (bytes, [u32::MAX - 1000; 2]);
    while !rest.is_empty() {
        let mut choices = Bytes::new(rest);
        let [flags, low] = choices.array();
        rest = choices.rest();
        let length = (usize::from(flags & 0xf) << 8 | usize::from(low)).min(rest.len());
        let (payload, after) = rest.split_at(length);
        rest = after;
        let is_back = usize::from(flags & BACK != 0);
        let port = if flags & DATAGRAM != 0 { 53 } else { 80 };
        let (mut from, mut to) = (end(1, 40_000), end(2, port));
        if is_back == 1 {
            (from, to) = (to, from);
        }
        let (proto, l4) = if flags & DATAGRAM != 0 {
            (17, frame::udp((from.port, to.port), payload))
        } else {
            let seq = &mut seqs[is_back];
            *seq = seq.wrapping_add(if flags & GAP != 0 { 300 } else { 0 });
            let header = frame::tcp((from.port, to.port), *seq, 0, 0x10, 1000, &[]);
            *seq = seq.wrapping_add(length as u32);
            (6, [header, payload.to_vec()].concat())
        };
        let cut = if flags & CUT != 0 { (payload.len() / 2).min(100) } else { 0 };
        let frame = frame::ip(Link::Raw, proto, from, to, &l4[..l4.len() - cut], l4.len());
        // In an allocation of its exact size, so that a read past its end is detected.
        let data = Box::<[u8]>::from(&frame.data[..]);
        names.observe(&Observation {
            time_ns: 0,
            interface: 0,
            link: frame.link,
            data: &data,
            wire_len: frame.wire_len,
        });
        if let Some(label) = names.label(&from, &to, Protocol(proto)) {
            assert!(label.len() <= LONGEST && !label.chars().any(char::is_control), "{label:?}");
            assert_eq!(names.label(&to, &from, Protocol(proto)), Some(label));
        }
    }
    BTreeSet::new()
}
