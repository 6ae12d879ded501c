//! Attacks by somebody who has recorded clients' packets or has seized a server.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use dwell_quic::{Limits, SingleUseSessions};
use quinn::EndpointConfig;
use rustls::server::StoresServerSessions;
use tokio::net::UdpSocket;

use crate::{
    client::{Client, Handshake, PATIENCE},
    relay::{Relay, Sent},
    server::{Identity, Server},
};

const REQUESTS: usize = 100;

/// A store that never deletes a session, so that tickets can be used again.
#[derive(Debug, Default)]
struct RetainingStore {
    sessions: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    lookups: Mutex<usize>,
}

impl StoresServerSessions for RetainingStore {
    fn put(&self, id: Vec<u8>, secrets: Vec<u8>) -> bool {
        self.sessions.lock().unwrap().insert(id, secrets);
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        *self.lookups.lock().unwrap() += 1;
        self.sessions.lock().unwrap().get(id).cloned()
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// A single-use store together with a copy of all sessions that were put into it.
#[derive(Debug)]
struct RecordedStore {
    store: Arc<SingleUseSessions>,
    copy: RetainingStore,
}

impl StoresServerSessions for RecordedStore {
    fn put(&self, id: Vec<u8>, secrets: Vec<u8>) -> bool {
        self.copy.put(id.clone(), secrets.clone());
        self.store.put(id, secrets)
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.store.get(id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.store.take(id)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl RecordedStore {
    fn new() -> Arc<RecordedStore> {
        Arc::new(RecordedStore { store: SingleUseSessions::new(Limits::default()), copy: RetainingStore::default() })
    }

    /// Returns all sessions that an attacker finds who seizes the server.
    fn stolen(&self) -> Arc<RetainingStore> {
        let ids: Vec<Vec<u8>> = self.copy.sessions.lock().unwrap().keys().cloned().collect();
        let loot = RetainingStore::default();
        for id in ids {
            if let Some(secrets) = self.store.take(&id) {
                loot.put(id, secrets);
            }
        }
        Arc::new(loot)
    }
}

fn request(number: usize) -> Vec<u8> {
    format!("request {number}").into_bytes()
}

/// Sends requests to a server as 0-RTT data, and returns the recorded packets of each.
async fn record(identity: &Identity, server: &Server) -> Vec<Sent> {
    let client = Client::new(&identity.certificate);
    client.ask(server.address, b"first", true).await;
    let mut sent = Vec::new();
    for number in 0..REQUESTS {
        // One relay per request: a client's port is random and may repeat.
        let relay = Relay::start(server.address).await;
        let handshake = client.ask(relay.address, &request(number), true).await;
        assert_eq!(handshake, Handshake::ZeroRtt);
        assert_eq!(server.done(&request(number)), (1, 1));
        sent.extend(relay.sent());
    }
    assert_eq!(sent.len(), REQUESTS);
    sent
}

/// Replays first flights one by one, and waits until the server has looked up the session of each.
async fn replay(flights: &[Sent], to: SocketAddr, lookups: impl Fn() -> usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let before = lookups();
    for (number, sent) in flights.iter().enumerate() {
        for datagram in &sent.datagrams[..sent.first_flight] {
            socket.send_to(datagram, to).await.unwrap();
        }
        let waiting = async {
            while lookups() <= before + number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }
    // A request in 0-RTT data is in the same datagrams: by now, a task that executes it would have run.
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn wait_until_done(server: &Server, request: &[u8], times: u32) {
    let waiting = async {
        while server.done(request).0 < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert_eq!(server.done(request), (times, times));
}

#[tokio::test]
async fn a_thousand_replays_are_refused() {
    let identity = Identity::new();
    let [a, b] = [(); 2].map(|()| SingleUseSessions::new(Limits::default()));
    let start = |sessions: &Arc<SingleUseSessions>, done| {
        let config = identity.quic(Arc::clone(sessions) as Arc<dyn StoresServerSessions>, 2);
        Server::start(config, EndpointConfig::default(), done)
    };
    let genuine = start(&a, Arc::default());
    let flights = record(&identity, &genuine).await;
    let mut tries = 0;
    for _ in 0..5 {
        for sessions in [&a, &b] {
            // A new endpoint: one that knows the connections would take replays for their packets.
            let server = start(sessions, Arc::clone(&genuine.done));
            let before = sessions.counts();
            replay(&flights, server.address, || sessions.counts().missed as usize).await;
            let after = sessions.counts();
            assert_eq!(after.resumed, before.resumed);
            tries += (after.missed - before.missed) as usize;
        }
    }
    assert_eq!(tries, 1_000);
    for number in 0..REQUESTS {
        assert_eq!(genuine.done(&request(number)), (1, 1));
    }
}

/// Control experiment for the test above: without deletion of sessions, replays succeed.
#[tokio::test]
async fn with_a_store_that_does_not_delete_requests_are_executed_twice() {
    let identity = Identity::new();
    let retaining = Arc::new(RetainingStore::default());
    let start = |done| {
        let config = identity.quic(Arc::clone(&retaining) as Arc<dyn StoresServerSessions>, 2);
        Server::start(config, EndpointConfig::default(), done)
    };
    let genuine = start(Arc::default());
    let flights = record(&identity, &genuine).await;
    let again = start(Arc::clone(&genuine.done));
    replay(&flights, again.address, || *retaining.lookups.lock().unwrap()).await;
    for number in 0..REQUESTS {
        wait_until_done(&genuine, &request(number), 2).await;
    }
}

#[tokio::test]
async fn an_attacker_who_seizes_the_server_later_cannot_read_accepted_0rtt_data() {
    let identity = Identity::new();
    let recorded = RecordedStore::new();
    let config = identity.quic(Arc::clone(&recorded) as Arc<dyn StoresServerSessions>, 3);
    let genuine = Server::plain(config);
    let flights = record(&identity, &genuine).await;
    let stolen = recorded.stolen();
    // Two of three tickets per connection are left.
    assert!(stolen.sessions.lock().unwrap().len() >= 2 * REQUESTS);
    let thief = Server::plain(identity.quic(Arc::clone(&stolen) as Arc<dyn StoresServerSessions>, 1));
    replay(&flights, thief.address, || *stolen.lookups.lock().unwrap()).await;
    assert!(thief.done.lock().unwrap().is_empty());
    // With a copy of all sessions from before their use, the thief can read everything.
    let everything = Arc::new(RetainingStore::default());
    everything.sessions.lock().unwrap().extend(recorded.copy.sessions.lock().unwrap().clone());
    let thief = Server::plain(identity.quic(Arc::clone(&everything) as Arc<dyn StoresServerSessions>, 1));
    replay(&flights, thief.address, || *everything.lookups.lock().unwrap()).await;
    for number in 0..REQUESTS {
        wait_until_done(&thief, &request(number), 1).await;
    }
}

/// A known limit: 0-RTT data that another server refused can be decrypted with the session of the server that issued it.
#[tokio::test]
async fn refused_0rtt_data_can_be_read_while_its_issuer_holds_the_session() {
    let identity = Identity::new();
    for is_deleted in [false, true] {
        let recorded = RecordedStore::new();
        let config = identity.quic(Arc::clone(&recorded) as Arc<dyn StoresServerSessions>, 1);
        let issuer = Server::plain(config);
        let others = SingleUseSessions::new(Limits::default());
        let other = Server::plain(identity.quic(others, 1));
        let client = Client::new(&identity.certificate);
        client.ask(issuer.address, b"first", true).await;
        let relay = Relay::start(other.address).await;
        let handshake = client.ask(relay.address, b"secret", true).await;
        assert_eq!(handshake, Handshake::Refused);
        if is_deleted {
            recorded.store.clear();
        }
        let stolen = recorded.stolen();
        let thief = Server::plain(identity.quic(Arc::clone(&stolen) as Arc<dyn StoresServerSessions>, 1));
        replay(&relay.sent(), thief.address, || *stolen.lookups.lock().unwrap()).await;
        match is_deleted {
            true => assert_eq!(thief.done(b"secret"), (0, 0)),
            false => wait_until_done(&thief, b"secret", 1).await,
        }
    }
}
