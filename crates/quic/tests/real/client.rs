//! A client that comes back.

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

/// A busy machine may take its time.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Client {
    pub tickets: Arc<Tickets>,
    config: ClientConfig,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// Answered, as 0-RTT data.
    ZeroRtt,
    /// Answered after a handshake: the server refused 0-RTT.
    Refused,
    /// Answered after a handshake: there was no ticket.
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
        Client { tickets, config: ClientConfig::new(Arc::new(crypto)) }
    }

    /// A connection from a port of its own with one request. Waits for one more ticket, if it is to, so that the
    /// next one can be as soon.
    pub async fn ask(&self, server: SocketAddr, request: &[u8], waits: bool) -> Went {
        let before = self.tickets.came();
        let (endpoint, connection, went) = self.open(server, request).await;
        if waits {
            self.tickets.wait_for(before + 1).await;
        }
        connection.close(VarInt::from_u32(0), b"");
        timeout(PATIENCE, endpoint.wait_idle()).await.unwrap();
        went
    }

    /// A connection, left open, on which nothing was asked.
    pub async fn connect(&self, server: SocketAddr) -> (Endpoint, Connection) {
        let (endpoint, connecting) = self.begin(server);
        let connection = timeout(PATIENCE, connecting).await.unwrap().unwrap();
        (endpoint, connection)
    }

    fn begin(&self, server: SocketAddr) -> (Endpoint, Connecting) {
        let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        endpoint.set_default_client_config(self.config.clone());
        let connecting = endpoint.connect(server, NAME).unwrap();
        (endpoint, connecting)
    }

    /// One request, and its connection left open.
    pub async fn open(&self, server: SocketAddr, request: &[u8]) -> (Endpoint, Connection, Went) {
        let (endpoint, connecting) = self.begin(server);
        let work = async {
            match connecting.into_0rtt() {
                Ok((connection, accepted)) => {
                    let first = exchange(&connection, request).await;
                    if accepted.await {
                        assert_eq!(first, Some(b"done".to_vec()));
                        return (connection, Went::ZeroRtt);
                    }
                    assert_eq!(first, None);
                    let second = exchange(&connection, request).await;
                    assert_eq!(second, Some(b"done".to_vec()));
                    (connection, Went::Refused)
                }
                Err(connecting) => {
                    let connection = connecting.await.unwrap();
                    let answer = exchange(&connection, request).await;
                    assert_eq!(answer, Some(b"done".to_vec()));
                    (connection, Went::Full)
                }
            }
        };
        let (connection, went) = timeout(PATIENCE, work).await.unwrap();
        (endpoint, connection, went)
    }
}

/// None if the server refused the stream with all 0-RTT data.
pub async fn exchange(connection: &Connection, request: &[u8]) -> Option<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    if send.write_all(request).await == Err(quinn::WriteError::ZeroRttRejected) {
        return None;
    }
    // Tells by the answer.
    let _ = send.finish();
    match receive.read_to_end(1 << 16).await {
        Ok(answer) => Some(answer),
        Err(ReadToEndError::Read(quinn::ReadError::ZeroRttRejected)) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Tickets that a client has, counted as they come. A deaf one gets none.
#[derive(Debug)]
pub struct Tickets {
    cache: ClientSessionMemoryCache,
    came: AtomicUsize,
    pub is_deaf: AtomicBool,
}

impl Default for Tickets {
    fn default() -> Tickets {
        Tickets { cache: ClientSessionMemoryCache::new(32), came: AtomicUsize::new(0), is_deaf: AtomicBool::new(false) }
    }
}

impl Tickets {
    pub fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    pub async fn wait_for(&self, tickets: usize) {
        let waiting = async {
            while self.came() < tickets {
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
            self.came.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.cache.take_tls13_ticket(server)
    }
}
