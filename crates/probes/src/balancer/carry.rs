//! From one data plane to another with other sizes: VIPs, backends, tables, what
//! connection IDs name and what was counted. Not connections: their places are of
//! the other's table.

use dwell_engine::abi;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use super::{maps, options::PlaneOptions};
use crate::{
    Error,
    vantage::{failed, read_percpu},
};

/// Where it comes from and goes to, by the name of the map.
pub(super) struct Carry<From, To> {
    pub from: From,
    pub to: To,
}

impl<From, To> Carry<From, To>
where
    From: Fn(&str) -> Result<MapHandle, Error>,
    To: Fn(&str) -> Result<MapHandle, Error>,
{
    fn both(&self, name: &str) -> Result<(MapHandle, MapHandle), Error> {
        Ok(((self.from)(name)?, (self.to)(name)?))
    }

    /// All that has a place there: numbers beyond its sizes stay behind.
    pub fn all(&self, options: &PlaneOptions) -> Result<(), Error> {
        let numbers = self.vips(options.max_vips)?;
        self.tables(&numbers)?;
        self.reals(options.max_reals)?;
        self.zero(options)?;
        for number in numbers {
            self.counts("vip_counts", number)?;
        }
        self.counts("counters", 0)
    }

    /// Returns the numbers of VIPs that have a table.
    fn vips(&self, most: u32) -> Result<Vec<u32>, Error> {
        let (from, to) = self.both("vips")?;
        let mut numbers = Vec::new();
        for (key, vip) in maps::vips(&from)? {
            // entries for ICMP have none
            if vip.number <= most {
                maps::write(&to, "vips", key.as_bytes(), &vip)?;
                numbers.push(vip.number);
            }
        }
        let (from, to) = self.both("maybe")?;
        let maybe: Option<abi::dwell_vip_filter> = maps::read(&from, "maybe", &[0; 4])?;
        maps::write(&to, "maybe", &[0; 4], &maybe.unwrap_or_default())?;
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|number| *number != 0);
        Ok(numbers)
    }

    /// The same tables, not copies of them.
    fn tables(&self, numbers: &[u32]) -> Result<(), Error> {
        let (from, to) = self.both("tables")?;
        for numbers in numbers.chunks(maps::SWAPPED_AT_ONCE) {
            let mut tables = Vec::new();
            for number in numbers {
                let id: Option<u32> = maps::read(&from, "tables", &number.to_ne_bytes())?;
                if let Some(id) = id {
                    let table = MapHandle::from_map_id(id).map_err(failed("read", "tables"))?;
                    tables.push((*number, table));
                }
            }
            maps::swap(&to, &tables)?;
        }
        Ok(())
    }

    fn reals(&self, most: u32) -> Result<(), Error> {
        let (from, to) = self.both("reals")?;
        for number in 1..=most.min(from.max_entries() - 1) {
            let key = number.to_ne_bytes();
            let real: Option<abi::dwell_real> = maps::read(&from, "reals", &key)?;
            let Some(real) = real.filter(|real| u32::from(real.forward) != abi::DWELL_FORWARD_NONE) else {
                continue;
            };
            maps::write(&to, "reals", &key, &real)?;
            self.counts("real_counts", number)?;
        }
        Ok(())
    }

    /// How packets go by connection ID. Tables of heavy hitters get other numbers, as
    /// there may be fewer; a server without one is routed to all the same.
    fn zero(&self, options: &PlaneOptions) -> Result<(), Error> {
        self.copy("zero_state", 0, 0)?;
        let (from, to) = self.both("zero_vips")?;
        let mut heavy = 0;
        for slot in 1..=u32::from(options.max_zero_vips).min(from.max_entries() - 1) {
            let key = slot.to_ne_bytes();
            let found = maps::read(&from, "zero_vips", &key)?;
            let mut vip: abi::dwell_zero_vip = found.unwrap_or_default();
            for server in vip.server.iter_mut().filter(|server| server.real != 0) {
                heavy += 1;
                self.copy("heavies", server.heavy, heavy)?;
                server.heavy = heavy;
                if server.real <= options.max_reals {
                    self.copy("zero_places", server.real, server.real)?;
                } else {
                    *server = abi::dwell_zero_server::default();
                }
            }
            maps::write(&to, "zero_vips", &key, &vip)?;
            self.copy("zero_ids", slot, slot)?;
            self.copy("zero_loads", slot, slot)?;
        }
        self.names(options)
    }

    fn names(&self, options: &PlaneOptions) -> Result<(), Error> {
        let (from, to) = self.both("zero_names")?;
        let mut room = to.max_entries();
        for key in from.keys() {
            let name = abi::dwell_zero_name::read_from_bytes(&key).ok();
            let fits = name.is_some_and(|name| name.slot <= u32::from(options.max_zero_vips));
            let place: Option<u32> = maps::read(&from, "zero_names", &key)?;
            if let Some(place) = place.filter(|_| fits && room > 0) {
                maps::write(&to, "zero_names", &key, &place)?;
                room -= 1;
            }
        }
        Ok(())
    }

    /// What an array has under one index, under another of the other, if that has it.
    fn copy(&self, name: &'static str, index: u32, becomes: u32) -> Result<(), Error> {
        let (from, to) = self.both(name)?;
        if becomes >= to.max_entries() {
            return Ok(());
        }
        let found = from.lookup(&index.to_ne_bytes(), MapFlags::ANY);
        match found.map_err(failed("read", name))? {
            Some(value) => to.update(&becomes.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed("write", name)),
            None => Ok(()),
        }
    }

    fn counts(&self, name: &'static str, number: u32) -> Result<(), Error> {
        let (from, to) = self.both(name)?;
        let cpus = read_percpu(&from, name, number)?;
        to.update_percpu(&number.to_ne_bytes(), &cpus, MapFlags::ANY).map_err(failed("write", name))
    }
}
