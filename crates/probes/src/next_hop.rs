//! The next hop of packets to an address, and the Ethernet addresses for their headers, from the routing and neighbour
//! tables of this network namespace.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::IpAddr,
};

use dwell_engine::balance::{Mac, NextHop};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{InfoKind, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::Error;

/// The route of packets to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// The index of the interface by which they leave.
    pub interface: u32,
    /// The next hop: the address itself, or a gateway.
    pub next: IpAddr,
    /// The size of the largest IP packet in bytes, if the route has one of its own: as it is configured, or as ICMP has
    /// told.
    pub mtu: Option<u32>,
}

/// An interface that sends Ethernet frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The name.
    pub name: String,
    /// The Ethernet address.
    pub mac: Mac,
    /// The size of the largest IP packet in bytes.
    pub mtu: u32,
    /// Whether it is a veth, whose frames arrive at another device of this host.
    pub is_veth: bool,
    /// The index of the other end of a veth, if that is in this network namespace.
    pub peer: Option<u32>,
}

/// Finds the next hops to many addresses at one moment: what the kernel has said of a device or a neighbour is not asked again.
pub struct NextHops {
    kernel: Kernel,
    devices: HashMap<u32, Device>,
    neighbours: HashMap<(u32, IpAddr), Option<Mac>>,
}

impl NextHops {
    /// Opens a socket to the kernel.
    ///
    /// # Errors
    ///
    /// If there is no descriptor for it.
    pub fn open() -> io::Result<NextHops> {
        Ok(NextHops { kernel: Kernel::open()?, devices: HashMap::new(), neighbours: HashMap::new() })
    }

    /// Returns the next hop for frames to an address.
    ///
    /// # Errors
    ///
    /// If there is no route, or the neighbour is unknown: the kernel resolves it when this host sends something there.
    pub fn find(&mut self, to: IpAddr) -> Result<NextHop, Error> {
        self.look_up(to).map_err(|io| Error::NextHop { to, io })
    }

    fn look_up(&mut self, to: IpAddr) -> io::Result<NextHop> {
        let route = self.kernel.route(to, None)?;
        let device = match self.devices.entry(route.interface) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.kernel.device(route.interface)?),
        };
        let neighbour = match self.neighbours.entry((route.interface, route.next)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(self.kernel.neighbour(&route)?),
        };
        let destination = neighbour.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("the MAC address of {} is unknown", route.next))
        })?;
        Ok(NextHop {
            interface: route.interface,
            destination,
            source: device.mac,
            mtu: route.mtu.unwrap_or(u32::MAX).min(device.mtu).try_into().unwrap_or(u16::MAX),
        })
    }
}

/// Finds the route to an address for packets from an address of this host. Fails if there is none, or if the address is
/// this host's own.
pub(crate) fn route(to: IpAddr, from: Option<IpAddr>) -> io::Result<Route> {
    Kernel::open()?.route(to, from)
}

/// The same, and what [`device`] reads of the interface by which the packets leave.
pub(crate) fn route_and_device(to: IpAddr, from: Option<IpAddr>) -> io::Result<(Route, io::Result<Device>)> {
    let mut kernel = Kernel::open()?;
    let route = kernel.route(to, from)?;
    let device = kernel.device(route.interface);
    Ok((route, device))
}

/// Reads what Ethernet frames from an interface need. Fails if it has no Ethernet frames.
pub(crate) fn device(index: u32) -> io::Result<Device> {
    Kernel::open()?.device(index)
}

/// Reads the Ethernet address of the next hop; `None` while the kernel does not know it.
pub(crate) fn neighbour(route: &Route) -> io::Result<Option<Mac>> {
    Kernel::open()?.neighbour(route)
}

/// A netlink socket to the kernel, which answers one question after the other.
struct Kernel {
    socket: Socket,
    /// The number of the last question, which its answer has too.
    asked: u32,
}

