//! Messages between an agent and its collector.

use std::num::NonZeroU64;

use dwell_engine::{
    histogram::Histogram,
    layers::{Direction, Ends, Layer, Passage, Segment},
    measure::Endpoint,
};
use dwell_fleet::wire::{
    self, Batch, Content, Flow, FlowSegment, FromAgent, FromCollector, Hello, Interval, Passages, Row, Trip,
};

/// A hello; a byte that two hosts tell of, in a batch with an interval; what a collector says.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |message: &dyn Fn() -> Option<Vec<u8>>| {
        let mut bytes = Vec::new();
        let content = message().expect("it is short");
        wire::write(&mut bytes, &content).expect("memory takes all");
        bytes
    };
    let hello = FromAgent::Hello(Hello {
        name: String::from("web-1").try_into().expect("a name"),
        run: [7; 16],
        boot: String::from("a0c6b05b-1f63-4a78-8d55-2f1b52f0a3c1"),
        sync_port: Some(4790),
    });
    let batch = |number, passages| {
        let mut took = Histogram::default();
        took.record(1_000);
        let row = Row {
            segment: Segment::Queueing,
            histogram: took.clone(),
            again: Histogram::default(),
            hook_from: Some("hook".into()),
            hook_to: None,
            missing: Some(Layer::TxTcp),
        };
        let segment = FlowSegment { segment: Segment::Application, histogram: took };
        let flow = Flow { ends: ends(), segments: vec![segment] };
        let interval = Interval {
            end_ns: 5_000,
            end_unix_ns: -1,
            length_ns: 1_000,
            sample_bytes: 1 << 16,
            rows: vec![row],
            flows: vec![flow],
            trips: vec![Trip { ends: ends(), is_received: true, least_ns: 1_000, smoothed_ns: 2_000 }],
        };
        FromAgent::Batch(Box::new(Batch {
            number,
            content: Content {
                intervals: vec![interval],
                passages: Passages(passages),
                counters: vec![("lost".into(), 1)],
            },
        }))
    };
    let both = batch(9, vec![passed(Direction::Tx), passed(Direction::Rx)]);
    let [down, up] = [Direction::Tx, Direction::Rx].map(|way| batch(9, vec![passed(way)]));
    let refused = FromCollector::Refused("no".into());
    let stored = FromCollector::Stored { through: 300 };
    let [hello, alive, both, down, up] =
        [hello, FromAgent::Alive, both, down, up].map(|message| frame(&|| wire::encode(&message)));
    let [refused, stored] = [refused, stored].map(|message| frame(&|| wire::encode(&message)));
    vec![
        ("hello", [hello.clone(), alive].concat()),
        ("batch", both),
        ("batches", [hello, down, up].concat()),
        ("answers", [refused, stored].concat()),
    ]
}

fn ends() -> Ends {
    let end = |last, port| Endpoint { address: [192, 0, 2, last].into(), port };
    Ends { src: end(1, 40_000), dst: end(2, 443) }
}

/// A byte that was at each layer of a side, a microsecond after the one before.
fn passed(direction: Direction) -> Passage {
    let mut stamps = [None; Layer::ALL.len()];
    for (layer, number) in Layer::ALL.into_iter().zip(1..) {
        if layer.direction() == direction {
            stamps[layer as usize] = NonZeroU64::new(number * 1_000);
        }
    }
    Passage { ends: ends(), seq: 1 << 16, direction, sent: 1, again: false, stamps }
}
