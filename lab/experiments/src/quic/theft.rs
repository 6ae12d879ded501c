//! An attacker who has recorded what clients sent, and seizes the sessions that servers hold.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use dwell_quic::{HEARTBEAT, Secrets};
use dwell_testbed::{Error, Namespace, Result};

use super::{
    KEY, PORT,
    client::ANSWER_TIMEOUT,
    config,
    identity::Identity,
    replay::Flight,
    server::{Server, ServerPlan},
    stage::bind,
};

/// What an attacker could decrypt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Theft {
    /// Sessions that were seized.
    pub sessions: usize,
    /// First flights that the attacker tried to decrypt.
    pub tries: usize,
    /// Flights whose session was among those seized.
    pub found: u64,
    /// Flights whose 0-RTT data was decrypted.
    pub read: usize,
}

/// A server with the identity of the real ones and with sessions seized from them. Its answers reach nobody.
pub(super) struct Thief<'a> {
    namespace: &'a Namespace,
    server: Server,
    tries: usize,
    read: usize,
}

const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

impl<'a> Thief<'a> {
    /// Starts the server on the namespace's loopback.
    pub(super) fn start(namespace: &'a Namespace, identity: &Arc<Identity>) -> Result<Thief<'a>> {
        let plan = ServerPlan {
            number: 0,
            address: SocketAddr::from((ADDRESS, PORT)),
            identity: Arc::clone(identity),
            cids: config(0, KEY)?,
            tickets: 0,
            work: Duration::ZERO,
            seed: 0,
            heartbeat: HEARTBEAT,
        };
        Ok(Thief { namespace, server: Server::start(namespace, plan)?, tries: 0, read: 0 })
    }

    /// Adds seized sessions.
    pub(super) fn add_sessions(&self, secrets: &Secrets) {
        self.server.add_sessions(secrets);
    }

    /// Tries to decrypt the 0-RTT data of a request, which succeeds if its session was seized.
    ///
    /// rustls rejects a ticket whose age differs by a minute from what the client claims.
    pub(super) fn try_to_decrypt(&mut self, flight: &Flight, request: u64) -> Result<()> {
        let lookups = || {
            let counts = self.server.sessions();
            counts.resumed + counts.missed
        };
        let (before, found) = (lookups(), self.server.sessions().resumed);
        self.namespace.enter(|| {
            let socket = bind(ADDRESS)?;
            for datagram in flight {
                let sent = socket.send_to(datagram, (ADDRESS, PORT));
                sent.map_err(Error::io("send a recorded datagram to an attacker"))?;
            }
            Ok(())
        })??;
        if !happens(|| lookups() > before) {
            let what = format!("an attacker's lookup of the session of request {request}");
            return Err(Error::Timeout(what));
        }
        self.tries += 1;
        let is_found = self.server.sessions().resumed > found;
        self.read += usize::from(is_found && happens(|| self.server.executions(request) > 0));
        Ok(())
    }

    pub(super) fn stop(self) -> Theft {
        let counts = self.server.sessions();
        Theft {
            sessions: counts.held + counts.resumed as usize,
            tries: self.tries,
            found: counts.resumed,
            read: self.read,
        }
    }
}

/// Waits until a condition holds, and returns whether it did in time.
fn happens(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > ANSWER_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
