use std::net::Ipv4Addr;

use crate::{Namespace, Result, error::run};

/// Hosts on one Ethernet segment, each with a number that its addresses end with. XDP programs can forward between them.
#[derive(Debug)]
pub struct Switch {
    namespace: Namespace,
    subnet: u8,
}

impl Switch {
    /// Makes a switch of the network 10.SUBNET.0.0/24 that belongs to no lab.
    ///
    /// # Errors
    ///
    /// If this host cannot make network namespaces or bridges.
    pub fn create(lab: &str, subnet: u8) -> Result<Switch> {
        let namespace = Namespace::create(lab)?;
        namespace.ip("link add bridge0 type bridge\nlink set bridge0 up\n")?;
        Ok(Switch { namespace, subnet })
    }

    /// The namespace with the other ends of hosts' devices, `port<HOST>`.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A host's address.
    pub fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.subnet, 0, host)
    }

    /// A host's link address.
    pub fn mac(&self, host: u8) -> [u8; 6] {
        [2, 0, 10, self.subnet, 0, host]
    }

    /// Gives a namespace a device on the switch, with the host's link address and without an IPv4 address.
    ///
    /// # Errors
    ///
    /// If the host is plugged in already, or there is no ethtool.
    pub fn plug(&self, host: u8, namespace: &Namespace, device: &str) -> Result<()> {
        let octets = self.mac(host).map(|byte| format!("{byte:02x}")).join(":");
        self.namespace.ip(&format!(
            "link add port{host} type veth peer name {device} address {octets} netns {}\n\
             link set port{host} master bridge0 up\n",
            namespace.name()
        ))?;
        namespace.ip(&format!("link set {device} up\n"))?;
        // XDP forwards packets whose checksums were left to the device unfinished.
        namespace.offload(device, "tx", "off")
    }

    /// Makes the other end of a host's device poll ("on"), as it does with GRO, or not ("off"): a veth that polls takes what XDP
    /// redirects to its peer.
    ///
    /// # Errors
    ///
    /// If there is no such host or no ethtool.
    pub fn poll(&self, host: u8, polls: &str) -> Result<()> {
        self.namespace.offload(&format!("port{host}"), "gro", polls)
    }
}

impl Namespace {
    /// Sets a feature of a device by `ethtool -K`: "on" or "off".
    pub fn offload(&self, device: &str, feature: &str, state: &str) -> Result<()> {
        run(self.command("ethtool").args(["-K", device, feature, state]), "").map(drop)
    }
}
