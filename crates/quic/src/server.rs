//! quinn and rustls as they have to be set up.

use std::sync::Arc;

use quinn::{
    Connection, ConnectionError, EndpointConfig, Incoming, ServerConfig, ZeroRttAccepted,
    crypto::rustls::QuicServerConfig,
};
use ring::hmac;
use zeroize::Zeroizing;

use crate::{Cids, Error, Result, SingleUseSessions};

/// Tickets that a connection is given, if nothing else is asked for. A client that comes back needs one a connection;
/// one that leaves before new ones come lives on what it has: of `k` tickets, `k/(k+1)` of its connections use 0-RTT.
pub const TICKETS: usize = 4;

/// A server behind a balancer that keeps 0-RTT.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Its connection IDs.
    pub cids: Cids,
    /// Its sessions. No two servers share any.
    pub sessions: Arc<SingleUseSessions>,
    /// Tickets that each connection is given.
    pub tickets: usize,
    /// The same for all servers, so that one which is started again can end the connections that it had: by stateless
    /// resets. Without, the next process cannot.
    pub reset_secret: Option<Zeroizing<[u8; 32]>>,
}

impl Setup {
    /// With [`TICKETS`], and without a secret for resets.
    pub fn new(cids: Cids, sessions: Arc<SingleUseSessions>) -> Setup {
        Setup { cids, sessions, tickets: TICKETS, reset_secret: None }
    }

    /// What [`quinn::Endpoint::new`] asks for. One endpoint is one server: with several sockets at one port
    /// (SO_REUSEPORT), the kernel would not find a connection whose client has moved.
    ///
    /// # Errors
    ///
    /// As [`single_use`].
    pub fn configs(&self, tls: rustls::ServerConfig) -> Result<(ServerConfig, EndpointConfig)> {
        let crypto = single_use(tls, Arc::clone(&self.sessions), self.tickets)?;
        let server = ServerConfig::with_crypto(Arc::new(crypto));
        let mut endpoint = EndpointConfig::default();
        if let Some(secret) = &self.reset_secret {
            endpoint.reset_key(Arc::new(reset_key(secret, self.cids.server())));
        }
        let cids = self.cids.clone();
        endpoint.cid_generator(move || Box::new(cids.generator()));
        Ok((server, endpoint))
    }
}

/// Of one server, from the secret of all.
fn reset_key(secret: &[u8; 32], server: u16) -> hmac::Key {
    let all = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&all);
    context.update(b"dwell stateless reset");
    context.update(&server.to_be_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref())
}

/// Has a TLS configuration resume sessions by single-use tickets only, and accept 0-RTT data.
///
/// # Errors
///
/// If it has a ticketer: self-contained tickets cannot be deleted, so that 0-RTT data could be replayed, and read later
/// by who takes their key. Or if it cannot be used with QUIC.
pub fn single_use(
    mut tls: rustls::ServerConfig,
    sessions: Arc<SingleUseSessions>,
    tickets: usize,
) -> Result<QuicServerConfig> {
    if tls.ticketer.enabled() {
        return Err(Error::Ticketer);
    }
    tls.session_storage = sessions;
    tls.send_tls13_tickets = tickets;
    // QUIC knows this value and 0 only (RFC 9001, 4.6.1); its own limits are those of streams.
    tls.max_early_data_size = u32::MAX;
    QuicServerConfig::try_from(tls).map_err(|_| Error::CipherSuite)
}

/// Accepts a connection such that 0-RTT data is read as it comes. The future tells when the handshake is complete;
/// [`quinn::RecvStream::is_0rtt`] which streams began before.
///
/// Without the wait for the client's first message, `Connecting::into_0rtt` gives a connection that does not know the
/// client's limits yet: streams that the server opens on it may wait forever.
///
/// # Errors
///
/// If the connection fails before the client's first message is whole.
pub async fn accept(incoming: Incoming) -> Result<(Connection, ZeroRttAccepted), ConnectionError> {
    let mut connecting = incoming.accept()?;
    connecting.handshake_data().await?;
    match connecting.into_0rtt() {
        Ok(accepted) => Ok(accepted),
        // quinn documents that a server's always can.
        Err(_) => Err(ConnectionError::LocallyClosed),
    }
}
