//! DNS queries and responses of a few flows.

use std::collections::BTreeSet;

use dwell_engine::measure::Method;

use super::scene::{Meaning, Packet, Scene};
use crate::{bytes::Bytes, frame};

const NAMES: [&[u8]; 8] = [
    b"\x01a\0",
    b"\x01A\0",
    b"\x03www\x07example\x03org\0",
    b"\x03wWw\x07EXAMPLE\x03oRg\0",
    b"\0",
    b"\x01[\0",
    b"\x01{\0",
    b"\x3f@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\0",
];

/// Reads records of five bytes: sender, time step, transaction, question, kind.
pub fn dns(bytes: &[u8]) -> BTreeSet<Method> {
    let mut choices = Bytes::new(bytes);
    let mut scene = Scene::new(&mut choices);
    for [who, delta, id, question, kind] in choices.records() {
        let stage = scene.stage(who, delta);
        let (from, to) = stage.endpoints(if kind & 2 == 0 { 5353 } else { 53 }, 53);
        let query = kind & 1 == 0;
        let questions = if kind & 4 == 0 { 1 } else { kind >> 6 };
        let opcode = if kind & 8 == 0 { 0 } else { question >> 4 };
        let mut name = NAMES[usize::from(question & 7)].to_vec();
        if kind & 16 != 0 {
            // A name without a terminator.
            name = vec![b'x'; usize::from(id) * 8];
        }
        let mut payload = vec![0, id, if query { 0 } else { 0x80 } | opcode << 3, 0, 0, questions];
        payload.extend([0; 6]);
        payload.extend(&name);
        payload.extend([0, 1 + (question >> 3 & 1), 0, 1]);
        if kind & 32 != 0 {
            payload.truncate(usize::from(question));
        }
        let meaning = match question_of(&payload) {
            Some(question) if (questions, opcode) == (1, 0) => {
                Meaning::Dns { query, id: id.into(), question: question.to_ascii_lowercase() }
            }
            _ => Meaning::Nothing,
        };
        let l4 = frame::udp((from.port, to.port), &payload);
        scene.feed(stage, Packet { proto: 17, from, to, l4_len: l4.len(), l4, meaning });
    }
    scene.finish()
}

/// Returns the question: up to 255 bytes of the name with its terminator, then type and class. No valid name is longer.
fn question_of(payload: &[u8]) -> Option<&[u8]> {
    let question = payload.get(12..)?;
    let name = question.iter().take(255).position(|byte| *byte == 0);
    question.get(..name.map_or(255, |end| end + 1) + 4)
}
