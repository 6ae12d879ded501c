//! A thread that polls the sockets that a program names.
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
    Account, Estimator,
    control::{self, Controller},
};

use super::{Error, Info, Socket, info::History, socket::Bound};
use crate::{
    inside::{Budget, CallEvent, Context, Origin, OwnedRegistry},
    sys,
    table::{Config, Poller, RawConfig, Writer},
};

/// Watches sockets of this process until it is dropped. Controllers run on its own thread.
pub struct Session {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State that the thread and its callers share.
pub(super) struct Shared {
    table: Writer,
    config: RawConfig,
    pid: u32,
    state: Mutex<State>,
    /// Signals the thread that there is a socket to poll, or that it must end.
    work: Condvar,
    /// Signals callers that a round is over.
    polled: Condvar,
}

struct State {
    registry: OwnedRegistry,
    sockets: HashMap<u64, SessionSocket>,
    is_over: bool,
}

#[derive(Default)]
struct SessionSocket {
    history: History,
    /// True if the last poll found the connection closed.
    has_ended: bool,
    controller: Option<Box<dyn Controller + Send>>,
}

impl Session {
    /// Starts the thread. It polls and controls the watched sockets as `config` demands.
    ///
    /// # Errors
    /// The configuration is impossible, or the process may not start a thread.
    pub fn start(config: &Config) -> Result<Session, Error> {
        let config = RawConfig::new(config)?;
        let memory = |why: sys::Errno| Error::Poller { source: io::Error::from_raw_os_error(why.0) };
        let shared = Arc::new(Shared {
            table: Writer::alone(&config).map_err(memory)?,
            config,
            pid: sys::pid(),
            state: Mutex::new(State {
                registry: OwnedRegistry::new().map_err(memory)?,
                sockets: HashMap::new(),
                is_over: false,
            }),
            work: Condvar::new(),
            polled: Condvar::new(),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("dwell".to_owned())
            .spawn(move || its.run())
            .map_err(|source| Error::Poller { source })?;
        Ok(Session { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Watches a connection as long as it is open.
    ///
    /// # Errors
    /// The socket is not a TCP connection, or there are too many.
    pub fn watch<'fd>(&self, socket: &'fd impl AsFd) -> Result<Socket<'fd>, Error> {
        let fd = socket.as_fd();
        let cookie = self.shared.adopt(fd.as_raw_fd())?;
        Ok(Socket::new(fd, cookie, Arc::clone(&self.shared)))
    }

    /// Lets `controller` decide the settings of a socket, instead of the configuration. It runs in the session's thread, and its
    /// `update` must not call the session, which is locked meanwhile; it may when it is dropped.
    ///
    /// # Errors
    /// The socket has ended.
    pub fn control(&self, socket: &Socket<'_>, controller: Box<dyn Controller + Send>) -> Result<(), Error> {
        self.control_raw(socket.as_fd().as_raw_fd(), controller)
    }

    /// Does the same as [`Session::control`] for a descriptor; for the C interface.
    ///
    /// # Errors
    /// The descriptor is not a TCP connection, or there are too many.
    pub fn control_raw(&self, fd: i32, controller: Box<dyn Controller + Send>) -> Result<(), Error> {
        let cookie = self.shared.adopt(fd)?;
        let mut state = self.shared.lock()?;
        let socket = state.sockets.get_mut(&cookie).ok_or(Error::Ended)?;
        let before = socket.controller.replace(controller);
        // Dropping the controller runs its owner's code, which may call this session.
        drop(state);
        drop(before);
        Ok(())
    }

    /// Returns the figures of the connection at a descriptor, and starts watching it if necessary; for the C interface.
    ///
    /// # Errors
    /// The descriptor is not a TCP connection, or there are too many.
    pub fn info_raw(&self, fd: i32) -> Result<Info, Error> {
        let cookie = self.shared.adopt(fd)?;
        self.shared.info(cookie)
    }

    /// Waits until a bound is exceeded at a descriptor; for the C interface.
    ///
    /// # Errors
    /// The descriptor is not a TCP connection, or the connection has ended.
    pub fn wait_raw(&self, fd: i32, bound: Bound, timeout: Option<Duration>) -> Result<bool, Error> {
        let cookie = self.shared.adopt(fd)?;
        self.shared.wait(cookie, bound, timeout)
    }

    /// Records a call that writes to a descriptor or reads from it, for the estimator `paper`; for the C interface.
    pub fn called_raw(&self, fd: i32, event: CallEvent) {
        self.shared.called(fd, event);
    }

    /// Delays the caller after a call that wrote to a descriptor, if the controller `element` demands it; for the C
    /// interface.
    pub fn hold_raw(&self, fd: i32) {
        self.shared.hold(fd);
    }

    /// Ends the session, even if others still refer to it: waiting callers get [`Error::Ended`], and the thread is
    /// joined. Does nothing in a forked child.
    pub fn end(&self) {
        let Ok(mut state) = self.shared.lock() else {
            return;
        };
        state.is_over = true;
        drop(state);
        self.shared.work.notify_all();
        self.shared.polled.notify_all();
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
        // In a forked child the thread does not exist, and libc must not be asked to detach it.
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
        let socket = state.sockets.get(&cookie).ok_or(Error::Ended)?;
        Ok(socket.history.info())
    }

    /// Returns true once a bound is exceeded, false after the timeout.
    pub(super) fn wait(&self, cookie: u64, bound: Bound, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let began_ns = sys::monotonic_ns();
        let mut state = self.lock()?;
        loop {
            let socket = state.sockets.get(&cookie).filter(|_| !state.is_over);
            let socket = socket.ok_or(Error::Ended)?;
            if bound.is_passed(&socket.history.since(began_ns)) {
                return Ok(true);
            }
            if socket.has_ended {
                return Err(Error::Ended);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Ok(false),
                Some(left) => {
                    let woken = self.polled.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.polled.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Records a call at a descriptor that is watched.
    pub(super) fn called(&self, fd: i32, event: CallEvent) {
        if self.config.estimator == Estimator::Paper
            && let Ok(mut state) = self.lock()
        {
            state.registry.get().called(fd, sys::monotonic_ns(), event);
        }
    }

    /// Delays the caller as the controller `element` demands.
    pub(super) fn hold(&self, fd: i32) {
        if sys::pid() != self.pid {
            return;
        }
        let cookie = sys::cookie(fd).unwrap_or_default();
        let index = self.table.find(cookie);
        let account = index.and_then(|index| self.table.last(index, cookie));
        if let Some(hold) = account.and_then(|account| account.setting.hold_above) {
            crate::inside::hold(fd, hold);
        }
    }

    /// Watches the socket at a descriptor if it is not watched yet, and returns its cookie.
    fn adopt(&self, fd: i32) -> Result<u64, Error> {
        let not_tcp = Error::NotTcp { fd };
        let Ok(cookie) = sys::cookie(fd) else {
            return Err(not_tcp);
        };
        let mut guard = self.lock()?;
        let state = &mut *guard;
        if state.sockets.contains_key(&cookie) {
            return Ok(cookie);
        }
        if !sys::is_tcp(fd) {
            return Err(not_tcp);
        }
        if state.sockets.len() >= crate::table::SLOTS {
            return Err(Error::Full);
        }
        let now_ns = sys::monotonic_ns();
        if !state.registry.get().adopt(fd, Origin::Preexisting, self.context(), now_ns) {
            return Err(not_tcp);
        }
        state.sockets.insert(cookie, SessionSocket::default());
        // Polls only this socket, which has no controller of the program's own: those run on the thread.
        let State { registry, sockets, .. } = state;
        registry.get().poll_one(cookie, self.context(), now_ns, &mut |account, _| {
            sockets.get_mut(&account.cookie)?.update(account);
            None
        });
        self.work.notify_one();
        Ok(cookie)
    }

    fn run(&self) {
        let Ok(mut state) = self.lock() else {
            return;
        };
        let (mut budget, mut ended) = (Budget::default(), Vec::new());
        while !state.is_over {
            let began = Instant::now();
            let began_ns = sys::monotonic_ns();
            let next_ns = state.poll(self.context(), began_ns, &mut ended);
            self.polled.notify_all();
            if !ended.is_empty() {
                // Dropping a controller runs its owner's code, which may call this session.
                drop(state);
                ended.clear();
                let Ok(locked) = self.lock() else {
                    return;
                };
                state = locked;
                if state.is_over {
                    return;
                }
            }
            if state.sockets.is_empty() {
                let woken = self.work.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let wanted_ns = self.config.period_ns(began_ns, next_ns);
            let period = Duration::from_nanos(budget.period_ns(self.config.budget, wanted_ns));
            let left = period.saturating_sub(began.elapsed());
            let woken = self.work.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn context(&self) -> Context<'_> {
        Context {
            table: &self.table,
            config: &self.config,
            me: Poller {
                pid: self.pid,
                // No other process has the table.
                thread: 0,
            },
        }
    }

    /// Locks the state. In a forked child the thread does not exist, and may have held the lock.
    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        if sys::pid() != self.pid {
            return Err(Error::Forked);
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: copies of the table were borrowed from `self`.
        unsafe { self.table.release() };
    }
}

impl State {
    /// Polls the sockets, and moves those whose connections have ended to `ended`.
    fn poll(&mut self, context: Context<'_>, now_ns: u64, ended: &mut Vec<SessionSocket>) -> Option<u64> {
        let State { registry, sockets, .. } = self;
        let registry = registry.get();
        let mut on_poll = |account: &Account, state: &control::State<'_>| {
            let socket = sockets.get_mut(&account.cookie)?;
            socket.update(account);
            let controller = socket.controller.as_mut();
            controller.map(|controller| controller.update(state))
        };
        let next_ns = registry.poll(context, now_ns, &mut on_poll, &mut |_| ());
        registry.remove_lost(context, now_ns, &mut |cookie| ended.extend(sockets.remove(&cookie)));
        next_ns
    }
}

impl SessionSocket {
    fn update(&mut self, account: &Account) {
        const CLOSE: u8 = 7;
        self.history.update(account);
        self.has_ended = account.reading.info.state == CLOSE;
    }
}
