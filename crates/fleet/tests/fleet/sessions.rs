//! Each batch is stored exactly once, even if the collector restarts.

use std::{num::NonZeroU64, sync::Arc, thread, time::Duration};

use dwell_engine::{
    layers::{ByteTrace, Direction, Ends, Layer},
    measure::Endpoint,
};
use dwell_fleet::{
    Event, Limits, Refusal,
    wire::{FlowReport, FlowRtt, IntervalReport, LossCause},
};
use dwell_testbed::harness::eventually;

use crate::support::{Memory, agent, batcher, collector, collector_at, identity, kept_agent, limited_collector};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn batches_are_stored_in_order_and_the_backlog_empties() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let address = server.address().to_string();
    let first = agent("a", 1, &address, &key);
    (0..50).for_each(|count| first.push(count));
    let (uplink, run) = (first.uplink, first.run);
    let left = uplink.finish(PATIENCE);
    assert_eq!((left.batches, left.dropped), (0, 0));
    assert_eq!(memory.numbers(run), (1..=50).collect::<Vec<_>>());
    eventually("the agent is gone", || *memory.disconnected.lock().unwrap() == ["a: it left"]);
    assert_eq!(server.agents(), 0);
    // As of a process that is killed.
    let killed = agent("b", 2, &address, &key);
    killed.wait_until_connected();
    drop(killed);
    let says =
        "b: its connection was closed without signing off: it was killed or has given up, or the network reset it";
    eventually("it is gone", || memory.disconnected.lock().unwrap().last().is_some_and(|last| last == says));
}

#[test]
fn a_collector_that_restarts_stores_each_batch_once() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let mut server = collector(&key, &memory);
    let address = server.address();
    let agent = agent("a", 1, &address.to_string(), &key);
    for round in 0..4 {
        agent.wait_until_connected();
        // The collector ends while these are in transit.
        (0..50).for_each(|count| agent.push(count));
        drop(server);
        (0..50).for_each(|count| agent.push(count));
        server = collector_at(address, &key, &memory);
        eventually("all batches are stored", || agent.uplink.backlog().batches == 0);
        let all: Vec<_> = (1..=100 * (round + 1)).collect();
        assert_eq!(memory.numbers(agent.run), all);
        agent.wait_for_failure("");
    }
    assert_eq!(agent.uplink.backlog().dropped, 0);
}

#[test]
fn without_a_collector_the_oldest_batches_are_dropped_and_counted() {
    let key = identity("k");
    let agent = agent("a", 1, "127.0.0.1:1", &key);
    agent.wait_for_failure("refused");
    let big = "x".repeat(300_000);
    for _ in 0..10 {
        agent.uplink.push(dwell_fleet::wire::Content { counters: vec![(big.clone(), 1)], ..Default::default() });
    }
    let backlog = agent.uplink.backlog();
    assert_eq!((backlog.batches, backlog.dropped), (3, 7));
    let left = agent.uplink.finish(Duration::from_millis(50));
    assert_eq!(left.batches, 3);
}

#[test]
fn an_agent_stays_connected_to_a_busy_collector_and_keeps_what_it_cannot_store() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    *memory.is_full.lock().unwrap() = true;
    let agent = agent("a", 1, &server.address().to_string(), &key);
    agent.wait_until_connected();
    agent.push(0);
    for is_new in [true, false, false] {
        assert_eq!(agent.event(), Event::Busy { reason: "no room".into(), is_new });
    }
    assert_eq!(agent.uplink.backlog().batches, 1);
    *memory.is_full.lock().unwrap() = false;
    eventually("it is stored", || agent.uplink.backlog().batches == 0);
    assert_eq!(memory.numbers(agent.run), [1]);
    assert!(memory.disconnected.lock().unwrap().is_empty());
}

#[test]
fn an_agent_is_refused_when_there_is_no_connection_left() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = limited_collector("127.0.0.1:0".parse().unwrap(), limits, &key, &memory);
    let address = server.address().to_string();
    let first = agent("a", 1, &address, &key);
    first.wait_until_connected();
    let second = agent("b", 2, &address, &key);
    second.wait_for_failure("no connection left");
    let refusals = server.refusals();
    assert!(refusals.get(Refusal::Capacity) > 0, "{refusals:?}");
    assert_eq!(refusals.get(Refusal::Name), 0);
    drop(first);
    second.wait_until_connected();
}

