//! Sockets of this process, watched as if it were another.

#![allow(clippy::unwrap_used)]

use std::{
    collections::HashSet,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process, thread,
    time::{Duration, Instant},
};

use dwell_engine::socket::{Account, Estimator, Viewpoint};
use dwell_socket::{
    Watch,
    outside::{Config, Outside, Scope},
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Pair {
    client: TcpStream,
    server: TcpStream,
}

fn pair() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    Pair { client, server }
}

fn outside() -> Outside {
    Outside::start(Scope::Process(process::id()), Config::default()).unwrap()
}

/// Looks again and again until the client's account satisfies this.
fn until(outside: &mut Outside, client: &str, mut enough: impl FnMut(&Account) -> bool) -> Account {
    let begun = Instant::now();
    loop {
        outside.poll().unwrap();
        let mut found = None;
        outside
            .visit(&mut |account| {
                if account.ends.src.to_string() == client && enough(account) {
                    found = Some(*account);
                }
            })
            .unwrap();
        if let Some(account) = found {
            return account;
        }
        assert!(begun.elapsed() < PATIENCE, "{client} is not told of");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_is_found_and_told_of_until_it_has_ended() {
    let pair = pair();
    let name = pair.client.local_addr().unwrap().to_string();
    let mut outside = outside();
    let account = until(&mut outside, &name, |_| true);
    assert_eq!(account.pid, Some(process::id()));
    assert_eq!(account.ends.dst.to_string(), pair.client.peer_addr().unwrap().to_string());
    assert_eq!((account.viewpoint, account.estimator), (Viewpoint::Outside, Estimator::Exact));
    drop(pair);
    until(&mut outside, &name, |account| account.ended);
    outside.visit(&mut |account| assert_ne!(account.cookie, 0, "{account:?}")).unwrap();
    let mut again = false;
    outside.visit(&mut |account| again |= account.ends.src.to_string() == name).unwrap();
    assert!(!again, "it was told of after its end");
}

#[test]
fn what_a_reader_that_stops_makes_bytes_wait_is_seen_at_the_sender() {
    let Pair { client, mut server } = pair();
    let name = client.local_addr().unwrap().to_string();
    let mut outside = outside();
    until(&mut outside, &name, |_| true);
    let mut writer = client.try_clone().unwrap();
    let writing = thread::spawn(move || {
        let _ = writer.write_all(&vec![0; 32 << 20]);
    });
    // More than both buffers hold, and nobody reads.
    let pause_ns = 300_000_000;
    until(&mut outside, &name, |account| account.waiting_ns.is_some_and(|waiting| waiting > pause_ns));
    let reading = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while server.read(&mut buffer).is_ok_and(|length| length > 0) {}
    });
    let account =
        until(&mut outside, &name, |account| account.peaks.sender_ns.is_some_and(|longest| longest > pause_ns));
    assert!(account.totals.sender.bytes > 0);
    writing.join().unwrap();
    drop(client);
    reading.join().unwrap();
}

#[test]
fn a_socket_that_is_watched_elsewhere_is_left() {
    let pair = pair();
    let name = pair.client.local_addr().unwrap().to_string();
    let mut outside = outside();
    let cookie = until(&mut outside, &name, |_| true).cookie;
    outside.exclude([cookie]);
    let begun = Instant::now();
    let mut told = HashSet::new();
    while begun.elapsed() < Duration::from_millis(200) {
        outside.poll().unwrap();
        outside
            .visit(&mut |account| {
                told.insert(account.cookie);
            })
            .unwrap();
    }
    assert!(!told.contains(&cookie));
    outside.exclude([]);
    until(&mut outside, &name, |_| true);
}

#[test]
fn a_young_socket_is_withheld_and_told_at_its_end_all_the_same() {
    let Pair { client, server } = pair();
    let name = client.local_addr().unwrap().to_string();
    let mut outside = outside();
    outside.withhold(Duration::from_secs(3600));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        outside.poll().unwrap();
        let told = outside.visit(&mut |account| assert_ne!(account.ends.src.to_string(), name));
        told.unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    drop((server, client));
    until(&mut outside, &name, |account| account.ended);
}

#[test]
fn many_sockets_are_dumped_and_none_is_missed() {
    let pairs: Vec<Pair> = (0..100).map(|_| pair()).collect();
    let mut outside = outside();
    for pair in &pairs {
        let name = pair.client.local_addr().unwrap().to_string();
        (&pair.client).write_all(b"hello").unwrap();
        let account = until(&mut outside, &name, |account| account.reading.info.bytes_sent == Some(5));
        assert!(!account.ended);
    }
}

#[test]
fn bytes_that_a_new_connection_wrote_before_it_was_found_are_counted_and_their_age_is_known() {
    let mut outside = outside();
    let Pair { client, server } = pair();
    let name = client.local_addr().unwrap().to_string();
    client.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(length) = (&client).write(&[0; 64 << 10]) {
        written += length as u64;
    }
    let pause_ns = 300_000_000;
    let account = until(&mut outside, &name, |account| account.waiting_ns.is_some_and(|waiting| waiting > pause_ns));
    assert_eq!(account.totals.written_bytes, written);
    drop(server);
}
