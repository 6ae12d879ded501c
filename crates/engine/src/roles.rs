//! Who is the client of a flow, and who the server.
//!
//! The best evidence counts: the packets that opened the flow, then a socket of this host that listens, then ports of which
//! only servers have one. `dwell response` follows the same order, in `engine/core/parse/arrival.h`.

use std::ops::RangeInclusive;

use crate::{
    abi,
    layers::Ends,
    measure::{Endpoint, Protocol},
};

/// Ports that hosts give to clients, unless they are told otherwise.
pub const CLIENT_PORTS: RangeInclusive<u16> = abi::DWELL_EPHEMERAL_PORT as u16..=u16::MAX;

/// What an end of a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// It has opened the connection: it asks and waits for answers.
    #[default]
    Client,
    /// It has accepted the connection: it answers.
    Server,
}

impl Role {
    /// Returns what the other end is.
    #[must_use]
    pub fn other(self) -> Role {
        match self {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        }
    }

    /// Returns what `src` is if exactly one end of a TCP connection listens.
    pub fn by_listeners(ends: &Ends, listens: impl Fn(&Endpoint) -> bool) -> Option<Role> {
        match (listens(&ends.src), listens(&ends.dst)) {
            (true, false) => Some(Role::Server),
            (false, true) => Some(Role::Client),
            _ => None,
        }
    }

    /// Returns what `src` is if exactly one end has a port of those that are `given` to clients.
    pub fn by_ports(ends: &Ends, protocol: Protocol, given: &RangeInclusive<u16>) -> Option<Role> {
        if !protocol.has_ports() {
            return None;
        }
        match (given.contains(&ends.src.port), given.contains(&ends.dst.port)) {
            (true, false) => Some(Role::Client),
            (false, true) => Some(Role::Server),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_ports(src: u16, dst: u16, protocol: u8) -> Option<Role> {
        let end = |port| Endpoint { address: "192.0.2.1".parse().unwrap(), port };
        Role::by_ports(&Ends { src: end(src), dst: end(dst) }, Protocol(protocol), &CLIENT_PORTS)
    }

    #[test]
    fn only_a_port_that_no_client_gets_beside_one_that_clients_get_tells_who_is_the_server() {
        assert_eq!(by_ports(32_768, 32_767, 6), Some(Role::Client));
        assert_eq!(by_ports(443, 65_535, 17), Some(Role::Server));
        for (src, dst) in [(179, 1024), (40_000, 50_000)] {
            assert_eq!(by_ports(src, dst, 6), None);
        }
        assert_eq!(by_ports(40_000, 80, 1), None, "an echo has no ports");
    }

    #[test]
    fn a_listener_at_one_end_is_the_server_and_listeners_at_both_tell_nothing() {
        let end = |port| Endpoint { address: "127.0.0.1".parse().unwrap(), port };
        let ends = Ends { src: end(1), dst: end(2) };
        let by = |listening: &[u16]| Role::by_listeners(&ends, |end| listening.contains(&end.port));
        assert_eq!((by(&[1]), by(&[2])), (Some(Role::Server), Some(Role::Client)));
        assert_eq!((by(&[]), by(&[1, 2])), (None, None));
    }
}
