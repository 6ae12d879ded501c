//! What somebody does who has recorded what clients sent, or has taken a server.

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
    client::{Client, PATIENCE, Went},
    relay::{Relay, Sent},
    server::{Identity, Server},
};

const REQUESTS: usize = 100;

/// Knows all sessions that it was ever given, and deletes none where it is careless.
#[derive(Debug, Default)]
struct Careless {
    sessions: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    took: Mutex<usize>,
}

impl StoresServerSessions for Careless {
    fn put(&self, id: Vec<u8>, secrets: Vec<u8>) -> bool {
        self.sessions.lock().unwrap().insert(id, secrets);
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        *self.took.lock().unwrap() += 1;
        self.sessions.lock().unwrap().get(id).cloned()
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// A store beside which somebody writes down what goes in.
#[derive(Debug)]
struct Watched {
    store: Arc<SingleUseSessions>,
    seen: Careless,
}

impl StoresServerSessions for Watched {
    fn put(&self, id: Vec<u8>, secrets: Vec<u8>) -> bool {
        self.seen.put(id.clone(), secrets.clone());
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

impl Watched {
    fn new() -> Arc<Watched> {
        Arc::new(Watched { store: SingleUseSessions::new(Limits::default()), seen: Careless::default() })
    }

    /// All that who takes the server finds in its store.
    fn stolen(&self) -> Arc<Careless> {
        let ids: Vec<Vec<u8>> = self.seen.sessions.lock().unwrap().keys().cloned().collect();
        let loot = Careless::default();
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

/// Has requests done as 0-RTT data by a server, and gives what was sent for each.
async fn record(identity: &Identity, server: &Server) -> Vec<Sent> {
    let client = Client::new(&identity.certificate);
    client.ask(server.address, b"first", true).await;
    let mut sent = Vec::new();
    for number in 0..REQUESTS {
        // One each: a client's port is drawn, and may be that of one before.
        let relay = Relay::start(server.address).await;
        let went = client.ask(relay.address, &request(number), true).await;
        assert_eq!(went, Went::ZeroRtt);
        assert_eq!(server.done(&request(number)), (1, 1));
        sent.extend(relay.sent());
    }
    assert_eq!(sent.len(), REQUESTS);
    sent
}

/// Sends first flights again, a few at a time, and waits until the server has looked for the session of each.
async fn replay(flights: &[Sent], to: SocketAddr, looked: impl Fn() -> usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let before = looked();
    for (number, sent) in flights.iter().enumerate() {
        for datagram in &sent.datagrams[..sent.first_flight] {
            socket.send_to(datagram, to).await.unwrap();
        }
        let waiting = async {
            while looked() <= before + number {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }
    // A request that came as 0-RTT data is in the same datagrams: by now a task that would do it has run.
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
            // An endpoint that has forgotten the connections: it would take replays for their packets.
            let server = start(sessions, Arc::clone(&genuine.done));
            let before = sessions.counts();
            replay(&flights, server.address, || sessions.counts().missed as usize).await;
            let after = sessions.counts();
            assert_eq!(after.taken, before.taken);
            tries += (after.missed - before.missed) as usize;
        }
    }
    assert_eq!(tries, 1_000);
    for number in 0..REQUESTS {
        assert_eq!(genuine.done(&request(number)), (1, 1));
    }
}

/// What the test above would see if sessions were not deleted.
#[tokio::test]
async fn a_store_that_does_not_delete_has_requests_done_twice() {
    let identity = Identity::new();
    let careless = Arc::new(Careless::default());
    let start = |done| {
        let config = identity.quic(Arc::clone(&careless) as Arc<dyn StoresServerSessions>, 2);
        Server::start(config, EndpointConfig::default(), done)
    };
    let genuine = start(Arc::default());
    let flights = record(&identity, &genuine).await;
    let again = start(Arc::clone(&genuine.done));
    replay(&flights, again.address, || *careless.took.lock().unwrap()).await;
    for number in 0..REQUESTS {
        wait_until_done(&genuine, &request(number), 2).await;
    }
}

#[tokio::test]
async fn who_takes_the_server_later_cannot_read_0rtt_data_that_it_accepted() {
    let identity = Identity::new();
    let watched = Watched::new();
    let config = identity.quic(Arc::clone(&watched) as Arc<dyn StoresServerSessions>, 3);
    let genuine = Server::plain(config);
    let flights = record(&identity, &genuine).await;
    let stolen = watched.stolen();
    // Of three tickets a connection two are left.
    assert!(stolen.sessions.lock().unwrap().len() >= 2 * REQUESTS);
    let thief = Server::plain(identity.quic(Arc::clone(&stolen) as Arc<dyn StoresServerSessions>, 1));
    replay(&flights, thief.address, || *stolen.took.lock().unwrap()).await;
    assert!(thief.done.lock().unwrap().is_empty());
    // The key of each was there, before it was used: then the thief would read all.
    let everything = Arc::new(Careless::default());
    everything.sessions.lock().unwrap().extend(watched.seen.sessions.lock().unwrap().clone());
    let thief = Server::plain(identity.quic(Arc::clone(&everything) as Arc<dyn StoresServerSessions>, 1));
    replay(&flights, thief.address, || *everything.took.lock().unwrap()).await;
    for number in 0..REQUESTS {
        wait_until_done(&thief, &request(number), 1).await;
    }
}

/// The gap: 0-RTT data that another server refused can be read with what its issuer holds.
#[tokio::test]
async fn refused_0rtt_data_can_be_read_as_long_as_its_issuer_holds_the_session() {
    let identity = Identity::new();
    for is_forgotten in [false, true] {
        let watched = Watched::new();
        let config = identity.quic(Arc::clone(&watched) as Arc<dyn StoresServerSessions>, 1);
        let issuer = Server::plain(config);
        let others = SingleUseSessions::new(Limits::default());
        let other = Server::plain(identity.quic(others, 1));
        let client = Client::new(&identity.certificate);
        client.ask(issuer.address, b"first", true).await;
        let relay = Relay::start(other.address).await;
        let went = client.ask(relay.address, b"secret", true).await;
        assert_eq!(went, Went::Refused);
        if is_forgotten {
            watched.store.clear();
        }
        let stolen = watched.stolen();
        let thief = Server::plain(identity.quic(Arc::clone(&stolen) as Arc<dyn StoresServerSessions>, 1));
        replay(&relay.sent(), thief.address, || *stolen.took.lock().unwrap()).await;
        match is_forgotten {
            true => assert_eq!(thief.done(b"secret"), (0, 0)),
            false => wait_until_done(&thief, b"secret", 1).await,
        }
    }
}
