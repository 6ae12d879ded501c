//! What is kept in memory of each host: its number, and the names that its agent uses.

use std::collections::{HashMap, HashSet};

use dwell_fleet::wire::MAX_COUNTERS;

/// Names of hosts that are known at most, some 200 bytes each.
const MAX_HOSTS: usize = 1 << 16;
/// Names of hooks of one host at most.
const MAX_HOOKS: usize = 256;

/// Numbers for the names of hosts, and what their agents named.
#[derive(Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Of hosts whose agent is connected.
    by_number: HashMap<u32, AgentNames>,
}

/// Names that an agent has used in this connection.
#[derive(Debug, Default)]
struct AgentNames {
    /// Counters and their last values.
    counters: HashMap<String, u64>,
    hooks: HashSet<String>,
}

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
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Returns the name of a number.
    pub fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// Returns false for a new name when there are too many already.
    pub fn may_come(&self, name: &str) -> bool {
        self.names.len() < MAX_HOSTS || self.numbers.contains_key(name)
    }

    /// Notes the value of a host's counter.
    pub fn note_counter(&mut self, host: u32, counter: &str, value: u64) -> CounterValue {
        let counters = &mut self.by_number.entry(host).or_default().counters;
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

    /// Notes the name of a hook. Returns false if the host has too many others.
    pub fn note_hook(&mut self, host: u32, hook: &str) -> bool {
        let hooks = &mut self.by_number.entry(host).or_default().hooks;
        hooks.contains(hook) || hooks.len() < MAX_HOOKS && hooks.insert(hook.to_owned())
    }

    /// Forgets the names of an agent that has left, but for the host's own.
    pub fn leave(&mut self, host: &str) {
        if let Some(number) = self.numbers.get(host) {
            self.by_number.remove(number);
        }
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
            assert!(hosts.note_hook(web, &number.to_string()));
        }
        assert_eq!(hosts.note_counter(web, "one more", 1), CounterValue::Excess);
        assert!(!hosts.note_hook(web, "one more"));
        assert_eq!(hosts.note_counter(web, "0", 1), CounterValue::Same);
        assert_eq!(hosts.note_counter(web, "0", 2), CounterValue::Changed);
        assert!(hosts.note_hook(web, "0"));
        // Others have their own.
        assert_eq!(hosts.note_counter(db, "one more", 1), CounterValue::Changed);
        hosts.leave("web");
        assert_eq!(hosts.by_number.len(), 1);
        assert_eq!(hosts.number("web"), web);
    }

    #[test]
    fn names_of_hosts_have_a_bound() {
        let mut hosts = Hosts::default();
        (0..MAX_HOSTS).for_each(|number| {
            hosts.number(&number.to_string());
        });
        assert!(hosts.may_come("0") && !hosts.may_come("one more"));
    }
}
