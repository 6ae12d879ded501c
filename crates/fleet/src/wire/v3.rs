//! Messages of version 3, where they differ from those of today: nothing in them says which network namespace a flow is of, nor the
//! initial sequence numbers of its connection.
//! Nothing here changes any more.

use dwell_engine::layers::{Ends, Segment, SegmentFigures};
use serde::{Deserialize, Serialize};

use super::{
    AgentMessage, FlowRtt, LossCause, LostBatches, MAX_FLOWS, MAX_INTERVALS, MAX_RTTS, SegmentReport, fields,
    frame::BATCH_VARIANT, traces::Packed,
};

#[derive(Serialize, Deserialize)]
struct Batch {
    #[serde(deserialize_with = "fields::number")]
    number: u64,
    content: Content,
}

#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(deserialize_with = "fields::list::<_, _, MAX_INTERVALS>")]
    intervals: Vec<IntervalReport>,
    traces: ByteTraces,
    #[serde(deserialize_with = "fields::counters")]
    counters: Vec<(String, u64)>,
    lost: Option<LostBatches>,
    is_last: bool,
}

#[derive(Serialize, Deserialize)]
struct IntervalReport {
    #[serde(deserialize_with = "fields::time")]
    end_ns: u64,
    #[serde(deserialize_with = "fields::unix_time")]
    end_unix_ns: i64,
    #[serde(deserialize_with = "fields::duration")]
    length_ns: u64,
    sample_bytes: u32,
    #[serde(deserialize_with = "fields::list::<_, _, { Segment::ALL.len() }>")]
    segments: Vec<SegmentReport>,
    #[serde(deserialize_with = "fields::list::<_, _, MAX_FLOWS>")]
    flows: Vec<FlowReport>,
    #[serde(deserialize_with = "fields::list::<_, _, MAX_RTTS>")]
    rtts: Vec<FlowRtt>,
}

#[derive(Serialize, Deserialize)]
struct FlowReport {
    ends: Ends,
    #[serde(deserialize_with = "fields::list::<_, _, { Segment::ALL.len() }>")]
    segments: Vec<SegmentFigures>,
}

/// Byte traces of version 3.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ByteTraces(Packed<Ends>);

impl TryFrom<ByteTraces> for super::ByteTraces {
    type Error = postcard::Error;

    fn try_from(ByteTraces(packed): ByteTraces) -> postcard::Result<super::ByteTraces> {
        packed.unpack().ok_or(postcard::Error::SerdeDeCustom)
    }
}

impl From<&super::ByteTraces> for ByteTraces {
    fn from(traces: &super::ByteTraces) -> ByteTraces {
        ByteTraces(Packed::of(&traces.0))
    }
}

/// Appends a batch as a message of version 3.
pub(super) fn put(batch: &super::Batch, to: Vec<u8>) -> postcard::Result<Vec<u8>> {
    let content = &batch.content;
    let intervals = content.intervals.iter().cloned().map(|interval| {
        let super::IntervalReport { end_ns, end_unix_ns, length_ns, sample_bytes, segments, flows, rtts } = interval;
        let flows = flows.into_iter().map(|flow| FlowReport { ends: flow.ends, segments: flow.segments }).collect();
        IntervalReport { end_ns, end_unix_ns, length_ns, sample_bytes, segments, flows, rtts }
    });
    // Newer causes of a loss become the one that is nearest.
    let lost = content.lost.map(|lost| match lost.why {
        LossCause::Moved => LostBatches { why: LossCause::BufferFull, ..lost },
        _ => lost,
    });
    let content = Content {
        intervals: intervals.collect(),
        traces: (&content.traces).into(),
        counters: content.counters.clone(),
        lost,
        is_last: content.is_last,
    };
    let to = postcard::to_extend(&BATCH_VARIANT, to)?;
    postcard::to_extend(&Batch { number: batch.number, content }, to)
}

/// Reads a message of version 3.
pub(super) fn take(from: &[u8]) -> postcard::Result<(AgentMessage, &[u8])> {
    let (variant, batch) = postcard::take_from_bytes::<u32>(from)?;
    if variant != BATCH_VARIANT {
        return postcard::take_from_bytes(from);
    }
    let (Batch { number, content }, rest) = postcard::take_from_bytes(batch)?;
    let Content { intervals, traces, counters, lost, is_last } = content;
    let intervals = intervals.into_iter().map(|interval| {
        let IntervalReport { end_ns, end_unix_ns, length_ns, sample_bytes, segments, flows, rtts } = interval;
        let flows = flows.into_iter().map(|flow| super::FlowReport {
            ends: flow.ends,
            namespace: None,
            isns: None,
            segments: flow.segments,
        });
        let flows = flows.collect();
        super::IntervalReport { end_ns, end_unix_ns, length_ns, sample_bytes, segments, flows, rtts }
    });
    let content =
        super::Content { intervals: intervals.collect(), traces: traces.try_into()?, counters, lost, is_last };
    Ok((AgentMessage::Batch(Box::new(super::Batch { number, content })), rest))
}
