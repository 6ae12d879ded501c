//! Units of systemd and containers, with the numbers by which rows of the table stand for them.

use std::{collections::HashMap, sync::Arc};

use dwell_socket::names::Names;

/// Units that are kept apart; processes of others have none.
const MAX_UNITS: usize = 16_384;

/// Units by number.
#[derive(Debug, Default)]
pub struct Units {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Units {
    /// Returns the number of a process's unit.
    pub fn of(&mut self, names: &Names, pid: u32) -> Option<u32> {
        self.number(names.unit(pid)?)
    }

    /// Returns the number of a unit, which is always the same.
    pub fn number(&mut self, unit: &Arc<str>) -> Option<u32> {
        if let Some(number) = self.numbers.get(unit) {
            return Some(*number);
        }
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < MAX_UNITS)?;
        self.names.push(Arc::clone(unit));
        self.numbers.insert(Arc::clone(unit), number);
        Some(number)
    }

    /// Returns the name of a unit.
    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(number as usize)
    }
}
