//! What a reader has to know of the measurement itself, each thing once.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use dwell_engine::socket::{Account, Estimator, Way};
use dwell_records::{Socket, counted};
use dwell_socket::table::{Counts, Wish};

use super::{Args, print::Printer, watcher::Watcher};

/// Programs that are named at most, of each thing.
const NAMED: usize = 8;

/// A library in a process that is busy looks at a connection later than it should, and not so late.
const LATE: Duration = Duration::from_secs(1);

/// Remembers what was told.
pub struct Notes {
    wants_exact: bool,
    wants_inside: bool,
    falls_back: bool,
    outside: Told,
    /// By cookie: connections that were watched from outside at the last look, and since when.
    were_outside: HashMap<u64, Instant>,
    /// Processes with connections that are watched inside.
    inside: HashSet<u32>,
    denied: Told,
}

/// Programs that something was told of.
#[derive(Default)]
struct Told {
    names: BTreeSet<String>,
    pids: HashSet<u32>,
}

impl Notes {
    /// `is_inside`: a library is loaded into the program.
    pub fn new(args: &Args, is_inside: bool) -> Notes {
        Notes {
            wants_exact: args.estimator() == Estimator::Exact,
            wants_inside: is_inside,
            falls_back: false,
            outside: Told::default(),
            were_outside: HashMap::new(),
            inside: HashSet::new(),
            denied: Told::default(),
        }
    }

    /// After a look at the connections.
    pub fn look(&mut self, sockets: &[Socket], watcher: &Watcher, printer: &Printer) {
        for socket in sockets {
            let account = &socket.account;
            if self.wants_exact && account.estimator == Estimator::Paper && !self.falls_back {
                self.falls_back = true;
                printer.note(
                    "this kernel does not count the bytes that have left (TCP_INFO before Linux \
                     4.6): delays are estimated from segments, as with --estimator paper",
                );
            }
        }
        if self.wants_inside {
            self.outside(sockets, printer);
        }
        for &pid in watcher.denied() {
            if let Some(name) = self.denied.name(pid) {
                printer.note(&format!(
                    "cannot see which connections {name} (process {pid}) has, as it is of another \
                     user or setuid: they are not measured; run dwell as root to see them"
                ));
            }
        }
    }

    /// One that the library has only not looked at yet is no longer outside at a later look.
    fn outside(&mut self, sockets: &[Socket], printer: &Printer) {
        let now = Instant::now();
        let accounts = sockets.iter().map(|socket| &socket.account);
        let (inside, outside): (Vec<&Account>, Vec<&Account>) = accounts.partition(|it| it.way == Way::Inside);
        self.inside.extend(inside.iter().filter_map(|it| it.pid));
        let before = std::mem::take(&mut self.were_outside);
        for account in outside {
            let since = before.get(&account.cookie).copied();
            let first = since.unwrap_or(now);
            self.were_outside.insert(account.cookie, first);
            let Some(pid) = account.pid.filter(|_| since.is_some()) else {
                continue;
            };
            let is_late = now.duration_since(first) < LATE && has_library(pid);
            if is_late || self.inside.contains(&pid) {
                continue;
            }
            if let Some(name) = self.outside.name(pid) {
                printer.note(&format!(
                    "connections of {name} (process {pid}) are measured from outside, as they were \
                     not made through libdwell: it is linked statically, setuid, or does not call \
                     the C library"
                ));
            }
        }
    }

    /// At the end.
    pub fn end(&self, counts: &Counts, printer: &Printer) {
        if self.wants_inside && counts.processes == 0 {
            printer.note(
                "no program could use libdwell: connections were measured from outside. Take the \
                 library of this dwell's own version, and a dwell without capabilities of its own \
                 (setcap), as these keep it from programs",
            );
        }
        let lines = [
            (counts.too_short, "connections that failed, or were too short to be looked at"),
            (counts.no_place, "connections without a free place in the table, measured from outside"),
            (counts.no_poller, "times a process could not start a thread that looks at its connections"),
            (
                counts.hands_off,
                "connections left as they are, as their program sets TCP_NOTSENT_LOWAT or \
                 SO_SNDBUF itself",
            ),
        ];
        for (number, what) in lines.into_iter().filter(|(number, _)| *number > 0) {
            printer.note(&counted(number, what));
        }
        for refused in &counts.refused {
            let error = std::io::Error::from_raw_os_error(refused.errno);
            let times = counted(refused.times, "times");
            let wish = match refused.wish {
                Wish::Congestion => {
                    "the congestion control (TCP_CONGESTION; sysctl \
                     net.ipv4.tcp_allowed_congestion_control names those that users may take)"
                }
                Wish::NotsentLowat => "TCP_NOTSENT_LOWAT",
                Wish::SendBuffer => "SO_SNDBUF",
            };
            printer.note(&format!("the kernel refused {wish} {times}: {error}"));
        }
    }
}

impl Told {
    /// The name of this program, if it is to be told: the first process of its name is, of some names.
    fn name(&mut self, pid: u32) -> Option<String> {
        if self.names.len() >= NAMED || !self.pids.insert(pid) {
            return None;
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        let name = name.map_or_else(|_| "a program".into(), |name| printable(name.trim()));
        self.names.insert(name.clone()).then_some(name)
    }
}

fn has_library(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    maps.is_ok_and(|maps| maps.contains("/libdwell"))
}

/// Any process may call itself anything.
fn printable(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}
