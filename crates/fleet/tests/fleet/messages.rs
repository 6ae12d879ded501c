//! Messages survive encoding unchanged, and malformed ones are refused.

use std::num::NonZeroU64;

use dwell_engine::{
    histogram::Histogram,
    layers::{ByteTrace, Direction, Ends, Isns, Layer, Segment, SegmentFigures, SegmentHooks},
    measure::Endpoint,
};
use dwell_fleet::wire::{
    AgentMessage, AgentName, Batch, ByteTraces, CollectorMessage, Content, FlowReport, FlowRtt, FrameError, Hello,
    IntervalReport, LossCause, LostBatches, MAX_COUNTERS, MAX_FRAME_BYTES, MAX_HOOKS_BYTES, MAX_NAME_BYTES,
    SegmentReport, Version, decode, encode, read, read_within, write,
};
use proptest::prelude::*;

const NEWEST: u8 = Version::NEWEST as u8;
const OTHER: u8 = NEWEST + 1;

fn ends(sport: u16) -> Ends {
    Ends {
        src: Endpoint { address: [192, 0, 2, 1].into(), port: sport },
        dst: Endpoint { address: "2001:db8::1".parse().unwrap(), port: 443 },
    }
}

pub fn trace(seq: u32, direction: Direction, stamps: &[u64]) -> ByteTrace {
    let mut trace = ByteTrace {
        ends: ends(seq as u16 % 3),
        namespace: 0,
        seq,
        isns: None,
        direction,
        sent: 2,
        again: seq.is_multiple_of(2),
        stamps: [None; Layer::ALL.len()],
    };
    let layers = Layer::ALL.into_iter().filter(|layer| layer.direction() == direction);
    for (layer, ns) in layers.zip(stamps) {
        trace.stamps[layer as usize] = NonZeroU64::new(*ns);
    }
    trace
}

/// The end of a segment with the most hooks.
const DRIVER_HOOKS: &str =
    "tp_btf/napi_gro_receive_entry,tp_btf/napi_gro_frags_entry,tp_btf/netif_rx,tp_btf/netif_receive_skb_entry";

pub fn batch(traces: Vec<ByteTrace>) -> Batch {
    let mut histogram = Histogram::default();
    histogram.record(1_000);
    let segment = SegmentFigures { segment: Segment::Application, histogram: histogram.clone() };
    let report = SegmentReport {
        first: SegmentFigures { segment: Segment::Queueing, histogram: histogram.clone() },
        again: Histogram::default(),
        hooks: SegmentHooks { from: Some(DRIVER_HOOKS.into()), to: None, missing: Some(Layer::TxDriver) },
    };
    Batch {
        number: 9,
        content: Content {
            intervals: vec![IntervalReport {
                end_ns: 5,
                end_unix_ns: -5,
                length_ns: 7,
                sample_bytes: 1 << 16,
                segments: vec![report],
                flows: vec![FlowReport { ends: ends(1), namespace: None, isns: None, segments: vec![segment] }],
                rtts: vec![FlowRtt { ends: ends(2), is_received: true, min_ns: 1, smoothed_ns: 2 }],
            }],
            traces: ByteTraces(traces),
            counters: vec![("a".into(), 1)],
            lost: Some(LostBatches { from: 3, why: LossCause::Rejected, since_unix_ns: -1, until_unix_ns: 5 }),
            is_last: true,
        },
    }
}

fn hello() -> Hello {
    Hello {
        name: AgentName::try_from("web-1.example".to_owned()).unwrap(),
        run: [3; 16],
        boot: "a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1".into(),
        sync_port: Some(4790),
        is_past: true,
        confirmed: 8,
    }
}

