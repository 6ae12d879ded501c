//! ICMP echo requests and replies of a few flows.

use std::collections::BTreeSet;

use dwell_engine::measure::{Endpoint, Method};

use super::scene::{Meaning, Packet, Scene};
use crate::bytes::Bytes;

/// Reads records of four bytes: sender, time step, sequence number, kind.
pub fn icmp(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut scene = Scene::new(&mut choices);
    for [who, delta, seq, kind] in choices.records() {
        let stage = scene.stage(who, delta);
        let (from, to) = stage.addresses();
        let (from, to) = if stage.forward { (from, to) } else { (to, from) };
        let v4 = from.is_ipv4();
        let request = kind & 1 == 0;
        let typ = match (request, v4) {
            (true, true) => 8,
            (false, true) => 0,
            (true, false) => 128,
            (false, false) => 129,
        };
        let seq = u16::from(seq) | u16::from(kind >> 4) << 12;
        // The protocol of the other address family: not an echo.
        let is_foreign = kind & 0xe == 0xe;
        let id = 1000 + u16::from(stage.flow);
        let mut l4 = vec![typ, 0, 0, 0];
        l4.extend(id.to_be_bytes());
        l4.extend(seq.to_be_bytes());
        let endpoint = |address| Endpoint { address, port: id };
        scene.feed(
            stage,
            Packet {
                proto: if v4 == is_foreign { 58 } else { 1 },
                from: endpoint(from),
                to: endpoint(to),
                l4,
                l4_len: 64,
                meaning: if is_foreign { Meaning::Nothing } else { Meaning::Echo { request, seq } },
            },
        );
    }
    scene.finish()
}
