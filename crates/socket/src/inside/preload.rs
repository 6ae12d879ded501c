//! What a preloaded library keeps of its process, and its poller.
//!
//! All of it is memory that a forked child finds empty: there the first connection, or what the child of a process
//! with connections does in any case, starts anew. A vforked child shares it, and so leaves its parent's poller alone.
#![allow(unsafe_code)]

use std::{
    cell::UnsafeCell,
    ffi::{CStr, c_void},
    mem::MaybeUninit,
    ptr::null_mut,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use dwell_engine::socket::{
    Account, Estimator, Rhythm,
    control::{self, Hold},
};

use super::{
    budget::Budget,
    entry::{Begun, Means},
    memory::{Forked, Zeroes, zeroed},
    pending::{DESCRIPTORS, Pending},
    registry::Registry,
    stamps::{Stamp, Stamps},
};
use crate::{
    sys,
    table::{ControllerKind, Count, Poller, VARIABLE, Writer},
};

/// What is known of the process.
#[repr(C)]
pub struct State {
    /// The poller's thread number; 0: there is none.
    poller: AtomicU32,
    /// The poller waits for this to change.
    bell: AtomicU32,
    /// 1 while it waits for connections.
    idle: AtomicU32,
    /// 1: it was counted that there can be none.
    has_failed: AtomicU32,
    /// 1: the first look is to be later, as the process may be about to run another program.
    is_patient: AtomicU32,
    /// The effective user of the poller.
    uid: AtomicU32,
    /// 1: the poller is to end.
    is_dismissed: AtomicU32,
    pending: Pending,
    /// For hooks of calls that write, of each descriptor: see [`Mark`].
    marks: [AtomicU64; DESCRIPTORS],
    stamps: Stamps,
    registry: UnsafeCell<Registry>,
}

// SAFETY: numbers, all of them.
unsafe impl Zeroes for State {}
// SAFETY: atomics, and the registry, which the poller alone uses.
unsafe impl Sync for State {}

static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());

/// The table that dwell gave. It stays when the process forks.
static TABLE: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Connections at the last round. A forked child begins with those of its parent.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Connections that hooks have seen, and those of them that the last round knew of.
static HOOKED: AtomicU32 = AtomicU32::new(0);
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// The process' seccomp(2) mode when the library was loaded.
static SECCOMP: AtomicU32 = AtomicU32::new(0);

/// 1: nobody reads the table any more.
static IS_OVER: AtomicU32 = AtomicU32::new(0);

/// In `State::poller`: it is being started.
const STARTING: u32 = u32::MAX;

/// The poller ends after so long without connections.
const IDLE_NS: u64 = 500_000_000;
const IDLE_ROUNDS: u32 = 2;

/// So often a poller looks whether anybody reads what it writes.
const READER_NS: u64 = 1_000_000_000;

/// Descriptors that are looked at for connections that were there before the program.
const INHERITED: i32 = 64;

/// The symbol by which libraries of dwell in one process find the first of them.
pub const MARKER: &CStr = c"dwell_library";

/// Opens the table that the environment names, if it does. For the library's constructor. Of several libraries, as
/// where one is preloaded to a program that another is linked with, the first alone goes on.
pub fn begin() {
    if !is_first() {
        return;
    }
    // SAFETY: nobody changes the environment before main.
    let Some(path) = (unsafe { variable() }) else {
        return;
    };
    let (Ok(table), Ok(state)) = (Writer::open(path), zeroed::<State>(Forked::Zeroes)) else {
        return;
    };
    SECCOMP.store(sys::seccomp_mode(), Relaxed);
    table.count(Count::Process);
    TABLE.store(table.into_raw(), Relaxed);
    STATE.store(state, Release);
    // SAFETY: the handler is a function of this library, which is never unloaded while it is preloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    // SAFETY: mapped above, for good.
    let state = unsafe { &*state };
    if (0..INHERITED).any(sys::is_tcp) {
        state.wake();
    }
}

/// True if no other library of dwell comes before this one.
fn is_first() -> bool {
    // SAFETY: the name ends with a NUL.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MARKER.as_ptr()) };
    first.is_null() || object(first) == object((&raw const STATE).cast())
}

/// Where the library begins that has this address.
fn object(address: *const c_void) -> *mut c_void {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it writes one `Dl_info`, or nothing; of zeroes that is valid too.
    let found = unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init()
    };
    found.dli_fbase
}

/// What is known of the process. `None` if nobody wants to know.
pub fn state() -> Option<&'static State> {
    if IS_OVER.load(Relaxed) == 1 {
        return None;
    }
    // SAFETY: what `begin` stored is mapped for good.
    unsafe { STATE.load(Acquire).as_ref() }
}

