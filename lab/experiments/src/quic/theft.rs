//! Somebody who has recorded what clients sent, and takes what servers remember.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use dwell_quic::{HEARTBEAT, Secrets};
use dwell_testbed::{Error, Namespace, Result};

use super::{
    KEY, PORT,
    client::PATIENCE,
    config,
    identity::Identity,
    replay::Flight,
    server::{Server, ServerPlan},
    stage::bind,
};

/// What a thief came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Theft {
    /// Sessions that were taken.
    pub sessions: usize,
    /// First flights that were tried with them.
    pub tries: usize,
    /// Of these, those whose session was among them.
    pub found: u64,
    /// Of these, those whose 0-RTT data was read.
    pub read: usize,
}

/// A server by the name of ours, of sessions that were taken from ours. What it answers, nobody hears.
pub(super) struct Thief<'a> {
    namespace: &'a Namespace,
    server: Server,
    tries: usize,
    read: usize,
}

const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

impl<'a> Thief<'a> {
    /// At the namespace's loopback.
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

    /// With these, too.
    pub(super) fn take(&self, secrets: &Secrets) {
        self.server.remember(secrets);
    }

    /// Reads the 0-RTT data of a request, if its session was taken.
    ///
    /// rustls refuses sessions whose ticket is a minute older, or younger, than the client said.
    pub(super) fn try_to_read(&mut self, flight: &Flight, request: u64) -> Result<()> {
        let looked = || {
            let counts = self.server.sessions();
            counts.resumed + counts.missed
        };
        let (before, found) = (looked(), self.server.sessions().resumed);
        self.namespace.enter(|| {
            let socket = bind(ADDRESS)?;
            for datagram in flight {
                let sent = socket.send_to(datagram, (ADDRESS, PORT));
                sent.map_err(Error::io("send a recorded datagram to a thief"))?;
            }
            Ok(())
        })??;
        if !happens(|| looked() > before) {
            let what = format!("a thief's look for the session of request {request}");
            return Err(Error::Timeout(what));
        }
        self.tries += 1;
        let is_found = self.server.sessions().resumed > found;
        self.read += usize::from(is_found && happens(|| self.server.done(request) > 0));
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

fn happens(is: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
