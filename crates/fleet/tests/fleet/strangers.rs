//! Who is not let in, and that the rest are none the worse for it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use crate::support::{Memory, agent, collector, eventually, identity};

#[test]
fn another_key_is_refused_and_counted_by_both_sides() {
    let memory = Arc::new(Memory::default());
    let server = collector(&identity("k"), &memory);
    let address = server.address().to_string();
    let stranger = agent("a", 1, &address, &identity("x"));
    stranger.push(1);
    stranger.is_lost_as("its key is another");
    eventually("it is counted", || server.refusals().strangers > 0);
    let friend = agent("a", 2, &address, &identity("k"));
    friend.is_connected();
    friend.push(1);
    eventually("it is stored", || memory.numbers(friend.run) == [1]);
    assert_eq!(memory.numbers(stranger.run), [0; 0]);
    assert_eq!(stranger.uplink.backlog().batches, 1);
}

#[test]
fn garbage_is_refused_and_counted() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let friend = agent("a", 1, &server.address().to_string(), &key);
    friend.is_connected();
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
        // Until it has seen enough.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    eventually("all are counted", || server.refusals().garbage == count);
    friend.push(1);
    eventually("it is stored", || memory.numbers(friend.run) == [1]);
}

#[test]
fn many_that_say_nothing_do_not_keep_a_known_agent_from_its_work() {
    let (key, memory) = (identity("k"), Arc::new(Memory::default()));
    let server = collector(&key, &memory);
    let friend = agent("a", 1, &server.address().to_string(), &key);
    friend.is_connected();
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    eventually("some are turned away", || server.refusals().crowd >= 20);
    (0..20).for_each(|count| friend.push(count));
    eventually("all are stored", || friend.uplink.backlog().batches == 0);
    assert_eq!(memory.numbers(friend.run).len(), 20);
    // The others run out of time, although the first one sends a byte now and then.
    let mut first = &silent[0];
    eventually("the rest are given up", || {
        let _ = first.write_all(&[0x16]);
        std::thread::sleep(Duration::from_millis(500));
        let refusals = server.refusals();
        refusals.slow + refusals.garbage >= 16
    });
    let late = agent("b", 2, &server.address().to_string(), &key);
    late.is_connected();
}
