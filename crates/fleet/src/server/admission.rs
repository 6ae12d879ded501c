//! Admission of connections: limits on those that have not authenticated yet, and counts of those that were refused.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv6Addr, Shutdown, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use super::Limits;
use crate::wire::FrameError;

/// Maximum number of unauthenticated connections from one IPv4 address or one IPv6 /64, so that one host cannot keep all
/// others out.
const MAX_PENDING_PER_HOST: usize = 16;

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The peer has neither the shared key nor a trusted certificate.
    Stranger,
    /// The peer sent something other than TLS or a valid message, possibly after it had been admitted.
    Garbage,
    /// The peer speaks no version of the protocol that this dwell speaks.
    Version,
    /// The peer did not authenticate in time.
    Slow,
    /// The connection is beyond the limit on unauthenticated ones, in total or per host.
    Crowd,
    /// Another connected agent has the agent's name.
    Name,
    /// The agent's key or certificate is not that of its name, or is not accepted any more.
    Impostor,
    /// There was no connection left for the agent.
    Capacity,
    /// The handler did not admit the agent: it is overloaded, ends, or knows too many names.
    Busy,
}

impl Refusal {
    const ALL: [(Refusal, &str); 9] = [
        (Refusal::Stranger, "stranger"),
        (Refusal::Garbage, "garbage"),
        (Refusal::Version, "version"),
        (Refusal::Slow, "slow"),
        (Refusal::Crowd, "crowd"),
        (Refusal::Name, "name"),
        (Refusal::Impostor, "impostor"),
        (Refusal::Capacity, "capacity"),
        (Refusal::Busy, "busy"),
    ];
}

/// Numbers of refused connections, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// Returns how many connections were refused for this reason.
    pub fn get(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// Returns each count with the name of its reason, as metrics and the store use it.
    pub fn by_reason(&self) -> [(&'static str, u64); Refusal::ALL.len()] {
        Refusal::ALL.map(|(reason, name)| (name, self.get(reason)))
    }
}

#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    pending: Mutex<Pending>,
    /// Connections that have authenticated and are served by a thread.
    sessions: AtomicUsize,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// Unauthenticated connections, in the order of their arrival.
#[derive(Debug, Default)]
struct Pending {
    by_number: BTreeMap<u64, (IpAddr, TcpStream)>,
    last: u64,
}

/// Permission of one connection to authenticate. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    number: u64,
}

/// Permission of one connection to stay after it has authenticated. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct SessionPermit(Arc<Admission>);

impl Admission {
    pub(super) fn new(limits: Limits) -> Admission {
        Admission { limits, pending: Mutex::default(), sessions: AtomicUsize::new(0), refused: Default::default() }
    }

