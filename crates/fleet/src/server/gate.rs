//! Who is not let in, and how many may try at once.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::wire::FrameError;

/// Connections of which nothing is known yet.
const MOST: usize = 128;
/// Of one address, so that one host cannot keep all others out.
const MOST_OF_ONE: usize = 16;

/// Connections that were refused, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals {
    /// Without our key, or a certificate that we trust.
    pub strangers: u64,
    /// They spoke no TLS, or no message of ours.
    pub garbage: u64,
    /// They did not say who they are in time.
    pub slow: u64,
    /// Too many tried at once, of all or of one address.
    pub crowd: u64,
    /// Their name is that of another agent that is here.
    pub names: u64,
}

impl Refusals {
    /// Each reason with its name.
    pub fn by_reason(&self) -> [(&'static str, u64); 5] {
        [
            ("stranger", self.strangers),
            ("garbage", self.garbage),
            ("slow", self.slow),
            ("crowd", self.crowd),
            ("name", self.names),
        ]
    }
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    trying: Mutex<HashMap<IpAddr, usize>>,
    strangers: AtomicU64,
    garbage: AtomicU64,
    slow: AtomicU64,
    crowd: AtomicU64,
    names: AtomicU64,
}

/// Leave to say who one is. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    /// Leave to try, if not too many do already.
    pub(super) fn enter(self: &Arc<Gate>, address: IpAddr) -> Option<Pass> {
        let mut trying = self.trying();
        let all: usize = trying.values().sum();
        let of_one = trying.entry(address).or_default();
        if all >= MOST || *of_one >= MOST_OF_ONE {
            if *of_one == 0 {
                trying.remove(&address);
            }
            self.crowd.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *of_one += 1;
        Some(Pass {
            gate: Arc::clone(self),
            address,
        })
    }

    /// Counts who did not get as far as a hello.
    pub(super) fn refuse(&self, error: &FrameError) {
        let counter = match error {
            FrameError::Io(io) if io.kind() == io::ErrorKind::TimedOut => &self.slow,
            FrameError::Stranger(_) => &self.strangers,
            FrameError::Io(io) if is_stranger(io) => &self.strangers,
            _ => &self.garbage,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts who has the name of another.
    pub(super) fn refuse_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refusals(&self) -> Refusals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Refusals {
            strangers: read(&self.strangers),
            garbage: read(&self.garbage),
            slow: read(&self.slow),
            crowd: read(&self.crowd),
            names: read(&self.names),
        }
    }

    fn trying(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.trying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut trying = self.gate.trying();
        if let Some(of_one) = trying.get_mut(&self.address) {
            *of_one -= 1;
            if *of_one == 0 {
                trying.remove(&self.address);
            }
        }
    }
}

/// It speaks TLS, and cannot show what we want to see.
fn is_stranger(io: &io::Error) -> bool {
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::PeerIncompatible(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_keep_others_out() {
        let gate = Arc::new(Gate::default());
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let mut held: Vec<_> = (0..MOST_OF_ONE)
            .map(|_| gate.enter(address(1)).unwrap())
            .collect();
        assert!(gate.enter(address(1)).is_none());
        assert!(gate.enter(address(2)).is_some());
        held.pop();
        assert!(gate.enter(address(1)).is_some(), "the pass was given back");
        assert_eq!(gate.refusals().crowd, 1);

        let others = (2..).flat_map(|last| vec![last; MOST_OF_ONE]);
        let passes: Vec<_> = others.map_while(|last| gate.enter(address(last))).collect();
        assert_eq!(passes.len() + held.len(), MOST);
        drop((passes, held));
        assert!(gate.trying().is_empty());
    }
}
