//! Returning clients, with and without tickets.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use dwell_quic::{HandOver, Limits, SingleUseSessions, single_use};
use quinn::ServerConfig;
use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

use crate::{
    client::{Client, Handshake},
    server::{Identity, Server},
};

fn server(identity: &Identity, tickets: usize) -> (Server, Arc<SingleUseSessions>) {
    let sessions = SingleUseSessions::new(Limits::default());
    let crypto = single_use(identity.tls(), Arc::clone(&sessions), tickets).unwrap();
    let server = Server::plain(ServerConfig::with_crypto(Arc::new(crypto)));
    (server, sessions)
}

#[tokio::test]
async fn all_returning_clients_use_0rtt() {
    let identity = Identity::new();
    let (server, sessions) = server(&identity, 1);
    let client = Client::new(&identity.certificate);
    assert_eq!(client.ask(server.address, b"first", true).await, Handshake::Full);
    for number in 0..50_u8 {
        let request = [b'r', number];
        assert_eq!(client.ask(server.address, &request, true).await, Handshake::ZeroRtt);
        assert_eq!(server.done(&request), (1, 1));
    }
    let counts = sessions.counts();
    assert_eq!((counts.resumed, counts.missed), (50, 0));
    assert_eq!((counts.held, counts.stored), (1, 51));
}

#[tokio::test]
async fn another_server_refuses_0rtt_and_answers_after_a_handshake() {
    let identity = Identity::new();
    let (first, sessions) = server(&identity, 2);
    let (other, others) = server(&identity, 2);
    let client = Client::new(&identity.certificate);
    client.ask(first.address, b"first", true).await;
    client.tickets.wait_for(2).await;
    assert_eq!(client.ask(other.address, b"moved", true).await, Handshake::Refused);
    assert_eq!(other.done(b"moved"), (1, 0));
    assert_eq!(others.counts().missed, 1);
    assert_eq!(sessions.counts().held, 2);
}

/// A server that leaves hands its sessions over: its clients go on with 0-RTT at its successor, and nowhere else.
#[tokio::test]
async fn sessions_that_were_handed_over_are_good_once_at_the_successor() {
    let identity = Identity::new();
    let (leaving, sessions) = server(&identity, 3);
    let (successor, others) = server(&identity, 1);
    let client = Client::new(&identity.certificate);
    client.ask(leaving.address, b"first", true).await;
    client.tickets.wait_for(3).await;
    let mut stream = Vec::new();
    sessions.hand_over().write_to(&mut stream).unwrap();
    assert_eq!(others.take_over(HandOver::read_from(&mut &stream[..]).unwrap()), 3);
    // The client keeps no new tickets, so that it uses those of the first server.
    client.tickets.is_deaf.store(true, Ordering::SeqCst);
    assert_eq!(client.ask(leaving.address, b"late", false).await, Handshake::Refused);
    assert_eq!(client.ask(successor.address, b"moved", false).await, Handshake::ZeroRtt);
    assert_eq!(successor.done(b"moved"), (1, 1));
    let counts = others.counts();
    assert_eq!((counts.resumed, counts.missed), (1, 0));
    assert_eq!(sessions.counts().resumed, 0);
}

/// rustls compares the age of a session by its own clock with the one that the client states.
#[tokio::test]
async fn a_successor_whose_clock_is_minutes_ahead_resumes_without_0rtt() {
    let identity = Identity::new();
    for (ahead, expected) in [(15, Handshake::ZeroRtt), (300, Handshake::Refused)] {
        let (leaving, sessions) = server(&identity, 1);
        let client = Client::new(&identity.certificate);
        client.ask(leaving.address, b"first", true).await;
        let others = SingleUseSessions::new(Limits::default());
        let mut tls = identity.tls();
        tls.time_provider = Arc::new(Ahead(ahead));
        let crypto = single_use(tls, Arc::clone(&others), 1).unwrap();
        let successor = Server::plain(ServerConfig::with_crypto(Arc::new(crypto)));
        others.take_over(sessions.hand_over());
        assert_eq!(client.ask(successor.address, b"moved", false).await, expected, "{ahead} s");
        assert_eq!(others.counts().resumed, 1, "it is used up in any case");
    }
}

/// A clock that is this many seconds ahead.
#[derive(Debug)]
struct Ahead(u64);

impl TimeProvider for Ahead {
    fn current_time(&self) -> Option<UnixTime> {
        let now = UnixTime::now().as_secs();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now + self.0)))
    }
}

#[tokio::test]
async fn with_k_tickets_k_of_k_plus_1_connections_use_0rtt_if_clients_leave_early() {
    let identity = Identity::new();
    for tickets in 1..=5 {
        let (server, _) = server(&identity, tickets);
        let client = Client::new(&identity.certificate);
        let mut handshakes = Vec::new();
        for number in 0..3 * (tickets as u8 + 1) {
            // A client that leaves early misses the tickets that arrive after its end.
            let is_full = client.tickets.received()
                == handshakes.iter().filter(|handshake| **handshake == Handshake::ZeroRtt).count();
            client.tickets.is_deaf.store(!is_full, Ordering::SeqCst);
            let before = client.tickets.received();
            handshakes.push(client.ask(server.address, &[number], is_full).await);
            if is_full {
                client.tickets.wait_for(before + tickets).await;
            }
        }
        let used = handshakes.iter().filter(|handshake| **handshake == Handshake::ZeroRtt).count();
        assert_eq!(used, 3 * tickets, "{handshakes:?}");
    }
}

#[tokio::test]
async fn a_configuration_with_self_contained_tickets_is_refused() {
    let mut tls = Identity::new().tls();
    tls.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    let refused = single_use(tls, SingleUseSessions::new(Limits::default()), 1).map(drop);
    assert!(refused.unwrap_err().to_string().contains("ticketer"));
}
