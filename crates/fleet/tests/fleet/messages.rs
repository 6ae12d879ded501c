//! Messages come through as they were, and nothing else does.

use std::num::NonZeroU64;

use dwell_engine::{
    histogram::Histogram,
    layers::{Direction, Ends, Layer, Passage, Segment},
    measure::Endpoint,
};
use dwell_fleet::wire::{
    AgentName, Batch, Content, Flow, FlowSegment, FrameError, FromAgent, FromCollector, Hello, Interval,
    MAX_FRAME_BYTES, Passages, Row, Trip, VERSION, decode, encode, read, write,
};
use proptest::prelude::*;

fn ends(sport: u16) -> Ends {
    Ends {
        src: Endpoint { address: [192, 0, 2, 1].into(), port: sport },
        dst: Endpoint { address: "2001:db8::1".parse().unwrap(), port: 443 },
    }
}

fn passage(seq: u32, direction: Direction, stamps: &[u64]) -> Passage {
    let mut passage = Passage {
        ends: ends(seq as u16 % 3),
        seq,
        direction,
        sent: 2,
        again: seq.is_multiple_of(2),
        stamps: [None; Layer::ALL.len()],
    };
    let layers = Layer::ALL.into_iter().filter(|layer| layer.direction() == direction);
    for (layer, ns) in layers.zip(stamps) {
        passage.stamps[layer as usize] = NonZeroU64::new(*ns);
    }
    passage
}

fn batch(passages: Vec<Passage>) -> Batch {
    let mut histogram = Histogram::default();
    histogram.record(1_000);
    let segment = FlowSegment { segment: Segment::Application, histogram: histogram.clone() };
    let row = Row {
        segment: Segment::Queueing,
        histogram: histogram.clone(),
        again: Histogram::default(),
        hook_from: Some("tp_btf/net_dev_queue".into()),
        hook_to: None,
        missing: Some(Layer::TxDriver),
    };
    Batch {
        number: 9,
        content: Content {
            intervals: vec![Interval {
                end_ns: 5,
                end_unix_ns: -5,
                length_ns: 7,
                sample_bytes: 1 << 16,
                rows: vec![row],
                flows: vec![Flow { ends: ends(1), segments: vec![segment] }],
                trips: vec![Trip { ends: ends(2), is_received: true, least_ns: 1, smoothed_ns: 2 }],
            }],
            passages: Passages(passages),
            counters: vec![("a".into(), 1)],
        },
    }
}

#[test]
fn messages_come_through_as_they_were() {
    // Not all stamps, and not in order: sends may be stamped after what they caused.
    let passages = vec![
        passage(1, Direction::Tx, &[1000, 0, 1200, 1100, 1300]),
        passage(2, Direction::Rx, &[5, 4, 3, 2, 1]),
        passage(3, Direction::Rx, &[0, 0, 0, 0, 1 << 61]),
    ];
    let hello = Hello {
        name: AgentName::try_from("web-1.example".to_owned()).unwrap(),
        run: [3; 16],
        boot: "a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1".into(),
        sync_port: Some(4790),
    };
    for message in [FromAgent::Hello(hello), FromAgent::Batch(Box::new(batch(passages))), FromAgent::Alive] {
        let mut bytes = Vec::new();
        write(&mut bytes, &encode(&message).unwrap()).unwrap();
        let content = read(&mut &bytes[..], MAX_FRAME_BYTES).unwrap();
        assert_eq!(decode::<FromAgent>(&content).unwrap(), message);
    }
    for message in [
        FromCollector::Welcome { through: 1 },
        FromCollector::Refused("why".into()),
        FromCollector::Stored { through: u64::MAX },
    ] {
        let content = encode(&message).unwrap();
        assert_eq!(decode::<FromCollector>(&content).unwrap(), message);
    }
}

