//! Configuration of quinn and rustls.

use std::sync::Arc;

use quinn::{
    Connection, ConnectionError, EndpointConfig, Incoming, ServerConfig, ValidationTokenConfig, ZeroRttAccepted,
    crypto::rustls::QuicServerConfig,
};
use ring::hmac;
use zeroize::Zeroizing;

use crate::{
    Cids, Error, Result, SingleUseSessions,
    tokens::{TokenKey, UsedTokens},
};

/// Default number of tickets per connection. A returning client uses one ticket per connection. If it always leaves before
/// it receives new ones, `k/(k+1)` of its connections use 0-RTT with `k` tickets.
pub const TICKETS: usize = 4;

/// The settings of a server behind a balancer that keeps 0-RTT.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The server's connection IDs.
    pub cids: Cids,
    /// The server's sessions, which it shares with no other server.
    pub sessions: Arc<SingleUseSessions>,
    /// Number of tickets per connection.
    pub tickets: usize,
    /// Secret for stateless resets, the same for all servers. With it, a restarted server can end the connections of the
    /// process before; without it, they wait for their timeouts.
    pub reset_secret: Option<Zeroizing<[u8; 32]>>,
}

impl Setup {
    /// Creates settings with [`TICKETS`] tickets and without a secret for resets.
    pub fn new(cids: Cids, sessions: Arc<SingleUseSessions>) -> Setup {
        Setup { cids, sessions, tickets: TICKETS, reset_secret: None }
    }

    /// Builds the configurations for [`quinn::Endpoint::new`]. With its tickets, a client gets as many address-validation
    /// tokens, which name this server to the balancer for as long as a session lasts. Each endpoint needs a server ID of its own: with several
    /// sockets at one port (SO_REUSEPORT), packets of a client that has moved would reach another socket.
    ///
    /// # Errors
    ///
    /// The errors of [`single_use`], and [`Error::Random`](crate::Error::Random).
    pub fn configs(&self, tls: rustls::ServerConfig) -> Result<(ServerConfig, EndpointConfig)> {
        let crypto = single_use(tls, Arc::clone(&self.sessions), self.tickets)?;
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        let lifetime = self.sessions.limits().ttl;
        server.token_key(Arc::new(TokenKey::new(self.cids.clone(), lifetime)?));
        let mut tokens = ValidationTokenConfig::default();
        let sent = self.tickets.try_into().unwrap_or(u32::MAX);
        tokens.lifetime(lifetime).sent(sent).log(Arc::new(UsedTokens::default()));
        server.validation_token_config(tokens);
        let mut endpoint = EndpointConfig::default();
        if let Some(secret) = &self.reset_secret {
            endpoint.reset_key(Arc::new(reset_key(secret, self.cids.server())));
        }
        let cids = self.cids.clone();
        endpoint.cid_generator(move || Box::new(cids.generator()));
        Ok((server, endpoint))
    }
}

/// Derives the reset key of one server from the secret of all.
fn reset_key(secret: &[u8; 32], server: u16) -> hmac::Key {
    let all = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut context = hmac::Context::with_key(&all);
    context.update(b"dwell stateless reset");
    context.update(&server.to_be_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, context.sign().as_ref())
}

/// Configures TLS to resume sessions by single-use tickets only, and to accept 0-RTT data.
///
/// # Errors
///
/// - [`Error::Ticketer`], if the configuration has a ticketer. Its self-contained tickets cannot be deleted, so 0-RTT data
///   could be replayed, and an attacker who steals the ticket key could decrypt it later.
/// - [`Error::CipherSuite`], if the configuration cannot be used with QUIC.
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
    // QUIC allows only this value and 0 (RFC 9001, 4.6.1). The limits of streams bound early data instead.
    tls.max_early_data_size = u32::MAX;
    QuicServerConfig::try_from(tls).map_err(|_| Error::CipherSuite)
}

/// Accepts a connection so that 0-RTT data can be read as it arrives. The returned future resolves when the handshake is
/// complete. Its value means nothing at a server, and may be false although 0-RTT was accepted:
/// [`quinn::RecvStream::is_0rtt`] identifies the streams that carry 0-RTT data.
///
/// This waits for the client's first message. Without that, `Connecting::into_0rtt` returns a connection that does not
/// know the client's limits yet, and streams that the server opens on it may wait forever.
///
/// # Errors
///
/// [`ConnectionError`], if the connection fails before the client's first message is complete.
pub async fn accept(incoming: Incoming) -> Result<(Connection, ZeroRttAccepted), ConnectionError> {
    let mut connecting = incoming.accept()?;
    connecting.handshake_data().await?;
    match connecting.into_0rtt() {
        Ok(accepted) => Ok(accepted),
        // quinn documents that this never fails for a server.
        Err(_) => Err(ConnectionError::LocallyClosed),
    }
}
