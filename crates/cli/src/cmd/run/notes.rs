//! What a reader has to know of the measurement itself, each thing once.

use std::{collections::BTreeSet, fs};

use dwell_engine::socket::{Estimator, Way};
use dwell_records::{Socket, counted};
use dwell_socket::table::{Counts, Wish};

use super::{Args, print::Printer, watcher::Watcher};

/// Programs that are named as being watched from outside.
const NAMED: usize = 8;

/// Remembers what was told.
pub struct Notes {
    wants_exact: bool,
    wants_inside: bool,
    falls_back: bool,
    outside: BTreeSet<String>,
    outside_pids: BTreeSet<u32>,
    denied: BTreeSet<u32>,
}

impl Notes {
    /// `is_inside`: a library is loaded into the program.
    pub fn new(args: &Args, is_inside: bool) -> Notes {
        Notes {
            wants_exact: args.estimator() == Estimator::Exact,
            wants_inside: is_inside,
            falls_back: false,
            outside: BTreeSet::new(),
            outside_pids: BTreeSet::new(),
            denied: BTreeSet::new(),
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
            if self.wants_inside && account.way == Way::Outside {
                self.outside(account.pid, printer);
            }
        }
        for pid in watcher.denied() {
            if self.denied.insert(*pid) {
                printer.note(&format!(
                    "cannot see which connections process {pid} has, as it is of another user or \
                     setuid: they are not measured; run dwell as root to see them"
                ));
            }
        }
    }

    fn outside(&mut self, pid: Option<u32>, printer: &Printer) {
        let Some(pid) = pid.filter(|_| self.outside.len() < NAMED) else {
            return;
        };
        if !self.outside_pids.insert(pid) {
            return;
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        let name = name.map_or_else(|_| "a program".into(), |name| printable(name.trim()));
        if self.outside.insert(name.clone()) {
            printer.note(&format!(
                "connections of {name} (process {pid}) are measured from outside, as they were not \
                 made through libdwell: it is linked statically, setuid, or does not call the C \
                 library"
            ));
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
            (counts.too_short, "connections too short to be looked at"),
            (
                counts.no_place,
                "connections without a free place in the table, measured from outside",
            ),
            (
                counts.no_poller,
                "times a process could not start a thread that looks at its connections",
            ),
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

/// Any process may call itself anything.
fn printable(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}
