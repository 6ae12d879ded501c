//! Which backends the entries of a VIP's table had most recently, for connections that began at another balancer when the
//! table was another one.

use dwell_probes::balancer::RECENT;

/// The backends that each entry of a table had most recently, the newest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// Numbers of backends; 0 where there was no other one.
    entries: Vec<[u32; RECENT]>,
    is_changed: bool,
}

/// The most that the kernel has behind the last entry: its tables are made of chunks.
const CHUNK: usize = 64;

impl Recent {
    /// Goes on with what the kernel has for a table of this size.
    pub(super) fn inherit(mut entries: Vec<[u32; RECENT]>, size: u32) -> Recent {
        let size = size as usize;
        if !(size..size + CHUNK).contains(&entries.len()) {
            return Recent::default();
        }
        entries.truncate(size);
        Recent { entries, is_changed: false }
    }

    pub(super) fn entries(&self) -> &[[u32; RECENT]] {
        &self.entries
    }

    /// Notes the backends of a table that counts, or soon will. A table of another size is the first.
    pub(super) fn add(&mut self, table: &[u32]) {
        if table.is_empty() {
            return;
        }
        if self.entries.len() != table.len() {
            self.entries = vec![[0; RECENT]; table.len()];
        }
        for (entry, real) in self.entries.iter_mut().zip(table) {
            if entry[0] != *real {
                let until = entry.iter().position(|had| [0, *real].contains(had)).unwrap_or(RECENT - 1);
                entry[..=until].rotate_right(1);
                entry[0] = *real;
                self.is_changed = true;
            }
        }
    }

    /// Notes the backends of a table that counted before all that have been noted, where there is room.
    pub(super) fn add_older(&mut self, table: &[u32]) {
        if self.entries.is_empty() {
            return self.add(table);
        }
        if self.entries.len() != table.len() {
            return;
        }
        for (entry, real) in self.entries.iter_mut().zip(table) {
            let end = entry.iter_mut().find(|had| [0, *real].contains(*had));
            if let Some(free) = end.filter(|had| **had == 0) {
                *free = *real;
                self.is_changed = true;
            }
        }
    }

    /// Gives backends other numbers: 0 forgets one, and those that get the same number are one.
    pub(super) fn rename(&mut self, new: impl Fn(u32) -> u32) {
        for entry in &mut self.entries {
            let mut renamed = [0; RECENT];
            let mut count = 0;
            for real in entry.iter().filter(|real| **real != 0).map(|real| new(*real)) {
                if real != 0 && !renamed.contains(&real) {
                    renamed[count] = real;
                    count += 1;
                }
            }
            self.is_changed |= renamed != *entry;
            *entry = renamed;
        }
    }

    /// Forgets backends, as others may get their numbers. `reals` must be in ascending order.
    pub(super) fn forget(&mut self, reals: &[u32]) {
        self.rename(|had| if reals.binary_search(&had).is_ok() { 0 } else { had });
    }

    /// Returns whether anything has changed since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_last_backends_however_often_it_goes_to_and_fro() {
        let mut recent = Recent::default();
        recent.add(&[1, 7]);
        assert!(recent.take_change());
        for _ in 0..9 {
            recent.add(&[2, 7]);
            recent.add(&[1, 7]);
        }
        assert!(recent.take_change());
        recent.add(&[1, 7]);
        assert!(!recent.take_change());
        assert_eq!(recent.entries(), [[1, 2, 0, 0], [7, 0, 0, 0]]);
        for real in [3, 4, 2] {
            recent.add(&[real, 7]);
        }
        assert_eq!(recent.entries()[0], [2, 4, 3, 1]);
        recent.add(&[5, 7]);
        assert_eq!(recent.entries()[0], [5, 2, 4, 3], "the oldest is forgotten");
        recent.add(&[]);
        recent.add(&[1, 2, 3]);
        assert_eq!(recent.entries()[2], [3, 0, 0, 0]);
    }

    #[test]
    fn a_backend_that_is_forgotten_or_has_another_number_leaves_no_gap() {
        let mut recent = Recent::default();
        for real in [1, 2, 3, 4] {
            recent.add(&[real]);
        }
        recent.take_change();
        recent.forget(&[9]);
        assert!(!recent.take_change());
        recent.forget(&[3]);
        assert_eq!((recent.entries()[0], recent.take_change()), ([4, 2, 1, 0], true));
        recent.rename(|real| if real == 1 { 4 } else { real });
        assert_eq!(recent.entries()[0], [4, 2, 0, 0], "two numbers of one backend");
    }

    #[test]
    fn older_tables_fill_what_room_there_is() {
        let mut recent = Recent::default();
        for table in [[1, 7], [2, 7], [1, 8], [3, 7], [4, 7], [5, 7]] {
            recent.add_older(&table);
        }
        assert_eq!(recent.entries(), [[1, 2, 3, 4], [7, 8, 0, 0]]);
        recent.add_older(&[9, 9, 9]);
        assert_eq!(recent.entries().len(), 2);
    }

    #[test]
    fn what_the_kernel_has_is_gone_on_with_if_it_is_as_long() {
        let kernel = vec![[1, 2, 0, 0]; 64];
        assert!(Recent::inherit(kernel.clone(), 65).entries().is_empty());
        assert!(Recent::inherit(vec![[1, 2, 0, 0]; 128], 64).entries().is_empty());
        let mut recent = Recent::inherit(kernel, 3);
        assert_eq!(recent.entries(), [[1, 2, 0, 0]; 3]);
        recent.add(&[1, 2, 4]);
        assert_eq!(recent.entries(), [[1, 2, 0, 0], [2, 1, 0, 0], [4, 1, 2, 0]]);
    }
}
