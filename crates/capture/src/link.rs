use std::fmt;

/// The header that a packet begins with, as a number of the public link-type registry (`LINKTYPE_*`,
/// <https://www.tcpdump.org/linktypes.html>).
///
/// It is the number in the file. A few systems write their own number for raw IP (12 or 14 instead of 101), which is
/// displayed as raw IP too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback: four bytes of address family, in the byte order of the capturing host.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const EN10MB: LinkType = LinkType(1);
    /// PPP, with or without HDLC framing.
    pub const PPP: LinkType = LinkType(9);
    /// Raw IP as FreeBSD, macOS and Linux number it internally.
    pub const RAW_12: LinkType = LinkType(12);
    /// Raw IP as OpenBSD numbers it internally.
    pub const RAW_14: LinkType = LinkType(14);
    /// PPP in HDLC framing.
    pub const PPP_SERIAL: LinkType = LinkType(50);
    /// `PPPoE` session packets without their Ethernet header.
    pub const PPP_ETHER: LinkType = LinkType(51);
    /// Raw IP, version 4 or 6.
    pub const RAW: LinkType = LinkType(101);
    /// Cisco HDLC.
    pub const C_HDLC: LinkType = LinkType(104);
    /// Wi-Fi without radio data.
    pub const IEEE802_11: LinkType = LinkType(105);
    /// Frame Relay.
    pub const FRELAY: LinkType = LinkType(107);
    /// OpenBSD loopback: four bytes of address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux "cooked" capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Wi-Fi with a radiotap header.
    pub const IEEE802_11_RADIO: LinkType = LinkType(127);
    /// Raw IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Messages of the Linux netlink interface.
    pub const NETLINK: LinkType = LinkType(253);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// Returns the name that capture tools use, or `None` for an unknown number.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NULL => "NULL",
            Self::EN10MB => "EN10MB",
            Self::PPP => "PPP",
            Self::RAW | Self::RAW_12 | Self::RAW_14 => "RAW",
            Self::PPP_SERIAL => "PPP_SERIAL",
            Self::PPP_ETHER => "PPP_ETHER",
            Self::C_HDLC => "C_HDLC",
            Self::IEEE802_11 => "IEEE802_11",
            Self::FRELAY => "FRELAY",
            Self::LOOP => "LOOP",
            Self::LINUX_SLL => "LINUX_SLL",
            Self::IEEE802_11_RADIO => "IEEE802_11_RADIO",
            Self::IPV4 => "IPV4",
            Self::IPV6 => "IPV6",
            Self::NETLINK => "NETLINK",
            Self::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => self.0.fmt(f),
        }
    }
}
