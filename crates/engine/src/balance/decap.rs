//! A backend's end of the balancer's tunnel.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    abi,
    balance::{NextHop, path_to_core, to_core},
    counters::{counters, sums},
    rtt::Prefix,
};

counters! {
    /// What became of a packet at a tunnel's end. Each packet has exactly one outcome.
    #[derive(Hash)]
    DecapOutcome: abi::DWELL_DECAPS;

    /// Not for this end: passed on unchanged.
    Other = DWELL_DECAP_OTHER, "other";
    /// A tunnel's packet from a sender that is not listed: passed on unchanged, as the host may have a tunnel of its own.
    Sender = DWELL_DECAP_SENDER, "sender";
    /// Decapsulated from IPIP.
    Ipip = DWELL_DECAP_IPIP, "ipip";
    /// Decapsulated from GUE.
    Gue = DWELL_DECAP_GUE, "gue";
    /// Decapsulated from either, with a congestion mark copied to the inner packet.
    Marked = DWELL_DECAP_MARKED, "marked";
    /// Decapsulated although it could have been sent on: its connection is here, or that cannot be told.
    Kept = DWELL_DECAP_KEPT, "kept";
    /// Sent on to the next backend that the packet names, as its connection is not here.
    SentOn = DWELL_DECAP_SENT_ON, "sent-on";
    /// Dropped because of a congestion mark that the inner packet cannot carry (RFC 6040).
    Congested = DWELL_DECAP_CONGESTED, "congested";
    /// Dropped because the inner packet is not IP, or does not match its length.
    Malformed = DWELL_DECAP_MALFORMED, "malformed";
    /// Dropped because the inner destination is unspecified, loopback, link-local, multicast or broadcast.
    Special = DWELL_DECAP_SPECIAL, "special";
    /// Dropped because the inner destination is neither a listed VIP nor, for a packet that could be sent on, a listed
    /// backend.
    NotVip = DWELL_DECAP_NOT_VIP, "not-vip";
    /// Dropped because its connection is not here, and the path to the next backend is not known yet, or the hop limit is
    /// exhausted.
    NoRoute = DWELL_DECAP_NO_ROUTE, "no-route";
}

/// The packets that were processed, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecapCounters([u64; abi::DWELL_DECAPS as usize]);

sums!(DecapCounters of dwell_decap_counters by DecapOutcome);

/// Which packets a tunnel's end decapsulates. By default none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecapRules {
    /// The addresses at which tunnels end.
    pub addresses: Vec<IpAddr>,
    /// The UDP port of GUE; 0 disables GUE.
    pub gue_port: u16,
    /// The VIPs: inner packets to other destinations are dropped.
    pub vips: Vec<Prefix>,
    /// The networks of the balancers: outer packets of other senders pass unchanged.
    pub senders: Vec<Prefix>,
    /// The networks of the backends to which packets may be sent on whose connection is not here.
    pub backends: Vec<Prefix>,
    /// Frames leave the device where they arrived by a redirect to it, as a veth needs it.
    pub redirects_back: bool,
}

impl DecapRules {
    /// Converts what is fixed to the core's format.
    pub fn to_core(&self) -> abi::dwell_decap_program {
        abi::dwell_decap_program {
            gue_port: self.gue_port,
            sends_on: (!self.backends.is_empty()).into(),
            redirects_back: self.redirects_back.into(),
            reserved: [0; 4],
        }
    }

    /// All addresses of both families.
    pub const ANYBODY: [Prefix; 2] = [
        Prefix { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 0 },
        Prefix { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 0 },
    ];
}

/// Whether no packet is decapsulated towards an address, whatever the rules: it is unspecified, loopback, link-local,
/// multicast or broadcast.
pub fn is_special(address: IpAddr) -> bool {
    // SAFETY: a pure function of its argument.
    unsafe { abi::dwell_decap_is_special(to_core(address)) != 0 }
}

/// A tunnel's end without a network: frames in, frames out, by the same C code that runs in the kernel.
pub struct TunnelEnd {
    core: abi::dwell_tunnel_end,
    own: Vec<abi::dwell_address>,
    vips: Vec<abi::dwell_prefix>,
    senders: Vec<abi::dwell_prefix>,
    backends: Vec<abi::dwell_prefix>,
    hops: Vec<abi::dwell_real>,
}

impl TunnelEnd {
    /// Creates a tunnel's end.
    pub fn new(rules: &DecapRules) -> TunnelEnd {
        let list = |prefixes: &[Prefix]| prefixes.iter().map(|prefix| prefix.to_core().1).collect();
        TunnelEnd {
            core: abi::dwell_tunnel_end { program: rules.to_core(), ..Default::default() },
            own: rules.addresses.iter().map(|address| to_core(*address)).collect(),
            vips: list(&rules.vips),
            senders: list(&rules.senders),
            backends: list(&rules.backends),
            hops: Vec::new(),
        }
    }

    /// Sets whether the connections of all packets are here, and the paths to other backends.
    pub fn set_others(&mut self, owns: bool, hops: &[(IpAddr, NextHop)]) {
        self.core.owns = owns.into();
        self.hops = hops.iter().map(|(address, hop)| path_to_core(*address, Some(*hop))).collect();
    }

    /// Processes one frame. Returns the frame as it is passed to the host, or none if it is dropped.
    pub fn packet(&mut self, frame: &[u8]) -> (DecapOutcome, Option<Vec<u8>>) {
        let mut buffer = frame.to_vec();
        let (mut bytes, mut outcome) = (frame.len() as u32, 0);
        self.core.own = self.own.as_ptr();
        self.core.own_count = self.own.len() as u32;
        self.core.vips = self.vips.as_ptr();
        self.core.vip_count = self.vips.len() as u32;
        self.core.senders = self.senders.as_ptr();
        self.core.sender_count = self.senders.len() as u32;
        self.core.backends = self.backends.as_ptr();
        self.core.backend_count = self.backends.len() as u32;
        self.core.hops = self.hops.as_ptr();
        self.core.hop_count = self.hops.len() as u32;
        // SAFETY: the buffer has `bytes`, and each array is as long as its count.
        let begin =
            unsafe { abi::dwell_decap_packet(&mut self.core, buffer.as_mut_ptr().cast(), &mut bytes, &mut outcome) }
                as usize;
        let outcome = DecapOutcome::ALL[outcome as usize];
        let is_dropped = outcome as u32 >= abi::DWELL_DECAP_CONGESTED;
        (outcome, (!is_dropped).then(|| buffer[begin..begin + bytes as usize].to_vec()))
    }

    /// Returns the counters.
    pub fn counters(&self) -> DecapCounters {
        DecapCounters(self.core.counters.value)
    }
}