/// In the child, after fork: it has what its parent had, and nobody looks at it.
unsafe extern "C" fn forked() {
    let has_connections = LIVE.load(Relaxed) > 0 || HOOKED.load(Relaxed) != KNOWN.load(Relaxed);
    if let Some(state) = state()
        && has_connections
    {
        state.is_patient.store(1, Relaxed);
        state.wake();
    }
}

impl State {
    /// A connection was made, or is being made.
    pub fn connected(&'static self, fd: i32, how: How) {
        if !sys::is_tcp(fd) {
            return;
        }
        let mark = self.mark_of(fd);
        let before = mark.map_or(0, |mark| Mark::begin(mark, how));
        // A program that was told that its connection goes on asks again to learn what became of it.
        let is_same = how == How::Dialed && before & Mark::GOES_ON != 0;
        HOOKED.fetch_add(1, SeqCst);
        if self.pending.put(fd) && !is_same {
            table().count(Count::TooShort);
        }
        if self.uid.load(Relaxed) != sys::effective_user() {
            self.dismiss();
        }
        self.wake();
    }

    /// What hooks of calls that write are to do about a descriptor.
    pub fn mark(&self, fd: i32) -> Mark {
        Mark(self.mark_of(fd).map_or(0, |mark| mark.load(Relaxed)))
    }

    /// The program wrote. What does not fit is forgotten.
    pub fn wrote(&self, stamp: Stamp) {
        self.stamps.put(stamp);
    }

    /// True if the estimator wants to know of calls that write.
    pub fn wants_stamps(&self) -> bool {
        table().orders().estimator == Estimator::Paper
    }

    fn mark_of(&self, fd: i32) -> Option<&AtomicU64> {
        self.marks.get(usize::try_from(fd).ok()?)
    }

    /// Sees to it that there is a poller, and that it does not sleep for long.
    fn wake(&'static self) {
        if self.poller.load(SeqCst) == 0 {
            self.start();
        } else if self.idle.load(SeqCst) == 1 {
            self.bell.fetch_add(1, SeqCst);
            sys::wake(&self.bell);
        }
    }

    /// The process has another effective user than the poller, which libc does not tell: it is to end. Another begins
    /// with the next connection.
    fn dismiss(&self) {
        if !matches!(self.poller.load(SeqCst), 0 | STARTING) {
            self.is_dismissed.store(1, SeqCst);
            self.bell.fetch_add(1, SeqCst);
            sys::wake(&self.bell);
        }
    }

    fn start(&'static self) {
        let is_mine = self.poller.compare_exchange(0, STARTING, SeqCst, Relaxed);
        if is_mine.is_err() {
            return;
        }
        // What has shut itself in since it began would be killed for the poller's system calls.
        if sys::seccomp_mode() != SECCOMP.load(Relaxed) {
            self.poller.store(0, SeqCst);
            self.count_failed();
            return;
        }
        self.uid.store(sys::effective_user(), Relaxed);
        self.is_dismissed.store(0, SeqCst);
        let argument = std::ptr::from_ref(self) as usize;
        // SAFETY: `poll` ends by `leave`, calls the kernel alone, and what it is given stays.
        if unsafe { sys::spawn(poll, argument, &self.poller) }.is_err() {
            self.poller.store(0, SeqCst);
            self.count_failed();
        }
    }

    fn count_failed(&self) {
        if self.has_failed.swap(1, Relaxed) == 0 {
            table().count(Count::NoPoller);
        }
    }

    /// What a poller does until there are no connections.
    fn run(&self) {
        let table = table();
        let orders = table.orders();
        let means = Means { table: &table, orders: &orders, me: Poller { pid: sys::pid(), thread: sys::thread() } };
        if self.is_patient.swap(0, Relaxed) == 1 {
            sys::wait(&self.bell, self.bell.load(Relaxed), orders.poll_ns);
        }
        sys::set_slack(orders.poll_ns / Rhythm::SHORTEST / 5);
        let mut budget = Budget::default();
        let mut idle = 0;
        let knows_reader = table.is_read();
        let mut checked_ns = sys::monotonic_ns();
        while idle < IDLE_ROUNDS {
            if self.is_dismissed.load(SeqCst) == 1 {
                return;
            }
            let began_ns = sys::monotonic_ns();
            if knows_reader && began_ns.saturating_sub(checked_ns) > READER_NS {
                checked_ns = began_ns;
                if !table.is_read() {
                    IS_OVER.store(1, Relaxed);
                    return;
                }
            }
            let hooked = HOOKED.load(SeqCst);
            let (live, next_ns) = self.round(means, began_ns);
            LIVE.store(live as u32, Relaxed);
            KNOWN.store(hooked, Relaxed);
            if live > 0 || !self.pending.is_empty() {
                idle = 0;
                let period_ns = budget.period_ns(table.share(&orders), orders.period_ns(began_ns, next_ns));
                let left_ns = (began_ns + period_ns).saturating_sub(sys::monotonic_ns());
                sys::wait(&self.bell, self.bell.load(Relaxed), left_ns);
            } else {
                idle += 1;
                self.sleep(IDLE_NS);
            }
        }
        // SAFETY: the registry is the poller's alone, and this is it.
        unsafe { &mut *self.registry.get() }.release_blocks();
    }

