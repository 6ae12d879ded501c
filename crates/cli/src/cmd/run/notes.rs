//! Notes about the measurement itself, each of which is printed once.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use dwell_engine::socket::{Account, Estimator, Viewpoint};
use dwell_records::{Socket, counted};
use dwell_socket::table::{Counts, SocketOption};

use super::{Args, print::Printer, watcher::Watcher};

/// Most programs that are named in notes of one kind.
const MAX_NAMED: usize = 8;

/// The library in a busy process may poll a new connection late, but not later than this.
const LATE: Duration = Duration::from_secs(1);

/// Remembers which notes were printed.
pub struct Notes {
    wants_exact: bool,
    wants_inside: bool,
    falls_back: bool,
    outside: NamedPrograms,
    /// Connections that were watched from outside at the last interval, by cookie, and since when.
    were_outside: HashMap<u64, Instant>,
    /// Processes with connections that are watched from inside.
    inside: HashSet<u32>,
    denied: NamedPrograms,
}

/// Programs that a note has named.
#[derive(Default)]
struct NamedPrograms {
    names: BTreeSet<String>,
    pids: HashSet<u32>,
}

impl Notes {
    /// Creates the notes of a run. `is_inside` is true if a library is loaded into the program.
    pub fn new(args: &Args, is_inside: bool) -> Notes {
        Notes {
            wants_exact: args.estimator() == Estimator::Exact,
            wants_inside: is_inside,
            falls_back: false,
            outside: NamedPrograms::default(),
            were_outside: HashMap::new(),
            inside: HashSet::new(),
            denied: NamedPrograms::default(),
        }
    }

    /// Prints notes about the connections of an interval.
    pub fn update(&mut self, sockets: &[Socket], watcher: &Watcher, printer: &Printer) {
        for socket in sockets {
            let account = &socket.account;
            if self.wants_exact && account.estimator == Estimator::Paper && !self.falls_back {
                self.falls_back = true;
                printer.note(
                    "this kernel does not count the bytes that have left (TCP_INFO before Linux \
                     4.6): delays are estimated from segments, as with --set estimator=paper",
                );
            }
        }
        if self.wants_inside {
            self.outside(sockets, printer);
        }
        for &pid in watcher.denied() {
            if let Some(name) = self.denied.name(pid) {
                printer.note(&format!(
                    "cannot see the connections of {name} (process {pid}), which belongs to another user \
                     or is setuid: they are not measured; run dwell as root to see them"
                ));
            }
        }
    }

    /// Prints notes about connections that are watched from outside for two intervals: a connection that the library had
    /// not polled yet is watched from inside by then.
    fn outside(&mut self, sockets: &[Socket], printer: &Printer) {
        let now = Instant::now();
        let accounts = sockets.iter().map(|socket| &socket.account);
        let (inside, outside): (Vec<&Account>, Vec<&Account>) =
            accounts.partition(|it| it.viewpoint == Viewpoint::Inside);
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
                    "connections of {name} (process {pid}) are measured from outside, because they were \
                     not made through libdwell: the program is linked statically, setuid, or does not \
                     call the C library"
                ));
            }
        }
    }

    /// Prints notes at the end of a run.
    pub fn end(&self, counts: &Counts, printer: &Printer) {
        if self.wants_inside && counts.processes == 0 {
            printer.note(
                "no program could use libdwell: connections were measured from outside. Use the \
                 library of the same version as dwell, and a dwell without file capabilities \
                 (setcap), because they keep programs from loading it",
            );
        }
        let lines = [
            (counts.too_short, ["connection", "connections"], "that failed, or were too short to be polled"),
            (counts.no_slot, ["connection", "connections"], "without a free slot in the table, measured from outside"),
            (counts.no_poller, ["time", "times"], "a process could not start a thread that polls its connections"),
            (
                counts.hands_off,
                ["connection", "connections"],
                "left alone because their program sets TCP_NOTSENT_LOWAT or SO_SNDBUF itself",
            ),
        ];
        for (number, [one, many], what) in lines.into_iter().filter(|(number, ..)| *number > 0) {
            printer.note(&format!("{} {what}", counted(number, one, many)));
        }
        for refused in &counts.refused {
            let error = std::io::Error::from_raw_os_error(refused.errno);
            let times = counted(refused.times, "time", "times");
            let option = match refused.option {
                SocketOption::Congestion => {
                    "the congestion control (TCP_CONGESTION; sysctl \
                     net.ipv4.tcp_allowed_congestion_control names those that users may choose)"
                }
                SocketOption::NotsentLowat => "TCP_NOTSENT_LOWAT",
                SocketOption::SendBuffer => "SO_SNDBUF",
            };
            printer.note(&format!("the kernel refused {option} {times}: {error}"));
        }
    }
}

impl NamedPrograms {
    /// Returns the name of a process if it is to be named: the first process of each name, up to a number of names.
    fn name(&mut self, pid: u32) -> Option<String> {
        if self.names.len() >= MAX_NAMED || !self.pids.insert(pid) {
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

/// Replaces control characters, as a process may call itself anything.
fn printable(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}
