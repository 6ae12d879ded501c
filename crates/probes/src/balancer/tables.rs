//! The tables of VIPs: the Maglev table, and those that lie behind it.

use std::collections::BTreeMap;

use dwell_engine::abi;
use zerocopy::IntoBytes;

use super::{maps, plane::Plane};
use crate::{Error, load};

/// How many backends are kept that an entry of a VIP's table had recently, the one that it has now among them.
pub const RECENT: usize = abi::DWELL_RECENT as usize;

impl Plane {
    /// Replaces the Maglev table of a VIP: `entries[i]` is the number of a backend. The new table is filled before it
    /// is swapped in atomically.
    ///
    /// # Errors
    ///
    /// If a number exceeds the options.
    pub fn set_table(&mut self, vip: u32, entries: &[u32]) -> Result<(), Error> {
        self.set_tables(&[(vip, entries)])
    }

    /// Replaces the Maglev tables of several VIPs, each named once. The kernel waits for its CPUs once for hundreds of
    /// tables, not for each. After an error, some VIPs may have their new tables, and others a part of the old ones:
    /// set them again.
    ///
    /// # Errors
    ///
    /// If a number exceeds the options, or there is no memory for a table.
    pub fn set_tables(&mut self, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        for (vip, entries) in tables {
            self.check("VIP", *vip, self.options().max_vips)?;
            self.check_reals(entries)?;
        }
        tables.chunks(maps::SWAP_BATCH).try_for_each(|some| self.swap(some))
    }

    fn swap(&mut self, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        let with_entries = tables.iter().filter(|(_, entries)| !entries.is_empty());
        let made = maps::maglevs(&with_entries.copied().collect::<Vec<_>>())?;
        let made: Vec<_> = made.iter().map(|(vip, table)| (*vip, table)).collect();
        let sizes = tables.iter().map(|(vip, entries)| (*vip, entries.len() as u32));
        let sizes: BTreeMap<u32, u32> = sizes.collect();
        // At any moment, no size exceeds its table.
        let shrunk = self.resize(&sizes, |old, new| new < old);
        let swapped = shrunk.and_then(|()| maps::swap(&self.map("tables"), &made));
        for (vip, size) in &sizes {
            let known = self.sizes.entry(*vip).or_default();
            // The smaller size fits both tables.
            *known = match swapped {
                Ok(()) => *size,
                Err(_) => *size.min(known),
            };
        }
        swapped.and_then(|()| self.resize(&sizes, |old, new| new != old))
    }

    /// Replaces VIPs' tables of equal weights, by the VIPs' numbers. They count while the data plane is stale, if it was
    /// renewed with [`WhenStale::Equal`]. Each must be as long as the VIP's own table; an empty one removes it.
    ///
    /// # Errors
    ///
    /// If a number exceeds the options, or there is no memory for a table.
    pub fn set_equal_tables(&mut self, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        tables.iter().try_for_each(|(_, entries)| self.check_most(entries))?;
        self.set_tables_behind(1, tables)
    }

    /// Replaces what the entries of VIPs' tables had recently, by the VIPs' numbers: there, packets of unknown connections
    /// find further backends. 0 stands for none; an empty table is removed.
    ///
    /// # Errors
    ///
    /// If a number exceeds the options, or there is no memory for a table.
    pub fn set_recent_tables(&mut self, recent: &[(u32, &[[u32; RECENT]])]) -> Result<(), Error> {
        let flat: Vec<(u32, &[u32])> = recent.iter().map(|(vip, entries)| (*vip, entries.as_flattened())).collect();
        for (_, entries) in &flat {
            self.check_most(entries)?;
        }
        self.set_tables_behind(2, &flat)
    }

    /// Replaces the lists of the backends among which new connections choose, by the numbers of VIPs:
    /// [`members`](balance::members). An empty one is removed.
    ///
    /// # Errors
    ///
    /// If a number exceeds the options, or there is no memory for a list.
    pub fn set_members(&mut self, lists: &[(u32, &[u32])]) -> Result<(), Error> {
        self.set_tables_behind(abi::DWELL_MEMBERS_KIND, lists)
    }

    /// Returns what the entries of a VIP's table had recently, as it was set, and some zeros behind.
    ///
    /// # Errors
    ///
    /// If a map cannot be read.
    pub fn recent_table(&mut self, vip: u32) -> Result<Vec<[u32; RECENT]>, Error> {
        let number = vip + 2 * self.options().max_vips;
        Ok(maps::read_maglev(&self.map("tables"), number)?.as_chunks().0.to_vec())
    }

    /// Replaces tables of VIPs of a kind that lies behind those of all VIPs. An empty one is removed.
    fn set_tables_behind(&mut self, kind: u32, tables: &[(u32, &[u32])]) -> Result<(), Error> {
        tables.iter().try_for_each(|(vip, _)| self.check("VIP", *vip, self.options().max_vips))?;
        let distance = kind * self.options().max_vips;
        let at = tables.iter().map(|(vip, entries)| (vip + distance, *entries));
        let (filled, empty): (Vec<_>, Vec<_>) = at.partition(|(_, entries)| !entries.is_empty());
        for some in filled.chunks(maps::SWAP_BATCH) {
            let made = maps::maglevs(some)?;
            let made: Vec<_> = made.iter().map(|(number, table)| (*number, table)).collect();
            maps::swap(&self.map("tables"), &made)?;
        }
        self.remove_tables(&empty.iter().map(|(number, _)| *number).collect::<Vec<_>>())
    }

    /// Removes tables by the numbers that they have in the map of tables.
    pub(super) fn remove_tables(&mut self, numbers: &[u32]) -> Result<(), Error> {
        maps::remove(&load::map(&mut self.object, "tables"), numbers, &mut self.zeros)
    }

    // These are not inlined where code is built to be small: tables have millions of entries.
    #[inline(never)]
    pub(super) fn check_reals(&self, reals: &[u32]) -> Result<(), Error> {
        if reals.iter().fold(u32::MAX, |least, real| least.min(*real)) == 0 {
            self.check("backend", 0, self.options().max_reals)?;
        }
        self.check_most(reals)
    }

    /// Checks that no number exceeds the options; 0 stands for none.
    #[inline(never)]
    fn check_most(&self, reals: &[u32]) -> Result<(), Error> {
        match reals.iter().fold(0, |most, real| most.max(*real)) {
            0 => Ok(()),
            most => self.check("backend", most, self.options().max_reals),
        }
    }

    /// Writes the sizes of tables to the keys of their VIPs, where `is_due` for the old and the new size.
    fn resize(&mut self, sizes: &BTreeMap<u32, u32>, is_due: impl Fn(u32, u32) -> bool) -> Result<(), Error> {
        let map = load::map(&mut self.object, "vips");
        for (key, entry) in &mut self.vips {
            let Some(size) = sizes.get(&entry.vip.number).copied() else {
                continue;
            };
            if is_due(entry.size, size) {
                let vip = entry.vip.to_core(size);
                maps::write(&map, "vips", key.to_core().as_bytes(), &vip)?;
                entry.size = size;
            }
        }
        Ok(())
    }
}
