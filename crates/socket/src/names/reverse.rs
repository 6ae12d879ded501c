//! Names of addresses by reverse look-ups, if the user asks for them: this is all of names that sends anything.
//!
//! The system's resolver is asked, as by other programs of this host, in threads of their own. What asks for a name gets it, or
//! nothing, at once. A name is what the owner of an address's reverse zone says, and nothing ties it to a service.
#![allow(unsafe_code)]

use std::{
    collections::VecDeque,
    ffi::CStr,
    net::{IpAddr, SocketAddr},
    ptr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use dwell_engine::names::{Recent, is_host_name};
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

use super::own_addresses;
use crate::{clock::monotonic_ns, sys};

/// Threads that look up: one that waits for a dead name server does not hold up all the others.
const THREADS: u32 = 4;
/// Look-ups per second, of all threads together.
const LOOKUPS_PER_S: u32 = 20;
/// Addresses whose name is remembered, or that they have none.
const MAX_KNOWN: usize = 16_384;
/// Addresses that wait to be looked up.
const MAX_WAITING: usize = 1024;
/// Time after which a name is looked up again, and after which one that was not found is.
const KEEP_NS: u64 = 600_000_000_000;
const RETRY_NS: u64 = 60_000_000_000;

/// What was looked up, and what was not, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReverseCounts {
    /// Addresses that were looked up.
    pub lookups: u64,
    /// Of these, those without a name: there is none, it cannot be shown, or no name server has answered.
    pub unnamed: u64,
    /// Addresses that made room for others before they were looked up.
    pub omitted: u64,
    /// Threads that look up nothing, as they could not give up their capabilities.
    pub refused: u64,
}

/// Looks up an address, and may take long.
type LookUp = fn(IpAddr) -> Option<String>;

/// Names of addresses, as the resolver of this host has them.
#[derive(Debug)]
pub(super) struct Reverse(Arc<Exchange>);

#[derive(Debug)]
struct Exchange {
    state: Mutex<State>,
    /// There is an address to look up, or the run is over.
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    known: Recent<IpAddr, Known>,
    /// The oldest first. The newest is looked up first: it is what is on the screen now.
    waiting: VecDeque<IpAddr>,
    counts: ReverseCounts,
    is_over: bool,
}

#[derive(Debug, Clone)]
struct Known {
    name: Option<Arc<str>>,
    /// `None` while it is being looked up.
    since_ns: Option<u64>,
}

impl Reverse {
    /// Starts threads without privilege that look up.
    pub(super) fn start() -> Reverse {
        Reverse::with(look_up)
    }

    fn with(look_up: LookUp) -> Reverse {
        let reverse = Reverse::without_threads();
        for _ in 0..THREADS {
            let exchange = Arc::clone(&reverse.0);
            // Without threads there are no names, and all else is measured.
            let _ = thread::Builder::new().name("dwell-reverse".into()).spawn(move || exchange.run(look_up));
        }
        reverse
    }

    fn without_threads() -> Reverse {
        let state = State {
            known: Recent::new(MAX_KNOWN),
            waiting: VecDeque::new(),
            counts: ReverseCounts::default(),
            is_over: false,
        };
        Reverse(Arc::new(Exchange { state: Mutex::new(state), wake: Condvar::new() }))
    }

    /// Returns the name of an address if it is known, and has it looked up if it is not, or was long ago.
    pub(super) fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        let address = address.to_canonical();
        if !has_name(address) {
            return None;
        }
        let mut state = self.0.lock();
        let known = state.known.get(&address).cloned();
        let (name, is_due) = known.map_or((None, true), |known| {
            let keep_ns = if known.name.is_some() { KEEP_NS } else { RETRY_NS };
            let is_old = known.since_ns.is_some_and(|since_ns| monotonic_ns().saturating_sub(since_ns) > keep_ns);
            (known.name, is_old)
        });
        if is_due {
            state.want(address, name.clone());
            self.0.wake.notify_one();
        }
        name
    }

    pub(super) fn counts(&self) -> ReverseCounts {
        self.0.lock().counts
    }
}

impl Drop for Reverse {
    /// Threads that wait for an answer end after it, and nobody waits for them.
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.wake.notify_all();
    }
}

impl State {
    fn want(&mut self, address: IpAddr, name: Option<Arc<str>>) {
        if self.waiting.len() >= MAX_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.counts.omitted += 1;
            self.known.remove(&oldest);
        }
        self.waiting.push_back(address);
        self.known.insert(address, Known { name, since_ns: None });
    }

    fn learn(&mut self, address: IpAddr, name: Option<Arc<str>>) {
        self.counts.lookups += 1;
        self.counts.unnamed += u64::from(name.is_none());
        self.keep(address, name);
    }

    fn keep(&mut self, address: IpAddr, name: Option<Arc<str>>) {
        self.known.insert(address, Known { name, since_ns: Some(monotonic_ns()) });
    }
}

impl Exchange {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, look_up: LookUp) {
        // It speaks to strangers, by a resolver of many parts.
        if sys::drop_capabilities().is_err() {
            self.lock().counts.refused += 1;
            return;
        }
        while let Some(address) = self.next() {
            if own_addresses().contains(&address) {
                self.lock().keep(address, None);
                continue;
            }
            let name = look_up(address).filter(|name| has_letters_of_host(name));
            self.lock().learn(address, name.map(Into::into));
            thread::sleep(Duration::from_secs(1) * THREADS / LOOKUPS_PER_S);
        }
    }

    /// Waits for an address. `None` if the run is over.
    fn next(&self) -> Option<IpAddr> {
        let idle = |state: &mut State| !state.is_over && state.waiting.is_empty();
        let mut state = self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if state.is_over { None } else { state.waiting.pop_back() }
    }
}

