//! A client that returns with its tickets.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use quinn::{ClientConfig, Connecting, Connection, Endpoint, ReadToEndError, VarInt, crypto::rustls::QuicClientConfig};
use rustls::{
    NamedGroup, RootCertStore,
    client::{
        ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
    },
    pki_types::{CertificateDer, ServerName},
};
use tokio::time::timeout;

use crate::server::NAME;

/// Timeout of all waits, which a busy machine keeps.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Client {
    pub tickets: Arc<Tickets>,
    pub config: ClientConfig,
    /// The address that the client sends from.
    pub address: Ipv4Addr,
}

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// As 0-RTT data.
    ZeroRtt,
    /// After a handshake: the server refused 0-RTT.
    Refused,
    /// After a full handshake: the client had no ticket.
    Full,
}

impl Client {
    pub fn new(certificate: &CertificateDer<'static>) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut tls = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tickets = Arc::new(Tickets::default());
        tls.enable_early_data = true;
        tls.resumption = Resumption::store(Arc::clone(&tickets) as Arc<dyn ClientSessionStore>);
        let crypto = QuicClientConfig::try_from(tls).unwrap();
        Client { tickets, config: ClientConfig::new(Arc::new(crypto)), address: Ipv4Addr::LOCALHOST }
    }

    /// Sends one request on a connection from a new port. If `wait_for_ticket` is set, waits for a new ticket before it
    /// closes the connection.
    pub async fn ask(&self, server: SocketAddr, request: &[u8], wait_for_ticket: bool) -> Handshake {
        let before = self.tickets.received();
        let (endpoint, connection, handshake) = self.open(server, request).await;
        if wait_for_ticket {
            self.tickets.wait_for(before + 1).await;
        }
        connection.close(VarInt::from_u32(0), b"");
        timeout(PATIENCE, endpoint.wait_idle()).await.unwrap();
        handshake
    }

    /// Opens a connection without a request.
    pub async fn connect(&self, server: SocketAddr) -> (Endpoint, Connection) {
        let (endpoint, connecting) = self.begin(server);
        let connection = timeout(PATIENCE, connecting).await.unwrap().unwrap();
        (endpoint, connection)
    }

    fn begin(&self, server: SocketAddr) -> (Endpoint, Connecting) {
        let mut endpoint = Endpoint::client((self.address, 0).into()).unwrap();
        endpoint.set_default_client_config(self.config.clone());
        let connecting = endpoint.connect(server, NAME).unwrap();
        (endpoint, connecting)
    }

    /// Sends one request, and leaves its connection open.
    pub async fn open(&self, server: SocketAddr, request: &[u8]) -> (Endpoint, Connection, Handshake) {
        let (endpoint, connecting) = self.begin(server);
        let work = async {
            match connecting.into_0rtt() {
                Ok((connection, accepted)) => {
                    let first = exchange(&connection, request).await;
                    if accepted.await {
                        assert_eq!(first, Some(b"done".to_vec()));
                        return (connection, Handshake::ZeroRtt);
                    }
                    assert_eq!(first, None);
                    let second = exchange(&connection, request).await;
                    assert_eq!(second, Some(b"done".to_vec()));
                    (connection, Handshake::Refused)
                }
                Err(connecting) => {
                    let connection = connecting.await.unwrap();
                    let answer = exchange(&connection, request).await;
                    assert_eq!(answer, Some(b"done".to_vec()));
                    (connection, Handshake::Full)
                }
            }
        };
        let (connection, handshake) = timeout(PATIENCE, work).await.unwrap();
        (endpoint, connection, handshake)
    }
}

/// Sends a request and returns the answer; `None` if the server refused the stream with all 0-RTT data.
pub async fn exchange(connection: &Connection, request: &[u8]) -> Option<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    if send.write_all(request).await == Err(quinn::WriteError::ZeroRttRejected) {
        return None;
    }
    // A failure shows in the answer.
    let _ = send.finish();
    match receive.read_to_end(1 << 16).await {
        Ok(answer) => Some(answer),
        Err(ReadToEndError::Read(quinn::ReadError::ZeroRttRejected)) => None,
        Err(other) => panic!("{other}"),
    }
}

/// A client's store of tickets, which counts them as they arrive.
#[derive(Debug)]
pub struct Tickets {
    cache: ClientSessionMemoryCache,
    received: AtomicUsize,
    /// Makes the store ignore new tickets.
    pub is_deaf: AtomicBool,
}

impl Default for Tickets {
    fn default() -> Tickets {
        Tickets {
            cache: ClientSessionMemoryCache::new(32),
            received: AtomicUsize::new(0),
            is_deaf: AtomicBool::new(false),
        }
    }
}

impl Tickets {
    pub fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }

    pub async fn wait_for(&self, tickets: usize) {
        let waiting = async {
            while self.received() < tickets {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.cache.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.cache.kx_hint(server)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        if !self.is_deaf.load(Ordering::SeqCst) {
            self.cache.insert_tls13_ticket(server, ticket);
            self.received.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.cache.take_tls13_ticket(server)
    }
}
