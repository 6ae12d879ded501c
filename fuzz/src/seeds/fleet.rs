//! Messages between an agent and its collector.

use std::num::NonZeroU64;

use dwell_engine::{
    histogram::Histogram,
    layers::{ByteTrace, Direction, Ends, Isns, Layer, Segment, SegmentFigures, SegmentHooks},
    measure::Endpoint,
};
use dwell_fleet::wire::{
    self, AgentMessage, Batch, ByteTraces, CollectorMessage, Content, FlowReport, FlowRtt, Hello, IntervalReport,
    LossCause, LostBatches, SegmentReport, Version,
};

const ISNS: Isns = Isns { src: 1 << 31, dst: 7 };

/// A hello, a byte that two hosts report in batches with an interval, and a collector's answers.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |message: &dyn Fn() -> Option<Vec<u8>>| {
        let mut bytes = Vec::new();
        let content = message().expect("it is short");
        wire::write(&mut bytes, &content).expect("writing to memory cannot fail");
        bytes
    };
    let hello = AgentMessage::Hello(Hello {
        name: String::from("web-1").try_into().expect("a name"),
        run: [7; 16],
        boot: String::from("a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1"),
        sync_port: Some(4790),
        is_past: false,
        confirmed: 7,
    });
    let batch = |number, traces| {
        let mut histogram = Histogram::default();
        histogram.record(1_000);
        let report = SegmentReport {
            first: SegmentFigures { segment: Segment::Queueing, histogram: histogram.clone() },
            again: Histogram::default(),
            hooks: SegmentHooks { from: Some("hook".into()), to: None, missing: Some(Layer::TxTcp) },
        };
        let segment = SegmentFigures { segment: Segment::Application, histogram };
        let flow = FlowReport { ends: ends(), namespace: None, isns: Some(ISNS), segments: vec![segment] };
        let interval = IntervalReport {
            end_ns: 5_000,
            end_unix_ns: -1,
            length_ns: 1_000,
            sample_bytes: 1 << 16,
            segments: vec![report],
            flows: vec![flow],
            rtts: vec![FlowRtt { ends: ends(), is_received: true, min_ns: 1_000, smoothed_ns: 2_000 }],
        };
        AgentMessage::Batch(Box::new(Batch {
            number,
            content: Content {
                intervals: vec![interval],
                traces: ByteTraces(traces),
                counters: vec![("lost".into(), 1)],
                lost: None,
                is_last: false,
            },
        }))
    };
    let lost = LostBatches { from: 10, why: LossCause::BufferFull, since_unix_ns: 1, until_unix_ns: 2 };
    let last = Content { lost: Some(lost), is_last: true, ..Content::default() };
    let lost = AgentMessage::Batch(Box::new(Batch { number: 12, content: last }));
    let both = batch(9, vec![trace(Direction::Tx), trace(Direction::Rx)]);
    let behind = ByteTrace { ends: Ends { dst: ends().src, ..ends() }, ..trace(Direction::Rx) };
    let translated = batch(9, vec![trace(Direction::Tx), behind]);
    let [down, up] = [Direction::Tx, Direction::Rx].map(|direction| batch(9, vec![trace(direction)]));
    let refused = CollectorMessage::Refused("no".into());
    let stored = CollectorMessage::Stored { through: 300 };
    let rejected = CollectorMessage::Rejected { number: 5, reason: "no".into() };
    let older = frame(&|| wire::encode(Version::V3, &hello));
    let [hello, alive, both, translated, down, up, lost, leave] =
        [hello, AgentMessage::KeepAlive, both, translated, down, up, lost, AgentMessage::Leave]
            .map(|message| frame(&|| wire::encode(Version::NEWEST, &message)));
    let [refused, stored, rejected] =
        [refused, stored, rejected].map(|message| frame(&|| wire::encode(Version::NEWEST, &message)));
    vec![
        ("hello", [hello.clone(), alive].concat()),
        ("older", older),
        ("batch", both),
        ("translated", translated),
        ("batches", [hello, down, up].concat()),
        ("end", [lost, leave].concat()),
        ("answers", [refused, stored, rejected].concat()),
    ]
}

fn ends() -> Ends {
    let end = |last, port| Endpoint { address: [192, 0, 2, last].into(), port };
    Ends { src: end(1, 40_000), dst: end(2, 443) }
}

/// The trace of a byte that passed each layer of a direction a microsecond after the one before.
fn trace(direction: Direction) -> ByteTrace {
    let mut stamps = [None; Layer::ALL.len()];
    for (layer, number) in Layer::ALL.into_iter().zip(1..) {
        if layer.direction() == direction {
            stamps[layer as usize] = NonZeroU64::new(number * 1_000);
        }
    }
    ByteTrace { ends: ends(), namespace: 0, seq: 1 << 16, isns: Some(ISNS), direction, sent: 1, again: false, stamps }
}
