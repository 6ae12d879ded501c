//! Connection IDs as a relay between client and server sees them.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dwell_engine::quic_lb::{Config, Stamp};
use dwell_quic::{Cids, Limits, Setup, SingleUseSessions};
use zeroize::Zeroizing;

use crate::{
    client::{Client, Handshake, PATIENCE, exchange},
    relay::{Relay, Sent},
    server::{Identity, Server},
};

const SERVER: u16 = 513;

fn config(rotation: u8) -> Config {
    Config::own(rotation, [rotation + 1; 16]).unwrap()
}

/// Far longer than a round trip: see [`Cids::new`].
const HEARTBEAT: Duration = Duration::from_secs(4);

struct Running {
    identity: Identity,
    server: Server,
    cids: Cids,
    /// The waiting time that the server reports, in microseconds.
    wait_us: Arc<AtomicU64>,
}

fn start(heartbeat: Option<Duration>) -> Running {
    let identity = Identity::new();
    let wait_us = Arc::new(AtomicU64::new(100));
    let shared = Arc::clone(&wait_us);
    let wait = move || Some(Duration::from_micros(shared.load(Ordering::Relaxed)));
    let cids = Cids::new(SERVER, config(0), heartbeat, wait).unwrap();
    let setup = Setup::new(cids.clone(), SingleUseSessions::new(Limits::default()));
    let (server, endpoint) = setup.configs(identity.tls()).unwrap();
    Running { server: Server::start(server, endpoint, Arc::default()), identity, cids, wait_us }
}

/// Returns the destination connection ID by the invariants of RFC 8999, for a server with IDs of 17 octets.
fn destination(datagram: &[u8]) -> &[u8] {
    match datagram[0] & 0x80 {
        0 => &datagram[1..18],
        _ => &datagram[6..6 + usize::from(datagram[5])],
    }
}

fn stamps(cids: &Cids, sent: &Sent) -> Vec<Stamp> {
    let read = sent.datagrams.iter().filter_map(|datagram| cids.read(destination(datagram)));
    read.map(|(_, stamp)| stamp).collect()
}

#[tokio::test]
async fn every_packet_after_the_first_flight_names_its_server() {
    let running = start(None);
    let relay = Relay::start(running.server.address).await;
    let client = Client::new(&running.identity.certificate);
    for expected in [Handshake::Full, Handshake::ZeroRtt, Handshake::ZeroRtt] {
        let (endpoint, connection, handshake) = client.open(relay.address, b"first").await;
        assert_eq!(handshake, expected);
        for number in 0..20_u16 {
            exchange(&connection, &number.to_be_bytes().repeat(500)).await.unwrap();
        }
        client.tickets.wait_for(1).await;
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        let sent = relay.sent_by(endpoint.local_addr().unwrap().port());
        let own = destination(&sent.datagrams[0]).to_vec();
        // Clients of quinn draw 20 random octets.
        assert_eq!(own.len(), 20);
        let after = sent.datagrams.iter().map(|datagram| destination(datagram));
        let after: Vec<&[u8]> = after.skip_while(|cid| *cid == own).collect();
        assert!(after.len() > 20);
        for cid in after {
            assert_eq!(running.cids.read(cid).unwrap().0, SERVER);
        }
    }
}

#[tokio::test]
async fn a_heartbeat_reports_the_load_while_a_connection_lasts() {
    let running = start(Some(HEARTBEAT));
    let relay = Relay::start(running.server.address).await;
    let client = Client::new(&running.identity.certificate);
    let (endpoint, connection, _) = client.open(relay.address, b"first").await;
    let port = endpoint.local_addr().unwrap().port();
    let start = Instant::now();
    for wait_us in [5_000, 90_000] {
        running.wait_us.store(wait_us, Ordering::Relaxed);
        let expected = Some(wait_us as f64 / 1e6);
        loop {
            exchange(&connection, b"more").await.unwrap();
            let seen = stamps(&running.cids, &relay.sent_by(port));
            let reported = seen.last().unwrap().load.wait().map(|wait| wait.as_secs_f64());
            if reported.zip(expected).is_some_and(|(reported, expected)| (reported / expected - 1.0).abs() < 0.001) {
                // A new report has a higher freshness than those before.
                assert!(seen.iter().rev().skip(1).any(|old| old.freshness < seen.last().unwrap().freshness));
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{reported:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn an_open_connection_gets_ids_of_the_new_key() {
    let running = start(Some(HEARTBEAT));
    let relay = Relay::start(running.server.address).await;
    let client = Client::new(&running.identity.certificate);
    let (endpoint, connection, _) = client.open(relay.address, b"first").await;
    let port = endpoint.local_addr().unwrap().port();
    running.cids.rotate(config(1)).unwrap();
    let start = Instant::now();
    loop {
        exchange(&connection, b"more").await.unwrap();
        let sent = relay.sent_by(port);
        let last = destination(sent.datagrams.last().unwrap());
        assert_eq!(running.cids.read(last).unwrap().0, SERVER);
        if last[0] >> 5 == 1 {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_client_that_moves_uses_another_id_of_the_same_server() {
    let running = start(None);
    let relay = Relay::start(running.server.address).await;
    let client = Client::new(&running.identity.certificate);
    let (endpoint, connection, _) = client.open(relay.address, b"first").await;
    let before = relay.sent_by(endpoint.local_addr().unwrap().port());
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    endpoint.rebind(socket).unwrap();
    exchange(&connection, b"moved").await.unwrap();
    let after = relay.sent_by(endpoint.local_addr().unwrap().port());
    let [old, new] = [before.datagrams.last(), after.datagrams.last()].map(|sent| destination(sent.unwrap()).to_vec());
    assert_ne!(old, new);
    assert_eq!(running.cids.read(&new).unwrap().0, SERVER);
    assert_eq!(running.server.done(b"moved"), (1, 0));
}

/// A restarted server, or one that takes over another's number, ends the connections of its predecessor.
#[tokio::test]
async fn connections_of_the_previous_process_are_reset() {
    let identity = Identity::new();
    for (secrets, is_reset) in [([9, 9], true), ([9, 8], false)] {
        let cids = Cids::new(SERVER, config(0), None, || None).unwrap();
        let [first, second] = secrets.map(|secret| {
            let setup = Setup {
                reset_secret: Some(Zeroizing::new([secret; 32])),
                ..Setup::new(cids.clone(), SingleUseSessions::new(Limits::default()))
            };
            let (server, endpoint) = setup.configs(identity.tls()).unwrap();
            Server::start(server, endpoint, Arc::default())
        });
        let client = Client::new(&identity.certificate);
        let relay = Relay::start(first.address).await;
        let (_endpoint, connection, _) = client.open(relay.address, b"first").await;
        relay.forward_to(second.address);
        let exchange = exchange_or_end(&connection);
        let wait = if is_reset { PATIENCE } else { Duration::from_millis(500) };
        let end = tokio::time::timeout(wait, exchange).await;
        let was_reset = matches!(end, Ok(quinn::ConnectionError::Reset));
        assert_eq!(was_reset, is_reset, "{end:?}");
    }
}

async fn exchange_or_end(connection: &quinn::Connection) -> quinn::ConnectionError {
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    // Long enough that a reset is shorter than the packet that it answers.
    let _ = send.write_all(&[1; 1000]).await;
    connection.closed().await
}
