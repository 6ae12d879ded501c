//! What TCP itself knows of the round trips of its connections: `ss -ti`.

use std::{io, net::IpAddr};

use dwell_engine::{layers::Ends, measure::Endpoint};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{
        ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
        nlas::{Nla, TcpInfo},
    },
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};

/// More than the kernel puts into one answer.
const ANSWER_BYTES: usize = 64 << 10;

/// The round trips of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// From this host to the other.
    pub ends: Ends,
    /// The least of the last minutes (`net.ipv4.tcp_min_rtt_wlen`).
    pub least_ns: u64,
    /// The smoothed one (RFC 6298).
    pub smoothed_ns: u64,
}

/// The established connections of this thread's network namespace, as far as TCP has
/// measured a round trip of them: a side that has sent nothing has not.
pub fn trips(mut each: impl FnMut(Trip)) -> io::Result<()> {
    for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        dump(family, socket_id, &mut |response| {
            trip(&response).into_iter().for_each(&mut each);
        })?;
    }
    Ok(())
}

fn dump(family: u8, socket_id: SocketId, each: &mut dyn FnMut(InetResponse)) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::ESTABLISHED,
        socket_id,
    });
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = vec![0; ANSWER_BYTES];
    loop {
        let length = socket.recv(&mut &mut answer[..], 0)?;
        let mut rest = &answer[..length];
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest);
            let message = message.map_err(io::Error::other)?;
            // Messages begin at multiples of four bytes.
            let taken = (message.header.length as usize).next_multiple_of(4).max(4);
            rest = rest.get(taken..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                    each(*response);
                }
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

fn trip(response: &InetResponse) -> Option<Trip> {
    let info = response.nlas.iter().find_map(|nla| match nla {
        Nla::TcpInfo(info) => Some(info),
        _ => None,
    })?;
    let TcpInfo { rtt, min_rtt, .. } = *info;
    // What was not measured is 0, or all ones.
    let is_known = rtt > 0 && min_rtt > 0 && min_rtt < u32::MAX;
    let id = &response.header.socket_id;
    let end = |address: IpAddr, port| Endpoint { address: address.to_canonical(), port };
    is_known.then(|| Trip {
        ends: Ends {
            src: end(id.source_address, id.source_port),
            dst: end(id.destination_address, id.destination_port),
        },
        least_ns: u64::from(min_rtt) * 1_000,
        smoothed_ns: u64::from(rtt) * 1_000,
    })
}
