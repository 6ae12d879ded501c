//! The ways to backends: a thread asks the kernel for each, again and again, and tells what changed.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use dwell_probes::balancer::{NextHop, Plane};
use nix::errno::Errno;

/// What is known is asked for again after this time.
const REFRESH: Duration = Duration::from_secs(5);
/// Or, of many, so much later for each: asking for one takes a tenth of a millisecond.
pub(super) const ONE: Duration = Duration::from_millis(2);
/// So many are asked for before what is known is told.
const AT_ONCE: usize = 256;
/// And what is not known after this.
const RETRY: Duration = Duration::from_millis(200);
/// A neighbour that did not answer so many tries in a row is gone: some three seconds, as long as the
/// kernel itself asks for one.
const GONE: u32 = 6;
/// Longest time between two tries.
const SLOW_RETRY: Duration = Duration::from_secs(2);
/// Nobody answers there (RFC 863), which is all that is wanted: the kernel has to look for the
/// neighbour to send it.
const DISCARD: u16 = 9;

/// The way to an address, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub address: IpAddr,
    pub hop: Result<NextHop, String>,
    /// Whether the way that was known is worth nothing any more: there is no route, no interface, or
    /// the neighbour stays silent. Else it may only be asked for again.
    pub is_gone: bool,
}

/// Looks while it lives.
#[derive(Debug)]
pub(super) struct Neighbours {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    addresses: BTreeMap<IpAddr, Look>,
    stopping: bool,
}

#[derive(Debug, Clone)]
struct Look {
    due: Instant,
    tries: u32,
    /// What was told.
    last: Option<Found>,
}

