//! Agents with several collectors.

use std::{collections::HashSet, num::NonZeroU64, sync::Arc, thread, time::Duration};

use dwell_engine::{
    histogram::Histogram,
    layers::{ByteTrace, Direction, Ends, Isns, Layer, Segment, SegmentFigures},
    measure::Endpoint,
};
use dwell_fleet::{
    Batcher,
    wire::{FlowReport, FlowRtt, IntervalReport, SegmentReport},
};
use dwell_testbed::harness::eventually;

use crate::support::{Memory, batcher, collector, collector_at, identity};

fn ends(number: u16) -> Ends {
    let end = |last, port| Endpoint { address: [192, 0, 2, last].into(), port };
    Ends { src: end(1, number), dst: end(2, 443) }
}

/// Reports an interval of this number, with so many flows.
fn push(batcher: &Batcher, number: u64, flows: u16) {
    let figures = SegmentFigures { segment: Segment::Queueing, histogram: Histogram::default() };
    let sums = SegmentReport { first: figures.clone(), again: Histogram::default(), hooks: Default::default() };
    let report = IntervalReport {
        end_ns: number,
        end_unix_ns: 1,
        length_ns: 1,
        sample_bytes: 64,
        segments: vec![sums],
        flows: (0..flows)
            .map(|port| FlowReport { ends: ends(port), namespace: None, isns: None, segments: vec![figures.clone()] })
            .collect(),
        rtts: Vec::new(),
    };
    batcher.push_interval(report, Vec::new());
}

/// Each flow of an interval that a collector has, and `None` for the sums.
fn stored(memory: &Memory) -> Vec<(u64, Option<Ends>)> {
    let contents = memory.contents.lock().unwrap();
    let intervals = contents.iter().flat_map(|content| &content.intervals);
    let of = |interval: &IntervalReport| {
        let sums = interval.segments.iter().map(|_| None);
        let end_ns = interval.end_ns;
        sums.chain(interval.flows.iter().map(|flow| Some(flow.ends))).map(move |of| (end_ns, of)).collect::<Vec<_>>()
    };
    intervals.flat_map(of).collect()
}

/// A collector ends for good while agents report, and later comes back.
#[test]
fn flows_of_a_collector_that_is_down_go_to_others_and_nothing_is_lost_or_doubled() {
    let key = identity("k");
    let memories = [(); 3].map(|()| Arc::new(Memory::default()));
    // The address of one that ends is its own, so that no other test gets its port.
    let at = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.1:0"].map(|address| address.parse().unwrap());
    let start = |(address, memory)| Some(collector_at(address, &key, memory));
    let mut servers: Vec<_> = at.into_iter().zip(&memories).map(start).collect();
    let addresses: Vec<_> = servers.iter().flatten().map(|server| server.address().to_string()).collect();
    let mut batcher = batcher(&addresses, &key, 1);
    push(&batcher, 1, 300);
    let all = |intervals: u64| intervals as usize * 301;
    let count = || memories.iter().map(|memory| stored(memory).len()).sum::<usize>();
    eventually("all is stored", || count() == all(1));
    let shares = memories.each_ref().map(|memory| stored(memory).len());
    assert!(shares.iter().all(|share| (60..150).contains(share)), "{shares:?}");
    // Before the agent knows: the first batch may be sent in vain, and it cannot know that.
    let before = stored(&memories[1]).len();
    servers[1] = None;
    push(&batcher, 2, 300);
    push(&batcher, 3, 300);
    let of = |interval: u64| {
        let rows = memories.iter().flat_map(|memory| stored(memory));
        rows.filter(|(number, _)| *number == interval).count()
    };
    eventually("others have its share", || {
        batcher.flush_if_due();
        thread::sleep(Duration::from_millis(100));
        of(3) == 301
    });
    push(&batcher, 4, 300);
    eventually("others get its share at once", || of(4) == 301);
    assert_eq!(stored(&memories[1]).len(), before);
    servers[1] = Some(collector_at(addresses[1].parse().unwrap(), &key, &memories[1]));
    let mut intervals = 4;
    eventually("it has its share again", || {
        batcher.flush_if_due();
        intervals += 1;
        push(&batcher, intervals, 300);
        thread::sleep(Duration::from_millis(500));
        stored(&memories[1]).len() > before
    });
    assert_eq!(batcher.finish(Duration::from_secs(60)).batches, 0);
    let rows: Vec<_> = memories.iter().flat_map(|memory| stored(memory)).collect();
    assert_eq!((rows.len(), rows.iter().collect::<HashSet<_>>().len()), (all(intervals), all(intervals)));
}

