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

/// What is known is asked for again after this time.
const REFRESH: Duration = Duration::from_secs(5);
/// Or, of many, so much later for each: asking for one takes a tenth of a millisecond.
pub(super) const ONE: Duration = Duration::from_millis(2);
/// So many are asked for before what is known is told.
const AT_ONCE: usize = 256;
/// And what is not known after this.
const RETRY: Duration = Duration::from_millis(200);
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
    last: Option<Result<NextHop, String>>,
}

impl Neighbours {
    pub(super) fn start(found: Sender<Found>) -> io::Result<Neighbours> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("neighbours".into())
            .spawn(move || look(&for_thread, &found))?;
        Ok(Neighbours { shared })
    }

    /// Looks for these from now on, and no others.
    pub(super) fn set(&self, addresses: Vec<IpAddr>) {
        let mut wanted = self.shared.wanted();
        let mut before = std::mem::take(&mut wanted.addresses);
        for address in addresses {
            let new = Look {
                due: Instant::now(),
                tries: 0,
                last: None,
            };
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
        let answers: Vec<Found> = due.into_iter().map(ask).collect();
        wanted = shared.wanted();
        for Found { address, hop } in answers {
            let Some(look) = wanted.addresses.get_mut(&address) else {
                continue;
            };
            look.tries = if hop.is_ok() { 0 } else { look.tries + 1 };
            let wait = match &hop {
                Ok(_) => refresh,
                Err(_) => (RETRY * look.tries).min(SLOW_RETRY),
            };
            look.due = Instant::now() + wait;
            // The first look is what makes a neighbour known: its failure tells nothing.
            let is_first_failure = hop.is_err() && look.tries == 1;
            if look.last.as_ref() != Some(&hop) && !is_first_failure {
                look.last = Some(hop.clone());
                if found.send(Found { address, hop }).is_err() {
                    return;
                }
            }
        }
    }
}

fn ask(address: IpAddr) -> Found {
    // So that the kernel keeps the neighbour, and hears when it has another address.
    let nudged = nudge(address);
    let hop = Plane::next_hop(address).map_err(|error| match nudged {
        Err(io) => format!("{error} ({io})"),
        Ok(()) => error.to_string(),
    });
    Found { address, hop }
}

fn nudge(address: IpAddr) -> io::Result<()> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.send_to(&[], (address, DISCARD)).map(drop)
}