    /// Lets an authenticated connection stay, unless there are too many: all that have a thread count, whatever their
    /// names are.
    pub(super) fn begin_session(self: &Arc<Admission>) -> Option<SessionPermit> {
        let most = self.limits.connections;
        let more = |sessions| (sessions < most).then_some(sessions + 1);
        match self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Some(SessionPermit(Arc::clone(self))),
            Err(_) => {
                self.count(Refusal::Capacity);
                None
            }
        }
    }

    /// Admits a connection to authentication, unless its host has too many already. `stream` is shut down if a later
    /// connection displaces this one.
    pub(super) fn enter(self: &Arc<Admission>, address: IpAddr, stream: TcpStream) -> Option<Permit> {
        let host = peer_host(address);
        let mut pending = self.pending();
        if pending.by_number.values().filter(|(other, _)| *other == host).count() >= MAX_PENDING_PER_HOST {
            self.count(Refusal::Crowd);
            return None;
        }
        if pending.by_number.len() >= self.limits.unauthenticated
            && let Some((_, (_, oldest))) = pending.by_number.pop_first()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        pending.last += 1;
        let number = pending.last;
        pending.by_number.insert(number, (host, stream));
        Some(Permit { admission: Arc::clone(self), number })
    }

    /// Counts a connection that failed before its hello.
    pub(super) fn count_failure(&self, permit: &Permit, error: &FrameError) {
        self.count(match error {
            // A later connection displaced it.
            _ if !self.pending().by_number.contains_key(&permit.number) => Refusal::Crowd,
            FrameError::Io(io) if io.kind() == io::ErrorKind::TimedOut => Refusal::Slow,
            FrameError::NoVersion | FrameError::Version(_) => Refusal::Version,
            FrameError::Unauthenticated(_) => Refusal::Stranger,
            FrameError::Io(io) if is_incompatible(io) => Refusal::Stranger,
            _ => Refusal::Garbage,
        });
    }

    pub(super) fn count(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refusals(&self) -> Refusals {
        Refusals(self.refused.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.pending().by_number.remove(&self.number);
    }
}

/// Identifies the host of an address. An IPv6 host may own a whole /64 (RFC 4291, section 2.5.4), which counts as one
/// host.
pub fn peer_host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Whether a peer that speaks TLS offers no credentials that we accept.
fn is_incompatible(io: &io::Error) -> bool {
    let tls = io.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(tls, Some(rustls::Error::PeerIncompatible(_)))
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    /// The accepted and the connecting end of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, peer)
    }

    const MAX_PENDING: usize = 128;

    #[test]
    fn each_reason_has_its_own_name_and_count() {
        let admission = Admission::new(Limits::default());
        for (number, (reason, name)) in Refusal::ALL.into_iter().enumerate() {
            (0..=number).for_each(|_| admission.count(reason));
            assert_eq!(admission.refusals().by_reason()[number], (name, number as u64 + 1));
        }
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn one_address_cannot_keep_others_out() {
        let (stream, _peer) = connection();
        let admission = Arc::new(Admission::new(Limits::default()));
        let enter = |address| admission.enter(address, stream.try_clone().unwrap());
        let mut held: Vec<_> = (0..MAX_PENDING_PER_HOST).map(|_| enter(v4(1)).unwrap()).collect();
        assert!(enter(v4(1)).is_none());
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert!(enter(mapped).is_none(), "an IPv4-mapped address is the same host");
        assert!(enter(v4(2)).is_some());
        held.pop();
        assert!(enter(v4(1)).is_some(), "the permit was returned");
        assert_eq!(admission.refusals().get(Refusal::Crowd), 2);
        drop(held);
        assert!(admission.pending().by_number.is_empty());
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one_host() {
        let (stream, _peer) = connection();
        let admission = Arc::new(Admission::new(Limits::default()));
        let enter = |address: String| {
            let address = address.parse().unwrap();
            admission.enter(address, stream.try_clone().unwrap())
        };
        let same_network = |number| enter(format!("2001:db8:0:1:{number:x}::{number:x}"));
        let held: Vec<_> = (0..100).map_while(same_network).collect();
        assert_eq!(held.len(), MAX_PENDING_PER_HOST);
        assert!(enter("2001:db8:0:2::1".into()).is_some());
    }

    #[test]
    fn a_connection_beyond_the_limit_displaces_the_oldest() {
        let (stream, _peer) = connection();
        let admission = Arc::new(Admission::new(Limits::default()));
        let (ours, mut oldest) = connection();
        let first = admission.enter(v4(1), ours).unwrap();
        let others = (2..=255).flat_map(|last| [last; MAX_PENDING_PER_HOST]);
        let others = others.map(|last| admission.enter(v4(last), stream.try_clone().unwrap()));
        let held: Vec<_> = others.take(MAX_PENDING - 1).map(Option::unwrap).collect();
        assert_eq!(admission.pending().by_number.len(), MAX_PENDING);
        let (ours, _late) = connection();
        let _late = admission.enter(v4(1), ours).unwrap();
        assert_eq!(admission.pending().by_number.len(), MAX_PENDING);
        assert_eq!(oldest.read(&mut [0]).unwrap(), 0, "it was shut down");
        admission.count_failure(&first, &FrameError::End);
        admission.count_failure(&held[0], &FrameError::End);
        let refusals = admission.refusals();
        assert_eq!((refusals.get(Refusal::Crowd), refusals.get(Refusal::Garbage)), (1, 1));
    }
}
