//! What is kept in memory of each host: its number, and the names that its agent uses.

use std::collections::{HashMap, HashSet};

use dwell_fleet::wire::MAX_COUNTERS;

/// Names of hosts that are known at most, some 200 bytes each.
const MAX_HOSTS: usize = 1 << 16;
/// Names of hooks that no other host used before, of one host at most, however often its agent comes again.
const MAX_HOOKS: u32 = 256;
/// Names of hooks in a store at most, of at most 256 bytes each. Kernels have some hundred.
const MAX_STORED_HOOKS: usize = 4_096;

/// A host whose agent left this long ago may be forgotten: nothing of it waits any more.
const FORGET_NS: u64 = 10 * 60 * 1_000_000_000;

/// Numbers for the names of hosts, and what their agents named.
#[derive(Debug, Default)]
pub struct Hosts {
    /// Empty where a host was forgotten.
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Numbers of hosts that were forgotten.
    free: Vec<u32>,
    /// Hosts without an agent, and since when.
    left: HashMap<u32, u64>,
    /// The latest counters of each host whose agent is connected.
    counters: HashMap<u32, Counters>,
    /// Names of hooks that the store has.
    hooks: HashSet<String>,
    /// How many of them each host was the first to use.
    first_hooks: HashMap<u32, u32>,
    /// Hosts whose agent is expected to report its first interval after one that was killed, and when that was found, in Unix time.
    awaited: HashMap<u32, i64>,
}

/// Counters that an agent has named in this connection, and their last values.
type Counters = HashMap<String, u64>;

/// What a counter's value is to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterValue {
    Changed,
    Same,
    /// The agent has too many counters.
    Excess,
}

