//! Who is here: one connection a name.

use std::{
    collections::HashMap,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Agent;
use crate::wire::{AgentName, Run};

/// Agents that may be here at once: each has a thread.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    by_name: HashMap<AgentName, Holder>,
    last: u64,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    run: Run,
    address: std::net::SocketAddr,
    stream: TcpStream,
}

/// A place, which is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    name: AgentName,
    number: u64,
}

impl Seats {
    /// A seat of this name, unless another agent has it. An agent that comes again has lost its
    /// former connection, which is ended.
    pub(super) fn take(self: &Arc<Seats>, agent: &Agent, stream: TcpStream) -> Result<Seat, String> {
        let mut taken = self.taken_seats();
        match taken.by_name.get(&agent.name) {
            Some(holder) if holder.run != agent.run => {
                return Err(format!(
                    "an agent named '{}' is here already, from {}: give one of them another \
                     --name",
                    agent.name, holder.address
                ));
            }
            Some(holder) => {
                let _ = holder.stream.shutdown(Shutdown::Both);
            }
            None if taken.by_name.len() >= MOST => {
                return Err(format!("{MOST} agents are here already"));
            }
            None => {}
        }
        taken.last += 1;
        let number = taken.last;
        let holder = Holder { number, run: agent.run, address: agent.address, stream };
        taken.by_name.insert(agent.name.clone(), holder);
        Ok(Seat { seats: Arc::clone(self), name: agent.name.clone(), number })
    }

    /// How many there are.
    pub(super) fn taken(&self) -> usize {
        self.taken_seats().by_name.len()
    }

    /// Ends all connections.
    pub(super) fn clear(&self) {
        for holder in self.taken_seats().by_name.values() {
            let _ = holder.stream.shutdown(Shutdown::Both);
        }
    }

    fn taken_seats(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken_seats();
        let holder = taken.by_name.get(&self.name);
        // Not if the agent has come again meanwhile.
        if holder.is_some_and(|holder| holder.number == self.number) {
            taken.by_name.remove(&self.name);
        }
    }
}
