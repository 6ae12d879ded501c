//! The agents that are connected: one connection per name.

use std::{
    collections::HashMap,
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Agent;
use crate::wire::{AgentName, RunId};

#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    by_name: HashMap<AgentName, Connection>,
    last: u64,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    run: RunId,
    address: SocketAddr,
    stream: TcpStream,
}

/// The entry of one connection, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    registry: Arc<Registry>,
    name: AgentName,
    number: u64,
    /// Whether the agent had another connection, which was shut down.
    pub(super) has_replaced: bool,
}

impl Registry {
    /// Registers an agent, unless another agent has its name. An agent that connects again has lost its former
    /// connection, which is shut down and replaced.
    ///
    /// # Errors
    ///
    /// Why the agent is refused, for its user to read.
    pub(super) fn register(self: &Arc<Registry>, agent: &Agent, stream: TcpStream) -> Result<Registration, String> {
        let mut connections = self.connections();
        let has_replaced = match connections.by_name.get(&agent.name) {
            Some(connection) if connection.run != agent.run => {
                return Err(format!(
                    "an agent named '{}' is already connected, from {}: give one of them another --name",
                    agent.name, connection.address
                ));
            }
            Some(connection) => {
                let _ = connection.stream.shutdown(Shutdown::Both);
                true
            }
            None => false,
        };
        connections.last += 1;
        let number = connections.last;
        let connection = Connection { number, run: agent.run, address: agent.address, stream };
        connections.by_name.insert(agent.name.clone(), connection);
        Ok(Registration { registry: Arc::clone(self), name: agent.name.clone(), number, has_replaced })
    }

    /// Number of connected agents.
    pub(super) fn len(&self) -> usize {
        self.connections().by_name.len()
    }

    /// Shuts down all connections.
    pub(super) fn disconnect_all(&self) {
        for connection in self.connections().by_name.values() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Ends it. False if the agent has connected again meanwhile: that connection keeps the entry.
    pub(super) fn end(self) -> bool {
        self.remove()
    }

    fn remove(&self) -> bool {
        let mut connections = self.registry.connections();
        let connection = connections.by_name.get(&self.name);
        let is_own = connection.is_some_and(|connection| connection.number == self.number);
        if is_own {
            connections.by_name.remove(&self.name);
        }
        is_own
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.remove();
    }
}
