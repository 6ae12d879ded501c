//! A thread that looks at the sockets that a program names.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    fmt, io,
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dwell_engine::socket::{
    Account,
    control::{self, Controller},
};

use super::{Error, Info, Socket, info::Memory, socket::Bound};
use crate::{
    inside::{Begun, Budget, Means, Watched},
    sys,
    table::{Config, Orders, Poller, Writer},
};

/// Watches sockets of this process, until it is dropped. It has a thread of its own, on which controllers are asked.
pub struct Session {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread and those that ask share.
pub(super) struct Shared {
    table: Writer,
    orders: Orders,
    pid: u32,
    state: Mutex<State>,
    /// There is something to do, or to end.
    bell: Condvar,
    /// A round is over.
    looked: Condvar,
}

struct State {
    sockets: Watched,
    known: HashMap<u64, Known>,
    is_over: bool,
}

#[derive(Default)]
struct Known {
    memory: Memory,
    /// At the last look it was no connection any more.
    has_ended: bool,
    controller: Option<Box<dyn Controller + Send>>,
}

impl Session {
    /// Begins. Sockets are looked at as `config` says, and those controlled that are watched.
    ///
    /// # Errors
    /// The configuration asks for what there is not, or the process may have no other thread.
    pub fn start(config: &Config) -> Result<Session, Error> {
        let orders = Orders::new(config)?;
        let memory = |why: sys::Errno| Error::Poller { source: io::Error::from_raw_os_error(why.0) };
        let shared = Arc::new(Shared {
            table: Writer::alone(&orders).map_err(memory)?,
            orders,
            pid: sys::pid(),
            state: Mutex::new(State {
                sockets: Watched::new().map_err(memory)?,
                known: HashMap::new(),
                is_over: false,
            }),
            bell: Condvar::new(),
            looked: Condvar::new(),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("dwell".to_owned())
            .spawn(move || its.run())
            .map_err(|source| Error::Poller { source })?;
        Ok(Session { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Watches a connection, as long as it is open.
    ///
    /// # Errors
    /// It is none, or there are too many.
    pub fn watch<'fd>(&self, socket: &'fd impl AsFd) -> Result<Socket<'fd>, Error> {
        let fd = socket.as_fd();
        let cookie = self.shared.adopt(fd.as_raw_fd())?;
        Ok(Socket::new(fd, cookie, Arc::clone(&self.shared)))
    }

    /// Has `controller` decide what is set of a socket, instead of what the configuration says.
    ///
    /// # Errors
    /// The socket has ended.
    pub fn control(&self, socket: &Socket<'_>, controller: Box<dyn Controller + Send>) -> Result<(), Error> {
        self.control_raw(socket.as_fd().as_raw_fd(), controller)
    }

    /// The same for a descriptor, for the C interface.
    ///
    /// # Errors
    /// It is no connection, or there are too many.
    pub fn control_raw(&self, fd: i32, controller: Box<dyn Controller + Send>) -> Result<(), Error> {
        let cookie = self.shared.adopt(fd)?;
        let mut state = self.shared.lock()?;
        let known = state.known.get_mut(&cookie).ok_or(Error::Ended)?;
        let before = known.controller.replace(controller);
        // Its end is its owner's code, which may ask this session.
        drop(state);
        drop(before);
        Ok(())
    }

    /// What is known of the connection at a descriptor, which is watched from now on if it was not; for the C
    /// interface.
    ///
    /// # Errors
    /// It is none, or there are too many.
    pub fn info_raw(&self, fd: i32) -> Result<Info, Error> {
        let cookie = self.shared.adopt(fd)?;
        self.shared.info(cookie)
    }

    /// Waits until a bound is passed at a descriptor; for the C interface.
    ///
    /// # Errors
    /// It is no connection, or has ended.
    pub fn wait_raw(&self, fd: i32, bound: Bound, timeout: Option<Duration>) -> Result<bool, Error> {
        let cookie = self.shared.adopt(fd)?;
        self.shared.wait(cookie, bound, timeout)
    }

    /// After a call that wrote to a descriptor: sleeps if the controller `element` wants it; for the C interface.
    pub fn hold_raw(&self, fd: i32) {
        self.shared.hold(fd);
    }

    /// Ends it, though others may have it: those that wait are told that it has ended, and the thread is gone
    /// afterwards. In a forked child there is nothing to end.
    pub fn end(&self) {
        let Ok(mut state) = self.shared.lock() else {
            return;
        };
        state.is_over = true;
        drop(state);
        self.shared.bell.notify_all();
        self.shared.looked.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        // In a forked child: the thread is not there, and libc must not be asked to let go of it.
        std::mem::forget(thread.take());
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn info(&self, cookie: u64) -> Result<Info, Error> {
        let state = self.lock()?;
        let known = state.known.get(&cookie).ok_or(Error::Ended)?;
        Ok(known.memory.info())
    }

    /// True once a bound is passed, false after the timeout.
    pub(super) fn wait(&self, cookie: u64, bound: Bound, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let began_ns = sys::monotonic_ns();
        let mut state = self.lock()?;
        loop {
            let known = state.known.get(&cookie).filter(|_| !state.is_over);
            let known = known.ok_or(Error::Ended)?;
            if bound.is_passed(&known.memory.since(began_ns)) {
                return Ok(true);
            }
            if known.has_ended {
                return Err(Error::Ended);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Ok(false),
                Some(left) => {
                    let woken = self.looked.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.looked.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Sleeps as the controller `element` has callers that write do.
    pub(super) fn hold(&self, fd: i32) {
        if sys::pid() != self.pid {
            return;
        }
        let cookie = sys::cookie(fd).unwrap_or_default();
        let seat = self.table.find(cookie);
        let account = seat.and_then(|seat| self.table.last(seat, cookie));
        if let Some(hold) = account.and_then(|account| account.setting.hold_above) {
            crate::inside::hold(fd, hold);
        }
    }

    /// Watches what is at a descriptor, if it is not watched, and gives its cookie.
    fn adopt(&self, fd: i32) -> Result<u64, Error> {
        let not_tcp = Error::NotTcp { fd };
        let Ok(cookie) = sys::cookie(fd) else {
            return Err(not_tcp);
        };
        let mut guard = self.lock()?;
        let state = &mut *guard;
        if state.known.contains_key(&cookie) {
            return Ok(cookie);
        }
        if !sys::is_tcp(fd) {
            return Err(not_tcp);
        }
        if state.known.len() >= crate::table::SLOTS {
            return Err(Error::Full);
        }
        let now_ns = sys::monotonic_ns();
        if !state.sockets.get().adopt(fd, Begun::Before, self.means(), now_ns) {
            return Err(not_tcp);
        }
        state.known.insert(cookie, Known::default());
        // Only at this one, which has no controller of the program's own: those are asked on the thread.
        let State { sockets, known, .. } = state;
        sockets.get().look_at(cookie, self.means(), now_ns, &mut |account, _| {
            known.get_mut(&account.cookie)?.take(account);
            None
        });
        self.bell.notify_one();
        Ok(cookie)
    }

    fn run(&self) {
        let Ok(mut state) = self.lock() else {
            return;
        };
        let mut budget = Budget::default();
        while !state.is_over {
            let began = Instant::now();
            let began_ns = sys::monotonic_ns();
            let next_ns = state.look(self.means(), began_ns);
            self.looked.notify_all();
            if state.known.is_empty() {
                let woken = self.bell.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let wanted_ns = self.orders.period_ns(began_ns, next_ns);
            let period = Duration::from_nanos(budget.period_ns(self.orders.budget, wanted_ns));
            let left = period.saturating_sub(began.elapsed());
            let woken = self.bell.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn means(&self) -> Means<'_> {
        Means {
            table: &self.table,
            orders: &self.orders,
            me: Poller {
                pid: self.pid,
                // Nobody else has the table.
                thread: 0,
            },
        }
    }

    /// In a forked child, the thread is not there, and may have left the lock closed.
    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        if sys::pid() != self.pid {
            return Err(Error::Forked);
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: its copies were borrowed from `self`.
        unsafe { self.table.release() };
    }
}

impl State {
    fn look(&mut self, means: Means<'_>, now_ns: u64) -> Option<u64> {
        let State { sockets, known, .. } = self;
        let sockets = sockets.get();
        let mut looked = |account: &Account, state: &control::State<'_>| {
            let known = known.get_mut(&account.cookie)?;
            known.take(account);
            let controller = known.controller.as_mut();
            controller.map(|controller| controller.update(state))
        };
        let next_ns = sockets.look(means, now_ns, &mut looked, &mut |_| ());
        sockets.give_up_lost(means, now_ns, &mut |cookie| {
            known.remove(&cookie);
        });
        next_ns
    }
}

impl Known {
    fn take(&mut self, account: &Account) {
        const CLOSE: u8 = 7;
        self.memory.take(account);
        self.has_ended = account.reading.info.state == CLOSE;
    }
}
