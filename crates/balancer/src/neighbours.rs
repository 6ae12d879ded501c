//! The next hops of backends: a thread looks them up in the kernel again and again, and reports changes. The balancer needs
//! them, and backends that send packets on to each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use dwell_probes::balancer::{NextHop, NextHops};
use nix::errno::Errno;

/// The time after which a known next hop is looked up again.
const REFRESH: Duration = Duration::from_secs(5);
/// With many addresses, the refresh takes this time for each: a lookup takes a tenth of a millisecond.
pub const PER_ADDRESS: Duration = Duration::from_millis(2);
/// The number of lookups between two reports.
const BATCH: usize = 256;
/// The delay after the first failure: most neighbours answer sooner.
const FIRST_RETRY: Duration = Duration::from_millis(10);
/// The delay after the second failure in a row. It grows with each further failure.
const RETRY: Duration = Duration::from_millis(200);
/// The number of failures in a row after which a neighbour is gone: about three seconds, the time for which the kernel
/// itself asks for it.
const MAX_FAILURES: u32 = 7;
/// The longest delay between two lookups after failures.
const MAX_RETRY: Duration = Duration::from_secs(2);
/// The discard port (RFC 863). No answer is needed: sending to it makes the kernel resolve the neighbour.
const DISCARD_PORT: u16 = 9;

/// The next hop to an address, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopUpdate {
    /// The address.
    pub address: IpAddr,
    /// The next hop.
    pub hop: Result<NextHop, String>,
    /// Whether a next hop known before is invalid: there is no route, no interface, or the neighbour stays silent. If
    /// not, it may only be unresolved for the moment.
    pub is_gone: bool,
}

/// Looks up next hops until it is dropped.
#[derive(Debug)]
pub struct Neighbours {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    addresses: BTreeMap<IpAddr, Lookup>,
    /// When each of them is due.
    due: BTreeSet<(Instant, IpAddr)>,
    stopping: bool,
}

#[derive(Debug, Clone)]
struct Lookup {
    due: Instant,
    failures: u32,
    /// The last update that was reported.
    last: Option<HopUpdate>,
}