#[test]
fn a_batch_for_which_there_is_no_memory_is_skipped_and_sent_again() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let limits = Limits { batch_bytes: 4_000, ..Limits::default() };
    let server = limited_collector("127.0.0.1:0".parse().unwrap(), limits, &key, &memory);
    let agent = agent("a", 1, &server.address().to_string(), &key);
    agent.wait_until_connected();
    let names = (0..200).map(|number| (format!("counter_with_a_long_name_{number}"), 1));
    agent.uplink.push(dwell_fleet::wire::Content { counters: names.collect(), ..Default::default() });
    for _ in 0..2 {
        assert!(matches!(agent.event(), Event::Busy { reason, .. } if reason.contains("no memory left")));
    }
    assert!(server.skipped() >= 2);
    // Others are served.
    let other = crate::support::agent("b", 2, &server.address().to_string(), &key);
    other.push(1);
    eventually("it is stored", || memory.numbers(other.run) == [1]);
    assert!(memory.largest.load(std::sync::atomic::Ordering::SeqCst) < 4_000);
}

#[test]
fn an_agent_is_refused_while_another_one_has_its_name() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let address = server.address().to_string();
    let first = agent("web", 1, &address, &key);
    first.wait_until_connected();
    let second = agent("web", 2, &address, &key);
    second.wait_for_failure("an agent named 'web' is already connected");
    let third = agent("other", 3, &address, &key);
    third.wait_until_connected();
    assert!(server.refusals().get(Refusal::Name) > 0);
    second.push(7);
    drop(first);
    second.wait_until_connected();
    eventually("it is stored", || memory.numbers(second.run) == [1]);
    assert_eq!(server.agents(), 2);
}

/// A slow store, or long round trips to the agent's clock, delay a collector's answers.
#[test]
fn a_slow_collector_admits_agents() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    // Longer than the deadline of the handshake.
    *memory.hello_delay.lock().unwrap() = Duration::from_secs(11);
    let server = collector(&key, &memory);
    let after_welcome = memory.after_welcome.lock().unwrap();
    let agent = agent("a", 1, &server.address().to_string(), &key);
    agent.push(0);
    assert!(matches!(agent.event(), Event::Authenticated { .. }));
    assert!(matches!(agent.event(), Event::Connected { .. }));
    assert_eq!(agent.uplink.backlog().batches, 1);
    drop(after_welcome);
    eventually("it is stored", || agent.uplink.backlog().batches == 0);
}

/// The former connection died silently, so that the collector still waits on it.
#[test]
fn an_agent_that_reconnects_replaces_its_former_connection() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let address = server.address().to_string();
    let before = agent("web", 1, &address, &key);
    before.wait_until_connected();
    let again = agent("web", 1, &address, &key);
    again.wait_until_connected();
    again.push(7);
    eventually("it is stored", || memory.numbers(again.run) == [1]);
    assert_eq!(server.refusals().get(Refusal::Name), 0);
    assert_eq!(server.agents(), 1);
    eventually("its former connection is over", || !memory.disconnected.lock().unwrap().is_empty());
    let disconnected = memory.disconnected.lock().unwrap();
    assert!(disconnected.iter().all(|why| why == "web: it is here again"), "{disconnected:?}");
}

#[test]
fn both_sides_share_a_secret_that_differs_for_each_connection() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let secret = |run| {
        let agent = agent("a", run, &server.address().to_string(), &key);
        match agent.event() {
            Event::Authenticated { secret, collector } => {
                assert_eq!(collector, server.address());
                secret
            }
            other => panic!("{other:?}"),
        }
    };
    let first = secret(1);
    eventually("it is gone", || server.agents() == 0);
    assert_ne!(first, secret(2));
}

/// A byte that was only written so far.
fn written(ends: Ends, seq: u32) -> ByteTrace {
    let mut stamps = [None; Layer::ALL.len()];
    stamps[Layer::TxSocket as usize] = NonZeroU64::new(1);
    ByteTrace { ends, namespace: 0, seq, isns: None, direction: Direction::Tx, sent: 1, again: false, stamps }
}

