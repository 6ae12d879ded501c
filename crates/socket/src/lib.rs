//! TCP sockets watched from user space.
//!
//! - `table`: memory that dwell shares with the processes that it runs, where libdwell writes what it finds.
//! - `inside`: what libdwell does in these processes. [`Session`] is for a program that watches its own sockets.
//! - `outside`: what netlink tells of the sockets of other processes.
//! - `clock`, `deadline`, `acceptor`: what every part of dwell that has sockets of its own needs. The part that runs in
//!   the processes of others uses the clock only.

pub mod acceptor;
mod api;
pub mod clock;
pub mod deadline;
pub mod inside;
pub mod outside;
mod sys;
pub mod table;

use dwell_engine::socket::Account;

pub use api::{Bound, Error, Info, Session, Socket};

/// Something that watches sockets.
pub trait Watch {
    /// Why it cannot go on.
    type Error;

    /// Tells each socket that it watches, or has watched since the last visit; those that have ended for the last
    /// time.
    fn visit(&mut self, each: &mut dyn FnMut(&Account)) -> Result<(), Self::Error>;
}
