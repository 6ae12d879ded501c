//! Options of the sockets of other processes: pidfd_getfd(2) lends their descriptors.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs, io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

use dwell_engine::socket::{
    Reading,
    control::{Setting, State},
};

use super::{Error, Outside, processes::Owner};
use crate::{
    inside::{Adjuster, Refusals, set_congestion},
    sys::{self, Errno},
    table::{Counts, RawConfig, Refused, SocketOption},
};

/// The options that dwell has set on a socket of another process. No descriptor of it is kept, because the connection
/// would then outlive the program's own.
#[derive(Debug)]
pub(super) struct Remote {
    config: RawConfig,
    adjuster: Adjuster,
    /// `None` until the socket was borrowed for the first time.
    congestion: Option<Congestion>,
    /// What is to be set once the socket can be borrowed.
    wanted: Setting,
}

/// The congestion control before dwell set it, and after.
#[derive(Debug)]
struct Congestion {
    before: Option<[u8; 16]>,
    after: Option<[u8; 16]>,
}

/// What became of the options.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    refused: RefCell<BTreeMap<(SocketOption, i32), u64>>,
    hands_off: Cell<u64>,
    /// Processes whose descriptors cannot be borrowed, and why.
    unreachable: RefCell<BTreeMap<u32, i32>>,
}

impl Remote {
    /// Prepares to set the options of a socket.
    pub(super) fn new(config: &RawConfig) -> Remote {
        Remote { config: *config, adjuster: Adjuster::new(config), congestion: None, wanted: Setting::default() }
    }

    /// Runs after each poll. What cannot be set now, because the socket cannot be borrowed, is tried again at the next
    /// call.
    pub(super) fn step(&mut self, owner: Owner, cookie: u64, reading: &Reading, outcomes: &Outcomes) {
        let state = State { reading, delay: None, waiting_ns: None, average_ns: None, send_buffer: 0 };
        // Writes cannot be cut from outside, so nothing else is wanted.
        let notsent_lowat = self.adjuster.decide(&state).notsent_lowat.or(self.wanted.notsent_lowat);
        self.wanted = Setting { notsent_lowat, ..Setting::default() };
        let names_congestion = self.config.congestion != [0; 16];
        let is_done = notsent_lowat.is_none() && (self.congestion.is_some() || !names_congestion);
        if !is_done && let Some(socket) = borrow(owner, cookie, outcomes) {
            let fd = socket.as_raw_fd();
            if self.congestion.is_none() {
                self.congestion = Some(Congestion::set(fd, &self.config, outcomes));
            }
            self.adjuster.apply(fd, &mem::take(&mut self.wanted), outcomes);
        }
    }

    /// Returns the applied setting.
    pub(super) fn setting(&self) -> Setting {
        self.adjuster.setting()
    }

    /// Resets what was set, unless the program has changed it since. Returns true if anything was reset.
    pub(super) fn restore(&self, owner: Owner, cookie: u64) -> bool {
        let lowat = self.adjuster.setting().notsent_lowat;
        let congestion = self.congestion.as_ref().filter(|it| it.before != it.after);
        if lowat.is_none() && congestion.is_none() {
            return false;
        }
        // The connection may have ended.
        let Some(socket) = borrow(owner, cookie, &Outcomes::default()) else {
            return false;
        };
        let fd = socket.as_raw_fd();
        // 0, which it was, stands for the default of the namespace.
        let is_lowat_reset =
            lowat.is_some() && sys::notsent_lowat(fd) == lowat && sys::set_notsent_lowat(fd, 0).is_ok();
        let is_congestion_reset = congestion.is_some_and(|it| it.reset(fd));
        is_lowat_reset || is_congestion_reset
    }
}

impl Congestion {
    fn set(fd: i32, config: &RawConfig, outcomes: &Outcomes) -> Congestion {
        let before = sys::congestion(fd);
        set_congestion(fd, config, outcomes);
        Congestion { before, after: sys::congestion(fd) }
    }

    /// Returns true if it was reset.
    fn reset(&self, fd: i32) -> bool {
        let before = self.before.filter(|_| sys::congestion(fd) == self.after);
        before.is_some_and(|before| sys::set_congestion(fd, &before).is_ok())
    }
}

