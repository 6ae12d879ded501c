//! The backend's end of the tunnel, for backends whose kernel has none.

use std::net::IpAddr;

use dwell_engine::{abi, balance};
use libbpf_rs::Object;
use zerocopy::IntoBytes;

use super::maps;
use crate::{
    Error, Hook, Interface, TcHookKind,
    attach::{Attachment, attach},
    load,
    vantage::failed,
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_decap.bpf.o.z"));

/// Decapsulates IPIP and GUE from any sender, and passes the inner packets to this host. Dropping it detaches it.
pub struct Decap {
    attachment: Option<Attachment>,
    object: Object,
}

/// The packets that were processed, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecapCounters {
    /// Not for this endpoint: passed on unchanged.
    pub other: u64,
    /// Decapsulated from IPIP.
    pub ipip: u64,
    /// Decapsulated from GUE.
    pub gue: u64,
    /// Decapsulated from either, with a congestion mark copied to the inner packet.
    pub marked: u64,
    /// Dropped because of a congestion mark that the inner packet cannot carry (RFC 6040).
    pub congested: u64,
    /// Dropped because the inner packet is not IP, or does not match its length.
    pub malformed: u64,
}

impl Decap {
    /// Loads the program for tunnels that end at these addresses, and for GUE on a UDP port; 0 disables GUE.
    ///
    /// # Errors
    ///
    /// If this host cannot load it.
    pub fn load(addresses: &[IpAddr], gue_port: u16) -> Result<Decap, Error> {
        let program = abi::dwell_decap_program { gue_port, reserved: [0; 6] };
        let mut object = load::open("the tunnel endpoint", OBJECT)?;
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name == "own" {
                map.set_max_entries(addresses.len().max(1) as u32).map_err(failed("size", "own"))?;
            }
            if name.ends_with(".rodata.program") {
                map.set_initial_value(program.as_bytes()).map_err(failed("write", "configuration"))?;
            }
        }
        let mut object = load::load("the tunnel endpoint", object)?;
        let own = load::map(&mut object, "own");
        for address in addresses {
            let key = balance::to_core(*address);
            maps::write(&own, "own", key.as_bytes(), &1u32)?;
        }
        Ok(Decap { attachment: None, object })
    }

    /// Attaches the program to an interface until it is dropped.
    ///
    /// # Errors
    ///
    /// If another XDP program is attached, or the driver does not support XDP.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        let program = load::program(&self.object, "decapsulate");
        self.attachment = Some(attach(&program, interface, Hook::Xdp, TcHookKind::Auto)?);
        Ok(())
    }

    /// Returns the counters, summed over all CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counters(&mut self) -> Result<DecapCounters, Error> {
        let map = load::map(&mut self.object, "counters");
        let cpus: Vec<abi::dwell_decap_counters> = maps::read_cpus(&map, "counters", 0)?;
        let of = |what: u32| cpus.iter().map(|cpu| cpu.value[what as usize]).sum();
        Ok(DecapCounters {
            other: of(abi::DWELL_DECAP_OTHER),
            ipip: of(abi::DWELL_DECAP_IPIP),
            gue: of(abi::DWELL_DECAP_GUE),
            marked: of(abi::DWELL_DECAP_MARKED),
            congested: of(abi::DWELL_DECAP_CONGESTED),
            malformed: of(abi::DWELL_DECAP_MALFORMED),
        })
    }

    /// Runs the program over a frame, which is counted. Returns the frame as passed to this host, or none if it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// If the kernel does not run the program.
    pub fn process_frame(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let program = load::program(&self.object, "decapsulate");
        let (verdict, frame) = maps::run_xdp(&program, frame)?;
        Ok((verdict == maps::XDP_PASS).then_some(frame))
    }
}