#[test]
fn messages_survive_encoding_unchanged() {
    // Some timestamps are missing, and some out of order: a send may be stamped after the packets that it caused.
    let traces = vec![
        trace(1, Direction::Tx, &[1000, 0, 1200, 1100, 1300]),
        trace(2, Direction::Rx, &[5, 4, 3, 2, 1]),
        trace(3, Direction::Rx, &[0, 0, 0, 0, 1 << 61]),
    ];
    for message in [
        AgentMessage::Hello(hello()),
        AgentMessage::Batch(Box::new(batch(traces))),
        AgentMessage::KeepAlive,
        AgentMessage::Leave,
    ] {
        let mut bytes = Vec::new();
        write(&mut bytes, &encode(Version::NEWEST, &message).unwrap()).unwrap();
        let content = read(&mut &bytes[..], MAX_FRAME_BYTES).unwrap();
        assert_eq!(decode::<AgentMessage>(Version::NEWEST, &content).unwrap(), message);
    }
    for message in [
        CollectorMessage::Welcome { through: 1 },
        CollectorMessage::Refused("why".into()),
        CollectorMessage::Stored { through: u64::MAX },
        CollectorMessage::Busy { reason: "why".into(), retry_ms: 5_000 },
        CollectorMessage::Rejected { number: 7, reason: "why".into() },
    ] {
        let content = encode(Version::NEWEST, &message).unwrap();
        assert_eq!(decode::<CollectorMessage>(Version::NEWEST, &content).unwrap(), message);
    }
}

#[test]
fn a_trace_takes_at_most_forty_bytes() {
    let stamps = [1 << 55, (1 << 55) + 90_000, (1 << 55) + 92_000, (1 << 55) + 95_000, (1 << 55) + 99_000];
    let traces: Vec<_> = (0..1000).map(|number| trace(number << 16, Direction::Tx, &stamps)).collect();
    let bytes = encode(Version::NEWEST, &ByteTraces(traces)).unwrap().len();
    assert!(bytes < 40 * 1000, "{bytes}");
}

/// As on loopback.
#[test]
fn flows_of_the_same_ends_keep_their_network_namespaces() {
    let namespaces = [0, 4_026_532_213, 4_026_532_300];
    let traces = namespaces.map(|namespace| ByteTrace { namespace, ..trace(1, Direction::Tx, &[1, 2, 3, 4, 5]) });
    let mut batch = batch(traces.into());
    batch.content.intervals[0].flows[0].namespace = Some("x".repeat(MAX_NAME_BYTES));
    let decoded = |batch: &Batch| decode::<Batch>(Version::NEWEST, &encode(Version::NEWEST, batch).unwrap());
    assert_eq!(decoded(&batch).unwrap(), batch);
    batch.content.intervals[0].flows[0].namespace = Some("x".repeat(MAX_NAME_BYTES + 1));
    assert!(decoded(&batch).is_err());
}

#[test]
fn flows_keep_the_initial_sequence_numbers_of_their_connections() {
    let numbers = [None, Some(Isns { src: 0, dst: 1 }), Some(Isns { src: u32::MAX, dst: 0 })];
    let traces = numbers.map(|isns| ByteTrace { isns, ..trace(1, Direction::Tx, &[1, 2, 3, 4, 5]) });
    let mut batch = batch(traces.into());
    batch.content.intervals[0].flows[0].isns = numbers[2];
    let decoded = decode::<Batch>(Version::NEWEST, &encode(Version::NEWEST, &batch).unwrap()).unwrap();
    assert_eq!(decoded, batch);
}

