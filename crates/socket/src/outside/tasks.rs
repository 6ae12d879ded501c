//! What the threads of a process did: ran, waited for a processor, or waited for a disk.

use std::{collections::BTreeMap, fs};

use dwell_engine::why::Process;

use super::processes::task_state;
use crate::clock::monotonic_ns;

/// Threads of a process that are watched.
const MAX_THREADS: usize = 1024;

/// The threads of a process since the first look.
pub(super) struct Tasks {
    pid: u32,
    start_ns: u64,
    /// By thread: the first and the last count of its time on a processor, and of its wait for one, in nanoseconds.
    threads: BTreeMap<u32, (Scheduled, Scheduled)>,
    looks: u64,
    /// Looks at which a thread waited for a disk.
    disk: u64,
}

/// Times of a thread as in /proc/PID/schedstat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Scheduled {
    ran_ns: u64,
    waited_ns: u64,
}

impl Tasks {
    pub(super) fn new(pid: u32) -> Tasks {
        Tasks { pid, start_ns: monotonic_ns(), threads: BTreeMap::new(), looks: 0, disk: 0 }
    }

    /// Reads the times and states of all threads. Those of a process that has ended stay as they were.
    pub(super) fn look(&mut self) {
        let Ok(folder) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return;
        };
        self.looks += 1;
        let mut waits_for_disk = false;
        let is_first = self.threads.is_empty();
        for thread in folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MAX_THREADS) {
            let path = format!("/proc/{}/task/{thread}", self.pid);
            waits_for_disk |= task_state(&format!("{path}/stat")) == Some('D');
            let Some(now) = fs::read_to_string(format!("{path}/schedstat")).ok().and_then(|text| scheduled(&text))
            else {
                continue;
            };
            if self.threads.len() < MAX_THREADS || self.threads.contains_key(&thread) {
                // A thread that began meanwhile has done nothing before.
                let first = if is_first { now } else { Scheduled::default() };
                self.threads.entry(thread).or_insert((first, now)).1 = now;
            }
        }
        self.disk += u64::from(waits_for_disk);
    }

    /// Returns the shares of the time since the first look; `None` if the kernel counts none, or nothing was seen.
    pub(super) fn figures(&self) -> Option<Process> {
        let elapsed = monotonic_ns().saturating_sub(self.start_ns) as f64;
        if self.threads.is_empty() || self.looks < 2 || elapsed <= 0.0 {
            return None;
        }
        let most = |of: fn(&Scheduled) -> u64| {
            let longest = self.threads.values().map(|(first, last)| of(last).saturating_sub(of(first))).max();
            (longest.unwrap_or(0) as f64 / elapsed).min(1.0)
        };
        Some(Process {
            busiest_thread: most(|it| it.ran_ns),
            waiting_thread: most(|it| it.waited_ns),
            disk: self.disk as f64 / self.looks as f64,
        })
    }
}

fn scheduled(text: &str) -> Option<Scheduled> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some(Scheduled { ran_ns: fields.next()??, waited_ns: fields.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_thread_are_read_and_damaged_ones_are_not() {
        assert_eq!(scheduled("12 34 5\n"), Some(Scheduled { ran_ns: 12, waited_ns: 34 }));
        assert_eq!(scheduled("12\n"), None);
        assert_eq!(scheduled("x 1 2"), None);
    }

    #[test]
    fn a_thread_that_computes_is_busy() {
        let mut own = Tasks::new(std::process::id());
        own.look();
        let begun = crate::clock::thread_cpu_ns();
        while crate::clock::thread_cpu_ns() - begun < 20_000_000 {}
        own.look();
        let figures = own.figures().unwrap();
        assert!(figures.busiest_thread > 0.0 && figures.busiest_thread <= 1.0, "{figures:?}");
    }
}
