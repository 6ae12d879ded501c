//! VIPs that route by connection ID: their state in the kernel, and what servers report.

use std::time::Duration;

use dwell_engine::{
    abi,
    balance::{ServerId, ServerSlots, ServerState, VipKey, ZeroState, ZeroVip, take_loads},
    quic_lb::Stamp,
    steer::{
        HeavyWindow,
        zero_rtt::{Heavy, HeavyConfig, HeavyHitters, heavy_of},
    },
};
use dwell_socket::clock::{monotonic_ns, realtime_ns};
use libbpf_rs::MapCore;
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroize;

use super::{maps, plane::Plane};
use crate::Error;

/// The load that a server reported last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerLoad {
    /// The load stamp as a word; 0 if the server has not reported yet.
    pub stamp: u64,
    /// The Unix time of the report, in seconds.
    pub seen_s: u32,
}

impl Plane {
    /// Writes how the packets of a VIP are routed by connection ID. Servers that stay keep their state. Set the VIP
    /// that has this slot afterwards ([`Plane::set_vip`]).
    ///
    /// # Errors
    ///
    /// If the slot or the number of servers exceeds the options.
    pub fn set_zero(&mut self, key: &VipKey, slot: u16, wanted: &ZeroVip) -> Result<(), Error> {
        let most = u32::from(self.options().max_zero_vips);
        self.check("slot", slot.into(), most)?;
        let before = self.server_slots(slot)?;
        let taken = self.heavies_of_others(slot)?;
        let most = self.options().max_zero_servers;
        let stays = |real: u32| wanted.servers.iter().any(|server| server.real == real);
        let mine = before.slots.iter().filter(|(real, _)| stays(*real));
        let mine: Vec<u32> = mine.map(|(_, heavy)| *heavy).collect();
        let free = (1..=most).filter(|number| !taken.contains(number) && !mine.contains(number));
        let number = wanted.servers.len() as u32;
        let (slots, new) = before.assign(&wanted.servers, free).ok_or(Error::NoNumber {
            what: "server with a connection ID",
            number,
            most,
        })?;
        let at = u32::from(slot).to_ne_bytes();
        for place in &new {
            let heavy = slots.slots[*place].1;
            let none = abi::dwell_heavy::default();
            for map in ["heavies", "other_heavies"] {
                maps::write(&self.map(map), map, &heavy.to_ne_bytes(), &none)?;
            }
        }
        self.write_loads(slot, wanted, &slots, &new)?;
        let mut core = wanted.to_core(&slots);
        let written = maps::write(&self.map("zero_vips"), "zero_vips", &at, &*core);
        core.as_mut_bytes().zeroize();
        written?;
        let (ids, names) = wanted.ids(slot, &slots);
        maps::write(&self.map("zero_ids"), "zero_ids", &at, &*ids)?;
        self.write_names(slot, &names)?;
        for (place, (real, _)) in slots.slots.iter().enumerate() {
            if *real != 0 {
                let value = place as u32 + 1;
                let map = self.map("zero_numbers");
                maps::write(&map, "zero_numbers", &real.to_ne_bytes(), &value)?;
            }
        }
        let mut state = self.zero_state()?;
        state.set_offset(unix_offset_s());
        state.mark_possible(key);
        state.invalidate();
        self.write_state(&state)
    }

    /// Removes a slot, which its VIP must not use any more.
    ///
    /// # Errors
    ///
    /// If a map cannot be written.
    pub fn remove_zero(&mut self, slot: u16) -> Result<(), Error> {
        let at = u32::from(slot).to_ne_bytes();
        let none = Box::<abi::dwell_zero_vip>::default();
        maps::write(&self.map("zero_vips"), "zero_vips", &at, &*none)?;
        let none = Box::<abi::dwell_zero_ids>::default();
        maps::write(&self.map("zero_ids"), "zero_ids", &at, &*none)?;
        self.write_names(slot, &[])?;
        let mut state = self.zero_state()?;
        state.invalidate();
        self.write_state(&state)
    }

    /// Removes all slots except these: a process may have ended before it could remove them.
    ///
    /// # Errors
    ///
    /// If the maps cannot be read or written.
    pub fn remove_zero_except(&mut self, kept: &[u16]) -> Result<(), Error> {
        for slot in (1..=self.options().max_zero_vips).filter(|slot| !kept.contains(slot)) {
            let at = u32::from(slot).to_ne_bytes();
            let found: Option<abi::dwell_zero_vip> = maps::read(&self.map("zero_vips"), "zero_vips", &at)?;
            if found.is_some_and(|vip| vip.as_bytes().iter().any(|byte| *byte != 0)) {
                self.remove_zero(slot)?;
            }
        }
        Ok(())
    }

