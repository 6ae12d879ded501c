//! Units of systemd, containers and pods of Kubernetes, with the numbers by which rows of the table stand for them.

use std::{collections::HashMap, sync::Arc};

use dwell_engine::{layers::Ends, names::Pod};
use dwell_socket::names::Names;

/// Units that are kept apart; processes of others have none.
const MAX_UNITS: usize = 16_384;

/// Units by number.
#[derive(Debug, Default)]
pub struct Units {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// Those that are pods, without their containers.
    pods: HashMap<u32, Arc<Pod>>,
}

impl Units {
    /// Returns the number of the unit of a flow's process, which is its pod if it is in one.
    pub fn of(&mut self, names: &Names, pid: u32, flow: &Ends) -> Option<u32> {
        match names.pod(pid, flow) {
            Some(pod) => self.of_pod(pod),
            None => self.number(names.unit(pid, flow)?),
        }
    }

    /// Returns the number of a pod. All containers of it have the same.
    pub fn of_pod(&mut self, pod: &Arc<Pod>) -> Option<u32> {
        let number = self.number(&pod.uid)?;
        // The kubelet may make the folder that names it only later.
        if self.pods.get(&number).is_none_or(|known| known.name != pod.name) {
            self.pods.insert(number, Arc::new(Pod { container: None, ..(**pod).clone() }));
        }
        Some(number)
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

    /// Returns the name of a unit; `None` of a pod.
    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(number as usize).filter(|_| !self.pods.contains_key(&number))
    }

    /// Returns a pod, without its containers.
    pub fn pod(&self, number: u32) -> Option<&Arc<Pod>> {
        self.pods.get(&number)
    }
}