#[test]
fn an_agent_splits_traces_and_flows_into_batches_of_limited_size() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let end = |port| Endpoint { address: [192, 0, 2, 1].into(), port };
    let ends = |port| Ends { src: end(port), dst: end(443) };
    let mut batcher = batcher(&[server.address().to_string()], &key, 1);
    for seq in 0..10_000 {
        batcher.push_trace(written(ends(1), seq));
    }
    let report = IntervalReport {
        end_ns: 5,
        end_unix_ns: 5,
        length_ns: 5,
        sample_bytes: 64,
        segments: Vec::new(),
        flows: (0..300)
            .map(|port| FlowReport { ends: ends(port), namespace: None, isns: None, segments: Vec::new() })
            .collect(),
        rtts: (0..300)
            .map(|port| FlowRtt { ends: ends(port), is_received: false, min_ns: 1, smoothed_ns: 2 })
            .collect(),
    };
    batcher.push_interval(report, vec![("matched".into(), 1)]);
    assert_eq!(batcher.finish(PATIENCE).batches, 0);
    let stored = memory.contents.lock().unwrap();
    let traces: Vec<_> = stored.iter().map(|content| content.traces.0.len()).collect();
    assert_eq!(traces, [8192, 0, 0, 0, 1808, 0]);
    let flows: Vec<_> = stored.iter().flat_map(|content| &content.intervals).map(|part| part.flows.len()).collect();
    assert_eq!(flows, [128, 128, 44]);
    let rtts: Vec<_> = stored.iter().flat_map(|content| &content.intervals).map(|part| part.rtts.len()).collect();
    assert_eq!(rtts, flows);
    assert_eq!(stored[1].counters, [("matched".to_owned(), 1), ("batches_dropped".to_owned(), 0)]);
    assert!(stored.last().unwrap().is_last, "it ended in order");
}

#[test]
fn an_agent_with_few_traces_sends_few_batches() {
    let key = identity("k");
    // Nobody is there.
    let mut batcher = batcher(&["127.0.0.1:9".to_owned()], &key, 1);
    let end = |port| Endpoint { address: [192, 0, 2, 1].into(), port };
    let ends = Ends { src: end(1), dst: end(443) };
    for seq in 0..30 {
        batcher.push_trace(written(ends, seq));
        batcher.flush_if_due();
        thread::sleep(Duration::from_millis(50));
    }
    // In 1.5 s, or a little more on a busy machine.
    let batches = batcher.backlog().batches;
    assert!((1..=5).contains(&batches), "{batches}");
}

/// As of a process that was killed: its connection ends, and what it had queued is on disk.
#[test]
fn what_a_killed_agent_left_is_sent_by_the_next_once() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let folder = tempfile::tempdir().unwrap();
    let server = collector(&key, &memory);
    let address = server.address();
    let first = kept_agent("a", 1, &address.to_string(), &key, folder.path());
    first.push(0);
    eventually("it is stored", || memory.numbers(first.run) == [1]);
    drop(server);
    (0..5).for_each(|count| first.push(count));
    drop(first);
    let server = collector_at(address, &key, &memory);
    let second = kept_agent("a", 2, &address.to_string(), &key, folder.path());
    second.push(7);
    eventually("all is stored", || second.uplink.backlog().batches == 0);
    assert_eq!(memory.numbers([1; 16]), [1, 2, 3, 4, 5, 6]);
    assert_eq!(memory.numbers(second.run), [1]);
    let events: Vec<_> = second.events.try_iter().collect();
    let past: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Connected { is_past, .. } => Some(*is_past),
            _ => None,
        })
        .collect();
    assert_eq!(past, [true, false]);
    assert!(!events.iter().any(|event| matches!(event, Event::Disconnected { .. })), "{events:?}");
    assert_eq!(server.refusals().get(Refusal::Name), 0);
}

/// A batch that the collector cannot read must not be sent for ever.
#[test]
fn a_batch_that_is_not_valid_is_given_up_and_the_next_is_stored() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let agent = agent("a", 1, &server.address().to_string(), &key);
    let too_long = "x".repeat(100);
    agent.uplink.push(dwell_fleet::wire::Content { counters: vec![(too_long, 1)], ..Default::default() });
    agent.push(1);
    eventually("the next is stored", || memory.numbers(agent.run) == [1, 2]);
    let lost = memory.contents.lock().unwrap()[0].lost.unwrap();
    assert_eq!((lost.from, lost.why), (1, LossCause::Rejected));
    assert_eq!(server.refusals().get(Refusal::Garbage), 1);
    let events: Vec<_> = agent.events.try_iter().collect();
    assert!(events.iter().any(|event| matches!(event, Event::Rejected { .. })), "{events:?}");
    // Somebody who sends nothing else is disconnected.
    for _ in 0..16 {
        let names = vec![("x".repeat(100), 1)];
        agent.uplink.push(dwell_fleet::wire::Content { counters: names, ..Default::default() });
    }
    let told = || memory.disconnected.lock().unwrap().clone();
    eventually("it is disconnected", || !told().is_empty());
    assert_eq!(told(), ["a: more than 16 of its batches were not valid"]);
}
