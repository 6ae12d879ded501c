//! Who is not let in, and how many may try at once.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv6Addr, Shutdown, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::wire::FrameError;

/// Connections of which nothing is known yet. For one more the oldest goes.
const MOST: usize = 128;
/// Of one address, or one network of IPv6, so that one host cannot keep all others out.
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
    trying: Mutex<Trying>,
    strangers: AtomicU64,
    garbage: AtomicU64,
    slow: AtomicU64,
    crowd: AtomicU64,
    names: AtomicU64,
}

/// In the order in which they came.
#[derive(Debug, Default)]
struct Trying {
    all: BTreeMap<u64, (IpAddr, TcpStream)>,
    last: u64,
}

/// Leave to say who one is. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    number: u64,
}

impl Gate {
    /// Leave to try, if not too many of there do already. `stream` is ended if it has to go for
    /// another.
    pub(super) fn enter(self: &Arc<Gate>, address: IpAddr, stream: TcpStream) -> Option<Pass> {
        let of = network(address);
        let mut trying = self.trying();
        if trying.all.values().filter(|(it, _)| *it == of).count() >= MOST_OF_ONE {
            self.crowd.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if trying.all.len() >= MOST
            && let Some((_, (_, oldest))) = trying.all.pop_first()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        trying.last += 1;
        let number = trying.last;
        trying.all.insert(number, (of, stream));
        Some(Pass { gate: Arc::clone(self), number })
    }

    /// Counts who did not get as far as a hello.
    pub(super) fn refuse(&self, pass: &Pass, error: &FrameError) {
        let counter = match error {
            // It had to go.
            _ if !self.trying().all.contains_key(&pass.number) => &self.crowd,
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

    fn trying(&self) -> MutexGuard<'_, Trying> {
        self.trying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.trying().all.remove(&self.number);
    }
}

/// Whose an address is: of IPv6 a host may have all of a network of 64 bits (RFC 4291, section
/// 2.5.4).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// It speaks TLS, and cannot show what we want to see.
fn is_stranger(io: &io::Error) -> bool {
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::PeerIncompatible(_)))
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    /// Our side of a connection, and the other.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, there)
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn one_address_cannot_keep_others_out() {
        let (stream, _there) = connection();
        let gate = Arc::new(Gate::default());
        let enter = |address| gate.enter(address, stream.try_clone().unwrap());
        let mut held: Vec<_> = (0..MOST_OF_ONE).map(|_| enter(v4(1)).unwrap()).collect();
        assert!(enter(v4(1)).is_none());
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert!(enter(mapped).is_none(), "by IPv6 it is the same");
        assert!(enter(v4(2)).is_some());
        held.pop();
        assert!(enter(v4(1)).is_some(), "the pass was given back");
        assert_eq!(gate.refusals().crowd, 2);
        drop(held);
        assert!(gate.trying().all.is_empty());
    }

    #[test]
    fn all_addresses_of_a_network_are_one_host() {
        let (stream, _there) = connection();
        let gate = Arc::new(Gate::default());
        let enter = |address: String| {
            let address = address.parse().unwrap();
            gate.enter(address, stream.try_clone().unwrap())
        };
        let of_one = |host| enter(format!("2001:db8:0:1:{host:x}::{host:x}"));
        let held: Vec<_> = (0..100).map_while(of_one).collect();
        assert_eq!(held.len(), MOST_OF_ONE);
        assert!(enter("2001:db8:0:2::1".into()).is_some());
    }

    #[test]
    fn where_there_is_no_room_the_oldest_goes() {
        let (stream, _there) = connection();
        let gate = Arc::new(Gate::default());
        let (ours, mut oldest) = connection();
        let first = gate.enter(v4(1), ours).unwrap();
        let others = (2..=255).flat_map(|last| [last; MOST_OF_ONE]);
        let others = others.map(|last| gate.enter(v4(last), stream.try_clone().unwrap()));
        let held: Vec<_> = others.take(MOST - 1).map(Option::unwrap).collect();
        assert_eq!(gate.trying().all.len(), MOST);
        let (ours, _late) = connection();
        let _late = gate.enter(v4(1), ours).unwrap();
        assert_eq!(gate.trying().all.len(), MOST);
        assert_eq!(oldest.read(&mut [0]).unwrap(), 0, "it was ended");
        gate.refuse(&first, &FrameError::End);
        gate.refuse(&held[0], &FrameError::End);
        let refusals = gate.refusals();
        assert_eq!((refusals.crowd, refusals.garbage), (1, 1));
    }
}
