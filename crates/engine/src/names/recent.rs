//! A map that forgets what was put in longest ago.

use std::{collections::HashMap, hash::Hash, mem};

/// A map in bounded memory. Entries are forgotten half of the bound at a time, the oldest first.
#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
    forgotten: u64,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Creates a map that holds at most `most` entries, at least 2.
    pub fn new(most: usize) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), half: (most / 2).max(1), forgotten: 0 }
    }

    /// Puts an entry in, in place of an older one with its key.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            let oldest = mem::replace(&mut self.old, mem::take(&mut self.young));
            self.forgotten += oldest.len() as u64;
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Returns the number of entries that were forgotten.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_are_kept_and_those_forgotten_are_counted() {
        let mut map = Recent::new(100);
        (0..1000).for_each(|n| map.insert(n, n));
        assert!((950..1000).all(|n| map.get(&n) == Some(&n)));
        let kept = (0..1000).filter(|n| map.get(n).is_some()).count();
        assert!((50..=100).contains(&kept), "{kept}");
        assert_eq!(map.forgotten(), 1000 - kept as u64);
    }

    #[test]
    fn a_later_value_replaces_one_of_either_half() {
        let mut map = Recent::new(4);
        for (key, value) in [(1, 'a'), (2, 'b'), (3, 'c'), (1, 'd'), (1, 'e')] {
            map.insert(key, value);
        }
        assert_eq!((map.get(&1), map.get(&2), map.get(&3)), (Some(&'e'), Some(&'b'), Some(&'c')));
        assert_eq!(map.forgotten(), 0);
    }
}
