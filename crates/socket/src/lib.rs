//! TCP sockets, watched from user space.
//!
//! - `table`: memory that dwell shares with the processes that it runs; libdwell publishes its measurements there.
//! - `inside`: the code that libdwell runs in these processes. [`Session`] is for a program that watches its own
//!   sockets.
//! - `outside`: reports of netlink about the sockets of other processes.
//! - `names`: names of processes, services and hosts for the ends of a flow.
//! - `library`: where the libraries are that are loaded into programs.
//! - `privilege`: capabilities that a thread gives up.
//! - `clock`, `deadline`, `acceptor`: for every part of dwell that has sockets of its own. Of these, code that runs in
//!   the processes of others uses only the clock.

pub mod acceptor;
mod api;
pub mod clock;
pub mod deadline;
pub mod inside;
mod library;
pub mod names;
pub mod outside;
pub mod privilege;
mod sys;
pub mod table;

use dwell_engine::socket::Account;

pub use api::{Bound, Error, Info, Session, Socket};
pub use library::{PRELOADED, library};

/// A source of measurements of sockets.
pub trait Watch {
    /// Error that ends the measurement.
    type Error;

    /// Calls `each` with every socket that is watched, or was watched since the last call; with one that has ended for
    /// the last time.
    fn visit(&mut self, each: &mut dyn FnMut(&Account)) -> Result<(), Self::Error>;
}
