//! Answers the collector's requests for this host's clock.

use std::{collections::HashMap, net::SocketAddr};

use dwell_fleet::{Secret, clock_session};
use dwell_probes::clock::{ClockMode, Reflector, ReflectorOptions};

use crate::log::log;

/// Answers the collectors of an agent, each in one session at a time.
pub struct ClockReflector {
    reflector: Option<Reflector>,
    /// By the number of the collector.
    sessions: HashMap<usize, u64>,
}

impl ClockReflector {
    /// Starts to answer, with timestamps as `mode` says. Where this is not possible, it logs why, and the agent works
    /// without it.
    pub fn start(mode: ClockMode) -> ClockReflector {
        let reflector = Reflector::attach(&ReflectorOptions { mode, ..ReflectorOptions::default() });
        let reflector = reflector.map_err(|error| {
            log(format_args!(
                "the collector cannot compare this host's clock: {error}; latency between hosts is not reported"
            ));
        });
        ClockReflector { reflector: reflector.ok(), sessions: HashMap::new() }
    }

    /// The UDP port that answers, if any does.
    pub fn port(&self) -> Option<u16> {
        self.reflector.as_ref().map(Reflector::port)
    }

    /// Answers the collector with this number at an address, and nobody in its place.
    pub fn admit(&mut self, number: usize, collector: SocketAddr, secret: &Secret) {
        self.dismiss(number);
        let Some(reflector) = &self.reflector else {
            return;
        };
        let session = clock_session(secret);
        match reflector.admit(&session, collector.ip()) {
            Ok(()) => _ = self.sessions.insert(number, session.id),
            Err(error) => log(format_args!("the clock cannot be compared: {error}")),
        }
    }

    /// Stops answering a collector.
    pub fn dismiss(&mut self, number: usize) {
        if let (Some(reflector), Some(session)) = (&self.reflector, self.sessions.remove(&number)) {
            reflector.dismiss(session);
        }
    }
}
