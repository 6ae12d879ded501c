//! Answers those who may ask for this host's clock.

use std::net::SocketAddr;

use dwell_fleet::Secret;
use dwell_probes::clock::{Reflector, ReflectorOptions};

use crate::{session::session, tell::tell};

/// One collector at a time.
pub struct Answer {
    reflector: Option<Reflector>,
    session: Option<u64>,
}

impl Answer {
    /// Where it cannot answer, it says so: all else goes on.
    pub fn start() -> Answer {
        let reflector = Reflector::attach(&ReflectorOptions::default());
        let reflector = reflector.map_err(|error| {
            tell(format_args!(
                "the collector cannot compare this host's clock: {error}; the way between hosts \
                 is not told"
            ));
        });
        Answer { reflector: reflector.ok(), session: None }
    }

    /// Where to ask.
    pub fn port(&self) -> Option<u16> {
        self.reflector.as_ref().map(Reflector::port)
    }

    /// This collector may ask, and no other.
    pub fn begin(&mut self, collector: SocketAddr, secret: &Secret) {
        self.end();
        let Some(reflector) = &self.reflector else {
            return;
        };
        let session = session(secret);
        match reflector.admit(&session, collector.ip()) {
            Ok(()) => self.session = Some(session.id),
            Err(error) => tell(format_args!("the clock is not compared: {error}")),
        }
    }

    /// Nobody may ask.
    pub fn end(&mut self) {
        if let (Some(reflector), Some(session)) = (&self.reflector, self.session.take()) {
            reflector.dismiss(session);
        }
    }
}
