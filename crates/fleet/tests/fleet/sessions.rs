//! What is pushed comes to be stored, once, whatever becomes of the collector.

use std::{sync::Arc, time::Duration};

use dwell_fleet::Event;

use crate::support::{Memory, agent, collector, collector_at, eventually, identity};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn what_is_pushed_is_stored_in_order_and_the_backlog_empties() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let agent = agent("a", 1, &server.address().to_string(), &key);
    (0..50).for_each(|count| agent.push(count));
    let (uplink, run) = (agent.uplink, agent.run);
    let left = uplink.finish(PATIENCE);
    assert_eq!((left.batches, left.dropped), (0, 0));
    assert_eq!(memory.numbers(run), (1..=50).collect::<Vec<_>>());
    eventually("the agent is gone", || *memory.gone.lock().unwrap() == ["a: it left"]);
    assert_eq!(server.agents(), 0);
}

#[test]
fn a_collector_that_comes_back_has_all_once() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let mut server = collector(&key, &memory);
    let address = server.address();
    let agent = agent("a", 1, &address.to_string(), &key);
    for round in 0..4 {
        agent.is_connected();
        // It ends while they are under way.
        (0..50).for_each(|count| agent.push(count));
        drop(server);
        (0..50).for_each(|count| agent.push(count));
        server = collector_at(address, &key, &memory);
        eventually("all are stored", || agent.uplink.backlog().batches == 0);
        let all: Vec<_> = (1..=100 * (round + 1)).collect();
        assert_eq!(memory.numbers(agent.run), all);
        agent.is_lost_as("");
    }
    assert_eq!(agent.uplink.backlog().dropped, 0);
}

#[test]
fn without_a_collector_the_oldest_goes_and_is_counted() {
    let key = identity("k");
    let agent = agent("a", 1, "127.0.0.1:1", &key);
    agent.is_lost_as("refused");
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
fn what_the_collector_cannot_store_the_agent_keeps() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    *memory.is_full.lock().unwrap() = true;
    let agent = agent("a", 1, &server.address().to_string(), &key);
    agent.push(0);
    agent.is_lost_as("no room");
    assert_eq!(agent.uplink.backlog().batches, 1);
    *memory.is_full.lock().unwrap() = false;
    eventually("it is stored", || agent.uplink.backlog().batches == 0);
    assert_eq!(memory.numbers(agent.run), [1]);
}

#[test]
fn of_two_agents_with_one_name_the_second_is_refused_until_the_first_is_gone() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let address = server.address().to_string();
    let first = agent("web", 1, &address, &key);
    first.is_connected();
    let second = agent("web", 2, &address, &key);
    second.is_lost_as("an agent named 'web' is here already");
    let third = agent("other", 3, &address, &key);
    third.is_connected();
    assert!(server.refusals().names > 0);
    second.push(7);
    drop(first);
    second.is_connected();
    eventually("it is stored", || memory.numbers(second.run) == [1]);
    assert_eq!(server.agents(), 2);
}

/// As where a store is slow, or the round trips to the agent's clock are long.
#[test]
fn a_slow_collector_lets_agents_in() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    // Longer than all that comes before it may take.
    *memory.hello_takes.lock().unwrap() = Duration::from_secs(11);
    let server = collector(&key, &memory);
    let is_asked = memory.after_welcome.lock().unwrap();
    let agent = agent("a", 1, &server.address().to_string(), &key);
    agent.push(0);
    assert!(matches!(agent.event(), Event::Met { .. }));
    assert!(matches!(agent.event(), Event::Connected { .. }));
    assert_eq!(agent.uplink.backlog().batches, 1);
    drop(is_asked);
    eventually("it is stored", || agent.uplink.backlog().batches == 0);
}

/// Its connection died without a word: the collector still waits on it.
#[test]
fn an_agent_that_comes_again_takes_the_place_of_its_former_connection() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let address = server.address().to_string();
    let before = agent("web", 1, &address, &key);
    before.is_connected();
    let again = agent("web", 1, &address, &key);
    again.is_connected();
    again.push(7);
    eventually("it is stored", || memory.numbers(again.run) == [1]);
    assert_eq!(server.refusals().names, 0);
    assert_eq!(server.agents(), 1);
}

#[test]
fn both_sides_know_a_secret_that_is_another_each_time() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let secret = |run| {
        let agent = agent("a", run, &server.address().to_string(), &key);
        match agent.event() {
            Event::Met { secret, collector } => {
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