    /// Returns how many sockets there are, and when the next one is to be looked at.
    fn round(&self, means: Means<'_>, now_ns: u64) -> (usize, Option<u64>) {
        // SAFETY: the registry is the poller's alone, and this is it.
        let registry = unsafe { &mut *self.registry.get() };
        self.pending.take(|fd| self.adopt(registry, fd, means, now_ns));
        self.stamps.take(|stamp| {
            // What is of a connection that the descriptor was before is nobody's.
            if stamp.generation != self.mark(stamp.fd).generation() {
                return;
            }
            if self.pending.has(stamp.fd) {
                self.adopt(registry, stamp.fd, means, now_ns);
            }
            registry.wrote(stamp.fd, stamp.time_ns, stamp.bytes);
        });
        let has_holds = means.orders.controller == Some(ControllerKind::Element);
        // Unless the descriptor is another connection's already.
        let known = |fd| self.mark_of(fd).filter(|_| !self.pending.has(fd));
        let mut looked = |account: &Account, _: &control::State<'_>| {
            if let Some(place) = account.fd.and_then(known) {
                let hold = account.setting.hold_above.filter(|_| has_holds);
                Mark::with(hold).put(place);
            }
            None
        };
        let mut lost = |fd| {
            if let Some(place) = known(fd) {
                Mark(0).put(place);
            }
        };
        let next_ns = registry.look(means, now_ns, &mut looked, &mut lost);
        registry.scan(means, now_ns, &self.pending);
        (registry.live(), next_ns)
    }

    /// Watches what a hook has seen.
    fn adopt(&self, registry: &mut Registry, fd: i32, means: Means<'_>, now_ns: u64) {
        let is_new = registry.cookie_at(fd).is_none() || sys::cookie(fd).ok() != registry.cookie_at(fd);
        let begun = if self.mark(fd).is_dialed() { Begun::Dialed } else { Begun::Accepted };
        let is_watched = registry.adopt(fd, begun, means, now_ns);
        if is_new && !is_watched && sys::cookie(fd).is_err() {
            means.table.count(Count::TooShort);
        }
    }

    /// Until a connection is made, and no longer than this.
    fn sleep(&self, time_ns: u64) {
        let bell = self.bell.load(SeqCst);
        self.idle.store(1, SeqCst);
        if self.pending.is_empty() {
            sys::wait(&self.bell, bell, time_ns);
        }
        self.idle.store(0, SeqCst);
    }
}

/// The poller.
unsafe extern "C-unwind" fn poll(argument: usize, memory: sys::Memory) -> ! {
    sys::drop_capabilities();
    // SAFETY: `start` gives what is mapped for good.
    let state = unsafe { &*(argument as *const State) };
    let number = state.poller.load(SeqCst);
    loop {
        state.run();
        // From here on a hook starts another. The kernel must not take its number away when this one ends.
        sys::clear_at_end(None);
        state.poller.store(0, SeqCst);
        let is_wanted = !state.pending.is_empty()
            && IS_OVER.load(Relaxed) == 0
            && state.is_dismissed.load(SeqCst) == 0
            && state.poller.compare_exchange(0, number, SeqCst, Relaxed).is_ok();
        if !is_wanted {
            // SAFETY: it is this thread's.
            unsafe { sys::leave(memory) }
        }
        sys::clear_at_end(Some(&state.poller));
    }
}

/// What a call has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A connection that the other end asked for.
    Accepted,
    /// One that this end asked for.
    Dialed,
    /// The same, and it is not there yet.
    GoesOn,
}

impl How {
    fn mark(self) -> u64 {
        match self {
            How::Accepted => Mark::WATCHED,
            How::Dialed => Mark::WATCHED | Mark::DIALED,
            How::GoesOn => Mark::WATCHED | Mark::DIALED | Mark::GOES_ON,
        }
    }
}

