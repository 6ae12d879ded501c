//! What the times and interface numbers of records mean.

use std::{borrow::Cow, collections::BTreeMap};

use crate::Clock;

/// Where records come from: how to read their times and interface numbers.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Its clock.
    pub clock: Clock,
    /// Its interfaces.
    pub interfaces: Interfaces,
}

/// Names of a source's interfaces.
#[derive(Debug, Clone, Default)]
pub struct Interfaces {
    names: BTreeMap<u32, String>,
    unknown: bool,
}

impl Interfaces {
    /// For a source that does not say on which interface it saw a packet, such
    /// as a classic pcap file: no number is ever shown.
    pub fn unknown() -> Interfaces {
        Interfaces { names: BTreeMap::new(), unknown: true }
    }

    /// Gives a number its name; a later one replaces it. Costs no memory where
    /// it has that name.
    pub fn insert(&mut self, number: u32, name: &str) {
        if self.names.get(&number).is_none_or(|known| known != name) {
            self.names.insert(number, name.to_owned());
        }
    }

    /// The name of an interface, its number where it has no name, and `None`
    /// where the source knows no interfaces.
    pub fn label(&self, number: u32) -> Option<Cow<'_, str>> {
        match self.names.get(&number) {
            Some(name) => Some(Cow::Borrowed(name)),
            None if self.unknown => None,
            None => Some(Cow::Owned(number.to_string())),
        }
    }

    /// True if more than one interface was named, so that a reader has to be
    /// told which.
    pub fn several(&self) -> bool {
        self.names.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_its_name_or_else_its_number_or_else_unknown() {
        let mut interfaces = Interfaces::default();
        interfaces.insert(3, "eth0");
        assert_eq!(interfaces.label(3).as_deref(), Some("eth0"));
        assert_eq!(interfaces.label(4).as_deref(), Some("4"));
        assert!(!interfaces.several());
        interfaces.insert(3, "eth3");
        assert_eq!(interfaces.label(3).as_deref(), Some("eth3"));
        interfaces.insert(4, "eth1");
        assert!(interfaces.several());
        assert_eq!(Interfaces::unknown().label(0), None);
    }
}
