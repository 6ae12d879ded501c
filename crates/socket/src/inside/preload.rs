//! The state of a preloaded library in its process, and its poller.
//!
//! All state is memory that a forked child finds zeroed: there the first connection starts anew, or the fork handler
//! does if the parent had connections. A vforked child shares the memory, and so leaves its parent's poller alone.
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

use dwell_engine::socket::{Account, Estimator, PollPacer, control};

use super::{
    budget::Budget,
    entry::{Context, Origin},
    hooks::Stream,
    mark::{Mark, Opening},
    memory::{OnFork, Zeroable, zeroed},
    pending::{DESCRIPTORS, Pending},
    registry::Registry,
    stamps::{CallEvent, Stamp, Stamps},
};
use crate::{
    sys,
    table::{Count, INHERITED_VARIABLE, Poller, VARIABLE, Writer},
};

/// State of the process.
#[repr(C)]
pub struct State {
    /// Thread number of the poller; 0 if there is none.
    poller: AtomicU32,
    /// Futex that the poller sleeps on: a change wakes it.
    wakeups: AtomicU32,
    /// 1 while the poller sleeps until there are connections.
    idle: AtomicU32,
    /// 1 once a failure to start a poller was counted.
    has_failed: AtomicU32,
    /// 1 if the first poll is to be delayed, because the process may be about to execute another program.
    is_delayed: AtomicU32,
    /// Effective user of the poller.
    uid: AtomicU32,
    /// 1 if the poller is to end.
    is_dismissed: AtomicU32,
    /// The process whose state it is; 0 in a child of which libc knows nothing, until it has a poller.
    owner: AtomicU32,
    /// Threads of the program that are about to change its rights: no poller is started meanwhile.
    changing: AtomicU32,
    /// 1 if a poller ended for such a change.
    was_ended: AtomicU32,
    /// Number of the last poller's thread, which may be about to end although `poller` is 0.
    thread: AtomicU32,
    pending: Pending,
    /// Per descriptor: instructions for hooks of calls that write; see [`Mark`].
    marks: [AtomicU64; DESCRIPTORS],
    /// Per descriptor; see [`Order::Pieces`](super::mark::Order::Pieces).
    streams: [Stream; DESCRIPTORS],
    stamps: Stamps,
    registry: UnsafeCell<Registry>,
}

// SAFETY: only numbers.
unsafe impl Zeroable for State {}
// SAFETY: atomics, and the registry, which the poller alone uses.
unsafe impl Sync for State {}

static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());

/// The table that dwell provides. It stays mapped when the process forks.
static TABLE: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Number of connections in the last round. A forked child starts with that of its parent.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Number of connections that hooks have seen, and how many of them the last round had processed.
static HOOKED: AtomicU32 = AtomicU32::new(0);
static KNOWN: AtomicU32 = AtomicU32::new(0);

/// seccomp(2) mode of the process when the library was loaded.
static SECCOMP: AtomicU32 = AtomicU32::new(0);

/// 1 once the program has restricted itself by seccomp(2). From then on it is left alone: its filter might kill it for any
/// system call of ours.
static IS_SHUT_IN: AtomicU32 = AtomicU32::new(0);

/// 1 once nobody reads the table any more.
static IS_OVER: AtomicU32 = AtomicU32::new(0);

/// Value of `State::poller` while the poller is being started.
const STARTING: u32 = u32::MAX;

/// The poller ends after this many idle sleeps of this length.
const IDLE_NS: u64 = 500_000_000;
const IDLE_ROUNDS: u32 = 2;

/// Time between two checks whether dwell still reads the table.
const READER_NS: u64 = 1_000_000_000;

/// How long a change of rights waits for the poller to end, in rounds of this length. It ends at once, unless it cannot run.
const END_NS: u64 = 1_000_000;
const END_ROUNDS: u32 = 5_000;

/// Descriptors that are checked for inherited connections.
const INHERITED: i32 = 64;

/// Symbol by which several dwell libraries in one process find the first of them.
pub const MARKER: &CStr = c"dwell_library";

