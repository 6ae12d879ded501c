//! QUIC clients that keep their sessions for the next connection.

use std::{
    collections::VecDeque,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use dwell_testbed::{Error, Result};
use quinn::{ClientConfig, Connection, Endpoint, TokenStore, VarInt, crypto::rustls::QuicClientConfig};
use rustls::{
    NamedGroup, RootCertStore,
    client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::{CertificateDer, ServerName},
};
use tokio::{sync::Notify, time::timeout};

use super::{
    failed,
    identity::{NAME, PROTOCOL},
    server::REQUEST,
};
use crate::loads::quic::endpoint;

/// What clients do with the sessions that they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Discard them: a full handshake for each connection.
    Full,
    /// Resume them, and send requests after the handshake.
    Resumed,
    /// Resume them, and send requests at once as 0-RTT data.
    ZeroRtt,
}

impl Mode {
    /// All modes, in the order in which they run.
    pub const ALL: [Mode; 3] = [Mode::Full, Mode::Resumed, Mode::ZeroRtt];

    /// The name in tables and records.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Full => "full-1rtt",
            Mode::Resumed => "resumed-1rtt",
            Mode::ZeroRtt => "0rtt",
        }
    }
}

/// Longest wait for an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that keeps its sessions from visit to visit.
#[derive(Clone)]
pub(super) struct Client {
    mode: Mode,
    config: ClientConfig,
    tickets: Arc<Tickets>,
}

/// A request, with the fields that the server reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) is_slow: bool,
}

impl Request {
    /// A request for ten bytes, sent at once.
    pub(super) fn short(number: u64) -> Request {
        Request { number, bytes: 10, is_slow: false }
    }
}

/// A connection on which the first answer has started.
pub(super) struct Visit {
    pub(super) endpoint: Endpoint,
    pub(super) connection: Connection,
    /// Number of the server that answered.
    pub(super) server: u16,
    pub(super) early: Early,
    /// Time from the start of the connection to the first byte of the answer.
    pub(super) first_byte: Duration,
}

/// What became of 0-RTT data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// None was sent: there was no ticket, or the mode does not use it.
    None,
    /// The server accepted it.
    Accepted,
    /// The server refused it, and the client sent the request again.
    Refused,
}

impl Client {
    pub(super) fn new(certificate: &CertificateDer<'static>, mode: Mode) -> Result<Client> {
        let wrong = |why: &dyn std::fmt::Display| Error::invalid("QUIC client", why.to_string());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(|why| wrong(&why))?;
        let mut tls = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tickets = Arc::new(Tickets::default());
        tls.alpn_protocols = vec![PROTOCOL.to_vec()];
        tls.enable_early_data = mode == Mode::ZeroRtt;
        tls.resumption = match mode {
            Mode::Full => Resumption::disabled(),
            _ => Resumption::store(Arc::clone(&tickets) as Arc<dyn ClientSessionStore>),
        };
        let crypto = QuicClientConfig::try_from(tls).map_err(|why| wrong(&why))?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.token_store(Arc::clone(&tickets) as Arc<dyn TokenStore>);
        Ok(Client { mode, config, tickets })
    }

    /// Whether the client holds a session to resume.
    pub(super) fn has_ticket(&self) -> bool {
        !self.tickets.held().is_empty()
    }

    /// Opens a connection from a socket and sends a request. Returns when the answer starts.
    pub(super) async fn visit(&self, socket: UdpSocket, to: SocketAddr, request: Request) -> Result<Visit> {
        self.visit_from(endpoint(socket, None)?, to, request).await
    }

    /// Opens a connection from an endpoint and sends a request. Returns when the answer starts.
    pub(super) async fn visit_from(&self, endpoint: Endpoint, to: SocketAddr, request: Request) -> Result<Visit> {
        let visiting = self.connect(endpoint, to, request);
        match timeout(ANSWER_TIMEOUT, visiting).await {
            Ok(visit) => visit,
            Err(_) => Err(Error::Timeout("an answer".to_owned())),
        }
    }

