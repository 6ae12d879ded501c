//! What requests of connections ask for, for one who polls the connections itself.

use std::{mem, sync::Arc};

use dwell_engine::{layers::Ends, measure::Protocol, names::PassiveNames};

use super::listener::Listener;

/// Reads requests in clear as they pass the network namespace in which it was opened. Without CAP_NET_RAW there are none.
#[derive(Debug)]
pub(crate) struct Requests {
    listener: Listener,
    passive: PassiveNames,
    /// Whether all that had passed was read the last time.
    is_complete: bool,
    /// Segments that were lost before, as they came too fast.
    lost: u64,
}

impl Requests {
    pub(crate) fn open() -> Requests {
        Requests::by(Listener::of_requests())
    }

    fn by(listener: Listener) -> Requests {
        Requests { listener, passive: PassiveNames::new(true), is_complete: true, lost: 0 }
    }

    /// Reads what has passed.
    pub(crate) fn read(&mut self) {
        self.is_complete = self.listener.drain(|packet| self.passive.observe(packet));
        self.count_lost(self.listener.lost().1);
    }

    /// Forgets all labels if more was lost: the latest request of any connection may have been in it.
    fn count_lost(&mut self, lost: u64) {
        if mem::replace(&mut self.lost, lost) != lost {
            self.passive = PassiveNames::new(true);
            self.is_complete = false;
        }
    }

    /// Whether all that had passed was read, as of the last time.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns what the latest request of a connection has asked for, as of the last time that was read. `None` while more has
    /// passed than could be read: it might be that of an earlier one.
    pub(crate) fn label(&self, ends: &Ends) -> Option<Arc<str>> {
        self.passive.label(&ends.src, &ends.dst, Protocol::TCP).filter(|_| self.is_complete)
    }
}

#[cfg(test)]
mod tests {
    use dwell_engine::{measure::Endpoint, observe::Observation};

    use super::*;

    /// A segment from 10.0.0.1:4000 to 10.0.0.2:80.
    fn segment(payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40 + payload.len() as u8, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        packet.extend(payload);
        packet
    }

    #[test]
    fn after_a_loss_no_label_is_that_of_an_earlier_request() {
        let end = |address: [u8; 4], port| Endpoint { address: address.into(), port };
        let ends = Ends { src: end([10, 0, 0, 1], 4000), dst: end([10, 0, 0, 2], 80) };
        let mut requests = Requests::by(Listener::default());
        let ask = |requests: &mut Requests, text: &str| {
            let data = &segment(text.as_bytes())[..];
            let wire_len = data.len() as u32;
            requests.passive.observe(&Observation { time_ns: 0, interface: 0, link: 101, data, wire_len });
        };
        ask(&mut requests, "GET /fast HTTP/1.1\r\n");
        requests.read();
        assert_eq!((requests.label(&ends).as_deref(), requests.is_complete()), (Some("GET /fast"), true));
        requests.count_lost(1);
        assert_eq!((requests.label(&ends), requests.is_complete()), (None, false));
        requests.is_complete = true;
        requests.count_lost(1);
        assert_eq!((requests.label(&ends), requests.is_complete()), (None, true));
        ask(&mut requests, "GET /slow HTTP/1.1\r\n");
        assert_eq!(requests.label(&ends).as_deref(), Some("GET /slow"));
    }
}
