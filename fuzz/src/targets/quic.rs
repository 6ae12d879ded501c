//! QUIC packets of a few flows.

use std::collections::BTreeSet;

use dwell_engine::measure::Method;

use super::scene::{Meaning, Packet, Scene};
use crate::{bytes::Bytes, frame};

const VERSIONS: [u32; 6] = [1, 0x6b33_43cf, 0, 0xff00_001d, 0xff00_0010, 0x0a0a_0a0a];

/// Reads records of four bytes: sender, time step, first byte, version.
pub fn quic(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut scene = Scene::new(&mut choices);
    for [who, delta, first, kind] in choices.records() {
        let stage = scene.stage(who, delta);
        let (from, to) = stage.endpoints(50_000, if kind & 0x80 == 0 { 443 } else { 4433 });
        let version = VERSIONS[usize::from(kind & 7) % VERSIONS.len()];
        let mut payload = vec![first];
        if first & 0x80 != 0 {
            payload.extend(version.to_be_bytes());
        }
        payload.resize(1200, 0);
        let mut l4 = frame::udp((from.port, to.port), &payload);
        let l4_len = l4.len();
        l4.truncate(13);
        scene.feed(stage, Packet { proto: 17, from, to, l4, l4_len, meaning: Meaning::Quic { first, version } });
    }
    scene.finish()
}
