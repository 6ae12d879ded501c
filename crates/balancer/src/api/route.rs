//! Where a packet would be sent.

use std::net::IpAddr;

use dwell_engine::{
    measure::{Endpoint, Protocol},
    roles::Role,
};
use dwell_records::{FlowObject, Object};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the balancer would send a packet, and why.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RouteObject {
    /// The flow of the packet, from its sender, who is the client where the packet matches a VIP. Null where it is neither TCP
    /// nor UDP, and of fragments.
    flow: Option<FlowObject>,
    #[serde(flatten)]
    route: PacketRoute,
}

impl Object for RouteObject {
    const KINDS: &'static [&'static str] = &["lb.route"];
}

impl RouteObject {
    /// Creates the object of an Ethernet frame that takes a route.
    pub fn new(frame: &[u8], route: PacketRoute) -> RouteObject {
        // No server sends packets to its VIP.
        let role = route.vip.is_some().then_some(Role::Client);
        RouteObject { flow: flow(frame, role), route }
    }
}

/// What the balancer answers about a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketRoute {
    /// The verdict: pass, drop, send or redirect.
    pub verdict: String,
    /// The reason, in one word.
    pub reason: String,
    /// The name of the VIP that the packet matches.
    pub vip: Option<String>,
    /// The name of the selected backend.
    pub backend: Option<String>,
    /// The address of the selected backend.
    pub address: Option<IpAddr>,
    /// The frame as it would be sent, in hexadecimal digits; none if it would not be.
    pub frame: Option<String>,
}

/// Returns the flow of the TCP or UDP packet in a frame, whose sender has a role.
fn flow(frame: &[u8], sender: Option<Role>) -> Option<FlowObject> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (src, dst): (IpAddr, IpAddr) = match packet.net? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Arp(_) => return None,
    };
    let (sport, dport, protocol) = match packet.transport? {
        TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port(), 6),
        TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port(), 17),
        _ => return None,
    };
    let (src, dst) = (Endpoint { address: src, port: sport }, Endpoint { address: dst, port: dport });
    Some(FlowObject::new(&src, &dst, Protocol(protocol), sender))
}

#[cfg(test)]
mod tests {
    use dwell_records::End;
    use etherparse::PacketBuilder;

    use super::*;

    #[test]
    fn the_flow_of_a_packet_is_that_of_all_verbs() {
        let mut frame = Vec::new();
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = ethernet.ipv4([128, 232, 110, 120], [66, 35, 250, 204], 64);
        ip.tcp(34855, 80, 1, 1024).write(&mut frame, &[]).unwrap();
        let found = flow(&frame, Some(Role::Client)).unwrap();
        assert_eq!(found.id.as_deref(), Some("1:LQU9qZlK+B5F3KDmev6m5PMibrg="));
        assert_eq!((found.sport, found.dport, found.client), (Some(34855), Some(80), Some(End::Src)));
        // Another type of frame, a fragment, and another protocol.
        for at in [12, 20, 23] {
            let mut other = frame.clone();
            other[at] = 0x20;
            assert_eq!(flow(&other, None), None, "{at}");
        }
    }
}
