//! The backend's end of the tunnel, for backends whose kernel has none.

use std::{collections::BTreeSet, net::IpAddr};

use dwell_engine::{
    abi,
    balance::{self, DecapCounters, DecapRules, NextHop},
    rtt::Prefix,
};
use libbpf_rs::{MapCore, MapMut, Object};
use zerocopy::IntoBytes;

use super::{maps, plane::busy};
use crate::{
    Error, Hook, Interface, TcHookKind,
    attach::{Attachment, attach},
    load,
    vantage::read_cpus,
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/balancer_decap.bpf.o.z"));

/// Decapsulates IPIP and GUE from the listed senders to the listed VIPs, and passes the inner packets to this host.
/// Dropping it detaches it.
pub struct Decap {
    attachment: Option<Attachment>,
    object: Object,
    addresses: BTreeSet<IpAddr>,
    vips: BTreeSet<Prefix>,
}

/// The most backends to which packets are sent on, as `hops` of the program has.
const MAX_OTHERS: usize = 4096;

/// The addresses at which tunnels may end, at least: an interface may get more than it had at the start.
const MIN_ADDRESSES: usize = 1024;

const IN_THE_WAY: &str = "another XDP program is attached, perhaps that of another `dwell lb decap`, of a balancer or of \
                          `dwell response` (`dwell doctor` shows it): stop it";

/// Makes a list in a map the wanted one. After an error, `listed` has what the map has.
fn replace<T: Ord + Copy>(
    listed: &mut BTreeSet<T>,
    wanted: &BTreeSet<T>,
    delete: impl Fn(&T) -> Result<(), Error>,
    write: impl Fn(&T) -> Result<(), Error>,
) -> Result<(), Error> {
    let (gone, new): (Vec<T>, Vec<T>) =
        (listed.difference(wanted).copied().collect(), wanted.difference(listed).copied().collect());
    for gone in gone {
        delete(&gone)?;
        listed.remove(&gone);
    }
    for new in new {
        write(&new)?;
        listed.insert(new);
    }
    Ok(())
}

impl Decap {
    /// Loads the program.
    ///
    /// # Errors
    ///
    /// If this host cannot load it.
    pub fn load(rules: &DecapRules) -> Result<Decap, Error> {
        let program = rules.to_core();
        let mut object = load::open("the tunnel endpoint", OBJECT)?;
        let entries = |name: &str| (name == "own").then(|| rules.addresses.len().max(MIN_ADDRESSES) as u32);
        load::configure(&mut object, entries, &[(".rodata.program", program.as_bytes())])?;
        let mut object = load::load("the tunnel endpoint", object)?;
        let senders = load::map(&mut object, "senders");
        rules.senders.iter().try_for_each(|sender| list(&senders, "senders", sender))?;
        let backends = load::map(&mut object, "backends");
        rules.backends.iter().try_for_each(|backend| list(&backends, "backends", backend))?;
        let mut decap = Decap { attachment: None, object, addresses: BTreeSet::new(), vips: BTreeSet::new() };
        decap.set_addresses(&rules.addresses)?;
        decap.set_vips(&rules.vips)?;
        Ok(decap)
    }

    /// Replaces the list of addresses at which tunnels end. Tunnels to those on both lists end there all the time.
    ///
    /// # Errors
    ///
    /// If there are more than 1,024, and more than at the start, or the map cannot be written.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let wanted: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        let map = load::map(&mut self.object, "own");
        let delete = |gone: &IpAddr| maps::delete(&map, "own", balance::to_core(*gone).as_bytes());
        let write = |new: &IpAddr| maps::write(&map, "own", balance::to_core(*new).as_bytes(), &1u32);
        replace(&mut self.addresses, &wanted, delete, write)
    }

    /// Replaces the list of VIPs. Those on both lists are served all the time.
    ///
    /// # Errors
    ///
    /// If there are more than 65,536, or the map cannot be written.
    pub fn set_vips(&mut self, vips: &[Prefix]) -> Result<(), Error> {
        let wanted: BTreeSet<Prefix> = vips.iter().copied().collect();
        let map = load::map(&mut self.object, "vips");
        let delete = |gone: &Prefix| maps::delete(&map, "vips", gone.to_core().0.as_bytes());
        replace(&mut self.vips, &wanted, delete, |new| list(&map, "vips", new))
    }

    /// Returns the backends to which packets were to be sent on or whose path was set, and whether there is a path.
    pub fn others(&mut self) -> Vec<(IpAddr, bool)> {
        let map = load::map(&mut self.object, "hops");
        let hop_at = |key: Vec<u8>| maps::read::<abi::dwell_real>(&map, "hops", &key).ok().flatten();
        // Packets move entries while they are read, so that keys may come more than once.
        let hops = map.keys().take(MAX_OTHERS).filter_map(hop_at);
        hops.map(|hop| (balance::from_core(hop.address), hop.interface != 0)).collect()
    }

    /// Sets the path to a backend; without one, packets that should go there are dropped.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_other(&mut self, address: IpAddr, hop: Option<NextHop>) -> Result<(), Error> {
        let key = balance::to_core(address);
        let value = balance::path_to_core(address, hop);
        maps::write(&load::map(&mut self.object, "hops"), "hops", key.as_bytes(), &value)
    }

    /// Attaches the program to an interface until it is dropped.
    ///
    /// # Errors
    ///
    /// If another XDP program is attached, or the driver does not support XDP.
    pub fn attach(&mut self, interface: &Interface) -> Result<(), Error> {
        let program = load::program(&self.object, "decapsulate");
        let attached = attach(&program, interface, Hook::Xdp, TcHookKind::Auto).map_err(|error| match error {
            Error::Attach { io, .. } => busy(interface, io, IN_THE_WAY),
            error => error,
        });
        self.attachment = Some(attached?);
        Ok(())
    }

    /// Returns the counters, summed over all CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counters(&mut self) -> Result<DecapCounters, Error> {
        let map = load::map(&mut self.object, "counters");
        let cpus: Vec<abi::dwell_decap_counters> = read_cpus(&map, "counters", 0)?;
        Ok(DecapCounters::sum(&cpus))
    }

    /// Runs the program over a frame as if it had arrived (BPF_PROG_TEST_RUN), which is counted. Returns the verdict of linux/bpf.h, and
    /// the frame as it would be passed to this host or sent on.
    ///
    /// # Errors
    ///
    /// If the kernel does not run the program.
    pub fn replay_packet(&mut self, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        maps::run_xdp(&load::program(&self.object, "decapsulate"), frame)
    }
}

fn list(map: &MapMut<'_>, name: &'static str, prefix: &Prefix) -> Result<(), Error> {
    let (key, value) = prefix.to_core();
    maps::write(map, name, key.as_bytes(), &value)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_list_that_did_not_fit_is_known_as_far_as_it_was_written_and_made_right_later() {
        let map = RefCell::new(BTreeSet::new());
        let write = |new: &u32| {
            let mut map = map.borrow_mut();
            if map.len() == 4 {
                return Err(Error::NoNumber { what: "address", number: 5, most: 4 });
            }
            map.insert(*new);
            Ok(())
        };
        let delete = |gone: &u32| {
            assert!(map.borrow_mut().remove(gone), "it was there");
            Ok(())
        };
        let mut listed = BTreeSet::new();
        assert!(replace(&mut listed, &(0..6).collect(), delete, write).is_err());
        assert_eq!(listed, *map.borrow());
        for wanted in [BTreeSet::from([9]), BTreeSet::from([9, 10, 11])] {
            replace(&mut listed, &wanted, delete, write).unwrap();
            assert_eq!((&listed, &*map.borrow()), (&wanted, &wanted));
        }
    }
}