/// Opens the table that the environment names, if any. Called by the library's constructor. If the process has several
/// preloaded dwell libraries, only the first one continues.
pub fn begin() {
    if !is_first() || CHECKED.iter().any(|name| is_defined(name)) {
        return;
    }
    let open = |name| {
        // SAFETY: nobody changes the environment before main.
        let path = unsafe { variable(name) };
        path.and_then(|path| Writer::open(path).ok())
    };
    let Some(table) = open(VARIABLE).or_else(|| open(INHERITED_VARIABLE)) else {
        return;
    };
    let Ok(state) = zeroed::<State>(OnFork::Zeroed) else {
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
    state.owner.store(sys::pid(), SeqCst);
    if (0..INHERITED).any(sys::is_tcp) {
        state.wake();
    }
}

/// Functions of programs that check what their threads do, and replace memcpy(3) by one that needs a thread of libc's: a poller
/// would end them.
const CHECKED: [&CStr; 3] = [c"__tsan_init", c"__msan_init", c"__hwasan_init"];

fn is_defined(name: &CStr) -> bool {
    // SAFETY: the name ends with a NUL.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}

/// Returns true if no other dwell library precedes this one.
fn is_first() -> bool {
    // SAFETY: the name ends with a NUL.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MARKER.as_ptr()) };
    first.is_null() || object(first) == object((&raw const STATE).cast())
}

/// Returns the base address of the library that contains `address`.
fn object(address: *const c_void) -> *mut c_void {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it writes one `Dl_info`, or nothing; zeroes are valid too.
    let found = unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init()
    };
    found.dli_fbase
}

/// Returns the state of the process, or `None` if nobody reads the table.
pub fn state() -> Option<&'static State> {
    if IS_OVER.load(Relaxed) == 1 {
        return None;
    }
    // SAFETY: what `begin` stored is mapped for good.
    unsafe { STATE.load(Acquire).as_ref() }
}

/// Runs in the child after fork(2): it has the connections of its parent, and no poller.
unsafe extern "C" fn forked() {
    let has_connections = LIVE.load(Relaxed) > 0 || HOOKED.load(Relaxed) != KNOWN.load(Relaxed);
    let Some(state) = state() else {
        return;
    };
    if IS_SHUT_IN.load(Relaxed) == 0 {
        state.owner.store(sys::pid(), SeqCst);
    }
    if has_connections {
        state.is_delayed.store(1, Relaxed);
        state.wake();
    }
}

impl State {
    /// Reports a connection that was established or is being established.
    pub fn connected(&'static self, fd: i32, opening: Opening) {
        if IS_SHUT_IN.load(Relaxed) == 1 {
            return self.count_failed();
        }
        if !sys::is_tcp(fd) {
            return;
        }
        // This thread may choose what only an administrator may, if the program is one; the poller may not.
        let congestion = table().config().congestion;
        if congestion != [0; 16] {
            let _ = sys::set_congestion(fd, &congestion);
        }
        let mark = self.mark_of(fd);
        let before = mark.map_or(0, |mark| Mark::begin(mark, opening));
        // A program whose connect(2) was in progress calls it again to learn the result.
        let is_same = opening == Opening::Initiated && before & Mark::IN_PROGRESS != 0;
        HOOKED.fetch_add(1, SeqCst);
        if let Some(stream) = self.stream(fd).filter(|_| !is_same) {
            stream.reset();
        }
        if self.pending.insert(fd) && !is_same {
            table().count(Count::TooShort);
        }
        if self.uid.load(Relaxed) != sys::effective_user() {
            self.dismiss();
        }
        self.wake();
    }

    /// Returns the instructions for hooks of calls that write to a descriptor.
    pub fn mark(&self, fd: i32) -> Mark {
        if IS_SHUT_IN.load(Relaxed) == 1 {
            return Mark(0);
        }
        Mark(self.mark_of(fd).map_or(0, |mark| mark.load(Relaxed)))
    }

    /// Records an event of a call. If the queue is full, the event is lost.
    pub fn called(&self, fd: i32, generation: u8, event: CallEvent) {
        self.stamps.push(Stamp { time_ns: sys::monotonic_ns(), event, fd, generation });
    }

    /// Returns what is known of the stream at a descriptor.
    pub fn stream(&self, fd: i32) -> Option<&Stream> {
        self.streams.get(usize::try_from(fd).ok()?)
    }

    /// Returns true if the estimator needs the times of writing calls.
    pub fn wants_stamps(&self) -> bool {
        table().config().estimator == Estimator::Paper
    }

    fn mark_of(&self, fd: i32) -> Option<&AtomicU64> {
        self.marks.get(usize::try_from(fd).ok()?)
    }

    /// Ensures that a poller runs and is awake.
    fn wake(&'static self) {
        if self.poller.load(SeqCst) == 0 {
            self.start();
        } else if self.idle.load(SeqCst) == 1 {
            self.wakeups.fetch_add(1, SeqCst);
            sys::wake(&self.wakeups);
        }
    }