impl Outcomes {
    /// Returns the options that the kernel refused.
    pub(super) fn refused(&self) -> Vec<Refused> {
        let refused = self.refused.borrow();
        refused.iter().map(|(&(option, errno), &times)| Refused { option, errno, times }).collect()
    }

    /// Returns the number of connections whose program sets the same option itself.
    pub(super) fn hands_off(&self) -> u64 {
        self.hands_off.get()
    }

    /// Returns processes on whose connections no options can be set, and why.
    pub(super) fn unreachable(&self) -> Vec<(u32, io::Error)> {
        let unreachable = self.unreachable.borrow();
        unreachable.iter().map(|(&pid, &errno)| (pid, io::Error::from_raw_os_error(errno))).collect()
    }
}

impl Refusals for Outcomes {
    fn refused(&self, option: SocketOption, why: Errno) {
        *self.refused.borrow_mut().entry((option, why.0)).or_default() += 1;
    }

    fn set_by_program(&self) {
        self.hands_off.set(self.hands_off.get() + 1);
    }
}

impl Outside {
    /// Sets options on sockets that have just been polled.
    pub(super) fn set_options(&mut self) {
        if !self.has_remotes {
            return;
        }
        for watched in self.sockets.values_mut().filter(|watched| watched.has_news && !watched.ended) {
            watched.has_news = false;
            let cookie = watched.key.cookie();
            if let Some(remote) = &mut watched.remote {
                remote.step(watched.owner, cookie, &watched.reading, &self.outcomes);
            }
        }
    }

    /// Resets the options that were set, and sets none from now on. Returns the number of sockets that had any.
    pub fn reset_options(&mut self) -> usize {
        self.config.options = None;
        self.has_remotes = false;
        let remotes = self.sockets.values_mut().filter_map(|watched| {
            let remote = watched.remote.take()?;
            Some(remote.restore(watched.owner, watched.key.cookie()))
        });
        remotes.filter(|&was_set| was_set).count()
    }

    /// Returns what became of the options.
    pub fn counts(&self) -> Counts {
        Counts { hands_off: self.outcomes.hands_off(), refused: self.outcomes.refused(), ..Counts::default() }
    }

    /// Returns processes on whose sockets no options can be set, and why.
    pub fn unreachable(&self) -> Vec<(u32, io::Error)> {
        self.outcomes.unreachable()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.reset_options();
    }
}

/// Checks that options can be set on the sockets of a process.
///
/// # Errors
///
/// If the kernel does not lend its descriptors.
pub(super) fn check(pid: u32) -> Result<(), Error> {
    let first = fs::read_dir(format!("/proc/{pid}/fd")).ok().and_then(|mut open| open.next()?.ok());
    let Some(fd) = first.and_then(|entry| entry.file_name().to_str()?.parse().ok()) else {
        return Ok(());
    };
    match sys::borrow(pid, fd) {
        // It was closed, or the process has ended, in the meantime.
        Ok(_) | Err(Errno(libc::EBADF | libc::ESRCH)) => Ok(()),
        Err(why) => Err(Error::Options { pid, io: io::Error::from_raw_os_error(why.0) }),
    }
}

/// Returns what helps against an error of borrowing a descriptor, to follow its message; empty if there is no remedy but
/// the message itself.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            "; this needs Linux 5.6 and the privilege to trace the process: run dwell as root"
        }
        Some(libc::EMFILE | libc::ENFILE) => "; raise the limit of open files (`ulimit -n`)",
        _ => "",
    }
}