/// Whether there may be a name that says more than the address: not of loopback, of a link or of a group.
fn has_name(address: IpAddr) -> bool {
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(is_of_link || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// Whether a name, which the owner of a reverse zone chose, has only characters of a host's name, and not too many.
fn has_letters_of_host(name: &str) -> bool {
    is_host_name(name) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Asks the resolver of the C library. A name that is not a host's, which an owner of a reverse zone may have written, is none.
fn look_up(address: IpAddr) -> Option<String> {
    let address = SockaddrStorage::from(SocketAddr::new(address, 0));
    let mut host = [0_u8; libc::NI_MAXHOST as usize];
    // SAFETY: the address and its length are of one value, and the buffer has the length that is given. No service is asked for.
    let failure = unsafe {
        libc::getnameinfo(
            address.as_ptr(),
            address.len(),
            host.as_mut_ptr().cast(),
            libc::NI_MAXHOST,
            ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    let name = CStr::from_bytes_until_nul(&host).ok().filter(|_| failure == 0)?;
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::sync::RwLock;

    use dwell_testbed::harness::eventually;

    use super::*;

    /// An address that no host has.
    fn address(n: u32) -> IpAddr {
        IpAddr::V4((0xf000_0000 + n).into())
    }

    #[test]
    fn who_asks_never_waits_and_the_oldest_make_room() {
        static DEAD: RwLock<()> = RwLock::new(());
        let is_dead = DEAD.write().unwrap();
        let reverse = Reverse::with(|address| {
            let _is_back = DEAD.read();
            Some(format!("host-{address}.example"))
        });
        // Each thread waits for the name server with one of these.
        let first = THREADS;
        (0..first).for_each(|n| assert_eq!(reverse.name(address(n)), None));
        eventually("threads that wait", || reverse.0.lock().waiting.is_empty());
        let last = first + MAX_WAITING as u32 + 100;
        (first..last).for_each(|n| assert_eq!(reverse.name(address(n)), None));
        (first + 200..last).for_each(|n| assert_eq!(reverse.name(address(n)), None));
        assert_eq!(reverse.counts(), ReverseCounts { omitted: 100, ..ReverseCounts::default() });
        assert_eq!(reverse.0.lock().waiting.len(), MAX_WAITING);
        drop(is_dead);
        let newest = address(last - 1);
        eventually("the newest", || reverse.0.lock().known.get(&newest).unwrap().name.is_some());
        assert_eq!(reverse.name(newest).as_deref(), Some(format!("host-{newest}.example").as_str()));
    }

    #[test]
    fn the_newest_are_looked_up_first_and_one_that_waits_waits_once() {
        let reverse = Reverse::without_threads();
        for n in [1, 2, 3, 1] {
            assert_eq!(reverse.name(address(n)), None);
        }
        assert_eq!([(); 3].map(|()| reverse.0.next()), [3, 2, 1].map(|n| Some(address(n))));
        assert!(reverse.0.lock().waiting.is_empty());
    }

    #[test]
    fn an_answer_is_kept_whether_it_has_a_name_or_not() {
        let reverse = Reverse::with(|address| match address == self::address(1) {
            true => Some("db.example".into()),
            false => Some("\u{1b}[2J.example".into()).filter(|_| address == self::address(2)),
        });
        let asked = || (1..=3).map(|n| reverse.name(address(n))).collect::<Vec<_>>();
        asked();
        eventually("three answers", || reverse.counts().lookups == 3);
        assert_eq!(asked(), [Some("db.example".into()), None, None]);
        asked();
        assert!(reverse.0.lock().waiting.is_empty(), "nothing is looked up again");
        assert_eq!(reverse.counts(), ReverseCounts { lookups: 3, unnamed: 2, ..ReverseCounts::default() });
    }

    #[test]
    fn an_address_of_this_host_is_not_looked_up() {
        let reverse = Reverse::with(|_| Some("name".into()));
        for own in own_addresses().into_iter().filter(|own| has_name(*own)) {
            assert_eq!(reverse.name(own), None);
            let is_kept = || reverse.0.lock().known.get(&own).is_some_and(|known| known.since_ns.is_some());
            eventually("an answer without a look-up", is_kept);
            assert_eq!(reverse.name(own), None);
        }
        assert_eq!(reverse.counts(), ReverseCounts::default());
    }

    #[test]
    fn a_name_has_the_letters_of_a_host() {
        for name in ["db.example", "a-1.xn--bcher-kva.example.", "_sip._tcp.example", "7"] {
            assert!(has_letters_of_host(name), "{name}");
        }
        for name in ["", "<b>.example", "a/b.example", "a;b", "$(x).example", "a@b.example", "b\u{fc}cher.example"] {
            assert!(!has_letters_of_host(name), "{name}");
        }
        assert!(!has_letters_of_host(&"a".repeat(254)));
    }

    #[test]
    fn addresses_that_say_it_all_are_not_looked_up() {
        let reverse = Reverse::with(|_| Some("name".into()));
        for text in
            ["127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "169.254.0.1", "fe80::1", "::ffff:127.0.0.1"]
        {
            assert_eq!(reverse.name(text.parse().unwrap()), None);
        }
        let state = reverse.0.lock();
        assert_eq!((state.waiting.len(), state.counts), (0, ReverseCounts::default()));
    }
}