    /// Ends the poller if the process has another effective user than the poller's, of which libc does not know. The
    /// next connection starts another poller.
    fn dismiss(&self) {
        if !matches!(self.poller.load(SeqCst), 0 | STARTING) {
            self.is_dismissed.store(1, SeqCst);
            self.wakeups.fetch_add(1, SeqCst);
            sys::wake(&self.wakeups);
        }
    }

    /// Ends the poller before the program changes its rights: the change would not reach a thread that libc does not know,
    /// and a filter of system calls might not allow what it does. Call [`State::after_change`] with the result.
    pub fn before_change(&self) -> bool {
        let owner = self.owner.load(SeqCst);
        if owner != 0 && owner != sys::pid() {
            // A vforked child, which is about to execute another program.
            return false;
        }
        self.changing.fetch_add(1, SeqCst);
        for _ in 0..END_ROUNDS {
            let poller = self.poller.load(SeqCst);
            if poller == 0 {
                break;
            }
            self.was_ended.store(1, SeqCst);
            self.dismiss();
            sys::wait_for_end(&self.poller, poller, END_NS);
        }
        // unshare(2) and setns(2) fail for some namespaces while a process has a second thread.
        let last = self.thread.swap(0, SeqCst);
        for _ in 0..END_ROUNDS {
            if last == 0 || !sys::is_own_thread(last) {
                break;
            }
            sys::sleep(END_NS / 50);
        }
        true
    }

    /// Starts a poller with the new rights, if there was one before.
    pub fn after_change(&'static self, is_begun: bool) {
        if is_begun && self.changing.fetch_sub(1, SeqCst) == 1 && self.was_ended.swap(0, SeqCst) == 1 {
            self.wake();
        }
    }

    /// Leaves the program alone from now on: it has restricted itself by seccomp(2).
    pub fn shut_in(&self) {
        IS_SHUT_IN.store(1, SeqCst);
        if self.was_ended.swap(0, SeqCst) == 1 {
            self.count_failed();
        }
    }

    fn start(&'static self) {
        let is_mine = self.poller.compare_exchange(0, STARTING, SeqCst, Relaxed);
        if is_mine.is_err() {
            return;
        }
        if self.changing.load(SeqCst) > 0 || IS_SHUT_IN.load(SeqCst) == 1 {
            self.poller.store(0, SeqCst);
            if IS_SHUT_IN.load(SeqCst) == 1 {
                self.count_failed();
            }
            return;
        }
        // The seccomp filter that the program has installed since might kill the process for the poller's system calls.
        if sys::seccomp_mode() != SECCOMP.load(Relaxed) {
            self.poller.store(0, SeqCst);
            self.count_failed();
            return;
        }
        self.uid.store(sys::effective_user(), Relaxed);
        self.owner.store(sys::pid(), SeqCst);
        self.is_dismissed.store(0, SeqCst);
        let argument = std::ptr::from_ref(self) as usize;
        // SAFETY: `poll` ends by `leave`, makes only system calls, and its argument is mapped for good.
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

    /// Runs a poller until there are no connections.
    fn run(&self) {
        let table = table();
        let config = table.config();
        let context = Context { table: &table, config: &config, me: Poller { pid: sys::pid(), thread: sys::thread() } };
        if self.is_delayed.swap(0, Relaxed) == 1 {
            sys::wait(&self.wakeups, self.wakeups.load(Relaxed), config.poll_ns);
        }
        sys::set_slack(config.poll_ns / PollPacer::SHORTEST / 5);
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
            let (live, next_ns) = self.round(context, began_ns);
            LIVE.store(live as u32, Relaxed);
            KNOWN.store(hooked, Relaxed);
            if live > 0 || !self.pending.is_empty() {
                idle = 0;
                let period_ns = budget.period_ns(table.share(&config), config.period_ns(began_ns, next_ns));
                let left_ns = (began_ns + period_ns).saturating_sub(sys::monotonic_ns());
                sys::wait(&self.wakeups, self.wakeups.load(Relaxed), left_ns);
            } else {
                idle += 1;
                self.sleep(IDLE_NS);
            }
        }
        // SAFETY: only the poller, which is this thread, uses the registry.
        unsafe { &mut *self.registry.get() }.release_blocks();
    }