impl Hosts {
    /// Returns the number of a name, which is given to it now if it has none.
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.names.len() as u32);
        match self.names.get_mut(number as usize) {
            Some(free) => name.clone_into(free),
            None => self.names.push(name.to_owned()),
        }
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Returns the name of a number.
    pub fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// Makes another name of a host's.
    #[cfg(test)]
    pub fn rename(&mut self, number: u32, name: &str) {
        name.clone_into(&mut self.names[number as usize]);
    }

    /// Returns false for a new name when there are too many already, and nothing can be forgotten. Calls `forget` with the
    /// number and the name of each that is.
    pub fn may_come(&mut self, name: &str, now_ns: u64, mut forget: impl FnMut(u32, &str)) -> bool {
        if self.numbers.len() < MAX_HOSTS || self.numbers.contains_key(name) {
            return true;
        }
        let is_old = |since_ns: &u64| now_ns.saturating_sub(*since_ns) > FORGET_NS;
        for (number, _) in self.left.extract_if(|_, since_ns| is_old(since_ns)) {
            let name = std::mem::take(&mut self.names[number as usize]);
            self.numbers.remove(&name);
            self.free.push(number);
            self.first_hooks.remove(&number);
            self.awaited.remove(&number);
            forget(number, &name);
        }
        self.numbers.len() < MAX_HOSTS
    }

    /// Returns whether a host's agent is there.
    pub fn is_connected(&self, name: &str) -> bool {
        self.numbers.get(name).is_some_and(|number| !self.left.contains_key(number))
    }

    /// Notes that a host's agent is there.
    pub fn arrive(&mut self, name: &str) {
        let number = self.number(name);
        self.left.remove(&number);
    }

    /// Notes the value of a host's counter.
    pub fn note_counter(&mut self, host: u32, counter: &str, value: u64) -> CounterValue {
        let counters = self.counters.entry(host).or_default();
        if let Some(last) = counters.get_mut(counter) {
            let is_same = *last == value;
            *last = value;
            return if is_same { CounterValue::Same } else { CounterValue::Changed };
        }
        if counters.len() >= MAX_COUNTERS {
            return CounterValue::Excess;
        }
        counters.insert(counter.to_owned(), value);
        CounterValue::Changed
    }

    /// Adds the names of hooks that a store has from before.
    pub fn add_hooks(&mut self, hooks: impl IntoIterator<Item = String>) {
        self.hooks.extend(hooks);
    }

    /// Notes the name of a hook. Returns false if it is new, and the host, or all of them, have brought too many.
    pub fn note_hook(&mut self, host: u32, hook: &str) -> bool {
        if self.hooks.contains(hook) {
            return true;
        }
        let first = self.first_hooks.entry(host).or_default();
        if *first >= MAX_HOOKS || self.hooks.len() >= MAX_STORED_HOOKS {
            return false;
        }
        *first += 1;
        self.hooks.insert(hook.to_owned())
    }

    /// Notes that the first interval of a host's agent ends what one that was killed has lost, which was found at a time.
    pub fn await_interval(&mut self, name: &str, found_ns: i64) {
        let number = self.number(name);
        self.awaited.insert(number, found_ns);
    }

    /// Returns this time once.
    pub fn take_awaited(&mut self, name: &str) -> Option<i64> {
        if self.awaited.is_empty() { None } else { self.awaited.remove(self.numbers.get(name)?) }
    }

    /// Notes that a host has no agent any more, and forgets its counters.
    pub fn leave(&mut self, host: &str, now_ns: u64) {
        let number = self.number(host);
        self.counters.remove(&number);
        self.left.insert(number, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_keeps_no_more_names_than_its_quota() {
        let mut hosts = Hosts::default();
        let (web, db) = (hosts.number("web"), hosts.number("db"));
        for number in 0..MAX_COUNTERS {
            assert_eq!(hosts.note_counter(web, &number.to_string(), 1), CounterValue::Changed);
        }
        assert_eq!(hosts.note_counter(web, "one more", 1), CounterValue::Excess);
        assert_eq!(hosts.note_counter(web, "0", 1), CounterValue::Same);
        assert_eq!(hosts.note_counter(web, "0", 2), CounterValue::Changed);
        // Others have their own.
        assert_eq!(hosts.note_counter(db, "one more", 1), CounterValue::Changed);
        hosts.leave("web", 0);
        assert_eq!(hosts.counters.len(), 1);
        assert_eq!(hosts.number("web"), web);
    }

    #[test]
    fn an_agent_that_comes_again_and_again_brings_no_more_hooks_and_all_together_no_more_than_a_store_takes() {
        let mut hosts = Hosts::default();
        hosts.add_hooks(["before".to_owned()]);
        let web = hosts.number("web");
        let new_names = |hosts: &mut Hosts, host: u32, connection: u32| {
            let names = (0..MAX_HOOKS).filter(|number| hosts.note_hook(host, &format!("{host} {connection} {number}")));
            names.count()
        };
        assert_eq!(new_names(&mut hosts, web, 1), MAX_HOOKS as usize);
        hosts.leave("web", 0);
        hosts.arrive("web");
        assert_eq!(new_names(&mut hosts, web, 2), 0);
        // What the store has anyway costs nothing.
        assert!(hosts.note_hook(web, "before") && hosts.note_hook(web, &format!("{web} 1 0")));
        for number in 1..40 {
            let other = hosts.number(&number.to_string());
            new_names(&mut hosts, other, 1);
        }
        assert_eq!(hosts.hooks.len(), MAX_STORED_HOOKS);
        assert!(hosts.note_hook(web, "before"));
    }

    #[test]
    fn names_of_hosts_have_a_bound_and_old_ones_are_forgotten() {
        let may_come = |hosts: &mut Hosts, name, now_ns| hosts.may_come(name, now_ns, |_, _| {});
        let mut hosts = Hosts::default();
        (0..MAX_HOSTS).for_each(|number| hosts.arrive(&number.to_string()));
        assert!(may_come(&mut hosts, "0", 0) && !may_come(&mut hosts, "one more", 0));
        let number = hosts.number("5");
        hosts.leave("5", 1_000);
        assert!(!may_come(&mut hosts, "one more", FORGET_NS), "bytes of it may wait");
        hosts.leave("6", 2_000);
        hosts.arrive("6");
        assert!(may_come(&mut hosts, "one more", FORGET_NS + 1_001));
        hosts.arrive("one more");
        assert_eq!((hosts.number("one more"), hosts.name(number)), (number, "one more"));
        assert!(!may_come(&mut hosts, "5", FORGET_NS * 9) && may_come(&mut hosts, "6", FORGET_NS * 9));
    }
}