/// All that was measured is at the other collector, and so nothing is left, and nobody is waited for.
#[test]
fn an_agent_that_ends_while_a_collector_is_down_has_nothing_left() {
    let key = identity("k");
    let memory = Arc::new(Memory::default());
    let server = collector(&key, &memory);
    // Nobody listens there, and no other test gets the port.
    let nobody = format!("127.0.0.3:{}", server.address().port());
    let mut batcher = batcher(&[server.address().to_string(), nobody], &key, 1);
    push(&batcher, 1, 100);
    eventually("the other collector has its share", || {
        batcher.flush_if_due();
        thread::sleep(Duration::from_millis(100));
        stored(&memory).len() == 101
    });
    // It would take that long.
    let left = batcher.finish(Duration::from_secs(3600));
    assert_eq!((left.batches, left.dropped), (0, 0));
    assert!(memory.contents.lock().unwrap().iter().any(|content| content.is_last));
}

#[test]
fn a_collector_that_is_down_does_not_keep_the_others_from_learning_that_the_run_ends() {
    let key = identity("k");
    let memory = Arc::new(Memory::default());
    let server = collector(&key, &memory);
    let nobody = format!("127.0.0.3:{}", server.address().port());
    let batcher = batcher(&[nobody, server.address().to_string()], &key, 1);
    push(&batcher, 1, 100);
    let left = batcher.finish(Duration::from_secs(2));
    assert!(left.batches > 0, "the first one has its share");
    assert!(memory.contents.lock().unwrap().iter().any(|content| content.is_last));
}

/// Each of the two agents sees other addresses of the same connections, in both directions.
#[test]
fn what_both_hosts_know_of_a_translated_connection_goes_to_one_collector() {
    const CONNECTIONS: u16 = 40;
    let key = identity("k");
    let memories = [(); 3].map(|()| Arc::new(Memory::default()));
    let servers = memories.each_ref().map(|memory| collector(&key, memory));
    let addresses = servers.each_ref().map(|server| server.address().to_string());
    let isns = |number: u16| Isns { src: u32::from(number).wrapping_mul(2_654_435_761), dst: 77 << 8 };
    for (run, direction) in [(1, Direction::Tx), (11, Direction::Rx)] {
        let mut batcher = batcher(&addresses, &key, run);
        let mut report = IntervalReport {
            end_ns: 1,
            end_unix_ns: 1,
            length_ns: 1,
            sample_bytes: 64,
            segments: Vec::new(),
            flows: Vec::new(),
            rtts: Vec::new(),
        };
        for number in 0..CONNECTIONS {
            // The second agent is behind the translation, and has sent what the first one has received.
            let isns = match direction {
                Direction::Tx => isns(number),
                Direction::Rx => Isns { src: isns(number).dst, dst: isns(number).src },
            };
            let ends = ends(number + 1_000 * u16::from(run));
            let mut stamps = [None; Layer::ALL.len()];
            stamps[Layer::TxDriver as usize] = NonZeroU64::new(1);
            let direction = Direction::Tx;
            let trace = ByteTrace {
                ends,
                namespace: 0,
                seq: number.into(),
                isns: Some(isns),
                direction,
                sent: 1,
                again: false,
                stamps,
            };
            batcher.push_trace(trace);
            report.flows.push(FlowReport { ends, namespace: None, isns: Some(isns), segments: Vec::new() });
            report.rtts.push(FlowRtt { ends, is_received: false, min_ns: 1, smoothed_ns: 1 });
        }
        batcher.push_interval(report, Vec::new());
        assert_eq!(batcher.finish(Duration::from_secs(60)).batches, 0);
    }
    let known = memories.each_ref().map(|memory| {
        let contents = memory.contents.lock().unwrap();
        let intervals = || contents.iter().flat_map(|content| &content.intervals);
        let traces = contents.iter().flat_map(|content| &content.traces.0).map(|trace| trace.ends);
        let flows = intervals().flat_map(|interval| &interval.flows).map(|flow| flow.ends);
        let rtts = intervals().flat_map(|interval| &interval.rtts).map(|rtt| rtt.ends);
        let mut all: Vec<_> = traces.chain(flows).chain(rtts).collect();
        all.sort_unstable();
        all
    });
    let mut shares = 0;
    for number in 0..CONNECTIONS {
        let seen = [1, 11].map(|run| ends(number + 1_000 * run));
        let counts =
            known.each_ref().map(|known| seen.map(|ends| known.iter().filter(|known| **known == ends).count()));
        // A trace, a report and a round-trip time of each agent.
        let mut sorted = counts;
        sorted.sort_unstable();
        assert_eq!(sorted, [[0, 0], [0, 0], [3, 3]], "{number}: {counts:?}");
        shares |= 1 << counts.iter().position(|counts| counts[0] > 0).unwrap();
    }
    assert_eq!(shares, 0b111, "each has its share");
}