    /// Polls what is due. Returns the number of sockets and the time of the next poll.
    fn round(&self, context: Context<'_>, now_ns: u64) -> (usize, Option<u64>) {
        // SAFETY: only the poller, which is this thread, uses the registry.
        let registry = unsafe { &mut *self.registry.get() };
        self.pending.drain(|fd| self.adopt(registry, fd, context, now_ns));
        self.stamps.drain(|stamp| {
            // A stamp of an earlier connection at this descriptor is dropped.
            if stamp.generation != self.mark(stamp.fd).generation() {
                return;
            }
            if self.pending.take(stamp.fd) {
                self.adopt(registry, stamp.fd, context, now_ns);
            }
            registry.called(stamp.fd, stamp.time_ns, stamp.event);
        });
        // Excludes descriptors that are a new connection already.
        let known = |fd| self.mark_of(fd).filter(|_| !self.pending.contains(fd));
        let mut on_poll = |account: &Account, _: &control::State<'_>| {
            if let Some(mark) = account.fd.and_then(known) {
                Mark::with(&account.setting).put(mark);
            }
            None
        };
        let mut lost = |fd| {
            if let Some(mark) = known(fd) {
                Mark(0).put(mark);
            }
        };
        let next_ns = registry.poll(context, now_ns, &mut on_poll, &mut lost);
        registry.scan(context, now_ns, &self.pending);
        (registry.live(), next_ns)
    }

    /// Watches a connection that a hook has seen.
    fn adopt(&self, registry: &mut Registry, fd: i32, context: Context<'_>, now_ns: u64) {
        let is_new = registry.cookie_at(fd).is_none() || sys::cookie(fd).ok() != registry.cookie_at(fd);
        let origin = if self.mark(fd).is_initiated() { Origin::Initiated } else { Origin::Accepted };
        let is_watched = registry.adopt(fd, origin, context, now_ns);
        if is_new && !is_watched && sys::cookie(fd).is_err() {
            context.table.count(Count::TooShort);
        }
    }

    /// Sleeps until a connection is opened, at most this long.
    fn sleep(&self, time_ns: u64) {
        let wakeups = self.wakeups.load(SeqCst);
        self.idle.store(1, SeqCst);
        if self.pending.is_empty() {
            sys::wait(&self.wakeups, wakeups, time_ns);
        }
        self.idle.store(0, SeqCst);
    }
}

/// Body of the poller thread.
unsafe extern "C-unwind" fn poll(argument: usize, memory: sys::ThreadMemory) -> ! {
    let _ = sys::drop_capabilities();
    // SAFETY: `start` passes memory that is mapped for good.
    let state = unsafe { &*(argument as *const State) };
    let number = state.poller.load(SeqCst);
    state.thread.store(number, SeqCst);
    loop {
        state.run();
        if state.is_dismissed.load(SeqCst) == 1 {
            // The kernel clears the number when this thread makes no call any more: somebody may wait for that.
            // SAFETY: the memory is this thread's.
            unsafe { sys::leave(memory) }
        }
        // From here on a hook starts another poller. The kernel must not clear that poller's number when this one ends.
        sys::clear_at_end(None);
        state.poller.store(0, SeqCst);
        let mut is_wanted = !state.pending.is_empty()
            && IS_OVER.load(Relaxed) == 0
            && state.poller.compare_exchange(0, number, SeqCst, Relaxed).is_ok();
        // Looked at last: whoever begins a change waits from then on for what is running.
        if is_wanted && state.changing.load(SeqCst) > 0 {
            state.poller.store(0, SeqCst);
            is_wanted = false;
        }
        if !is_wanted {
            // SAFETY: the memory is this thread's.
            unsafe { sys::leave(memory) }
        }
        sys::clear_at_end(Some(&state.poller));
    }
}

/// Returns the table. The caller has checked that there is a state.
fn table() -> Writer {
    // SAFETY: `begin` stores it before the state.
    unsafe { Writer::from_raw(TABLE.load(Relaxed)) }
}

unsafe extern "C" {
    /// getenv(3), except that it returns NULL in a program with elevated privileges.
    fn secure_getenv(name: *const libc::c_char) -> *mut libc::c_char;
}

/// Returns the path of the table from a variable of the environment.
///
/// # Safety
/// Nobody changes the environment during the call or while the path is in use.
unsafe fn variable(name: &str) -> Option<&'static CStr> {
    let mut bytes = [0_u8; 32];
    bytes.get_mut(..name.len()).filter(|_| name.len() < 32)?.copy_from_slice(name.as_bytes());
    // SAFETY: the name ends with a NUL.
    let value = unsafe { secure_getenv(bytes.as_ptr().cast()) };
    // SAFETY: it is NULL, or points to a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