impl Kernel {
    fn open() -> io::Result<Kernel> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Kernel { socket, asked: 0 })
    }

    fn route(&mut self, to: IpAddr, from: Option<IpAddr>) -> io::Result<Route> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        message.header.destination_prefix_length = bits(to);
        message.attributes = vec![RouteAttribute::Destination(to.into())];
        if let Some(from) = from {
            message.header.source_prefix_length = bits(from);
            message.attributes.push(RouteAttribute::Source(from.into()));
        }
        let RouteNetlinkMessage::NewRoute(route) = self.request(RouteNetlinkMessage::GetRoute(message))? else {
            return Err(unexpected());
        };
        if route.header.kind != RouteType::Unicast {
            return Err(io::Error::other("it is an address of this host"));
        }
        let mut next_hop = Route { interface: 0, next: to, mtu: None };
        for attribute in route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => next_hop.interface = index,
                RouteAttribute::Gateway(RouteAddress::Inet(v4)) => next_hop.next = v4.into(),
                RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => next_hop.next = v6.into(),
                RouteAttribute::Metrics(metrics) => {
                    next_hop.mtu = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(bytes) => Some(*bytes),
                        _ => None,
                    });
                }
                RouteAttribute::Via(_) => {
                    return Err(io::Error::other("its gateway has an address of another kind"));
                }
                _ => {}
            }
        }
        Ok(next_hop)
    }

    fn device(&mut self, index: u32) -> io::Result<Device> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let RouteNetlinkMessage::NewLink(link) = self.request(RouteNetlinkMessage::GetLink(message))? else {
            return Err(unexpected());
        };
        let (mut name, mut mac, mut mtu) = (String::new(), None, 0);
        let (mut is_veth, mut is_peer_here, mut peer) = (false, true, None);
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = text,
                LinkAttribute::Mtu(bytes) => mtu = bytes,
                LinkAttribute::Address(bytes) => mac = Mac::try_from(bytes).ok(),
                LinkAttribute::LinkInfo(infos) => is_veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth)),
                LinkAttribute::Link(index) => peer = Some(index),
                LinkAttribute::LinkNetNsId(_) => is_peer_here = false,
                _ => {}
            }
        }
        match mac {
            Some(mac) if link.header.link_layer_type == LinkLayerType::Ether => {
                let peer = peer.filter(|_| is_veth && is_peer_here);
                Ok(Device { name, mac, mtu, is_veth, peer })
            }
            _ => Err(io::Error::other(format!("'{name}' has no Ethernet frames"))),
        }
    }

    fn neighbour(&mut self, route: &Route) -> io::Result<Option<Mac>> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(route.next);
        message.header.ifindex = route.interface;
        let address = match route.next {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        message.attributes = vec![NeighbourAttribute::Destination(address)];
        let reply = match self.request(RouteNetlinkMessage::GetNeighbour(message)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            reply => reply?,
        };
        let RouteNetlinkMessage::NewNeighbour(neighbour) = reply else {
            return Err(unexpected());
        };
        if matches!(neighbour.header.state, NeighbourState::None | NeighbourState::Incomplete | NeighbourState::Failed)
        {
            return Ok(None);
        }
        let mac = neighbour.attributes.into_iter().find_map(|attribute| {
            let NeighbourAttribute::LinkLayerAddress(bytes) = attribute else {
                return None;
            };
            Mac::try_from(bytes).ok()
        });
        Ok(mac)
    }

    /// Sends a question, and returns its answer. Each has one; late ones of questions that failed are left out.
    fn request(&mut self, request: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.asked += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        header.sequence_number = self.asked;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (reply, _) = self.socket.recv_from_full()?;
            let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply).map_err(io::Error::other)?;
            if reply.header.sequence_number != self.asked {
                continue;
            }
            return match reply.payload {
                NetlinkPayload::InnerMessage(inner) => Ok(inner),
                NetlinkPayload::Error(error) => Err(error.to_io()),
                _ => Err(unexpected()),
            };
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::other("the kernel's reply is of another kind")
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn bits(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