/// What a hook of a call that writes is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    const WATCHED: u64 = 1 << 63;
    /// This end asked for the connection.
    const DIALED: u64 = 1 << 55;
    /// And it was not there yet when the call returned.
    const GOES_ON: u64 = 1 << 54;
    /// Which of the connections that the descriptor has been it is: they are counted, and begin anew after 64.
    const GENERATION: u64 = 0x3f << Mark::BYTES;
    /// No send buffer has more.
    const BYTES: u32 = 32;

    /// Marks a descriptor as a new connection. Returns what it was.
    fn begin(place: &AtomicU64, how: How) -> u64 {
        let new = |before: u64| {
            let generation = (before & Mark::GENERATION).wrapping_add(1 << Mark::BYTES);
            Some(how.mark() | generation & Mark::GENERATION)
        };
        place.fetch_update(Relaxed, Relaxed, new).unwrap_or_default()
    }

    /// Puts it, of the connection that the descriptor is.
    fn put(self, place: &AtomicU64) {
        let new = |before: u64| Some(before & Mark::GENERATION | self.0);
        let _ = place.fetch_update(Relaxed, Relaxed, new);
    }

    fn with(hold: Option<Hold>) -> Mark {
        let Some(hold) = hold else {
            return Mark(Mark::WATCHED);
        };
        let bytes = hold.unsent_bytes.min((1 << Mark::BYTES) - 2) + 1;
        let factor = u64::from(hold.factor_permille.min(0xffff));
        let times = u64::from(hold.times & 0x7f);
        Mark(Mark::WATCHED | times << 56 | factor << 38 | bytes)
    }

    /// True if it is a connection.
    pub fn is_watched(self) -> bool {
        self.0 & Mark::WATCHED != 0
    }

    /// Which of the connections that the descriptor has been.
    pub fn generation(self) -> u8 {
        ((self.0 & Mark::GENERATION) >> Mark::BYTES) as u8
    }

    fn is_dialed(self) -> bool {
        self.0 & Mark::DIALED != 0
    }

    /// How the call is held back.
    pub fn hold(self) -> Option<Hold> {
        let bytes = self.0 & ((1 << Mark::BYTES) - 1);
        Some(Hold {
            unsent_bytes: bytes.checked_sub(1)?,
            times: (self.0 >> 56 & 0x7f) as u8,
            factor_permille: (self.0 >> 38 & 0xffff) as u32,
        })
    }
}

/// The table. Only where there is a state.
fn table() -> Writer {
    // SAFETY: `begin` stores it before the state.
    unsafe { Writer::from_raw(TABLE.load(Relaxed)) }
}

unsafe extern "C" {
    /// getenv(3), but NULL where the program has more rights than who runs it.
    fn secure_getenv(name: *const libc::c_char) -> *mut libc::c_char;
}

/// The path of the table.
///
/// # Safety
/// Nobody changes the environment meanwhile, nor as long as the path is used.
unsafe fn variable() -> Option<&'static CStr> {
    let mut name = [0_u8; VARIABLE.len() + 1];
    for (place, byte) in name.iter_mut().zip(VARIABLE.bytes()) {
        *place = byte;
    }
    // SAFETY: the name ends with a NUL.
    let value = unsafe { secure_getenv(name.as_ptr().cast()) };
    // SAFETY: it is NULL, or points to a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_what_a_controller_wants() {
        for hold in [
            None,
            Some(Hold { unsent_bytes: 0, times: 8, factor_permille: 1500 }),
            Some(Hold { unsent_bytes: 4_000_000_000, times: 127, factor_permille: 65_535 }),
        ] {
            let mark = Mark::with(hold);
            assert!(mark.is_watched());
            assert_eq!(mark.hold(), hold);
        }
        assert!(!Mark(0).is_watched());
    }

    #[test]
    fn each_connection_that_a_descriptor_is_has_its_generation() {
        let place = AtomicU64::new(0);
        let mut last = Mark(0).generation();
        for how in [How::Accepted, How::Dialed, How::GoesOn].repeat(50) {
            Mark::begin(&place, how);
            let mark = Mark(place.load(Relaxed));
            assert!(mark.is_watched() && mark.hold().is_none());
            assert_eq!(mark.is_dialed(), how != How::Accepted);
            assert_ne!(mark.generation(), last);
            last = mark.generation();
            Mark::with(Some(Hold { unsent_bytes: u64::MAX, times: 127, factor_permille: 65_535 })).put(&place);
            assert_eq!(Mark(place.load(Relaxed)).generation(), last);
            Mark(0).put(&place);
            let mark = Mark(place.load(Relaxed));
            assert!(mark.generation() == last && !mark.is_watched());
        }
    }
}