#[test]
fn numbers_out_of_range_are_refused() {
    let decoded = |change: &dyn Fn(&mut IntervalReport)| {
        let mut batch = batch(Vec::new());
        change(&mut batch.content.intervals[0]);
        decode::<Batch>(Version::NEWEST, &encode(Version::NEWEST, &batch).unwrap())
    };
    assert!(decoded(&|interval| interval.end_unix_ns = (1 << 62) - 1).is_ok());
    let changes: [&dyn Fn(&mut IntervalReport); 6] = [
        &|interval| interval.end_ns = 1 << 62,
        &|interval| interval.end_unix_ns = 1 << 62,
        &|interval| interval.end_unix_ns = i64::MIN,
        &|interval| interval.length_ns = u64::MAX,
        &|interval| interval.rtts[0].min_ns = 1 << 57,
        &|interval| interval.rtts[0].smoothed_ns = u64::MAX,
    ];
    for change in changes {
        assert!(matches!(decoded(change), Err(FrameError::Content(_))));
    }
    let decoded = |number| {
        let batch = Batch { number, ..batch(Vec::new()) };
        decode::<Batch>(Version::NEWEST, &encode(Version::NEWEST, &batch).unwrap())
    };
    assert!(decoded((1 << 62) - 1).is_ok() && matches!(decoded(1 << 62), Err(FrameError::Content(_))));
}

#[test]
fn more_traces_than_an_agent_sends_are_refused() {
    let decoded = |many: u32| {
        let traces = (0..many).map(|seq| trace(seq, Direction::Tx, &[1]));
        let bytes = encode(Version::NEWEST, &ByteTraces(traces.collect())).unwrap();
        decode::<ByteTraces>(Version::NEWEST, &bytes)
    };
    assert_eq!(decoded(1 << 14).unwrap().0.len(), 1 << 14);
    assert!(matches!(decoded((1 << 14) + 1), Err(FrameError::Content(_))));
}

/// Empty lists and histograms take a few bytes on the wire, and much more in memory and as rows.
#[test]
fn a_batch_that_would_be_large_in_memory_is_refused_or_counted_as_such() {
    let flow = |segments| FlowReport { ends: ends(1), namespace: None, isns: None, segments };
    let empty = SegmentFigures { segment: Segment::Queueing, histogram: Histogram::default() };
    let decoded = |intervals: usize, flows: usize, segments: usize| {
        let mut batch = batch(Vec::new());
        let interval = &mut batch.content.intervals[0];
        interval.flows = vec![flow(vec![empty.clone(); segments]); flows];
        batch.content.intervals = vec![interval.clone(); intervals];
        decode::<Batch>(Version::NEWEST, &encode(Version::NEWEST, &batch).unwrap())
    };
    let largest = decoded(4, 128, Segment::ALL.len()).unwrap();
    assert!((300_000..2_000_000).contains(&largest.content.memory_bytes()), "{}", largest.content.memory_bytes());
    for (intervals, flows, segments) in [(5, 1, 1), (1, 129, 1), (1, 1, Segment::ALL.len() + 1)] {
        assert!(matches!(decoded(intervals, flows, segments), Err(FrameError::Content(_))));
    }
}

/// Whoever announces a long frame is asked about before each piece, and takes little memory for the announcement alone.
#[test]
fn memory_for_a_frame_is_asked_for_in_pieces() {
    let mut bytes = Vec::new();
    write(&mut bytes, &vec![1; 200_000]).unwrap();
    let mut asked = Vec::new();
    let read = read_within(&mut &bytes[..], MAX_FRAME_BYTES, |_, more| {
        asked.push(more);
        true
    });
    assert_eq!(read.unwrap().unwrap().len(), 200_000);
    assert_eq!(asked, [4_096, 65_536, 65_536, 64_832]);
    // What is refused is skipped, and the next frame follows.
    write(&mut bytes, &[2]).unwrap();
    let (mut from, mut skipped) = (&bytes[..], 0);
    let read = read_within(&mut from, MAX_FRAME_BYTES, |_, more| {
        skipped += usize::from(more == 0);
        more == 4_096
    });
    assert!(read.unwrap().is_none());
    assert_eq!(skipped, 3);
    assert_eq!(wire_read(&mut from), [2]);
}

fn wire_read(from: &mut &[u8]) -> Vec<u8> {
    read(from, MAX_FRAME_BYTES).unwrap()
}

