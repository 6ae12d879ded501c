//! Refused connections, and agents that they must not disturb.

use dwell_fleet::Refusal;
use dwell_testbed::harness::eventually;
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use crate::support::{Memory, agent, collector, identity};

#[test]
fn another_key_is_refused_and_counted_by_both_sides() {
    let memory = Arc::new(Memory::default());
    let server = collector(&identity("k"), &memory);
    let address = server.address().to_string();
    let stranger = agent("a", 1, &address, &identity("x"));
    stranger.push(1);
    stranger.wait_for_failure("the collector's key does not match ours");
    eventually("it is counted", || server.refusals().get(Refusal::Stranger) > 0);
    let friend = agent("a", 2, &address, &identity("k"));
    friend.wait_until_connected();
    friend.push(1);
    eventually("it is stored", || memory.numbers(friend.run) == [1]);
    assert_eq!(memory.numbers(stranger.run), [0; 0]);
    assert_eq!(stranger.uplink.backlog().batches, 1);
}

#[test]
fn malformed_input_is_refused_and_counted() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let friend = agent("a", 1, &server.address().to_string(), &key);
    friend.wait_until_connected();
    let mut kinds: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 5000],
        vec![0xff; 70_000],
        b"\x16\x03\x01\xff\xff".to_vec(),
    ];
    kinds.push((0..=255).cycle().take(100_000).collect());
    let count = kinds.len() as u64;
    for bytes in kinds {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // Until the collector closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    eventually("all are counted", || server.refusals().get(Refusal::Garbage) == count);
    friend.push(1);
    eventually("it is stored", || memory.numbers(friend.run) == [1]);
}

#[test]
fn many_silent_connections_do_not_hinder_an_agent() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let friend = agent("a", 1, &server.address().to_string(), &key);
    friend.wait_until_connected();
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    eventually("some are refused", || server.refusals().get(Refusal::Crowd) >= 20);
    (0..20).for_each(|count| friend.push(count));
    eventually("all are stored", || friend.uplink.backlog().batches == 0);
    assert_eq!(memory.numbers(friend.run).len(), 20);
    // The others time out, although the first one sends a byte now and then.
    let mut first = &silent[0];
    eventually("the rest time out", || {
        let _ = first.write_all(&[0x16]);
        std::thread::sleep(Duration::from_millis(500));
        let refusals = server.refusals();
        refusals.get(Refusal::Slow) + refusals.get(Refusal::Garbage) >= 16
    });
    let late = agent("b", 2, &server.address().to_string(), &key);
    late.wait_until_connected();
}
