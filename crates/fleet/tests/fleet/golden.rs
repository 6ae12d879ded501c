//! Messages of version 3, in files that a dwell of that version has written.

use std::{fs, path::Path};

use dwell_engine::layers::{ByteTrace, Direction, Isns};
use dwell_fleet::wire::{
    AgentMessage, Batch, CollectorMessage, Content, Hello, LossCause, LostBatches, Message, Version, decode, encode,
};

use crate::messages::{batch, trace};

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v3").join(name)).unwrap()
}

/// The message is in the file, and would be written so again.
fn check<M: Message + PartialEq + std::fmt::Debug>(name: &str, message: &M) {
    assert_eq!(decode::<M>(Version::V3, &file(name)).unwrap(), *message, "{name}");
    assert_eq!(encode(Version::V3, message).unwrap(), file(name), "{name}");
}

fn agent(number: u64, content: Content) -> AgentMessage {
    AgentMessage::Batch(Box::new(Batch { number, content }))
}

fn hello() -> Hello {
    Hello {
        name: "web-1.example".to_owned().try_into().unwrap(),
        run: [7; 16],
        boot: "a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1".into(),
        sync_port: Some(4790),
        is_past: false,
        confirmed: 0,
    }
}

fn lost(why: LossCause) -> Content {
    Content { lost: Some(LostBatches { from: 2, why, since_unix_ns: -1, until_unix_ns: 5 }), ..Content::default() }
}

#[test]
fn messages_of_version_3_are_read_and_written() {
    let traces = vec![trace(1, Direction::Tx, &[1000, 0, 1200, 1100, 1300]), trace(2, Direction::Rx, &[5, 4, 3, 2, 1])];
    let full = Content { lost: None, is_last: false, ..batch(traces).content };
    let last = Content { is_last: true, ..Content::default() };
    check("hello", &AgentMessage::Hello(hello()));
    check("batch", &agent(1, full));
    check("lost", &agent(3, lost(LossCause::TooLong)));
    check("last", &agent(4, last));
    check("keep-alive", &AgentMessage::KeepAlive);
    check("leave", &AgentMessage::Leave);
    check("enroll", &AgentMessage::Enroll);
    let why = || "why".to_owned();
    check("welcome", &CollectorMessage::Welcome { through: 0 });
    check("refused", &CollectorMessage::Refused(why()));
    check("stored", &CollectorMessage::Stored { through: 1 });
    check("busy", &CollectorMessage::Busy { reason: why(), retry_ms: 5_000 });
    check("rejected", &CollectorMessage::Rejected { number: 7, reason: why() });
    check("enrolled", &CollectorMessage::Enrolled { key: "key".into() });
}

#[test]
fn what_version_3_cannot_say_becomes_the_nearest() {
    let bytes = encode(Version::V3, &agent(3, lost(LossCause::Moved))).unwrap();
    assert_eq!(decode::<AgentMessage>(Version::V3, &bytes).unwrap(), agent(3, lost(LossCause::BufferFull)));
}

#[test]
fn version_3_says_nothing_of_network_namespaces_and_initial_sequence_numbers() {
    let isns = Some(Isns { src: 1, dst: 2 });
    let traces =
        [0, 4_026_532_213].map(|namespace| ByteTrace { namespace, isns, ..trace(1, Direction::Tx, &[1, 2, 3, 4, 5]) });
    let mut content = batch(traces.into()).content;
    content.intervals[0].flows[0].namespace = Some("web".into());
    content.intervals[0].flows[0].isns = isns;
    let bytes = encode(Version::V3, &agent(1, content.clone())).unwrap();
    (content.intervals[0].flows[0].namespace, content.intervals[0].flows[0].isns) = (None, None);
    content.traces.0.iter_mut().for_each(|trace| (trace.namespace, trace.isns) = (0, None));
    assert_eq!(decode::<AgentMessage>(Version::V3, &bytes).unwrap(), agent(1, content));
}