    /// Updates the kernel's Unix time if it has changed. Call it each interval, since clocks may be set.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_clock(&mut self) -> Result<(), Error> {
        let mut state = self.zero_state()?;
        match state.set_offset(unix_offset_s()) {
            true => self.write_state(&state),
            false => Ok(()),
        }
    }

    /// Returns the server positions of a slot.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn server_slots(&mut self, slot: u16) -> Result<ServerSlots, Error> {
        let at = u32::from(slot).to_ne_bytes();
        let found: Option<abi::dwell_zero_vip> = maps::read(&self.map("zero_vips"), "zero_vips", &at)?;
        Ok(found.map_or_else(ServerSlots::default, |vip| ServerSlots::from_core(&vip)))
    }

    /// Returns the server IDs of a slot, with the number of each backend.
    ///
    /// # Errors
    ///
    /// If a map cannot be read.
    pub fn server_ids(&mut self, slot: u16) -> Result<Vec<(u32, ServerId)>, Error> {
        let slots = self.server_slots(slot)?;
        let at = u32::from(slot).to_ne_bytes();
        let own: Option<abi::dwell_zero_ids> = maps::read(&self.map("zero_ids"), "zero_ids", &at)?;
        let own = own.iter().flat_map(|ids| ids.server.iter().enumerate());
        let mut ids: Vec<(u32, ServerId)> = own
            .filter_map(|(id, place)| {
                let (real, _) = slots.slots.get(usize::from(*place).checked_sub(1)?)?;
                Some((*real, ServerId(id as u128)))
            })
            .collect();
        for (name, place) in self.names(slot)? {
            let octets = &name.id[..name.id.len().min(name.bytes.into())];
            let id = octets.iter().fold(0, |id, octet| id << 8 | u128::from(*octet));
            let (real, _) = slots.slots.get(place as usize).copied().unwrap_or_default();
            ids.push((real, ServerId(id)));
        }
        ids.retain(|(real, _)| *real != 0);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Returns the loads that the servers of a slot reported last, with the number of each backend.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn server_loads(&mut self, slot: u16) -> Result<Vec<(u32, ServerLoad)>, Error> {
        let slots = self.server_slots(slot)?;
        let loads = self.read_loads(slot)?;
        let used = slots.slots.iter().zip(&loads.server);
        Ok(used
            .filter(|((real, _), _)| *real != 0)
            .map(|((real, _), load)| {
                let load = ServerLoad { stamp: load.stamp, seen_s: load.seen_s };
                (*real, load)
            })
            .collect())
    }

    /// Returns the heavy connections of a server, the heaviest first; none if the server is not in the slot.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn heavy_hitters(&mut self, slot: u16, real: u32) -> Result<Vec<Heavy>, Error> {
        let slots = self.server_slots(slot)?;
        let Some(place) = slots.slot_of(real) else {
            return Ok(Vec::new());
        };
        let number = slots.slots[place].1;
        let found: Option<abi::dwell_heavy> = maps::read(&self.map("heavies"), "heavies", &number.to_ne_bytes())?;
        Ok(found.as_ref().map(heavy_of).unwrap_or_default())
    }

    /// Returns the windows of heavy connections of all servers in a slot.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn heavy_windows(&mut self, slot: u16, config: HeavyConfig) -> Result<Vec<HeavyWindow>, Error> {
        let tables = self.tables_of_heavies(slot)?;
        Ok(tables.iter().map(|(_, table)| HeavyWindow::of(table, config)).collect())
    }

    /// Returns the heavy connections of all servers in a slot, by the number of the backend, the heaviest of each first.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn heavy_tables(&mut self, slot: u16) -> Result<Vec<(u32, Vec<Heavy>)>, Error> {
        let tables = self.tables_of_heavies(slot)?;
        Ok(tables.iter().map(|(real, table)| (*real, heavy_of(table))).collect())
    }

    /// Returns how many packets with connection IDs that name it each server in a slot has had, by the number of the backend. It
    /// counts anew now and then, so that only a change means anything.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn named_packets(&mut self, slot: u16) -> Result<Vec<(u32, u32)>, Error> {
        let tables = self.tables_of_heavies(slot)?;
        Ok(tables.iter().map(|(real, table)| (*real, table.packets)).collect())
    }

    fn tables_of_heavies(&mut self, slot: u16) -> Result<Vec<(u32, abi::dwell_heavy)>, Error> {
        let slots = self.server_slots(slot)?;
        let map = self.map("heavies");
        let mut tables = Vec::new();
        for (real, number) in slots.slots.into_iter().filter(|(real, _)| *real != 0) {
            let found: Option<abi::dwell_heavy> = maps::read(&map, "heavies", &number.to_ne_bytes())?;
            tables.extend(found.map(|table| (real, table)));
        }
        Ok(tables)
    }

    /// Takes over the loads that servers of a slot have reported to other balancers, by the number of each backend, as if the
    /// reports had arrived here: the newest counts, and one that cannot be true is ignored. A report that arrives meanwhile may be
    /// lost; the next one is as good.
    ///
    /// # Errors
    ///
    /// If the map cannot be read or written.
    pub fn take_loads(&mut self, slot: u16, stamps: &[(u32, Stamp)]) -> Result<(), Error> {
        let at = u32::from(slot).to_ne_bytes();
        let vip: Option<abi::dwell_zero_vip> = maps::read(&self.map("zero_vips"), "zero_vips", &at)?;
        let mut loads = self.read_loads(slot)?;
        match vip.is_some_and(|vip| take_loads(&vip, &mut loads, stamps, Duration::from_nanos(realtime_ns()))) {
            true => maps::write(&self.map("zero_loads"), "zero_loads", &at, &*loads),
            false => Ok(()),
        }
    }

    /// Sets which clients of servers of a slot are heavy at other balancers, by the number of each backend; nothing for a server that is
    /// not in the slot.
    ///
    /// # Errors
    ///
    /// If a map cannot be read or written.
    pub fn set_other_heavies(&mut self, slot: u16, tables: &[(u32, HeavyHitters)]) -> Result<(), Error> {
        let slots = self.server_slots(slot)?;
        let map = self.map("other_heavies");
        for (real, table) in tables {
            if let Some(place) = slots.slot_of(*real) {
                maps::write(&map, "other_heavies", &slots.slots[place].1.to_ne_bytes(), table.core())?;
            }
        }
        Ok(())
    }

    fn heavies_of_others(&mut self, slot: u16) -> Result<Vec<u32>, Error> {
        let mut taken = Vec::new();
        for other in (1..=self.options().max_zero_vips).filter(|other| *other != slot) {
            let slots = self.server_slots(other)?;
            taken.extend(slots.slots.iter().map(|(_, heavy)| *heavy));
        }
        Ok(taken)
    }

    fn read_loads(&mut self, slot: u16) -> Result<Box<abi::dwell_zero_loads>, Error> {
        let at = u32::from(slot).to_ne_bytes();
        let found: Option<abi::dwell_zero_loads> = maps::read(&self.map("zero_loads"), "zero_loads", &at)?;
        Ok(Box::new(found.unwrap_or_default()))
    }

    /// Writes the load table of a slot. A report that arrives meanwhile may be lost; the next one is as good.
    fn write_loads(&mut self, slot: u16, wanted: &ZeroVip, slots: &ServerSlots, new: &[usize]) -> Result<(), Error> {
        let mut loads = self.read_loads(slot)?;
        for place in new {
            loads.server[*place] = abi::dwell_server_load::default();
        }
        for (load, (real, _)) in loads.server.iter_mut().zip(&slots.slots) {
            let server = wanted.servers.iter().find(|server| server.real == *real);
            load.flags = server.map_or(ServerState::Left, |server| server.state).to_core();
        }
        let at = u32::from(slot).to_ne_bytes();
        maps::write(&self.map("zero_loads"), "zero_loads", &at, &*loads)
    }

    fn write_names(&mut self, slot: u16, names: &[(abi::dwell_zero_name, u32)]) -> Result<(), Error> {
        // Old names are deleted first, to make room.
        for (name, _) in self.names(slot)? {
            let is = |(wanted, _): &(abi::dwell_zero_name, u32)| wanted.as_bytes() == name.as_bytes();
            if !names.iter().any(is) {
                maps::delete(&self.map("zero_names"), "zero_names", name.as_bytes())?;
            }
        }
        let map = self.map("zero_names");
        names.iter().try_for_each(|(name, place)| maps::write(&map, "zero_names", name.as_bytes(), place))
    }

    /// Reads the server IDs of layouts other than dwell's own, with the position of each server.
    fn names(&mut self, slot: u16) -> Result<Vec<(abi::dwell_zero_name, u32)>, Error> {
        let map = self.map("zero_names");
        let mut names = Vec::new();
        for key in map.keys() {
            let name = abi::dwell_zero_name::read_from_bytes(&key).ok();
            let Some(name) = name.filter(|name| name.slot == u32::from(slot)) else {
                continue;
            };
            let place: Option<u32> = maps::read(&map, "zero_names", &key)?;
            names.extend(place.and_then(|place| Some((name, place.checked_sub(1)?))));
        }
        Ok(names)
    }

    fn zero_state(&mut self) -> Result<ZeroState, Error> {
        let found = maps::read(&self.map("zero_state"), "zero_state", &[0; 4])?;
        Ok(ZeroState::from_core(found.unwrap_or_default()))
    }

    fn write_state(&mut self, state: &ZeroState) -> Result<(), Error> {
        maps::write(&self.map("zero_state"), "zero_state", &[0; 4], &state.to_core())
    }
}

/// Returns Unix time minus CLOCK_MONOTONIC, rounded to the second. The difference of their whole seconds would vary by
/// one with the moment of reading.
fn unix_offset_s() -> u32 {
    let offset_ns = realtime_ns().cast_signed() - monotonic_ns().cast_signed();
    let offset_s = (offset_ns + 500_000_000).div_euclid(1_000_000_000);
    offset_s.try_into().unwrap_or(0)
}
