//! Migration from one data plane to another whose maps have other sizes: VIPs, backends, tables, connection IDs and
//! counts are copied. Connections are not, since their slots belong to the old table.

use dwell_engine::abi;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Error,
    balancer::{
        maps,
        options::{PlaneOptions, TABLES_PER_VIP},
    },
    vantage::{failed, read_percpu},
};

/// The maps to copy from and to, by name.
pub(super) struct Migration<From, To> {
    pub from: From,
    pub to: To,
}

impl<From, To> Migration<From, To>
where
    From: Fn(&str) -> Result<MapHandle, Error>,
    To: Fn(&str) -> Result<MapHandle, Error>,
{
    fn both(&self, name: &str) -> Result<(MapHandle, MapHandle), Error> {
        Ok(((self.from)(name)?, (self.to)(name)?))
    }

    /// Copies everything that fits. Numbers beyond the new sizes are left behind.
    pub fn all(&self, options: &PlaneOptions) -> Result<(), Error> {
        let numbers = self.vips(options.max_vips)?;
        self.tables(&numbers, options.max_vips)?;
        self.reals(options.max_reals)?;
        self.zero_vips(options)?;
        for number in numbers {
            self.counts("vip_counts", number)?;
        }
        self.counts("counters", 0)
    }

    /// Copies the VIPs. Returns the numbers of those that have a table.
    fn vips(&self, max: u32) -> Result<Vec<u32>, Error> {
        let (from, to) = self.both("vips")?;
        let mut numbers = Vec::new();
        for (key, vip) in maps::vips(&from)? {
            // Entries for ICMP have number 0.
            if vip.number <= max {
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

    /// Hands over the tables themselves, without copying them: those of VIPs, and what their entries had recently. Those
    /// of equal weights are made anew.
    fn tables(&self, numbers: &[u32], distance: u32) -> Result<(), Error> {
        let (from, to) = self.both("tables")?;
        let old_distance = (from.max_entries() - 1) / TABLES_PER_VIP;
        let kinds = std::iter::once(0).chain(2..TABLES_PER_VIP);
        let all: Vec<(u32, u32)> = kinds
            .flat_map(|kind| numbers.iter().map(move |number| (number + kind * old_distance, number + kind * distance)))
            .collect();
        for some in all.chunks(maps::SWAP_BATCH) {
            let mut tables = Vec::new();
            for (old, new) in some {
                let id: Option<u32> = maps::read(&from, "tables", &old.to_ne_bytes())?;
                if let Some(id) = id {
                    let table = MapHandle::from_map_id(id).map_err(failed("read", "tables"))?;
                    tables.push((*new, table));
                }
            }
            maps::swap(&to, &tables.iter().map(|(number, table)| (*number, table)).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn reals(&self, max: u32) -> Result<(), Error> {
        let (from, to) = self.both("reals")?;
        for number in 1..=max.min(from.max_entries() - 1) {
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

    /// Copies how packets are routed by connection ID. Tables of heavy hitters get new numbers, since there may be
    /// fewer of them; a server without one is still routed to.
    fn zero_vips(&self, options: &PlaneOptions) -> Result<(), Error> {
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
                    self.copy("zero_numbers", server.real, server.real)?;
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

    /// Copies an element of an array to a new index of the other array, if that is large enough.
    fn copy(&self, name: &'static str, index: u32, new_index: u32) -> Result<(), Error> {
        let (from, to) = self.both(name)?;
        if new_index >= to.max_entries() {
            return Ok(());
        }
        let found = from.lookup(&index.to_ne_bytes(), MapFlags::ANY);
        match found.map_err(failed("read", name))? {
            Some(value) => to.update(&new_index.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed("write", name)),
            None => Ok(()),
        }
    }

    fn counts(&self, name: &'static str, number: u32) -> Result<(), Error> {
        let (from, to) = self.both(name)?;
        let cpus = read_percpu(&from, name, number)?;
        to.update_percpu(&number.to_ne_bytes(), &cpus, MapFlags::ANY).map_err(failed("write", name))
    }
}
