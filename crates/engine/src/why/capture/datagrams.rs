//! Packets of UDP in a capture: how many there are, and whether they are of QUIC. What they wait for is not in them.

use crate::{filter::Filter, measure::Protocol, names::DOMAIN, rtt::native::Payload};

/// Packets of UDP that are not questions to name servers or their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpPackets {
    /// Their number.
    pub count: u64,
    /// Those of them with a long header of QUIC, as while a connection is opened.
    pub opening_quic: u64,
}

impl UdpPackets {
    /// Counts a packet if it is one that the filter admits.
    pub(super) fn observe(&mut self, payload: &Payload<'_>, filter: &Filter) {
        let is_of_names = [payload.src.port, payload.dst.port].contains(&DOMAIN);
        if payload.protocol != Protocol(17)
            || is_of_names
            || !filter.admits(&payload.src, &payload.dst, payload.protocol)
        {
            return;
        }
        self.count += 1;
        self.opening_quic += u64::from(has_long_header(payload.bytes));
    }
}

/// Whether this is the header of RFC 9000, section 17.2, with a version: both of the first bits are set.
fn has_long_header(bytes: &[u8]) -> bool {
    matches!(bytes, [first, version @ ..] if first & 0xc0 == 0xc0 && version.len() >= 4 && version[..4] != [0; 4])
}