#[test]
fn a_passage_takes_some_forty_bytes() {
    let stamps = [1 << 55, (1 << 55) + 90_000, (1 << 55) + 92_000, (1 << 55) + 95_000, (1 << 55) + 99_000];
    let passages: Vec<_> = (0..1000).map(|number| passage(number << 16, Direction::Tx, &stamps)).collect();
    let bytes = encode(&Passages(passages)).unwrap().len();
    assert!(bytes < 40 * 1000, "{bytes}");
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    let decoded = |change: &dyn Fn(&mut Interval)| {
        let mut batch = batch(Vec::new());
        change(&mut batch.content.intervals[0]);
        decode::<Batch>(&encode(&batch).unwrap())
    };
    assert!(decoded(&|interval| interval.end_unix_ns = (1 << 62) - 1).is_ok());
    let changes: [&dyn Fn(&mut Interval); 6] = [
        &|interval| interval.end_ns = 1 << 62,
        &|interval| interval.end_unix_ns = 1 << 62,
        &|interval| interval.end_unix_ns = i64::MIN,
        &|interval| interval.length_ns = u64::MAX,
        &|interval| interval.trips[0].least_ns = 1 << 57,
        &|interval| interval.trips[0].smoothed_ns = u64::MAX,
    ];
    for change in changes {
        assert!(matches!(decoded(change), Err(FrameError::Content(_))));
    }
}

#[test]
fn more_passages_than_an_agent_sends_are_refused() {
    let decoded = |many: u32| {
        let passages = (0..many).map(|seq| passage(seq, Direction::Tx, &[1]));
        let bytes = encode(&Passages(passages.collect())).unwrap();
        decode::<Passages>(&bytes)
    };
    assert_eq!(decoded(1 << 16).unwrap().0.len(), 1 << 16);
    assert!(matches!(decoded((1 << 16) + 1), Err(FrameError::Content(_))));
}

#[test]
fn what_is_no_message_is_refused() {
    let good = encode(&FromAgent::Alive).unwrap();
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(decode::<FromAgent>(&longer), Err(FrameError::Length(_))));
    let other = [&[VERSION + 1], &good[1..]].concat();
    assert!(matches!(
        decode::<FromAgent>(&other),
        Err(FrameError::Version(other)) if other == VERSION + 1
    ));
    assert!(matches!(decode::<FromAgent>(&[VERSION, 77]), Err(FrameError::Content(_))));
    for name in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert!(AgentName::try_from(name.to_owned()).is_err(), "{name}");
    }
    // A frame that promises more than there is, or than is taken.
    let refused = |bytes: &[u8]| read(&mut &bytes[..], MAX_FRAME_BYTES).unwrap_err();
    assert!(matches!(refused(&[]), FrameError::End));
    assert!(matches!(refused(&[0, 0]), FrameError::Io(_)));
    assert!(matches!(refused(&[0, 0, 0, 0]), FrameError::Length(0)));
    assert!(matches!(refused(&[0, 0x7f, 0, 0, 1]), FrameError::Io(_)));
    assert!(matches!(refused(&[0xff; 8]), FrameError::Length(_)));
    let content = vec![0; MAX_FRAME_BYTES + 1];
    assert!(encode(&content).is_none());
}

proptest! {
    #[test]
    fn passages_come_through(seq: u32, is_up: bool, stamps in prop::collection::vec(0u64..1 << 62, 5)) {
        prop_assume!(stamps.iter().any(|ns| *ns > 0));
        let direction = if is_up { Direction::Rx } else { Direction::Tx };
        let passages = Passages(vec![passage(seq, direction, &stamps)]);
        let bytes = encode(&passages).unwrap();
        prop_assert_eq!(decode::<Passages>(&bytes).unwrap(), passages);
    }

    #[test]
    fn bytes_of_anybody_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let content = [&[VERSION], &bytes[..]].concat();
        if let Ok(FromAgent::Batch(batch)) = decode(&content) {
            prop_assert_eq!(decode::<FromAgent>(&encode(&FromAgent::Batch(batch.clone())).unwrap()).unwrap(), FromAgent::Batch(batch));
        }
    }
}
