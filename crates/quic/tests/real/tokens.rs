//! Address-validation tokens as a relay sees them, and as the server takes them.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use dwell_engine::quic_lb::Config;
use dwell_quic::{Cids, Limits, Setup, SingleUseSessions};
use quinn::{Endpoint, TokenStore, TokioRuntime};
use tokio::sync::mpsc;

use crate::{
    client::{Client, Handshake, PATIENCE},
    relay::Relay,
    server::{Done, Identity, Server},
};

const SERVER: u16 = 513;
const MINUTES: u16 = 90;

fn setup() -> Setup {
    let cids = Cids::new(SERVER, Config::own(0, [1; 16]).unwrap(), None, || None).unwrap();
    let ttl = Duration::from_secs(60 * u64::from(MINUTES));
    Setup::new(cids, SingleUseSessions::new(Limits { ttl, ..Limits::default() }))
}

/// Keeps the tokens that a client received.
#[derive(Default)]
struct Received {
    tokens: Mutex<Vec<Bytes>>,
    /// Hands out the first token again and again, as nobody should.
    repeats: bool,
}

impl Received {
    fn count(&self) -> usize {
        self.tokens.lock().unwrap().len()
    }

    async fn wait_for(&self, count: usize) {
        let waiting = async {
            while self.count() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    }
}

impl TokenStore for Received {
    fn insert(&self, _: &str, token: Bytes) {
        self.tokens.lock().unwrap().push(token);
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        let mut tokens = self.tokens.lock().unwrap();
        match self.repeats {
            true => tokens.first().cloned(),
            false => tokens.pop(),
        }
    }
}

/// Returns the token of an Initial of version 1; it is empty if there is none.
fn token(datagram: &[u8]) -> &[u8] {
    assert_eq!((datagram[0] & 0xb0, &datagram[1..5]), (0x80, &[0, 0, 0, 1][..]));
    let (_, rest) = datagram[6..].split_at(datagram[5].into());
    let (_, rest) = rest[1..].split_at(rest[0].into());
    match rest[0] >> 6 {
        0 => &rest[1..][..rest[0].into()],
        1 => &rest[2..][..usize::from(u16::from_be_bytes([rest[0] & 0x3f, rest[1]]))],
        _ => panic!("a token that long does not fit"),
    }
}

#[tokio::test]
async fn a_client_that_returns_names_its_server_in_its_first_packet_by_another_token_each_time() {
    let (identity, setup) = (Identity::new(), setup());
    let (server, endpoint) = setup.configs(identity.tls()).unwrap();
    let server = Server::start(server, endpoint, Done::default());
    let received = Arc::new(Received::default());
    let mut client = Client::new(&identity.certificate);
    client.config.token_store(Arc::clone(&received) as Arc<dyn TokenStore>);
    let mut shown = Vec::new();
    for number in 0..6 {
        // Each is sent from a port of its own, and the last ones from other addresses.
        client.address = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, number + 1)][usize::from(number > 3)];
        let relay = Relay::start(server.address).await;
        let before = received.count();
        let (endpoint, connection, handshake) = client.open(relay.address, &[number]).await;
        assert_eq!(handshake, if number == 0 { Handshake::Full } else { Handshake::ZeroRtt });
        client.tickets.wait_for(4 * (usize::from(number) + 1)).await;
        received.wait_for(before.saturating_sub(1) + 4).await;
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        let sent = relay.sent_by(endpoint.local_addr().unwrap().port());
        shown.push(token(&sent.datagrams[0]).to_vec());
    }
    assert!(shown[0].is_empty());
    for token in &shown[1..] {
        let (server, stamp) = setup.cids.read_token(token).unwrap();
        assert_eq!((server, stamp.lifetime_minutes), (SERVER, MINUTES));
        // With an address of IPv4, as docs/method/zero-rtt.md says.
        assert_eq!(token.len(), 63);
        assert_eq!(shown.iter().filter(|other| other[..] == token[..]).count(), 1);
    }
}

/// A server that tells of each connection whether its token has validated the client's address.
fn watch(identity: &Identity, setup: &Setup) -> (SocketAddr, mpsc::UnboundedReceiver<bool>) {
    let (server, endpoint) = setup.configs(identity.tls()).unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let address = (Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port()).into();
    let endpoint = Endpoint::new(endpoint, Some(server), socket, Arc::new(TokioRuntime)).unwrap();
    let (send, validated) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let _ = send.send(incoming.remote_address_validated());
            tokio::spawn(async move {
                let (connection, _) = dwell_quic::accept(incoming).await.unwrap();
                connection.closed().await;
            });
        }
    });
    (address, validated)
}

#[tokio::test]
async fn a_token_validates_the_address_that_it_was_issued_to_once() {
    let (identity, setup) = (Identity::new(), setup());
    let (address, mut validated) = watch(&identity, &setup);
    let mut visit = async |received: &Arc<Received>, from: Ipv4Addr| {
        let mut client = Client::new(&identity.certificate);
        client.config.token_store(Arc::clone(received) as Arc<dyn TokenStore>);
        client.address = from;
        let before = received.count();
        let (endpoint, connection) = client.connect(address).await;
        received.wait_for(before + 1).await;
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        validated.recv().await.unwrap()
    };
    let (here, there) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let received = Arc::new(Received { repeats: true, ..Received::default() });
    assert!(!visit(&received, here).await, "there is no token yet");
    assert!(!visit(&received, there).await, "another address");
    assert!(visit(&received, here).await);
    assert!(!visit(&received, here).await, "the token again");
    let received = Arc::new(Received::default());
    assert!(!visit(&received, there).await);
    assert!(visit(&received, there).await);
}
