//! How to interpret the times and interface numbers of records.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use dwell_engine::{
    measure::{Endpoint, Protocol},
    names::{FlowNames, NameFlows},
    rtt::Prefixes,
};

use crate::Clock;

/// The source of records: its clock, its host and its interfaces.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// The clock of all times in records.
    pub clock: Clock,
    /// The name of the host that was measured; `None` for captures.
    pub host: Option<String>,
    /// The names of interfaces.
    pub interfaces: Interfaces,
    /// The names of prefixes.
    pub prefixes: Prefixes,
    /// What knows the names of flows. `None` where none are to be shown.
    pub names: Option<Arc<dyn NameFlows>>,
}

impl Source {
    /// Returns the names and the label of a flow; `None` if none are to be shown.
    pub fn names(&self, src: &Endpoint, dst: &Endpoint, protocol: Protocol) -> Option<FlowNames> {
        Some(self.names.as_ref()?.names(src, dst, protocol))
    }
}

/// Names of a source's interfaces.
#[derive(Debug, Clone, Default)]
pub struct Interfaces {
    names: BTreeMap<u32, String>,
    unknown: bool,
}

impl Interfaces {
    /// Creates the interfaces of a source that does not record them, such as a classic pcap file: every label is
    /// unknown.
    pub fn unknown() -> Interfaces {
        Interfaces { names: BTreeMap::new(), unknown: true }
    }

    /// Names an interface; a later name replaces it. Nothing is allocated if it already has that name.
    pub fn insert(&mut self, number: u32, name: &str) {
        if self.names.get(&number).is_none_or(|known| known != name) {
            self.names.insert(number, name.to_owned());
        }
    }

    /// Returns the name of an interface, or its number if it has no name; `None` where the source records no
    /// interfaces.
    pub fn label(&self, number: u32) -> Option<Cow<'_, str>> {
        match self.names.get(&number) {
            Some(name) => Some(Cow::Borrowed(name)),
            None if self.unknown => None,
            None => Some(Cow::Owned(number.to_string())),
        }
    }

    /// Returns true if more than one interface has a name, so that lines must say which one they are about.
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
