//! What requests of connections ask for, for one who polls the connections itself.

use std::sync::Arc;

use dwell_engine::{layers::Ends, measure::Protocol, names::PassiveNames};

use super::listener::Listener;

/// Reads requests in clear as they pass the network namespace in which it was opened. Without CAP_NET_RAW there are none.
#[derive(Debug)]
pub(crate) struct Requests {
    listener: Listener,
    passive: PassiveNames,
    is_complete: bool,
}

impl Requests {
    pub(crate) fn open() -> Requests {
        Requests { listener: Listener::of_requests(), passive: PassiveNames::new(true), is_complete: true }
    }

    /// Reads what has passed.
    pub(crate) fn read(&mut self) {
        self.is_complete = self.listener.drain(|packet| self.passive.observe(packet));
    }

    /// Returns what the latest request of a connection has asked for, as of the last time that was read. `None` while more has
    /// passed than could be read: it might be that of an earlier one.
    pub(crate) fn label(&self, ends: &Ends) -> Option<Arc<str>> {
        const TCP: Protocol = Protocol(6);
        self.passive.label(&ends.src, &ends.dst, TCP).filter(|_| self.is_complete)
    }
}