#[test]
fn more_or_longer_names_than_an_agent_has_are_refused() {
    let decoded = |change: &dyn Fn(&mut Batch)| {
        let mut batch = batch(Vec::new());
        change(&mut batch);
        decode::<Batch>(Version::NEWEST, &encode(Version::NEWEST, &batch).unwrap())
    };
    let counters = |count: usize, length: usize| {
        decoded(&move |batch| batch.content.counters = vec![("x".repeat(length), 1); count])
    };
    assert!(counters(MAX_COUNTERS, MAX_NAME_BYTES).is_ok());
    assert!(matches!(counters(MAX_COUNTERS + 1, 1), Err(FrameError::Content(_))));
    assert!(matches!(counters(1, MAX_NAME_BYTES + 1), Err(FrameError::Content(_))));
    let long = Some("x".repeat(MAX_HOOKS_BYTES + 1));
    let changes: [&dyn Fn(&mut Batch); 3] = [
        &|batch| batch.content.intervals[0].segments[0].hooks.to = long.clone(),
        &|batch| batch.content.intervals = vec![batch.content.intervals[0].clone(); 65],
        &|batch| batch.content.intervals[0].rtts = vec![batch.content.intervals[0].rtts[0]; 2049],
    ];
    for change in changes {
        assert!(matches!(decoded(change), Err(FrameError::Content(_))));
    }
}

#[test]
fn malformed_messages_are_refused() {
    let good = encode(Version::NEWEST, &AgentMessage::KeepAlive).unwrap();
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(decode::<AgentMessage>(Version::NEWEST, &longer), Err(FrameError::Length(_))));
    let other = [&[OTHER], &good[1..]].concat();
    assert!(matches!(
        decode::<AgentMessage>(Version::NEWEST, &other),
        Err(FrameError::Version(other)) if other == OTHER
    ));
    assert!(matches!(decode::<AgentMessage>(Version::NEWEST, &[NEWEST, 77]), Err(FrameError::Content(_))));
    for name in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
        assert!(AgentName::try_from(name.to_owned()).is_err(), "{name}");
    }
    // A frame that announces more than follows, or more than is accepted.
    let refused = |bytes: &[u8]| read(&mut &bytes[..], MAX_FRAME_BYTES).unwrap_err();
    assert!(matches!(refused(&[]), FrameError::End));
    assert!(matches!(refused(&[0, 0]), FrameError::Io(_)));
    assert!(matches!(refused(&[0, 0, 0, 0]), FrameError::Length(0)));
    assert!(matches!(refused(&[0, 0x7f, 0, 0, 1]), FrameError::Io(_)));
    assert!(matches!(refused(&[0xff; 8]), FrameError::Length(_)));
    let long = CollectorMessage::Refused("x".repeat(MAX_FRAME_BYTES));
    assert!(encode(Version::NEWEST, &long).is_none());
}

proptest! {
    #[test]
    fn traces_survive_encoding_unchanged(seq: u32, is_up: bool, stamps in prop::collection::vec(0u64..1 << 62, 5)) {
        prop_assume!(stamps.iter().any(|ns| *ns > 0));
        let direction = if is_up { Direction::Rx } else { Direction::Tx };
        let traces = ByteTraces(vec![trace(seq, direction, &stamps)]);
        let bytes = encode(Version::NEWEST, &traces).unwrap();
        prop_assert_eq!(decode::<ByteTraces>(Version::NEWEST, &bytes).unwrap(), traces);
    }

    #[test]
    fn arbitrary_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let content = [&[NEWEST], &bytes[..]].concat();
        if let Ok(AgentMessage::Batch(batch)) = decode(Version::NEWEST, &content) {
            prop_assert_eq!(decode::<AgentMessage>(Version::NEWEST, &encode(Version::NEWEST, &AgentMessage::Batch(batch.clone())).unwrap()).unwrap(), AgentMessage::Batch(batch));
        }
    }
}