/// Borrows the socket with this cookie. `None` if its process no longer has it at this descriptor.
fn borrow(owner: Owner, cookie: u64, outcomes: &Outcomes) -> Option<OwnedFd> {
    match sys::borrow(owner.pid, owner.fd) {
        Ok(socket) => {
            outcomes.unreachable.borrow_mut().remove(&owner.pid);
            (sys::cookie(socket.as_raw_fd()) == Ok(cookie)).then_some(socket)
        }
        Err(Errno(libc::EBADF | libc::ESRCH)) => None,
        Err(why) => {
            outcomes.unreachable.borrow_mut().insert(owner.pid, why.0);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        process,
    };

    use super::*;
    use crate::table::{Config, ControllerKind};

    const CUBIC: [u8; 16] = *b"cubic\0\0\0\0\0\0\0\0\0\0\0";
    const RENO: [u8; 16] = *b"reno\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn options_are_set_on_a_borrowed_socket_and_taken_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        sys::set_congestion(fd, &CUBIC).unwrap();
        let (owner, cookie) = (Owner { pid: process::id(), fd }, sys::cookie(fd).unwrap());
        let config = Config {
            controller: Some(ControllerKind::Lowat),
            congestion: Some("reno".to_owned()),
            ..Config::default()
        };
        let config = RawConfig::new(&config).unwrap();
        let outcomes = Outcomes::default();
        let mut remote = Remote::new(&config);
        let mut reading = Reading { time_ns: 1, info: sys::info(fd).unwrap(), ..Reading::default() };
        reading.info.delivery_rate = Some(1_000_000);
        remote.step(owner, cookie + 1, &reading, &outcomes);
        assert_eq!(sys::congestion(fd), Some(CUBIC), "it is another socket");
        assert_eq!(remote.setting(), Setting::default());
        // The controller decides nothing new, but the option is still to be set.
        remote.step(owner, cookie, &reading, &outcomes);
        assert_eq!(sys::congestion(fd), Some(RENO));
        let lowat = remote.setting().notsent_lowat;
        assert!(lowat.is_some() && sys::notsent_lowat(fd) == lowat);
        assert_eq!(remote.setting().piece_bytes, None, "writes cannot be cut from outside");
        assert!(remote.restore(owner, cookie));
        assert_eq!(sys::notsent_lowat(fd), Some(0));
        assert_eq!(sys::congestion(fd), Some(CUBIC));
        assert!(outcomes.refused().is_empty() && outcomes.unreachable().is_empty());
    }

    #[test]
    fn what_a_program_sets_itself_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        sys::set_notsent_lowat(fd, 99_000).unwrap();
        let (owner, cookie) = (Owner { pid: process::id(), fd }, sys::cookie(fd).unwrap());
        let config = Config { controller: Some(ControllerKind::Lowat), ..Config::default() };
        let config = RawConfig::new(&config).unwrap();
        let outcomes = Outcomes::default();
        let mut remote = Remote::new(&config);
        let reading = Reading { time_ns: 1, info: sys::info(fd).unwrap(), ..Reading::default() };
        remote.step(owner, cookie, &reading, &outcomes);
        assert_eq!((sys::notsent_lowat(fd), outcomes.hands_off()), (Some(99_000), 1));
        assert!(!remote.restore(owner, cookie));
        assert_eq!(sys::notsent_lowat(fd), Some(99_000));
    }
    #[test]
    fn a_congestion_control_that_the_program_has_chosen_since_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = stream.as_raw_fd();
        sys::set_congestion(fd, &CUBIC).unwrap();
        let (owner, cookie) = (Owner { pid: process::id(), fd }, sys::cookie(fd).unwrap());
        let step = |name: &str, outcomes: &Outcomes| {
            let config = Config { congestion: Some(name.to_owned()), ..Config::default() };
            let mut remote = Remote::new(&RawConfig::new(&config).unwrap());
            remote.step(owner, cookie, &Reading::default(), outcomes);
            remote
        };
        let outcomes = Outcomes::default();
        let remote = step("reno", &outcomes);
        assert_eq!(sys::congestion(fd), Some(RENO));
        sys::set_congestion(fd, &CUBIC).unwrap();
        assert!(!remote.restore(owner, cookie), "nothing was reset");
        assert_eq!(sys::congestion(fd), Some(CUBIC));
        let remote = step("nosuch", &outcomes);
        assert!(!remote.restore(owner, cookie), "nothing was set");
        assert_eq!(outcomes.refused().len(), 1);
    }

    #[test]
    fn privilege_is_named_only_where_it_helps() {
        let remedy = |errno| remedy(&io::Error::from_raw_os_error(errno));
        assert!(remedy(libc::EPERM).contains("privilege") && remedy(libc::ENOSYS).contains("Linux 5.6"));
        assert!(!remedy(libc::EMFILE).contains("privilege") && remedy(libc::EIO).is_empty());
    }
}