impl Neighbours {
    /// Starts the thread, which sends updates as long as somebody receives them.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(updates: Sender<HopUpdate>) -> io::Result<Neighbours> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        thread::Builder::new().name("neighbours".into()).spawn(move || run(&for_thread, &updates))?;
        Ok(Neighbours { shared })
    }

    /// Replaces the addresses to look up.
    pub fn set(&self, addresses: &BTreeSet<IpAddr>) {
        let mut wanted = self.shared.wanted();
        let Wanted { addresses: known, due, .. } = &mut *wanted;
        known.retain(|address, lookup| {
            let stays = addresses.contains(address);
            if !stays {
                due.remove(&(lookup.due, *address));
            }
            stays
        });
        let now = Instant::now();
        for address in addresses {
            known.entry(*address).or_insert_with(|| {
                due.insert((now, *address));
                Lookup { due: now, failures: 0, last: None }
            });
        }
        drop(wanted);
        self.shared.changed.notify_all();
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.shared.wanted().stopping = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(shared: &Shared, updates: &Sender<HopUpdate>) {
    let mut wanted = shared.wanted();
    while !wanted.stopping {
        let now = Instant::now();
        let due = wanted.due.iter().take_while(|(due, _)| *due <= now).take(BATCH);
        let due: Vec<IpAddr> = due.map(|(_, address)| *address).collect();
        let refresh = REFRESH.max(PER_ADDRESS * wanted.addresses.len() as u32);
        if due.is_empty() {
            let wait = wanted.due.first().map_or(MAX_RETRY, |(next, _)| next.saturating_duration_since(now));
            wanted = shared
                .changed
                .wait_timeout(wanted, wait.max(Duration::from_millis(1)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            continue;
        }
        drop(wanted);
        let mut lookups = Lookups::default();
        let answers: Vec<_> = due.into_iter().map(|address| (address, lookups.next_hop(address))).collect();
        wanted = shared.wanted();
        let Wanted { addresses, due, .. } = &mut *wanted;
        for (address, answer) in answers {
            let Some(lookup) = addresses.get_mut(&address) else {
                continue;
            };
            due.remove(&(lookup.due, address));
            let update = lookup.apply(address, answer, refresh);
            due.insert((lookup.due, address));
            if let Some(update) = update
                && updates.send(update).is_err()
            {
                return;
            }
        }
    }
}

impl Lookup {
    /// Applies the result of a lookup. Returns the update to report, if any.
    fn apply(
        &mut self,
        address: IpAddr,
        answer: Result<NextHop, LookupFailure>,
        refresh: Duration,
    ) -> Option<HopUpdate> {
        self.failures = if answer.is_ok() { 0 } else { self.failures + 1 };
        let wait = match (&answer, self.failures) {
            (Ok(_), _) => refresh,
            (Err(_), 1) => FIRST_RETRY,
            (Err(_), failures) => (RETRY * (failures - 1)).min(MAX_RETRY),
        };
        self.due = Instant::now() + wait;
        let is_gone = match &answer {
            Ok(_) => false,
            Err(failure) => match failure.kind {
                FailureKind::NoRoute => true,
                FailureKind::Silent => self.failures >= MAX_FAILURES,
                FailureKind::Host => false,
            },
        };
        // The first lookup makes the kernel resolve the neighbour, which may take longer than until the second, so that their
        // failures mean nothing.
        if answer.is_err() && self.failures <= 2 && !is_gone {
            return None;
        }
        let update = HopUpdate { address, hop: answer.map_err(|failure| failure.message), is_gone };
        if self.last.as_ref() == Some(&update) {
            return None;
        }
        self.last = Some(update.clone());
        Some(update)
    }
}

/// Why a lookup failed.
#[derive(Debug)]
struct LookupFailure {
    message: String,
    kind: FailureKind,
}

#[derive(Debug, Clone, Copy)]
enum FailureKind {
    /// There is no route, or no interface.
    NoRoute,
    /// There is a route, but the neighbour does not answer.
    Silent,
    /// The lookup itself failed, which says nothing about the backend.
    Host,
}

impl FailureKind {
    fn of(io: &io::Error) -> FailureKind {
        use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
        // The standard library has no kind for it.
        const NO_DEVICE: i32 = Errno::ENODEV as i32;
        match (io.kind(), io.raw_os_error()) {
            (NetworkUnreachable | HostUnreachable | NetworkDown, _) => FailureKind::NoRoute,
            (_, Some(NO_DEVICE)) => FailureKind::NoRoute,
            (_, Some(_)) => FailureKind::Host,
            (_, None) => FailureKind::Silent,
        }
    }
}

/// Lookups at one moment, with the sockets that they share.
#[derive(Default)]
struct Lookups {
    hops: Option<NextHops>,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Lookups {
    fn next_hop(&mut self, address: IpAddr) -> Result<NextHop, LookupFailure> {
        // Makes the kernel keep the neighbour, and notice when its MAC address changes.
        let nudged = self.nudge(address);
        let found = match opened(&mut self.hops, NextHops::open) {
            Ok(hops) => hops.find(address),
            Err(io) => Err(dwell_probes::Error::NextHop { to: address, io }),
        };
        found.map_err(|error| {
            let (kind, cause) = match &error {
                dwell_probes::Error::NextHop { io, .. } => (FailureKind::of(io), io.raw_os_error()),
                _ => (FailureKind::Host, None),
            };
            let message = match nudged {
                Err(io) if cause.is_none() || io.raw_os_error() != cause => format!("{error} ({io})"),
                _ => error.to_string(),
            };
            LookupFailure { kind, message }
        })
    }

    fn nudge(&mut self, address: IpAddr) -> io::Result<()> {
        let socket = match address {
            IpAddr::V4(_) => opened(&mut self.v4, || discarding(Ipv4Addr::UNSPECIFIED)),
            IpAddr::V6(_) => opened(&mut self.v6, || discarding(Ipv6Addr::UNSPECIFIED)),
        };
        socket?.send_to(&[], (address, DISCARD_PORT)).map(drop)
    }
}

/// Returns a socket that does not wait for room: datagrams to neighbours that do not answer fill it for seconds.
fn discarding(own: impl Into<IpAddr>) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((own.into(), 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns what was opened before, or opens it.
fn opened<T>(before: &mut Option<T>, open: impl FnOnce() -> io::Result<T>) -> io::Result<&mut T> {
    match before {
        Some(opened) => Ok(opened),
        none => Ok(none.insert(open()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKEND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn silent() -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, "its MAC address is not known")
    }

    /// The updates that follow from lookup results: whether there is a next hop, and whether it is gone.
    fn updates(answers: Vec<Result<(), io::Error>>) -> Vec<Option<(bool, bool)>> {
        let mut lookup = Lookup { due: Instant::now(), failures: 0, last: None };
        let hop = NextHop { interface: 1, destination: Default::default(), source: Default::default(), mtu: 1500 };
        let apply = |answer: Result<(), io::Error>| {
            let answer = answer
                .map(|()| hop)
                .map_err(|io| LookupFailure { message: io.to_string(), kind: FailureKind::of(&io) });
            let update = lookup.apply(BACKEND, answer, REFRESH)?;
            Some((update.hop.is_ok(), update.is_gone))
        };
        answers.into_iter().map(apply).collect()
    }

    #[test]
    fn a_silent_neighbour_is_gone_after_some_failures() {
        let mut answers = vec![Ok(())];
        answers.extend((0..8).map(|_| Err(silent())));
        answers.push(Ok(()));
        let (reachable, uncertain, gone) = (Some((true, false)), Some((false, false)), Some((false, true)));
        assert_eq!(updates(answers), [reachable, None, None, uncertain, None, None, None, gone, None, reachable]);
    }

    #[test]
    fn a_removed_route_is_gone_at_once_and_a_failing_host_proves_nothing() {
        let (reachable, gone) = (Some((true, false)), Some((false, true)));
        for number in [Errno::ENODEV, Errno::ENETDOWN, Errno::ENETUNREACH, Errno::EHOSTUNREACH] {
            let answers = vec![Ok(()), Err(number.into()), Ok(())];
            assert_eq!(updates(answers), [reachable, gone, reachable], "{number}");
        }
        let unable = (0..20).map(|_| Err(Errno::EMFILE.into()));
        let updates = updates(unable.collect());
        assert!(updates.iter().flatten().all(|(_, is_gone)| !is_gone));
    }
}
