//! Names of the ends of flows, for people; and those that packets tell as they pass: nothing is asked.

mod message;
mod networks;
mod passive;
mod pod;
mod recent;

use std::{fmt, net::IpAddr, sync::Arc};

pub(crate) use message::asked_name;
pub use networks::{Country, Network, Networks, NetworksError, as_name};
pub use passive::{PassiveCounts, PassiveNames};
pub use pod::{Pod, PodName};
pub use recent::Recent;

use crate::{
    measure::{Endpoint, Protocol},
    roles::Role,
    rtt::native::Payload,
};

/// What knows the names of flows.
pub trait NameFlows: fmt::Debug + Send + Sync {
    /// Returns what is known now of a flow. What is not may be looked up for the next call; no call waits for that.
    fn names(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> FlowNames;
}

/// The names of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowNames {
    /// Of the source.
    pub src: EndNames,
    /// Of the destination.
    pub dst: EndNames,
    /// The service of the server's port.
    pub service: Option<Arc<str>>,
    /// What the latest request has asked for.
    pub label: Option<Arc<str>>,
    /// What the source is, if a socket of this host listens at one of the two ends.
    pub src_role: Option<Role>,
}

impl FlowNames {
    /// Returns true if an end has a name. A service alone does not count: the port says as much.
    pub fn name_an_end(&self) -> bool {
        self.src != EndNames::default() || self.dst != EndNames::default()
    }

    /// Returns true if there is nothing to show.
    pub fn is_empty(&self) -> bool {
        !self.name_an_end() && self.label.is_none()
    }
}

/// The names of an end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndNames {
    /// The name of the address.
    pub host: Option<Arc<str>>,
    /// A process of this host that has the socket.
    pub pid: Option<u32>,
    /// The name of that process.
    pub process: Option<Arc<str>>,
    /// The unit of systemd or the container that it belongs to.
    pub unit: Option<Arc<str>>,
    /// The pod of Kubernetes that it belongs to.
    pub pod: Option<Arc<Pod>>,
    /// The network of the address.
    pub network: Option<Network>,
}

/// The port of name servers.
pub const DOMAIN: u16 = 53;
/// Addresses whose name is remembered.
const MAX_ADDRESSES: usize = 65_536;

/// The names under which addresses were last asked for.
///
/// A name is that of the question, not one to which it is an alias. Several names may have one address: the one that was
/// answered last is kept. Nothing checks that an answer is genuine, so names are labels for people.
#[derive(Debug)]
struct Answers {
    names: Recent<IpAddr, Arc<str>>,
    messages: u64,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { names: Recent::new(MAX_ADDRESSES), messages: 0 }
    }
}

impl Answers {
    /// Takes a payload, which may be an answer over UDP.
    fn take(&mut self, payload: &Payload<'_>) {
        if payload.protocol != Protocol::UDP || payload.src.port != DOMAIN {
            return;
        }
        let mut name: Option<Arc<str>> = None;
        message::addresses(payload.bytes, |asked, address| {
            let name = name.get_or_insert_with(|| asked.into());
            self.names.insert(address.to_canonical(), Arc::clone(name));
        });
        self.messages += u64::from(name.is_some());
    }

    /// Returns the name under which an address was last asked for.
    fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        self.names.get(&address).cloned()
    }

    /// Returns the number of answers with addresses.
    fn messages(&self) -> u64 {
        self.messages
    }

    /// Returns the number of addresses that were forgotten to make room for others.
    fn forgotten(&self) -> u64 {
        self.names.forgotten()
    }
}

/// Returns true of what may be shown as the name of a host.
pub fn is_host_name(text: &str) -> bool {
    const LONGEST: usize = 253;
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observation;

    /// UDP over IPv4 from a port, as it follows the link header.
    fn datagram(port: u16, message: &[u8]) -> Vec<u8> {
        let udp = 8 + message.len();
        let mut packet = vec![0x45, 0, 0, (20 + udp) as u8, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 53, 192, 0, 2, 1];
        packet.extend(port.to_be_bytes());
        packet.extend([0x93, 0xd5, 0, udp as u8, 0, 0]);
        packet.extend(message);
        packet
    }

    /// db.example has 198.51.100.7.
    const MESSAGE: &[u8] = b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x02db\x07example\0\0\x01\0\x01\
          \xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc6\x33\x64\x07";

    #[test]
    fn an_answer_in_a_packet_names_its_address_and_what_only_looks_like_one_does_not() {
        let observe = |link, data: &[u8]| {
            let mut names = PassiveNames::new(false);
            names.observe(&Observation { time_ns: 0, interface: 0, link, data, wire_len: data.len() as u32 });
            names.host("198.51.100.7".parse().unwrap()).as_deref().map(str::to_owned)
        };
        let answer = datagram(53, MESSAGE);
        assert_eq!(observe(101, &answer).as_deref(), Some("db.example"));
        let ethernet = [&[2; 12][..], &[8, 0], &answer].concat();
        assert_eq!(observe(1, &ethernet).as_deref(), Some("db.example"));
        assert_eq!(observe(101, &datagram(5353, MESSAGE)), None);
        assert_eq!(observe(101, &answer[..answer.len() - 1]), None, "the address is cut off");
    }
}
