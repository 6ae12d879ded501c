//! Notes about the measurement itself, each of which is printed once.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use dwell_engine::{
    labels::harmless,
    socket::{Account, Estimator, Viewpoint},
};
use dwell_records::{Socket, counted};
use dwell_socket::{
    outside::{has_library, maps, remedy, uses_library},
    table::SocketOption,
};

use super::{Args, print::Printer, watcher::Watcher};

/// Most programs that are named in notes of one kind.
const MAX_NAMED: usize = 8;

/// The library in a busy process may poll a new connection late, but not later than this.
const LATE: Duration = Duration::from_secs(1);

/// Remembers which notes were printed.
pub struct Notes {
    wants_exact: bool,
    wants_inside: bool,
    sets_options: bool,
    /// Whether dwell sets options where no library does.
    sets_outside: bool,
    falls_back: bool,
    outside: NamedPrograms,
    /// Connections that were watched from outside at the last interval, by cookie, and since when.
    were_outside: HashMap<u64, Instant>,
    /// Processes with connections that are watched from inside.
    inside: HashSet<u32>,
    denied: NamedPrograms,
    unreachable: NamedPrograms,
    inaccessible: Inaccessible,
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
            sets_options: args.sets_options(),
            sets_outside: args.sets_outside(),
            falls_back: false,
            outside: NamedPrograms::default(),
            were_outside: HashMap::new(),
            inside: HashSet::new(),
            denied: NamedPrograms::default(),
            unreachable: NamedPrograms::default(),
            inaccessible: Inaccessible::default(),
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
        self.inaccessible(LATE, watcher, printer);
        for (pid, error) in watcher.unreachable() {
            if let Some(name) = self.unreachable.name(pid) {
                let remedy = remedy(&error);
                printer
                    .note(&format!("no options are set on the connections of {name} (process {pid}): {error}{remedy}"));
            }
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

    /// Prints notes about network namespaces that have been inaccessible for longer than `patience`.
    fn inaccessible(&mut self, patience: Duration, watcher: &Watcher, printer: &Printer) {
        for (number, error) in watcher.inaccessible() {
            if self.inaccessible.is_news(number, Instant::now(), patience) {
                printer.note(&error.to_string());
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
            if self.inside.contains(&pid) || self.outside.is_done(pid) {
                continue;
            }
            let maps = maps(pid);
            let has_library = has_library(&maps);
            if has_library && now.duration_since(first) < LATE {
                continue;
            }
            if let Some(name) = self.outside.name(pid) {
                let is_served = uses_library(&maps);
                let how = match (self.sets_options, self.sets_outside && !is_served) {
                    (false, _) => "measured from outside",
                    (true, true) => "measured, and their options set, from outside",
                    (true, false) => "measured from outside, and no options are set on them",
                };
                let why = why_outside(has_library, is_served);
                printer.note(&format!("connections of {name} (process {pid}) are {how}, because {why}"));
            }
        }
    }

    /// Prints notes at the end of a run, when the options of `reset` connections were reset.
    pub fn end(&mut self, watcher: &Watcher, reset: usize, printer: &Printer) {
        let counts = watcher.counts();
        self.inaccessible(Duration::ZERO, watcher, printer);
        if reset > 0 {
            let connections = counted(reset as u64, "connection", "connections");
            printer.note(&format!("the options of {connections} were reset"));
        }
        if self.wants_inside && counts.processes == 0 {
            printer.note(
                "no program could use libdwell: connections were measured from outside. Use the \
                 library of the same version as dwell, and a dwell without file capabilities \
                 (setcap), because they keep programs from loading it. One that was built with -fsanitize=thread, \
                 memory or hwaddress cannot use it",
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
        for refused in counts.refused {
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
    /// Returns true if nothing is to be printed about a process any more.
    fn is_done(&self, pid: u32) -> bool {
        self.names.len() >= MAX_NAMED || self.pids.contains(&pid)
    }

    /// Returns the name of a process if it is to be named: the first process of each name, up to a number of names.
    fn name(&mut self, pid: u32) -> Option<String> {
        if self.is_done(pid) {
            return None;
        }
        self.pids.insert(pid);
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        let name = name.map_or_else(|_| "a program".into(), |name| harmless(name.trim()));
        self.names.insert(name.clone()).then_some(name)
    }
}

/// The network namespaces that could not be entered, by their numbers, and since when; without a time once that was reported. A process
/// that ends while its namespace is looked for leaves one that the next search enters.
#[derive(Default)]
struct Inaccessible(HashMap<u64, Option<Instant>>);

impl Inaccessible {
    /// Returns true once per namespace, after it has been inaccessible for `patience`, and for a number of namespaces at most.
    fn is_news(&mut self, number: u64, now: Instant, patience: Duration) -> bool {
        let reported = self.0.values().filter(|since| since.is_none()).count();
        let since = self.0.entry(number).or_insert(Some(now));
        let is_late = since.is_some_and(|since| now.duration_since(since) >= patience);
        if is_late {
            *since = None;
        }
        is_late && reported < MAX_NAMED
    }
}

/// Returns why the library of a process does not measure its connections.
fn why_outside(has_library: bool, is_served: bool) -> &'static str {
    match (has_library, is_served) {
        (false, _) => {
            "they were not made through libdwell: the program is linked statically, setuid, or started without \
             LD_PRELOAD"
        }
        (true, false) => {
            "its libdwell cannot open dwell's table: it runs as another user, and the program that started it has \
             closed the inherited descriptor, it has a libdwell of another version, or it was built with \
             -fsanitize=thread, memory or hwaddress"
        }
        (true, true) => "they were not made by calls of the C library, or were inherited",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_stays_inaccessible_is_reported_once() {
        let (mut found, start) = (Inaccessible::default(), Instant::now());
        let reported: Vec<_> =
            [0, 500, 1000, 1500].map(|ms| found.is_news(1, start + Duration::from_millis(ms), LATE)).into();
        assert_eq!(reported, [false, false, true, false]);
        assert!(found.is_news(2, start, Duration::ZERO), "at the end of a run");
        let more = (3..100).filter(|number| found.is_news(*number, start, Duration::ZERO)).count();
        assert_eq!(more + 2, MAX_NAMED);
    }
}