    async fn connect(&self, endpoint: Endpoint, to: SocketAddr, request: Request) -> Result<Visit> {
        let start = Instant::now();
        let connecting = endpoint.connect_with(self.config.clone(), to, NAME).map_err(|why| failed(&why))?;
        let (connection, early, server, first_byte) = match connecting.into_0rtt() {
            Ok((connection, accepted)) => {
                let first = ask(&connection, request).await;
                let first_byte = start.elapsed();
                match (accepted.await, first) {
                    (true, first) => (connection, Early::Accepted, first?, first_byte),
                    (false, _) => {
                        let server = ask(&connection, request).await?;
                        (connection, Early::Refused, server, start.elapsed())
                    }
                }
            }
            Err(connecting) => {
                let connection = connecting.await.map_err(|why| failed(&why))?;
                let server = ask(&connection, request).await?;
                (connection, Early::None, server, start.elapsed())
            }
        };
        Ok(Visit { endpoint, connection, server, early, first_byte })
    }

    /// Closes the connection once there are a ticket and a token for the next one. Returns whether there are.
    pub(super) async fn leave(&self, visit: Visit) -> bool {
        let has_ticket = self.mode == Mode::Full || self.tickets.wait_for_both().await;
        // A task that outlives the endpoint sends what is outstanding.
        visit.connection.close(VarInt::from_u32(0), b"");
        has_ticket
    }
}

/// Sends a request, and returns the answering server's number when the answer starts. A task reads the rest.
async fn ask(connection: &Connection, request: Request) -> Result<u16> {
    let (server, mut receive) = begin_to_read(connection, request).await?;
    tokio::spawn(async move {
        // Reads to the end, so that the stream is closed.
        while let Ok(Some(_)) = receive.read_chunk(usize::MAX, true).await {}
    });
    Ok(server)
}

/// Sends a request, and returns the answering server's number and the stream of the answer.
pub(super) async fn begin_to_read(connection: &Connection, request: Request) -> Result<(u16, quinn::RecvStream)> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(|why| failed(&why))?;
    let mut bytes = [0; REQUEST];
    bytes[..8].copy_from_slice(&request.number.to_be_bytes());
    bytes[8..16].copy_from_slice(&request.bytes.to_be_bytes());
    bytes[16] = request.is_slow.into();
    send.write_all(&bytes).await.map_err(|why| failed(&why))?;
    send.finish().map_err(|why| failed(&why))?;
    let mut server = [0; 2];
    receive.read_exact(&mut server).await.map_err(|why| failed(&why))?;
    Ok((u16::from_be_bytes(server), receive))
}

/// A client's tickets, and its tokens that lead to the servers of these: the newest is used first, each once.
#[derive(Debug, Default)]
struct Tickets {
    held: Mutex<VecDeque<Tls13ClientSessionValue>>,
    tokens: Mutex<VecDeque<Bytes>>,
    group: Mutex<Option<NamedGroup>>,
    added: Notify,
}

/// Most tickets that a client keeps, as many as browsers do, and most tokens.
const MAX_TICKETS: usize = 8;

impl Tickets {
    fn held(&self) -> MutexGuard<'_, VecDeque<Tls13ClientSessionValue>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tokens(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_for_both(&self) -> bool {
        let waiting = async {
            while self.held().is_empty() || self.tokens().is_empty() {
                let _ = timeout(Duration::from_millis(20), self.added.notified()).await;
            }
        };
        timeout(ANSWER_TIMEOUT, waiting).await.is_ok()
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        keep(&mut self.held(), ticket);
        self.added.notify_waiters();
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.held().pop_back()
    }
}

impl TokenStore for Tickets {
    fn insert(&self, _: &str, token: Bytes) {
        keep(&mut self.tokens(), token);
        self.added.notify_waiters();
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        self.tokens().pop_back()
    }
}

fn keep<T>(held: &mut VecDeque<T>, new: T) {
    if held.len() == MAX_TICKETS {
        held.pop_front();
    }
    held.push_back(new);
}