impl Neighbours {
    pub(super) fn start(found: Sender<Found>) -> io::Result<Neighbours> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        thread::Builder::new().name("neighbours".into()).spawn(move || look(&for_thread, &found))?;
        Ok(Neighbours { shared })
    }

    /// Looks for these from now on, and no others.
    pub(super) fn set(&self, addresses: Vec<IpAddr>) {
        let mut wanted = self.shared.wanted();
        let mut before = std::mem::take(&mut wanted.addresses);
        for address in addresses {
            let new = Look { due: Instant::now(), tries: 0, last: None };
            let look = before.remove(&address).unwrap_or(new);
            wanted.addresses.insert(address, look);
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

fn look(shared: &Shared, found: &Sender<Found>) {
    let mut wanted = shared.wanted();
    while !wanted.stopping {
        let now = Instant::now();
        let due: Vec<IpAddr> = wanted
            .addresses
            .iter()
            .filter(|(_, look)| look.due <= now)
            .map(|(address, _)| *address)
            .take(AT_ONCE)
            .collect();
        let refresh = REFRESH.max(ONE * wanted.addresses.len() as u32);
        if due.is_empty() {
            let next = wanted.addresses.values().map(|look| look.due).min();
            let wait = next.map_or(SLOW_RETRY, |next| next.saturating_duration_since(now));
            wanted = shared
                .changed
                .wait_timeout(wanted, wait.max(Duration::from_millis(1)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            continue;
        }
        drop(wanted);
        let answers: Vec<_> = due.into_iter().map(|address| (address, ask(address))).collect();
        wanted = shared.wanted();
        for (address, answer) in answers {
            let Some(look) = wanted.addresses.get_mut(&address) else {
                continue;
            };
            if let Some(news) = look.note(address, answer, refresh)
                && found.send(news).is_err()
            {
                return;
            }
        }
    }
}

impl Look {
    /// Takes an answer; what is to be told of it.
    fn note(&mut self, address: IpAddr, answer: Result<NextHop, Failed>, refresh: Duration) -> Option<Found> {
        self.tries = if answer.is_ok() { 0 } else { self.tries + 1 };
        let wait = match &answer {
            Ok(_) => refresh,
            Err(_) => (RETRY * self.tries).min(SLOW_RETRY),
        };
        self.due = Instant::now() + wait;
        let is_gone = match &answer {
            Ok(_) => false,
            Err(failed) => match failed.why {
                Why::NoRoute => true,
                Why::Silent => self.tries >= GONE,
                Why::Host => false,
            },
        };
        // The first look is what makes a neighbour known: its failure tells nothing.
        if answer.is_err() && self.tries == 1 && !is_gone {
            return None;
        }
        let found = Found { address, hop: answer.map_err(|failed| failed.says), is_gone };
        if self.last.as_ref() == Some(&found) {
            return None;
        }
        self.last = Some(found.clone());
        Some(found)
    }
}

/// Why no way is known.
#[derive(Debug)]
struct Failed {
    says: String,
    why: Why,
}

#[derive(Debug, Clone, Copy)]
enum Why {
    /// There is no route, or no interface.
    NoRoute,
    /// There is a route, but nobody there who takes packets.
    Silent,
    /// This host could not find out: that says nothing of the way.
    Host,
}

impl Why {
    fn of(io: &io::Error) -> Why {
        use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
        // It has no kind of its own.
        const NO_DEVICE: i32 = Errno::ENODEV as i32;
        match (io.kind(), io.raw_os_error()) {
            (NetworkUnreachable | HostUnreachable | NetworkDown, _) => Why::NoRoute,
            (_, Some(NO_DEVICE)) => Why::NoRoute,
            (_, Some(_)) => Why::Host,
            (_, None) => Why::Silent,
        }
    }
}

fn ask(address: IpAddr) -> Result<NextHop, Failed> {
    // So that the kernel keeps the neighbour, and hears when it has another address.
    let nudged = nudge(address);
    Plane::next_hop(address).map_err(|error| Failed {
        why: match &error {
            dwell_probes::Error::NextHop { io, .. } => Why::of(io),
            _ => Why::Host,
        },
        says: match nudged {
            Err(io) => format!("{error} ({io})"),
            Ok(()) => error.to_string(),
        },
    })
}

fn nudge(address: IpAddr) -> io::Result<()> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.send_to(&[], (address, DISCARD)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn silent() -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, "its MAC address is not known")
    }

    /// What is told of answers, in their order: whether there is a way, and whether it is gone.
    fn told(answers: Vec<Result<(), io::Error>>) -> Vec<Option<(bool, bool)>> {
        let mut look = Look { due: Instant::now(), tries: 0, last: None };
        let hop = NextHop { interface: 1, destination: Default::default(), source: Default::default(), mtu: 1500 };
        let note = |answer: Result<(), io::Error>| {
            let answer = answer.map(|()| hop).map_err(|io| Failed { says: io.to_string(), why: Why::of(&io) });
            let found = look.note(THERE, answer, REFRESH)?;
            Some((found.hop.is_ok(), found.is_gone))
        };
        answers.into_iter().map(note).collect()
    }

    #[test]
    fn a_silent_neighbour_is_gone_after_some_tries() {
        let mut answers = vec![Ok(())];
        answers.extend((0..7).map(|_| Err(silent())));
        answers.push(Ok(()));
        let (way, doubt, gone) = (Some((true, false)), Some((false, false)), Some((false, true)));
        assert_eq!(told(answers), [way, None, doubt, None, None, None, gone, None, way]);
    }

    #[test]
    fn a_route_that_goes_is_gone_at_once_and_an_unable_host_says_nothing() {
        let (way, gone) = (Some((true, false)), Some((false, true)));
        for number in [Errno::ENODEV, Errno::ENETDOWN, Errno::ENETUNREACH, Errno::EHOSTUNREACH] {
            let answers = vec![Ok(()), Err(number.into()), Ok(())];
            assert_eq!(told(answers), [way, gone, way], "{number}");
        }
        let unable = (0..20).map(|_| Err(Errno::EMFILE.into()));
        let told = told(unable.collect());
        assert!(told.iter().flatten().all(|(_, is_gone)| !is_gone));
    }
}
